//! A program as the text of a CUDA kernel, for `kernels/fused.cuh` to run.
//!
//! ```text
//! relu(x * w + 1)   x: Cells, w: Row      map(out, rows, columns, [=](u64 at, u64 row, u64 column) -> T {
//!                                             const T v0 = cell::multiply<T>(in0[at], in1[column]);
//!                                             const T v1 = cell::add<T>(v0, c0);
//!                                             return cell::relu<T>(v1);
//!                                         });
//! ```
//!
//! The same steps in the same order, each rounded, so that a cell has the bits that it has on the host, but for the functions
//! that a device computes by its own library: `sin`, `cos`, `tan`, `gelu` and powers, which differ by a few units in the last
//! place. Sums are added in another order. Constants are parameters, and what is equal but for them is one kernel.

use std::fmt::Write;

use super::{Chain, First, Instruction, Operand, Program, Reduction, Second};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::matrix::Element;

/// How an input lies beside the cells of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stretch {
    /// A cell for each.
    Cells,
    /// A cell for each row.
    Column,
    /// A cell for each column.
    Row,
    /// One cell for all.
    Scalar,
}

/// What becomes of the cells that a program computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    /// They are the result.
    Map,
    /// They are reduced to one.
    Cells(Reduction),
    /// Each row is.
    Rows(Reduction),
    /// Each column is.
    Columns(Reduction),
}

/// The entry that every text has, and the one that puts together the parts of a reduction.
pub(crate) const ENTRY: &str = "run";
pub(crate) const FINISH: &str = "finish";

impl Program {
    /// The numbers that a kernel is given behind its inputs.
    pub(crate) fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// Whether no cell needs to know its row and its column.
    pub(crate) fn is_flat(&self, inputs: &[(Stretch, Element)]) -> bool {
        let flat = |stretch| matches!(stretch, Stretch::Cells | Stretch::Scalar);
        inputs.iter().all(|&(stretch, _)| flat(stretch)) && !self.reduces_rows()
    }

    /// The text of the kernel that computes cells of this type from such inputs.
    ///
    /// Its parameters are the result or its parts, rows, columns, the inputs and the constants; behind them of a reduction of rows
    /// the root that is taken of it, of one of columns the rows of a part.
    pub(crate) fn cuda(
        &self,
        element: Element,
        inputs: &[(Stretch, Element)],
        goal: Goal,
    ) -> String {
        let text = Text { program: self, inputs, is_flat: self.is_flat(inputs) };
        let mut out = String::from("#include \"fused.cuh\"\n\n");
        let _ = writeln!(out, "typedef {} T;\n", cuda_type(element));
        let parameters = text.parameters();
        match goal {
            Goal::Map if self.reduces_rows() => {
                entry(&mut out, ENTRY, &format!("T* out, {parameters}"), &text.mapped_rows());
            }
            Goal::Map => {
                let (function, sides) = text.over("map");
                let body = format!("    {function}(out, {sides}, {});\n", text.cell("    "));
                entry(&mut out, ENTRY, &format!("T* out, {parameters}"), &body);
            }
            Goal::Rows(reduction) => {
                let name = constant(reduction);
                let cell = text.cell("        ");
                let body = format!(
                    "    for (Rows rows_at(rows, columns); rows_at.any(); rows_at.next()) {{\n        \
                     const Accumulator<{name}> total = rows_at.reduce<{name}>({cell});\n        \
                     rows_at.write(out, root.of(total.result(), total.count));\n    }}\n"
                );
                entry(&mut out, ENTRY, &format!("T* out, {parameters}, Root root"), &body);
            }
            Goal::Cells(reduction) => {
                let name = constant(reduction);
                let (function, sides) = text.over("reduce_cells");
                let body =
                    format!("    {function}<{name}>(parts, {sides}, {});\n", text.cell("    "));
                entry(&mut out, ENTRY, &format!("Accumulator<{name}>* parts, {parameters}"), &body);
                let given =
                    format!("T* out, const Accumulator<{name}>* parts, u64 count, Root root");
                let body = format!("    finish_cells<{name}>(out, parts, count, root);\n");
                entry(&mut out, FINISH, &given, &body);
            }
            Goal::Columns(reduction) => {
                let name = constant(reduction);
                let body = format!(
                    "    reduce_columns<{name}>(parts, rows, columns, height, {});\n",
                    text.cell("    ")
                );
                let given = format!("Accumulator<{name}>* parts, {parameters}, u64 height");
                entry(&mut out, ENTRY, &given, &body);
                let given = format!(
                    "T* out, const Accumulator<{name}>* parts, u64 runs, u64 columns, Root root"
                );
                let body =
                    format!("    finish_columns<{name}>(out, parts, runs, columns, root);\n");
                entry(&mut out, FINISH, &given, &body);
            }
        }
        out
    }
}

/// One kernel.
fn entry(out: &mut String, name: &str, parameters: &str, body: &str) {
    let _ = writeln!(
        out,
        "extern \"C\" __global__ void __launch_bounds__(THREADS) {name}({parameters}) {{\n{body}}}\n"
    );
}

/// A program beside the inputs that it is written for.
struct Text<'a> {
    program: &'a Program,
    inputs: &'a [(Stretch, Element)],
    is_flat: bool,
}

impl Text<'_> {
    fn parameters(&self) -> String {
        let mut text = String::from("u64 rows, u64 columns");
        for (number, (_, element)) in self.inputs.iter().enumerate() {
            let _ = write!(text, ", const {}* in{number}", cuda_type(*element));
        }
        for number in 0..self.program.constants.len() {
            let _ = write!(text, ", f64 c{number}");
        }
        text
    }

    /// The loop of this name over all cells, and the sides that it is given.
    fn over(&self, name: &str) -> (String, &'static str) {
        match self.is_flat {
            true => (format!("{name}_flat"), "rows * columns"),
            false => (name.to_owned(), "rows, columns"),
        }
    }

    /// A function of one cell, for programs that reduce no rows.
    fn cell(&self, indent: &str) -> String {
        self.function(self.program.steps.len(), self.program.results[0], &[], indent)
    }

    /// Loops over rows: one for each reduction, then one for the cells.
    fn mapped_rows(&self) -> String {
        let mut out = String::from(
            "    for (Rows rows_at(rows, columns); rows_at.any(); rows_at.next()) {\n",
        );
        let mut reduced = Vec::new();
        for (number, step) in self.program.steps.iter().enumerate() {
            let Instruction::Rows(reduction, operand) = step.instruction else { continue };
            let function = self.function(number, operand, &reduced, "        ");
            let _ = writeln!(
                out,
                "        const T s{} = (T)rows_at.reduce<{}>({function}).result();",
                reduced.len(),
                constant(reduction)
            );
            reduced.push(number);
        }
        let result = self.program.results[0];
        let function = self.function(self.program.steps.len(), result, &reduced, "            ");
        let _ = writeln!(
            out,
            "        rows_at.each([=](u64 at, u64 row, u64 column) {{\n            \
             const auto value = {function};\n            \
             out[at] = value(at, row, column);\n        }});\n    }}"
        );
        out
    }

    /// A function of one cell by the first steps of the program, of which those in `reduced` are numbers of the row.
    fn function(&self, steps: usize, result: Operand, reduced: &[usize], indent: &str) -> String {
        let mut out = String::from("[=](u64 at, u64 row, u64 column) -> T {\n");
        // The step whose outcome a register holds.
        let mut holders = vec![usize::MAX; self.program.registers];
        for (number, step) in self.program.steps[..steps].iter().enumerate() {
            let value = match reduced.iter().position(|&of| of == number) {
                Some(at) => format!("s{at}"),
                None => self.value(step.instruction, &holders),
            };
            let _ = writeln!(out, "{indent}    const T v{number} = {value};");
            holders[step.register] = number;
        }
        let _ = write!(out, "{indent}    return {};\n{indent}}}", self.operand(result, &holders));
        out
    }

    fn value(&self, instruction: Instruction, holders: &[usize]) -> String {
        let operand = |operand| self.operand(operand, holders);
        match instruction {
            Instruction::Unary(function, a) => format!("{}({})", unary(function), operand(a)),
            Instruction::Binary(function, a, b) => {
                format!("{}({}, {})", binary(function), operand(a), operand(b))
            }
            Instruction::Select(condition, a, b) => {
                format!("cell::select<T>({}, {}, {})", operand(condition), operand(a), operand(b))
            }
            Instruction::Chain(Chain { first, second, relu }, a, b, c) => {
                let first = match first {
                    First::Add => BinaryFunction::Add,
                    First::Subtract => BinaryFunction::Subtract,
                    First::Multiply => BinaryFunction::Multiply,
                };
                let inner = format!("{}({}, {})", binary(first), operand(a), operand(b));
                let c = operand(c);
                let of = |function, a: &str, b: &str| format!("{}({a}, {b})", binary(function));
                let outer = match second {
                    Second::Add => of(BinaryFunction::Add, &inner, &c),
                    Second::Subtract => of(BinaryFunction::Subtract, &inner, &c),
                    Second::SubtractFrom => of(BinaryFunction::Subtract, &c, &inner),
                    Second::Multiply => of(BinaryFunction::Multiply, &inner, &c),
                    Second::Divide => of(BinaryFunction::Divide, &inner, &c),
                    Second::Square => of(BinaryFunction::Multiply, &inner, &inner),
                    Second::Keep => inner,
                };
                if relu { format!("{}({outer})", unary(UnaryFunction::Relu)) } else { outer }
            }
            Instruction::Rows(..) => unreachable!("a reduction of rows is a number of the row"),
        }
    }

    fn operand(&self, operand: Operand, holders: &[usize]) -> String {
        match operand {
            Operand::Constant(number) => format!("(T)c{number}"),
            Operand::Register(register) => format!("v{}", holders[register]),
            Operand::Input(number) => {
                let place = match self.inputs[number].0 {
                    Stretch::Cells => "at",
                    Stretch::Column => "row",
                    Stretch::Row => "column",
                    Stretch::Scalar => "0",
                };
                format!("(T)in{number}[{place}]")
            }
        }
    }
}

fn cuda_type(element: Element) -> &'static str {
    match element {
        Element::Float64 => "f64",
        Element::Float32 => "f32",
    }
}

fn constant(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "SUM",
        Reduction::SumOfSquares => "SUM_OF_SQUARES",
        Reduction::Mean => "MEAN",
        Reduction::Min => "MIN",
        Reduction::Max => "MAX",
        Reduction::Variance => "VARIANCE",
        Reduction::PopulationVariance => "POPULATION_VARIANCE",
        Reduction::Deviation => "DEVIATION",
    }
}

fn unary(function: UnaryFunction) -> &'static str {
    match function {
        UnaryFunction::Negate => "cell::negate<T>",
        UnaryFunction::Abs => "cell::abs<T>",
        UnaryFunction::Sign => "cell::sign<T>",
        UnaryFunction::Sqrt => "cell::sqrt",
        UnaryFunction::Exp => "cell::exp<T>",
        UnaryFunction::Log => "cell::log<T>",
        UnaryFunction::Log1p => "cell::log1p<T>",
        UnaryFunction::Expm1 => "cell::expm1<T>",
        UnaryFunction::Sin => "cell::sin<T>",
        UnaryFunction::Cos => "cell::cos<T>",
        UnaryFunction::Tan => "cell::tan<T>",
        UnaryFunction::Tanh => "cell::tanh<T>",
        UnaryFunction::Floor => "cell::floor<T>",
        UnaryFunction::Ceil => "cell::ceil<T>",
        UnaryFunction::Round => "cell::round<T>",
        UnaryFunction::IsNan => "cell::is_nan<T>",
        UnaryFunction::Not => "cell::logical_not<T>",
        UnaryFunction::Relu => "cell::relu<T>",
        UnaryFunction::Sigmoid => "cell::sigmoid<T>",
        UnaryFunction::Gelu => "cell::gelu<T>",
        UnaryFunction::Softplus => "cell::softplus<T>",
    }
}

fn binary(function: BinaryFunction) -> &'static str {
    match function {
        BinaryFunction::Add => "cell::add<T>",
        BinaryFunction::Subtract => "cell::subtract<T>",
        BinaryFunction::Multiply => "cell::multiply<T>",
        BinaryFunction::Divide => "cell::divide<T>",
        BinaryFunction::Power => "cell::power<T>",
        BinaryFunction::Less => "cell::less<T>",
        BinaryFunction::LessEqual => "cell::less_equal<T>",
        BinaryFunction::Greater => "cell::greater<T>",
        BinaryFunction::GreaterEqual => "cell::greater_equal<T>",
        BinaryFunction::Equal => "cell::equal<T>",
        BinaryFunction::NotEqual => "cell::not_equal<T>",
        BinaryFunction::And => "cell::logical_and<T>",
        BinaryFunction::Or => "cell::logical_or<T>",
        BinaryFunction::Least => "cell::least<T>",
        BinaryFunction::Greatest => "cell::greatest<T>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::kernels::fused::Builder;

    const F64: Element = Element::Float64;

    /// `relu(x * w + 0.5)`
    fn layer() -> Program {
        let mut builder = Builder::new();
        let (x, w, half) = (builder.input(0), builder.input(1), builder.constant(0.5));
        let product = builder.binary(BinaryFunction::Multiply, x, w);
        let sum = builder.binary(BinaryFunction::Add, product, half);
        let result = builder.unary(UnaryFunction::Relu, sum);
        builder.finish(result)
    }

    #[test]
    fn a_loop_is_a_function_of_a_cell() {
        let text = layer().cuda(
            F64,
            &[(Stretch::Cells, F64), (Stretch::Row, Element::Float32)],
            Goal::Map,
        );
        assert_eq!(
            text,
            "#include \"fused.cuh\"\n\ntypedef f64 T;\n\n\
             extern \"C\" __global__ void __launch_bounds__(THREADS) run(T* out, u64 rows, u64 columns, \
             const f64* in0, const f32* in1, f64 c0) {\n    \
             map(out, rows, columns, [=](u64 at, u64 row, u64 column) -> T {\n        \
             const T v0 = cell::relu<T>(cell::add<T>(cell::multiply<T>((T)in0[at], (T)in1[column]), (T)c0));\n        \
             return v0;\n    });\n}\n\n"
        );
        let flat = layer().cuda(F64, &[(Stretch::Cells, F64), (Stretch::Scalar, F64)], Goal::Map);
        assert!(
            flat.contains("map_flat(out, rows * columns,") && flat.contains("in1[0]"),
            "{flat}"
        );
    }

    #[test]
    fn rows_are_reduced_before_their_cells_are_made() {
        let mut builder = Builder::new();
        let x = builder.input(0);
        let largest = builder.rows(Reduction::Max, x);
        let shifted = builder.binary(BinaryFunction::Subtract, x, largest);
        let power = builder.unary(UnaryFunction::Exp, shifted);
        let sum = builder.rows(Reduction::Sum, power);
        let share = builder.binary(BinaryFunction::Divide, power, sum);
        let text = builder.finish(share).cuda(F64, &[(Stretch::Cells, F64)], Goal::Map);
        let order = [
            "const T s0",
            "reduce<MAX>",
            "const T s1",
            "reduce<SUM>",
            "const T v0 = s0;",
            "rows_at.each",
        ];
        let places: Vec<_> = order.map(|part| text.find(part)).into();
        assert!(places.is_sorted() && places[0].is_some(), "{places:?} in\n{text}");
    }

    #[test]
    fn parts_of_a_reduction_are_put_together_by_another_kernel() {
        let inputs = [(Stretch::Cells, F64), (Stretch::Cells, F64)];
        let all = layer().cuda(F64, &inputs, Goal::Cells(Reduction::Variance));
        assert!(all.contains("reduce_cells_flat<VARIANCE>(parts,"), "{all}");
        assert!(all.contains(" finish(T* out, const Accumulator<VARIANCE>* parts"), "{all}");
        let columns = layer().cuda(F64, &inputs, Goal::Columns(Reduction::Sum));
        assert!(columns.contains("f64 c0, u64 height)"), "{columns}");
    }
}
