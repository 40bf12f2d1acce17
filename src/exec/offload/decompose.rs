//! Decompositions on a device, as the host has them: the same signs, and what is singular, not finite or not to be trusted is refused.
//!
//! ```text
//! solve, inv, det      t(a) = l·u of what lies row after row; a system with its transpose; the condition by a few more solutions
//! lu                   p·a = l·u of the matrix turned, no cell of l above one; p is made by the host of the swaps
//! lstsq                a = q·r, and r⁻¹·t(q)·b where r is far from singular
//! eigh                 rows of vectors, for the library's columns are our rows
//! eig                  in `super::eigen`
//! expm                 the steps of the host, of products, sums and a solution
//! svd, pinv, rank      of a matrix at least as tall as wide, in double precision, and checked by its definition
//! ```
//!
//! What is refused is left to the host, which finds the same and says what is wrong, or knows another way.

use std::cell::RefCell;
use std::slice;

use faer::MatMut;

use super::matrix::Matrix;
use super::{Failed, Found, Queue};
use crate::exec::kernels::decompose::{
    Steps, Triangle, exponential_by, permuted, reciprocal_condition_of,
};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::fused::{Builder, Value};
use crate::exec::operation::{Aggregate, Axis, Operation, Span};
use crate::gpu::{Arithmetic, Buffer, Columns};
use crate::matrix::{Cells, Element, Shape};

/// How far a decomposition may be from its definition, in units of rounding of the Frobenius norm, times the root of its shorter side.
pub(super) const UNITS: f64 = 100.0;

/// What a decomposition takes of a device beside its flops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// Time for each column of the shorter side, in launches of kernels: as measured on an H200 between 512 and 4096 a side.
    pub(crate) launches_a_column: f64,
    /// Copies of its first input that it works in at most.
    pub(crate) copies: f64,
}

/// That of an operation; none for what devices do not decompose.
pub(crate) fn taken(operation: &Operation) -> Option<Taken> {
    let (launches_a_column, copies) = match operation {
        Operation::Cholesky => (0.25, 2.0),
        Operation::Determinant(None) => (0.5, 2.0),
        Operation::Lu => (0.5, 4.0),
        Operation::Inverse(None) => (0.8, 2.0),
        Operation::Qr => (1.3, 3.0),
        Operation::Solve(None) => (1.7, 2.0),
        Operation::LeastSquares => (2.2, 4.0),
        Operation::Eigen { .. } => (2.5, 7.0),
        // A guess: nobody has measured it. The library does a part of it on the host.
        Operation::ComplexEigen => (100.0, 10.0),
        Operation::Exponential => (1.7, 10.0),
        Operation::Svd { .. } | Operation::PseudoInverse | Operation::Rank => (6.0, 12.0),
        _ => return None,
    };
    Some(Taken { launches_a_column, copies })
}

/// Both factors of a square matrix, and the swaps of its rows.
struct Factored {
    cells: Matrix,
    pivots: Buffer,
    /// Whether they are of the transpose.
    is_turned: bool,
}

impl Queue<'_> {
    /// The results of a decomposition, in the order of its parts.
    ///
    /// # Errors
    /// [`Failed::Refused`] for what only the host can tell or do.
    pub(super) fn decompose(
        &self,
        operation: &Operation,
        inputs: &[Matrix],
    ) -> Result<Vec<Found>, Failed> {
        if inputs.iter().any(Matrix::is_empty) {
            return Err(refused("a matrix without cells"));
        }
        if let (Operation::Lu, [a]) = (operation, inputs) {
            return Ok(self.lu(a)?.into());
        }
        if let (Operation::ComplexEigen, [a]) = (operation, inputs) {
            return Ok(self.eigen_of_any(a)?.into());
        }
        let parts = self.dense_parts(operation, inputs)?;
        Ok(parts.into_iter().map(Found::Here).collect())
    }

    /// Those of a decomposition that has none with the host.
    fn dense_parts(&self, operation: &Operation, inputs: &[Matrix]) -> Result<Vec<Matrix>, Failed> {
        match (operation, inputs) {
            (Operation::Solve(None), [a, b]) => Ok(vec![self.solution(a, b)?]),
            (Operation::Inverse(None), [a]) => Ok(vec![self.inverse(a)?]),
            (Operation::Determinant(None), [a]) => Ok(vec![self.determinant(a)?]),
            (Operation::Cholesky, [a]) => Ok(vec![self.cholesky(a)?]),
            (Operation::Qr, [a]) => Ok(self.qr(a)?.into()),
            (Operation::LeastSquares, [a, b]) => Ok(vec![self.least_squares(a, b)?]),
            (Operation::Eigen { rank }, [a]) => Ok(self.eigen(a, *rank)?.into()),
            (Operation::Svd { rank }, [a]) => {
                let [u, s, vt] = self.svd(a, *rank)?;
                Ok(vec![self.transpose(&u)?, s, vt])
            }
            (Operation::PseudoInverse, [a]) => Ok(vec![self.pseudo_inverse(a)?]),
            (Operation::Exponential, [a]) => {
                square(a)?;
                let (norm, side) = (self.norm_1(a)?, a.shape.rows);
                let identity = self.identity(side, a.element)?;
                let steps = Exponential { queue: self, identity };
                Ok(vec![exponential_by(&steps, a, norm, a.element)?])
            }
            (Operation::Rank, [a]) => {
                let [_, s, _] = self.svd(a, None)?;
                let count = self.significant(&s, a.shape)? as f64;
                Ok(vec![self.numbers(vec![count], Shape::new(1, 1), a.element)?])
            }
            _ => Err(Failed::Unfit(format!("{operation} is not for devices"))),
        }
    }

    fn solution(&self, a: &Matrix, b: &Matrix) -> Result<Matrix, Failed> {
        if a.shape.rows != b.shape.rows {
            return Err(refused("sizes that do not fit"));
        }
        let element = a.element.common(b.element);
        let (a, b) = (self.cast(a, element)?, self.cast(b, element)?);
        self.norm_1(&b)?;
        let norm = self.norm_1(&a)?;
        let factored = self.factored(&a)?;
        if self.reciprocal_condition(&factored, norm)? < epsilon(element) {
            return Err(refused("a singular matrix"));
        }
        self.solved(&factored, &b)
    }

    fn inverse(&self, a: &Matrix) -> Result<Matrix, Failed> {
        let norm = self.norm_1(a)?;
        let Factored { cells, pivots, .. } = self.factored(a)?;
        // The inverse of the transpose, column after column, is that of the matrix row after row.
        let x = self.identity(a.shape.rows, a.element)?;
        self.with_room(0, || self.stream.solve_lu(columns(&cells), &pivots, false, columns(&x)))?;
        let condition = 1.0 / norm / self.norm_1(&x)?;
        if condition.is_nan() || condition < epsilon(a.element) {
            return Err(refused("a singular matrix"));
        }
        Ok(x)
    }

    fn determinant(&self, a: &Matrix) -> Result<Matrix, Failed> {
        self.norm_1(a)?;
        let Factored { cells, pivots, .. } = self.factored(a)?;
        let swaps = self.swaps(&pivots, a.shape.rows, a.shape.rows)?;
        let diagonal = self.read(&self.diagonal(&cells)?)?;
        let is_odd = swaps.iter().enumerate().filter(|(row, swap)| row != *swap).count() % 2 == 1;
        let sign = if is_odd { -1.0 } else { 1.0 };
        let value = diagonal.into_iter().fold(sign, |product, pivot| product * pivot);
        self.numbers(vec![value], Shape::new(1, 1), a.element)
    }

    fn cholesky(&self, a: &Matrix) -> Result<Matrix, Failed> {
        square(a)?;
        self.norm_1(a)?;
        // The upper triangle by columns is the lower one by rows.
        let cells = self.own(a)?;
        let minor = self.with_room(0, || self.stream.factor_cholesky(columns(&cells)))?;
        if minor != 0 {
            return Err(refused("a matrix that is not positive definite"));
        }
        self.triangle(&cells, Triangle::Lower)
    }

    fn qr(&self, a: &Matrix) -> Result<[Matrix; 2], Failed> {
        self.norm_1(a)?;
        let Shape { rows, columns: width } = a.shape;
        let count = rows.min(width);
        let cells = self.own_transpose(a)?;
        let scales = self.empty(Shape::new(count, 1), a.element)?;
        self.with_room(0, || self.stream.factor_qr(columns(&cells), &scales.buffer))?;
        let whole = |count| Span { start: 0, count };
        let r = self.slice(&cells, Axis::Columns, whole(count))?;
        let r = self.triangle(&self.transpose(&r)?, Triangle::Upper)?;
        let reflections = self.slice(&cells, Axis::Rows, whole(count))?;
        self.with_room(0, || self.stream.orthogonal(columns(&reflections), &scales.buffer))?;
        let signs = self.signs(&[&self.diagonal(&r)?], |builder, of| {
            let zero = builder.constant(0.0);
            builder.binary(BinaryFunction::Less, of[0], zero)
        })?;
        let q = self.transpose(&self.scaled(&reflections, &signs)?)?;
        Ok([q, self.scaled(&r, &signs)?])
    }

    fn least_squares(&self, a: &Matrix, b: &Matrix) -> Result<Matrix, Failed> {
        let Shape { rows, columns: width } = a.shape;
        if rows < width || b.shape.rows != rows {
            return Err(refused("a matrix wider than tall"));
        }
        let element = a.element.common(b.element);
        let (a, b) = (self.cast(a, element)?, self.cast(b, element)?);
        self.norm_1(&b)?;
        let [q, r] = self.qr(&a)?;
        // R is both of its own factors, the other one without a cell but its ones, and no row was swapped.
        let order: Vec<i64> = (1..=width as i64).collect();
        let order: &[u8] = bytemuck::cast_slice(&order);
        let pivots = self.with_room(order.len(), || self.stream.upload(order, "pivots"))?;
        let norm = self.norm_1(&r)?;
        let factored = Factored { cells: self.own_transpose(&r)?, pivots, is_turned: false };
        let condition = self.reciprocal_condition(&factored, norm)?;
        if condition <= epsilon(element) * 100.0 * rows as f64 {
            return Err(refused("columns that depend on one another"));
        }
        let right = self.evaluate(&Operation::Cross, &[q, b], None)?;
        self.solved(&factored, &right)
    }

    /// The values, ascending, and the vectors as columns.
    pub(super) fn eigen(&self, a: &Matrix, rank: Option<usize>) -> Result<[Matrix; 2], Failed> {
        square(a)?;
        self.norm_1(a)?;
        let side = a.shape.rows;
        let (vectors, values) = (self.own(a)?, self.empty(Shape::new(side, 1), a.element)?);
        let missing = self.with_room(0, || self.stream.eigen(columns(&vectors), &values.buffer))?;
        if missing != 0 {
            return Err(refused("a matrix whose eigenvalues do not converge"));
        }
        let count = rank.map_or(side, |count| count.min(side));
        let last = Span { start: side - count, count };
        let values = self.slice(&values, Axis::Rows, last)?;
        let vectors = self.slice(&vectors, Axis::Rows, last)?;
        let vectors = self.scaled(&vectors, &self.signs_of_rows(&vectors)?)?;
        Ok([values, self.transpose(&vectors)?])
    }

    /// `t(u)`, the values as a column, and `vt`.
    fn svd(&self, a: &Matrix, rank: Option<usize>) -> Result<[Matrix; 3], Failed> {
        self.norm_1(a)?;
        let Shape { rows, columns: width } = a.shape;
        let (double, side) = (Element::Float64, rows.min(width));
        let exact = self.cast(a, double)?;
        // Tall column after column: as it is where it is wide row after row.
        let is_tall = rows > width;
        let cells = if is_tall { self.own_transpose(&exact)? } else { self.own(&exact)? };
        let [left, right] = [rows.max(width), side].map(|size| Shape::new(side, size));
        let (u, v) = (self.empty(left, double)?, self.empty(right, double)?);
        let s = self.empty(Shape::new(side, 1), double)?;
        let found = self
            .with_room(0, || self.stream.svd(columns(&cells), columns(&u), &s.buffer, columns(&v)));
        let (is_open, off) = found?;
        let (u, vt) = if is_tall { (u, v) } else { (v, u) };
        let values = self.read(&s)?;
        let least = UNITS * epsilon(double) * rows.max(width) as f64 * values[0];
        if is_open != 0 || off > least {
            return Err(refused("a matrix whose singular values do not converge"));
        }
        // The polar decomposition moves values as small as that, by which ranks are told.
        if values[side - 1] <= least {
            return Err(refused("a matrix that is nearly of a lower rank"));
        }
        self.check_svd(&exact, [&u, &s, &vt])?;
        let signs = self.signs_of_rows(&u)?;
        let first = Span { start: 0, count: rank.map_or(side, |count| count.min(side)) };
        let part = |of: Matrix| self.cast(&self.slice(&of, Axis::Rows, first)?, a.element);
        Ok([part(self.scaled(&u, &signs)?)?, part(s)?, part(self.scaled(&vt, &signs)?)?])
    }

    /// Refuses factors that are not those of the definition.
    fn check_svd(&self, a: &Matrix, [u, s, vt]: [&Matrix; 3]) -> Result<(), Failed> {
        let side = s.shape.rows;
        let bound = UNITS * epsilon(a.element) * (side as f64).sqrt();
        let identity = self.identity(side, a.element)?;
        let made = self.evaluate(&Operation::Cross, &[self.scaled(u, s)?, vt.clone()], None)?;
        let norm = self.distance(a, None)?;
        let mut apart = vec![(self.distance(&made, Some(a))?, norm)];
        for vectors in [u, vt] {
            let both = [vectors.clone(), vectors.clone()];
            let products = self.evaluate(&Operation::Outer, &both, None)?;
            apart.push((self.distance(&products, Some(&identity))?, (side as f64).sqrt()));
        }
        let is_close = |(distance, norm): (f64, f64)| norm.is_finite() && distance <= bound * norm;
        match apart.into_iter().all(is_close) {
            true => Ok(()),
            false => Err(refused("singular values that are not to be trusted")),
        }
    }

    fn pseudo_inverse(&self, a: &Matrix) -> Result<Matrix, Failed> {
        let [u, s, vt] = self.svd(a, None)?;
        let first = Span { start: 0, count: self.significant(&s, a.shape)? };
        let [u, s, vt] = [u, s, vt].map(|part| self.slice(&part, Axis::Rows, first));
        let divide = Operation::Binary(BinaryFunction::Divide);
        let scaled = self.evaluate(&divide, &[vt?, s?], None)?;
        self.evaluate(&Operation::Cross, &[scaled, u?], None)
    }

    /// How many singular values count, as the host has it.
    fn significant(&self, s: &Matrix, shape: Shape) -> Result<usize, Failed> {
        let values = self.read(s)?;
        let least = epsilon(s.element) * shape.rows.max(shape.columns) as f64 * values[0];
        Ok(values.into_iter().take_while(|&value| value > least).count())
    }

    /// `l`, `u` and `p`.
    fn lu(&self, a: &Matrix) -> Result<[Found; 3], Failed> {
        self.norm_1(a)?;
        let Shape { rows, columns: width } = a.shape;
        let count = rows.min(width);
        let cells = self.own_transpose(a)?;
        let bytes = 8 * count;
        let pivots = self.with_room(bytes, || self.stream.alloc(bytes, "pivots"))?;
        let stopped = self.with_room(0, || self.stream.factor_lu(columns(&cells), &pivots))?;
        if stopped != 0 {
            return Err(refused("a singular matrix"));
        }
        let swaps = self.swaps(&pivots, count, rows)?;
        let both = self.transpose(&cells)?;
        drop(cells);
        let first = Span { start: 0, count };
        let l = self.triangle(&self.slice(&both, Axis::Columns, first)?, Triangle::Lower)?;
        self.put_ones(&l)?;
        let u = self.triangle(&self.slice(&both, Axis::Rows, first)?, Triangle::Upper)?;
        self.norm_1(&u)?;
        self.check_pivots(&l)?;
        let p: Cells = match a.element {
            Element::Float64 => permuted::<f64>(rows, &swaps).into(),
            Element::Float32 => permuted::<f32>(rows, &swaps).into(),
        };
        Ok([Found::Here(l), Found::Here(u), Found::Host(p)])
    }

    /// Refuses a lower factor that no largest pivots leave: it has no cell above one, but for rounding.
    fn check_pivots(&self, l: &Matrix) -> Result<(), Failed> {
        let largest = Operation::Reduce { aggregate: Aggregate::Max, axis: None };
        let magnitudes =
            self.evaluate(&Operation::Unary(UnaryFunction::Abs), slice::from_ref(l), None)?;
        let largest = self.read(&self.evaluate(&largest, &[magnitudes], None)?)?[0];
        match largest <= 1.0 + UNITS * epsilon(l.element) {
            true => Ok(()),
            false => Err(refused("pivots that are not to be trusted")),
        }
    }

    /// The row, of so many, that each of the first was swapped with, counted from 0.
    fn swaps(&self, pivots: &Buffer, count: usize, rows: usize) -> Result<Vec<usize>, Failed> {
        let mut swaps = vec![0_i64; count];
        self.back(pivots, &mut swaps)?;
        let place = |(row, swap): (usize, i64)| {
            let swap = usize::try_from(swap).ok()?.checked_sub(1)?;
            (row..rows).contains(&swap).then_some(swap)
        };
        let swaps: Option<Vec<usize>> = swaps.into_iter().enumerate().map(place).collect();
        swaps.ok_or_else(|| refused("pivots that are not to be trusted"))
    }

    fn factored(&self, a: &Matrix) -> Result<Factored, Failed> {
        square(a)?;
        let (cells, bytes) = (self.own(a)?, 8 * a.shape.rows);
        let pivots = self.with_room(bytes, || self.stream.alloc(bytes, "pivots"))?;
        self.with_room(0, || self.stream.factor_lu(columns(&cells), &pivots))?;
        Ok(Factored { cells, pivots, is_turned: true })
    }

    /// `a⁻¹·b` by the factors of `a`.
    fn solved(&self, factored: &Factored, b: &Matrix) -> Result<Matrix, Failed> {
        let x = self.own_transpose(b)?;
        self.solve_columns(factored, false, &x)?;
        self.transpose(&x)
    }

    /// The same of columns, each of which is a row here, or with the transpose of `a`.
    fn solve_columns(
        &self,
        Factored { cells, pivots, is_turned }: &Factored,
        is_transposed: bool,
        x: &Matrix,
    ) -> Result<(), Failed> {
        let turns = is_transposed != *is_turned;
        self.with_room(0, || self.stream.solve_lu(columns(cells), pivots, turns, columns(x)))
    }

    /// `1 / (‖a‖·‖a⁻¹‖)` in the 1-norm, the second norm estimated as the host does it.
    fn reciprocal_condition(&self, factored: &Factored, norm: f64) -> Result<f64, Failed> {
        let Matrix { shape: Shape { rows: side, .. }, element, .. } = factored.cells;
        let failed = RefCell::new(None);
        let solve = |is_transposed: bool, b: MatMut<'_, f64>| {
            let solved = || {
                let cells: Vec<f64> = (0..side).map(|row| b[(row, 0)]).collect();
                let x = self.numbers(cells, Shape::new(1, side), element)?;
                self.solve_columns(factored, is_transposed, &x)?;
                self.read(&x)
            };
            let solution = solved().unwrap_or_else(|why| {
                *failed.borrow_mut() = Some(why);
                vec![f64::NAN; side]
            });
            let mut b = b;
            solution.into_iter().enumerate().for_each(|(row, x)| b[(row, 0)] = x);
        };
        let along = |b: MatMut<'_, f64>| solve(false, b);
        let across = |b: MatMut<'_, f64>| solve(true, b);
        let condition = reciprocal_condition_of(side, norm, &along, &across);
        match failed.into_inner() {
            Some(failed) => Err(failed),
            None => Ok(if condition.is_nan() { 0.0 } else { condition }),
        }
    }

    /// The largest sum of absolute values down a column; refused where a cell is not finite.
    pub(super) fn norm_1(&self, a: &Matrix) -> Result<f64, Failed> {
        let sum = Operation::Reduce { aggregate: Aggregate::Sum, axis: Some(Axis::Columns) };
        let magnitudes =
            self.evaluate(&Operation::Unary(UnaryFunction::Abs), slice::from_ref(a), None)?;
        let sums = self.read(&self.evaluate(&sum, &[magnitudes], None)?)?;
        match sums.iter().all(|sum| sum.is_finite()) {
            true => Ok(sums.into_iter().fold(0.0, f64::max)),
            false => Err(refused("cells that are not finite")),
        }
    }

    /// The Frobenius norm of a matrix, or of its difference from another.
    pub(super) fn distance(&self, a: &Matrix, b: Option<&Matrix>) -> Result<f64, Failed> {
        let apart = match b {
            Some(b) => {
                let subtract = Operation::Binary(BinaryFunction::Subtract);
                self.evaluate(&subtract, &[a.clone(), b.clone()], None)?
            }
            None => a.clone(),
        };
        let norm = Operation::Reduce { aggregate: Aggregate::Norm(2.0.into()), axis: None };
        Ok(self.read(&self.evaluate(&norm, &[apart], None)?)?[0])
    }

    /// −1 for each row whose cell of largest magnitude is negative, else 1.
    fn signs_of_rows(&self, vectors: &Matrix) -> Result<Matrix, Failed> {
        let most = |aggregate| {
            let reduce = Operation::Reduce { aggregate, axis: Some(Axis::Rows) };
            self.evaluate(&reduce, slice::from_ref(vectors), None)
        };
        let (least, largest) = (most(Aggregate::Min)?, most(Aggregate::Max)?);
        self.signs(&[&least, &largest], |builder, of| {
            let below = builder.unary(UnaryFunction::Negate, of[0]);
            builder.binary(BinaryFunction::Greater, below, of[1])
        })
    }

    /// −1 where a condition holds, else 1.
    fn signs(
        &self,
        inputs: &[&Matrix],
        is_negative: impl Fn(&mut Builder, &[Value]) -> Value,
    ) -> Result<Matrix, Failed> {
        let mut builder = Builder::new();
        let of: Vec<Value> = (0..inputs.len()).map(|at| builder.input(at)).collect();
        let condition = is_negative(&mut builder, &of);
        let (minus, plus) = (builder.constant(-1.0), builder.constant(1.0));
        let sign = builder.select(condition, minus, plus);
        self.map(&builder.finish(sign), inputs, inputs[0].element)
    }

    /// Each row times its number in a column.
    fn scaled(&self, matrix: &Matrix, column: &Matrix) -> Result<Matrix, Failed> {
        let multiply = Operation::Binary(BinaryFunction::Multiply);
        self.evaluate(&multiply, &[matrix.clone(), column.clone()], None)
    }

    /// A small matrix from here, that nobody else has.
    pub(super) fn numbers(
        &self,
        cells: Vec<f64>,
        shape: Shape,
        element: Element,
    ) -> Result<Matrix, Failed> {
        // It is wanted at once, and may be written over: it comes by the stream that works with it.
        let bytes: &[u8] = bytemuck::cast_slice(&cells);
        let there = self.with_room(bytes.len(), || self.stream.upload(bytes, "numbers"))?;
        self.cast(&Matrix::new(there, shape, Element::Float64), element)
    }

    /// The cells of a small matrix, row after row.
    pub(super) fn read(&self, matrix: &Matrix) -> Result<Vec<f64>, Failed> {
        let cells = self.download(matrix)?;
        let Shape { rows, columns } = matrix.shape;
        Ok((0..rows * columns).map(|at| cells.cell(at / columns, at % columns)).collect())
    }
}

/// What an exponential is made of here.
struct Exponential<'a> {
    queue: &'a Queue<'a>,
    identity: Matrix,
}

impl Steps for Exponential<'_> {
    type Matrix = Matrix;
    type Error = Failed;

    fn product(&self, a: &Matrix, b: &Matrix) -> Result<Matrix, Failed> {
        self.queue.cancel.check().map_err(Failed::Stopped)?;
        self.queue.evaluate(&Operation::Product, &[a.clone(), b.clone()], None)
    }

    fn combine(&self, terms: &[(f64, &Matrix)], diagonal: f64) -> Result<Matrix, Failed> {
        let mut builder = Builder::new();
        let mut scaled = |at: usize, factor: f64| {
            let (x, factor) = (builder.input(at), builder.constant(factor));
            builder.binary(BinaryFunction::Multiply, x, factor)
        };
        let parts: Vec<Value> =
            terms.iter().enumerate().map(|(at, (factor, _))| scaled(at, *factor)).collect();
        let last = (diagonal != 0.0).then(|| scaled(terms.len(), diagonal));
        let sum = parts.into_iter().chain(last);
        let sum = sum.reduce(|sum, part| builder.binary(BinaryFunction::Add, sum, part));
        let sum = sum.ok_or_else(|| Failed::Unfit("a sum of nothing".into()))?;
        let inputs = terms.iter().map(|(_, matrix)| *matrix);
        let inputs: Vec<&Matrix> = inputs.chain(last.map(|_| &self.identity)).collect();
        self.queue.map(&builder.finish(sum), &inputs, self.identity.element)
    }

    fn solve(&self, a: &Matrix, b: &Matrix) -> Result<Matrix, Failed> {
        self.queue.solution(a, b)
    }
}

/// A matrix as cuSOLVER sees it: the transpose, column after column.
pub(super) fn columns(matrix: &Matrix) -> Columns<'_> {
    let arithmetic = match matrix.element {
        Element::Float64 => Arithmetic::F64,
        Element::Float32 => Arithmetic::F32,
    };
    let Shape { rows: columns, columns: rows } = matrix.shape;
    Columns { buffer: &matrix.buffer, arithmetic, rows, columns }
}

/// The unit of rounding that the host's kernels go by.
pub(super) fn epsilon(element: Element) -> f64 {
    match element {
        Element::Float64 => f64::EPSILON,
        Element::Float32 => f64::from(f32::EPSILON),
    }
}

pub(super) fn square(a: &Matrix) -> Result<(), Failed> {
    if a.shape.rows == a.shape.columns { Ok(()) } else { Err(refused("sizes that do not fit")) }
}

pub(super) fn refused(what: &str) -> Failed {
    Failed::Refused(what.to_owned())
}
