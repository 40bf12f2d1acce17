//! Operations of whole matrices on a device: which there are, and what each is made of.

use std::slice;

use super::loops::same;
use super::matrix::Matrix;
use super::{Failed, Queue};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::fused::{Builder, Goal};
use crate::exec::kernels::reduce::Reduction;
use crate::exec::operation::{Aggregate, Axis, Operation};
use crate::gpu::{Arithmetic, Product};
use crate::matrix::{Element, Shape};

/// Whether devices run this operation, of dense matrices, by kernels and products.
pub(crate) fn runs(operation: &Operation) -> bool {
    match operation {
        product if product.is_product() => true,
        Operation::Unary(_) | Operation::Binary(_) | Operation::Select | Operation::Cast(_) => true,
        Operation::Transpose | Operation::Reshape(_) => true,
        Operation::Slice { .. } | Operation::Stack(_) => true,
        Operation::Reduce { aggregate, axis } => {
            axis.is_some() || !matches!(aggregate, Aggregate::ArgMax)
        }
        Operation::Diagonal | Operation::Trace => true,
        Operation::Convolve(_) | Operation::Pool(..) => true,
        _ => false,
    }
}

impl Queue<'_> {
    /// One operation of whole matrices; a product may be computed in less than the type of its cells.
    pub(super) fn evaluate(
        &self,
        operation: &Operation,
        inputs: &[Matrix],
        arithmetic: Option<Arithmetic>,
    ) -> Result<Matrix, Failed> {
        let mut builder = Builder::new();
        let cell = |builder: &mut Builder, at: usize| builder.input(at);
        match (operation, inputs) {
            (Operation::Product, [a, b]) => self.product([a, b], [false, false], arithmetic),
            (Operation::Cross | Operation::HalfCross, [a, b]) => {
                self.product([a, b], [true, false], arithmetic)
            }
            (Operation::Outer, [a, b]) => self.product([a, b], [false, true], arithmetic),
            (Operation::Gram, [a]) => self.product([a, a], [true, false], arithmetic),
            (Operation::Transpose, [a]) => self.transpose(a),
            (Operation::Reshape(shape), [a]) => Ok(a.reshaped(*shape)),
            (Operation::Slice { axis, range }, [a]) => self.slice(a, *axis, *range),
            (Operation::Stack(axis), parts) => self.stack(parts, *axis),
            (Operation::Cast(element), [a]) => self.cast(a, *element),
            (Operation::Unary(function), [a]) => {
                let x = cell(&mut builder, 0);
                let result = builder.unary(*function, x);
                self.map(&builder.finish(result), &[a], a.element)
            }
            (Operation::Binary(function), [a, b]) => {
                let (x, y) = (cell(&mut builder, 0), cell(&mut builder, 1));
                let result = builder.binary(*function, x, y);
                self.map(&builder.finish(result), &[a, b], a.element.common(b.element))
            }
            (Operation::Select, [condition, a, b]) => {
                let of: Vec<_> = (0..3).map(|at| cell(&mut builder, at)).collect();
                let result = builder.select(of[0], of[1], of[2]);
                let element = condition.element.common(a.element).common(b.element);
                self.map(&builder.finish(result), &[condition, a, b], element)
            }
            (Operation::Diagonal, [a]) if !a.is_vector() => self.diagonal(a),
            (Operation::Convolve(window), [images, filters]) => {
                self.convolve(window, images, filters)
            }
            (Operation::Pool(pooling, window), [images]) => self.pool(*pooling, window, images),
            (Operation::Trace, [a]) if a.shape.rows == a.shape.columns => {
                let sum = Operation::Reduce { aggregate: Aggregate::Sum, axis: None };
                self.evaluate(&sum, &[self.diagonal(a)?], None)
            }
            (Operation::Reduce { aggregate: Aggregate::ArgMax, axis: Some(axis) }, [a]) => {
                self.first_of_largest(a, *axis)
            }
            (Operation::Reduce { aggregate, axis }, [a]) if runs(operation) => {
                let x = cell(&mut builder, 0);
                let reduction = aggregate.reduction();
                let (value, looped) = reduction.looped(&mut builder, x);
                let goal = match axis {
                    None => Goal::Cells(looped),
                    Some(Axis::Rows) => Goal::Rows(looped),
                    Some(Axis::Columns) => Goal::Columns(looped),
                };
                self.reduce(&builder.finish(value), &[a], a.element, goal, reduction)
            }
            _ => Err(Failed::Unfit(format!("{operation} is not for devices"))),
        }
    }

    /// Where the first of the largest cells of each row or column is, or the first `NaN`, counted from 1.
    fn first_of_largest(&self, a: &Matrix, axis: Axis) -> Result<Matrix, Failed> {
        let most = Operation::Reduce { aggregate: Aggregate::Max, axis: Some(axis) };
        let most = self.evaluate(&most, slice::from_ref(a), None)?;
        let Shape { rows, columns } = a.shape;
        let (count, shape) = match axis {
            Axis::Rows => (columns, Shape::new(1, columns)),
            Axis::Columns => (rows, Shape::new(rows, 1)),
        };
        let places = self.numbered(count, shape, a.element)?;
        let mut builder = Builder::new();
        let [x, most_of, place] = [0, 1, 2].map(|at| builder.input(at));
        let is_most = builder.binary(BinaryFunction::Equal, x, most_of);
        let is_nan = builder.unary(UnaryFunction::IsNan, x);
        let is_one = builder.binary(BinaryFunction::Or, is_most, is_nan);
        let beyond = builder.constant(f64::INFINITY);
        let place = builder.select(is_one, place, beyond);
        let (value, looped) = Reduction::Min.looped(&mut builder, place);
        let goal = match axis {
            Axis::Rows => Goal::Rows(looped),
            Axis::Columns => Goal::Columns(looped),
        };
        let inputs = [a, &most, &places];
        self.reduce(&builder.finish(value), &inputs, a.element, goal, Reduction::Min)
    }

    /// The numbers from 1 on, brought once for all rounds that read them.
    fn numbered(&self, count: usize, shape: Shape, element: Element) -> Result<Matrix, Failed> {
        let is_it = |known: &&Matrix| (known.shape, known.element) == (shape, element);
        if let Some(known) = self.numbered.borrow().iter().find(is_it) {
            return Ok(known.clone());
        }
        let numbers = (1..=count).map(|place| place as f64).collect();
        let places = self.numbers(numbers, shape, element)?;
        self.numbered.borrow_mut().push(places.clone());
        Ok(places)
    }

    fn product(
        &self,
        [a, b]: [&Matrix; 2],
        transposed: [bool; 2],
        arithmetic: Option<Arithmetic>,
    ) -> Result<Matrix, Failed> {
        let element = a.element.common(b.element);
        let arithmetic = arithmetic.unwrap_or_else(|| own(element));
        let [left, right] = [(a, transposed[0]), (b, transposed[1])].map(|(of, is_turned)| {
            let Shape { rows, columns } = of.shape;
            if is_turned { Shape::new(columns, rows) } else { Shape::new(rows, columns) }
        });
        if left.columns != right.rows {
            return Err(Failed::Unfit("sizes that do not fit".into()));
        }
        let sums = match arithmetic {
            Arithmetic::F64 => Element::Float64,
            _ => Element::Float32,
        };
        let (a, b) = (self.factor(a, arithmetic)?, self.factor(b, arithmetic)?);
        let out = self.empty(Shape::new(left.rows, right.columns), sums)?;
        let (m, k, n) = (left.rows, left.columns, right.columns);
        let product = Product { arithmetic, transposed, m, k, n };
        self.stream.product(product, &a, &b, &out.buffer)?;
        self.cast(&out, element)
    }

    pub(super) fn cast(&self, matrix: &Matrix, element: Element) -> Result<Matrix, Failed> {
        if matrix.element == element {
            return Ok(matrix.clone());
        }
        self.map(&same(), &[matrix], element)
    }
}

/// The arithmetic of a type.
fn own(element: Element) -> Arithmetic {
    match element {
        Element::Float64 => Arithmetic::F64,
        Element::Float32 => Arithmetic::F32,
    }
}
