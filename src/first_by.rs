//! An order of which only the first few rows are asked for: which parts of a relation have them, as far as their bounds tell.
//!
//! What a sort has seen by then rules out parts that come later (`steps`, and bounds of parts). So the most promising ones are read
//! first, whatever order the rows lie in.

use std::fmt;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{SortOptions, sort_to_indices};
use datafusion::physical_expr::expressions::Column;

/// By what the first rows are asked for, before anything else tells them apart.
#[derive(Debug, Clone)]
pub(crate) struct FirstBy {
    /// Of the relation that is read.
    pub(crate) column: Column,
    pub(crate) options: SortOptions,
}

impl FirstBy {
    /// Parts, counted from 0, the most promising first, by the least and the greatest value of each: those without any are where
    /// NULL is. Nothing where such values have no order.
    pub(crate) fn parts(&self, [least, greatest]: &[ArrayRef; 2]) -> Option<Vec<usize>> {
        let best = if self.options.descending { greatest } else { least };
        let parts = sort_to_indices(best.as_ref(), Some(self.options), None).ok()?;
        debug_assert_eq!(parts.null_count(), 0);
        Some(parts.values().iter().map(|&part| part as usize).collect())
    }
}

impl fmt::Display for FirstBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "first_by={} {}", self.column.name(), self.options)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    #[test]
    fn parts_are_ordered_by_the_end_that_is_asked_for() {
        let bounds = [
            Arc::new(Int64Array::from(vec![Some(5), Some(0), None, Some(3)])) as ArrayRef,
            Arc::new(Int64Array::from(vec![Some(6), Some(9), None, Some(7)])) as ArrayRef,
        ];
        for (descending, nulls_first, expected) in [
            (false, false, [1, 3, 0, 2]),
            (false, true, [2, 1, 3, 0]),
            (true, false, [1, 3, 0, 2]),
            (true, true, [2, 1, 3, 0]),
        ] {
            let options = SortOptions { descending, nulls_first };
            let by = FirstBy { column: Column::new("a", 0), options };
            assert_eq!(by.parts(&bounds).unwrap(), expected);
        }
    }
}
