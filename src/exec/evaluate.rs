//! One operation over whole values: the match from operations to kernels.
//!
//! Enters: an operation and its inputs, whose shapes the planner has checked as far as it could; what
//! only running could tell is checked here. Leaves: a [`Value`].

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::StandardNormal;
use rayon::prelude::*;

use super::kernels::dense::Factor;
use super::kernels::elementwise::BinaryFunction;
use super::kernels::reduce::{self, Reduction};
use super::kernels::{self, Real, Stop, decompose, dense, fused, images, normalize, sparse};
use super::operation::{Aggregate, Axis, CellFunction, Counted, Distribution, Operation as Op};
use super::value::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{CellBuffer, Cells, Csr, Dense, Element, Layout, Scalar, Shape, Storage};
use crate::memory;

/// A sparse result with more than this share of its cells stored is kept dense: beyond it the places
/// cost more than the zeros (12 bytes for a stored cell against 8 for every cell, and slower loops).
pub(crate) const DENSE_FROM: f64 = 0.4;

/// Cells that one task fills.
const TASK_CELLS: usize = 1 << 16;

/// Computes one operation on the current thread pool. Once it is asked to stop, neither its result nor its
/// error means anything.
///
/// # Errors
/// Shapes that only now turn out not to fit, and what a kernel refuses.
pub(crate) fn evaluate(operation: &Op, inputs: &[&Cells], stop: Stop<'_>) -> Result<Value> {
    let wide = inputs.iter().any(|input| input.element() == Element::Float64);
    match operation {
        // What has no inputs is made in double precision.
        _ if inputs.is_empty() => typed::<f64>(operation, inputs, stop),
        Op::Cast(Element::Float64) => Ok(Cells::F64(storage(inputs[0])).into()),
        Op::Cast(Element::Float32) => Ok(Cells::F32(storage(inputs[0])).into()),
        _ if wide => typed::<f64>(operation, inputs, stop),
        _ => typed::<f32>(operation, inputs, stop),
    }
}

/// A product by as many levels of Strassen's method as `levels` says, of it or of its tiles, where both factors are
/// dense.
///
/// # Errors
/// Inner sizes that only now turn out not to fit.
pub(super) fn multiply(
    inputs: &[&Cells],
    levels: impl Fn([usize; 3]) -> usize,
    stop: Stop<'_>,
) -> Result<Value> {
    fn typed<T: Real>(
        inputs: &[&Cells],
        levels: impl Fn([usize; 3]) -> usize,
        stop: Stop<'_>,
    ) -> Value {
        let (a, b) = (dense_of::<T>(inputs[0]), dense_of::<T>(inputs[1]));
        let (rows, inner, columns) = (a.shape().rows, a.shape().columns, b.shape().columns);
        if dense::needs_tiles([&a, &b], Shape::new(rows, columns)) {
            let (a, b) = (Factor::plain(&a), Factor::plain(&b));
            return matrix(dense::product_by_tiles(a, b, levels, stop));
        }
        let levels = levels([rows, inner, columns]);
        matrix(dense::product_by_levels(&a, &b, levels, stop))
    }
    let is_dense = inputs.iter().all(|input| input.layout() == Layout::Dense);
    let (a, b) = (inputs[0].shape(), inputs[1].shape());
    if !is_dense || a.columns != b.rows {
        return evaluate(&Op::Product, inputs, stop);
    }
    Ok(match inputs.iter().map(|input| input.element()).reduce(Element::common) {
        Some(Element::Float32) => typed::<f32>(inputs, levels, stop),
        _ => typed::<f64>(inputs, levels, stop),
    })
}

/// Type and number of columns of a block that [`evaluate_into`] can write where it stays.
pub(super) fn written(operation: &Op, inputs: &[&Cells]) -> Option<(Element, usize)> {
    let is_dense = inputs.iter().all(|input| input.layout() == Layout::Dense);
    let columns = match operation {
        Op::Product if is_dense => inputs[1].shape().columns,
        Op::Outer if is_dense => inputs[1].shape().rows,
        Op::Convolve(window) => inputs[1].shape().rows * window.places().area(),
        Op::Pool(_, window) => window.channels * window.places().area(),
        _ => return None,
    };
    inputs.iter().map(|input| input.element()).reduce(Element::common).zip(Some(columns))
}

/// An operation on a block of dense rows, into memory of the caller.
pub(super) fn evaluate_into<T: Real>(
    operation: &Op,
    inputs: &[&Cells],
    out: &mut [T],
    stop: Stop<'_>,
) -> Result<()> {
    let full = |at: usize| dense_of::<T>(inputs[at]);
    match operation {
        Op::Product => {
            check_product(inputs[0].shape(), inputs[1].shape())?;
            dense::product_into(&full(0), &full(1), out, stop);
        }
        Op::Outer => {
            check_product(inputs[0].shape(), inputs[1].shape().transposed())?;
            dense::outer_into(&full(0), &full(1), out, stop);
        }
        Op::Convolve(window) => images::convolve_into(&full(0), &full(1), window, out, stop),
        Op::Pool(pooling, window) => images::pool_into(&full(0), *pooling, window, out, stop),
        other => unreachable!("{other} is evaluated into memory of its own"),
    }
    Ok(())
}

fn typed<T: Real>(operation: &Op, inputs: &[&Cells], stop: Stop<'_>) -> Result<Value> {
    let input = |at: usize| storage::<T>(inputs[at]);
    let full = |at: usize| dense_of::<T>(inputs[at]);
    let shape = |at: usize| inputs[at].shape();
    let one = |value: f64| Value::from(Cells::from(Dense::scalar(T::from_f64(value))));
    Ok(match operation {
        Op::Stored(stored) => stored.matrix.cells().clone().into(),
        Op::Constant(value) => one(value.get()),
        Op::Eye(n) => matrix(sparse::diagonal_matrix(&vec![T::ONE; *n])),
        Op::Full(shape) => {
            let value = full(0).cells()[0];
            let mut cells = CellBuffer::arbitrary(shape.cells());
            cells.par_chunks_mut(TASK_CELLS).for_each(|cells| cells.fill(value));
            matrix(Dense::new(*shape, cells.into()))
        }
        Op::Range { start, step, count } => {
            let cell = |at: usize| T::from_f64(start.get() + step.get() * at as f64);
            matrix(Dense::new(
                Shape::new(*count, 1),
                (0..*count).map(cell).collect::<Vec<_>>().into(),
            ))
        }
        Op::Random { distribution, seed, shape } => {
            matrix(random::<T>(*distribution, *seed, *shape))
        }
        Op::Diagonal => diagonal(&input(0)),

        Op::Unary(function) => match input(0) {
            Storage::Csr(x) if function.zero_preserving() => {
                matrix(sparse::map(&x, *function, stop))
            }
            x => elementwise(CellFunction::Unary(*function), &[densified(x)])?,
        },
        Op::Binary(function) => binary(*function, input(0), input(1), stop)?,
        Op::Select => elementwise(CellFunction::Select, &[full(0), full(1), full(2)])?,

        Op::Transpose => match input(0) {
            Storage::Dense(x) => matrix(dense::transpose(&x)),
            Storage::Csr(x) => matrix(sparse::transpose(&x, stop)),
        },
        Op::Reshape(to) => {
            let from = shape(0);
            if from.cells() != to.cells() {
                let message =
                    format!("the {} cells of a {from} matrix do not fill {to}", from.cells());
                return Err(Error::argument("reshape", message));
            }
            matrix(dense::reshape(&full(0), *to))
        }
        Op::Stack(axis) => stack(*axis, (0..inputs.len()).map(input).collect())?,
        Op::Slice { axis, range } => {
            let (of, end) = (shape(0), range.start + range.count);
            let size = if *axis == Axis::Rows { of.rows } else { of.columns };
            if end > size {
                let (dimension, index) = (axis.name(), end as i64);
                return Err(ErrorKind::OutOfRange { dimension, index, shape: of }.into());
            }
            match (axis, input(0)) {
                (Axis::Rows, x) => matrix(x.rows(range.start..end)),
                (Axis::Columns, Storage::Dense(x)) => {
                    matrix(dense::slice_columns(&x, range.start..end))
                }
                (Axis::Columns, Storage::Csr(x)) => {
                    matrix(sparse::slice_columns(&x, range.start..end))
                }
            }
        }
        Op::Store(Layout::Dense) => matrix(full(0)),
        Op::Store(Layout::Csr) => match input(0) {
            Storage::Dense(x) => matrix(sparse::from_dense(&x)),
            x => matrix(x),
        },

        Op::Reduce { aggregate, axis } => {
            let axis = match axis {
                None => reduce::Axis::All,
                Some(Axis::Rows) => reduce::Axis::Rows,
                Some(Axis::Columns) => reduce::Axis::Columns,
            };
            let reduced = reduce::reduce(&input(0), aggregate.reduction(), axis);
            if *aggregate != Aggregate::ArgMax {
                return Ok(matrix(reduced));
            }
            // Users count from 1.
            let cells = reduced.cells().iter().map(|&place| place + T::ONE).collect::<Vec<_>>();
            matrix(Dense::new(reduced.shape(), cells.into()))
        }
        Op::Count(counted) => one(match counted {
            Counted::Rows => shape(0).rows as f64,
            Counted::Columns => shape(0).columns as f64,
            Counted::NonZeros => match input(0) {
                Storage::Dense(x) => kernels::non_zeros(x.cells()) as f64,
                Storage::Csr(x) => sparse::non_zeros(&x) as f64,
            },
        }),
        Op::CumulativeSum => matrix(dense::cumsum(&full(0))),
        Op::Normalize { axis, p } => {
            let axis = match axis {
                Axis::Rows => reduce::Axis::Rows,
                Axis::Columns => reduce::Axis::Columns,
            };
            matrix(normalize::normalize(&input(0), p.get(), axis))
        }
        Op::Convolve(window) => matrix(images::convolve(&full(0), &full(1), window, stop)),
        Op::Pool(pooling, window) => matrix(images::pool(&full(0), *pooling, window, stop)),

        Op::Product => {
            check_product(shape(0), shape(1))?;
            match (input(0), input(1)) {
                (Storage::Dense(a), Storage::Dense(b)) => {
                    matrix(dense::product_of([Factor::plain(&a), Factor::plain(&b)], stop))
                }
                (Storage::Csr(a), Storage::Dense(b)) => matrix(sparse::times_dense(&a, &b, stop)),
                (Storage::Dense(a), Storage::Csr(b)) => matrix(sparse::dense_times(&a, &b, stop)),
                (Storage::Csr(a), Storage::Csr(b)) => settled(sparse::product(&a, &b, stop)),
            }
        }
        Op::Gram => match input(0) {
            Storage::Dense(x) => matrix(dense::half_cross_of([&x, &x], stop)),
            Storage::Csr(x) => settled(sparse::gram(&x, stop)),
        },
        Op::HalfCross => {
            check_product(shape(0).transposed(), shape(1))?;
            match (input(0), input(1)) {
                (Storage::Dense(x), Storage::Dense(y)) => {
                    matrix(dense::half_cross_of([&x, &y], stop))
                }
                // Half of a sparse product takes as long as all of it.
                _ => typed::<T>(&Op::Cross, inputs, stop)?,
            }
        }
        Op::Cross => {
            check_product(shape(0).transposed(), shape(1))?;
            match (input(0), input(1)) {
                (Storage::Dense(x), Storage::Dense(y)) => {
                    matrix(dense::product_of([Factor::transposed(&x), Factor::plain(&y)], stop))
                }
                (Storage::Csr(x), Storage::Dense(y)) => matrix(sparse::cross_dense(&x, &y, stop)),
                (Storage::Dense(x), Storage::Csr(y)) => {
                    matrix(dense::transpose(&sparse::cross_dense(&y, &x, stop)))
                }
                (Storage::Csr(x), Storage::Csr(y)) => {
                    settled(sparse::product(&sparse::transpose(&x, stop), &y, stop))
                }
            }
        }
        Op::Outer => match (input(0), input(1)) {
            (Storage::Dense(x), Storage::Dense(y)) => {
                check_product(shape(0), shape(1).transposed())?;
                matrix(dense::product_of([Factor::plain(&x), Factor::transposed(&y)], stop))
            }
            (_, Storage::Dense(y)) => {
                let right: Cells = dense::transpose(&y).into();
                typed::<T>(&Op::Product, &[inputs[0], &right], stop)?
            }
            (_, Storage::Csr(y)) => {
                let right: Cells = sparse::transpose(&y, stop).into();
                typed::<T>(&Op::Product, &[inputs[0], &right], stop)?
            }
        },
        Op::Sampled => {
            check_product(shape(1), shape(2).transposed())?;
            let stored = match input(0) {
                Storage::Csr(m) => m,
                Storage::Dense(m) => sparse::from_dense(&m),
            };
            settled(sparse::sampled(&stored, &full(1), &full(2), stop))
        }
        Op::SampledCells(function) => {
            let stored = match input(0) {
                Storage::Csr(m) => m,
                Storage::Dense(m) => sparse::from_dense(&m),
            };
            let operands: Vec<Storage<T>> = (1..inputs.len()).map(input).collect();
            check_stretches(&operands, stored.shape())?;
            // Numbers are constants: a square is a product.
            let number =
                |of: &Storage<T>| (of.shape().cells() == 1).then(|| of.cell(0, 0).to_f64());
            let program = one_loop(*function, operands.iter().map(number));
            settled(sparse::sampled_cells(&stored, &program, &operands, stop))
        }
        Op::Kronecker => match (input(0), input(1)) {
            (Storage::Csr(x), Storage::Csr(y)) => settled(sparse::kron(&x, &y, stop)),
            (x, y) => matrix(dense::kron(&densified(x), &densified(y))),
        },
        Op::Solve(triangle) => {
            square("solve", shape(0))?;
            equally_tall("solve", shape(0), shape(1))?;
            matrix(match triangle {
                None => decompose::solve(&full(0), &full(1), stop)?,
                Some(triangle) => {
                    decompose::solve_by_substitution(&full(0), *triangle, &full(1), stop)?
                }
            })
        }
        Op::LeastSquares => {
            equally_tall("lstsq", shape(0), shape(1))?;
            matrix(decompose::least_squares(&full(0), &full(1), stop)?)
        }
        Op::Inverse(triangle) => {
            square("inv", shape(0))?;
            matrix(match triangle {
                None => decompose::inverse(&full(0), stop)?,
                Some(triangle) => decompose::inverse_of_triangle(&full(0), *triangle, stop)?,
            })
        }
        Op::PseudoInverse => matrix(decompose::pseudo_inverse(&full(0), stop)?),
        Op::Exponential => {
            square("expm", shape(0))?;
            matrix(decompose::exponential(&full(0), stop)?)
        }
        Op::Logarithm => {
            square("logm", shape(0))?;
            matrix(decompose::logarithm(&full(0), stop)?)
        }
        Op::Rank => matrix(decompose::rank(&full(0), stop)?),
        Op::Determinant(triangle) => {
            square("det", shape(0))?;
            matrix(match triangle {
                None => decompose::determinant(&full(0), stop)?,
                Some(_) => decompose::determinant_of_triangle(&full(0))?,
            })
        }
        Op::Trace => {
            square("trace", shape(0))?;
            match input(0) {
                Storage::Dense(x) => sum_of(&dense::diagonal(&x)),
                Storage::Csr(x) => sum_of(&sparse::diagonal(&x)),
            }
        }
        Op::Cholesky => {
            square("cholesky", shape(0))?;
            matrix(decompose::cholesky(&full(0), stop)?)
        }
        Op::Lu => {
            let lu = decompose::lu(&full(0), stop)?;
            Value::Parts(vec![lu.l.into(), lu.u.into(), lu.p.into()])
        }
        Op::Qr => {
            let qr = decompose::qr(&full(0), stop)?;
            Value::Parts(vec![qr.q.into(), qr.r.into()])
        }
        Op::Svd { rank } => {
            let few = match rank {
                Some(count) => decompose::leading(&input(0), *count, stop)?,
                None => None,
            };
            let svd = few.map_or_else(|| decompose::svd(&full(0), *rank, stop), Ok)?;
            Value::Parts(vec![svd.u.into(), svd.s.into(), svd.vt.into()])
        }
        Op::Eigen { rank } => {
            square("eigh", shape(0))?;
            let eigen = decompose::eigh(&full(0), *rank, stop)?;
            Value::Parts(vec![eigen.values.into(), eigen.vectors.into()])
        }
        Op::ComplexEigen => {
            square("eig", shape(0))?;
            let eig = decompose::eig(&full(0), stop)?;
            let values = [eig.values_re, eig.values_im];
            let vectors = [eig.vectors_re, eig.vectors_im];
            Value::Parts(values.into_iter().chain(vectors).map(Into::into).collect())
        }
        Op::Relation(_)
        | Op::Variable(_)
        | Op::Prior(_)
        | Op::Align(_)
        | Op::Part(_)
        | Op::Iterate(_)
        | Op::Cast(_) => {
            return Err(ErrorKind::Internal(format!("{operation} is a step of its own")).into());
        }
    })
}

fn matrix(cells: impl Into<Cells>) -> Value {
    Value::Matrix(cells.into())
}

/// A sparse result, dense where it has filled up.
pub(super) fn settled<T: Scalar>(csr: Csr<T>) -> Value {
    let full = csr.shape().cells();
    if csr.stored() as f64 > DENSE_FROM * full as f64 {
        matrix(sparse::to_dense(&csr))
    } else {
        matrix(csr)
    }
}

/// What the planner could not check: a query's number of rows.
fn square(function: &str, shape: Shape) -> Result<()> {
    if shape.rows == shape.columns {
        return Ok(());
    }
    let needs = "a square matrix";
    Err(ErrorKind::ShapeOf { function: function.to_owned(), needs, shape }.into())
}

fn equally_tall(operation: &str, left: Shape, right: Shape) -> Result<()> {
    if left.rows == right.rows {
        return Ok(());
    }
    let needs = "equally many rows";
    Err(ErrorKind::Shapes { operation: operation.to_owned(), needs, left, right }.into())
}

fn check_product(left: Shape, right: Shape) -> Result<()> {
    if left.columns == right.rows { Ok(()) } else { Err(ErrorKind::Product { left, right }.into()) }
}

fn sum_of<T: Real>(x: &Dense<T>) -> Value {
    matrix(reduce::reduce(&Storage::Dense(x.clone()), Reduction::Sum, reduce::Axis::All))
}

fn diagonal<T: Real>(x: &Storage<T>) -> Value {
    let shape = x.shape();
    if shape.rows == 1 || shape.columns == 1 {
        return matrix(sparse::diagonal_matrix(densified(x.clone()).cells()));
    }
    match x {
        Storage::Dense(x) => matrix(dense::diagonal(x)),
        Storage::Csr(x) => matrix(sparse::diagonal(x)),
    }
}

/// A function of two operands where at least one may be sparse.
fn binary<T: Real>(
    function: BinaryFunction,
    x: Storage<T>,
    y: Storage<T>,
    stop: Stop<'_>,
) -> Result<Value> {
    let apply = |x: T, y: T| T::from_f64(function.apply(x.to_f64(), y.to_f64()));
    let keeps_zero = apply(T::ZERO, T::ZERO) == T::ZERO;
    let stretches = |of: Shape, over: Shape| {
        (of.rows == over.rows || of.rows == 1) && (of.columns == over.columns || of.columns == 1)
    };
    Ok(match (x, y) {
        (Storage::Csr(x), Storage::Csr(y)) if x.shape() == y.shape() && keeps_zero => {
            settled(sparse::zip(&x, &y, apply, stop))
        }
        (Storage::Csr(x), Storage::Dense(y)) if stretches(y.shape(), x.shape()) => {
            settled(sparse::zip_dense(&x, &y, apply, stop))
        }
        (Storage::Dense(x), Storage::Csr(y)) if stretches(x.shape(), y.shape()) => {
            settled(sparse::zip_dense(&y, &x, |y, x| apply(x, y), stop))
        }
        (x, y) => elementwise(CellFunction::Binary(function), &[densified(x), densified(y)])?,
    })
}

/// A single elementwise operation over dense operands, with broadcasting.
fn elementwise<T: Real>(function: CellFunction, inputs: &[Dense<T>]) -> Result<Value> {
    let program = one_loop(function, inputs.iter().map(|_| None));
    let mut shape = Shape::new(1, 1);
    for input in inputs {
        let of = input.shape();
        let fits = |a: usize, b: usize| a == b || a == 1 || b == 1;
        if !fits(shape.rows, of.rows) || !fits(shape.columns, of.columns) {
            return Err(stretched_error(shape, of));
        }
        let wider = |a: usize, b: usize| if a == 1 { b } else { a };
        shape = Shape::new(wider(shape.rows, of.rows), wider(shape.columns, of.columns));
    }
    let mut cells = CellBuffer::arbitrary(shape.cells());
    let views = super::block::views(inputs, shape.rows, shape.columns);
    program.run(&views, shape.rows, shape.columns, &mut fused::Scratch::new(), &mut cells);
    Ok(matrix(Dense::new(shape, cells.into())))
}

/// The loop of a function of cells by itself; operands that are numbers are given.
pub(crate) fn one_loop(
    function: CellFunction,
    numbers: impl Iterator<Item = Option<f64>>,
) -> fused::Program {
    let mut builder = fused::Builder::new();
    let operand = |(at, number)| match number {
        Some(number) => builder.constant(number),
        None => builder.input(at),
    };
    let of: Vec<fused::Value> = numbers.enumerate().map(operand).collect();
    let result = match function {
        CellFunction::Unary(function) => builder.unary(function, of[0]),
        CellFunction::Binary(function) => builder.binary(function, of[0], of[1]),
        CellFunction::Select => builder.select(of[0], of[1], of[2]),
    };
    builder.finish(result)
}

/// Operands of a matrix of this shape are as large, or stretched to it.
fn check_stretches<T: Scalar>(operands: &[Storage<T>], shape: Shape) -> Result<()> {
    let fits = |side: usize, of: usize| side == of || side == 1;
    for of in operands.iter().map(Storage::shape) {
        if !fits(of.rows, shape.rows) || !fits(of.columns, shape.columns) {
            return Err(stretched_error(shape, of));
        }
    }
    Ok(())
}

fn stretched_error(left: Shape, right: Shape) -> Error {
    let needs = "equal shapes, or a scalar, a row or a column on one side";
    let operation = "an elementwise operation".to_owned();
    ErrorKind::Shapes { operation, needs, left, right }.into()
}

fn stack<T: Real>(axis: Axis, parts: Vec<Storage<T>>) -> Result<Value> {
    let first = parts[0].shape();
    for part in &parts {
        let of = part.shape();
        let (operation, needs, fits) = match axis {
            Axis::Columns => ("hstack", "equally many rows", of.rows == first.rows),
            Axis::Rows => ("vstack", "equally many columns", of.columns == first.columns),
        };
        if !fits {
            let operation = operation.to_owned();
            return Err(ErrorKind::Shapes { operation, needs, left: first, right: of }.into());
        }
    }
    let sparse_parts: Option<Vec<Csr<T>>> = parts
        .iter()
        .map(|part| match part {
            Storage::Csr(csr) => Some(csr.clone()),
            Storage::Dense(_) => None,
        })
        .collect();
    Ok(match (axis, sparse_parts) {
        (Axis::Columns, Some(parts)) => matrix(sparse::hstack(&parts)),
        (Axis::Rows, Some(parts)) => matrix(sparse::vstack(&parts)),
        (Axis::Columns, None) => {
            matrix(dense::hstack(&parts.into_iter().map(densified).collect::<Vec<_>>()))
        }
        (Axis::Rows, None) => matrix(dense::vstack(parts.into_iter().map(densified).collect())),
    })
}

/// Blocks of rows below one another.
pub(super) fn stack_rows(mut parts: Vec<Cells>) -> Result<Cells> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    // By value, so that a block goes as soon as it is copied.
    fn stacked<T: Real>(parts: Vec<Cells>) -> Result<Value> {
        stack(Axis::Rows, parts.into_iter().map(|part| storage::<T>(&part)).collect())
    }
    let is_single = parts.iter().all(|part| part.element() == Element::Float32);
    if is_single { stacked::<f32>(parts)?.cells() } else { stacked::<f64>(parts)?.cells() }
}

/// Rows at these places; `None` is a row of zeros.
pub(super) fn gather_rows(cells: &Cells, places: &[Option<usize>]) -> Result<Cells> {
    fn gather<T: Real>(storage: &Storage<T>, places: &[Option<usize>]) -> Cells {
        let shape = storage.shape();
        let absent = places.contains(&None).then_some(shape.rows);
        let places: Vec<usize> = places
            .iter()
            .map(|place| place.or(absent).expect("absent rows have a place"))
            .collect();
        match (storage, absent) {
            (Storage::Dense(x), None) => dense::gather_rows(x, &places).into(),
            (Storage::Csr(x), None) => sparse::gather_rows(x, &places).into(),
            (Storage::Dense(x), Some(_)) => {
                let zeros = Shape::new(1, shape.columns);
                let zeros = Dense::new(zeros, vec![T::ZERO; shape.columns].into());
                dense::gather_rows(&dense::vstack(vec![x.clone(), zeros]), &places).into()
            }
            (Storage::Csr(x), Some(_)) => {
                let none = Csr::new(
                    Shape::new(1, shape.columns),
                    vec![0i64, 0].into(),
                    Vec::<u32>::new().into(),
                    Vec::<T>::new().into(),
                );
                sparse::gather_rows(&sparse::vstack(&[x.clone(), none]), &places).into()
            }
        }
    }
    Ok(crate::with_storage!(cells, storage => gather(storage, places)))
}

/// Cells of this type, converted where they are of the other.
pub(super) fn storage<T: Scalar>(cells: &Cells) -> Storage<T> {
    fn converted<S: Scalar, T: Scalar>(storage: &Storage<S>) -> Storage<T> {
        let convert = |values: &[S]| {
            values.iter().map(|value| T::from_f64(value.to_f64())).collect::<Vec<_>>().into()
        };
        match storage {
            Storage::Dense(x) => Storage::Dense(Dense::new(x.shape(), convert(x.cells()))),
            Storage::Csr(x) => Storage::Csr(Csr::new(
                x.shape(),
                x.offsets().clone(),
                x.columns().clone(),
                convert(x.values()),
            )),
        }
    }
    match T::unwrap(cells) {
        Some(storage) => storage.clone(),
        None => crate::with_storage!(cells, storage => converted(storage)),
    }
}

pub(super) fn dense_of<T: Scalar>(cells: &Cells) -> Dense<T> {
    densified(storage::<T>(cells))
}

fn densified<T: Scalar>(storage: Storage<T>) -> Dense<T> {
    match storage {
        Storage::Dense(x) => x,
        Storage::Csr(x) => sparse::to_dense(&x),
    }
}

/// Pseudo-random cells: each run of cells has a generator of its own, seeded by the seed and its place,
/// so that a cell depends on nothing else.
fn random<T: Scalar>(distribution: Distribution, seed: u64, shape: Shape) -> Dense<T> {
    // Rows are few and long or many and short; a run of cells of fixed length serves both.
    const RUN: usize = 1 << 12;
    let mut cells = CellBuffer::arbitrary(shape.cells());
    cells.par_chunks_mut(RUN).enumerate().for_each(|(run, cells)| {
        let mut rng =
            SmallRng::seed_from_u64(seed ^ (run as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for cell in &mut *cells {
            *cell = T::from_f64(match distribution {
                Distribution::Uniform => rng.random::<f64>(),
                Distribution::Normal => rng.sample(StandardNormal),
            });
        }
        memory::done_with(bytemuck::cast_slice(cells));
    });
    Dense::new(shape, cells.into())
}
