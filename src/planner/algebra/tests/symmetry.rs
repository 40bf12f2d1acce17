//! Of symmetric products half is computed.

use super::*;

/// A symmetric matrix of this side, at hand.
fn symmetric(graph: &mut Graph, name: &str, side: usize) -> NodeId {
    let cells = (0..side * side).map(|at| (at / side * (at % side)) as f64 / side as f64);
    let matrix = Matrix::from_row_major(Shape::new(side, side), cells.collect());
    let stored = Stored::new(name, Arc::new(matrix.unwrap()));
    graph.add(Op::Stored(stored), [], None).unwrap()
}

#[test]
fn symmetric_products_are_halves() {
    let multiply = Op::Binary(BinaryFunction::Multiply);
    // t(x) @ (w * x), as weights of rows, of columns, or as a diagonal matrix.
    let sizes = [("x", 900, 300), ("w", 900, 1)];
    let weighted = rewritten(&sizes, |graph, leaves| {
        let scaled = node(graph, multiply.clone(), [leaves[1], leaves[0]]);
        let turned = node(graph, Op::Transpose, [leaves[0]]);
        node(graph, Op::Product, [turned, scaled])
    });
    assert!(weighted.starts_with("half_cross("), "{weighted}");
    let by_diagonal = rewritten(&sizes, |graph, leaves| {
        let turned = node(graph, Op::Transpose, [leaves[0]]);
        let diagonal = node(graph, Op::Diagonal, [leaves[1]]);
        let left = node(graph, Op::Product, [turned, diagonal]);
        node(graph, Op::Product, [left, leaves[0]])
    });
    assert!(by_diagonal.starts_with("half_cross("), "{by_diagonal}");
    let first = rewritten(&sizes, |graph, leaves| {
        let scaled = node(graph, multiply.clone(), [leaves[0], leaves[1]]);
        let turned = node(graph, Op::Transpose, [scaled]);
        node(graph, Op::Product, [turned, leaves[0]])
    });
    assert!(first.starts_with("half_cross("), "{first}");
    let of_columns = rewritten(&[("x", 900, 300), ("r", 1, 300)], |graph, leaves| {
        let scaled = node(graph, multiply.clone(), [leaves[0], leaves[1]]);
        let turned = node(graph, Op::Transpose, [leaves[0]]);
        node(graph, Op::Product, [scaled, turned])
    });
    assert!(of_columns.starts_with("half_cross("), "{of_columns}");

    // a @ s @ t(a), s @ s and t(s), where s is looked at.
    let with_symmetric = |build: &dyn Fn(&mut Graph, NodeId, NodeId) -> NodeId| {
        let mut graph = Graph::default();
        let s = symmetric(&mut graph, "s", 300);
        let a = stored("a", Shape::new(500, 300), false, &mut SmallRng::seed_from_u64(1));
        let a = graph.add(a, [], None).unwrap();
        let root = build(&mut graph, s, a);
        let Rewritten { graph: new, root: new_root, .. } =
            rewrite(&graph, root, &[], &CostModel::default());
        let [before, after] = [values(&graph).unwrap(), values(&new).unwrap()];
        let [before, after] = [cells(&before[root.index()]), cells(&after[new_root.index()])];
        let scale = largest(&before);
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1e-12 * scale));
        Written(&new, new_root).to_string()
    };
    let text = with_symmetric(&|graph, s, a| {
        let left = node(graph, Op::Product, [a, s]);
        let turned = node(graph, Op::Transpose, [a]);
        node(graph, Op::Product, [left, turned])
    });
    assert!(text.starts_with("half_cross("), "{text}");
    let text = with_symmetric(&|graph, s, _| node(graph, Op::Product, [s, s]));
    assert_eq!(text, "gram(s)");
    let text = with_symmetric(&|graph, s, a| {
        let turned = node(graph, Op::Transpose, [s]);
        node(graph, Op::Product, [a, turned])
    });
    assert_eq!(text, "(a @ s)");
    // What is not symmetric is not taken for it.
    let text = rewritten(&[("x", 300, 300)], |graph, leaves| {
        let odd = graph.add(
            stored("odd", Shape::new(300, 300), false, &mut SmallRng::seed_from_u64(2)),
            [],
            None,
        );
        let odd = odd.unwrap();
        let left = node(graph, Op::Product, [leaves[0], odd]);
        let turned = node(graph, Op::Transpose, [leaves[0]]);
        node(graph, Op::Product, [left, turned])
    });
    assert!(!text.contains("half_cross"), "{text}");
}
