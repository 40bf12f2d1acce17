//! The sums of products of one group of rows or of many, as DataFusion's two kinds of accumulator.
//!
//! A state is a list of the numbers of a sum, in the order of `kernels::moments`; an empty list is that
//! of no rows, which may not even tell how many columns there are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::function::StateFieldsArgs;
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::matrices::Kind;
use super::regression;
use super::rows::{Rows, different_lengths};
use super::sliding::Sliding;
use crate::error::{Error, ErrorKind};
use crate::exec::kernels::moments::{self, Block, Center, Moments};

/// One call of an aggregate: what its arguments are, and what becomes of the sums.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) function: &'static str,
    /// How many arguments, from the first on, are columns of the sums.
    pub(super) data_count: usize,
    /// The argument that is the weight.
    pub(super) weight: Option<usize>,
    pub(super) summary: Summary,
}

/// What is made of a sum.
#[derive(Debug, Clone, Copy)]
pub(super) enum Summary {
    Matrix(Kind),
    /// A model, with what is added to the variance of each coefficient.
    Model {
        ridge: f64,
    },
}

impl Summary {
    pub(super) fn center(self) -> Center {
        match self {
            Summary::Matrix(Kind::Gram) => Center::Origin,
            Summary::Matrix(Kind::Covariance | Kind::Correlation) | Summary::Model { .. } => {
                Center::Mean
            }
        }
    }

    /// One value for each sum; NULL for a group without rows.
    fn values(self, sums: &[Option<Moments<'_>>]) -> Result<ArrayRef> {
        match self {
            Summary::Matrix(kind) => Ok(kind.matrices(sums)),
            Summary::Model { ridge } => regression::models(sums, ridge),
        }
    }
}

/// The state of every aggregate here.
pub(super) fn state_fields(args: &StateFieldsArgs<'_>) -> Vec<FieldRef> {
    let name = format_state_name(args.name, "sums");
    vec![Arc::new(Field::new(name, DataType::new_list(DataType::Float64, true), true))]
}

impl Call {
    /// The accumulator of one group.
    pub(super) fn accumulator(self) -> Box<dyn Accumulator> {
        let mut groups = Groups::new(self);
        groups.count = 1;
        Box::new(Single(groups))
    }

    /// That of a window that slides.
    pub(super) fn sliding_accumulator(self) -> Box<dyn Accumulator> {
        Box::new(Sliding::new(self))
    }

    /// That of many groups.
    pub(super) fn groups_accumulator(self) -> Box<dyn GroupsAccumulator> {
        Box::new(Groups::new(self))
    }

    pub(super) fn rows(
        &self,
        arguments: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Rows> {
        let weight = self.weight.map(|at| &arguments[at]);
        Rows::new(self.function, &arguments[..self.data_count], weight, filter)
    }

    /// Asserts that rows are as wide as those before them.
    pub(super) fn check_columns(&self, known: Option<usize>, columns: usize) -> Result<()> {
        let Some(known) = known.filter(|known| *known != columns) else { return Ok(()) };
        let others = self.data_count - 1;
        let [first, other] = [known, columns].map(|columns| columns.saturating_sub(others));
        Err(different_lengths(self.function, first, other))
    }

    /// The value of one sum.
    pub(super) fn value(&self, sum: Option<Moments<'_>>) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.summary.values(&[sum])?, 0)
    }

    /// Something that DataFusion should not have done.
    pub(super) fn broken(&self, what: &str) -> DataFusionError {
        Error::from(ErrorKind::Internal(format!("{}: {what}", self.function))).into()
    }
}

/// The sums of groups that are numbered from 0.
#[derive(Debug)]
pub(super) struct Groups {
    call: Call,
    count: usize,
    /// Known from the first row on, and the block made then.
    block: Option<Block>,
    /// One sum behind the other; empty as long as no row has been seen.
    sums: Vec<f64>,
}

impl Groups {
    pub(super) fn new(call: Call) -> Self {
        Self { call, count: 0, block: None, sums: Vec::new() }
    }

    fn columns(&self) -> Option<usize> {
        self.block.as_ref().map(Block::columns)
    }

    /// Makes room for so many groups of sums over so many columns.
    fn grow(&mut self, count: usize, columns: usize) -> Result<()> {
        self.call.check_columns(self.columns(), columns)?;
        let is_weighted = self.call.weight.is_some();
        self.block.get_or_insert_with(|| Block::new(columns, is_weighted));
        self.count = self.count.max(count);
        self.sums.resize(self.count * moments::length(columns), 0.0);
        Ok(())
    }

    /// Takes the first groups away, those that are left being counted from 0 again.
    pub(super) fn take(&mut self, emit_to: EmitTo) -> Taken {
        let count = match emit_to {
            EmitTo::All => self.count,
            EmitTo::First(count) => count.min(self.count),
        };
        self.count -= count;
        let length = self.columns().map_or(0, moments::length);
        let sums = EmitTo::First((count * length).min(self.sums.len())).take_needed(&mut self.sums);
        Taken { sums, columns: self.columns(), count }
    }

    fn join(&mut self, group: usize, state: &[f64]) {
        let Some(columns) = self.columns() else { return };
        let length = moments::length(columns);
        let sum = &mut self.sums[group * length..(group + 1) * length];
        moments::join(columns, sum, state, self.call.summary.center());
    }

    fn bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, Block::bytes);
        size_of_val(self) + block + self.sums.capacity() * size_of::<f64>()
    }
}

/// Sums on their way out.
pub(super) struct Taken {
    pub(super) sums: Vec<f64>,
    pub(super) columns: Option<usize>,
    count: usize,
}

impl Taken {
    /// The sums of groups that have rows.
    fn moments(&self) -> Vec<Option<Moments<'_>>> {
        let Some(columns) = self.columns else { return vec![None; self.count] };
        let sums = self.sums.chunks_exact(moments::length(columns));
        let moments = sums.map(|sum| Moments::new(columns, sum));
        let mut moments: Vec<_> = moments.map(|sum| (sum.rows() > 0).then_some(sum)).collect();
        moments.resize(self.count, None);
        moments
    }

    fn states(self) -> Result<ArrayRef> {
        let length = self.columns.map_or(0, moments::length);
        let lengths = std::iter::repeat_n(length, self.sums.len() / length.max(1));
        let missing = self.count - lengths.len();
        let lengths = lengths.chain(std::iter::repeat_n(0, missing));
        Ok(Arc::new(ListArray::try_new(
            Arc::new(Field::new_list_field(DataType::Float64, true)),
            OffsetBuffer::from_lengths(lengths),
            Arc::new(Float64Array::from(self.sums)),
            None,
        )?))
    }
}

/// The sum in each row of a state, if it has one, with its number of columns.
fn states(
    call: &Call,
    array: &ArrayRef,
) -> Result<impl Iterator<Item = (usize, usize, ArrayRef)> + use<>> {
    let lists = array.as_list::<i32>().clone();
    let columns = (0..lists.len()).map(|row| match lists.value_length(row) {
        0 => Ok(None),
        length => {
            let columns = moments::columns(length as usize);
            columns.map(Some).ok_or_else(|| call.broken("a state of another aggregate"))
        }
    });
    let columns: Vec<Option<usize>> = columns.collect::<Result<_>>()?;
    let sums = columns.into_iter().enumerate();
    Ok(sums.filter_map(move |(row, columns)| Some((row, columns?, lists.value(row)))))
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        let rows = self.call.rows(values, filter)?;
        self.count = self.count.max(group_count);
        if rows.count() == 0 {
            return Ok(());
        }
        self.grow(group_count, rows.width())?;
        let Self { call, block: Some(block), sums, .. } = self else { return Ok(()) };
        let (length, center) = (moments::length(rows.width()), call.summary.center());
        rows.by_group(call.function, group_indices, block, |group, block| {
            block.add_to(&mut sums[group * length..(group + 1) * length], center);
        })
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.count = self.count.max(group_count);
        for (row, columns, sum) in states(&self.call, &values[0])? {
            self.grow(group_count, columns)?;
            self.join(group_indices[row], sum.as_primitive::<Float64Type>().values());
        }
        Ok(())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to).states()?])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let taken = self.take(emit_to);
        self.call.summary.values(&taken.moments())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let count = values.first().map_or(0, |array| array.len());
        let groups: Vec<usize> = (0..count).collect();
        let mut rows = Self::new(self.call.clone());
        rows.update_batch(values, &groups, filter, count)?;
        rows.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes()
    }
}

/// The sum of one group, whose last rows wait in the block until it is full: where blocks begin does not
/// depend on the batches in which rows come.
#[derive(Debug)]
struct Single(Groups);

impl Single {
    /// Adds the rows that wait.
    fn flush(&mut self) {
        let Groups { call, block: Some(block), sums, .. } = &mut self.0 else { return };
        block.add_to(sums, call.summary.center());
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = self.0.call.rows(values, None)?;
        if rows.count() == 0 {
            return Ok(());
        }
        self.0.grow(1, rows.width())?;
        let Groups { call, block: Some(block), sums, .. } = &mut self.0 else { return Ok(()) };
        let center = call.summary.center();
        rows.fill(call.function, block, |block| block.add_to(sums, center))
    }

    fn merge_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.flush();
        for (_, columns, sum) in states(&self.0.call, &values[0])? {
            self.0.grow(1, columns)?;
            self.0.join(0, sum.as_primitive::<Float64Type>().values());
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.flush();
        let states = self.taken().states()?;
        Ok(vec![ScalarValue::try_from_array(&states, 0)?])
    }

    /// Leaves the sum in its place, for a window goes on from here.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.flush();
        self.0.call.value(self.taken().moments()[0])
    }

    fn size(&self) -> usize {
        self.0.bytes()
    }
}

impl Single {
    fn taken(&self) -> Taken {
        Taken { sums: self.0.sums.clone(), columns: self.0.columns(), count: 1 }
    }
}
