//! Window functions, computed column by column.
//!
//! Enters: the arguments of a batch, and where in it partitions and peers begin. Leaves: a column.
//!
//! - `running`: what functions of a frame that begins with the partition are asked for
//! - `measures`: sums, counts, means and extremes; `accumulated`: every other aggregate, by DataFusion's accumulators
//! - `places`: `first_value`, `last_value`, `nth_value`, and the value of the first peer
//! - `sliding`: measures of some rows before and after each; `spanning`: of rows between any others; `shift`: values of rows
//!   before and after
//! - `ranks`: what numbers rows and peers

mod accumulated;
mod measures;
mod places;
mod ranks;
mod running;
mod shift;
mod sliding;
mod spanning;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ReversedUDAF;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use self::accumulated::Accumulated;
use self::measures::{Count, Measure, Taken, measured};
use self::places::{FirstPeer, Last, Nth};
use self::ranks::{CumeDist, Ntile, Rank, RowNumber};
use self::running::{EachRow, Folded};
pub(super) use self::running::{Ends, Piece, Running};
use self::shift::{Back, Shift};
use self::sliding::Sliding;
use self::spanning::Spanned;
pub(super) use self::spanning::Spanning;

/// Aggregates that come to the same in any order, but for their last digits, of which DataFusion does not say so.
const SYMMETRIC: [&str; 4] = ["stddev", "stddev_pop", "var", "var_pop"];

/// A function of the rows from the first of a partition on.
#[derive(Debug, Clone)]
pub(super) enum RunningFunction {
    /// With the types of its arguments.
    Aggregate(Arc<AggregateFunctionExpr>, Vec<DataType>),
    /// The number of rows.
    Rows,
    /// The value of this row of the partition, from 1.
    Nth(usize, DataType),
    Last(DataType),
}

impl RunningFunction {
    /// The function before any row.
    ///
    /// # Errors
    /// DataFusion's for an accumulator that it does not have.
    pub(super) fn start(&self) -> Result<Box<dyn Running>> {
        struct Boxed;
        impl Taken for Boxed {
            type Made = Box<dyn Running>;
            fn take<M: Measure>(self, measure: M) -> Self::Made {
                Box::new(Folded::new(measure))
            }
        }
        Ok(match self {
            Self::Aggregate(aggregate, arguments) => match measured(aggregate, arguments, Boxed) {
                Some(running) => running,
                None => Box::new(Accumulated::new(Arc::clone(aggregate))?),
            },
            Self::Rows => Box::new(Folded::new(Count)),
            Self::Nth(n, data_type) => Box::new(Nth::new(*n, data_type)),
            Self::Last(data_type) => Box::new(Last::new(data_type)),
        })
    }

    /// Whether it comes to the same when rows are taken from the last to the first.
    pub(super) fn has_no_order(&self) -> bool {
        let Self::Aggregate(aggregate, _) = self else { return true };
        let function = aggregate.fun();
        matches!(function.reverse_udf(), ReversedUDAF::Identical)
            || SYMMETRIC.contains(&function.name())
    }

    /// What it comes to where there are no rows, as a value of this type.
    ///
    /// # Errors
    /// DataFusion's for an accumulator that it does not have.
    pub(super) fn of_no_rows(&self, data_type: &DataType) -> Result<ScalarValue> {
        match self {
            Self::Aggregate(aggregate, _) => aggregate.default_value(data_type),
            Self::Rows => Ok(ScalarValue::from(0_i64)),
            Self::Nth(..) | Self::Last(_) => ScalarValue::try_from(data_type),
        }
    }
}

/// A function that has a value of its own for each row.
#[derive(Debug, Clone)]
pub(super) enum RowFunction {
    /// Of the rows from the first of the partition to this one.
    Running(RunningFunction),
    Sliding(Frame),
    /// The value so many rows before, or after where the number is negative; the other where there is no such row.
    Shift(i64, ScalarValue),
    /// The value so many rows before, or that of the first of the partition.
    Back(usize),
    /// The value of the first of its peers.
    FirstPeer,
    RowNumber,
    Rank,
    DenseRank,
    /// Of the number of rows in the partition.
    PercentRank,
    /// Of the number of rows up to the last peer, and of those in the partition.
    CumeDist,
    /// So many groups, of the number of rows in the partition.
    Ntile(u64),
}

/// An aggregate of so many rows before each one, of that itself and of so many after.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    aggregate: Arc<AggregateFunctionExpr>,
    arguments: Vec<DataType>,
    before: usize,
    after: usize,
}

impl Frame {
    /// Nothing where the aggregate is not one of ours.
    pub(super) fn of(
        aggregate: Arc<AggregateFunctionExpr>,
        arguments: Vec<DataType>,
        before: usize,
        after: usize,
    ) -> Option<Self> {
        let frame = Self { aggregate, arguments, before, after };
        frame.start().map(|_| frame)
    }

    fn start(&self) -> Option<Box<dyn ByRow>> {
        struct Boxed(usize, usize);
        impl Taken for Boxed {
            type Made = Box<dyn ByRow>;
            fn take<M: Measure>(self, measure: M) -> Self::Made {
                Box::new(Sliding::new(measure, self.0, self.1))
            }
        }
        measured(&self.aggregate, &self.arguments, Boxed(self.before, self.after))
    }
}

/// An aggregate of the rows from one to another.
#[derive(Debug, Clone)]
pub(super) struct SpanFunction {
    aggregate: Arc<AggregateFunctionExpr>,
    arguments: Vec<DataType>,
}

impl SpanFunction {
    /// Nothing where the aggregate is not one of ours.
    pub(super) fn of(
        aggregate: Arc<AggregateFunctionExpr>,
        arguments: Vec<DataType>,
    ) -> Option<Self> {
        let function = Self { aggregate, arguments };
        function.made().map(|_| function)
    }

    /// The function before any row.
    pub(super) fn start(&self) -> Box<dyn Spanning> {
        self.made().expect("the aggregate is one of ours")
    }

    fn made(&self) -> Option<Box<dyn Spanning>> {
        struct Boxed;
        impl Taken for Boxed {
            type Made = Box<dyn Spanning>;
            fn take<M: Measure>(self, measure: M) -> Self::Made {
                Box::new(Spanned::new(measure))
            }
        }
        measured(&self.aggregate, &self.arguments, Boxed)
    }
}

impl RowFunction {
    /// Whether it asks where peers begin.
    pub(super) fn has_peers(&self) -> bool {
        matches!(self, Self::FirstPeer | Self::Rank | Self::DenseRank | Self::PercentRank)
    }

    /// The function before any row.
    ///
    /// # Errors
    /// Those of the function that it is made of.
    pub(super) fn start(&self) -> Result<Box<dyn ByRow>> {
        Ok(match self {
            Self::Running(running) => Box::new(EachRow(running.start()?)),
            Self::Sliding(frame) => frame.start().expect("the aggregate is one of ours"),
            Self::Shift(rows, other) => Box::new(Shift::new(*rows, other)?),
            Self::Back(rows) => Box::new(Back::new(*rows)),
            Self::FirstPeer => Box::new(FirstPeer::default()),
            Self::RowNumber => Box::new(RowNumber::default()),
            Self::Rank => Box::new(Rank::gapped()),
            Self::DenseRank => Box::new(Rank::dense()),
            Self::PercentRank => Box::new(Rank::relative()),
            Self::CumeDist => Box::new(CumeDist),
            Self::Ntile(groups) => Box::new(Ntile::new(*groups)),
        })
    }
}

/// A function that has a value of its own for each row, on its way through the rows.
pub(super) trait ByRow: Send {
    /// The values of the rows that follow: of as many as are known with these.
    ///
    /// # Errors
    /// Where a value leaves its type, and those of Arrow.
    fn push(&mut self, arguments: &[ArrayRef], piece: &Piece) -> Result<ArrayRef>;
}
