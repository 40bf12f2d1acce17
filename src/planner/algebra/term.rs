//! What the e-graph is made of: an operation over classes of equal values.

use egg::{Id, Language};

use crate::exec::operation::Operation;

/// One way to compute a class: an operation, and the classes of its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Term {
    pub(super) operation: Operation,
    pub(super) inputs: Vec<Id>,
}

impl Term {
    pub(super) fn new(operation: Operation, inputs: impl Into<Vec<Id>>) -> Self {
        Self { operation, inputs: inputs.into() }
    }
}

impl Language for Term {
    type Discriminant = Operation;

    fn discriminant(&self) -> Operation {
        self.operation.clone()
    }

    fn matches(&self, other: &Self) -> bool {
        self.operation == other.operation && self.inputs.len() == other.inputs.len()
    }

    fn children(&self) -> &[Id] {
        &self.inputs
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.inputs
    }
}
