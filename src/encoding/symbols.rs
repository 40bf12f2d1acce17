//! Long texts as codes of one byte for strings of up to eight that are frequent among them: Boncz, Neumann and Leis, *FSST: Fast
//! Random Access String Compression*, PVLDB 13, 2020.
//!
//! ```text
//! a column    codes    the bytes of each text, packed
//!             lengths  of the texts
//!             symbols  what the codes stand for, the same for all texts that were packed together
//! ```
//!
//! Each text is packed by itself, so a column may be cut, filtered and put together with others as it is, and only what is left of
//! it is unpacked. At rest all texts have the same symbols, and their codes and both lengths are three cells.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, DictionaryArray, Int32Array, StringArray,
    StringViewArray, StructArray, UInt8Array, UInt16Array, UInt32Array,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, UInt8Type, UInt16Type, UInt32Type};
use arrow::error::ArrowError;
use fsst::{Compressor, ESCAPE_CODE, Symbol};
use memchr::memchr_iter;

use super::bits;

/// Bytes of a text on average, below which views hold most of them.
const MEAN_BYTES_MIN: usize = 12;

/// Texts that show whether it pays to pack the others.
const TRIED: usize = 512;

/// Bytes of a text that is packed beside its codes: where they begin, how long it is, and whose symbols it has.
const BYTES_BESIDE: usize = size_of::<i32>() + size_of::<u16>() + size_of::<u8>();

/// Bytes of a symbol, and then the number of those that it stands for.
const SYMBOL_BYTES: usize = 9;

/// Codes that may stand for a symbol.
const SYMBOLS_MAX: usize = ESCAPE_CODE as usize;

/// The same texts packed; nothing where they take more than half of the bytes then.
pub(super) fn packed(texts: &StringViewArray) -> Option<ArrayRef> {
    let all: Vec<&[u8]> = texts.iter().map(|text| text.unwrap_or_default().as_bytes()).collect();
    let lengths = all.iter().map(|text| u16::try_from(text.len()).ok());
    let lengths: Vec<u16> = lengths.collect::<Option<_>>()?;
    let bytes: usize = all.iter().map(|text| text.len()).sum();
    if bytes <= MEAN_BYTES_MIN * all.len() || i32::try_from(2 * bytes).is_err() {
        return None;
    }
    let compressor = Compressor::train(&all);
    let (mut codes, mut ends) = (Vec::new(), Vec::with_capacity(all.len()));
    let mut done = 0;
    for end in [TRIED.min(all.len()), all.len()] {
        let part = &all[done..end];
        compressor
            .compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(part, &mut codes, &mut ends);
        done = end;
        let plain: usize = all[..done].iter().map(|text| size_of::<u128>() + text.len()).sum();
        if 2 * (codes.len() + done * BYTES_BESIDE) > plain {
            return None;
        }
    }
    codes.shrink_to_fit();
    let offsets = std::iter::once(0).chain(ends.into_iter().map(|end| end as i32));
    let offsets = OffsetBuffer::new(ScalarBuffer::from_iter(offsets));
    let codes = BinaryArray::new(offsets, Buffer::from_vec(codes), None);
    let symbols = BinaryArray::from_iter_values([written(&compressor)]);
    let symbols = DictionaryArray::new(UInt8Array::from_value(0, all.len()), Arc::new(symbols));
    let lengths = UInt16Array::from(lengths);
    let columns: Vec<ArrayRef> = vec![Arc::new(codes), Arc::new(lengths), Arc::new(symbols)];
    Some(Arc::new(StructArray::try_new(fields(), columns, texts.nulls().cloned()).ok()?))
}

/// The texts that were packed so; nothing where this is no such column.
///
/// # Errors
/// None, for what was packed is unpacked.
pub(super) fn unpacked(column: &ArrayRef) -> Result<Option<ArrayRef>, ArrowError> {
    if !is_packed(column) {
        return Ok(None);
    }
    let packed = column.as_struct();
    let codes = packed.column(0).as_binary::<i32>();
    let symbols = packed.column(2).as_dictionary::<UInt8Type>();
    let tables = symbols.values().as_binary::<i32>();
    let mut texts = Vec::new();
    let mut first = 0;
    // Rows of which the symbols are the same are unpacked in one go.
    for alike in symbols.keys().values().chunk_by(PartialEq::eq) {
        let table = Table::read(tables.value(usize::from(alike[0])));
        let bounds = &codes.value_offsets()[first..=first + alike.len()];
        first += alike.len();
        let codes = &codes.value_data()[bounds[0] as usize..bounds[alike.len()] as usize];
        let unpacked = fsst::Decompressor::new(&table.symbols, &table.lengths).decompress(codes);
        if texts.is_empty() { texts = unpacked } else { texts.extend_from_slice(&unpacked) }
    }
    texts.shrink_to_fit();
    i32::try_from(texts.len()).map_err(|_| ArrowError::OffsetOverflowError(texts.len()))?;
    let ends = lengths(packed).iter().scan(0, |end, &length| {
        *end += i32::from(length);
        Some(*end)
    });
    let offsets = OffsetBuffer::new(ScalarBuffer::from_iter(std::iter::once(0).chain(ends)));
    let texts = StringArray::try_new(offsets, Buffer::from_vec(texts), packed.nulls().cloned())?;
    Ok(Some(Arc::new(StringViewArray::from(&texts))))
}

fn lengths(packed: &StructArray) -> &[u16] {
    packed.column(1).as_primitive::<UInt16Type>().values()
}

/// Bytes of texts that are packed.
pub(crate) struct PackedBytes {
    pub(crate) bytes: Int32Array,
    /// Whether each of them is a character: no text has any of several bytes.
    pub(crate) are_characters: bool,
}

/// Those of a column; nothing where its texts are not packed.
pub(super) fn packed_bytes(column: &ArrayRef) -> Option<PackedBytes> {
    let packed = column.as_struct_opt().filter(|_| is_packed(column))?;
    let bytes = lengths(packed).iter().map(|&length| i32::from(length)).collect();
    let codes = packed.column(0).as_binary::<i32>();
    let ends = codes.value_offsets();
    let bounds = ends.first().zip(ends.last()).map(|(first, last)| *first as usize..*last as usize);
    let codes = &codes.value_data()[bounds?];
    let tables = packed.column(2).as_dictionary::<UInt8Type>().values().as_binary::<i32>();
    let symbols = tables.iter().flatten().flat_map(|table| table.chunks_exact(SYMBOL_BYTES));
    let of_symbols = symbols.flat_map(|symbol| &symbol[..usize::from(symbol[SYMBOL_BYTES - 1])]);
    // Behind the code for it a byte stands for itself; none of a text is that code.
    let escaped = memchr_iter(ESCAPE_CODE, codes).filter_map(|at| codes.get(at + 1));
    let are_characters = of_symbols.chain(escaped).all(u8::is_ascii);
    Some(PackedBytes { bytes: Int32Array::new(bytes, packed.nulls().cloned()), are_characters })
}

/// Whether a column has texts that are packed.
pub(super) fn is_packed(column: &ArrayRef) -> bool {
    are_packed_as(column.data_type())
}

/// Whether texts that are packed have this type.
pub(super) fn are_packed_as(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(of) if *of == fields())
}

/// Packed texts as one cell; nothing where they have not all the same symbols, or are none.
pub(super) fn at_rest(column: &ArrayRef) -> Option<ArrayRef> {
    let packed = column.as_struct_opt().filter(|_| is_packed(column))?;
    let codes = packed.column(0).as_binary::<i32>();
    let symbols = packed.column(2).as_dictionary::<UInt8Type>().values();
    if symbols.len() != 1 {
        return None;
    }
    let ends = codes.value_offsets();
    let code_bytes = ends.windows(2).map(|ends| (ends[1] - ends[0]) as u32);
    let code_bytes: ArrayRef = Arc::new(UInt32Array::from_iter_values(code_bytes));
    let lengths = UInt16Array::new(lengths(packed).to_vec().into(), packed.nulls().cloned());
    let bounds = ends.first().zip(ends.last()).map(|(first, last)| *first as usize..*last as usize);
    let codes = BinaryArray::from_iter_values([codes.value_data().get(bounds?)?]);
    let columns: [ArrayRef; 4] = [
        Arc::new(codes),
        bits::packed(&code_bytes, &DataType::UInt32)?,
        bits::packed(&(Arc::new(lengths) as _), &DataType::UInt16)?,
        Arc::clone(symbols),
    ];
    let names = ["codes", "code bytes", "lengths", "symbols"].into_iter().zip(&columns);
    let fields = names.map(|(name, of)| Field::new(name, of.data_type().clone(), false));
    let fields = Fields::from_iter(fields);
    Some(Arc::new(StructArray::try_new(fields, columns.to_vec(), None).ok()?))
}

/// Some of the texts that are at rest so, packed.
///
/// # Errors
/// None, for what is at rest was packed.
pub(super) fn awake(at_rest: &StructArray, rows: Range<usize>) -> Result<ArrayRef, ArrowError> {
    let numbers = |at: usize, of: DataType, rows| {
        let numbers = at_rest.column(at).as_binary_opt::<i64>();
        let other = || ArrowError::InvalidArgumentError("no texts are packed so".to_owned());
        bits::unpacked(numbers.ok_or_else(other)?, &of, rows)
    };
    // Codes of the rows before are passed over.
    let code_bytes = numbers(1, DataType::UInt32, 0..rows.end)?;
    let (before, of_rows) = code_bytes.as_primitive::<UInt32Type>().values().split_at(rows.start);
    let first: u32 = before.iter().sum();
    let ends = of_rows.iter().scan(first, |end, &bytes| {
        *end += bytes;
        Some(*end as i32)
    });
    let offsets = std::iter::once(first as i32).chain(ends);
    let offsets = OffsetBuffer::new(ScalarBuffer::from_iter(offsets));
    let codes = at_rest.column(0).as_binary::<i32>().values().clone();
    let codes = BinaryArray::try_new(offsets, codes, None)?;
    let lengths = numbers(2, DataType::UInt16, rows.clone())?;
    let lengths = lengths.as_primitive::<UInt16Type>();
    let symbols = UInt8Array::from_value(0, rows.len());
    let symbols = DictionaryArray::try_new(symbols, Arc::clone(at_rest.column(3)))?;
    let nulls = lengths.nulls().cloned();
    // What has no text may have any length at rest.
    let lengths = UInt16Array::from_iter_values(lengths.iter().map(Option::unwrap_or_default));
    let columns: Vec<ArrayRef> = vec![Arc::new(codes), Arc::new(lengths), Arc::new(symbols)];
    Ok(Arc::new(StructArray::try_new(fields(), columns, nulls)?))
}

/// Bytes of texts that are packed.
pub(super) fn unpacked_bytes(column: &ArrayRef) -> usize {
    lengths(column.as_struct()).iter().map(|&length| usize::from(length)).sum()
}

fn fields() -> Fields {
    let symbols = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Binary));
    Fields::from(vec![
        Field::new("codes", DataType::Binary, false),
        Field::new("lengths", DataType::UInt16, false),
        Field::new("symbols", symbols, false),
    ])
}

/// The symbols of a compressor.
fn written(compressor: &Compressor) -> Vec<u8> {
    let symbols = compressor.symbol_table().iter().zip(compressor.symbol_lengths());
    let bytes = symbols.flat_map(|(symbol, &length)| {
        symbol.to_u64().to_le_bytes().into_iter().chain(std::iter::once(length))
    });
    bytes.collect()
}

/// Symbols by their codes.
struct Table {
    symbols: [Symbol; SYMBOLS_MAX],
    lengths: [u8; SYMBOLS_MAX],
}

impl Table {
    fn read(written: &[u8]) -> Self {
        let mut table = Self { symbols: [Symbol::ZERO; SYMBOLS_MAX], lengths: [0; SYMBOLS_MAX] };
        for (at, symbol) in written.chunks_exact(SYMBOL_BYTES).enumerate().take(SYMBOLS_MAX) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&symbol[..8]);
            table.symbols[at] = Symbol::from_slice(&bytes);
            table.lengths[at] = symbol[8];
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BooleanArray;
    use arrow::compute::{concat, filter, take};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// So many texts of words, some of them empty, NULL, or of letters that no other has.
    fn texts(random: &mut SmallRng, rows: usize) -> StringViewArray {
        let words = [
            "carefully ",
            "quick",
            "ly ",
            "ideas 漢字 ",
            "above the ",
            "\0",
            "é",
            "final packages ",
        ];
        let texts = (0..rows).map(|_| {
            let mut text = || -> String {
                match random.random_range(0..20) {
                    0 => String::new(),
                    1 => char::from_u32(random.random_range(0x1_0000..0x1_1000))
                        .into_iter()
                        .collect(),
                    _ => (0..random.random_range(3..12))
                        .map(|_| words[random.random_range(0..words.len())])
                        .collect(),
                }
            };
            let text = Some(text());
            text.filter(|text| text.len() != 8)
        });
        texts.collect()
    }

    fn back(packed: &ArrayRef) -> ArrayRef {
        unpacked(packed).unwrap().unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked_whatever_became_of_it() {
        let random = &mut SmallRng::seed_from_u64(43);
        for _ in 0..60 {
            let rows = random.random_range(1..3000);
            let [one, other] = [(); 2].map(|()| texts(random, rows));
            let (Some(packed_one), Some(packed_other)) = (packed(&one), packed(&other)) else {
                assert!(rows < 100, "{rows}");
                continue;
            };
            let [one, other]: [ArrayRef; 2] = [Arc::new(one), Arc::new(other)];
            assert_eq!(packed_one.nulls(), one.nulls());
            assert_eq!(&back(&packed_one), &one);
            let start = random.random_range(0..=rows);
            let part = |column: &ArrayRef| column.slice(start, (rows - start).min(700));
            assert_eq!(&back(&part(&packed_one)), &part(&one));
            // Of rows that are left, and of two batches that have symbols of their own.
            let wanted: BooleanArray = (0..rows).map(|_| Some(random.random_bool(0.1))).collect();
            let kept = |column: &ArrayRef| filter(column, &wanted).unwrap();
            assert_eq!(&back(&kept(&packed_one)), &kept(&one));
            assert_eq!(&back(&kept(&packed_one).slice(0, 0)), &one.slice(0, 0));
            let both =
                |one: &ArrayRef, other: &ArrayRef| concat(&[one.as_ref(), other.as_ref()]).unwrap();
            assert_eq!(&back(&both(&packed_one, &packed_other)), &both(&one, &other));
            let places = UInt8Array::from_iter_values((0..200).map(|at| at % rows.min(250) as u8));
            let taken = |column: &ArrayRef| take(column, &places, None).unwrap();
            assert_eq!(&back(&taken(&packed_one)), &taken(&one));
        }
    }

    #[test]
    fn texts_are_packed_where_that_halves_them() {
        let random = &mut SmallRng::seed_from_u64(44);
        let long: StringViewArray =
            (0..2000).map(|row| Some(format!("Customer#{row:09}"))).collect();
        let packed_long = packed(&long).unwrap();
        let plain: ArrayRef = Arc::new(long);
        assert!(2 * packed_long.get_array_memory_size() < plain.get_array_memory_size());
        assert_eq!(unpacked_bytes(&packed_long), 18 * 2000);
        // Short ones, and such as have nothing in common.
        let short: StringViewArray = (0..2000).map(|row| Some(format!("id{row:010}"))).collect();
        assert!(packed(&short).is_none());
        let noise = |_| Some((0..40).map(|_| random.random_range(' '..'~')).collect::<String>());
        assert!(packed(&(0..2000).map(noise).collect()).is_none());
        assert!(packed(&StringViewArray::from(vec![None::<&str>; 5])).is_none());
        let none: ArrayRef = Arc::new(StringViewArray::from(vec!["a"]));
        assert!(unpacked(&none).unwrap().is_none() && !is_packed(&none));
    }
}
