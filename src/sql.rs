//! Text into statements.

use datafusion::sql::parser::{DFParserBuilder, Statement as Syntax};
use datafusion::sql::sqlparser::dialect::GenericDialect;

use crate::error::{Error, Place, Result};

/// One statement of a text.
#[derive(Debug, Clone)]
pub struct Statement {
    text: String,
    syntax: Syntax,
}

impl Statement {
    /// The statement as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it begins.
    pub fn place(&self) -> Place {
        Place { line: 1, column: 1 }
    }

    pub(crate) fn syntax(&self) -> &Syntax {
        &self.syntax
    }
}

/// Every statement of a text.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    let dialect = GenericDialect {};
    let parsed = DFParserBuilder::new(text)
        .with_dialect(&dialect)
        .with_recursion_limit(200)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| Error::syntax(error.to_string()))?;
    Ok(parsed.into_iter().map(|syntax| Statement { text: syntax.to_string(), syntax }).collect())
}
