//! Fused programs on a device: which kernel, over which cells, in how many blocks.

use std::borrow::Cow;

use super::matrix::Matrix;
use super::{Failed, Queue};
use crate::exec::kernels::fused::{Builder, ENTRY, FINISH, Goal, Program, Stretch};
use crate::exec::kernels::reduce::Reduction;
use crate::gpu::{Argument, Buffer, Headers, Launch, Source, Work};
use crate::matrix::{Element, Shape};

/// What the texts of programs include.
pub(super) static HEADERS: Headers = Headers(&[
    ("common.cuh", include_str!("../../../kernels/common.cuh")),
    ("math.cuh", include_str!("../../../kernels/math.cuh")),
    ("cells.cuh", include_str!("../../../kernels/cells.cuh")),
    ("fused.cuh", include_str!("../../../kernels/fused.cuh")),
]);

/// Threads of a block: what `common.cuh` says.
pub(super) const THREADS: usize = 256;

/// Cells of a part of a reduction at least, and parts at most: by the shape alone, for they decide the order of additions.
const PART_CELLS: usize = 16 * THREADS;
const PARTS_MAX: usize = 1024;

/// Rows of a part of a reduction of columns at least: a thread goes through them one after the other, and only many threads keep
/// a device's memory at work.
const PART_ROWS: usize = 64;

/// Bytes of an accumulator of `fused.cuh`.
const ACCUMULATOR_BYTES: usize = 24;

impl Queue<'_> {
    /// The cells that a program computes.
    pub(super) fn map(
        &self,
        program: &Program,
        inputs: &[&Matrix],
        element: Element,
    ) -> Result<Matrix, Failed> {
        let over = Over::of(inputs)?;
        let out = self.empty(over.shape, element)?;
        if !out.is_empty() {
            let text = program.cuda(element, &over.inputs, Goal::Map);
            let arguments = over.arguments(&out.buffer, program, inputs, &[]);
            self.launch(text, ENTRY, Work::Threads(over.shape.cells() as u64), &arguments)?;
        }
        Ok(out)
    }

    /// A reduction of them.
    pub(super) fn reduce(
        &self,
        program: &Program,
        inputs: &[&Matrix],
        element: Element,
        goal: Goal,
        reduction: Reduction,
    ) -> Result<Matrix, Failed> {
        // A row's numbers come before its cells, and those before what is reduced of them.
        if program.reduces_rows() && goal != Goal::Map {
            let cells = self.map(program, inputs, element)?;
            return self.reduce(&same(), &[&cells], element, goal, reduction);
        }
        let over = Over::of(inputs)?;
        let Shape { rows, columns } = over.shape;
        let root = Argument::F64(root(reduction));
        let text = program.cuda(element, &over.inputs, goal);
        match goal {
            Goal::Map => self.map(program, inputs, element),
            Goal::Rows(_) => {
                let out = self.empty(Shape::new(rows, 1), element)?;
                if rows > 0 {
                    let lanes = rows * columns.next_power_of_two().clamp(1, THREADS);
                    let arguments = over.arguments(&out.buffer, program, inputs, &[root]);
                    self.launch(text, ENTRY, Work::Threads(lanes as u64), &arguments)?;
                }
                Ok(out)
            }
            Goal::Cells(_) => {
                let blocks = over.shape.cells().div_ceil(PART_CELLS).clamp(1, PARTS_MAX);
                let bytes = blocks * ACCUMULATOR_BYTES;
                let parts = self.with_room(bytes, || self.stream.alloc(bytes, "parts of a sum"))?;
                let arguments = over.arguments(&parts, program, inputs, &[]);
                self.launch(text.clone(), ENTRY, Work::Blocks(blocks as u32), &arguments)?;
                let out = self.empty(Shape::new(1, 1), element)?;
                let (out_at, parts) = (Argument::Buffer(&out.buffer), Argument::Buffer(&parts));
                let given = [out_at, parts, Argument::U64(blocks as u64), root];
                self.launch(text, FINISH, Work::Blocks(1), &given)?;
                Ok(out)
            }
            Goal::Columns(_) => {
                let out = self.empty(Shape::new(1, columns), element)?;
                if columns == 0 {
                    return Ok(out);
                }
                let panels = columns.div_ceil(columns.next_power_of_two().min(THREADS));
                let runs = rows.div_ceil(PART_ROWS).clamp(1, (PARTS_MAX / panels).max(1));
                let height = rows.div_ceil(runs).max(1);
                let runs = rows.div_ceil(height);
                let bytes = runs * columns * ACCUMULATOR_BYTES;
                let parts = self.with_room(bytes, || self.stream.alloc(bytes, "parts of sums"))?;
                let tall = [Argument::U64(height as u64)];
                let arguments = over.arguments(&parts, program, inputs, &tall);
                let work = Work::Threads((runs * panels * THREADS) as u64);
                self.launch(text.clone(), ENTRY, work, &arguments)?;
                let [runs, width] = [runs, columns].map(|side| Argument::U64(side as u64));
                let (out_at, parts) = (Argument::Buffer(&out.buffer), Argument::Buffer(&parts));
                let work = Work::Threads(columns as u64);
                self.launch(text, FINISH, work, &[out_at, parts, runs, width, root])?;
                Ok(out)
            }
        }
    }

    pub(super) fn launch(
        &self,
        text: impl Into<Cow<'static, str>>,
        entry: &'static str,
        work: Work,
        arguments: &[Argument<'_>],
    ) -> Result<(), Failed> {
        // The bits of the host: nothing is contracted.
        let (text, entry) = (text.into(), entry.into());
        let source = Source { text, headers: HEADERS, entry, contracts: false };
        let kernel = self.device.kernel(&source)?;
        let launch = Launch { work, block: Some(THREADS as u32), shared_bytes: 0 };
        self.stream.launch(&kernel, launch, arguments)?;
        Ok(())
    }
}

/// The matrices that a program runs over: how each is stretched, and the shape that they have together.
struct Over {
    shape: Shape,
    inputs: Vec<(Stretch, Element)>,
}

impl Over {
    fn of(inputs: &[&Matrix]) -> Result<Self, Failed> {
        let side = |of: fn(&Shape) -> usize| {
            inputs.iter().map(|input| of(&input.shape)).find(|&side| side != 1).unwrap_or(1)
        };
        let shape = Shape::new(side(|shape| shape.rows), side(|shape| shape.columns));
        let stretched = |input: &&Matrix| {
            let (own, unfit) = (input.shape, || Failed::Unfit("sizes that do not fit".into()));
            let stretch = match own {
                own if own == shape => Stretch::Cells,
                Shape { rows: 1, columns: 1 } => Stretch::Scalar,
                Shape { rows: 1, columns } if columns == shape.columns => Stretch::Row,
                Shape { rows, columns: 1 } if rows == shape.rows => Stretch::Column,
                _ => return Err(unfit()),
            };
            Ok((stretch, input.element))
        };
        Ok(Self { shape, inputs: inputs.iter().map(stretched).collect::<Result<_, _>>()? })
    }

    /// What a kernel of `Program::cuda` is given.
    fn arguments<'a>(
        &self,
        out: &'a Buffer,
        program: &Program,
        inputs: &[&'a Matrix],
        more: &[Argument<'a>],
    ) -> Vec<Argument<'a>> {
        let Shape { rows, columns } = self.shape;
        let mut arguments = vec![Argument::Buffer(out)];
        arguments.extend([rows, columns].map(|side| Argument::U64(side as u64)));
        arguments.extend(inputs.iter().map(|input| Argument::Buffer(&input.buffer)));
        arguments.extend(program.constants().iter().map(|&value| Argument::F64(value)));
        arguments.extend_from_slice(more);
        arguments
    }
}

/// The program of what is read.
pub(super) fn same() -> Program {
    let mut builder = Builder::new();
    let cell = builder.input(0);
    builder.finish(cell)
}

/// The power whose root a norm is of its sum, 0 for what is none.
fn root(reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Norm(p) if p.is_infinite() => 1.0,
        Reduction::Norm(p) => p,
        _ => 0.0,
    }
}
