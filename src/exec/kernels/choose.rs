//! For each row one of two cells of a fixed width, by a bit.

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::error::ArrowError;

/// Rows whose bits are a word.
const ROWS: usize = u64::BITS as usize;

/// What the rows have one of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cells<'a> {
    /// A cell for each row.
    Of(&'a dyn Array),
    /// The same for all: the first, and only, of these.
    All(&'a dyn Array),
}

/// Whether cells of this type are chosen here.
pub(crate) fn can_choose(data_type: &DataType) -> bool {
    matches!(data_type.primitive_width(), Some(1 | 2 | 4 | 8 | 16))
}

/// The first cell where the bit is set, the second where it is not; both of one type, which [`can_choose`] names.
///
/// # Errors
/// Cells of another type.
pub(crate) fn chosen(
    is_first: &BooleanBuffer,
    first: Cells<'_>,
    second: Cells<'_>,
) -> Result<ArrayRef, ArrowError> {
    let data_type = first.array().data_type();
    let cells = match data_type.primitive_width() {
        Some(1) => picked::<u8>(is_first, first, second),
        Some(2) => picked::<u16>(is_first, first, second),
        Some(4) => picked::<u32>(is_first, first, second),
        Some(8) => picked::<u64>(is_first, first, second),
        Some(16) => picked::<i128>(is_first, first, second),
        _ => return Err(ArrowError::InvalidArgumentError(format!("a choice of {data_type}"))),
    };
    let data = ArrayData::builder(data_type.clone()).len(is_first.len()).add_buffer(cells);
    let valid = match (first.valid(is_first.len()), second.valid(is_first.len())) {
        (None, None) => None,
        (first, second) => {
            let of_first = first.map_or_else(|| is_first.clone(), |valid| is_first & &valid);
            let of_second = second.map_or_else(|| !is_first, |valid| &!is_first & &valid);
            Some(NullBuffer::new(&of_first | &of_second))
        }
    };
    data.nulls(valid).build().map(make_array)
}

fn picked<T: ArrowNativeType>(
    is_first: &BooleanBuffer,
    first: Cells<'_>,
    second: Cells<'_>,
) -> Buffer {
    let (first, second) = (Chunks::<T>::of(first), Chunks::<T>::of(second));
    let mut cells: Vec<T> = Vec::with_capacity(is_first.len());
    for (word, start) in is_first.bit_chunks().iter_padded().zip((0..is_first.len()).step_by(ROWS))
    {
        let rows = start..is_first.len().min(start + ROWS);
        let pairs = first.chunk(rows.clone()).iter().zip(second.chunk(rows));
        cells.extend(pairs.enumerate().map(
            |(bit, (first, second))| {
                if word >> bit & 1 == 1 { *first } else { *second }
            },
        ));
    }
    Buffer::from_vec(cells)
}

/// Cells, a word's rows of them at a time.
enum Chunks<T: ArrowNativeType> {
    Of(ScalarBuffer<T>),
    All([T; ROWS]),
}

impl<T: ArrowNativeType> Chunks<T> {
    fn of(cells: Cells<'_>) -> Self {
        let data = cells.array().to_data();
        let values = ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
        match cells {
            Cells::Of(_) => Self::Of(values),
            Cells::All(_) => Self::All([values[0]; ROWS]),
        }
    }

    fn chunk(&self, rows: std::ops::Range<usize>) -> &[T] {
        match self {
            Self::Of(cells) => &cells[rows],
            Self::All(cell) => &cell[..rows.len()],
        }
    }
}

impl<'a> Cells<'a> {
    fn array(self) -> &'a dyn Array {
        match self {
            Self::Of(array) | Self::All(array) => array,
        }
    }

    /// Which of so many rows have a value; none where all have.
    fn valid(self, rows: usize) -> Option<BooleanBuffer> {
        match self {
            Self::Of(array) => array.nulls().map(|nulls| nulls.inner().clone()),
            Self::All(array) if array.is_null(0) => Some(BooleanBuffer::new_unset(rows)),
            Self::All(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Decimal128Array, Int16Array, UInt8Array};
    use arrow::datatypes::Decimal128Type;
    use rand::Rng;

    use super::*;
    use crate::exec::kernels::testing::rng;

    #[test]
    fn each_row_has_the_cell_of_its_bit() {
        let rng = &mut rng(3);
        for rows in [0, 1, 63, 64, 65, 1000] {
            let bits = BooleanBuffer::collect_bool(rows + 5, |_| rng.random()).slice(5, rows);
            let mut numbers = || -> Vec<Option<i16>> {
                (0..rows).map(|_| rng.random::<bool>().then(|| rng.random())).collect()
            };
            let (first, second) = (numbers(), numbers());
            let arrays = [&first, &second].map(|cells| Int16Array::from(cells.clone()));
            let (null, seven) = (Int16Array::new_null(1), Int16Array::from(vec![7]));
            let expected = |first: &dyn Fn(usize) -> Option<i16>, second: &dyn Fn(usize) -> _| {
                let pick = |row| if bits.value(row) { first(row) } else { second(row) };
                (0..rows).map(pick).collect::<Int16Array>()
            };
            let made = |first, second| chosen(&bits, first, second).unwrap();
            let of = |at: usize| Cells::Of(&arrays[at]);
            assert_eq!(*made(of(0), of(1)), expected(&|row| first[row], &|row| second[row]));
            assert_eq!(*made(of(0), Cells::All(&null)), expected(&|row| first[row], &|_| None));
            assert_eq!(
                *made(Cells::All(&seven), of(1)),
                expected(&|_| Some(7), &|row| second[row])
            );
            assert_eq!(
                *made(Cells::All(&seven), Cells::All(&null)),
                expected(&|_| Some(7), &|_| None)
            );
        }
    }

    #[test]
    fn cells_keep_their_type() {
        let bits = BooleanBuffer::from(vec![true, false, true]);
        let price = Decimal128Array::from(vec![1, 2, 3]).with_precision_and_scale(12, 2).unwrap();
        let zero = Decimal128Array::from(vec![0]).with_precision_and_scale(12, 2).unwrap();
        let made = chosen(&bits, Cells::Of(&price.slice(0, 3)), Cells::All(&zero)).unwrap();
        assert_eq!(made.data_type(), &DataType::Decimal128(12, 2));
        assert_eq!(made.as_primitive::<Decimal128Type>().values()[..], [1, 0, 3]);
        let bytes = UInt8Array::from(vec![4, 5, 6, 7]).slice(1, 3);
        let made = chosen(&bits, Cells::Of(&bytes), Cells::Of(&bytes)).unwrap();
        assert_eq!(*made, UInt8Array::from(vec![5, 6, 7]));
    }
}
