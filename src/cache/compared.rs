//! An operator whose rows are compared with what is known of them, before anybody sees one.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
    common,
};
use futures::stream;

use super::compare::{difference, stale};
use crate::error::{Error, ErrorKind};

/// The operator; see the header of this file.
#[derive(Debug)]
pub(crate) struct ComparedExec {
    /// Those that are computed, and those that are known.
    inputs: [Arc<dyn ExecutionPlan>; 2],
    order: Order,
    properties: Arc<PlanProperties>,
}

/// By what rows are the first of more; by nothing where all of them are there.
type Order = Arc<[PhysicalSortExpr]>;

impl ComparedExec {
    pub(crate) fn new(
        computed: Arc<dyn ExecutionPlan>,
        known: Arc<dyn ExecutionPlan>,
        order: Order,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(computed.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { inputs: [computed, known], order, properties: Arc::new(properties) }
    }
}

impl ExecutionPlan for ComparedExec {
    fn name(&self) -> &str {
        "ComparedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; 2])
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [computed, known] = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children)
            .map_err(|_| Error::from(ErrorKind::Internal("two inputs are compared".into())))?;
        Ok(Arc::new(Self::new(computed, known, Arc::clone(&self.order))))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for key in self.order.iter() {
            if visit(&key.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let [computed, known] = &self.inputs;
        let computed = computed.execute(partition, Arc::clone(&context))?;
        let known = known.execute(partition, context)?;
        let rows = stream::once(compared(computed, known, Arc::clone(&self.order)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// All rows that are computed, if they are those that are known.
async fn compared(
    computed: SendableRecordBatchStream,
    known: SendableRecordBatchStream,
    order: Order,
) -> Result<RecordBatch> {
    let schema = computed.schema();
    let computed = concat_batches(&schema, &common::collect(computed).await?)?;
    let known = concat_batches(&schema, &common::collect(known).await?)?;
    let of =
        if order.is_empty() { "the groups of this query" } else { "the first rows of this query" };
    match unlike(&order, known, computed.clone())? {
        None => Ok(computed),
        Some(difference) => Err(stale(of, &difference).into()),
    }
}

impl DisplayAs for ComparedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ComparedExec")
    }
}

/// How rows differ. Of first rows those that tie with the last may be any with their keys.
fn unlike(
    order: &[PhysicalSortExpr],
    known: RecordBatch,
    computed: RecordBatch,
) -> Result<Option<String>> {
    let whole = |known: RecordBatch, computed| difference(&known.schema(), &[known], &[computed]);
    if order.is_empty() {
        return whole(known, computed);
    }
    let (known, computed) = (FirstRows::of(order, known)?, FirstRows::of(order, computed)?);
    match whole(known.keys, computed.keys)? {
        None => whole(known.settled, computed.settled),
        unlike => Ok(unlike),
    }
}

/// The first rows by some order.
struct FirstRows {
    keys: RecordBatch,
    /// Those before all that tie with the last.
    settled: RecordBatch,
}

impl FirstRows {
    fn of(order: &[PhysicalSortExpr], rows: RecordBatch) -> Result<Self> {
        let count = rows.num_rows();
        let key = |key: &PhysicalSortExpr| key.expr.evaluate(&rows)?.into_array(count);
        let keys = order.iter().map(key).collect::<Result<Vec<ArrayRef>>>()?;
        let field = |(key, of): (&ArrayRef, &PhysicalSortExpr)| {
            SortField::new_with_options(key.data_type().clone(), of.options)
        };
        let fields = keys.iter().zip(order).map(field).collect();
        let sorted = RowConverter::new(fields)?.convert_columns(&keys)?;
        let last = sorted.iter().max();
        let is_settled = sorted.iter().map(|row| Some(row) < last);
        let is_settled: BooleanArray = is_settled.map(Some).collect();
        let settled = filter_record_batch(&rows, &is_settled)?;
        let named = keys.into_iter().enumerate().map(|(at, key)| (format!("key {at}"), key, true));
        Ok(Self { keys: RecordBatch::try_from_iter_with_nullable(named)?, settled })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::compute::SortOptions;
    use datafusion::physical_expr::expressions::col;

    use super::*;

    fn unlike_by_key(known: &[(i64, i64)], computed: &[(i64, i64)]) -> Option<String> {
        let rows = |rows: &[(i64, i64)]| {
            let column = |of: fn(&(i64, i64)) -> i64| -> ArrayRef {
                Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
            };
            RecordBatch::try_from_iter([("k", column(|row| row.0)), ("v", column(|row| row.1))])
        };
        let (known, computed) = (rows(known).unwrap(), rows(computed).unwrap());
        let key = col("k", &known.schema()).unwrap();
        let options = SortOptions { descending: true, nulls_first: false };
        unlike(&[PhysicalSortExpr::new(key, options)], known, computed).unwrap()
    }

    #[test]
    fn first_rows_may_be_any_of_those_that_tie_with_the_last() {
        let rows = [(3, 1), (2, 1), (1, 1), (1, 2)];
        assert_eq!(unlike_by_key(&rows, &[(1, 9), (2, 1), (3, 1), (1, 8)]), None);
        assert_eq!(unlike_by_key(&[], &[]), None);
        let unlike = |computed: &[(i64, i64)]| unlike_by_key(&rows, computed).unwrap();
        assert_eq!(unlike(&[(3, 1), (2, 1), (1, 1)]), "4 rows, and 3");
        assert_eq!(unlike(&[(3, 1), (2, 2), (1, 1), (1, 2)]), "(2, 1), and (2, 2)");
        assert_eq!(unlike(&[(3, 1), (2, 1), (2, 1), (1, 2)]), "(1), and (2)");
    }
}
