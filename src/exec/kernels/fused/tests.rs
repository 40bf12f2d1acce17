//! Random programs against the scalar definitions, on shapes that touch every way of cutting a block.

use crate::exec::kernels::arch::Arch;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::strips::{ROW_MAX, STRIP};
use super::{
    Accumulator, Builder, Chain, First, Input, Program, Reduction, Scratch, Second, Value, vector,
};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction, select};
use crate::exec::kernels::testing::{PLAIN, wider};
use crate::matrix::Scalar;

pub(in crate::exec) const UNARY: [UnaryFunction; 21] = {
    use UnaryFunction::*;
    [
        Negate, Abs, Sign, Sqrt, Exp, Log, Log1p, Expm1, Sin, Cos, Tan, Tanh, Floor, Ceil, Round,
        IsNan, Not, Relu, Sigmoid, Gelu, Softplus,
    ]
};

pub(in crate::exec) const BINARY: [BinaryFunction; 15] = {
    use BinaryFunction::*;
    [
        Add,
        Subtract,
        Multiply,
        Divide,
        Power,
        Less,
        LessEqual,
        Greater,
        GreaterEqual,
        Equal,
        NotEqual,
        And,
        Or,
        Least,
        Greatest,
    ]
};

const FIRST: [First; 3] = [First::Add, First::Subtract, First::Multiply];

const SECOND: [Second; 7] = {
    use Second::*;
    [Add, Subtract, SubtractFrom, Multiply, Divide, Square, Keep]
};

pub(in crate::exec) const REDUCTIONS: [Reduction; 8] = {
    use Reduction::*;
    [Sum, SumOfSquares, Mean, Min, Max, Variance, PopulationVariance, Deviation]
};

/// Empty, small, narrow, and around the length of a strip and its multiples.
const SHAPES: [(usize, usize); 24] = [
    (3, 17 * STRIP),
    (0, 0),
    (0, 5),
    (5, 0),
    (1, 1),
    (3, 7),
    (1, STRIP - 1),
    (1, STRIP),
    (1, STRIP + 1),
    (3, ROW_MAX - 1),
    (2, ROW_MAX),
    (2, ROW_MAX + 1),
    (2, 2 * STRIP + 3),
    (3, 5000),
    (STRIP, 1),
    (STRIP + 1, 1),
    (5000, 1),
    (5000, 3),
    (700, 10),
    (131, 64),
    (77, 65),
    (5, STRIP / 2),
    (5, STRIP / 2 + 1),
    (300, 100),
];

/// An expression as a tree: what a program is the compiled form of.
enum Tree {
    Input(usize),
    Constant(f64),
    Unary(UnaryFunction, Box<Tree>),
    Binary(BinaryFunction, Box<Tree>, Box<Tree>),
    Select(Box<Tree>, Box<Tree>, Box<Tree>),
}

impl Tree {
    fn random(rng: &mut SmallRng, depth: usize, inputs: usize) -> Self {
        let leaf = depth == 0 || rng.random_bool(0.15);
        let below = |rng: &mut SmallRng| Box::new(Self::random(rng, depth - 1, inputs));
        match rng.random_range(0..10) {
            0..8 if leaf => Tree::Input(rng.random_range(0..inputs)),
            _ if leaf => Tree::Constant([0.5, 2.0, 3.0, -1.0, 0.0, 1.5][rng.random_range(0..6)]),
            0..3 => Tree::Unary(UNARY[rng.random_range(0..UNARY.len())], below(rng)),
            // Half of them arithmetic, which chains.
            3..6 => Tree::Binary(BINARY[rng.random_range(0..3)], below(rng), below(rng)),
            6..9 => Tree::Binary(BINARY[rng.random_range(0..BINARY.len())], below(rng), below(rng)),
            _ => Tree::Select(below(rng), below(rng), below(rng)),
        }
    }

    fn build(&self, builder: &mut Builder) -> Value {
        match self {
            Tree::Input(number) => builder.input(*number),
            Tree::Constant(value) => builder.constant(*value),
            Tree::Unary(function, x) => {
                let x = x.build(builder);
                builder.unary(*function, x)
            }
            Tree::Binary(function, a, b) => {
                let (a, b) = (a.build(builder), b.build(builder));
                builder.binary(*function, a, b)
            }
            Tree::Select(condition, a, b) => {
                let condition = condition.build(builder);
                let (a, b) = (a.build(builder), b.build(builder));
                builder.select(condition, a, b)
            }
        }
    }

    fn program(&self) -> Program {
        let mut builder = Builder::new();
        let result = self.build(&mut builder);
        builder.finish(result)
    }

    /// The definition: each step in `f64`, rounded to the element.
    fn apply<T: Scalar>(&self, inputs: &[T]) -> T {
        let value = |tree: &Tree| tree.apply(inputs).to_f64();
        match self {
            Tree::Input(number) => inputs[*number],
            Tree::Constant(value) => T::from_f64(*value),
            Tree::Unary(function, x) => T::from_f64(function.apply(value(x))),
            // A cube is rounded after each of its products.
            Tree::Binary(BinaryFunction::Power, a, b) if matches!(**b, Tree::Constant(3.0)) => {
                let a = a.apply(inputs);
                a * (a * a)
            }
            Tree::Binary(function, a, b) => T::from_f64(function.apply(value(a), value(b))),
            Tree::Select(condition, a, b) => {
                T::from_f64(select(value(condition), value(a), value(b)))
            }
        }
    }
}

fn random_cells<T: Scalar>(rng: &mut SmallRng, count: usize) -> Vec<T> {
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0, 1e30, 1e-40];
    let mut cell = || match rng.random_range(0..20) {
        0 => special[rng.random_range(0..special.len())],
        1 => f64::from(rng.random_range(-3..4)),
        _ => rng.random_range(-4.0..4.0),
    };
    (0..count).map(|_| T::from_f64(cell())).collect()
}

fn same<T: Scalar>(a: T, b: T) -> bool {
    let (a, b) = (a.to_f64(), b.to_f64());
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn random_programs_match<T: Scalar>(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut scratch = Scratch::new();
    for (rows, columns) in SHAPES {
        for round in 0..40 {
            let tree = Tree::random(&mut rng, 1 + round % 6, 4);
            let cells: Vec<T> = random_cells(&mut rng, rows * columns);
            let column: Vec<T> = random_cells(&mut rng, rows);
            let row: Vec<T> = random_cells(&mut rng, columns);
            let scalar: T = random_cells(&mut rng, 1)[0];
            let second = if round % 2 == 0 { Input::Column(&column) } else { Input::Cells(&cells) };
            let inputs = [Input::Cells(&cells), second, Input::Row(&row), Input::Scalar(scalar)];
            // Every third program over cells alone, which runs flat.
            let inputs =
                if round % 3 == 0 { [inputs[0], inputs[0], inputs[0], inputs[3]] } else { inputs };
            let mut out = vec![T::ZERO; rows * columns];
            tree.program().run(&inputs, rows, columns, &mut scratch, &mut out);
            for (at, &found) in out.iter().enumerate() {
                let value = |input: &Input<'_, T>| match input {
                    Input::Cells(cells) => cells[at],
                    Input::Column(cells) => cells[at / columns],
                    Input::Row(cells) => cells[at % columns],
                    Input::Scalar(value) => *value,
                    Input::Place => unreachable!("these are beside the result"),
                };
                let expected = tree.apply(&inputs.each_ref().map(value));
                assert!(
                    same(found, expected),
                    "seed {seed}, {rows}x{columns}, round {round}: {found:?} is not {expected:?} at {at}"
                );
            }
            // The same where the cells are those of the result.
            let over = inputs.map(|input| match input {
                Input::Cells(_) => Input::Place,
                beside => beside,
            });
            let mut place = cells.clone();
            tree.program().run(&over, rows, columns, &mut scratch, &mut place);
            assert!(place.iter().zip(&out).all(|(&found, &expected)| same(found, expected)));
        }
    }
}

#[test]
fn random_programs_match_the_definitions() {
    random_programs_match::<f64>(1);
    random_programs_match::<f32>(2);
}

/// The same loops without vector instructions and with the widest there are.
fn every_instruction_set_agrees<T: Scalar>(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let count = 20_011;
    let [a, b, c] = [(); 3].map(|()| -> Vec<T> { random_cells(&mut rng, count) });
    let wide: Vec<T> = (0..count).map(|_| T::from_f64(f64::from_bits(rng.random()))).collect();
    let (mut plain, mut vectors) = (vec![T::ZERO; count], vec![T::ZERO; count]);
    let mut compare = |name: &str, run: &dyn Fn(Arch, &mut [T])| {
        run(PLAIN, &mut plain);
        for arch in wider() {
            run(arch, &mut vectors);
            let differs = plain.iter().zip(&vectors).position(|(&x, &y)| !same(x, y));
            assert_eq!(differs, None, "{name} differs between instruction sets");
        }
    };
    for function in UNARY {
        for cells in [&a, &wide] {
            compare(function.name(), &|arch, out| vector::unary(arch, function, cells, out));
        }
    }
    for function in BINARY {
        compare(function.name(), &|arch, out| vector::binary(arch, function, &a, &b, out));
    }
    compare("select", &|arch, out| vector::select(arch, [&a, &b, &c], out));
    for first in FIRST {
        for second in SECOND {
            for relu in [false, true] {
                let chain = Chain { first, second, relu };
                compare("chain", &|arch, out| vector::chain(arch, chain, [&a, &b, &c], out));
            }
            let sum = |arch| vector::sum_of_chain(arch, first, second, [&a, &b, &c]);
            assert!(wider().into_iter().all(|arch| same(sum(PLAIN), sum(arch))), "a sum differs");
        }
    }
    for (name, reduce) in [
        ("sum", vector::sum as fn(Arch, &[T]) -> f64),
        ("least", vector::least),
        ("greatest", vector::greatest),
        ("squares", |arch, cells| vector::sum_of_squares(arch, cells, 0.25)),
    ] {
        let finite: Vec<T> = a.iter().copied().filter(|x| x.to_f64().is_finite()).collect();
        for arch in wider() {
            let (plain, vectors) = (reduce(PLAIN, &finite), reduce(arch, &finite));
            assert_eq!(
                plain.to_bits(),
                vectors.to_bits(),
                "{name} differs between instruction sets"
            );
        }
    }
}

#[test]
fn vector_instructions_change_no_bit() {
    every_instruction_set_agrees::<f64>(3);
    every_instruction_set_agrees::<f32>(4);
}

/// The textbook, with a sum that loses next to nothing.
fn naive(cells: &[f64], reduction: Reduction) -> f64 {
    let total = |cells: &mut dyn Iterator<Item = f64>| {
        let (mut sum, mut lost) = (0.0, 0.0);
        for x in cells {
            let (next, error) = crate::exec::kernels::math::two_sum(sum, x);
            (sum, lost) = (next, lost + error);
        }
        sum + lost
    };
    let count = cells.len() as f64;
    let mean = total(&mut cells.iter().copied()) / count;
    let squares = total(&mut cells.iter().map(|x| (x - mean) * (x - mean)));
    let variance = squares / (count - 1.0);
    let first =
        |order: fn(f64, f64) -> f64| cells.iter().copied().reduce(order).unwrap_or(f64::NAN);
    match reduction {
        Reduction::Sum => total(&mut cells.iter().copied()),
        Reduction::SumOfSquares => total(&mut cells.iter().map(|x| x * x)),
        Reduction::Mean => mean,
        Reduction::Min => first(f64::min),
        Reduction::Max => first(f64::max),
        Reduction::Variance | Reduction::Deviation if cells.len() < 2 => f64::NAN,
        Reduction::Variance => variance,
        Reduction::PopulationVariance => squares / count,
        Reduction::Deviation => variance.sqrt(),
    }
}

/// Expressions whose reductions are compared with those of their stored cells: each ends in a way of
/// its own. Inputs: cells, a column, a row.
fn expressions() -> [Program; 4] {
    use BinaryFunction::{Add, Multiply, Subtract};
    let finish = |build: &dyn Fn(&mut Builder, [Value; 3]) -> Value| {
        let mut builder = Builder::new();
        let inputs = [0, 1, 2].map(|number| builder.input(number));
        let result = build(&mut builder, inputs);
        builder.finish(result)
    };
    [
        finish(&|builder, [a, b, row]| {
            let product = builder.binary(Multiply, a, b);
            builder.binary(Add, product, row)
        }),
        finish(&|builder, [a, _, row]| {
            let difference = builder.binary(Subtract, a, row);
            builder.binary(Multiply, difference, difference)
        }),
        finish(&|builder, [a, b, _]| {
            let root = builder.unary(UnaryFunction::Abs, b);
            builder.binary(Multiply, a, root)
        }),
        finish(&|builder, [a, b, row]| {
            let product = builder.binary(Multiply, a, b);
            let sum = builder.binary(Subtract, row, product);
            builder.unary(UnaryFunction::Relu, sum)
        }),
    ]
}

#[test]
fn reductions_match_the_textbook() {
    for program in expressions() {
        reductions_of_a_program_match(&program);
    }
}

fn reductions_of_a_program_match(program: &Program) {
    let mut rng = SmallRng::seed_from_u64(5);
    let mut scratch = Scratch::new();
    for (rows, columns) in SHAPES {
        let mut cells = |count: usize| -> Vec<f64> {
            (0..count).map(|_| rng.random_range(-1.0..2.0)).collect()
        };
        let (a, b, row) = (cells(rows * columns), cells(rows), cells(columns));
        let inputs = [Input::Cells(&a), Input::Column(&b), Input::Row(&row)];
        let mut stored = vec![0.0; rows * columns];
        program.run(&inputs, rows, columns, &mut scratch, &mut stored);
        for reduction in REDUCTIONS {
            let near = |found: f64, cells: &[f64], place: &str| {
                let expected = naive(cells, reduction);
                let scale = 1.0 + cells.iter().map(|x| x * x + x.abs()).sum::<f64>();
                let close = (found - expected).abs() <= 1e-14 * scale;
                assert!(
                    close || (found.is_nan() && expected.is_nan()),
                    "{reduction:?} of {place} of {rows}x{columns}: {found:e} is not {expected:e}"
                );
            };
            let all = program.reduce(&inputs, rows, columns, reduction, &mut scratch);
            near(all.value(), &stored, "all");
            assert_eq!(all.count(), (rows * columns) as u64);

            let mut by_row = vec![0.0; rows];
            program.reduce_rows(&inputs, rows, columns, reduction, &mut scratch, &mut by_row);
            for (i, &found) in by_row.iter().enumerate() {
                near(found, &stored[i * columns..][..columns], "a row");
            }
            let mut by_column = vec![Accumulator::new(reduction); columns];
            program.reduce_columns(&inputs, rows, columns, reduction, &mut scratch, &mut by_column);
            for (j, found) in by_column.iter().enumerate() {
                let column: Vec<f64> = stored.iter().copied().skip(j).step_by(columns).collect();
                near(found.value(), &column, "a column");
            }
        }
    }
}

fn storing_changes_no_reduction<T: Scalar>(program: &Program) {
    let mut rng = SmallRng::seed_from_u64(6);
    let mut scratch = Scratch::<T>::new();
    let mut builder = Builder::new();
    let input = builder.input(0);
    let identity = builder.finish(input);
    for (rows, columns) in SHAPES {
        let mut cells = |count: usize| -> Vec<T> {
            (0..count).map(|_| T::from_f64(rng.random_range(-1.0..2.0))).collect()
        };
        let (a, b, row) = (cells(rows * columns), cells(rows), cells(columns));
        let inputs = [Input::Cells(&a), Input::Column(&b), Input::Row(&row)];
        let mut stored = vec![T::ZERO; rows * columns];
        program.run(&inputs, rows, columns, &mut scratch, &mut stored);
        for reduction in REDUCTIONS {
            let fused = program.reduce(&inputs, rows, columns, reduction, &mut scratch).value();
            let apart = [Input::Cells(&stored)];
            let apart = identity.reduce(&apart, rows, columns, reduction, &mut scratch).value();
            assert_eq!(fused.to_bits(), apart.to_bits(), "{reduction:?} of {rows}x{columns}");
        }
    }
}

#[test]
fn the_order_of_a_reduction_depends_on_the_shape_alone() {
    for program in expressions() {
        storing_changes_no_reduction::<f64>(&program);
        storing_changes_no_reduction::<f32>(&program);
    }
}

/// `exp(x - extreme) / sum(exp(x - extreme))` with rows reduced within the loop, and between three.
fn reducing_rows_within_changes_no_bit<T: Scalar>(reduction: Reduction) {
    let mut rng = SmallRng::seed_from_u64(9);
    let mut scratch = Scratch::<T>::new();
    let mut builder = Builder::new();
    let x = builder.input(0);
    let extreme = builder.rows(reduction, x);
    let distance = builder.binary(BinaryFunction::Subtract, x, extreme);
    let power = builder.unary(UnaryFunction::Exp, distance);
    let sum = builder.rows(Reduction::Sum, power);
    let share = builder.binary(BinaryFunction::Divide, power, sum);
    let within = builder.finish(share);
    let apart = |second: &dyn Fn(&mut Builder, Value, Value) -> Value| {
        let mut builder = Builder::new();
        let inputs = [0, 1].map(|number| builder.input(number));
        let result = second(&mut builder, inputs[0], inputs[1]);
        builder.finish(result)
    };
    let powers = apart(&|builder, x, extreme| {
        let distance = builder.binary(BinaryFunction::Subtract, x, extreme);
        builder.unary(UnaryFunction::Exp, distance)
    });
    let shares = apart(&|builder, power, sum| builder.binary(BinaryFunction::Divide, power, sum));
    let identity = apart(&|_, x, _| x);
    for (rows, columns) in SHAPES.into_iter().filter(|(_, columns)| *columns <= ROW_MAX) {
        let x: Vec<T> =
            (0..rows * columns).map(|_| T::from_f64(rng.random_range(-1.0..2.0))).collect();
        let mut reduced = |x: &[T], reduction: Reduction| {
            let mut cells = vec![T::ZERO; rows];
            let inputs = [Input::Cells(x)];
            identity.reduce_rows(&inputs, rows, columns, reduction, &mut scratch, &mut cells);
            cells
        };
        let mut power = vec![T::ZERO; x.len()];
        let extreme = reduced(&x, reduction);
        let inputs = [Input::Cells(&x), Input::Column(&extreme)];
        powers.run(&inputs, rows, columns, &mut Scratch::new(), &mut power);
        let sum = reduced(&power, Reduction::Sum);
        let (mut expected, mut found) = (power.clone(), power.clone());
        let inputs = [Input::Cells(&power), Input::Column(&sum)];
        shares.run(&inputs, rows, columns, &mut Scratch::new(), &mut expected);
        within.run(&[Input::Cells(&x)], rows, columns, &mut Scratch::new(), &mut found);
        let same = |(a, b): (&T, &T)| {
            let (a, b) = (a.to_f64(), b.to_f64());
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        };
        assert!(found.iter().zip(&expected).all(same), "{reduction:?} of {rows}x{columns}");
    }
}

#[test]
fn rows_are_reduced_within_a_loop_as_they_are_by_themselves() {
    for reduction in
        REDUCTIONS.into_iter().filter(|reduction| *reduction != Reduction::SumOfSquares)
    {
        reducing_rows_within_changes_no_bit::<f64>(reduction);
        reducing_rows_within_changes_no_bit::<f32>(reduction);
    }
}

#[test]
fn accumulators_of_blocks_merge() {
    let mut rng = SmallRng::seed_from_u64(8);
    let mut scratch = Scratch::new();
    let mut builder = Builder::new();
    let input = builder.input(0);
    let identity = builder.finish(input);
    let cells: Vec<f64> = (0..30_000).map(|_| 1e6 + rng.random_range(-1.0..1.0)).collect();
    for reduction in REDUCTIONS {
        let mut total = Accumulator::new(reduction);
        for block in [&cells[..0], &cells[..7], &cells[7..20_000], &cells[20_000..], &cells[..0]] {
            let inputs = [Input::Cells(block)];
            total.merge(&identity.reduce(&inputs, block.len(), 1, reduction, &mut scratch));
        }
        let (found, expected) = (total.value(), naive(&cells, reduction));
        let tolerance = match reduction {
            // A distance of 1 from a mean of 10⁶ carries 10⁻¹⁰ of rounding.
            Reduction::Variance | Reduction::PopulationVariance | Reduction::Deviation => 1e-10,
            _ => 1e-14,
        };
        assert!(
            (found / expected - 1.0).abs() < tolerance,
            "{reduction:?}: {found} is not {expected}"
        );
    }
}

#[test]
fn infinities_and_nan_pass_through_reductions() {
    let mut scratch = Scratch::new();
    let mut builder = Builder::new();
    let input = builder.input(0);
    let identity = builder.finish(input);
    let mut reduce = |special: &[f64], reduction| {
        let mut cells = vec![1.0; 3000];
        for (cell, &value) in cells.iter_mut().skip(1500).step_by(200).zip(special) {
            *cell = value;
        }
        identity.reduce(&[Input::Cells(&cells)], 3000, 1, reduction, &mut scratch).value()
    };
    let (infinite, nan) = (f64::INFINITY, f64::NAN);
    assert_eq!(reduce(&[infinite], Reduction::Sum), infinite);
    assert_eq!(reduce(&[-infinite], Reduction::Mean), -infinite);
    assert!(reduce(&[infinite, -infinite], Reduction::Sum).is_nan());
    assert_eq!(reduce(&[-infinite], Reduction::Min), -infinite);
    for reduction in REDUCTIONS {
        assert!(reduce(&[nan], reduction).is_nan(), "{reduction:?}");
    }
}

#[test]
fn common_parts_run_once_and_registers_are_reused() {
    let mut builder = Builder::new();
    let x = builder.input(0);
    let mut sum = builder.unary(UnaryFunction::Exp, x);
    for _ in 0..20 {
        let again = builder.unary(UnaryFunction::Exp, x);
        let root = builder.unary(UnaryFunction::Sqrt, sum);
        sum = builder.binary(BinaryFunction::Divide, root, again);
    }
    let program = builder.finish(sum);
    assert_eq!(program.steps.len(), 41);
    assert!(program.registers <= 3, "{} registers", program.registers);
}

#[test]
fn arithmetic_chains_into_one_step() {
    let mut builder = Builder::new();
    let [a, b, c] = [0, 1, 2].map(|number| builder.input(number));
    let product = builder.binary(BinaryFunction::Multiply, a, b);
    let sum = builder.binary(BinaryFunction::Add, product, c);
    let result = builder.unary(UnaryFunction::Relu, sum);
    assert_eq!(builder.finish(result).steps.len(), 1);
}

/// Results that are steps, an input, a constant, part of another one, and the same as another.
#[test]
fn several_results_are_those_of_programs_of_their_own() {
    let build = |builder: &mut Builder| {
        let [a, b] = [0, 1].map(|number| builder.input(number));
        let difference = builder.binary(BinaryFunction::Subtract, a, b);
        let square = builder.binary(BinaryFunction::Multiply, difference, difference);
        let sum = builder.binary(BinaryFunction::Add, b, square);
        let negative = builder.unary(UnaryFunction::Negate, sum);
        let constant = builder.constant(2.5);
        [difference, sum, a, constant, negative, sum]
    };
    let mut rng = SmallRng::seed_from_u64(3);
    for count in [0, 1, STRIP - 1, STRIP, 5 * STRIP + 70] {
        let [a, b] = [0, 1].map(|_| random_cells::<f64>(&mut rng, count));
        let inputs = [Input::Cells(&a[..]), Input::Cells(&b[..])];
        let mut builder = Builder::as_written();
        let results = build(&mut builder);
        let program = builder.finish_all(&results);
        let mut found = vec![Vec::new(); results.len()];
        program.each_strip(&inputs, count, &mut Scratch::new(), |strip, results| {
            assert!(strip.start.is_multiple_of(64));
            for (number, found) in found.iter_mut().enumerate() {
                assert_eq!(found.len(), strip.start);
                found.extend_from_slice(results.cells(number));
            }
        });
        for (number, found) in found.iter().enumerate() {
            let mut builder = Builder::as_written();
            let result = build(&mut builder)[number];
            let mut expected = vec![0.0; count];
            let program = builder.finish(result);
            program.run(&inputs, 1, count, &mut Scratch::new(), &mut expected);
            assert!(found.iter().zip(&expected).all(|(&a, &b)| same(a, b)), "result {number}");
            assert_eq!(found.len(), count);
        }
    }
}
