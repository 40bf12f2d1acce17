//! A device must compute what the host computes before anything is left to it.
//!
//! Once for each device some small matrices go through every kind of kernel that there is, on both: a driver, a compiler or a device that
//! is not what it should be shows here, and not in a user's answer. Products in less than the type of their cells are tried when somebody
//! wants them; a device that does not have them computes all in full.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::sparse::Sparse;
use super::{Failed, Queue};
use crate::config::GpuDevices;
use crate::exec::evaluate::evaluate;
use crate::exec::kernels::Stop;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::images::{Pooling, Sides, Window};
use crate::exec::operation::{Aggregate, Axis, Operation as Op, Span};
use crate::exec::run::Cancel;
use crate::gpu::{self, Arithmetic, Device, Seen};
use crate::matrix::{Cells, Dense, Element, Layout, Shape};

/// Rows and columns of the trial: beyond a block of threads, a tile and a part of a sum, and no multiple of any.
const SHAPE: Shape = Shape { rows: 77, columns: 67 };

/// How far sums may be apart, in units of rounding of their terms.
const UNITS: f64 = 1000.0;

/// How far parts of decompositions may be apart, as a share of their largest cell: what is wrong is wrong by more.
const DECOMPOSED: f64 = 1e-6;

/// Those of the devices that may be used that are to be trusted. To find it out may take seconds: drivers start, kernels are compiled,
/// rates measured. Who does not wait has none until somebody has, and then one after the other.
pub(crate) fn trusted(
    libraries: Option<&Path>,
    among: &Arc<GpuDevices>,
    waits: bool,
) -> Vec<Arc<Device>> {
    /// Of which somebody has looked for all, or is at it.
    static LOOKED_FOR: Mutex<Vec<Arc<GpuDevices>>> = Mutex::new(Vec::new());
    let libraries = libraries.map(Path::to_path_buf);
    let wanted = Arc::clone(among);
    let look = move || {
        let all = gpu::devices(libraries.as_deref()).unwrap_or_default();
        let used = all.iter().filter(|seen| is_used(seen, &wanted));
        used.filter_map(|seen| seen.device().ok()).for_each(|device| {
            device.rates();
            distrust(&device);
        });
    };
    if waits {
        look();
    } else {
        let mut looked_for = LOOKED_FOR.lock().unwrap_or_else(PoisonError::into_inner);
        if !looked_for.contains(among) {
            looked_for.push(Arc::clone(among));
            // Without a thread for it, the next who waits looks.
            let _ = thread::Builder::new().name("relatrix-gpu".into()).spawn(look);
        }
    }
    known(among)
}

/// Whether a device of this machine may be used.
pub(crate) fn is_used(seen: &Seen, among: &GpuDevices) -> bool {
    seen.facts().is_ok_and(|facts| among.has(seen.ordinal(), &facts.uuid))
}

/// Those of them of which this is known already; nobody waits.
pub(crate) fn known(among: &GpuDevices) -> Vec<Arc<Device>> {
    let mut found = gpu::found();
    found.retain(|device| {
        among.has(device.ordinal(), &device.facts().uuid)
            && matches!(device.trials().distrust.get(), Some(None))
    });
    found
}

/// Why a device is not to be trusted, if it is not.
pub(crate) fn distrust(device: &Arc<Device>) -> Option<&str> {
    device.trials().distrust.get_or_init(|| Trial::new().run(device).err()).as_deref()
}

/// Whether a device multiplies in this arithmetic, in which it is less precise than the type of the cells.
pub(crate) fn multiplies(device: &Arc<Device>, arithmetic: Arithmetic) -> bool {
    let found = &device.trials().multiplies[arithmetic as usize];
    *found.get_or_init(|| Trial::new().multiply(device, arithmetic).unwrap_or(false))
}

/// Whether a device decomposes matrices as the host does.
pub(crate) fn decomposes(device: &Arc<Device>) -> bool {
    let found = &device.trials().decomposes;
    *found.get_or_init(|| Trial::new().decompose(device).unwrap_or(false))
}

/// Whether a device finds the eigenvalues of any matrix as the host does.
pub(crate) fn finds_eigenvalues(device: &Arc<Device>) -> bool {
    let found = &device.trials().finds_eigenvalues;
    device.facts().libraries.eigenvalues.is_ok()
        && *found.get_or_init(|| Trial::new().find_eigenvalues(device).unwrap_or(false))
}

struct Trial {
    x: Cells,
    y: Cells,
    /// Of full rank, where the others have the few of their formulas, and no two singular values near each other.
    regular: Cells,
}

impl Trial {
    /// Numbers of either sign and several magnitudes.
    fn new() -> Self {
        let matrix = |of: fn(f64) -> f64| {
            let cells: Vec<f64> = (0..SHAPE.cells()).map(|at| of(at as f64)).collect();
            Cells::from(Dense::new(SHAPE, cells.into()))
        };
        Self {
            x: matrix(|at| (at * 0.7).sin() * 3.0),
            y: matrix(|at| (at * 0.3).cos() + at / 5000.0),
            regular: matrix(|at| at.powf(1.5).sin()),
        }
    }

    fn run(&self, device: &Arc<Device>) -> Result<(), String> {
        let range = Span { start: 5, count: 40 };
        let reduce = |aggregate, axis| Op::Reduce { aggregate, axis };
        // With how far results may be apart: single cells and those that only move, not at all.
        let operations = [
            (Op::Unary(UnaryFunction::Exp), 0.0),
            (Op::Unary(UnaryFunction::Tanh), 0.0),
            (Op::Binary(BinaryFunction::Divide), 0.0),
            (Op::Transpose, 0.0),
            (Op::Slice { axis: Axis::Rows, range }, 0.0),
            (Op::Slice { axis: Axis::Columns, range }, 0.0),
            (Op::Cast(Element::Float32), 0.0),
            (reduce(Aggregate::Max, None), 0.0),
            (reduce(Aggregate::Sum, None), UNITS),
            (reduce(Aggregate::Variance, Some(Axis::Rows)), UNITS),
            (reduce(Aggregate::Sum, Some(Axis::Columns)), UNITS),
            (Op::Cross, UNITS),
            (Op::Outer, UNITS),
            (Op::Convolve(window([1, SHAPE.columns], 1)), UNITS),
            (Op::Pool(Pooling::Max, window([1, 7], 0)), 0.0),
            (Op::Pool(Pooling::Mean, window([1, 7], 0)), 0.0),
        ];
        for (operation, units) in operations {
            let is_of_two =
                matches!(operation, Op::Binary(_) | Op::Cross | Op::Outer | Op::Convolve(_));
            let inputs = if is_of_two { vec![&self.x, &self.y] } else { vec![&self.x] };
            let host = by_host(&operation, &inputs).map_err(|failed| failed.to_string())?;
            let found = by_device(device, &operation, &inputs, None);
            let found = found.map_err(|failed| format!("{operation}: {failed}"))?;
            if !is_close(&found, &host, units * f64::EPSILON * largest(&host)) {
                return Err(format!("{operation} has another result than on the host"));
            }
        }
        let is_same = self.multiply_sparse(device).map_err(|failed| failed.to_string())?;
        let why = "products with a sparse matrix have another result than on the host";
        is_same.then_some(()).ok_or_else(|| why.to_owned())
    }

    fn multiply_sparse(&self, device: &Arc<Device>) -> Result<bool, Failed> {
        let cancel = Cancel::default();
        let queue = Queue::new(device, &cancel)?;
        let positive = by_host(&Op::Unary(UnaryFunction::Relu), &[&self.x])?;
        let sparse = by_host(&Op::Store(Layout::Csr), &[&positive])?;
        let (kept, right) = (Sparse::default(), queue.upload(&self.y)?);
        let found = queue.download(&queue.sparse_product(&kept, &sparse, true, &right)?)?;
        let host = by_host(&Op::Cross, &[&positive, &self.y])?;
        let across = by_host(&Op::Transpose, &[&sparse])?;
        let both = [&sparse, &across];
        let square = queue.product_of_sparse([&kept, &Sparse::default()], both)?;
        let full = queue.download(&queue.expanded(&kept, &sparse)?)?;
        Ok(is_close(&found, &host, UNITS * f64::EPSILON * largest(&host))
            && is_close(&full, &positive, 0.0)
            && is_close(&square, &by_host(&Op::Product, &both)?, 0.0))
    }

    /// Whether decompositions are those of the host, up to rounding and the condition of the trial.
    fn decompose(&self, device: &Arc<Device>) -> Result<bool, Failed> {
        let x = &self.regular;
        let gram = by_host(&Op::Gram, &[x])?;
        let operations = [
            (Op::Cholesky, vec![&gram]),
            (Op::Solve(None), vec![&gram, &gram]),
            (Op::Determinant(None), vec![&gram]),
            (Op::Lu, vec![x]),
            (Op::Qr, vec![x]),
            (Op::Eigen { rank: None }, vec![&gram]),
            (Op::Svd { rank: None }, vec![x]),
        ];
        has_parts(device, &operations)
    }

    /// The same of the eigenvalues of a matrix that is not symmetric.
    fn find_eigenvalues(&self, device: &Arc<Device>) -> Result<bool, Failed> {
        let range = Span { start: 0, count: SHAPE.columns };
        let square = by_host(&Op::Slice { axis: Axis::Rows, range }, &[&self.regular])?;
        has_parts(device, &[(Op::ComplexEigen, vec![&square])])
    }

    /// Whether a product has an error that its arithmetic explains; that a device cuts digits off, rather than rounds, doubles it.
    fn multiply(&self, device: &Arc<Device>, arithmetic: Arithmetic) -> Result<bool, Failed> {
        let inputs = [&self.x, &self.y];
        let [x, y] = inputs.map(|cells| by_host(&Op::Unary(UnaryFunction::Abs), &[cells]));
        let terms = largest(&by_host(&Op::Cross, &[&x?, &y?])?);
        let sums = SHAPE.rows as f64 * 2.0 * Arithmetic::F32.roundoff();
        let bound = (4.0 * arithmetic.roundoff() + sums) * terms;
        let found = by_device(device, &Op::Cross, &inputs, Some(arithmetic))?;
        Ok(is_close(&found, &by_host(&Op::Cross, &inputs)?, bound))
    }
}

/// A window of this height and width over images of one row.
fn window([height, width]: [usize; 2], padding: usize) -> Window {
    let image = Sides { height: 1, width: SHAPE.columns };
    let (kernel, stride) = (Sides { height, width }, Sides { height: 1, width: 1 + width / 3 });
    Window { channels: 1, image, kernel, stride, padding }
}

/// Whether the parts of decompositions are those of the host.
fn has_parts(device: &Arc<Device>, operations: &[(Op, Vec<&Cells>)]) -> Result<bool, Failed> {
    let cancel = Cancel::default();
    let queue = Queue::new(device, &cancel)?;
    for (operation, inputs) in operations {
        let host = evaluate(operation, inputs, Stop::NEVER);
        let host = host.map_err(|error| Failed::Unfit(error.to_string()))?;
        let inputs = inputs.iter().map(|cells| queue.upload(cells));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        for (at, part) in queue.decompose(operation, &inputs)?.into_iter().enumerate() {
            let host = host.part(at);
            if !is_close(&queue.fetch(part)?, host, DECOMPOSED * largest(host)) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn by_host(operation: &Op, inputs: &[&Cells]) -> Result<Cells, Failed> {
    let value = evaluate(operation, inputs, Stop::NEVER).and_then(|value| value.cells());
    value.map_err(|error| Failed::Unfit(error.to_string()))
}

fn by_device(
    device: &Arc<Device>,
    operation: &Op,
    inputs: &[&Cells],
    arithmetic: Option<Arithmetic>,
) -> Result<Cells, Failed> {
    let cancel = Cancel::default();
    let queue = Queue::new(device, &cancel)?;
    let inputs = inputs.iter().map(|cells| queue.upload(cells)).collect::<Result<Vec<_>, _>>()?;
    queue.download(&queue.evaluate(operation, &inputs, arithmetic)?)
}

/// The largest cell, without its sign.
fn largest(cells: &Cells) -> f64 {
    places(cells).map(|(row, column)| cells.cell(row, column).abs()).fold(0.0, f64::max)
}

fn places(cells: &Cells) -> impl Iterator<Item = (usize, usize)> {
    let Shape { rows, columns } = cells.shape();
    (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
}

/// Whether two results are of one kind, and no cells further apart than that.
fn is_close(found: &Cells, expected: &Cells, bound: f64) -> bool {
    (found.shape(), found.element()) == (expected.shape(), expected.element())
        && places(expected).all(|(row, column)| {
            (found.cell(row, column) - expected.cell(row, column)).abs() <= bound
        })
}
