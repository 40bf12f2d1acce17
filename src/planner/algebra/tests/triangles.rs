//! What is known to be triangular is.

use super::*;

/// An operation that may keep a triangle, over some of these nodes.
fn may_keep_triangles(graph: &Graph, random: &mut SmallRng) -> (Op, Vec<NodeId>) {
    use BinaryFunction as F;
    let is_matrix = |(id, _): &(NodeId, &_)| graph.single(*id).is_ok();
    let nodes: Vec<NodeId> = graph.nodes().filter(is_matrix).map(|(id, _)| id).collect();
    let [a, b, c] = [(); 3].map(|()| *nodes.choose(random).unwrap());
    let shape = graph.node(a).shape();
    match random.random_range(0..16) {
        0 => (Op::Transpose, vec![a]),
        1 => (Op::Product, vec![a, b]),
        2 => (Op::Cross, vec![a, b]),
        3 => (Op::Outer, vec![a, b]),
        4 => (Op::Kronecker, vec![a, b]),
        5 => (Op::Inverse(None), vec![a]),
        6 => (Op::Exponential, vec![a]),
        7 => (Op::Select, vec![a, b, c]),
        8 => {
            let functions = [UnaryFunction::Negate, UnaryFunction::Tanh, UnaryFunction::IsNan];
            (Op::Unary(*functions.choose(random).unwrap()), vec![a])
        }
        9 => (Op::Diagonal, vec![a]),
        10 => {
            let (axis, size) =
                *[(Axis::Rows, shape.rows), (Axis::Columns, shape.columns)].choose(random).unwrap();
            let start = usize::from(random.random_bool(0.3)).min(size);
            let count = random.random_range(0..=size - start);
            (Op::Slice { axis, range: Span { start, count } }, vec![a])
        }
        _ => {
            let functions = [F::Add, F::Subtract, F::Multiply, F::Divide, F::Power, F::Less];
            (Op::Binary(*functions.choose(random).unwrap()), vec![a, b])
        }
    }
}

/// The value of an operation, where it has one.
fn value(operation: &Op, inputs: &[&Value]) -> Option<Value> {
    if let Op::Part(part) = operation {
        let decompositions = [Op::Lu, Op::Qr];
        let places = decompositions.iter().map(|of| Part::all(of).iter().position(|at| at == part));
        return Some(inputs[0].part(places.flatten().next()?).clone().into());
    }
    let cells: Vec<&Cells> =
        inputs.iter().map(|input| input.as_cells().ok()).collect::<Option<_>>()?;
    evaluate(operation, &cells, Stop::NEVER).ok()
}

#[test]
fn what_is_known_to_be_triangular_is_zero_elsewhere() {
    let [mut known_lower, mut known_upper] = [0; 2];
    for seed in 0..300 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut graph = Graph::default();
        let mut values: Vec<Option<Value>> = Vec::new();
        let mut add = |graph: &mut Graph, operation: Op, inputs: Vec<NodeId>| {
            let of: Option<Vec<&Value>> =
                inputs.iter().map(|input| values[input.index()].as_ref()).collect();
            let made = of.and_then(|of| value(&operation, &of));
            // Algebra is that of finite numbers; what is no number stays so.
            let is_infinite = |of: &Value| {
                of.as_cells().is_ok_and(|of| cells(of).iter().any(|cell| cell.is_infinite()))
            };
            let made = made.filter(|of| !is_infinite(of));
            let id = graph.add(operation, inputs, None).ok()?;
            if id.index() == values.len() {
                values.push(made);
            }
            Some(id)
        };
        let square = Shape::new(3, 3);
        for (name, triangle) in [("l", Triangle::Lower), ("u", Triangle::Upper)] {
            let full = stored(name, square, false, &mut random);
            add(&mut graph, triangular(name, &full, triangle), vec![]).unwrap();
        }
        add(&mut graph, Op::Eye(3), vec![]).unwrap();
        add(&mut graph, Op::Constant(2.0.into()), vec![]).unwrap();
        let full = stored("a", square, false, &mut random);
        let full = add(&mut graph, full, vec![]).unwrap();
        for (part, of) in [(Part::LuL, Op::Lu), (Part::LuU, Op::Lu), (Part::QrR, Op::Qr)] {
            let of = add(&mut graph, of, vec![full]).unwrap();
            add(&mut graph, Op::Part(part), vec![of]).unwrap();
        }
        let gram = add(&mut graph, Op::Gram, vec![full]).unwrap();
        add(&mut graph, Op::Cholesky, vec![gram]).unwrap();
        while graph.len() < 30 {
            let (operation, inputs) = may_keep_triangles(&graph, &mut random);
            add(&mut graph, operation, inputs);
        }
        let cost = CostModel::default();
        let mut workbench = Workbench::new(graph.unlabelled(), &[], &cost);
        workbench.looks_at_cells = true;
        let (mut classes, class_of) = written(&graph, workbench);
        saturate(&mut classes, &Bounds { terms: 400, until: a_while() });
        for (id, _) in graph.nodes() {
            let Some(cells) = values[id.index()].as_ref().and_then(|of| of.as_cells().ok()) else {
                continue;
            };
            let known = classes[class_of[&id]].data.as_ref().unwrap().triangular;
            let Shape { rows, columns } = cells.shape();
            let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
            for (row, column) in places {
                let cell = cells.cell(row, column);
                let is_outside =
                    (known.is_lower && column > row) || (known.is_upper && row > column);
                let text = Written(&graph, id);
                // An inverse rounds.
                let is_zero = cell.abs() < 1e-9 || cell.is_nan();
                assert!(!is_outside || is_zero, "seed {seed}: {text}: {cell} at {row}, {column}");
            }
            known_lower += usize::from(known.is_lower);
            known_upper += usize::from(known.is_upper);
        }
    }
    assert!(known_lower > 1000 && known_upper > 1000, "{known_lower} {known_upper}");
}
