//! What is joined, apart from where the rows come from.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, JoinOn, build_join_schema};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::bands::Bands;
use super::indexed;
use crate::encoding::decoded;

/// How rows find each other.
#[derive(Clone)]
pub(super) enum Method {
    /// By keys that are equal.
    Keys { on: JoinOn, null_equality: NullEquality },
    /// By keys that lie within ends.
    Bands(Bands),
    /// Each with each.
    Nested,
}

/// A join of two schemas.
#[derive(Clone)]
pub(super) struct Spec {
    pub(super) method: Method,
    pub(super) filter: Option<JoinFilter>,
    pub(super) join_type: JoinType,
    /// Those of the build side and of the probe side.
    pub(super) sides: [SchemaRef; 2],
    /// The columns that leave, and their schema.
    pub(super) output: Vec<ColumnIndex>,
    pub(super) schema: SchemaRef,
}

impl Spec {
    /// That of an operator of DataFusion; none where it is no join of this kind.
    pub(super) fn of(join: &dyn ExecutionPlan) -> Option<Self> {
        if let Some(join) = join.downcast_ref::<HashJoinExec>() {
            let on = join.on().to_vec();
            let method = Method::Keys { on, null_equality: join.null_equality() };
            let projection = join.projection.as_deref();
            Some(Self::new(join, method, join.filter(), *join.join_type(), projection))
        } else if let Some(join) = join.downcast_ref::<NestedLoopJoinExec>() {
            let projection = join.projection().as_deref();
            Some(Self::new(join, Method::Nested, join.filter(), *join.join_type(), projection))
        } else {
            let join = join.downcast_ref::<CrossJoinExec>()?;
            Some(Self::new(join, Method::Nested, None, JoinType::Inner, None))
        }
    }

    fn new(
        join: &dyn ExecutionPlan,
        method: Method,
        filter: Option<&JoinFilter>,
        join_type: JoinType,
        projection: Option<&[usize]>,
    ) -> Self {
        let children = join.children();
        let sides = [children[0].schema(), children[1].schema()];
        let (_, columns) = build_join_schema(&sides[0], &sides[1], &join_type);
        let output = match projection {
            Some(projection) => projection.iter().map(|&at| columns[at].clone()).collect(),
            None => columns,
        };
        Self { method, filter: filter.cloned(), join_type, sides, output, schema: join.schema() }
    }

    /// The same by the ends that its condition has for a key, where it is not joined by others and has some.
    pub(super) fn by_bands(self) -> Result<Self> {
        let (Method::Nested, Some(filter)) = (&self.method, &self.filter) else { return Ok(self) };
        Ok(match Bands::of(filter, [&self.sides[0], &self.sides[1]])? {
            Some(bands) => {
                let filter = self.filter.filter(|_| !bands.is_exact);
                Self { method: Method::Bands(bands), filter, ..self }
            }
            None => self,
        })
    }

    /// The same of another type, with other columns.
    pub(super) fn with_output(&self, join_type: JoinType, output: Vec<ColumnIndex>) -> Self {
        let (schema, columns) = build_join_schema(&self.sides[0], &self.sides[1], &join_type);
        let fields = output.iter().filter_map(|column| {
            columns.iter().position(|of_join| of_join == column).map(|at| schema.field(at).clone())
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { join_type, output, schema, ..self.clone() }
    }

    /// The same with one more column at the end of a side, the number of each row, which does not leave.
    pub(super) fn with_numbers(&self, side: usize) -> (Self, ColumnIndex) {
        let mut numbered = self.clone();
        let index = self.sides[side].fields().len();
        numbered.sides[side] = with_number(&self.sides[side]);
        let side = [JoinSide::Left, JoinSide::Right][side];
        (numbered, ColumnIndex { index, side })
    }

    /// The expressions whose values decide which rows of a side may meet; none where all may.
    pub(super) fn keys(&self, side: usize) -> Vec<Arc<dyn PhysicalExpr>> {
        match &self.method {
            Method::Keys { on, .. } => {
                let key = |(build, probe): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| {
                    Arc::clone([build, probe][side])
                };
                on.iter().map(key).collect()
            }
            Method::Bands(_) | Method::Nested => Vec::new(),
        }
    }

    /// All that is computed of the probe side before it is known whom its rows meet.
    pub(super) fn probed(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        match &self.method {
            Method::Bands(bands) => {
                let ends = bands.all().flat_map(|band| [&band.least, &band.most]);
                ends.flatten().map(|end| Arc::clone(&end.of)).collect()
            }
            Method::Keys { .. } | Method::Nested => self.keys(1),
        }
    }

    /// Whether a row whose key is NULL meets no other.
    pub(super) fn nulls_meet_nothing(&self) -> bool {
        match &self.method {
            Method::Keys { null_equality, .. } => *null_equality == NullEquality::NullEqualsNothing,
            Method::Bands(_) | Method::Nested => false,
        }
    }

    /// Whether rows of the build side leave once all rows of the probe side have been seen.
    pub(super) fn ends_with_build_rows(&self) -> bool {
        match self.join_type {
            JoinType::Left
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::LeftSemi
            | JoinType::Full => true,
            JoinType::Inner
            | JoinType::Right
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark => false,
        }
    }

    /// Whether no row can leave where a side has so many rows.
    pub(super) fn is_empty_for(&self, build_rows: usize, probe_rows: usize) -> bool {
        let (build_alone, probe_alone) = match self.join_type {
            JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => (false, false),
            JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => (true, false),
            JoinType::Right | JoinType::RightAnti | JoinType::RightMark => (false, true),
            JoinType::Full => (true, true),
        };
        match (build_rows, probe_rows) {
            (0, 0) => true,
            (0, _) => !probe_alone,
            (_, 0) => !build_alone,
            _ => false,
        }
    }

    /// Bytes of what is made of so many rows of the build side besides them.
    pub(super) fn table_bytes(&self, rows: usize) -> usize {
        indexed::table_bytes(&self.method, [&self.sides[0], &self.sides[1]], rows)
    }

    /// Rows of the probe side, which may be encoded, that met none, or with a mark: as they leave.
    pub(super) fn alone(
        &self,
        probe: &RecordBatch,
        marks: Option<&BooleanArray>,
    ) -> Result<RecordBatch> {
        let rows = probe.num_rows();
        let column = |(at, column): (usize, &ColumnIndex)| -> Result<ArrayRef> {
            let data_type = self.schema.field(at).data_type();
            Ok(match (column.side, marks) {
                (JoinSide::Right, _) => decoded(probe.column(column.index), data_type)?,
                (JoinSide::None, Some(marks)) => Arc::new(marks.clone()),
                (JoinSide::Left | JoinSide::None, _) => new_null_array(data_type, rows),
            })
        };
        let columns = self.output.iter().enumerate().map(column).collect::<Result<_>>()?;
        batch(&self.schema, columns, rows)
    }
}

/// A schema with the number of each row at its end.
pub(super) fn with_number(schema: &SchemaRef) -> SchemaRef {
    let number = Arc::new(Field::new("number of the row", DataType::UInt64, false));
    let fields = schema.fields().iter().cloned().chain([number]);
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// A batch of so many rows, which may have no column.
pub(super) fn batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
