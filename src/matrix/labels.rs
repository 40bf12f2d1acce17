//! Labels: the keys that say which row or column of a table a matrix row or column came from.

use arrow::array::UInt64Array;
use arrow::array::{Array, ArrayRef, AsArray, StringArray, new_empty_array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::ops::Range;
use std::sync::Arc;

/// The keys of one dimension: one or more named columns of equal length.
#[derive(Debug, Clone, PartialEq)]
pub struct Labels {
    fields: Vec<(String, ArrayRef)>,
}

impl Labels {
    /// Labels from key columns.
    ///
    /// # Panics
    /// Where there is no column, or their lengths differ.
    pub fn new(fields: Vec<(String, ArrayRef)>) -> Self {
        assert!(!fields.is_empty(), "labels have at least one column");
        assert!(
            fields.iter().all(|(_, a)| a.len() == fields[0].1.len()),
            "labels are equally long"
        );
        Self { fields }
    }

    /// Labels that are names, such as the columns of a table in the wide form.
    pub fn names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Self {
        let names: StringArray =
            names.into_iter().map(|name| Some(name.as_ref().to_owned())).collect();
        Self::new(vec![("name".to_owned(), Arc::new(names))])
    }

    /// The same keys without memory that they do not need: a few strings seen through a view would keep
    /// the pages that they were read from.
    pub(crate) fn compacted(self) -> Self {
        let compact = |keys: ArrayRef| -> ArrayRef {
            match keys.data_type() {
                DataType::Utf8View => Arc::new(keys.as_string_view().gc()),
                DataType::BinaryView => Arc::new(keys.as_binary_view().gc()),
                _ => keys,
            }
        };
        Self { fields: self.fields.into_iter().map(|(name, keys)| (name, compact(keys))).collect() }
    }

    /// The key columns with their names.
    pub fn fields(&self) -> &[(String, ArrayRef)] {
        &self.fields
    }

    /// Length of the labelled dimension.
    pub fn len(&self) -> usize {
        self.fields[0].1.len()
    }

    /// Whether the labelled dimension is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the key columns.
    pub fn size_bytes(&self) -> usize {
        self.fields.iter().map(|(_, array)| array.get_array_memory_size()).sum()
    }

    /// One label as text, its key columns joined by a comma; NULL reads `NULL`.
    pub fn text(&self, index: usize) -> String {
        let options = FormatOptions::default().with_null("NULL");
        let part = |array: &ArrayRef| match ArrayFormatter::try_new(array, &options) {
            Ok(formatter) => formatter.value(index).to_string(),
            Err(error) => error.to_string(),
        };
        self.fields.iter().map(|(_, array)| part(array)).collect::<Vec<_>>().join(",")
    }

    /// The labels of a range, sharing the key columns.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let cut = |array: &ArrayRef| array.slice(range.start, range.len());
        Self {
            fields: self.fields.iter().map(|(name, array)| (name.clone(), cut(array))).collect(),
        }
    }

    /// The labels at these places, in their order.
    ///
    /// # Errors
    /// Where a place is outside, or a key type cannot be gathered.
    pub fn gather(&self, places: &[usize]) -> Result<Self, ArrowError> {
        let places = UInt64Array::from_iter_values(places.iter().map(|&place| place as u64));
        let pick =
            |(name, array): &(String, ArrayRef)| Ok((name.clone(), take(array, &places, None)?));
        Ok(Self { fields: self.fields.iter().map(pick).collect::<Result<_, ArrowError>>()? })
    }

    /// All labels of the parts, in order; the names are those of the first.
    ///
    /// # Errors
    /// Where the parts differ in key columns or types.
    pub fn concat(parts: &[Labels]) -> Result<Self, ArrowError> {
        let Some(first) = parts.first() else {
            let empty = new_empty_array(&DataType::Utf8);
            return Ok(Self::new(vec![("name".to_owned(), empty)]));
        };
        if let Some(odd) = parts.iter().find(|part| part.fields.len() != first.fields.len()) {
            let (left, right) = (first.fields.len(), odd.fields.len());
            let message = format!("labels of {left} and of {right} key columns do not line up");
            return Err(ArrowError::InvalidArgumentError(message));
        }
        let column = |at: usize| {
            let arrays: Vec<&dyn Array> =
                parts.iter().map(|part| part.fields[at].1.as_ref()).collect();
            Ok((first.fields[at].0.clone(), concat(&arrays)?))
        };
        Ok(Self { fields: (0..first.fields.len()).map(column).collect::<Result<_, ArrowError>>()? })
    }

    /// The first place where two labellings differ, compared by value; `None` where they are equal.
    ///
    /// The names of the key columns do not count: `id` and `user_id` may hold the same keys.
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        let same =
            |(a, b): (&(String, ArrayRef), &(String, ArrayRef))| a.1.to_data() == b.1.to_data();
        if self.fields.len() == other.fields.len()
            && self.fields.iter().zip(&other.fields).all(same)
        {
            return None;
        }
        let common = self.len().min(other.len());
        (0..common)
            .find(|&i| self.text(i) != other.text(i))
            .or((self.len() != other.len()).then_some(common))
    }
}
