//! In which step each window of an operator is made.
//!
//! - **of tails**: what is asked of the rows from one of the partition to its last: frames that end with the partition and do not
//!   begin with it. Made for each row as the first; where a frame begins with another, its value is that row's;
//! - **of firsts**: the values of those other rows, where they lie some way off by RANGE or GROUPS, or many rows;
//! - **of spans**: aggregates of frames that begin or end some way off and end before the partition does;
//! - **of the partition**: what is known when a partition ends: frames that are the whole of it, the number of its rows;
//! - **of peers**: what is known at the last of a row's peers: frames up to the current row by RANGE, as `ORDER BY` alone means;
//! - **of rows**: what some rows before and after tell, or what the steps before have made;
//! - **elsewhere**: what is not ours but streams, by DataFusion's `BoundedWindowAggExec` below.
//!
//! A window that is none of these leaves the operator to others. FILTER and IGNORE NULLS are not to be had of DataFusion's
//! expressions but from their form for people.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::distant::{Offset, Span};
use super::functions::{Frame, RowFunction, RunningFunction, SpanFunction};

/// Rows of the longest frame, and of the farthest shift, that are held as columns in memory.
const REACH_ROWS_MAX: u64 = 1 << 16;

/// How all windows of an operator are made.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) partition_by: Vec<Arc<dyn PhysicalExpr>>,
    /// PARTITION BY and ORDER BY, by which rows are peers.
    pub(super) peers_by: Vec<Arc<dyn PhysicalExpr>>,
    /// What DataFusion makes.
    pub(super) elsewhere: Vec<Arc<dyn WindowExpr>>,
    /// From the last row of a partition to its first.
    pub(super) of_tails: Vec<Made<RowFunction>>,
    pub(super) of_firsts: Vec<FromFirsts<Made<ScalarValue>>>,
    pub(super) of_spans: Vec<FromSpans>,
    pub(super) of_partition: Vec<Made<RunningFunction>>,
    pub(super) of_peers: Vec<Made<RunningFunction>>,
    pub(super) of_rows: Vec<Made<RowFunction>>,
    /// Of each window, its column after all steps.
    pub(super) columns: Vec<usize>,
}

/// A column that a step makes.
#[derive(Debug)]
pub(super) struct Made<F> {
    pub(super) function: F,
    pub(super) arguments: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) field: FieldRef,
}

/// Columns of the first rows of frames, which are all as far off; each with its value where there is no such row.
#[derive(Debug)]
pub(super) struct FromFirsts<M> {
    pub(super) offset: Offset,
    pub(super) made: Vec<M>,
}

/// Columns of aggregates of frames with the same ends.
#[derive(Debug)]
pub(super) struct FromSpans {
    pub(super) span: Span,
    pub(super) made: Vec<Made<SpanFunction>>,
}

/// The step that makes a column, and its place there.
#[derive(Clone, Copy)]
enum Source {
    Elsewhere(usize),
    Tails(usize),
    /// The offset, and the column of those that are as far off.
    Firsts(usize, usize),
    /// The ends of frames, and the column of those that have them.
    Spans(usize, usize),
    Partition(usize),
    Peers(usize),
    Rows(usize),
}

/// A column before it is known where those of other steps are.
struct Planned<F> {
    function: F,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    made: Vec<Source>,
    field: FieldRef,
}

impl<F> Planned<F> {
    fn made(self, place: impl Fn(&Source) -> usize) -> Made<F> {
        let Self { function, mut arguments, made, field } = self;
        let made = made.iter().map(|made| Arc::new(Column::new("made", place(made))) as _);
        arguments.extend(made);
        Made { function, arguments, field }
    }
}

/// The rows that a frame is.
enum Extent {
    Partition,
    /// From the first of the partition to the last peer.
    ToPeers,
    /// From the first of the partition to the row.
    ToRow,
    /// So many before the row and after.
    Around(usize, usize),
    /// To the last of the partition.
    From(Begin),
    /// Between any ends.
    Span(Span),
}

/// The first row of a frame that ends with the partition.
enum Begin {
    /// So many before the row; the first of the partition where there are fewer.
    Before(usize),
    /// So many after it.
    After(usize),
    /// The first of its peers.
    Peers,
    /// Any way off.
    Off(Offset),
}

impl Recipe {
    /// Nothing where some window is not known, or none is ours.
    pub(super) fn of(windows: &[Arc<dyn WindowExpr>], input: &SchemaRef) -> Option<Self> {
        let first = windows.first()?;
        let partition_by = first.partition_by();
        let mut cook = Cook {
            input,
            order_by: None,
            elsewhere: Vec::new(),
            of_tails: Vec::new(),
            of_firsts: Vec::new(),
            of_spans: Vec::new(),
            of_partition: Vec::new(),
            of_peers: Vec::new(),
            of_rows: Vec::new(),
            count: None,
        };
        let mut sources = Vec::with_capacity(windows.len());
        for window in windows {
            let same = |key: &Arc<dyn PhysicalExpr>| partition_by.contains(key);
            let keys = window.partition_by();
            if keys.len() != partition_by.len() || !keys.iter().all(same) {
                return None;
            }
            let source = match cook.window(window) {
                Some(source) => source,
                None if window.uses_bounded_memory() => {
                    cook.elsewhere.push(Arc::clone(window));
                    Source::Elsewhere(cook.elsewhere.len() - 1)
                }
                None => return None,
            };
            sources.push(source);
        }
        let is_any_ours = sources.iter().any(|source| !matches!(source, Source::Elsewhere(_)));
        is_any_ours.then(|| cook.done(partition_by.to_vec(), &sources))
    }
}

/// A recipe that is being written.
struct Cook<'a> {
    input: &'a SchemaRef,
    /// By which rows are peers, as soon as some window asks.
    order_by: Option<Vec<Arc<dyn PhysicalExpr>>>,
    elsewhere: Vec<Arc<dyn WindowExpr>>,
    of_tails: Vec<Made<RowFunction>>,
    of_firsts: Vec<FromFirsts<Planned<ScalarValue>>>,
    of_spans: Vec<FromSpans>,
    of_partition: Vec<Made<RunningFunction>>,
    of_peers: Vec<Made<RunningFunction>>,
    of_rows: Vec<Planned<RowFunction>>,
    /// The number of rows of the partition, where it is asked for.
    count: Option<Source>,
}

impl Cook<'_> {
    fn window(&mut self, window: &Arc<dyn WindowExpr>) -> Option<Source> {
        if let Some(plain) = window.as_any().downcast_ref::<PlainAggregateWindowExpr>() {
            return self.aggregate(window, plain.get_aggregate_expr());
        }
        if let Some(sliding) = window.as_any().downcast_ref::<SlidingAggregateWindowExpr>() {
            return self.aggregate(window, sliding.get_aggregate_expr());
        }
        let standard = window.as_any().downcast_ref::<StandardWindowExpr>()?;
        let function = standard.get_standard_func_expr();
        self.function(window, function.as_any().downcast_ref::<WindowUDFExpr>()?)
    }

    fn aggregate(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        aggregate: &AggregateFunctionExpr,
    ) -> Option<Source> {
        if !format!("{window:?}").ends_with("filter: None }") {
            return None;
        }
        let aggregate = Arc::new(aggregate.clone());
        let types = window.expressions().into_iter().map(|of| of.data_type(self.input));
        let types = types.collect::<Result<Vec<DataType>>>().ok()?;
        match extent(window, self.input)? {
            Extent::Around(before, after) => {
                let frame = Frame::of(aggregate, types, before, after)?;
                self.by_row(window, RowFunction::Sliding(frame), Vec::new())
            }
            Extent::Span(span) => self.span(window, span, SpanFunction::of(aggregate, types)?),
            _ => self.running(window, RunningFunction::Aggregate(aggregate, types)),
        }
    }

    fn function(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        function: &WindowUDFExpr,
    ) -> Option<Source> {
        // NULLs count, and rows are read in their order.
        if !format!("{function:?}").ends_with("is_reversed: false, ignore_nulls: false }") {
            return None;
        }
        let data_type = window.field().ok()?.data_type().clone();
        let literal = |at: usize| {
            let argument = function.args().get(at)?.downcast_ref::<Literal>();
            argument.map(|literal| literal.value().clone())
        };
        let integer = |value: ScalarValue| match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        };
        match function.fun().name() {
            "row_number" => self.by_row(window, RowFunction::RowNumber, Vec::new()),
            "rank" => self.by_peers(window, RowFunction::Rank, Vec::new()),
            "dense_rank" => self.by_peers(window, RowFunction::DenseRank, Vec::new()),
            "percent_rank" => {
                let count = self.count();
                self.by_peers(window, RowFunction::PercentRank, vec![count])
            }
            "cume_dist" => {
                self.has_order_of(window)?;
                let made = counted();
                let until = self.count_of_peers(window, made);
                let count = self.count();
                self.by_row(window, RowFunction::CumeDist, vec![until, count])
            }
            "ntile" => {
                let groups = integer(literal(0)?).filter(|&groups| groups > 0)?;
                let count = self.count();
                self.by_row(window, RowFunction::Ntile(groups as u64), vec![count])
            }
            name @ ("lag" | "lead") => {
                let rows = match function.args().len() {
                    1 => 1,
                    _ => integer(literal(1)?)?,
                };
                let is_near = rows.unsigned_abs() <= REACH_ROWS_MAX;
                let is_typed = function.args()[0].data_type(self.input).ok()? == data_type;
                let other = match function.args().len() {
                    1 | 2 => ScalarValue::Null,
                    _ => literal(2)?,
                };
                let other = match other.is_null() {
                    true => ScalarValue::try_from(&data_type).ok()?,
                    false => other.cast_to(&data_type).ok()?,
                };
                let rows = if name == "lag" { rows } else { -rows };
                let shift = RowFunction::Shift(rows, other);
                (is_near && is_typed).then(|| self.by_row(window, shift, Vec::new())).flatten()
            }
            "first_value" => self.running(window, RunningFunction::Nth(1, data_type)),
            "last_value" => self.running(window, RunningFunction::Last(data_type)),
            "nth_value" => {
                let n = integer(literal(1)?).filter(|&n| n > 0)?;
                self.running(window, RunningFunction::Nth(usize::try_from(n).ok()?, data_type))
            }
            _ => None,
        }
    }

    fn running(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        function: RunningFunction,
    ) -> Option<Source> {
        // `nth_value` has its second argument in the function.
        let arguments = match function {
            RunningFunction::Aggregate(..) => window.expressions(),
            _ => window.expressions().into_iter().take(1).collect(),
        };
        if arguments.is_empty() {
            return None;
        }
        let field = window.field().ok()?;
        match extent(window, self.input)? {
            Extent::Partition => {
                self.of_partition.push(Made { function, arguments, field });
                Some(Source::Partition(self.of_partition.len() - 1))
            }
            Extent::ToPeers => {
                self.has_order_of(window)?;
                self.of_peers.push(Made { function, arguments, field });
                Some(Source::Peers(self.of_peers.len() - 1))
            }
            Extent::ToRow => self.by_row(window, RowFunction::Running(function), Vec::new()),
            Extent::From(begin) => self.tail(window, function, arguments, begin),
            Extent::Around(..) | Extent::Span(_) => None,
        }
    }

    /// One of the rows from some row on, as that row's value from behind.
    fn tail(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        function: RunningFunction,
        arguments: Vec<Arc<dyn PhysicalExpr>>,
        begin: Begin,
    ) -> Option<Source> {
        if !function.has_no_order() {
            return None;
        }
        if let Begin::Peers = begin {
            self.has_order_of(window)?;
        }
        let field = window.field().ok()?;
        let of_none = function.of_no_rows(field.data_type()).ok()?;
        let from_behind = match function {
            // Which row is the first is known without those behind it.
            RunningFunction::Nth(1, _) => None,
            RunningFunction::Last(data_type) => {
                Some(RowFunction::Running(RunningFunction::Nth(1, data_type)))
            }
            RunningFunction::Nth(n, data_type) => {
                let rows = i64::try_from(n - 1).ok().filter(|&rows| rows as u64 <= REACH_ROWS_MAX);
                Some(RowFunction::Shift(rows?, ScalarValue::try_from(&data_type).ok()?))
            }
            function => Some(RowFunction::Running(function)),
        };
        let (arguments, made) = match from_behind {
            None => (arguments, Vec::new()),
            Some(function) => {
                let field = Arc::clone(&field);
                self.of_tails.push(Made { function, arguments, field });
                (Vec::new(), vec![Source::Tails(self.of_tails.len() - 1)])
            }
        };
        let function = match (begin, &made[..]) {
            (Begin::Before(0) | Begin::After(0), &[made]) => return Some(made),
            (Begin::After(rows), _) => RowFunction::Shift(-(rows as i64), of_none),
            (Begin::Before(rows), _) => RowFunction::Back(rows),
            (Begin::Peers, _) => RowFunction::FirstPeer,
            (Begin::Off(offset), _) => {
                let first = Planned { function: of_none, arguments, made, field };
                return Some(self.first(offset, first));
            }
        };
        self.of_rows.push(Planned { function, arguments, made, field });
        Some(Source::Rows(self.of_rows.len() - 1))
    }

    /// One of the first rows of frames that begin some way off.
    fn first(&mut self, offset: Offset, first: Planned<ScalarValue>) -> Source {
        let known = self.of_firsts.iter().position(|of| of.offset == offset);
        let at = known.unwrap_or_else(|| {
            self.of_firsts.push(FromFirsts { offset, made: Vec::new() });
            self.of_firsts.len() - 1
        });
        let made = &mut self.of_firsts[at].made;
        made.push(first);
        Source::Firsts(at, made.len() - 1)
    }

    /// One of the rows between two.
    fn span(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        span: Span,
        function: SpanFunction,
    ) -> Option<Source> {
        let (arguments, field) = (window.expressions(), window.field().ok()?);
        let known = self.of_spans.iter().position(|of| of.span == span);
        let at = known.unwrap_or_else(|| {
            self.of_spans.push(FromSpans { span, made: Vec::new() });
            self.of_spans.len() - 1
        });
        let made = &mut self.of_spans[at].made;
        made.push(Made { function, arguments, field });
        Some(Source::Spans(at, made.len() - 1))
    }

    /// One of a row, by its arguments or by what other steps make.
    fn by_row(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        function: RowFunction,
        made: Vec<Source>,
    ) -> Option<Source> {
        let mut arguments = window.expressions();
        match function {
            RowFunction::Running(RunningFunction::Aggregate(..)) | RowFunction::Sliding(_) => {}
            RowFunction::Running(_) | RowFunction::Shift(..) => arguments.truncate(1),
            _ => arguments.clear(),
        }
        let field = window.field().ok()?;
        self.of_rows.push(Planned { function, arguments, made, field });
        Some(Source::Rows(self.of_rows.len() - 1))
    }

    /// One that asks where peers begin.
    fn by_peers(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        function: RowFunction,
        made: Vec<Source>,
    ) -> Option<Source> {
        self.has_order_of(window)?;
        self.by_row(window, function, made)
    }

    /// That all windows for which peers matter have the same ones.
    fn has_order_of(&mut self, window: &Arc<dyn WindowExpr>) -> Option<()> {
        let keys: Vec<_> = window.order_by().iter().map(|key| Arc::clone(&key.expr)).collect();
        let order_by = self.order_by.get_or_insert_with(|| keys.clone());
        (*order_by == keys).then_some(())
    }

    /// The number of rows in the partition.
    fn count(&mut self) -> Source {
        let Self { count, of_partition, .. } = self;
        *count.get_or_insert_with(|| {
            of_partition.push(counted());
            Source::Partition(of_partition.len() - 1)
        })
    }

    /// The number of rows up to the last peer; all of them are peers where nothing orders them.
    fn count_of_peers(
        &mut self,
        window: &Arc<dyn WindowExpr>,
        made: Made<RunningFunction>,
    ) -> Source {
        if window.order_by().is_empty() {
            return self.count();
        }
        self.of_peers.push(made);
        Source::Peers(self.of_peers.len() - 1)
    }

    fn done(self, partition_by: Vec<Arc<dyn PhysicalExpr>>, sources: &[Source]) -> Recipe {
        let elsewhere = self.input.fields().len();
        let of_tails = elsewhere + self.elsewhere.len();
        let mut next = of_tails + self.of_tails.len();
        let mut placed = |columns: usize| {
            next += columns;
            next - columns
        };
        let of_firsts = self.of_firsts.iter().map(|of| placed(of.made.len()));
        let of_firsts: Vec<usize> = of_firsts.collect();
        let of_spans = self.of_spans.iter().map(|of| placed(of.made.len()));
        let of_spans: Vec<usize> = of_spans.collect();
        let of_partition = next;
        let of_peers = of_partition + self.of_partition.len();
        let of_rows = of_peers + self.of_peers.len();
        let place = |source: &Source| match source {
            Source::Elsewhere(at) => elsewhere + at,
            Source::Tails(at) => of_tails + at,
            Source::Firsts(of, at) => of_firsts[*of] + at,
            Source::Spans(of, at) => of_spans[*of] + at,
            Source::Partition(at) => of_partition + at,
            Source::Peers(at) => of_peers + at,
            Source::Rows(at) => of_rows + at,
        };
        let firsts = self.of_firsts.into_iter().map(|of| {
            let made = of.made.into_iter().map(|planned| planned.made(place)).collect();
            FromFirsts { offset: of.offset, made }
        });
        let rows = self.of_rows.into_iter().map(|planned| planned.made(place));
        let order_by = self.order_by.unwrap_or_default();
        Recipe {
            peers_by: partition_by.iter().cloned().chain(order_by).collect(),
            partition_by,
            elsewhere: self.elsewhere,
            of_tails: self.of_tails,
            of_firsts: firsts.collect(),
            of_spans: self.of_spans,
            of_partition: self.of_partition,
            of_peers: self.of_peers,
            of_rows: rows.collect(),
            columns: sources.iter().map(place).collect(),
        }
    }
}

/// The number of rows, as a column.
fn counted() -> Made<RunningFunction> {
    let field = Arc::new(Field::new("count", DataType::Int64, false));
    Made { function: RunningFunction::Rows, arguments: Vec::new(), field }
}

/// Nothing where a frame is of another kind.
fn extent(window: &Arc<dyn WindowExpr>, input: &SchemaRef) -> Option<Extent> {
    let frame: &WindowFrame = window.get_window_frame();
    let is_by_rows = frame.units == WindowFrameUnits::Rows;
    let begins_with_partition = frame.start_bound.is_unbounded();
    if !begins_with_partition && frame.end_bound.is_unbounded() {
        return match frame.start_bound {
            WindowFrameBound::CurrentRow if !is_by_rows && window.order_by().is_empty() => {
                Some(Extent::Partition)
            }
            _ => begin(window, input).map(Extent::From),
        };
    }
    if frame.end_bound.is_unbounded() {
        return Some(Extent::Partition);
    }
    let near = match (begins_with_partition, &frame.end_bound) {
        (true, WindowFrameBound::CurrentRow) if is_by_rows => Some(Extent::ToRow),
        (true, WindowFrameBound::CurrentRow) if window.order_by().is_empty() => {
            Some(Extent::Partition)
        }
        (true, WindowFrameBound::CurrentRow) => Some(Extent::ToPeers),
        (false, end) if is_by_rows => around(&frame.start_bound, end),
        _ => None,
    };
    near.or_else(|| Span::of(window, input).map(Extent::Span))
}

/// Some rows before and after, of which there are not too many.
fn around(start: &WindowFrameBound, end: &WindowFrameBound) -> Option<Extent> {
    let (before, after) = (reach(start, false)?, reach(end, true)?);
    ((before + after) as u64 <= REACH_ROWS_MAX).then_some(Extent::Around(before, after))
}

/// Where a frame begins that ends with the partition.
fn begin(window: &Arc<dyn WindowExpr>, input: &SchemaRef) -> Option<Begin> {
    let frame: &WindowFrame = window.get_window_frame();
    let bound = &frame.start_bound;
    let near = match frame.units {
        WindowFrameUnits::Rows => {
            let before = reach(bound, false).map(Begin::Before);
            before.or_else(|| reach(bound, true).map(Begin::After))
        }
        _ if matches!(bound, WindowFrameBound::CurrentRow) => Some(Begin::Peers),
        _ => None,
    };
    near.or_else(|| Offset::of_start(window, input).map(Begin::Off))
}

/// Rows from the current one to a bound on its side.
fn reach(bound: &WindowFrameBound, is_after: bool) -> Option<usize> {
    let rows = match bound {
        WindowFrameBound::CurrentRow => return Some(0),
        WindowFrameBound::Preceding(rows) if !is_after => rows,
        WindowFrameBound::Following(rows) if is_after => rows,
        _ => return None,
    };
    match rows {
        ScalarValue::UInt64(Some(rows)) if *rows <= REACH_ROWS_MAX => usize::try_from(*rows).ok(),
        _ => None,
    }
}
