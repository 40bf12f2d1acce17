//! What a sparse matrix multiplies is computed for its stored cells alone.

use super::*;

/// A function of cells over what stands in the graph, of `m` rows and `n` columns, so many functions deep.
fn cell_function(
    graph: &mut Graph,
    leaves: &[NodeId],
    depth: usize,
    random: &mut SmallRng,
) -> NodeId {
    if depth == 0 {
        return *leaves.choose(random).unwrap();
    }
    let mut of = |graph: &mut Graph| cell_function(graph, leaves, depth - 1, random);
    let (a, b, c) = (of(graph), of(graph), of(graph));
    let unary =
        [UnaryFunction::Tanh, UnaryFunction::Exp, UnaryFunction::Abs, UnaryFunction::Negate];
    let binary = [
        BinaryFunction::Add,
        BinaryFunction::Subtract,
        BinaryFunction::Multiply,
        BinaryFunction::Greatest,
        BinaryFunction::Less,
    ];
    match random.random_range(0..8) {
        0..3 => node(graph, Op::Unary(*unary.choose(random).unwrap()), [a]),
        3..7 => node(graph, Op::Binary(*binary.choose(random).unwrap()), [a, b]),
        _ => node(graph, Op::Select, [a, b, c]),
    }
}

#[test]
fn functions_of_cells_are_those_of_the_stored_ones() {
    let mut sampled = 0;
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut graph = Graph::default();
        let mut leaf = |graph: &mut Graph, name: &str, [rows, columns]: [usize; 2], is_sparse| {
            let operation = stored(name, Shape::new(rows, columns), is_sparse, &mut random);
            graph.add(operation, [], None).unwrap()
        };
        let (m, n) = (40, 30);
        let s = graph.add(scattered("s", Shape::new(m, n), 7), [], None).unwrap();
        let leaves = [
            leaf(&mut graph, "x", [m, n], false),
            leaf(&mut graph, "row", [1, n], false),
            leaf(&mut graph, "column", [m, 1], false),
            leaf(&mut graph, "y", [m, n], true),
            graph.constant(0.5),
        ];
        let (u, v) = (leaf(&mut graph, "u", [m, 3], false), leaf(&mut graph, "v", [3, n], false));
        let product = node(&mut graph, Op::Product, [u, v]);
        let leaves = [&leaves[..], &[product, product, s]].concat();
        let depth = random.random_range(1..4);
        let f = cell_function(&mut graph, &leaves, depth, &mut random);
        let zero = graph.constant(0.0);
        let driver = match random.random() {
            true => node(&mut graph, Op::Binary(BinaryFunction::NotEqual), [s, zero]),
            false => s,
        };
        let root = node(&mut graph, Op::Binary(BinaryFunction::Multiply), [driver, f]);
        let mut constants = Constant::ALL.map(|constant| CostModel::default().constant(constant));
        constants[Constant::Steps.index()] = 1e-12;
        let cost = CostModel::of(constants);
        let Rewritten { graph: new, root: new_root, .. } = rewrite(&graph, root, &[], &cost);
        let [before, after] = [values(&graph).unwrap(), values(&new).unwrap()];
        let [left, right] = [cells(&before[root.index()]), cells(&after[new_root.index()])];
        let text = Written(&new, new_root).to_string();
        let scale = 1.0 + before.iter().map(|value| largest(&cells(value))).fold(0.0, f64::max);
        // Algebra is that of finite numbers; a comparison may go either way where last digits decide.
        if scale.is_finite() && scale < 1e6 && !text.contains(" < ") {
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-11 * scale;
            assert!(left.iter().zip(&right).all(is_close), "seed {seed}: {text}");
        }
        sampled += usize::from(text.contains("sampled("));
        let mut whole = cost;
        whole.samples = false;
        let Rewritten { graph: new, root, .. } = rewrite(&graph, root, &[], &whole);
        assert!(!Written(&new, root).to_string().contains("sampled("));
    }
    assert!(sampled > 80, "only {sampled} were sampled");
}
