//! The matrix DAG: what an expression computes, with every shape checked.
//!
//! Enters: operations, one at a time, inputs before users. Leaves: a [`Graph`] in which equal
//! operations on equal inputs are one node, so a common subexpression is found by being built.
//! Not here: how anything is computed (`exec`), or what would be cheaper (`algebra`).
//!
//! A size is known, or [`Dim::Open`]: the rows of a query that has not run. Two different open sizes
//! are taken to agree here and compared again when the relation has run.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, ErrorKind, Place, Result};
use crate::exec::labels::{AxisLabels, LabelCheck};
use crate::exec::operation::{Axis, Operation, Part, Variable};
use crate::matrix::{Element, Labels, Shape};

use super::labels;
use super::relation::{Relation, RowOrder};

/// A node of one [`Graph`]; inputs have smaller numbers than their users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

impl NodeId {
    /// Its place in the graph's order.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A size: known while planning, or left open until a relation has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Dim {
    Known(usize),
    Open(u32),
}

impl Dim {
    pub(crate) const ONE: Dim = Dim::Known(1);

    pub(crate) fn known(self) -> Option<usize> {
        match self {
            Dim::Known(size) => Some(size),
            Dim::Open(_) => None,
        }
    }

    /// The size, or [`Shape::UNKNOWN`].
    fn or_unknown(self) -> usize {
        self.known().unwrap_or(Shape::UNKNOWN)
    }

    /// Whether the two differ for certain.
    pub(super) fn differs(self, other: Dim) -> bool {
        matches!((self, other), (Dim::Known(a), Dim::Known(b)) if a != b)
    }

    /// The better known of two sizes that agree.
    fn or(self, other: Dim) -> Dim {
        if self.known().is_some() { self } else { other }
    }
}

/// One operation with everything known about its result.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) operation: Operation,
    pub(crate) inputs: Vec<NodeId>,
    pub(crate) rows: Dim,
    pub(crate) columns: Dim,
    pub(crate) element: Element,
    /// Labels of the rows, then of the columns.
    pub(crate) labels: [AxisLabels; 2],
    /// Where the operation stands in the text.
    pub(crate) place: Option<Place>,
}

impl Node {
    /// Its shape, with [`Shape::UNKNOWN`] for an open size.
    pub(crate) fn shape(&self) -> Shape {
        Shape::new(self.rows.or_unknown(), self.columns.or_unknown())
    }

    /// Whether this is one row and one column for certain.
    pub(crate) fn is_scalar(&self) -> bool {
        self.rows == Dim::ONE && self.columns == Dim::ONE
    }
}

/// What an iteration carries from round to round.
#[derive(Debug, Clone)]
struct State {
    size: (Dim, Dim),
    labels: [AxisLabels; 2],
}

/// Matrix expressions over shared nodes; `roots` are the results asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// The relations that [`Operation::Relation`] numbers.
    pub(crate) relations: Vec<Relation>,
    /// The row labels before and after, of each [`Operation::Align`] by its number.
    pub(crate) alignments: Vec<[AxisLabels; 2]>,
    /// What must hold of labels once the relations have run.
    pub(crate) checks: Vec<LabelCheck>,
    /// Labellings that have been compared, and are equal: a product of many factors compares the same ones each time.
    pub(crate) equal_labels: Vec<[Arc<Labels>; 2]>,
    /// Whether this is about cells alone: labels have been checked, and nodes carry none.
    is_unlabelled: bool,
    known: FxHashMap<(Operation, Vec<NodeId>), NodeId>,
    variables: Vec<State>,
    open_sizes: u32,
    /// The sizes that count rows without an order, with the relation they come from.
    unordered: FxHashMap<Dim, usize>,
}

impl Graph {
    /// The nodes, inputs before users.
    pub(crate) fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId(index as u32), node))
    }

    /// The nodes from a number on.
    pub(crate) fn nodes_from(&self, start: usize) -> &[Node] {
        &self.nodes[start..]
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The inputs' nodes.
    pub(crate) fn inputs_of(&self, node: &Node) -> impl ExactSizeIterator<Item = &Node> {
        node.inputs.iter().map(|&input| self.node(input))
    }

    /// A new variable of the type of `start`, for the step of an iteration. Where `start` has no labels it has these.
    pub(crate) fn variable(&mut self, start: NodeId, labels: [AxisLabels; 2]) -> Variable {
        let Node { rows, columns, element, labels: own, .. } = self.node(start);
        let (size, element) = ((*rows, *columns), *element);
        let mut labels = labels;
        for (labels, own) in labels.iter_mut().zip(own) {
            if *own != AxisLabels::None {
                labels.clone_from(own);
            }
        }
        self.variables.push(State { size, labels });
        Variable { number: self.variables.len() as u32 - 1, element }
    }

    /// The labels of a variable.
    pub(crate) fn labels_of(&self, variable: Variable) -> &[AxisLabels; 2] {
        &self.variables[variable.number as usize].labels
    }

    /// Adds an operation, or finds it if it is there.
    ///
    /// # Errors
    /// Where the shapes or labels of the inputs do not fit, at `place`.
    pub(crate) fn add(
        &mut self,
        operation: Operation,
        inputs: impl Into<Vec<NodeId>>,
        place: Option<Place>,
    ) -> Result<NodeId> {
        let inputs = inputs.into();
        let key = (operation, inputs);
        if let Some(&id) = self.known.get(&key) {
            return Ok(id);
        }
        let (operation, inputs) = key.clone();
        let node = self.checked(operation, inputs, place).map_err(|error| error.at(place))?;
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        self.known.insert(key, id);
        Ok(id)
    }

    /// A graph over the same relations and variables with no nodes yet, for algebra: it is about cells
    /// alone, so nothing that is said of labels or of the order of rows is said again of other forms of the
    /// same expression.
    pub(crate) fn unlabelled(&self) -> Graph {
        Graph {
            relations: self.relations.clone(),
            alignments: self.alignments.clone(),
            checks: self.checks.clone(),
            is_unlabelled: true,
            variables: self.variables.clone(),
            open_sizes: self.open_sizes,
            ..Graph::default()
        }
    }

    /// The node of an operation over these inputs, if it is there.
    pub(crate) fn find(&self, operation: &Operation, inputs: Vec<NodeId>) -> Option<NodeId> {
        self.known.get(&(operation.clone(), inputs)).copied()
    }

    /// Adds a node of another graph over the same relations, with its sizes, over these inputs.
    pub(crate) fn adopt(&mut self, node: &Node, inputs: Vec<NodeId>) -> NodeId {
        debug_assert!(self.is_unlabelled, "labels hang on the inputs");
        let key = (node.operation.clone(), inputs.clone());
        let next = NodeId(self.nodes.len() as u32);
        let id = *self.known.entry(key).or_insert(next);
        if id == next {
            self.nodes.push(Node { inputs, labels: Default::default(), ..node.clone() });
        }
        id
    }

    /// The nodes that `root` needs, itself among them.
    pub(crate) fn needed(&self, root: NodeId) -> FxHashSet<NodeId> {
        let mut needed = FxHashSet::default();
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            if needed.insert(id) {
                open.extend(&self.node(id).inputs);
            }
        }
        needed
    }

    /// How often each node that `root` needs is read.
    pub(crate) fn readers(&self, root: NodeId) -> FxHashMap<NodeId, usize> {
        let mut readers = FxHashMap::default();
        for id in self.needed(root) {
            for &input in &self.node(id).inputs {
                *readers.entry(input).or_default() += 1;
            }
        }
        readers
    }

    /// Which nodes are others in each round of an iteration.
    pub(crate) fn varying(&self) -> Vec<bool> {
        let mut varies = vec![false; self.len()];
        for (id, node) in self.nodes() {
            let itself = matches!(node.operation, Operation::Variable(_) | Operation::Prior(_));
            let reads = node.inputs.iter().any(|input| varies[input.index()]);
            let ends = matches!(node.operation, Operation::Iterate(_));
            varies[id.index()] = itself || (reads && !ends);
        }
        varies
    }

    /// Whether the sizes of a node, and of all that it reads, are known before anything runs.
    pub(crate) fn is_sized(&self, id: NodeId) -> bool {
        let is_known = |id: NodeId| {
            let node = self.node(id);
            node.rows.known().and(node.columns.known()).is_some()
        };
        is_known(id) && self.node(id).inputs.iter().copied().all(is_known)
    }

    /// Gives a node a place in the text, unless it has one.
    pub(crate) fn stands_at(&mut self, id: NodeId, place: Option<Place>) {
        let node = &mut self.nodes[id.index()];
        node.place = node.place.or(place);
    }

    /// A 1x1 constant.
    pub(crate) fn constant(&mut self, value: f64) -> NodeId {
        self.add(Operation::Constant(value.into()), [], None)
            .expect("a constant has no shape to fail")
    }

    /// The constant a node is, if it is one.
    pub(crate) fn as_constant(&self, id: NodeId) -> Option<f64> {
        match self.node(id).operation {
            Operation::Constant(value) => Some(value.get()),
            _ => None,
        }
    }

    /// A relation as a leaf; equal relations are one.
    pub(crate) fn relation(&mut self, relation: Relation, place: Option<Place>) -> Result<NodeId> {
        let index =
            self.relations.iter().position(|known| *known == relation).unwrap_or_else(|| {
                self.relations.push(relation);
                self.relations.len() - 1
            });
        self.add(Operation::Relation(index), [], place)
    }

    /// Leaves a relation these columns alone, in ascending order, of which slices are all that is read; the root, which
    /// is another node where it was a slice of all of them.
    pub(crate) fn keep_columns(
        &mut self,
        id: NodeId,
        relation: Relation,
        columns: &[usize],
        root: NodeId,
    ) -> NodeId {
        let Operation::Relation(index) = self.node(id).operation else {
            unreachable!("the node of a relation")
        };
        let leaf = &mut self.nodes[id.index()];
        leaf.columns = Dim::Known(columns.len());
        leaf.labels = relation.labels(index);
        self.relations[index] = relation;
        let mut is_whole = FxHashSet::default();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if let Operation::Slice { axis: Axis::Columns, range } = &mut node.operation
                && node.inputs[0] == id
            {
                range.start = columns.partition_point(|&column| column < range.start);
                if range.count == columns.len() {
                    is_whole.insert(NodeId(at as u32));
                }
            }
        }
        let moved = |node: NodeId| if is_whole.contains(&node) { id } else { node };
        for node in &mut self.nodes {
            node.inputs.iter_mut().for_each(|input| *input = moved(*input));
        }
        let nodes = self.nodes.iter().enumerate();
        let known = nodes
            .map(|(at, node)| ((node.operation.clone(), node.inputs.clone()), NodeId(at as u32)));
        self.known = known.collect();
        moved(root)
    }

    /// The rows of one matrix in the order of another one's row labels.
    pub(crate) fn align(&mut self, inputs: [NodeId; 2], place: Option<Place>) -> Result<NodeId> {
        let labels = inputs.map(|input| self.node(input).labels[0].clone());
        let known = self.alignments.iter().position(|known| *known == labels);
        let number = known.unwrap_or_else(|| {
            self.alignments.push(labels);
            self.alignments.len() - 1
        });
        self.add(Operation::Align(number), inputs, place)
    }

    /// A size nobody knows yet.
    fn open(&mut self) -> Dim {
        self.open_sizes += 1;
        Dim::Open(self.open_sizes)
    }

    fn checked(
        &mut self,
        operation: Operation,
        inputs: Vec<NodeId>,
        place: Option<Place>,
    ) -> Result<Node> {
        if !matches!(operation, Operation::Part(_)) {
            for &input in &inputs {
                self.single(input)?;
            }
        }
        let (rows, columns) = self.sizes(&operation, &inputs)?;
        let element = self.element(&operation, &inputs);
        let mut node =
            Node { operation, inputs, rows, columns, element, labels: Default::default(), place };
        if self.is_unlabelled {
            return Ok(node);
        }
        let labelled = labels::of(self, &node)?;
        node.labels = labelled.labels;
        self.equal_labels.extend(labelled.equal);
        for check in labelled.checks {
            if !self.checks.contains(&check) {
                self.checks.push(check);
            }
        }
        Ok(node)
    }

    /// # Errors
    /// Where a node is a decomposition, which has several results.
    pub(crate) fn single(&self, id: NodeId) -> Result<()> {
        let operation = &self.node(id).operation;
        let parts = Part::all(operation);
        if parts.is_empty() {
            return Ok(());
        }
        let fields: Vec<String> = parts.iter().map(|part| format!(".{}", part.name())).collect();
        let message = format!("has several results; pick one of {}", fields.join(", "));
        Err(Error::argument(operation.name(), message))
    }

    /// The element of a result: that of its inputs, where a literal number takes the other's.
    fn element(&self, operation: &Operation, inputs: &[NodeId]) -> Element {
        match operation {
            Operation::Stored(stored) => stored.matrix.element(),
            Operation::Relation(index) => self.relations[*index].intake.element,
            Operation::Cast(element) => *element,
            Operation::Variable(variable) | Operation::Prior(variable) => variable.element,
            _ => inputs
                .iter()
                .filter(|&&input| self.as_constant(input).is_none())
                .map(|&input| self.node(input).element)
                .reduce(Element::common)
                .unwrap_or(Element::Float64),
        }
    }

    /// The shape rule of every operation.
    fn sizes(&mut self, operation: &Operation, inputs: &[NodeId]) -> Result<(Dim, Dim)> {
        use Operation as Op;
        let of = |graph: &Graph, at: usize| {
            let node = graph.node(inputs[at]);
            (node.rows, node.columns)
        };
        let shape = |graph: &Graph, at: usize| graph.node(inputs[at]).shape();
        let name = operation.name();
        Ok(match operation {
            Op::Stored(stored) => {
                let shape = stored.matrix.shape();
                (Dim::Known(shape.rows), Dim::Known(shape.columns))
            }
            Op::Relation(index) => {
                let relation = &self.relations[*index];
                let columns = relation.width().map(Dim::Known);
                let square = relation.is_square();
                let unordered = relation.order == RowOrder::Undefined;
                let rows = self.open();
                if unordered && !self.is_unlabelled {
                    self.unordered.insert(rows, *index);
                }
                let columns = match columns {
                    Some(known) => known,
                    None if square => rows,
                    None => self.open(),
                };
                (rows, columns)
            }
            Op::Variable(variable) | Op::Prior(variable) => {
                self.variables[variable.number as usize].size
            }
            Op::Constant(_) => (Dim::ONE, Dim::ONE),
            Op::Eye(n) => (Dim::Known(*n), Dim::Known(*n)),
            Op::Random { shape, .. } => (Dim::Known(shape.rows), Dim::Known(shape.columns)),
            Op::Full(shape) => {
                if !self.node(inputs[0]).is_scalar() {
                    let shape = self.node(inputs[0]).shape();
                    return Err(needs("full", "a scalar value", shape));
                }
                (Dim::Known(shape.rows), Dim::Known(shape.columns))
            }
            Op::Range { count, .. } => (Dim::Known(*count), Dim::ONE),
            Op::Diagonal => match of(self, 0) {
                (Dim::ONE, columns) if columns != Dim::ONE => (columns, columns),
                (rows, Dim::ONE) => (rows, rows),
                (Dim::Known(m), Dim::Known(n)) => (Dim::Known(m.min(n)), Dim::ONE),
                _ => (self.open(), Dim::ONE),
            },
            Op::Unary(_) | Op::Cast(_) | Op::Store(_) | Op::Normalize { .. } => of(self, 0),
            Op::CumulativeSum => of(self, 0),
            // The window is made for these columns.
            Op::Convolve(window) => {
                let filters = of(self, 1).0.known();
                let columns = filters.and_then(|n| n.checked_mul(window.places().area()));
                (of(self, 0).0, columns.map_or_else(|| self.open(), Dim::Known))
            }
            Op::Pool(_, window) => {
                (of(self, 0).0, Dim::Known(window.channels * window.places().area()))
            }
            Op::Binary(function) => self.broadcast(function.name(), &[inputs[0], inputs[1]])?,
            Op::Select => self.broadcast("where", inputs)?,
            Op::Transpose => {
                let (rows, columns) = of(self, 0);
                (columns, rows)
            }
            Op::Reshape(to) => {
                let from = shape(self, 0);
                if let (Dim::Known(m), Dim::Known(n)) = of(self, 0)
                    && m.checked_mul(n) != to.rows.checked_mul(to.columns)
                {
                    return Err(ErrorKind::Argument {
                        function: "reshape".into(),
                        message: format!("the {} cells of a {from} matrix do not fill {to}", m * n),
                    }
                    .into());
                }
                (Dim::Known(to.rows), Dim::Known(to.columns))
            }
            Op::Stack(Axis::Columns) => {
                // Beside one another: rows agree, columns add up.
                let rows = self.agreed(inputs, |node| node.rows, "hstack", "equally many rows")?;
                (rows, self.total(inputs, |node| node.columns))
            }
            Op::Stack(Axis::Rows) => {
                let columns =
                    self.agreed(inputs, |node| node.columns, "vstack", "equally many columns")?;
                (self.total(inputs, |node| node.rows), columns)
            }
            Op::Slice { axis: Axis::Rows, range } => (Dim::Known(range.count), of(self, 0).1),
            Op::Slice { axis: Axis::Columns, range } => (of(self, 0).0, Dim::Known(range.count)),
            Op::Align(_) => (of(self, 1).0, of(self, 0).1),
            Op::Reduce { axis, .. } => match axis {
                None => (Dim::ONE, Dim::ONE),
                Some(Axis::Rows) => (of(self, 0).0, Dim::ONE),
                Some(Axis::Columns) => (Dim::ONE, of(self, 0).1),
            },
            Op::Count(_) => (Dim::ONE, Dim::ONE),
            Op::Product => {
                let ((m, inner), (rows, n)) = (of(self, 0), of(self, 1));
                if !self.fit(inner, rows)? {
                    let (left, right) = (shape(self, 0), shape(self, 1));
                    return Err(ErrorKind::Product { left, right }.into());
                }
                (m, n)
            }
            Op::Gram => (of(self, 0).1, of(self, 0).1),
            Op::Cross | Op::HalfCross => {
                if !self.fit(of(self, 0).0, of(self, 1).0)? {
                    let (left, right) = (shape(self, 0).transposed(), shape(self, 1));
                    return Err(ErrorKind::Product { left, right }.into());
                }
                (of(self, 0).1, of(self, 1).1)
            }
            Op::Outer => {
                if !self.fit(of(self, 0).1, of(self, 1).1)? {
                    let (left, right) = (shape(self, 0), shape(self, 1).transposed());
                    return Err(ErrorKind::Product { left, right }.into());
                }
                (of(self, 0).0, of(self, 1).0)
            }
            Op::Sampled => {
                let ((m, n), (rows, inner), (columns, other)) =
                    (of(self, 0), of(self, 1), of(self, 2));
                if m.differs(rows) || n.differs(columns) || inner.differs(other) {
                    let (left, right) = (shape(self, 1), shape(self, 2).transposed());
                    return Err(ErrorKind::Product { left, right }.into());
                }
                (m, n)
            }
            Op::SampledCells(_) => {
                let (m, n) = of(self, 0);
                let stretches = |side: Dim, to: Dim| side == Dim::ONE || !side.differs(to);
                for at in 1..inputs.len() {
                    let (rows, columns) = of(self, at);
                    if !stretches(rows, m) || !stretches(columns, n) {
                        let (left, right) = (shape(self, 0), shape(self, at));
                        let needs = "equal shapes, or a scalar, a row or a column on one side";
                        let operation = operation.name().to_owned();
                        return Err(ErrorKind::Shapes { operation, needs, left, right }.into());
                    }
                }
                (m, n)
            }
            Op::Kronecker => {
                let ((m, n), (p, q)) = (of(self, 0), of(self, 1));
                let product =
                    |a: Dim, b: Dim| Some(Dim::Known(a.known()?.checked_mul(b.known()?)?));
                let rows = product(m, p);
                let columns = product(n, q);
                (rows.unwrap_or_else(|| self.open()), columns.unwrap_or_else(|| self.open()))
            }
            Op::Solve(_) | Op::LeastSquares => {
                let ((m, n), (rows, k)) = (of(self, 0), of(self, 1));
                if matches!(operation, Op::Solve(_)) && m.differs(n) {
                    return Err(needs(name, "a square matrix first", shape(self, 0)));
                }
                if !self.fit(m, rows)? {
                    return Err(ErrorKind::Shapes {
                        operation: name.into(),
                        needs: "equally many rows",
                        left: shape(self, 0),
                        right: shape(self, 1),
                    }
                    .into());
                }
                (n, k)
            }
            Op::Inverse(_)
            | Op::Exponential
            | Op::Logarithm
            | Op::Cholesky
            | Op::Eigen { .. }
            | Op::ComplexEigen => {
                let (m, n) = of(self, 0);
                if m.differs(n) {
                    return Err(needs(name, "a square matrix", shape(self, 0)));
                }
                (m.or(n), n.or(m))
            }
            Op::Determinant(_) | Op::Trace => {
                let (m, n) = of(self, 0);
                if m.differs(n) {
                    return Err(needs(name, "a square matrix", shape(self, 0)));
                }
                (Dim::ONE, Dim::ONE)
            }
            Op::PseudoInverse => (of(self, 0).1, of(self, 0).0),
            Op::Rank => (Dim::ONE, Dim::ONE),
            Op::Lu | Op::Qr | Op::Svd { .. } => of(self, 0),
            Op::Part(part) => {
                let (m, n) = of(self, 0);
                let least = match (m, n) {
                    (Dim::Known(m), Dim::Known(n)) => Dim::Known(m.min(n)),
                    // One size serves all parts of a decomposition.
                    _ => Dim::Open(u32::MAX - inputs[0].0),
                };
                let rank = match self.node(inputs[0]).operation {
                    Op::Svd { rank: Some(k) } | Op::Eigen { rank: Some(k) } => match least {
                        Dim::Known(least) => Dim::Known(least.min(k)),
                        open => open,
                    },
                    Op::Eigen { .. } | Op::ComplexEigen => m,
                    _ => least,
                };
                match part {
                    Part::LuP => (m, m),
                    Part::LuL | Part::QrQ | Part::SvdU => (m, rank),
                    Part::LuU | Part::QrR | Part::SvdVt => (rank, n),
                    Part::SvdS
                    | Part::EigenValues
                    | Part::ComplexValuesRe
                    | Part::ComplexValuesIm => (rank, Dim::ONE),
                    Part::EigenVectors | Part::ComplexVectorsRe | Part::ComplexVectorsIm => {
                        (m, rank)
                    }
                }
            }
            Op::Iterate(_) => {
                let ((m, n), (rows, columns)) = (of(self, 0), of(self, 1));
                if m.differs(rows) || n.differs(columns) {
                    return Err(ErrorKind::Shapes {
                        operation: "ITERATE".into(),
                        needs: "a step of the shape of its beginning",
                        left: shape(self, 0),
                        right: shape(self, 1),
                    }
                    .into());
                }
                (m.or(rows), n.or(columns))
            }
        })
    }

    /// Whether two sizes along which cells meet may be equal.
    ///
    /// # Errors
    /// Where one counts rows in no defined order and the other does not count the same rows.
    fn fit(&self, a: Dim, b: Dim) -> Result<bool> {
        let unordered = |size: Dim| self.unordered.get(&size);
        match unordered(a).or(unordered(b)) {
            Some(&index) if a != b => {
                let relation = self.relations[index].name.clone();
                Err(ErrorKind::Unordered { relation }.into())
            }
            _ => Ok(!a.differs(b)),
        }
    }

    /// NumPy's broadcasting of scalars, rows and columns over two or three operands.
    fn broadcast(&self, operation: &str, inputs: &[NodeId]) -> Result<(Dim, Dim)> {
        let mut result = (Dim::ONE, Dim::ONE);
        let mut widest = inputs[0];
        for &input in inputs {
            let node = self.node(input);
            let stretched = |a: Dim, b: Dim| match (a, b) {
                (Dim::ONE, other) | (other, Dim::ONE) => Ok(Some(other)),
                (a, b) => Ok::<_, Error>(self.fit(a, b)?.then(|| a.or(b))),
            };
            match (stretched(result.0, node.rows)?, stretched(result.1, node.columns)?) {
                (Some(rows), Some(columns)) => result = (rows, columns),
                _ => {
                    let (left, right) = (self.node(widest).shape(), node.shape());
                    let needs = "equal shapes, or a scalar, a row or a column on one side";
                    let operation = operation.to_owned();
                    return Err(ErrorKind::Shapes { operation, needs, left, right }.into());
                }
            }
            if self.node(widest).is_scalar() {
                widest = input;
            }
        }
        Ok(result)
    }

    /// A size that all inputs share.
    fn agreed(
        &self,
        inputs: &[NodeId],
        size: impl Fn(&Node) -> Dim,
        operation: &str,
        needs: &'static str,
    ) -> Result<Dim> {
        let first = self.node(inputs[0]);
        let mut agreed = size(first);
        for &input in &inputs[1..] {
            let node = self.node(input);
            if !self.fit(agreed, size(node))? {
                let (left, right) = (first.shape(), node.shape());
                let operation = operation.to_owned();
                return Err(ErrorKind::Shapes { operation, needs, left, right }.into());
            }
            agreed = agreed.or(size(node));
        }
        Ok(agreed)
    }

    /// The sum of a size over all inputs.
    fn total(&mut self, inputs: &[NodeId], size: impl Fn(&Node) -> Dim) -> Dim {
        let known: Option<usize> = inputs.iter().map(|&input| size(self.node(input)).known()).sum();
        known.map_or_else(|| self.open(), Dim::Known)
    }
}

fn needs(function: &str, needs: &'static str, shape: Shape) -> Error {
    ErrorKind::ShapeOf { function: function.into(), needs, shape }.into()
}
