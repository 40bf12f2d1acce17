//! PREPARE, EXECUTE and DEALLOCATE: a statement is kept as syntax, so that it sees the tables and settings of each time; its plan
//! may be known (`plans`).

use std::ops::ControlFlow;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr as LogicalExpr, LogicalPlan};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::{
    CastKind, DataType, Expr, Ident, SelectItem, Statement, UnaryOperator, Value, ValueWithSpan,
};

use super::{Session, Started, locked};
use crate::catalog::{exists, normalized, unknown};
use crate::error::{Error, Result};
use crate::memory::task;
use crate::planner::modify;
use crate::query::Running;
use crate::sql;
use crate::value::Parameters;

/// A statement under a name, with the types of its parameters where they were given.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    types: Vec<DataType>,
    statement: Box<Statement>,
}

/// The number of values that a statement takes; `None` where some go by a name.
fn placeholder_count(statement: &Statement) -> Option<usize> {
    let mut count = 0;
    let named = sql::walk_expressions(statement, |expr| {
        let Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) = expr else {
            return ControlFlow::Continue(());
        };
        match name.trim_start_matches('$').parse() {
            Ok(number) => {
                count = count.max(number);
                ControlFlow::Continue(())
            }
            Err(_) => ControlFlow::Break(()),
        }
    });
    named.is_continue().then_some(count)
}

impl Session {
    /// Does what PREPARE and DEALLOCATE say.
    pub(super) fn keep_prepared(&self, statement: &Statement) -> Result<Option<Started>> {
        let mut prepared = locked(&self.prepared);
        match statement {
            Statement::Prepare { name, data_types, statement } => {
                let name = normalized(name);
                if prepared.contains_key(&name) {
                    return Err(exists("prepared statement", &name));
                }
                let mut statement = statement.clone();
                sql::forget_places(statement.as_mut());
                let kept = Prepared { types: data_types.clone(), statement };
                prepared.insert(name, kept);
            }
            Statement::Deallocate { name, .. } if name.value.eq_ignore_ascii_case("all") => {
                prepared.clear();
            }
            Statement::Deallocate { name, .. } => {
                let name = normalized(name);
                prepared.remove(&name).ok_or_else(|| unknown("prepared statement", &name))?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Started::Done))
    }

    /// For EXECUTE, the statement it names and the values it gives.
    pub(super) async fn prepared(
        &self,
        syntax: &SqlStatement,
    ) -> Result<Option<(SqlStatement, Parameters)>> {
        let SqlStatement::Statement(statement) = syntax else { return Ok(None) };
        let Statement::Execute { name: Some(name), parameters, using, .. } = statement.as_ref()
        else {
            return Ok(None);
        };
        let ident = name.0.last().and_then(|part| part.as_ident());
        let name = ident.map_or_else(|| name.to_string(), normalized);
        let prepared = locked(&self.prepared).get(&name).cloned();
        let prepared = prepared.ok_or_else(|| unknown("prepared statement", &name))?;
        let given: Vec<_> =
            parameters.iter().chain(using.iter().map(|value| &value.expr)).cloned().collect();
        let refused = |takes: usize| {
            let message = format!("takes {takes} values, not {}", given.len());
            Error::argument(format!("prepared statement '{name}'"), message)
        };
        if !prepared.types.is_empty() && prepared.types.len() != given.len() {
            return Err(refused(prepared.types.len()));
        }
        if let Some(count) = placeholder_count(&prepared.statement)
            && given.len() > count
        {
            return Err(refused(count));
        }
        let values = self.values(given, &prepared.types).await?;
        Ok(Some((SqlStatement::Statement(prepared.statement), values)))
    }

    /// The values of expressions that name no columns, cast where types are given.
    async fn values(&self, given: Vec<Expr>, types: &[DataType]) -> Result<Parameters> {
        if types.is_empty()
            && let Some(values) = given.iter().map(literal).collect::<Option<Vec<_>>>()
        {
            return Ok(values.into_iter().collect());
        }
        let cast = |(at, value): (usize, Expr)| match types.get(at) {
            Some(data_type) => Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value),
                data_type: data_type.clone(),
                array: false,
                format: None,
            },
            None => value,
        };
        let alias = |at: usize| Ident::new(format!("p{at}"));
        let select = given
            .into_iter()
            .enumerate()
            .map(|(at, value)| SelectItem::ExprWithAlias {
                expr: cast((at, value)),
                alias: alias(at),
            })
            .collect();
        let query = modify::query(select, Vec::new(), None);
        let syntax = SqlStatement::Statement(Box::new(Statement::Query(Box::new(query))));
        let scope = self.scope();
        let state = scope.state()?;
        let plan = self.plan(&scope, syntax, &Parameters::new(), &Running::new(None)).await?;
        if let LogicalPlan::Projection(projection) = &plan
            && let Some(values) = projection.expr.iter().map(constant).collect::<Option<Vec<_>>>()
        {
            return Ok(values.into_iter().collect());
        }
        let plan = state.create_physical_plan(&plan).await?;
        let batches: Vec<RecordBatch> = collect(plan, task(&state)).await?;
        let row = batches.iter().find(|batch| batch.num_rows() == 1);
        let row = row.ok_or_else(|| Error::argument("EXECUTE", "its values are not one row"))?;
        let value = |column: &ArrayRef| ScalarValue::try_from_array(column, 0);
        Ok(row.columns().iter().map(value).collect::<Result<Vec<_>, _>>()?.into_iter().collect())
    }
}

/// What is written as a value of one of the types that DataFusion's planner gives such: then there is nothing to plan.
fn literal(expr: &Expr) -> Option<ScalarValue> {
    let whole = |text: &str| text.parse().ok().map(|number| ScalarValue::Int64(Some(number)));
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => whole(text),
            Value::SingleQuotedString(text) => Some(ScalarValue::Utf8(Some(text.clone()))),
            Value::Boolean(value) => Some(ScalarValue::Boolean(Some(*value))),
            Value::Null => Some(ScalarValue::Null),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => {
                whole(&format!("-{text}"))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The value of an expression that need not be computed.
fn constant(expr: &LogicalExpr) -> Option<ScalarValue> {
    match expr {
        LogicalExpr::Literal(value, _) => Some(value.clone()),
        LogicalExpr::Alias(alias) => constant(&alias.expr),
        LogicalExpr::Cast(cast) => {
            constant(&cast.expr).filter(|value| value.data_type() == *cast.field.data_type())
        }
        _ => None,
    }
}
