//! Parquet read page by page.
//!
//! Enters: DataFusion's scan of Parquet files, where all columns that it reads are numbers, dates, times, texts, or lists
//! of numbers. Leaves: the same scan, whose batches are decoded straight from the file's pages: of columns that a
//! condition is about all rows, of the others those that meet it.
//!
//! ```text
//! rule         which scans: by their columns, while planning
//!  ├ first     which rows a sort above asks for that wants few
//!  └ source    DataFusion's source of Parquet files, but for who opens a file
//!     └ opener which files: by their footers; order: which first
//!        ├ pruning   row groups and pages that a condition leaves
//!        ├ fetch     the columns of a row group as they are in the file; small: those of files after it
//!        └ window   batches of a row group: step by step, then all other columns
//!           └ column    rows of one column; texts and lists where it has those
//!              ├ chunk     pages of a column, decompressed; header: what stands before each
//!              ├ kept      those of columns that are read again and again; offsets: in fewer bytes
//!              └ page      levels and values of a page; values: the cells that they become
//!                 ├ runs      levels and indices: repeated or bit-packed
//!                 └ delta     whole numbers as differences
//! ```
//!
//! Not here: what a footer says (the `parquet` crate); files with other columns, encodings or compression are left to
//! DataFusion before the first row.

mod chunk;
mod column;
mod delta;
mod fetch;
mod first;
mod flaw;
mod header;
mod kept;
mod layout;
mod lists;
mod offsets;
mod opener;
mod order;
mod page;
mod pruning;
mod rule;
mod runs;
mod small;
mod source;
#[cfg(test)]
mod tests;
mod texts;
mod values;
mod window;

pub(crate) use kept::KeptColumns;
pub(crate) use rule::{ParquetByPages, encoded_scan, first_by};
pub(crate) use source::Shared;
