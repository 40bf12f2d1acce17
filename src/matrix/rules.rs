//! What to do with rows that are no matrix as they stand: cells that are NULL, entries given twice.

/// What a NULL becomes where a matrix cell should be.
///
/// ```
/// use relatrix::matrix::Nulls;
/// let connection = relatrix::Database::memory()?.connect();
/// connection.execute("CREATE MATRIX x WITH (nulls = 'zero') AS VALUES (1.0), (NULL)")?;
/// assert_eq!(connection.matrix("x")?.cell(1, 0), 0.0);
/// assert_eq!(Nulls::default(), Nulls::Error);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Default)]
pub enum Nulls {
    /// An error that names the column and the first row; the default, for nothing is lost by accident.
    #[default]
    Error,
    /// 0.
    Zero,
    /// Not a number.
    Nan,
    /// Nothing: the row is left out.
    Drop,
}

impl Nulls {
    /// The cell that stands for a NULL, where one does.
    pub(crate) fn cell(self) -> Option<f64> {
        match self {
            Nulls::Error | Nulls::Drop => None,
            Nulls::Zero => Some(0.0),
            Nulls::Nan => Some(f64::NAN),
        }
    }
}

/// What several entries for one row and column become.
///
/// ```
/// use relatrix::matrix::Duplicates;
/// let connection = relatrix::Database::memory()?.connect();
/// connection.execute(
///     "CREATE TABLE visits (who INT, page INT, seconds INT) AS VALUES (1, 1, 3), (1, 1, 4);
///      CREATE MATRIX x WITH (duplicates = 'sum')
///      AS SELECT who, page, seconds FROM visits ROWS BY who COLUMNS BY page",
/// )?;
/// assert_eq!(connection.matrix("x")?.cell(0, 0), 7.0);
/// assert_eq!(Duplicates::default(), Duplicates::Error);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Default)]
pub enum Duplicates {
    /// An error that names the entry; the default.
    #[default]
    Error,
    /// Their sum.
    Sum,
    /// The last of them in the order of the rows.
    Last,
}
