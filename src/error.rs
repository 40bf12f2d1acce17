//! One error for everything that can go wrong between a text and its result.
//!
//! An [`Error`] is what happened ([`ErrorKind`]: values, not prose) and where ([`Place`]). Ours travel
//! through DataFusion as external errors; [`Error::from`] takes them out again.
//!
//! ```
//! use relatrix::error::{ErrorKind, Place};
//! let error = relatrix::parse("SELECT )").unwrap_err();
//! assert!(matches!(error.kind(), ErrorKind::Syntax(_)));
//! assert_eq!(error.place(), Some(Place { line: 1, column: 8 }));
//! ```

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use datafusion::error::DataFusionError;

use crate::matrix::{Element, Shape};

/// The result of everything that can fail.
///
/// ```
/// fn count(connection: &relatrix::Connection, table: &str) -> relatrix::Result<i64> {
///     let rows = connection.query(&format!("SELECT count(*) FROM {table}"))?.rows::<(i64,)>()?;
///     Ok(rows[0].0)
/// }
/// assert_eq!(count(&relatrix::Database::memory()?.connect(), "range(3)")?, 3);
/// # Ok::<(), relatrix::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A position in the text of a statement, counted from 1.
///
/// ```
/// use relatrix::Place;
/// let error = relatrix::parse("SELECT 1;\nSELECT )").unwrap_err();
/// assert_eq!(error.place(), Some(Place { line: 2, column: 8 }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// What went wrong, and where; cheap to clone, for several parts of a query may fail of one cause.
///
/// ```
/// use relatrix::ErrorKind;
/// let connection = relatrix::Database::memory()?.connect();
/// let error = connection.query("SELECT x\nFROM absent").unwrap_err();
/// assert!(error.to_string().contains("absent"));
/// assert!(matches!(error.kind(), ErrorKind::Relational(_)));
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Error {
    kind: Arc<ErrorKind>,
    place: Option<Place>,
}

impl Error {
    /// What happened, for a caller to act on.
    ///
    /// ```
    /// use relatrix::ErrorKind;
    /// let connection = relatrix::Database::memory()?.connect();
    /// let error = connection.matrix("ones(2, 3) @ ones(2, 3)").unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Product { left, .. } if left.columns == 3));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Where in the text, if the error has a place.
    ///
    /// ```
    /// let error = relatrix::parse("SELECT 1 +").unwrap_err();
    /// assert_eq!(error.place().map(|place| place.line), Some(1));
    /// ```
    pub fn place(&self) -> Option<Place> {
        self.place
    }

    /// The same error at this place, unless it has one already: the innermost place is the best.
    ///
    /// ```
    /// use relatrix::{Error, ErrorKind, Place};
    /// let error = Error::from(ErrorKind::Cancelled).at(Place { line: 1, column: 5 });
    /// assert_eq!(error.to_string(), "cancelled at line 1, column 5");
    /// assert_eq!(error.at(Place { line: 9, column: 9 }).place(), Some(Place { line: 1, column: 5 }));
    /// ```
    pub fn at(mut self, place: impl Into<Option<Place>>) -> Self {
        self.place = self.place.or(place.into());
        self
    }

    /// The same error where it counted rows from the beginning of a part before which there are others.
    pub(crate) fn rows_later(mut self, rows: usize) -> Self {
        if let Some(ErrorKind::NullCell { row, .. } | ErrorKind::RaggedList { row, .. }) =
            Arc::get_mut(&mut self.kind)
        {
            *row += rows;
        }
        self
    }

    /// The same error where the left operand was one block of a matrix whose rows nobody has counted.
    pub(crate) fn of_block(mut self) -> Self {
        if let Some(ErrorKind::Product { left, .. }) = Arc::get_mut(&mut self.kind) {
            left.rows = Shape::UNKNOWN;
        }
        self
    }

    pub(crate) fn syntax(message: impl Into<String>) -> Self {
        ErrorKind::Syntax(message.into()).into()
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        ErrorKind::Unsupported(message.into()).into()
    }

    pub(crate) fn argument(function: impl Into<String>, message: impl Into<String>) -> Self {
        ErrorKind::Argument { function: function.into(), message: message.into() }.into()
    }

    /// A sum of integers that is none of their 64 bits.
    pub(crate) fn integer_sum(sum: i128, is_unsigned: bool) -> Self {
        let name = if is_unsigned { "BIGINT UNSIGNED" } else { "BIGINT" };
        Self::argument(
            "sum",
            format!("{sum} is no {name}; sum(CAST(… AS DECIMAL(38, 0))) holds it"),
        )
    }

    /// A sum of decimals that has more digits than their type.
    pub(crate) fn decimal_sum(precision: u8, scale: i8) -> Self {
        Self::argument(
            "sum",
            format!(
                "it has more digits than a DECIMAL({precision}, {scale}); sum(CAST(… AS DOUBLE)) is near it"
            ),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        self.place.map_or(Ok(()), |place| write!(f, " at {place}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.kind.as_ref())
    }
}

/// What happened. Messages say what to do where that is not plain.
///
/// ```
/// use relatrix::ErrorKind;
/// let connection = relatrix::Database::memory()?.connect();
/// match connection.matrix("inv(zeros(2, 2))").unwrap_err().kind() {
///     ErrorKind::Singular { shape, .. } => assert_eq!(shape.to_string(), "2x2"),
///     other => panic!("{other}"),
/// }
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not a statement of the language.
    #[error("{0}")]
    Syntax(String),

    /// A name that stands for nothing.
    #[error("there is no {what} '{name}'{hint}")]
    Unknown {
        /// What was looked for: `matrix`, `function`, `setting` …
        what: &'static str,
        /// The name as written.
        name: String,
        /// Empty, or a sentence that begins with `; `.
        hint: String,
    },

    /// A name that is taken.
    #[error("{what} '{name}' already exists")]
    Exists {
        /// What was to be made: `matrix`, `table` …
        what: &'static str,
        /// The name as written.
        name: String,
    },

    /// Two operands of a matrix product whose inner sizes differ.
    #[error("cannot multiply {left} by {right} (inner sizes {} and {})", .left.columns, .right.rows)]
    Product {
        /// Shape of the left operand.
        left: Shape,
        /// Shape of the right operand.
        right: Shape,
    },

    /// Two operands of another operation whose shapes do not fit.
    #[error("{operation} needs {needs}, not {left} and {right}")]
    Shapes {
        /// The operator or function.
        operation: String,
        /// What would fit, as `equal shapes`.
        needs: &'static str,
        /// Shape of the left operand.
        left: Shape,
        /// Shape of the right operand.
        right: Shape,
    },

    /// One operand whose shape does not fit.
    #[error("{function} needs {needs}, not {shape}")]
    ShapeOf {
        /// The function.
        function: String,
        /// What would fit, as `a square matrix`.
        needs: &'static str,
        /// The shape given.
        shape: Shape,
    },

    /// A position outside a matrix.
    #[error("{dimension} {index} is outside a {shape} matrix, whose {dimension}s count from 1")]
    OutOfRange {
        /// `row` or `column`.
        dimension: &'static str,
        /// The position as written.
        index: i64,
        /// The matrix subscripted.
        shape: Shape,
    },

    /// Labels of two operands that should be equal, and are not.
    #[error(
        "{dimension} labels differ first at {index}: {left} on the left, {right} on the right{}",
        if *.dimension == "row" { "; align(x, y) orders the rows of x by the labels of y" } else { "" }
    )]
    Labels {
        /// `row` or `column`.
        dimension: &'static str,
        /// Where they differ first, counted from 1.
        index: usize,
        /// The left label, or `nothing`.
        left: String,
        /// The right label, or `nothing`.
        right: String,
    },

    /// Two operands whose rows must match, at least one of them from a query without an order.
    #[error(
        "the rows of {relation} have no defined order to match other rows by; add ROWS BY or ORDER BY, \
         or slice both operands from one relation"
    )]
    Unordered {
        /// The relation, as EXPLAIN calls it.
        relation: String,
    },

    /// A label that a matrix does not have.
    #[error("there is no {dimension} labelled {label}")]
    NoLabel {
        /// `row` or `column`.
        dimension: &'static str,
        /// The label as written.
        label: String,
    },

    /// A NULL where a matrix cell should be.
    #[error(
        "column '{column}' is NULL in row {row}; WITH (nulls = 'zero' | 'nan' | 'drop') chooses what to do"
    )]
    NullCell {
        /// The column's name.
        column: String,
        /// The first such row, counted from 1.
        row: usize,
    },

    /// A NULL where a label should be.
    #[error(
        "key column '{column}' is NULL somewhere, and a label never is; filter such rows out, or \
         WITH (nulls = 'drop')"
    )]
    NullKey {
        /// The column's name.
        column: String,
    },

    /// The same row or cell given twice.
    #[error("{what} {key} appears twice{hint}")]
    Duplicate {
        /// `row` or `entry`.
        what: &'static str,
        /// The key.
        key: String,
        /// Empty, or a sentence that begins with `; `.
        hint: &'static str,
    },

    /// A list that is not as long as the first one.
    #[error("the list in row {row} has {found} elements, the first has {expected}")]
    RaggedList {
        /// The row, counted from 1.
        row: usize,
        /// Length of the first list.
        expected: usize,
        /// Length of this one.
        found: usize,
    },

    /// A value that a cell of this type cannot hold exactly.
    #[error(
        "{value} in column '{column}' does not fit {element} exactly; cast it to accept rounding"
    )]
    Inexact {
        /// The value.
        value: String,
        /// Its column.
        column: String,
        /// The cell type.
        element: Element,
    },

    /// A singular matrix where an inverse is needed.
    #[error("{function} of a singular {shape} matrix (reciprocal condition {condition:.1e})")]
    Singular {
        /// The function.
        function: &'static str,
        /// Its argument's shape.
        shape: Shape,
        /// Estimated reciprocal condition number in the 1-norm.
        condition: f64,
    },

    /// A matrix that has no Cholesky factor.
    #[error(
        "cholesky of a {shape} matrix that is not positive definite: pivot {pivot} is {value:e}"
    )]
    NotPositiveDefinite {
        /// Its shape.
        shape: Shape,
        /// The first pivot that is not above zero, counted from 1.
        pivot: usize,
        /// That pivot.
        value: f64,
    },

    /// An iterative method that did not converge.
    #[error("{function} of a {shape} matrix did not converge{hint}")]
    NotConverged {
        /// The function.
        function: &'static str,
        /// Its argument's shape.
        shape: Shape,
        /// Empty, or a sentence that begins with `; `.
        hint: &'static str,
    },

    /// An argument a function cannot take.
    #[error("{function}: {message}")]
    Argument {
        /// The function, statement or setting.
        function: String,
        /// What it takes instead.
        message: String,
    },

    /// Something the language does not have, or does not have yet.
    #[error("{0}")]
    Unsupported(String),

    /// The memory limit would be passed.
    #[error(
        "memory limit reached: {} asked for {what}, {} free{}",
        in_megabytes(*.needed_bytes),
        in_megabytes(*.free_bytes),
        on_disk(*.disk_bytes)
    )]
    MemorySpent {
        /// What the bytes were for.
        what: String,
        /// Bytes asked for.
        needed_bytes: usize,
        /// Bytes left.
        free_bytes: usize,
        /// Bytes left on the disk, for what could have been there.
        disk_bytes: Option<usize>,
    },

    /// Memory had no room for it, and so it was to be in a file.
    #[error(
        "no room on disk: {} asked for {what}, which memory has no room for, {} free in temp_directory",
        in_megabytes(*.needed_bytes),
        in_megabytes(*.free_bytes)
    )]
    DiskSpent {
        /// What the bytes were for.
        what: String,
        /// Bytes asked for.
        needed_bytes: usize,
        /// Bytes left in the directory that has most.
        free_bytes: usize,
    },

    /// A GPU failed at what it was to do, and the host may not do it instead.
    #[error("the GPU failed: {0}; SET gpu_on_failure = 'host' lets the host do what it cannot")]
    Gpu(String),

    /// Stopped by its caller.
    #[error("cancelled")]
    Cancelled,

    /// Stopped by its time limit.
    #[error("stopped after its time limit of {seconds} s")]
    TimedOut {
        /// The limit.
        seconds: f64,
    },

    /// A file that cannot be read or written.
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },

    /// An error of the relational half.
    #[error("{}", relational(.0))]
    Relational(Box<DataFusionError>),

    /// A broken promise inside the engine; please report it.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind: Arc::new(kind), place: None }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        if let Some(ours) = carried(&error) {
            return ours.clone();
        }
        if let Some(unsupported) = without_syntax(relational(&error).as_ref()) {
            return Self::unsupported(unsupported);
        }
        let place = error.diagnostic().and_then(|found| found.span).map(|span| span.start);
        let place = place.map(|start| Place { line: start.line, column: start.column });
        Self::from(ErrorKind::Relational(Box::new(error))).at(place)
    }
}

/// What DataFusion does not support, where its message is a dump of the syntax tree.
fn without_syntax(message: &str) -> Option<String> {
    let node = [
        "Unsupported ast node in sqltorel: ",
        "Unsupported ast node ",
        "Unsupported JOIN operator ",
    ]
    .into_iter()
    .find_map(|beginning| message.strip_prefix(beginning));
    if let Some(node) = node {
        let name = node.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        return Some(match name {
            "AsOf" => "ASOF JOIN is not supported".to_owned(),
            name => format!("{} is not supported", spelled(name)),
        });
    }
    if message.starts_with("Unsupported LIMIT expression") {
        return Some("LIMIT takes a number or a parameter, not a query".to_owned());
    }
    if message.starts_with("Unsupported OFFSET expression") {
        return Some("OFFSET takes a number or a parameter, not a query".to_owned());
    }
    // Every name in a tree has a span.
    let inside = message.find("Span(Location(")?;
    let begins = [" { ", "(", "["].into_iter().filter_map(|opening| message.find(opening)).min();
    let told = &message[..begins.map_or(inside, |begins| begins.min(inside))];
    Some(format!("{}, which is not supported", told.trim_end()))
}

/// A name such as `MatchRecognize` as SQL writes it.
fn spelled(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

/// A number of bytes as a person reads it.
fn in_megabytes(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// What the disk has left, where it was asked.
fn on_disk(bytes: Option<usize>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(", {} on disk", in_megabytes(bytes)))
}

/// What DataFusion says, without the names of the stages it passed.
fn relational(error: &DataFusionError) -> Cow<'_, str> {
    match error {
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => {
            relational(inner)
        }
        DataFusionError::Shared(inner) => relational(inner),
        DataFusionError::Collection(all) => match all.first() {
            Some(first) => relational(first),
            None => error.message(),
        },
        DataFusionError::Internal(_) => error.to_string().into(),
        _ => unmatched(error.message()),
    }
}

/// Of a call that fits no signature, which it is and what would fit: before that DataFusion tells of each signature in turn, and takes
/// it for a bug of its own.
fn unmatched(message: Cow<'_, str>) -> Cow<'_, str> {
    match message.find("No function matches the given name") {
        Some(at) => message[at..].to_owned().into(),
        None => message,
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match Arc::try_unwrap(error.kind) {
            Ok(ErrorKind::Relational(relational)) => *relational,
            Ok(kind) => Self::External(Box::new(Error::from(kind).at(error.place))),
            Err(kind) => Self::External(Box::new(Error { kind, place: error.place })),
        }
    }
}

/// Our error inside one of DataFusion's, however deeply it was wrapped on its way up; of several, the
/// first.
fn carried(error: &DataFusionError) -> Option<&Error> {
    fn inside<'a>(error: &'a (dyn std::error::Error + Send + Sync + 'static)) -> Option<&'a Error> {
        error.downcast_ref().or_else(|| carried(error.downcast_ref()?))
    }
    match error {
        DataFusionError::External(inner) => inside(inner.as_ref()),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            carried(inner)
        }
        DataFusionError::Shared(inner) => carried(inner),
        DataFusionError::Collection(all) => all.iter().find_map(carried),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            arrow::error::ArrowError::ExternalError(inner) => inside(inner.as_ref()),
            _ => None,
        },
        _ => None,
    }
}
