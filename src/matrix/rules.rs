//! What to do with rows that are no matrix as they stand: cells that are NULL, entries given twice.

/// What a NULL becomes where a matrix cell should be.
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

/// What several entries for one row and column become.
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
