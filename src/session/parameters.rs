//! `?` as a parameter with a number.

use std::ops::ControlFlow;

use datafusion::sql::parser::{ExplainStatement, Statement as SqlStatement};
use sqlparser::ast::{Expr, Value};

use crate::sql::walk_expressions_mut;

/// Makes each `?` the `$1`, `$2` … of its turn.
pub(super) fn number_question_marks(syntax: &mut SqlStatement) {
    let statement = match syntax {
        SqlStatement::Statement(statement) => statement,
        SqlStatement::Explain(ExplainStatement { statement, .. }) => {
            return number_question_marks(statement);
        }
        _ => return,
    };
    let mut count = 0;
    let _finished = walk_expressions_mut(statement.as_mut(), |expression| {
        if let Expr::Value(value) = expression
            && let Value::Placeholder(name) = &mut value.value
            && name == "?"
        {
            count += 1;
            *name = format!("${count}");
        }
        ControlFlow::<()>::Continue(())
    });
}
