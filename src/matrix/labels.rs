//! Labels: the keys that say which row or column of a table a matrix row or column came from.

use arrow::array::UInt64Array;
use arrow::array::{Array, ArrayData, ArrayRef, AsArray, StringArray, new_empty_array};
use arrow::buffer::Buffer;
use arrow::compute::{cast, concat, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::ops::Range;
use std::sync::Arc;

/// The keys of one dimension: one or more named columns of equal length.
///
/// ```
/// let connection = relatrix::Database::memory()?.connect();
/// let x = connection.matrix("(SELECT * FROM (VALUES (7, 0.5), (9, 1.5)) AS t(id, x) ROWS BY id)")?;
/// let rows = x.row_labels().expect("the rows have keys");
/// assert_eq!((rows.len(), rows.text(1)), (2, "9".to_owned()));
/// # Ok::<(), relatrix::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Labels {
    fields: Vec<(String, ArrayRef)>,
}

impl Labels {
    /// Labels from key columns.
    ///
    /// ```
    /// use relatrix::{arrow::array::{ArrayRef, Int64Array}, matrix::Labels};
    /// let keys: ArrayRef = std::sync::Arc::new(Int64Array::from(vec![7, 9]));
    /// assert_eq!(Labels::new(vec![("id".to_owned(), keys)]).text(1), "9");
    /// ```
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
    ///
    /// ```
    /// let labels = relatrix::matrix::Labels::names(["length", "width"]);
    /// assert_eq!(labels.text(0), "length");
    /// ```
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
    ///
    /// ```
    /// let labels = relatrix::matrix::Labels::names(["length", "width"]);
    /// let (name, keys) = &labels.fields()[0];
    /// assert_eq!((name.as_str(), keys.len()), ("name", 2));
    /// ```
    pub fn fields(&self) -> &[(String, ArrayRef)] {
        &self.fields
    }

    /// Length of the labelled dimension.
    ///
    /// ```
    /// assert_eq!(relatrix::matrix::Labels::names(["length", "width"]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.fields[0].1.len()
    }

    /// Whether the labelled dimension is empty.
    ///
    /// ```
    /// assert!(!relatrix::matrix::Labels::names(["length"]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the key columns.
    ///
    /// ```
    /// assert!(relatrix::matrix::Labels::names(["length", "width"]).size_bytes() >= 11);
    /// ```
    pub fn size_bytes(&self) -> usize {
        self.buffers().iter().map(Buffer::len).sum()
    }

    /// What the key columns are made of. Of a buffer in a file with others it is the part that is theirs.
    pub(crate) fn buffers(&self) -> Vec<Buffer> {
        let mut buffers = Vec::new();
        let mut below: Vec<ArrayData> =
            self.fields.iter().map(|(_, keys)| keys.to_data()).collect();
        while let Some(data) = below.pop() {
            buffers.extend(data.buffers().iter().cloned());
            buffers.extend(data.nulls().map(|nulls| nulls.buffer().clone()));
            below.extend(data.child_data().iter().cloned());
        }
        buffers
    }

    /// One label as text, counted from 0, its key columns joined by a comma; NULL reads
    /// `NULL`. Panics outside the dimension.
    ///
    /// ```
    /// use relatrix::matrix::Labels;
    /// let (keys, parts) = (Labels::names(["a", "b"]), Labels::names(["x", "y"]));
    /// let both = Labels::new([keys.fields(), parts.fields()].concat());
    /// assert_eq!(both.text(1), "b,y");
    /// ```
    pub fn text(&self, index: usize) -> String {
        let options = FormatOptions::default().with_null("NULL");
        let part = |array: &ArrayRef| match ArrayFormatter::try_new(array, &options) {
            Ok(formatter) => formatter.value(index).to_string(),
            Err(error) => error.to_string(),
        };
        self.fields.iter().map(|(_, array)| part(array)).collect::<Vec<_>>().join(",")
    }

    /// The labels of a range, sharing the key columns; panics where it ends outside.
    ///
    /// ```
    /// let labels = relatrix::matrix::Labels::names(["a", "b", "c"]);
    /// assert_eq!(labels.slice(1..3).text(0), "b");
    /// ```
    pub fn slice(&self, range: Range<usize>) -> Self {
        let cut = |array: &ArrayRef| array.slice(range.start, range.len());
        Self {
            fields: self.fields.iter().map(|(name, array)| (name.clone(), cut(array))).collect(),
        }
    }

    /// The labels at these places, in their order.
    ///
    /// ```
    /// let labels = relatrix::matrix::Labels::names(["a", "b", "c"]);
    /// assert_eq!(labels.gather(&[2, 0])?.text(0), "c");
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    ///
    /// # Errors
    /// Where a key type cannot be gathered.
    ///
    /// # Panics
    /// Where a place is outside.
    pub fn gather(&self, places: &[usize]) -> Result<Self, ArrowError> {
        let places = UInt64Array::from_iter_values(places.iter().map(|&place| place as u64));
        let pick =
            |(name, array): &(String, ArrayRef)| Ok((name.clone(), take(array, &places, None)?));
        Ok(Self { fields: self.fields.iter().map(pick).collect::<Result<_, ArrowError>>()? })
    }

    /// All labels of the parts, in order; the names are those of the first.
    ///
    /// ```
    /// use relatrix::matrix::Labels;
    /// let all = Labels::concat(&[Labels::names(["a"]), Labels::names(["b", "c"])])?;
    /// assert_eq!(all, Labels::names(["a", "b", "c"]));
    /// # Ok::<(), relatrix::Error>(())
    /// ```
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

    /// The first place where two labellings read differently; `None` where they are equal.
    ///
    /// A key 1 of any integer type equals a column named `1`. The names of the key columns do not count: `id`
    /// and `user_id` may hold the same keys.
    ///
    /// ```
    /// use relatrix::matrix::Labels;
    /// let labels = Labels::names(["a", "b"]);
    /// assert_eq!(labels.first_difference(&Labels::names(["a", "c"])), Some(1));
    /// assert_eq!(labels.first_difference(&labels.clone()), None);
    /// ```
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        let same = |((_, a), (_, b)): (&(String, ArrayRef), &(String, ArrayRef))| {
            a.to_data() == b.to_data() || are_equal_integers(a, b)
        };
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

/// Whether keys of two integer types are the same numbers; as texts they would be compared one by one.
fn are_equal_integers(a: &ArrayRef, b: &ArrayRef) -> bool {
    let wide = |keys: &ArrayRef| {
        let fits = keys.data_type().is_integer() && *keys.data_type() != DataType::UInt64;
        let wide = fits.then(|| cast(keys, &DataType::Int64).ok()).flatten()?;
        Some(wide.to_data())
    };
    a.data_type() != b.data_type() && wide(a).is_some_and(|a| Some(a) == wide(b))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array};

    use super::*;

    #[test]
    fn integers_of_unlike_types_are_compared_as_numbers() {
        let labels = |keys: ArrayRef| Labels::new(vec![("id".to_owned(), keys)]);
        let narrow = labels(Arc::new(Int32Array::from(vec![-3, 5, 9])));
        for (wide, difference) in [
            (vec![-3, 5, 9], None),
            (vec![-3, 5, 9 + (1 << 32)], Some(2)),
            (vec![-3, 6, 9], Some(1)),
            (vec![-3, 5], Some(2)),
        ] {
            let wide = labels(Arc::new(Int64Array::from(wide)));
            assert_eq!(narrow.first_difference(&wide), difference);
            assert_eq!(wide.first_difference(&narrow), difference);
        }
        let unsigned = labels(Arc::new(UInt64Array::from(vec![u64::MAX - 2, 5, 9])));
        assert_eq!(narrow.first_difference(&unsigned), Some(0));
    }
}
