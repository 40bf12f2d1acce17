//! What is computed of each group, and how its rows look on their way.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::cast::as_boolean_array;
use datafusion::error::Result;
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{GroupsAccumulatorAdapter, PhysicalExpr};
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateMode, PhysicalGroupBy, evaluate_group_by,
};

use super::distinct::DistinctValues;
use super::only::OnlyGroup;
use super::reads::{Computed, Read};

/// Aggregates whose answer over different values does not depend on the order of these.
const OF_DISTINCT: [&str; 7] = ["count", "sum", "avg", "var", "var_pop", "stddev", "stddev_pop"];

/// Those to which it is the same whether a value comes once or often.
const OF_ANY: [&str; 2] = ["min", "max"];

/// The keys and the aggregates of an aggregation.
pub(super) struct Spec {
    keys: Vec<Read>,
    computed: Computed,
    /// The grouping sets; one of all keys where there are none.
    sets: Vec<Set>,
    /// That of them of whose groups those of all others are made, if any is.
    finest: Option<usize>,
    pub(super) calls: Vec<Call>,
    /// The keys alone.
    pub(super) groups: SchemaRef,
    /// The keys, and what is known of each aggregate of some rows of a group.
    pub(super) states: SchemaRef,
    /// The keys and the answers.
    pub(super) output: SchemaRef,
    /// By what groups are dealt out, of their states or their answers.
    pub(super) dealt_by: Vec<Arc<dyn PhysicalExpr>>,
}

/// A grouping set.
pub(super) struct Set {
    /// Of each key, whether it is left out.
    is_null: Vec<bool>,
    /// By what its groups differ from those of other sets, where there are some.
    id: Option<ScalarValue>,
}

/// One aggregate.
pub(super) struct Call {
    aggregate: Arc<AggregateFunctionExpr>,
    /// Without DISTINCT.
    plain: Arc<AggregateFunctionExpr>,
    arguments: Vec<Read>,
    /// Of the arguments.
    pub(super) data_types: Vec<DataType>,
    /// The rows that it looks at.
    filter: Option<Read>,
    /// Whether it adds whole numbers however many bits they have.
    adds_any_width: bool,
    /// Columns of its state, and the values in the first of them, where that is a list.
    pub(super) states: usize,
    pub(super) item: Option<FieldRef>,
    pub(super) knows: Knows,
}

/// What is known of some rows of a group.
#[derive(Clone, Copy)]
pub(crate) enum Knows {
    /// As much of many rows as of one.
    Sums,
    /// All values, or all different ones, as lists: of values, and of what belongs to each.
    Values { are_distinct: bool, answer: Answer },
}

/// What is answered of the values of a group.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// What they add up to.
    All,
    /// Those at a place of their order.
    At(Place),
    /// The one that comes most often, and of several the first.
    Most,
}

/// A place in an order.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Middle,
    /// Below which this share of the others is.
    Share(f64),
}

/// What an aggregate knows of a group; nothing where that is of another kind, or depends on the order of rows.
pub(crate) fn knows(call: &AggregateFunctionExpr) -> Option<Knows> {
    let (states, name) = (call.state_fields().ok()?, call.fun().name());
    if states.iter().all(|state| !state.data_type().is_nested()) {
        let is_once = !call.is_distinct() || OF_ANY.contains(&name);
        let has_groups = call.groups_accumulator_supported();
        return (is_once && has_groups && call.order_bys().is_empty()).then_some(Knows::Sums);
    }
    if !states.iter().all(|state| matches!(state.data_type(), DataType::List(_))) {
        return None;
    }
    let answer = match (name, call.expressions().get(1)) {
        ("median", None) => Answer::At(Place::Middle),
        ("mode", None) if !call.is_distinct() => Answer::Most,
        ("percentile_cont", Some(share)) => {
            let share = share.downcast_ref::<Literal>()?.value().cast_to(&DataType::Float64);
            let Ok(ScalarValue::Float64(Some(share))) = share else { return None };
            let is_descending = call.order_bys().first().is_some_and(|by| by.options.descending);
            Answer::At(Place::Share(if is_descending { 1.0 - share } else { share }))
        }
        (name, None) if call.is_distinct() && OF_DISTINCT.contains(&name) => Answer::All,
        _ => return None,
    };
    Some(Knows::Values { are_distinct: call.is_distinct(), answer })
}

impl Spec {
    /// That of an operator over its rows, with the columns of the operator that it stands for.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn new(
        whole: &AggregateExec,
        adds_any_width: &[bool],
        output: SchemaRef,
        dealt_by: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        let schema = whole.input_schema();
        let calls = whole.aggr_expr().iter().zip(whole.filter_expr()).zip(adds_any_width);
        let calls = calls.map(|((aggregate, filter), &adds_any_width)| {
            Call::new(aggregate, filter, adds_any_width, &schema)
        });
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let sets = sets(whole.group_expr())?;
        let finest = finest(&sets, &calls);
        let partial = AggregateExec::try_new(
            AggregateMode::Partial,
            whole.group_expr().clone(),
            whole.aggr_expr().to_vec(),
            whole.filter_expr().to_vec(),
            Arc::clone(whole.input()),
            whole.input_schema(),
        )?;
        let groups = whole.group_expr().group_schema(&whole.input_schema())?;
        let states = datafusion::physical_plan::ExecutionPlan::schema(&partial);
        let keys = whole.group_expr().expr().iter();
        let keys = keys.map(|(key, _name)| Read::of(key, &schema)).collect::<Result<Vec<_>>>()?;
        let reads = calls.iter().flat_map(|call| call.arguments.iter().chain(&call.filter));
        let computed = Computed::new(keys.iter().chain(reads), &whole.input().schema());
        Ok(Self { keys, computed, sets, finest, calls, groups, states, output, dealt_by })
    }

    /// What adds up the groups, for each aggregate.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn accumulators(&self) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
        let has_groups = !self.groups.fields().is_empty();
        self.calls.iter().map(|call| call.accumulator(has_groups)).collect()
    }

    /// Whether some aggregate knows all values of a group.
    pub(super) fn knows_values(&self) -> bool {
        self.calls.iter().any(Call::knows_values)
    }

    /// The keys of some groups, and of each aggregate what is known of them.
    pub(super) fn parts_of<'a>(
        &'a self,
        states: &'a RecordBatch,
    ) -> (&'a [ArrayRef], impl Iterator<Item = &'a [ArrayRef]>) {
        let (keys, mut rest) = states.columns().split_at(self.groups.fields().len());
        let states = self.calls.iter().map(move |call| {
            let (own, others) = rest.split_at(call.states);
            rest = others;
            own
        });
        (keys, states)
    }

    /// Rows that may be encoded, as keys and aggregates read them.
    ///
    /// # Errors
    /// None, for what is encoded was such a column.
    pub(super) fn read(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.computed.of(rows)
    }

    /// The keys of some rows, which may be encoded.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn keys(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.keys.iter().map(|key| key.encoded(rows)).collect()
    }

    /// The keys as groups have them.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn decoded_keys(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.keys.iter().map(|key| key.decoded(rows)).collect()
    }

    /// Whether groups of some grouping sets are made of those of another.
    pub(super) fn has_finest(&self) -> bool {
        self.finest.is_some()
    }

    /// The sets that rows are added to.
    pub(super) fn sets_of_rows(&self) -> &[Set] {
        self.finest.map_or(&self.sets, |finest| std::slice::from_ref(&self.sets[finest]))
    }

    /// The other sets, whose groups are made of those of the finest.
    pub(super) fn coarser_sets(&self) -> impl Iterator<Item = &Set> {
        let of_finest = |finest| {
            let sets = self.sets.iter().enumerate();
            sets.filter(move |(at, _)| *at != finest).map(|(_, set)| set)
        };
        self.finest.into_iter().flat_map(of_finest)
    }

    /// Groups of the finest set as parts of those of another.
    ///
    /// # Errors
    /// None but Arrow's.
    pub(super) fn coarser(&self, set: &Set, states: &RecordBatch) -> Result<RecordBatch> {
        let (keys, known) = states.columns().split_at(self.groups.fields().len());
        let mut columns = set.of(&keys[..self.keys.len()], states.num_rows())?;
        columns.extend_from_slice(known);
        Ok(RecordBatch::try_new(states.schema(), columns)?)
    }

    /// The keys of the groups that are there without a row, one for each set without a key.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn totals(&self) -> Result<Vec<Vec<ArrayRef>>> {
        let keys = self.groups.fields().iter().take(self.keys.len());
        let nulls: Vec<ArrayRef> = keys.map(|key| new_null_array(key.data_type(), 1)).collect();
        let totals = self.sets.iter().filter(|set| set.id.is_some() && set.is_total());
        totals.map(|set| set.of(&nulls, 1)).collect()
    }
}

impl Set {
    /// Whether each group of another set is made of groups of this one.
    fn is_finer(&self, other: &Self) -> bool {
        self.is_null.iter().zip(&other.is_null).all(|(own, other)| !own || *other)
    }

    /// Whether all rows are one group of it.
    fn is_total(&self) -> bool {
        self.is_null.iter().all(|is_null| *is_null)
    }

    /// The keys of so many rows as they are in this set.
    ///
    /// # Errors
    /// None but Arrow's.
    pub(super) fn of(&self, keys: &[ArrayRef], rows: usize) -> Result<Vec<ArrayRef>> {
        let key = |(key, is_null): (&ArrayRef, &bool)| match is_null {
            true => new_null_array(key.data_type(), rows),
            false => Arc::clone(key),
        };
        let mut keys: Vec<ArrayRef> = keys.iter().zip(&self.is_null).map(key).collect();
        if let Some(id) = &self.id {
            keys.push(id.to_array_of_size(rows)?);
        }
        Ok(keys)
    }
}

/// The grouping sets of an aggregation.
fn sets(keys: &PhysicalGroupBy) -> Result<Vec<Set>> {
    if keys.is_single() {
        return Ok(vec![Set { is_null: vec![false; keys.expr().len()], id: None }]);
    }
    // What tells sets apart is DataFusion's to say: of a row of nothing, for the keys that are left out are literals.
    let (nulls, sets) = (keys.null_expr().to_vec(), keys.groups().to_vec());
    let of_nulls = PhysicalGroupBy::new(nulls.clone(), nulls, sets.clone(), true);
    let row = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &row)?;
    let keys = evaluate_group_by(&of_nulls, &row)?.into_iter().zip(sets);
    let set = |(mut keys, is_null): (Vec<ArrayRef>, Vec<bool>)| {
        let id = keys.pop().map(|id| ScalarValue::try_from_array(&id, 0)).transpose()?;
        Ok(Set { is_null, id })
    };
    keys.map(set).collect()
}

/// The set of whose groups those of all others are made; none where there are no others, or that is no less work: all values
/// of a group are as many as its rows.
fn finest(sets: &[Set], calls: &[Call]) -> Option<usize> {
    let knows_all = |call: &Call| matches!(call.knows, Knows::Values { are_distinct: false, .. });
    if sets.len() < 2 || calls.iter().any(knows_all) {
        return None;
    }
    sets.iter().position(|set| sets.iter().all(|other| set.is_finer(other)))
}

impl Call {
    fn new(
        aggregate: &Arc<AggregateFunctionExpr>,
        filter: &Option<Arc<dyn PhysicalExpr>>,
        adds_any_width: bool,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let mut arguments = aggregate.expressions();
        let mut plain = Arc::clone(aggregate);
        if aggregate.is_distinct() {
            let function = Arc::new(aggregate.fun().clone());
            let once = AggregateExprBuilder::new(function, arguments.clone());
            let once = once.schema(Arc::clone(schema)).alias(aggregate.name());
            plain = Arc::new(once.order_by(aggregate.order_bys().to_vec()).build()?);
        }
        let knows = knows(aggregate).unwrap_or(Knows::Sums);
        if let Knows::Values { .. } = knows {
            // The share is in the function.
            arguments.truncate(1);
        }
        let data_types = arguments.iter().map(|argument| argument.data_type(schema));
        let data_types = data_types.collect::<Result<_>>()?;
        let arguments = arguments.iter().map(|argument| Read::of(argument, schema));
        let arguments = arguments.collect::<Result<_>>()?;
        let filter = filter.as_ref().map(|filter| Read::of(filter, schema)).transpose()?;
        let states = aggregate.state_fields()?;
        let item = match states.first().map(|state| state.data_type()) {
            Some(DataType::List(item)) => Some(Arc::clone(item)),
            _ => None,
        };
        let (aggregate, states) = (Arc::clone(aggregate), states.len());
        Ok(Self {
            aggregate,
            plain,
            arguments,
            data_types,
            filter,
            adds_any_width,
            states,
            item,
            knows,
        })
    }

    /// What adds up the groups: DataFusion's where that has all groups in one table, as of integers that differ. Where there is one
    /// group, what adds up all rows, but for numbers of any bits.
    fn accumulator(&self, has_groups: bool) -> Result<Box<dyn GroupsAccumulator>> {
        if !has_groups && !self.adds_any_width && !self.knows_values() {
            return Ok(Box::new(OnlyGroup(self.aggregate.create_accumulator()?)));
        }
        if self.aggregate.groups_accumulator_supported() {
            return self.aggregate.create_groups_accumulator();
        }
        let plain = self.plain()?;
        Ok(match (self.knows, &self.item) {
            (Knows::Values { are_distinct: true, .. }, Some(item)) => {
                Box::new(DistinctValues::new(plain, &self.data_types, item)?)
            }
            _ => plain,
        })
    }

    /// What adds up values that are handed to it once each, of so many groups.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn adder(&self, groups: usize) -> Result<Box<dyn GroupsAccumulator>> {
        let mut adder = self.plain()?;
        meet(adder.as_mut(), &self.data_types, groups)?;
        Ok(adder)
    }

    /// What adds up rows or values without telling them apart.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(super) fn plain(&self) -> Result<Box<dyn GroupsAccumulator>> {
        let plain = Arc::clone(&self.plain);
        if plain.groups_accumulator_supported() {
            return plain.create_groups_accumulator();
        }
        Ok(Box::new(GroupsAccumulatorAdapter::new(move || plain.create_accumulator())))
    }

    /// Whether it knows all values of a group.
    pub(super) fn knows_values(&self) -> bool {
        matches!(self.knows, Knows::Values { .. })
    }

    /// What the aggregate adds up of some rows.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn added(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        match self.adds_any_width {
            true => self.arguments.iter().map(|argument| argument.of_any_width(rows)).collect(),
            false => self.arguments(rows),
        }
    }

    /// What it reads of some rows, of the types of its arguments.
    ///
    /// # Errors
    /// Those of the expressions.
    pub(super) fn arguments(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let argument = |of: &Read| {
            let values = of.decoded(rows)?;
            // Different values are told apart by a table of groups.
            let is_mode = matches!(self.knows, Knows::Values { answer: Answer::Most, .. });
            Ok(if is_mode { without_signed_zeros(values) } else { values })
        };
        self.arguments.iter().map(argument).collect()
    }

    /// Which rows it looks at; all where it does not say.
    ///
    /// # Errors
    /// Those of the expression.
    pub(super) fn chosen(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let chosen = filter.decoded(rows)?;
        Ok(Some(as_boolean_array(&chosen)?.clone()))
    }
}

/// Shows an aggregate a row of each group that does not count: DataFusion's take a group that comes without any for one that
/// has a value.
///
/// # Errors
/// None but DataFusion's.
pub(super) fn meet(
    aggregate: &mut dyn GroupsAccumulator,
    data_types: &[DataType],
    groups: usize,
) -> Result<()> {
    let all: Vec<usize> = (0..groups).collect();
    let arguments: Vec<ArrayRef> =
        data_types.iter().map(|data_type| new_null_array(data_type, groups)).collect();
    let none = BooleanArray::from(vec![false; groups]);
    aggregate.update_batch(&arguments, &all, Some(&none), groups)
}

/// Both zeros are one value, as in GROUP BY: of their sum with one the sign is gone.
fn without_signed_zeros(values: ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float32 => {
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(|x| x + 0.0))
        }
        DataType::Float64 => {
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(|x| x + 0.0))
        }
        _ => values,
    }
}
