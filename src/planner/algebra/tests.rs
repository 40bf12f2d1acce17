//! Every rule over random matrices, and whole rewrites of random expressions.

use std::collections::HashMap;
use std::sync::Arc;

use egg::{ENodeOrVar, PatternAst, SearchMatches, Searcher, Var};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::super::graph::Dim;
use super::notation::{Must, Rule, Size};
use super::rules::{LINES, RULES, SPARSE_DRIVEN, SPARSE_DRIVEN_RULES};
use super::term::Term;
use super::*;
use crate::error::Result;
use crate::exec::costs::Constant;
use crate::exec::evaluate::evaluate;
use crate::exec::kernels::Stop;
use crate::exec::kernels::decompose::Triangle;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::operation::{Aggregate, Axis, Part, Span, Stored};
use crate::exec::value::Value;
use crate::matrix::{Cells, Dense, Layout, Matrix, Shape};

mod sampling;
mod slices;
mod symmetry;
mod triangles;

/// A named matrix of cells around 1 and -1, about half of them zero where it is sparse.
fn stored(name: &str, shape: Shape, is_sparse: bool, random: &mut SmallRng) -> Op {
    let mut cell = || match is_sparse && random.random() {
        true => 0.0,
        false if random.random() => -random.random_range(0.5..1.5),
        false => random.random_range(0.5..1.5),
    };
    let cells: Vec<f64> = (0..shape.cells()).map(|_| cell()).collect();
    let dense = Matrix::from_row_major(shape, cells).unwrap();
    let cells = if is_sparse {
        let csr = evaluate(&Op::Store(Layout::Csr), &[dense.cells()], Stop::NEVER).unwrap();
        csr.cells().unwrap()
    } else {
        dense.cells().clone()
    };
    Op::Stored(Stored::new(name, Arc::new(Matrix::new(cells))))
}

/// A sparse matrix that stores one cell of so many.
fn scattered(name: &str, shape: Shape, of: usize) -> Op {
    let cell = |at: usize| if at.is_multiple_of(of) { 2.0 - (at % 5) as f64 / 2.0 } else { 0.0 };
    let dense = Matrix::from_row_major(shape, (0..shape.cells()).map(cell).collect()).unwrap();
    let csr = evaluate(&Op::Store(Layout::Csr), &[dense.cells()], Stop::NEVER).unwrap();
    let matrix = Arc::new(Matrix::new(csr.cells().unwrap()));
    Op::Stored(Stored::new(name, matrix))
}

/// The values of all nodes.
fn values(graph: &Graph) -> Result<Vec<Cells>> {
    let mut values: Vec<Cells> = Vec::new();
    for (_, node) in graph.nodes() {
        let inputs: Vec<&Cells> = node.inputs.iter().map(|input| &values[input.index()]).collect();
        let value = evaluate(&node.operation, &inputs, Stop::NEVER).and_then(Value::cells)?;
        values.push(value);
    }
    Ok(values)
}

/// The cells of a matrix row by row.
fn cells(of: &Cells) -> Vec<f64> {
    let Shape { rows, columns } = of.shape();
    (0..rows * columns).map(|at| of.cell(at / columns, at % columns)).collect()
}

fn largest(of: &[f64]) -> f64 {
    of.iter().fold(0.0, |largest, cell| largest.max(cell.abs()))
}

/// One side of a rule over these matrices.
fn side(
    graph: &mut Graph,
    pattern: &PatternAst<Term>,
    names: &HashMap<Var, NodeId>,
) -> Result<NodeId> {
    let mut nodes: Vec<NodeId> = Vec::new();
    for part in pattern.iter() {
        nodes.push(match part {
            ENodeOrVar::Var(name) => names[name],
            ENodeOrVar::ENode(term) => {
                let inputs: Vec<NodeId> =
                    term.inputs.iter().map(|&input| nodes[usize::from(input)]).collect();
                graph.add(term.operation.clone(), inputs, None)?
            }
        });
    }
    Ok(*nodes.last().unwrap())
}

/// A matrix for a name of a rule, as its conditions want it; none where sizes were drawn that cannot be.
fn operand(
    rule: &Rule,
    name: Var,
    sizes: &HashMap<char, usize>,
    random: &mut SmallRng,
) -> Option<Op> {
    let mut shape = Shape::new(random.random_range(0..5), random.random_range(0..5));
    let [mut symmetric, mut sparse, mut mask, mut filled, mut zero] = [false; 5];
    let mut triangle = None;
    for condition in rule.conditions.iter().filter(|condition| condition.of == name) {
        match &condition.must {
            Must::HaveSizes(wanted) => {
                let size = |size: &Size| match size {
                    Size::One => 1,
                    Size::Letter(letter) => sizes[letter],
                };
                shape = Shape::new(size(&wanted[0]), size(&wanted[1]));
            }
            Must::BeIdentity => return Some(Op::Eye(shape.rows)),
            Must::BeZero => zero = true,
            Must::BeSymmetric => symmetric = true,
            Must::BeTriangular(of) => triangle = Some(*of),
            Must::BeSparse | Must::BeWeights => sparse = true,
            Must::BeMask => mask = true,
            Must::BeFilled => filled = true,
        }
    }
    if (symmetric && shape.rows != shape.columns) || (filled && shape.cells() == 0) {
        return None;
    }
    if zero {
        let cells = Matrix::from_row_major(shape, vec![0.0; shape.cells()]).unwrap();
        return Some(Op::Stored(Stored::new(name.to_string(), Arc::new(cells))));
    }
    // No scale is zero, for some divide.
    let may_be_sparse = !symmetric && shape.cells() > 1;
    let is_sparse = sparse || mask || (may_be_sparse && random.random_bool(0.3));
    let operation = stored(&name.to_string(), shape, is_sparse, random);
    if let Some(triangle) = triangle {
        return Some(triangular(&name.to_string(), &operation, triangle));
    }
    if !symmetric && !mask {
        return Some(operation);
    }
    let x = evaluate(&operation, &[], Stop::NEVER).unwrap().cells().unwrap();
    let zero = Cells::from(Dense::scalar(0.0));
    let made = if mask {
        evaluate(&Op::Binary(BinaryFunction::NotEqual), &[&x, &zero], Stop::NEVER)
    } else {
        evaluate(&Op::Gram, &[&x], Stop::NEVER)
    };
    let cells = made.and_then(Value::cells).unwrap();
    Some(Op::Stored(Stored::new(name.to_string(), Arc::new(Matrix::new(cells)))))
}

/// The same with zeros outside a triangle.
fn triangular(name: &str, of: &Op, triangle: Triangle) -> Op {
    let full = evaluate(of, &[], Stop::NEVER).unwrap().cells().unwrap();
    let Shape { rows, columns } = full.shape();
    let is_inside = |row: usize, column: usize| match triangle {
        Triangle::Lower => column <= row,
        Triangle::Upper => column >= row,
    };
    let cell = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        if is_inside(row, column) { full.cell(row, column) } else { 0.0 }
    };
    let cells: Vec<f64> = (0..rows * columns).map(cell).collect();
    let matrix = Matrix::from_row_major(full.shape(), cells).unwrap();
    Op::Stored(Stored::new(name, Arc::new(matrix)))
}

#[test]
fn every_rule_holds_for_all_shapes_that_its_conditions_allow() {
    let mut random = SmallRng::seed_from_u64(7);
    for rule in RULES.iter().chain(SPARSE_DRIVEN_RULES.iter()) {
        let mut tried = 0;
        for _ in 0..4000 {
            let sizes: HashMap<char, usize> =
                "mnkp".chars().map(|letter| (letter, random.random_range(0..5))).collect();
            let mut graph = Graph::default();
            let operands: Option<Vec<(Var, Op)>> = rule
                .names
                .iter()
                .map(|&name| Some((name, operand(rule, name, &sizes, &mut random)?)))
                .collect();
            let Some(operands) = operands else { continue };
            let names: HashMap<Var, NodeId> = operands
                .into_iter()
                .map(|(name, operation)| (name, graph.add(operation, [], None).unwrap()))
                .collect();
            let Ok(left) = side(&mut graph, &rule.left.ast, &names) else { continue };
            let right = side(&mut graph, &rule.right, &names)
                .unwrap_or_else(|error| panic!("{}: the right side: {error}", rule.text));
            let shapes = [left, right].map(|id| graph.node(id).shape());
            assert_eq!(shapes[0], shapes[1], "{}", rule.text);
            // A matrix that happens to be singular.
            let Ok(values) = values(&graph) else { continue };
            // Algebra is that of finite numbers, and a zero was divided by; what no cells make is the same.
            let is_empty = values.iter().any(|value| value.shape().cells() == 0);
            let is_finite = |value: &Cells| cells(value).iter().all(|cell| cell.is_finite());
            if !is_empty && !values.iter().all(is_finite) {
                continue;
            }
            let [left, right] = [left, right].map(|id| cells(&values[id.index()]));
            let scale = 1.0 + values.iter().map(|value| largest(&cells(value))).fold(0.0, f64::max);
            for (left, right) in left.iter().zip(&right) {
                let is_close = (left - right).abs() <= 1e-11 * scale * scale;
                let is_same = left == right || (left.is_nan() && right.is_nan());
                assert!(is_close || is_same, "{}: {left} {right}", rule.text);
            }
            tried += 1;
            if tried == 40 {
                break;
            }
        }
        assert!(tried >= 10, "{}: only {tried} matrices fit", rule.text);
    }
}

#[test]
fn every_line_is_a_rule_of_its_own() {
    let rules = |line: &&'static str| Rule::read(line).len();
    let lines = [LINES, SPARSE_DRIVEN].concat();
    let read = RULES.len() + SPARSE_DRIVEN_RULES.len();
    assert_eq!(lines.iter().map(rules).sum::<usize>(), read);
    for (at, line) in lines.iter().enumerate() {
        assert!(!lines[..at].contains(line), "twice: {line}");
    }
}

/// Adds an operation of some kind over some nodes, if it fits.
fn grow(graph: &mut Graph, random: &mut SmallRng) -> Result<NodeId> {
    let nodes: Vec<NodeId> = graph.nodes().map(|(id, _)| id).collect();
    let [a, b, c] = [(); 3].map(|()| *nodes.choose(random).unwrap());
    let shape = graph.node(a).shape();
    let axis = if random.random() { Axis::Rows } else { Axis::Columns };
    let size = if axis == Axis::Rows { shape.rows } else { shape.columns };
    let reduce = |aggregate| Op::Reduce { aggregate, axis: [None, Some(axis)][size % 2] };
    let (operation, inputs) = match random.random_range(0..30) {
        0..5 => (Op::Product, vec![a, b]),
        5 | 6 => (Op::Transpose, vec![a]),
        7 => (reduce(Aggregate::Sum), vec![a]),
        8 => (reduce(Aggregate::Mean), vec![a]),
        9 => (reduce(Aggregate::Max), vec![a]),
        10 => (Op::Trace, vec![a]),
        11 => (Op::Binary(BinaryFunction::Multiply), vec![a, b]),
        12 | 13 => (Op::Binary(BinaryFunction::Add), vec![a, b]),
        14 => (Op::Unary(UnaryFunction::Negate), vec![a]),
        15 => (Op::Unary(UnaryFunction::Tanh), vec![a]),
        16 => (Op::Stack(axis), vec![a, b]),
        17 | 18 => {
            let start = random.random_range(0..=size);
            let count = random.random_range(0..=size - start);
            (Op::Slice { axis, range: Span { start, count } }, vec![a])
        }
        19 => (Op::Diagonal, vec![a]),
        20 => (Op::Solve(None), vec![a, b]),
        21 => (Op::CumulativeSum, vec![a]),
        22 => (Op::Normalize { axis, p: 2.0.into() }, vec![a]),
        23 => (Op::Select, vec![a, b, c]),
        24 => (Op::Gram, vec![a]),
        25 => (Op::Full(Shape::new(3, 4)), vec![a]),
        26 => (Op::Inverse(None), vec![a]),
        27 => (Op::Binary(BinaryFunction::NotEqual), vec![a, b]),
        28 if shape.cells() <= 16 && graph.node(b).shape().cells() <= 16 => {
            (Op::Kronecker, vec![a, b])
        }
        _ => (Op::Reshape(Shape::new(shape.columns, shape.rows)), vec![a]),
    };
    graph.add(operation, inputs, None)
}

#[test]
fn a_rewritten_expression_has_the_value_of_the_written_one() {
    let [mut changed, mut compared] = [0; 2];
    for seed in 0..800 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut graph = Graph::default();
        for name in ["a", "b", "c", "d"] {
            let sizes = [0, 1, 3, 3, 4];
            let [rows, columns] = [(); 2].map(|()| *sizes.choose(&mut random).unwrap());
            let is_sparse = random.random_bool(0.3);
            let operation = stored(name, Shape::new(rows, columns), is_sparse, &mut random);
            graph.add(operation, [], None).unwrap();
        }
        graph.add(Op::Eye(3), [], None).unwrap();
        graph.constant(2.0);
        let mut root = NodeId::default();
        while graph.len() < 24 {
            if let Ok(id) = grow(&mut graph, &mut random) {
                root = id;
            }
        }
        // Sizes at which costs differ are those that are planned for; values are of small ones.
        let mut constants = Constant::ALL.map(|constant| CostModel::default().constant(constant));
        constants[Constant::Steps.index()] = 1e-12;
        let cost = CostModel::of(constants);
        let Rewritten { graph: new, root: new_root, .. } = rewrite(&graph, root, &[], &cost);
        // A matrix of a system that is singular.
        let Ok(before) = values(&graph) else { continue };
        let after = values(&new).unwrap();
        let texts = [Written(&graph, root).to_string(), Written(&new, new_root).to_string()];
        assert_eq!(texts[0], super::super::written::texts(&graph)[root.index()], "seed {seed}");
        let (left, right) = (&before[root.index()], &after[new_root.index()]);
        assert_eq!(left.shape(), right.shape(), "seed {seed}: {} and {}", texts[0], texts[1]);
        // The mean of no cells is no number, with which algebra may come to another one, or to none.
        let is_finite =
            |id: &NodeId| cells(&before[id.index()]).iter().all(|cell| cell.is_finite());
        if !graph.needed(root).iter().all(is_finite) {
            continue;
        }
        compared += 1;
        let scale = before.iter().chain(&after).map(|value| largest(&cells(value)));
        let scale = 1.0 + scale.fold(0.0, f64::max);
        // What is solved may lose as many digits again.
        let is_solved = |(_, node): (NodeId, &Node)| {
            matches!(node.operation, Op::Solve(None) | Op::Inverse(None))
        };
        let bound = 1e-11 * if graph.nodes().any(is_solved) { scale * scale } else { scale };
        for (left, right) in cells(left).iter().zip(cells(right)) {
            let texts = texts.join(" became ");
            assert!((left - right).abs() <= bound, "seed {seed}: {texts}: {left} {right}");
        }
        changed += usize::from(texts[0] != texts[1]);
    }
    assert!(changed > 200 && compared > 400, "only {changed} of {compared} were rewritten");
}

/// What an expression over matrices of these sizes becomes.
fn rewritten(
    sizes: &[(&str, usize, usize)],
    build: impl Fn(&mut Graph, &[NodeId]) -> NodeId,
) -> String {
    let mut graph = Graph::default();
    let leaves: Vec<NodeId> = sizes
        .iter()
        .map(|(name, rows, columns)| {
            let matrix =
                Matrix::from_row_major(Shape::new(*rows, *columns), vec![1.0; rows * columns]);
            let stored = Stored::new(*name, Arc::new(matrix.unwrap()));
            graph.add(Op::Stored(stored), [], None).unwrap()
        })
        .collect();
    let root = build(&mut graph, &leaves);
    let Rewritten { graph, root, .. } = rewrite(&graph, root, &[], &CostModel::default());
    Written(&graph, root).to_string()
}

fn node<const N: usize>(graph: &mut Graph, operation: Op, inputs: [NodeId; N]) -> NodeId {
    graph.add(operation, inputs, None).unwrap()
}

#[test]
fn rules_that_need_one_another_are_found_together() {
    // t(x) @ x @ w: the vector goes first, and no transpose is made.
    let text = rewritten(&[("x", 800, 300), ("w", 300, 1)], |graph, leaves| {
        let t = node(graph, Op::Transpose, [leaves[0]]);
        let gram = node(graph, Op::Product, [t, leaves[0]]);
        node(graph, Op::Product, [gram, leaves[1]])
    });
    assert_eq!(text, "cross(x, (x @ w))");
    // sum((2 * a) @ t(b)): the scale, the sum and the transpose all move.
    let text = rewritten(&[("a", 500, 400), ("b", 300, 400)], |graph, leaves| {
        let two = graph.constant(2.0);
        let a = node(graph, Op::Binary(BinaryFunction::Multiply), [two, leaves[0]]);
        let b = node(graph, Op::Transpose, [leaves[1]]);
        let product = node(graph, Op::Product, [a, b]);
        node(graph, Op::Reduce { aggregate: Aggregate::Sum, axis: None }, [product])
    });
    assert!(!text.contains("(a * 2)") && text.contains("col_sums(a)"), "{text}");
}

/// A chain with whatever may stand between its products, over matrices of sides up to 6.
fn chain(graph: &mut Graph, random: &mut SmallRng) -> NodeId {
    let leaf = |graph: &mut Graph, rows, columns, random: &mut SmallRng| {
        let is_sparse = rows * columns > 1 && random.random_bool(0.3);
        let name = format!("x{}", graph.len());
        let operation = stored(&name, Shape::new(rows, columns), is_sparse, random);
        graph.add(operation, [], None).unwrap()
    };
    let mut at = leaf(graph, random.random_range(1..7), random.random_range(1..7), random);
    for _ in 0..random.random_range(4..14) {
        let Shape { rows, columns } = graph.node(at).shape();
        let side = random.random_range(1..7);
        let number = leaf(graph, 1, 1, random);
        let axis = [None, Some(Axis::Rows), Some(Axis::Columns)][random.random_range(0..3)];
        let aggregate = [Aggregate::Sum, Aggregate::Mean][random.random_range(0..2)];
        at = match random.random_range(0..16) {
            0..4 => {
                let right = leaf(graph, columns, side, random);
                node(graph, Op::Product, [at, right])
            }
            4..8 => {
                let left = leaf(graph, side, rows, random);
                node(graph, Op::Product, [left, at])
            }
            8..11 => node(graph, Op::Transpose, [at]),
            11 => node(graph, Op::Binary(BinaryFunction::Multiply), [number, at]),
            12 => node(graph, Op::Binary(BinaryFunction::Divide), [at, number]),
            13 => node(graph, Op::Unary(UnaryFunction::Negate), [at]),
            _ => node(graph, Op::Reduce { aggregate, axis }, [at]),
        };
    }
    at
}

#[test]
fn chains_in_another_order_have_the_same_value() {
    let mut changed = 0;
    for seed in 0..1000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut graph = Graph::default();
        let root = chain(&mut graph, &mut random);
        let (new, new_root) = order::ordered(&graph, root, &[], &CostModel::default());
        let [before, after] = [values(&graph).unwrap(), values(&new).unwrap()];
        let (left, right) = (&before[root.index()], &after[new_root.index()]);
        let texts = [Written(&graph, root).to_string(), Written(&new, new_root).to_string()];
        assert_eq!(left.shape(), right.shape(), "seed {seed}: {texts:?}");
        let scale = largest(&cells(left)).max(f64::MIN_POSITIVE);
        for (left, right) in cells(left).iter().zip(cells(right)) {
            assert!((left - right).abs() <= 1e-11 * scale, "seed {seed}: {texts:?}");
        }
        changed += usize::from(texts[0] != texts[1]);
    }
    assert!(changed > 300, "only {changed} were put in another order");
}

#[test]
fn nothing_but_vectors_is_made_of_long_chains_that_end_in_one() {
    for is_sum in [true, false] {
        let mut random = SmallRng::seed_from_u64(1);
        let mut graph = Graph::default();
        let mut leaf = |graph: &mut Graph, name: String, columns: usize| {
            let operation = stored(&name, Shape::new(90, columns), false, &mut random);
            graph.add(operation, [], None).unwrap()
        };
        let factors: Vec<NodeId> =
            (0..25).map(|at| leaf(&mut graph, format!("x{at}"), 90)).collect();
        let product = |left, right| node(&mut graph, Op::Product, [left, right]);
        let product = factors.into_iter().reduce(product).unwrap();
        let root = if is_sum {
            let total = Op::Reduce { aggregate: Aggregate::Sum, axis: None };
            node(&mut graph, total, [product])
        } else {
            let (two, v) = (graph.constant(2.0), leaf(&mut graph, "v".to_owned(), 1));
            let scaled = node(&mut graph, Op::Binary(BinaryFunction::Multiply), [two, product]);
            let turned = node(&mut graph, Op::Transpose, [scaled]);
            node(&mut graph, Op::Product, [turned, v])
        };
        let Rewritten { graph, root, .. } = rewrite(&graph, root, &[], &CostModel::default());
        for id in graph.needed(root) {
            let made = graph.node(id);
            let is_line = made.rows == Dim::ONE || made.columns == Dim::ONE;
            let is_leaf = matches!(made.operation, Op::Stored(_));
            assert!(is_line || is_leaf, "{}", Written(&graph, root));
        }
    }
}

#[test]
fn a_product_that_is_there_anyway_is_used() {
    // gram(x) @ w beside gram(x): computed from it, where alone it would be cross(x, x @ w).
    let text = rewritten(&[("x", 800, 300), ("w", 300, 300)], |graph, leaves| {
        let t = node(graph, Op::Transpose, [leaves[0]]);
        let gram = node(graph, Op::Product, [t, leaves[0]]);
        let weighted = node(graph, Op::Product, [gram, leaves[1]]);
        node(graph, Op::Stack(Axis::Columns), [gram, weighted])
    });
    assert_eq!(text, "hstack(gram(x), (gram(x) @ w))");
}

#[test]
fn a_weighted_loss_computes_no_product_where_there_is_no_weight() {
    let mut random = SmallRng::seed_from_u64(3);
    let mut graph = Graph::default();
    let s = graph.add(scattered("s", Shape::new(1000, 900), 97), [], None).unwrap();
    let [u, v] = [("u", 1000), ("v", 900)].map(|(name, rows)| {
        let factor = stored(name, Shape::new(rows, 10), false, &mut random);
        graph.add(factor, [], None).unwrap()
    });
    let (zero, two) = (graph.constant(0.0), graph.constant(2.0));
    let binary = |graph: &mut Graph, function, a, b| node(graph, Op::Binary(function), [a, b]);
    let t = node(&mut graph, Op::Transpose, [v]);
    let product = node(&mut graph, Op::Product, [u, t]);
    let residual = binary(&mut graph, BinaryFunction::Subtract, s, product);
    let squares = binary(&mut graph, BinaryFunction::Power, residual, two);
    let mask = binary(&mut graph, BinaryFunction::NotEqual, s, zero);
    let masked = binary(&mut graph, BinaryFunction::Multiply, mask, squares);
    let weighted = binary(&mut graph, BinaryFunction::Multiply, s, squares);
    let squares = "sampled((s <> 0) * (sampled((s <> 0) * (s - sampled(";
    for (root, starts) in [(masked, squares.to_owned()), (weighted, format!("(s * {squares}"))] {
        let Rewritten { graph: new, root: new_root, .. } =
            rewrite(&graph, root, &[], &CostModel::default());
        let text = Written(&new, new_root).to_string();
        assert!(text.starts_with(&starts) && !text.contains("(u @ t(v)) ^"), "{text}");
        let [before, after] = [values(&graph).unwrap(), values(&new).unwrap()];
        let [before, after] = [cells(&before[root.index()]), cells(&after[new_root.index()])];
        // What is left of terms near one is as precise as they are.
        let bound = |a: f64| 1e-12 * a.abs().max(1.0);
        let differs = before.iter().zip(&after).any(|(&a, b)| (a - b).abs() > bound(a));
        assert!(!differs, "{text}");
    }
}

/// A graph as classes of one term each, and the classes of its nodes.
fn written<'a>(graph: &Graph, workbench: Workbench<'a>) -> (Classes<'a>, HashMap<NodeId, Id>) {
    let mut classes = Classes::new(workbench);
    let mut class_of: HashMap<NodeId, Id> = HashMap::new();
    for (id, node) in graph.nodes() {
        let inputs: Vec<Id> = node.inputs.iter().map(|input| class_of[input]).collect();
        class_of.insert(id, adopt(&mut classes, graph, id, &inputs));
    }
    (classes, class_of)
}

#[test]
fn rules_find_where_something_changed_all_that_they_find_anywhere() {
    let cost = CostModel::default();
    let bounds = Bounds { terms: 800, until: a_while() };
    let mut rounds = 0;
    for seed in 0..100 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut graph = Graph::default();
        for name in ["a", "b", "c"] {
            let operation = stored(name, Shape::new(3, 3), random.random_bool(0.3), &mut random);
            graph.add(operation, [], None).unwrap();
        }
        // That what is subtracted is zero is known after the first round.
        let (minus, zero) = (Op::Binary(BinaryFunction::Subtract), graph.constant(0.0));
        let zeros = graph.add(Op::Full(Shape::new(3, 3)), [zero], None).unwrap();
        let same = graph.add(minus.clone(), [zeros, zero], None).unwrap();
        graph.add(minus, [NodeId::default(), same], None).unwrap();
        while graph.len() < 14 {
            let _ = grow(&mut graph, &mut random);
        }
        let [(mut here, _), (mut anywhere, _)] =
            [(); 2].map(|()| written(&graph, Workbench::new(graph.unlabelled(), &[], &cost)));
        here.rebuild();
        anywhere.rebuild();
        while here.total_size() < bounds.terms {
            let is_new = try_all(&mut here, &bounds);
            let everything = |of: &Classes<'_>| of.classes().map(|class| class.id).collect();
            anywhere.analysis.changed = everything(&anywhere);
            let changes = Changes::take(&mut anywhere, RULES.iter());
            for rule in RULES.iter() {
                let count = |found: Vec<SearchMatches<'_, Term>>| -> usize {
                    found.iter().map(|found| found.substs.len()).sum()
                };
                let found = count(changes.matches(&anywhere, rule));
                assert_eq!(found, count(rule.left.search(&anywhere)), "{}", rule.text);
            }
            anywhere.analysis.changed = everything(&anywhere);
            assert_eq!(try_all(&mut anywhere, &bounds), is_new, "seed {seed}");
            let sizes = |of: &Classes<'_>| (of.number_of_classes(), of.total_number_of_nodes());
            assert_eq!(sizes(&here), sizes(&anywhere), "seed {seed}");
            if !is_new {
                break;
            }
            rounds += 1;
        }
    }
    assert!(rounds > 200, "only {rounds} rounds");
}

/// Later than any test goes on.
fn a_while() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[test]
fn terms_end_where_there_are_enough_and_where_it_is_late() {
    let mut graph = Graph::default();
    let mut random = SmallRng::seed_from_u64(1);
    let shape = Shape::new(30, 30);
    let leaves: Vec<NodeId> = (0..25)
        .map(|at| {
            graph.add(stored(&format!("x{at}"), shape, false, &mut random), [], None).unwrap()
        })
        .collect();
    let product = |left, right| graph.add(Op::Product, [left, right], None).unwrap();
    let root = leaves.into_iter().reduce(product).unwrap();
    let cost = CostModel::default();
    let terms_within = |bounds| {
        let workbench = Workbench::new(graph.unlabelled(), &[], &cost);
        let (mut classes, class_of) = written(&graph, workbench);
        saturate(&mut classes, &bounds);
        assert!(class_of.contains_key(&root));
        classes.total_size()
    };
    let enough = terms_within(Bounds { terms: 500, until: a_while() });
    // A right side and its slices are added whole.
    assert!((500..600).contains(&enough), "{enough}");
    // Slices and sums are looked for by hand, and there are none.
    let late = terms_within(Bounds { terms: 500, until: Instant::now() });
    assert_eq!(late, graph.len());
}
