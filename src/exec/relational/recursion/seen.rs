//! The rows that a recursive UNION has made, none of which it makes again.
//!
//! Enters: rows of a round. Leaves: those that were not there before. As long as they fit, all are in a table of groups, and
//! a row is known to be new when it comes. Then they go to files, and the rows of a round wait in another: at its end,
//! those that differ from one another are joined with those that were seen, by operators that spill.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::{ExecutionPlan, SpillManager};

use crate::exec::relational::feed::Feed;
use crate::exec::relational::files::{RowFile, Rows, files_of};
use crate::exec::relational::join::SpillingJoinExec;
use crate::exec::relational::memory::Memory;

/// Rows of a batch that leaves the table.
const BATCH_ROWS: usize = 8192;

/// Of the table, what there must be room for: it is there a second time when it leaves.
const COPIES: usize = 2;

/// The rows that were made; see the header of this file.
pub(super) struct Seen {
    place: Place,
    memory: Memory,
    manager: SpillManager,
    context: Arc<TaskContext>,
}

enum Place {
    Table { groups: Box<dyn GroupValues>, bytes: usize },
    Files(Box<Files>),
}

struct Files {
    seen: Rows,
    /// What the round made, known or not.
    candidates: Option<RowFile>,
    /// What of it is new.
    new: Option<RowFile>,
}

impl Seen {
    /// # Errors
    /// Where rows of such columns cannot be compared.
    pub(super) fn new(
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
        spills: &SpillMetrics,
    ) -> Result<Self> {
        let groups = new_group_values(Arc::clone(schema), &GroupOrdering::None)?;
        Ok(Self {
            place: Place::Table { groups, bytes: 0 },
            memory: Memory::new("SpillingRecursion", context.memory_pool()),
            manager: files_of(schema, context, spills),
            context: Arc::clone(context),
        })
    }

    /// The new rows among these; `None` where that is not known before the end of the round.
    ///
    /// # Errors
    /// Where there is no room for a file.
    pub(super) fn new_rows(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let (groups, bytes) = match &mut self.place {
            Place::Files(files) => {
                return append(&mut files.candidates, &self.manager, &batch).map(|()| None);
            }
            Place::Table { groups, bytes } => (groups, bytes),
        };
        let mut next = groups.len();
        let mut ids = Vec::with_capacity(batch.num_rows());
        groups.intern(batch.columns(), &mut ids)?;
        // Groups are numbered in the order in which they come: the first row of a new one has the next number.
        let is_new = ids.iter().map(|&id| {
            let is_new = id == next;
            next += usize::from(is_new);
            Some(is_new)
        });
        let new = filter_record_batch(&batch, &is_new.collect::<BooleanArray>())?;
        let (before, after) = (*bytes, COPIES * groups.size());
        *bytes = after;
        match after.checked_sub(before) {
            None => self.memory.shrink(before - after),
            Some(more) if self.memory.try_grow(more) => {}
            Some(more) => {
                self.memory.grow(more);
                self.leave_the_table()?;
            }
        }
        Ok(Some(new))
    }

    /// Writes all groups to a file.
    fn leave_the_table(&mut self) -> Result<()> {
        let Place::Table { groups, bytes } = &mut self.place else { return Ok(()) };
        let columns = groups.emit(EmitTo::All)?;
        let all = RecordBatch::try_new(Arc::clone(self.manager.schema()), columns)?;
        let mut file = RowFile::new(&self.manager, "a recursion")?;
        for start in (0..all.num_rows()).step_by(BATCH_ROWS) {
            file.append(&all.slice(start, BATCH_ROWS.min(all.num_rows() - start)))?;
        }
        let bytes = *bytes;
        let seen = file.finish()?;
        self.place = Place::Files(Box::new(Files { seen, candidates: None, new: None }));
        self.memory.shrink(bytes);
        Ok(())
    }

    /// The new rows among those of the round that had to wait; each is to be [added](Self::add).
    ///
    /// # Errors
    /// Those of files and operators.
    pub(super) fn late_rows(&mut self) -> Result<Option<SendableRecordBatchStream>> {
        let Place::Files(files) = &mut self.place else { return Ok(None) };
        let Some(candidates) = files.candidates.take() else { return Ok(None) };
        let plan = unseen(candidates.finish()?.read(), files.seen.read())?;
        plan.execute(0, Arc::clone(&self.context)).map(Some)
    }

    /// Remembers rows that were late.
    ///
    /// # Errors
    /// Where there is no room for a file.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let Place::Files(files) = &mut self.place else { return Ok(()) };
        append(&mut files.new, &self.manager, batch)
    }

    /// All rows of the round have been taken.
    ///
    /// # Errors
    /// Where a file cannot be written to its end.
    pub(super) fn end_round(&mut self) -> Result<()> {
        let Place::Files(files) = &mut self.place else { return Ok(()) };
        if let Some(new) = files.new.take() {
            files.seen.append(new.finish()?);
        }
        Ok(())
    }
}

fn append(file: &mut Option<RowFile>, manager: &SpillManager, batch: &RecordBatch) -> Result<()> {
    let file = match file {
        Some(file) => file,
        none => none.insert(RowFile::new(manager, "a recursion")?),
    };
    file.append(batch)
}

/// Rows, each once, that are not among others; NULL is equal to NULL.
fn unseen(
    rows: SendableRecordBatchStream,
    others: SendableRecordBatchStream,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = rows.schema();
    let fed = |rows: SendableRecordBatchStream| {
        let feed = Feed::of(rows.schema(), 1);
        feed.put(0, rows);
        feed
    };
    let columns = schema.fields().iter().enumerate().map(|(at, field)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        (column, field.name().clone())
    });
    let groups = PhysicalGroupBy::new_single(columns.clone().collect());
    let mode = AggregateMode::Single;
    let distinct =
        AggregateExec::try_new(mode, groups, vec![], vec![], fed(rows), Arc::clone(&schema))?;
    let on = columns.map(|(column, _name)| (Arc::clone(&column), column)).collect();
    let join: Arc<dyn ExecutionPlan> = Arc::new(HashJoinExec::try_new(
        Arc::new(distinct),
        fed(others),
        on,
        None,
        &JoinType::LeftAnti,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNull,
        false,
    )?);
    Ok(match SpillingJoinExec::new(Arc::clone(&join)) {
        Some(join) => Arc::new(join),
        None => join,
    })
}
