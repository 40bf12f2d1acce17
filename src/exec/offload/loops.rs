//! Fused programs on a device: which kernel, over which cells, in how many blocks.

use std::borrow::Cow;

use super::matrix::Matrix;
use super::{Failed, Queue};
pub(super) use crate::exec::kernels::fused::THREADS;
use crate::exec::kernels::fused::{
    Builder, ENTRY, FINISH, Goal, LOOP, Lanes, Program, Stretch, WARP, pack,
};
use crate::exec::kernels::reduce::Reduction;
use crate::gpu::{Argument, Buffer, Headers, Launch, Source, Work};
use crate::matrix::{Element, Shape};

/// What the texts of programs include.
pub(super) static HEADERS: Headers = Headers(&[
    ("common.cuh", include_str!("../../../kernels/common.cuh")),
    ("math.cuh", include_str!("../../../kernels/math.cuh")),
    ("cells.cuh", include_str!("../../../kernels/cells.cuh")),
    ("fused.cuh", include_str!("../../../kernels/fused.cuh")),
    ("groups.cuh", include_str!("../../../kernels/groups.cuh")),
    ("there.cuh", include_str!("../../../kernels/there.cuh")),
    ("slots.cuh", include_str!("../../../kernels/slots.cuh")),
    ("sort.cuh", include_str!("../../../kernels/sort.cuh")),
]);

/// Cells of a part of a reduction at least, and blocks that make parts at most: by the shape alone, for they decide the order of additions.
const PART_CELLS: usize = 16 * THREADS;
const PARTS_MAX: usize = 1024;

/// Columns that the lanes of a row count.
const COLUMNS_MAX: usize = 1 << 31;

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
        self.compute(program, inputs, element, Goal::Map, 0.0)
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
        self.compute(program, inputs, element, goal, root(reduction))
    }

    /// What becomes of them; of a reduction that is a norm, the root of this power.
    pub(super) fn compute(
        &self,
        program: &Program,
        inputs: &[&Matrix],
        element: Element,
        goal: Goal,
        root: f64,
    ) -> Result<Matrix, Failed> {
        // A row's numbers come before its cells, and those before what all rows are reduced to.
        if program.reduces_rows() && matches!(goal, Goal::Cells(_) | Goal::Columns(_)) {
            let cells = self.map(program, inputs, element)?;
            return self.compute(&same(), &[&cells], element, goal, root);
        }
        let over = Over::of(inputs)?;
        let Shape { rows, columns } = over.shape;
        let shape = match goal {
            Goal::Map => over.shape,
            Goal::Column | Goal::Rows(_) => Shape::new(rows, 1),
            Goal::Cells(_) => Shape::new(1, 1),
            Goal::Columns(_) => Shape::new(1, columns),
        };
        let out = self.empty(shape, element)?;
        if out.is_empty() {
            return Ok(out);
        }
        let text = program.cuda(element, &over.inputs, goal, over.shape);
        let arguments = |out, more: &[_]| over.arguments(out, program, inputs, more);
        let (result, root) = (Argument::Buffer(&out.buffer), Argument::F64(root));
        match goal {
            Goal::Map if !program.reduces_rows() => {
                let work = Work::Threads(over.shape.cells() as u64);
                self.launch(text, LOOP, work, &arguments(&out.buffer, &[]))?;
            }
            Goal::Map | Goal::Column | Goal::Rows(_) => {
                if columns > COLUMNS_MAX {
                    return Err(Failed::Unfit("rows that are too long".into()));
                }
                let work = Work::Threads((rows * Lanes::of(columns).width) as u64);
                self.launch(text, ENTRY, work, &arguments(&out.buffer, &[root]))?;
            }
            Goal::Cells(_) => {
                let cells = over.shape.cells();
                let blocks = cells.div_ceil(PART_CELLS).clamp(1, PARTS_MAX);
                let parts = self.parts(blocks)?;
                let work = Work::Blocks(blocks as u32);
                self.launch(text.clone(), ENTRY, work, &arguments(&parts, &[]))?;
                let given = [result, Argument::Buffer(&parts), number(blocks), number(cells), root];
                self.launch(text, FINISH, Work::Blocks(1), &given)?;
            }
            Goal::Columns(_) => {
                let Runs { runs, height, threads } = Runs::of(over.shape, element);
                let parts = self.parts(runs * columns)?;
                let work = Work::Threads(threads as u64);
                self.launch(text.clone(), ENTRY, work, &arguments(&parts, &[number(height)]))?;
                let [runs, rows, width] = [runs, rows, columns].map(number);
                let given = [result, Argument::Buffer(&parts), runs, rows, width, root];
                let panels = columns.div_ceil(columns.next_power_of_two().min(WARP));
                let work = Work::Threads((panels * THREADS) as u64);
                self.launch(text, FINISH, work, &given)?;
            }
        }
        Ok(out)
    }

    /// Memory for so many accumulators.
    fn parts(&self, count: usize) -> Result<Buffer, Failed> {
        let bytes = count * ACCUMULATOR_BYTES;
        self.with_room(bytes, || self.stream.alloc(bytes, "parts of sums"))
    }

    pub(super) fn launch(
        &self,
        text: impl Into<Cow<'static, str>>,
        entry: &'static str,
        work: Work,
        arguments: &[Argument<'_>],
    ) -> Result<(), Failed> {
        // The bits of the host: nothing is contracted.
        let (mut text, mut threads) = (text.into(), THREADS as u32);
        if let Some(chosen) = self.device.threads(entry) {
            text = format!("#define THREADS {chosen}\n{text}").into();
            threads = chosen;
        }
        let source = Source { text, headers: HEADERS, entry: entry.into(), contracts: false };
        let kernel = self.device.kernel(&source)?;
        let launch = Launch { work, block: Some(threads), shared_bytes: 0 };
        self.stream.launch(&kernel, launch, arguments)?;
        Ok(())
    }
}

/// How the rows of a reduction of columns are shared out: runs of rows of this height, each a part of every column, and the threads that
/// go through them.
struct Runs {
    runs: usize,
    height: usize,
    threads: usize,
}

impl Runs {
    fn of(Shape { rows, columns }: Shape, element: Element) -> Self {
        let packed = pack(element, columns);
        let packs = columns / packed;
        let width = packs.next_power_of_two().min(WARP);
        let panels = packs.div_ceil(width);
        let least = PART_CELLS / (width * packed);
        let runs = rows.div_ceil(least).clamp(1, (PARTS_MAX / panels).max(1));
        let height = rows.div_ceil(runs).max(1);
        let runs = rows.div_ceil(height);
        Self { runs, height, threads: runs * panels * THREADS }
    }
}

/// The matrices that a program runs over: how each is stretched, and the shape that they have together.
pub(super) struct Over {
    pub(super) shape: Shape,
    pub(super) inputs: Vec<(Stretch, Element)>,
}

impl Over {
    /// Arguments beside inputs and constants: the result, its sides, and what a goal has more.
    pub(super) const ARGUMENTS: usize = 4;

    pub(super) fn of(inputs: &[&Matrix]) -> Result<Self, Failed> {
        let shape = together(inputs.iter().map(|input| input.shape));
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
        arguments.extend([rows, columns].map(number));
        arguments.extend(inputs.iter().map(|input| Argument::Buffer(&input.buffer)));
        arguments.extend(program.constants().iter().map(|&value| Argument::F64(value)));
        arguments.extend_from_slice(more);
        arguments
    }
}

/// The shape of matrices of which those with a single row or column are stretched.
pub(super) fn together(shapes: impl Iterator<Item = Shape> + Clone) -> Shape {
    let side = |of: fn(Shape) -> usize| shapes.clone().map(of).find(|&side| side != 1).unwrap_or(1);
    Shape::new(side(|shape| shape.rows), side(|shape| shape.columns))
}

fn number(count: usize) -> Argument<'static> {
    Argument::U64(count as u64)
}

/// The program of what is read.
pub(super) fn same() -> Program {
    let mut builder = Builder::new();
    let cell = builder.input(0);
    builder.finish(cell)
}

/// The power whose root a norm is of its sum, 0 for what is none.
pub(super) fn root(reduction: Reduction) -> f64 {
    match reduction {
        Reduction::Norm(p) if p.is_infinite() => 1.0,
        Reduction::Norm(p) => p,
        _ => 0.0,
    }
}
