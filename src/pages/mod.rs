//! Parquet read page by page: numbers, and lists of numbers.
//!
//! Enters: DataFusion's scan of Parquet files, where all columns that it reads are numbers or lists of them.
//! Leaves: the same scan, whose batches are decoded straight from the file's pages, so that of each column
//! one page and its dictionary are in memory, however large a row group is.
//!
//! ```text
//! rule         which scans: by their columns, while planning
//!  └ source    DataFusion's source of Parquet files, but for who opens a file
//!     └ opener which files: by their footers
//!        ├ pruning   row groups and pages that a condition leaves
//!        └ window   batches of a row group: first the columns of the condition, then the others
//!           └ column    rows of one column; lists where it has lists
//!              └ page      levels and values of a page
//!                 ├ runs      levels and indices: repeated or bit-packed
//!                 └ delta     whole numbers as differences
//! ```
//!
//! Not here: what a footer says (the `parquet` crate), decompression (its page reader), files with other
//! columns or encodings and those of another machine: they are left to DataFusion before the first row.

mod column;
mod delta;
mod flaw;
mod layout;
mod lists;
mod opener;
mod page;
mod pruning;
mod rule;
mod runs;
mod source;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use rule::NumbersByPages;
