//! A filter over numbers, and what is computed of the rows that it keeps, become one operator.
//!
//! ```text
//! ProjectionExec: a * 2 + b, exp(-a / 2), s     ProjectionExec: x, exp(y), s
//!   FilterExec: c > 0 AND a < b            ──►    TransformExec: x = a * 2 + b, y = -a / 2, s, c > 0 AND a < b
//!     …                                             …
//! ```
//!
//! Enters: a plan after DataFusion's rules. Leaves: the same plan where no expression but those below is moved, so
//! that whatever can fail, or looks at more than its row, is evaluated where it was.
//!
//! - **Numbers**: columns and constants, `+ - * /`, a change of sign, `abs`, `floor`, `ceil`; in `DOUBLE`, to which other
//!   columns are converted, or in `REAL`.
//! - **Decimals**: columns and constants, `+ - *`, as a whole expression of a projection over a filter or a table.
//! - **Conditions**: comparisons of those; of columns of integers, decimals, dates and times with constants and with one
//!   another; of columns of texts with a text, for equality; `IN` a few such; `IS NULL`; columns of truth values; `AND`,
//!   `OR`, `NOT`.
//!
//! Exponentials and their like are not here: the processor's vectors would answer with other last digits than the
//! platform's library, and SQL's answers must not depend on a setting.

mod recognize;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CaseExpr, Column, LambdaExpr};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr_common::physical_expr::with_new_children_if_necessary;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use self::recognize::Computed;
use super::patterns;
use crate::config::{ForRules, Fusion, Pattern};
use crate::exec::transform::{
    Condition, Decimals, Filter, Gathering, Number, Numbers, Output, Transform, TransformExec,
};
use crate::storage::TableScan;

/// The rule; see the header of this file. Runs after DataFusion's, which look for filters and projections by type.
#[derive(Debug)]
pub(crate) struct TransformFilter;

impl PhysicalOptimizerRule for TransformFilter {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match config.extensions.get::<ForRules>().map(|settings| settings.fusion) {
            Some(fusion) if fusion.patterns.contains(Pattern::TransformFilter) => plan
                .transform_down(|node| {
                    Ok(match fused(&node, fusion)? {
                        Some(fused) => Transformed::yes(fused),
                        None => Transformed::no(node),
                    })
                })
                .map(|plan| plan.data),
            _ => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "transform_filter"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The operator that a projection, a filter, or one over the other becomes.
fn fused(node: &Arc<dyn ExecutionPlan>, fusion: Fusion) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if node.is::<FilterExec>() {
        let Some(rows) = Rows::below(node, 0, fusion) else { return Ok(None) };
        return rows.filtered(node);
    }
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    // Over a projection of DataFusion's for what several expressions share, which is shared here too.
    for levels in [2, 1] {
        if let Some(rows) = Rows::below(node, levels, fusion)
            && let Some(fused) = rows.projected(projection)?
        {
            return Ok(Some(fused));
        }
    }
    Ok(None)
}

/// What a projection reads: rows of an input, below other projections and perhaps a filter.
struct Rows<'a> {
    /// From the uppermost to the lowest, but for the projection that reads them.
    projections: Vec<&'a ProjectionExec>,
    filter: Option<(&'a FilterExec, Condition)>,
    input: &'a Arc<dyn ExecutionPlan>,
    fusion: Fusion,
}

impl<'a> Rows<'a> {
    /// What is below so many projections. A filter whose condition is of another kind is part of the input.
    fn below(node: &'a Arc<dyn ExecutionPlan>, levels: usize, fusion: Fusion) -> Option<Self> {
        let mut input = node;
        let mut projections = Vec::new();
        for _ in 0..levels {
            let projection = input.downcast_ref::<ProjectionExec>()?;
            projections.push(projection);
            input = projection.input();
        }
        let projections = projections.into_iter().skip(1).collect();
        let mut rows = Self { projections, filter: None, input, fusion };
        if let Some(filter) = input.downcast_ref::<FilterExec>() {
            let below =
                Rows { projections: Vec::new(), filter: None, input: filter.input(), fusion };
            let condition = below.condition(filter.predicate()).filter(|condition| {
                let mut tests = Vec::new();
                condition.tests(&mut tests);
                tests.iter().all(|test| test.depth() <= fusion.depth_max)
            });
            if let Some(condition) = condition {
                rows.input = filter.input();
                rows.filter = Some((filter, condition));
            }
        }
        Some(rows)
    }

    /// The operators between the reader and the input.
    fn depth(&self) -> usize {
        self.projections.len() + usize::from(self.filter.is_some())
    }

    /// The share of rows that is guessed to be kept, as DataFusion guesses it where it knows nothing.
    fn kept_share(&self) -> f64 {
        let filter = self.filter.as_ref();
        filter.map_or(1.0, |(filter, _)| f64::from(filter.default_selectivity()) / 100.0)
    }

    /// The table that is read, if it is one.
    fn table(&self) -> Option<&TableScan> {
        let scan = self.input.downcast_ref::<DataSourceExec>()?;
        scan.data_source().downcast_ref()
    }

    /// What joins tell of the rows of a table that the filter looks at first; scans of files drop them themselves.
    fn told(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        // Rows that a limit counts are not dropped before.
        let filter = self.filter.as_ref().filter(|(filter, _)| filter.fetch().is_none());
        self.table().filter(|_| filter.is_some()).map_or_else(Vec::new, TableScan::told)
    }

    fn gathering(&self) -> Gathering {
        match &self.filter {
            Some((filter, _)) => {
                Gathering { batch_rows: filter.batch_size(), rows_max: filter.fetch() }
            }
            None => Gathering { batch_rows: 0, rows_max: None },
        }
    }

    /// The filter alone.
    fn filtered(self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some((filter, condition)) = &self.filter else { return Ok(None) };
        // That rows of a table are decoded only if they are kept is worth one more.
        let operations = condition.operations() + usize::from(self.table().is_some());
        if operations < self.fusion.operations_min && self.told().is_empty() {
            return Ok(None);
        }
        let outputs = match filter.projection() {
            Some(columns) => columns.iter().map(|&at| Output::Passed(at)).collect(),
            None => (0..node.schema().fields().len()).map(Output::Passed).collect(),
        };
        let outputs = Outputs { outputs, ..Outputs::default() };
        self.operator(outputs, Arc::clone(node), 1).map(Some)
    }

    /// The projection over what is below it; what is computed otherwise stays in a projection above.
    fn projected(self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let found = projection.expr().iter().map(|projected| self.computed(&projected.expr));
        let found: Vec<Option<Computed>> = found.collect::<Result<_>>()?;
        let mut outputs = Outputs::default();
        if found.iter().all(Option::is_some) {
            for (computed, projected) in found.into_iter().flatten().zip(projection.expr()) {
                outputs.add(computed, projected.clone());
            }
            if !self.is_worth_it(&outputs) {
                return Ok(None);
            }
            let depth = 1 + self.depth();
            return self.operator(outputs, Arc::new(projection.clone()), depth).map(Some);
        }
        let mut above = Vec::new();
        for (projected, found) in projection.expr().iter().zip(found) {
            let read = match found {
                Some(computed) => Some(outputs.column(computed, projected.clone())),
                None => self.reading(&projected.expr, true, &mut outputs)?,
            };
            let Some(expr) = read else { return Ok(None) };
            above.push(ProjectionExpr { expr, alias: projected.alias.clone() });
        }
        if !self.is_worth_it(&outputs) {
            return Ok(None);
        }
        let read = std::mem::take(&mut outputs.projected);
        let ordinary = ProjectionExec::try_new(read, Arc::clone(projection.input()))?;
        let depth = 1 + self.depth();
        let operator = self.operator(outputs, Arc::new(ordinary), depth)?;
        let (schema, made) = (projection.schema(), operator.schema());
        // A choice that is never NULL is known for that by its conditions, of which one may be a column now.
        for (projected, field) in above.iter().zip(schema.fields()) {
            if projected.expr.nullable(&made)? && !field.is_nullable() {
                return Ok(None);
            }
        }
        let above = ProjectionExec::try_new_with_schema_metadata(above, operator, &schema)?;
        Ok(Some(Arc::new(above)))
    }

    /// What a whole expression of a projection is, if it is computed here.
    fn computed(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Computed>> {
        match self.output(expr) {
            Some(computed) => Ok(Some(computed)),
            None => self.decimal(expr),
        }
    }

    /// Whether one loop saves anything: operations that follow one another, or rows that are dropped.
    fn is_worth_it(&self, outputs: &Outputs) -> bool {
        let computed = || outputs.numbers().map(Number::operations);
        let operations = match &self.filter {
            Some((_, condition)) if computed().any(|operations| operations > 0) => {
                condition.operations() + computed().sum::<usize>()
            }
            Some(_) => 0,
            None => computed().max().unwrap_or(0),
        };
        operations >= self.fusion.operations_min
    }

    /// An expression that is evaluated above, over columns that leave for it, and over numbers too where those are
    /// of all rows.
    fn reading(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        of_all_rows: bool,
        outputs: &mut Outputs,
    ) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        let is_column = expr.is::<Column>();
        if (is_column || of_all_rows)
            && let Some(computed) = self.output(expr)
        {
            let column = expr.downcast_ref::<Column>();
            let alias = column.map_or_else(|| expr.to_string(), |column| column.name().to_owned());
            let projected = ProjectionExpr { expr: Arc::clone(expr), alias };
            return Ok(Some(outputs.column(computed, projected)));
        }
        // A parameter of a lambda is a place behind the columns of the rows that it is called beside.
        if is_column || expr.is::<LambdaExpr>() {
            return Ok(None);
        }
        // The branches of a choice are of some rows alone.
        let of_all_rows = of_all_rows && !expr.is::<CaseExpr>();
        let mut children = Vec::new();
        for child in expr.children() {
            match self.reading(child, of_all_rows, outputs)? {
                Some(child) => children.push(child),
                None => return Ok(None),
            }
        }
        with_new_children_if_necessary(Arc::clone(expr), children).map(Some)
    }

    fn operator(
        self,
        outputs: Outputs,
        ordinary: Arc<dyn ExecutionPlan>,
        depth: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let condition = self.filter.as_ref().map(|(_, condition)| condition);
        let numbers: Vec<&Number> = outputs.numbers().collect();
        let fusion =
            patterns::transform_filter(condition, &numbers, self.input, self.kept_share())?;
        let gathering = self.gathering();
        let transform = Transform {
            told: self.told(),
            filter: self.filter.map(|(_, condition)| Filter::new(condition)),
            doubles: Numbers::new(&outputs.doubles),
            singles: Numbers::new(&outputs.singles),
            decimals: Decimals::new(&outputs.decimals, &self.input.schema())?,
            outputs: outputs.outputs,
        };
        Ok(Arc::new(TransformExec::new(transform, gathering, ordinary, depth, fusion)?))
    }
}

/// The columns of a transformation.
#[derive(Default)]
struct Outputs {
    doubles: Vec<Number>,
    singles: Vec<Number>,
    decimals: Vec<Arc<dyn PhysicalExpr>>,
    /// What those take.
    of_decimals: Vec<Number>,
    outputs: Vec<Output>,
    /// The expressions that they are.
    projected: Vec<ProjectionExpr>,
}

impl Outputs {
    /// All that is computed.
    fn numbers(&self) -> impl Iterator<Item = &Number> {
        self.doubles.iter().chain(&self.singles).chain(&self.of_decimals)
    }

    /// Adds a column, and says at which place it is.
    fn add(&mut self, computed: Computed, projected: ProjectionExpr) -> usize {
        let output = match computed {
            Computed::Passed(at) => Output::Passed(at),
            Computed::Double(number) => {
                self.doubles.push(number);
                Output::Double(self.doubles.len() - 1)
            }
            Computed::Single(number) => {
                self.singles.push(number);
                Output::Single(self.singles.len() - 1)
            }
            Computed::Decimal(decimal, number) => {
                self.decimals.push(decimal);
                self.of_decimals.push(number);
                Output::Decimal(self.decimals.len() - 1)
            }
        };
        self.outputs.push(output);
        self.projected.push(projected);
        self.outputs.len() - 1
    }

    /// The column as those above read it; one that passes leaves once, however many ask for it.
    fn column(&mut self, computed: Computed, projected: ProjectionExpr) -> Arc<dyn PhysicalExpr> {
        let passed = match computed {
            Computed::Passed(at) => {
                self.outputs.iter().position(|&output| output == Output::Passed(at))
            }
            Computed::Double(_) | Computed::Single(_) | Computed::Decimal(..) => None,
        };
        let place = passed.unwrap_or_else(|| self.add(computed, projected));
        Arc::new(Column::new(&self.projected[place].alias, place))
    }
}
