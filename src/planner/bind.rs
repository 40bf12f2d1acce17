//! Names and syntax become nodes: a matrix expression is bound to a [`Graph`].
//!
//! Enters: an expression as parsed, and a [`Scope`] that knows what its names stand for. Leaves: a
//! node whose shape, type and labels are checked, with the place of every error. Functions by name
//! are in `planner::functions`, subscripts in `planner::subscript`.

use sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField,
    DuplicateTreatment, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

use super::graph::{Dim, Graph, NodeId};
use super::relation::Relation;
use super::relation::RowOrder;
use crate::error::{Error, ErrorKind, Place, Result};
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::labels::AxisLabels;
use crate::exec::operation::{Axis, Counted, Iteration, Operation, Part, Stored, Variable};
use crate::matrix::Element;
use crate::sql::{self, Axes, MatrixQuery, Reading, place_of_name};

/// What names stand for while one expression is bound.
pub(crate) trait Scope {
    /// A matrix of the catalog.
    fn matrix(&mut self, name: &str) -> Option<Stored>;

    /// A table, view or common table expression as a matrix leaf.
    fn table(&mut self, name: &ObjectName) -> Result<Relation>;

    /// A query as a matrix leaf.
    fn query(&mut self, query: &MatrixQuery) -> Result<Relation>;

    /// How relations are read from here on.
    fn reading(&mut self) -> &mut Reading;

    /// The value of a placeholder such as `$1`.
    fn parameter(&mut self, name: &str) -> Result<Parameter>;

    /// The relation as a matrix at hand, where it has been run for this statement.
    fn held(&self, relation: &Relation) -> Option<Stored>;

    /// Asks for the relation to be run before the statement is planned again.
    fn want(&mut self, relation: Relation);

    /// A seed for random cells that were given none.
    fn seed(&mut self) -> u64;
}

/// What a placeholder stands for.
pub(crate) enum Parameter {
    Number(f64),
    Matrix(Stored),
}

/// Binds expressions into one graph.
pub(crate) struct Binder<'a> {
    pub(super) graph: Graph,
    pub(super) scope: &'a mut dyn Scope,
    /// The variables of the iterations around the expression, the innermost last.
    variables: Vec<Bound>,
}

struct Bound {
    name: String,
    last: NodeId,
    prior: NodeId,
}

/// A call's arguments: those by position and those by name.
pub(super) struct Arguments<'e> {
    pub(super) function: String,
    pub(super) place: Option<Place>,
    pub(super) positional: Vec<&'e Expr>,
    pub(super) named: Vec<(&'e Ident, &'e Expr)>,
}

impl<'a> Binder<'a> {
    pub(crate) fn new(scope: &'a mut dyn Scope) -> Self {
        Self { graph: Graph::default(), scope, variables: Vec::new() }
    }

    /// The graph of everything bound so far.
    pub(crate) fn into_graph(self) -> Graph {
        self.graph
    }

    /// Binds one expression.
    ///
    /// # Errors
    /// Unknown names, and shapes, types or labels that do not fit, each at its place.
    pub(crate) fn expression(&mut self, expr: &Expr) -> Result<NodeId> {
        self.placed(expr).map(|(id, _)| id)
    }

    /// Binds one expression, and says where it stands. An operator stands where the first of its operands does, which
    /// is handed up: to look for it from each operator takes the square of their number.
    fn placed(&mut self, expr: &Expr) -> Result<(NodeId, Option<Place>)> {
        let (bound, place) = match expr {
            Expr::Nested(inner) => return self.placed(inner),
            Expr::BinaryOp { left, op, right } => {
                let operands = self.placed(left).and_then(|left| Ok((left, self.placed(right)?)));
                let ((left, start), (right, other)) =
                    operands.map_err(|error| error.at(sql::place_of(expr)))?;
                let place = start.into_iter().chain(other).min();
                (self.operator(op, left, right, place), place)
            }
            _ => {
                let place = sql::place_of(expr);
                (self.bind(expr, place), place)
            }
        };
        bound.map(|id| (id, place)).map_err(|error| error.at(place))
    }

    fn bind(&mut self, expr: &Expr, place: Option<Place>) -> Result<NodeId> {
        if let Some(name) = sql::as_named_relation(expr) {
            let relation = self.scope.table(name).map_err(|error| error.at(place))?;
            return self.leaf(relation, place);
        }
        if let Some(query) = sql::as_relation(expr) {
            let relation = self.scope.query(&query).map_err(|error| error.at(place))?;
            return self.leaf(relation, place);
        }
        if let Some((inner, reading)) = sql::as_reading(expr) {
            let outer = *self.scope.reading();
            *self.scope.reading() = reading.or(outer);
            let bound = self.expression(inner);
            *self.scope.reading() = outer;
            return bound;
        }
        match expr {
            Expr::Value(value) => self.value(&value.value),
            Expr::Identifier(name) => self.name(name),
            Expr::CompoundIdentifier(parts) => self.fields(parts),
            Expr::Subquery(query) => {
                let query = MatrixQuery { query: query.clone(), axes: Axes::Unlabelled };
                let relation = self.scope.query(&query).map_err(|error| error.at(place))?;
                self.leaf(relation, place)
            }
            Expr::UnaryOp { op, expr } => {
                let input = self.expression(expr)?;
                match op {
                    UnaryOperator::Plus => Ok(input),
                    UnaryOperator::Minus => self.unary(UnaryFunction::Negate, input, place),
                    UnaryOperator::Not => self.unary(UnaryFunction::Not, input, place),
                    other => Err(unsupported(format!("the operator {other}"))),
                }
            }
            Expr::Between { expr, negated, low, high } => {
                let value = self.expression(expr)?;
                let (low, high) = (self.expression(low)?, self.expression(high)?);
                let above = self.binary(BinaryFunction::GreaterEqual, value, low, place)?;
                let below = self.binary(BinaryFunction::LessEqual, value, high, place)?;
                let between = self.binary(BinaryFunction::And, above, below, place)?;
                self.negated(*negated, between, place)
            }
            Expr::InList { expr, list, negated } => {
                let value = self.expression(expr)?;
                let mut found = self.graph.constant(0.0);
                for (at, item) in list.iter().enumerate() {
                    let item = self.expression(item)?;
                    let equal = self.binary(BinaryFunction::Equal, value, item, place)?;
                    found = if at == 0 {
                        equal
                    } else {
                        self.binary(BinaryFunction::Or, found, equal, place)?
                    };
                }
                self.negated(*negated, found, place)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), place)
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, ..
            } => {
                let input = self.expression(expr)?;
                let element = element_of_type(data_type)?;
                self.cast(input, element, place)
            }
            // The parser has nodes of their own for two functions, for `floor(x TO DAY)` is one too.
            Expr::Floor { expr: inner, field } if is_plain(field) => {
                let input = self.expression(inner)?;
                self.unary(UnaryFunction::Floor, input, place)
            }
            Expr::Ceil { expr: inner, field } if is_plain(field) => {
                let input = self.expression(inner)?;
                self.unary(UnaryFunction::Ceil, input, place)
            }
            Expr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain),
            Expr::Function(function) => self.call(function, place),
            other => Err(unsupported(format!("'{other}'"))),
        }
    }

    fn value(&mut self, value: &Value) -> Result<NodeId> {
        match value {
            Value::Number(text, _) => {
                let number = text.parse::<f64>();
                let number = number.map_err(|_| Error::syntax(format!("'{text}' is no number")))?;
                Ok(self.graph.constant(number))
            }
            Value::Boolean(truth) => Ok(self.graph.constant(f64::from(u8::from(*truth)))),
            Value::Placeholder(name) => match self.scope.parameter(name)? {
                Parameter::Number(number) => Ok(self.graph.constant(number)),
                Parameter::Matrix(stored) => self.graph.add(Operation::Stored(stored), [], None),
            },
            Value::Null => {
                Err(Error::argument("NULL", "a matrix has no NULL cells; NaN is 0.0 / 0.0"))
            }
            other => Err(Error::argument(
                other.to_string(),
                "text stands in a matrix expression only as a label in a subscript",
            )),
        }
    }

    fn name(&mut self, name: &Ident) -> Result<NodeId> {
        let place = place_of_name(name);
        let text = sql::normalized(name);
        if let Some(bound) = self.variables.iter().rev().find(|bound| bound.name == text) {
            return Ok(bound.last);
        }
        if let Some(stored) = self.scope.matrix(&text) {
            return self.graph.add(Operation::Stored(stored), [], place);
        }
        let hint = "; a matrix expression reads matrices, tables, views and queries".to_owned();
        Err(ErrorKind::Unknown { what: "matrix or table", name: text, hint }.into())
    }

    /// `x.T`, or a name with its schema.
    fn fields(&mut self, parts: &[Ident]) -> Result<NodeId> {
        let (last, before) = parts.split_last().expect("a compound identifier has parts");
        let [name] = before else {
            let name = parts.iter().map(Ident::to_string).collect::<Vec<_>>().join(".");
            let hint = String::new();
            return Err(ErrorKind::Unknown { what: "matrix or table", name, hint }.into());
        };
        let root = self.name(name).map_err(|error| error.at(place_of_name(name)))?;
        self.field(root, last)
    }

    /// A field of a decomposition, or the transpose.
    fn field(&mut self, root: NodeId, field: &Ident) -> Result<NodeId> {
        let place = place_of_name(field);
        if field.value.eq_ignore_ascii_case("t") {
            return self.graph.add(Operation::Transpose, [root], place);
        }
        let parts = Part::all(&self.graph.node(root).operation);
        match parts.iter().find(|part| part.name().eq_ignore_ascii_case(&field.value)) {
            Some(part) => self.graph.add(Operation::Part(*part), [root], place),
            None => {
                let names: Vec<_> = parts.iter().map(|part| format!(".{}", part.name())).collect();
                let hint = match names.as_slice() {
                    [] => "; x.T is the transpose".to_owned(),
                    names => format!("; there are {}", names.join(", ")),
                };
                let name = field.value.clone();
                Err(Error::from(ErrorKind::Unknown { what: "field", name, hint }).at(place))
            }
        }
    }

    /// Subscripts and fields after an expression. Two subscripts belong together: `x[i][j]`.
    fn access(&mut self, root: &Expr, chain: &[AccessExpr]) -> Result<NodeId> {
        let mut node = self.expression(root)?;
        let mut rest = chain;
        while let Some((first, after)) = rest.split_first() {
            match first {
                AccessExpr::Dot(Expr::Identifier(field)) => {
                    node = self.field(node, field)?;
                    rest = after;
                }
                AccessExpr::Dot(other) => return Err(unsupported(format!("'.{other}'"))),
                AccessExpr::Subscript(rows) => {
                    let [AccessExpr::Subscript(columns), after @ ..] = after else {
                        return Err(Error::argument(
                            "subscript",
                            "a matrix takes two, x[rows, columns]; ':' stands for all",
                        ));
                    };
                    node = self.subscript(node, rows, Axis::Rows)?;
                    node = self.subscript(node, columns, Axis::Columns)?;
                    rest = after;
                }
            }
        }
        Ok(node)
    }

    fn operator(
        &mut self,
        operator: &BinaryOperator,
        left: NodeId,
        right: NodeId,
        place: Option<Place>,
    ) -> Result<NodeId> {
        use BinaryFunction as F;
        let function = match operator {
            BinaryOperator::Custom(text) if text == "@" => {
                return self.graph.add(Operation::Product, [left, right], place);
            }
            BinaryOperator::Custom(text) if text == "^" => F::Power,
            BinaryOperator::PGExp | BinaryOperator::BitwiseXor => F::Power,
            BinaryOperator::Plus => F::Add,
            BinaryOperator::Minus => F::Subtract,
            BinaryOperator::Multiply => F::Multiply,
            BinaryOperator::Divide => F::Divide,
            BinaryOperator::Eq => F::Equal,
            BinaryOperator::NotEq => F::NotEqual,
            BinaryOperator::Lt => F::Less,
            BinaryOperator::LtEq => F::LessEqual,
            BinaryOperator::Gt => F::Greater,
            BinaryOperator::GtEq => F::GreaterEqual,
            BinaryOperator::And => F::And,
            BinaryOperator::Or => F::Or,
            other => return Err(unsupported(format!("the operator {other}"))),
        };
        self.binary(function, left, right, place)
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
        place: Option<Place>,
    ) -> Result<NodeId> {
        let operand = operand.map(|operand| self.expression(operand)).transpose()?;
        let Some(otherwise) = otherwise else {
            return Err(Error::argument("CASE", "needs ELSE, for a matrix has no NULL cells"));
        };
        let mut result = self.expression(otherwise)?;
        for when in conditions.iter().rev() {
            let mut condition = self.expression(&when.condition)?;
            if let Some(operand) = operand {
                condition = self.binary(BinaryFunction::Equal, operand, condition, place)?;
            }
            let chosen = self.expression(&when.result)?;
            result = self.select([condition, chosen, result], place)?;
        }
        Ok(result)
    }

    fn call(&mut self, function: &Function, place: Option<Place>) -> Result<NodeId> {
        let name = function.name.to_string().to_ascii_lowercase();
        let arguments = self.arguments(&name, function, place)?;
        match name.as_str() {
            "iterate" => self.iterate(&arguments),
            "prior" => {
                let [Expr::Identifier(variable)] = arguments.positional[..] else {
                    return Err(Error::argument("prior", "takes the variable of an ITERATE"));
                };
                let text = sql::normalized(variable);
                let bound = self.variables.iter().rev().find(|bound| bound.name == text);
                bound.map(|bound| bound.prior).ok_or_else(|| {
                    let hint = "; prior(r) stands inside ITERATE(r => …)".to_owned();
                    ErrorKind::Unknown { what: "ITERATE variable", name: text, hint }.into()
                })
            }
            _ => self.function(&arguments),
        }
    }

    fn arguments<'e>(
        &self,
        name: &str,
        function: &'e Function,
        place: Option<Place>,
    ) -> Result<Arguments<'e>> {
        if let Some(clause) = clause_of(function) {
            return Err(unsupported(format!("{clause} in a call of {name}")));
        }
        let mut arguments = Arguments {
            function: name.to_owned(),
            place,
            positional: Vec::new(),
            named: Vec::new(),
        };
        let list = match &function.args {
            FunctionArguments::List(list) => &list.args[..],
            FunctionArguments::None => &[],
            FunctionArguments::Subquery(_) => {
                return Err(Error::argument(
                    name,
                    "write a query argument in parentheses of its own",
                ));
            }
        };
        for argument in list {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                    arguments.positional.push(expr)
                }
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                    arguments.named.push((name, expr));
                }
                FunctionArg::ExprNamed {
                    name: Expr::Identifier(name),
                    arg: FunctionArgExpr::Expr(expr),
                    ..
                } => arguments.named.push((name, expr)),
                other => return Err(Error::argument(name, format!("'{other}' is no argument"))),
            }
        }
        for (at, (given, _)) in arguments.named.iter().enumerate() {
            let is_same =
                |(other, _): &(&Ident, &Expr)| other.value.eq_ignore_ascii_case(&given.value);
            if arguments.named[..at].iter().any(is_same) {
                let message = format!("'{given}' is given twice");
                return Err(Error::argument(name, message).at(place_of_name(given)));
            }
        }
        Ok(arguments)
    }

    /// `ITERATE(r => init, step, times => n, until => condition)`
    fn iterate(&mut self, arguments: &Arguments<'_>) -> Result<NodeId> {
        let usage = "takes (r => beginning, step, times => n, until => condition)";
        let fail = || Error::argument("ITERATE", usage);
        let (mut times, mut until, mut start) = (None, None, None);
        for &(name, expr) in &arguments.named {
            match name.value.to_ascii_lowercase().as_str() {
                "times" => times = Some(expr),
                "until" => until = Some(expr),
                _ if start.is_none() => start = Some((name, expr)),
                _ => return Err(fail()),
            }
        }
        let (Some((variable, init)), [step]) = (start, &arguments.positional[..]) else {
            return Err(fail());
        };
        if times.is_none() && until.is_none() {
            return Err(Error::argument(
                "ITERATE",
                "needs times => n, until => condition, or both",
            ));
        }
        let init = self.expression(init)?;
        let times = times.map(|times| self.count(times, "times")).transpose()?;
        let variable = sql::normalized(variable);
        let mut number = self.graph.variable(init, Default::default());
        let mut bound = self.round(&variable, number, step, until)?;
        // What begins without labels has those of the step from the second round on, and is bound with them.
        let labels = self.graph.node(bound.0).labels.clone();
        if labels
            .iter()
            .zip(self.graph.labels_of(number))
            .any(|(step, last)| *last == AxisLabels::None && *step != AxisLabels::None)
        {
            number = self.graph.variable(init, labels);
            bound = self.round(&variable, number, step, until)?;
        }
        let (step, until) = bound;
        if let Some(until) = until
            && !self.graph.node(until).is_scalar()
        {
            let shape = self.graph.node(until).shape();
            let needs = "one truth value in until";
            return Err(ErrorKind::ShapeOf { function: "ITERATE".into(), needs, shape }.into());
        }
        let iteration = Iteration { variable: number, times, until: until.is_some() };
        let inputs: Vec<NodeId> = [init, step].into_iter().chain(until).collect();
        self.graph.add(Operation::Iterate(iteration), inputs, arguments.place)
    }

    /// The step of an iteration and its condition, in which the name stands for the variable.
    fn round(
        &mut self,
        name: &str,
        variable: Variable,
        step: &Expr,
        until: Option<&Expr>,
    ) -> Result<(NodeId, Option<NodeId>)> {
        let last = self.graph.add(Operation::Variable(variable), [], None)?;
        let prior = self.graph.add(Operation::Prior(variable), [], None)?;
        self.variables.push(Bound { name: name.to_owned(), last, prior });
        let bound = (|| {
            let step = self.expression(step)?;
            let until = until.map(|until| self.expression(until)).transpose()?;
            Ok((step, until))
        })();
        self.variables.pop();
        bound
    }

    fn leaf(&mut self, relation: Relation, place: Option<Place>) -> Result<NodeId> {
        match self.scope.held(&relation) {
            Some(stored) => self.graph.add(Operation::Stored(stored), [], place),
            None => self.graph.relation(relation, place),
        }
    }

    /// Applies a function of one cell; of a constant at once.
    pub(super) fn unary(
        &mut self,
        function: UnaryFunction,
        input: NodeId,
        place: Option<Place>,
    ) -> Result<NodeId> {
        match self.graph.as_constant(input) {
            Some(value) => Ok(self.graph.constant(function.apply(value))),
            None => self.graph.add(Operation::Unary(function), [input], place),
        }
    }

    /// Applies a function of two cells; of two constants at once.
    pub(super) fn binary(
        &mut self,
        function: BinaryFunction,
        left: NodeId,
        right: NodeId,
        place: Option<Place>,
    ) -> Result<NodeId> {
        if let (Some(a), Some(b)) = (self.graph.as_constant(left), self.graph.as_constant(right)) {
            return Ok(self.graph.constant(function.apply(a, b)));
        }
        self.settle_single_rows(&[left, right])?;
        self.graph.add(Operation::Binary(function), [left, right], place)
    }

    /// The second input where the first is not 0, else the third.
    pub(super) fn select(&mut self, inputs: [NodeId; 3], place: Option<Place>) -> Result<NodeId> {
        self.settle_single_rows(&inputs)?;
        self.graph.add(Operation::Select, inputs, place)
    }

    /// A query of one row stretches as a row does. So where rows meet that are not known to be as many, one
    /// that may have a single row runs first: the one that surely has no more, else the last.
    ///
    /// Rows with labels are left to be compared while they stream.
    fn settle_single_rows(&mut self, inputs: &[NodeId]) -> Result<()> {
        let rows: Vec<Dim> = inputs.iter().map(|&input| self.graph.node(input).rows).collect();
        let long: Vec<&Dim> = rows.iter().filter(|&&rows| rows != Dim::ONE).collect();
        if long.iter().all(|rows| *rows == long[0]) {
            return Ok(());
        }
        let surely_single = |id: NodeId| match self.graph.node(id).operation {
            Operation::Relation(index) => {
                let relation = &self.graph.relations[index];
                let is_single = relation.plan.max_rows() == Some(1);
                // Rows of no order match no others, and must not seem to by having been run.
                let may_match = relation.order != RowOrder::Undefined;
                (is_single || (relation.intake.row_keys == 0 && may_match)).then_some(is_single)
            }
            _ => None,
        };
        let relations = self.graph.nodes().filter(|(_, node)| rows.contains(&node.rows));
        let open = relations.filter_map(|(id, _)| Some((surely_single(id)?, id)));
        match open.max_by_key(|&(is_single, _)| is_single) {
            Some((_, id)) => self.want_relations(id),
            None => Ok(()),
        }
    }

    pub(super) fn cast(
        &mut self,
        input: NodeId,
        element: Element,
        place: Option<Place>,
    ) -> Result<NodeId> {
        if self.graph.node(input).element == element && self.graph.as_constant(input).is_none() {
            return Ok(input);
        }
        self.graph.add(Operation::Cast(element), [input], place)
    }

    fn negated(&mut self, negated: bool, node: NodeId, place: Option<Place>) -> Result<NodeId> {
        if negated { self.unary(UnaryFunction::Not, node, place) } else { Ok(node) }
    }

    /// A number known while planning.
    pub(super) fn number(&mut self, expr: &Expr, what: &str) -> Result<f64> {
        let node = self.expression(expr)?;
        if let Some(value) = self.graph.as_constant(node) {
            return Ok(value);
        }
        self.want_relations(node)?;
        let message = format!("{what} must be a number that is known while planning");
        Err(Error::argument(what, message).at(sql::place_of(expr)))
    }

    /// A whole number from 0 on, known while planning.
    pub(super) fn count(&mut self, expr: &Expr, what: &str) -> Result<usize> {
        let value = self.number(expr, what)?;
        if value.fract() != 0.0 || !(0.0..9e15).contains(&value) {
            let message = format!("{value} is not a whole number from 0 on");
            return Err(Error::argument(what, message).at(sql::place_of(expr)));
        }
        Ok(value as usize)
    }

    /// Asks for the relations beneath a node to be run first, because planning needs their size or
    /// keys; returns only where there are none.
    pub(super) fn want_relations(&mut self, node: NodeId) -> Result<()> {
        let mut wanted = vec![node];
        while let Some(id) = wanted.pop() {
            if let Operation::Relation(index) = self.graph.node(id).operation {
                let relation = self.graph.relations[index].clone();
                self.scope.want(relation);
                return Err(ErrorKind::Internal("a relation is wanted first".into()).into());
            }
            wanted.extend(&self.graph.node(id).inputs);
        }
        Ok(())
    }

    /// The sizes of a node, running the relations beneath it first where they are open.
    pub(super) fn known_size(&mut self, node: NodeId, axis: Axis) -> Result<usize> {
        let of = self.graph.node(node);
        let size = if axis == Axis::Rows { of.rows } else { of.columns };
        match size.known() {
            Some(size) => Ok(size),
            None => {
                self.want_relations(node)?;
                let name = if axis == Axis::Rows { "nrow" } else { "ncol" };
                Err(Error::argument(name, "this size is known only when the expression has run"))
            }
        }
    }

    /// A size as a node: a constant where it is known.
    pub(super) fn size(
        &mut self,
        node: NodeId,
        counted: Counted,
        place: Option<Place>,
    ) -> Result<NodeId> {
        let of = self.graph.node(node);
        let known = match counted {
            Counted::Rows => of.rows.known(),
            Counted::Columns => of.columns.known(),
            Counted::NonZeros => None,
        };
        match known {
            Some(size) => Ok(self.graph.constant(size as f64)),
            None => self.graph.add(Operation::Count(counted), [node], place),
        }
    }
}

/// What stands in or behind a call and belongs to aggregates of SQL.
fn clause_of(function: &Function) -> Option<&'static str> {
    let Function { parameters, args, filter, null_treatment, over, within_group, .. } = function;
    let (treatment, clauses) = match args {
        FunctionArguments::List(list) => (list.duplicate_treatment, &list.clauses[..]),
        FunctionArguments::None | FunctionArguments::Subquery(_) => (None, &[][..]),
    };
    let orders =
        |clause: &FunctionArgumentClause| matches!(clause, FunctionArgumentClause::OrderBy(_));
    let clauses = [
        (filter.is_some(), "FILTER"),
        (over.is_some(), "OVER"),
        (!within_group.is_empty(), "WITHIN GROUP"),
        (treatment == Some(DuplicateTreatment::Distinct), "DISTINCT"),
        (treatment == Some(DuplicateTreatment::All), "ALL"),
        (clauses.iter().any(orders), "ORDER BY"),
        (null_treatment.is_some(), "a rule about NULLs"),
        (!clauses.is_empty() || *parameters != FunctionArguments::None, "such a clause"),
    ];
    clauses.into_iter().find_map(|(is_there, name)| is_there.then_some(name))
}

/// Whether nothing is said of what to round to.
fn is_plain(field: &CeilFloorKind) -> bool {
    *field == CeilFloorKind::DateTimeField(DateTimeField::NoDateTime)
}

fn unsupported(what: String) -> Error {
    Error::unsupported(format!("{what} has no meaning in a matrix expression"))
}

/// The element that a SQL type names.
fn element_of_type(data_type: &DataType) -> Result<Element> {
    match data_type {
        DataType::Real | DataType::Float4 | DataType::Float32 => Ok(Element::Float32),
        DataType::Float(ExactNumberInfo::None) => Ok(Element::Float32),
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float64 => {
            Ok(Element::Float64)
        }
        other => Err(Error::argument("CAST", format!("a matrix is REAL or DOUBLE, not {other}"))),
    }
}
