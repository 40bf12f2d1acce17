//! Numbers that are computed of the columns of a batch, all of them in one loop.

use std::collections::BTreeSet;
use std::ops::Range;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::ArrowPrimitiveType;

use crate::error::Result;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::fused::{Builder, Input, Program, Results, Scratch, Value};
use crate::matrix::Scalar;

/// A number of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Number {
    /// The cell of this column, converted where the column is of another type.
    Column(usize),
    Constant(f64),
    Unary(UnaryFunction, Box<Number>),
    Binary(BinaryFunction, Box<Number>, Box<Number>),
}

impl Number {
    fn parts(&self) -> impl Iterator<Item = &Number> {
        let parts = match self {
            Number::Column(_) | Number::Constant(_) => [None, None],
            Number::Unary(_, a) => [Some(a), None],
            Number::Binary(_, a, b) => [Some(a), Some(b)],
        };
        parts.into_iter().flatten().map(Box::as_ref)
    }

    /// Operations that it takes.
    pub(crate) fn operations(&self) -> usize {
        let own = usize::from(!matches!(self, Number::Column(_) | Number::Constant(_)));
        own + self.parts().map(Number::operations).sum::<usize>()
    }

    /// Work in units of an addition.
    pub(crate) fn flops(&self) -> f64 {
        let own = match self {
            Number::Column(_) | Number::Constant(_) => 0,
            Number::Unary(function, _) => function.flops(),
            Number::Binary(function, ..) => function.flops(),
        };
        f64::from(own) + self.parts().map(Number::flops).sum::<f64>()
    }

    /// Cells that are read and written where each operation runs by itself.
    pub(crate) fn moved_cells(&self) -> usize {
        let is_read = |part: &&Number| !matches!(part, Number::Constant(_));
        let own = match self {
            Number::Column(_) | Number::Constant(_) => 0,
            Number::Unary(..) | Number::Binary(..) => 1 + self.parts().filter(is_read).count(),
        };
        own + self.parts().map(Number::moved_cells).sum::<usize>()
    }

    /// Operations that follow one another.
    pub(crate) fn depth(&self) -> usize {
        let own = usize::from(!matches!(self, Number::Column(_) | Number::Constant(_)));
        own + self.parts().map(Number::depth).max().unwrap_or(0)
    }

    /// Adds the columns that it reads: it is NULL where one of them is.
    pub(crate) fn add_columns(&self, columns: &mut BTreeSet<usize>) {
        if let Number::Column(column) = self {
            columns.insert(*column);
        }
        self.parts().for_each(|part| part.add_columns(columns));
    }

    fn build(&self, builder: &mut Builder, columns: &[usize]) -> Value {
        match self {
            Number::Column(column) => {
                let place = columns.binary_search(column).expect("a column that was added");
                builder.input(place)
            }
            Number::Constant(value) => builder.constant(*value),
            Number::Unary(function, a) => {
                let a = a.build(builder, columns);
                builder.unary(*function, a)
            }
            Number::Binary(function, a, b) => {
                let (a, b) = (a.build(builder, columns), b.build(builder, columns));
                builder.binary(*function, a, b)
            }
        }
    }
}

/// Numbers of one type, as a program over the columns that they read.
#[derive(Debug)]
pub(crate) struct Numbers {
    program: Program,
    /// In ascending order.
    columns: Vec<usize>,
    /// The columns that each number reads.
    reads: Vec<Vec<usize>>,
}

impl Numbers {
    /// The program that computes these.
    pub(crate) fn new(numbers: &[Number]) -> Self {
        let mut all = BTreeSet::new();
        let reads = numbers.iter().map(|number| {
            let mut columns = BTreeSet::new();
            number.add_columns(&mut columns);
            all.extend(columns.iter().copied());
            columns.into_iter().collect()
        });
        let reads = reads.collect();
        let columns: Vec<usize> = all.into_iter().collect();
        let mut builder = Builder::as_written();
        let results: Vec<Value> =
            numbers.iter().map(|number| number.build(&mut builder, &columns)).collect();
        Self { program: builder.finish_all(&results), columns, reads }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// The columns that any of them reads.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The columns that each of them reads.
    pub(super) fn reads(&self) -> &[Vec<usize>] {
        &self.reads
    }

    /// Computes them for so many rows of the batch that has these columns, strip by strip.
    ///
    /// # Errors
    /// Where a column has no such numbers.
    pub(super) fn each_strip<'a, T: Scalar>(
        &self,
        column: impl Fn(usize) -> &'a ArrayRef,
        rows: usize,
        scratch: &mut Scratch<T>,
        consume: impl FnMut(Range<usize>, &Results<'_, T>),
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let element = <T::Arrow as ArrowPrimitiveType>::DATA_TYPE;
        // Of a column that has this type already it is the column.
        let cells = self.columns.iter().map(|&at| Ok(cast(column(at), &element)?));
        let cells = cells.collect::<Result<Vec<ArrayRef>>>()?;
        let inputs =
            cells.iter().map(|cells| Input::Cells(cells.as_primitive::<T::Arrow>().values()));
        let inputs: Vec<Input<'_, T>> = inputs.collect();
        self.program.each_strip(&inputs, rows, scratch, consume);
        Ok(())
    }
}
