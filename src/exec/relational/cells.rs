//! Cells of a fixed width as whole numbers without a sign, in SQL's order and back.
//!
//! Integers, dates, times and decimals change their sign bit; of floating-point numbers below zero all bits change,
//! which is IEEE 754's total order: `-0.0` before `0.0`, `NaN` of either sign outermost, and every one comes back as
//! itself. Source: IEEE 754-2019, §5.10.

use std::ops::{BitXor, Not};

use arrow::array::{Array, ArrayRef};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::ArrowNativeType;
use bytemuck::Pod;

/// A whole number that is compared and written as it is.
pub(super) trait Key:
    Pod + Ord + BitXor<Output = Self> + Not<Output = Self> + Send + Sync + 'static
{
    /// A number that is not less for a greater key. Most keys have one of their own; those of cells of 128 bits beyond the
    /// 64-bit integers have that of the nearest of these.
    fn place(self) -> u64;

    /// The same number in 128 bits.
    fn wide(self) -> u128;

    /// The key of such a number.
    fn of_wide(wide: u128) -> Self;
}

impl Key for u32 {
    fn place(self) -> u64 {
        u64::from(self)
    }

    fn wide(self) -> u128 {
        self.into()
    }

    fn of_wide(wide: u128) -> Self {
        wide as Self
    }
}

impl Key for u64 {
    fn place(self) -> u64 {
        self
    }

    fn wide(self) -> u128 {
        self.into()
    }

    fn of_wide(wide: u128) -> Self {
        wide as Self
    }
}

impl Key for u128 {
    fn place(self) -> u64 {
        let least = i128::from(i64::MIN).key();
        u64::try_from(self.saturating_sub(least)).unwrap_or(u64::MAX)
    }

    fn wide(self) -> u128 {
        self
    }

    fn of_wide(wide: u128) -> Self {
        wide
    }
}

/// A cell that has such a key.
pub(super) trait Cell: ArrowNativeType {
    type Key: Key;

    /// The key of the cell in ascending order.
    fn key(self) -> Self::Key;

    /// The cell of a key.
    fn of(key: Self::Key) -> Self;
}

/// What an expression makes with the type of the cells of a column; nothing where those are none of ours.
macro_rules! with_cell {
    ($data_type:expr, $cell:ident => $made:expr) => {{
        use arrow::datatypes::{DataType as Of, IntervalUnit};
        macro_rules! made {
            ($type:ty) => {{
                type $cell = $type;
                Some($made)
            }};
        }
        match $data_type {
            Of::Int8 => made!(i8),
            Of::Int16 => made!(i16),
            Of::Int32 | Of::Date32 | Of::Time32(_) | Of::Decimal32(..) => made!(i32),
            Of::Interval(IntervalUnit::YearMonth) => made!(i32),
            Of::Int64 | Of::Date64 | Of::Time64(_) | Of::Decimal64(..) => made!(i64),
            Of::Timestamp(..) | Of::Duration(_) => made!(i64),
            Of::Decimal128(..) => made!(i128),
            Of::UInt8 => made!(u8),
            Of::UInt16 => made!(u16),
            Of::UInt32 => made!(u32),
            Of::UInt64 => made!(u64),
            Of::Float32 => made!(f32),
            Of::Float64 => made!(f64),
            _ => None,
        }
    }};
}
pub(super) use with_cell;

/// The cells of a column of a type as wide as its own, those of NULLs among them.
pub(super) fn cells<T: ArrowNativeType>(column: &ArrayRef) -> ScalarBuffer<T> {
    let data = column.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

macro_rules! signed {
    ($($cell:ty, $wide:ty, $key:ty);*) => {$(
        impl Cell for $cell {
            type Key = $key;

            fn key(self) -> $key {
                (<$wide>::from(self) as $key) ^ (1 << (<$key>::BITS - 1))
            }

            fn of(key: $key) -> Self {
                // A key is made of a cell: what is cut off are copies of its sign.
                (key ^ (1 << (<$key>::BITS - 1))) as Self
            }
        }
    )*};
}

macro_rules! unsigned {
    ($($cell:ty, $key:ty);*) => {$(
        impl Cell for $cell {
            type Key = $key;

            fn key(self) -> $key {
                <$key>::from(self)
            }

            fn of(key: $key) -> Self {
                key as Self
            }
        }
    )*};
}

macro_rules! floating {
    ($($cell:ty, $key:ty);*) => {$(
        impl Cell for $cell {
            type Key = $key;

            fn key(self) -> $key {
                let (bits, sign) = (self.to_bits(), 1 << (<$key>::BITS - 1));
                if bits & sign == 0 { bits ^ sign } else { !bits }
            }

            fn of(key: $key) -> Self {
                let sign = 1 << (<$key>::BITS - 1);
                Self::from_bits(if key & sign == 0 { !key } else { key ^ sign })
            }
        }
    )*};
}

signed!(i8, i32, u32; i16, i32, u32; i32, i32, u32; i64, i64, u64; i128, i128, u128);
unsigned!(u8, u32; u16, u32; u32, u32; u64, u64);
floating!(f32, u32; f64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn holds<C: Cell + PartialOrd>(ascending: &[C]) {
        let keys: Vec<_> = ascending.iter().map(|cell| cell.key()).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{ascending:?}");
        for (cell, key) in ascending.iter().zip(keys) {
            assert_eq!(C::of(key).to_byte_slice_of(), cell.to_byte_slice_of(), "{cell:?}");
        }
    }

    trait Bytes {
        fn to_byte_slice_of(&self) -> Vec<u8>;
    }

    impl<T: ArrowNativeType> Bytes for T {
        fn to_byte_slice_of(&self) -> Vec<u8> {
            arrow::datatypes::ToByteSlice::to_byte_slice(self).to_vec()
        }
    }

    #[test]
    fn keys_have_the_order_of_their_cells_and_come_back() {
        holds(&[i8::MIN, -1, 0, 1, i8::MAX]);
        holds(&[i16::MIN, -300, 0, 300, i16::MAX]);
        holds(&[i32::MIN, -1, 0, 70_000, i32::MAX]);
        holds(&[i64::MIN, -1 << 40, -1, 0, 1, i64::MAX]);
        holds(&[i128::MIN, -1 << 90, -1, 0, 1, i128::MAX]);
        holds(&[0_u8, 1, 255]);
        holds(&[0_u16, 1, u16::MAX]);
        holds(&[0_u32, 1, u32::MAX]);
        holds(&[0_u64, 1, u64::MAX]);
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        holds(&[-nan, -infinity, f64::MIN, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, infinity, nan]);
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        holds(&[-nan, -infinity, f32::MIN, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, infinity, nan]);
    }
}
