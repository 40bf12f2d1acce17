//! Slices move to the cells they touch.

use super::*;

/// What rows and columns of an expression over `x` of 40x30 become, by their values checked.
fn sliced(build: impl Fn(&mut Graph, NodeId) -> NodeId, slices: &[(Axis, usize, usize)]) -> String {
    let mut graph = Graph::default();
    let x = stored("x", Shape::new(40, 30), false, &mut SmallRng::seed_from_u64(3));
    let x = graph.add(x, [], None).unwrap();
    let mut root = build(&mut graph, x);
    for &(axis, start, count) in slices {
        root = node(&mut graph, Op::Slice { axis, range: Span { start, count } }, [root]);
    }
    let mut constants = Constant::ALL.map(|constant| CostModel::default().constant(constant));
    constants[Constant::Steps.index()] = 1e-12;
    let Rewritten { graph: new, root: new_root, .. } =
        rewrite(&graph, root, &[], &CostModel::of(constants));
    let [before, after] = [values(&graph).unwrap(), values(&new).unwrap()];
    let [before, after] = [cells(&before[root.index()]), cells(&after[new_root.index()])];
    let text = Written(&new, new_root).to_string();
    let scale = 1.0 + largest(&before);
    assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1e-10 * scale), "{text}");
    text
}

#[test]
fn slices_reach_what_they_touch() {
    use Axis::{Columns, Rows};
    let square = |graph: &mut Graph, x: NodeId| node(graph, Op::Gram, [x]);
    let system = |graph: &mut Graph, x: NodeId| {
        let (gram, one) = (square(graph, x), graph.add(Op::Eye(30), [], None).unwrap());
        node(graph, Op::Binary(BinaryFunction::Add), [gram, one])
    };
    let inverse = |graph: &mut Graph, x: NodeId| {
        let system = system(graph, x);
        node(graph, Op::Inverse(None), [system])
    };
    let text = sliced(inverse, &[(Columns, 2, 3)]);
    assert!(text.starts_with("solve(") && text.contains("columns 3:5(eye(30))"), "{text}");
    let text = sliced(inverse, &[(Rows, 2, 3)]);
    assert!(text.contains("solve("), "{text}");

    let eye = |graph: &mut Graph, _: NodeId| graph.add(Op::Eye(1000), [], None).unwrap();
    assert_eq!(sliced(eye, &[(Rows, 5, 20), (Columns, 5, 20)]), "eye(20)");
    let range = |graph: &mut Graph, _: NodeId| {
        let [start, step] = [3.0, 2.0].map(Into::into);
        graph.add(Op::Range { start, step, count: 1000 }, [], None).unwrap()
    };
    assert_eq!(sliced(range, &[(Rows, 10, 5)]), "range(23, 33, 2)");
    // Halves are added up otherwise.
    let halves = |graph: &mut Graph, _: NodeId| {
        let [start, step] = [0.1, 0.1].map(Into::into);
        graph.add(Op::Range { start, step, count: 1000 }, [], None).unwrap()
    };
    assert!(sliced(halves, &[(Rows, 10, 5)]).starts_with("rows 11:15(range("));
    let diagonal = |graph: &mut Graph, x: NodeId| {
        let first = Op::Slice { axis: Columns, range: Span { start: 0, count: 1 } };
        let vector = node(graph, first, [x]);
        node(graph, Op::Diagonal, [vector])
    };
    let text = sliced(diagonal, &[(Rows, 4, 6), (Columns, 4, 6)]);
    assert!(text.starts_with("diag(") && text.contains("rows 5:10"), "{text}");
    let of_diagonal = |graph: &mut Graph, x: NodeId| {
        let square = square(graph, x);
        let tanh = node(graph, Op::Unary(UnaryFunction::Tanh), [square]);
        node(graph, Op::Diagonal, [tanh])
    };
    let text = sliced(of_diagonal, &[(Rows, 4, 6)]);
    assert!(text.starts_with("diag(tanh(") && !text.contains("gram(x)"), "{text}");
    let kron = |graph: &mut Graph, x: NodeId| node(graph, Op::Kronecker, [x, x]);
    let text = sliced(kron, &[(Rows, 45, 20)]);
    assert!(text.starts_with("kron(rows 2:2(x), rows 6:25(x))"), "{text}");
    let text = sliced(kron, &[(Columns, 29, 32)]);
    assert_eq!(text, "columns 30:61(kron(columns 1:3(x), x))");
    let sums = |graph: &mut Graph, x: NodeId| node(graph, Op::CumulativeSum, [x]);
    assert_eq!(sliced(sums, &[(Rows, 2, 3)]), "rows 3:5(cumsum(rows 1:5(x)))");
    assert_eq!(sliced(sums, &[(Rows, 0, 5)]), "cumsum(rows 1:5(x))");
    let reshaped = |graph: &mut Graph, x: NodeId| {
        let tanh = node(graph, Op::Unary(UnaryFunction::Tanh), [x]);
        node(graph, Op::Reshape(Shape::new(20, 60)), [tanh])
    };
    let text = sliced(reshaped, &[(Rows, 3, 2)]);
    assert_eq!(text, "reshape 2x60(tanh(rows 7:10(x)))");
}
