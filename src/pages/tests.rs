//! What is read by pages against what the `parquet` crate's reader makes of the same file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat_batches, take};
use arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Schema};
use datafusion::common::assert_contains;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};

use super::layout::Layout;
use super::window::{Place, Windows};
use crate::Database;
use crate::error::Result;

const ROWS: usize = 700;

/// Numbers with runs among them, the same for a seed in every run.
fn numbers(of: &DataType, count: usize, seed: u64) -> ArrayRef {
    let mut state = seed;
    let least = if of.is_unsigned_integer() { 0 } else { -50 };
    let numbers = (0..count).map(|i| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        if i % 90 < 40 { least } else { least + (state >> 33) as i32 % 100 }
    });
    let numbers: Int32Array = numbers.map(Some).collect();
    match of {
        DataType::Date32 => Arc::new(numbers.reinterpret_cast::<Date32Type>()),
        _ => cast(&numbers, of).unwrap(),
    }
}

/// Nulls at some places, in runs and alone.
fn nulls(count: usize, seed: usize) -> NullBuffer {
    (0..count)
        .map(|i| !(i * 7 + seed).is_multiple_of(5) && !(i / 50 + seed).is_multiple_of(4))
        .collect()
}

fn with_nulls(array: &ArrayRef, seed: usize) -> ArrayRef {
    let nulls = nulls(array.len(), seed);
    let places = (0..array.len() as u64).map(|i| nulls.is_valid(i as usize).then_some(i));
    take(array, &places.collect::<UInt64Array>(), None).unwrap()
}

fn lists(field: Field, values: &ArrayRef, nulls: Option<NullBuffer>) -> ArrayRef {
    let mut left = values.len();
    let sizes = (0..ROWS).map(|row| {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let size = if is_null { 0 } else { ((row * row) % 7).min(left) };
        left -= size;
        size
    });
    let offsets = arrow::buffer::OffsetBuffer::from_lengths(sizes.collect::<Vec<_>>());
    let values = values.slice(0, *offsets.last().unwrap() as usize);
    Arc::new(arrow::array::ListArray::new(Arc::new(field), offsets, values, nulls))
}

/// A column of every type in every shape.
fn columns() -> RecordBatch {
    let types = [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Date32,
    ];
    let mut columns: Vec<(FieldRef, ArrayRef)> = Vec::new();
    let mut push = |name: String, array: ArrayRef, nullable| {
        columns.push((Arc::new(Field::new(name, array.data_type().clone(), nullable)), array));
    };
    for (seed, of) in types.iter().enumerate() {
        let one = numbers(of, ROWS, seed as u64);
        push(format!("{of} required"), Arc::clone(&one), false);
        push(format!("{of} optional"), with_nulls(&one, seed), true);
        let some = numbers(of, ROWS * 3, seed as u64);
        let element = |nullable| Field::new("element", of.clone(), nullable);
        push(format!("{of} lists"), lists(element(false), &some, None), false);
        let holed = with_nulls(&some, seed);
        push(format!("{of} NULL"), lists(element(true), &holed, Some(nulls(ROWS, seed))), true);
        let sized = |values: &ArrayRef, nullable, nulls| -> ArrayRef {
            let field = Arc::new(element(nullable));
            let values = values.slice(0, ROWS * 3);
            Arc::new(arrow::array::FixedSizeListArray::new(field, 3, values, nulls))
        };
        push(format!("{of} of 3"), sized(&some, false, None), false);
        push(format!("{of} of 3 NULL"), sized(&holed, true, Some(nulls(ROWS, seed + 1))), true);
        let large = DataType::LargeList(Arc::new(element(true)));
        let of_any = lists(element(true), &holed, Some(nulls(ROWS, seed + 2)));
        push(format!("{of} large"), cast(&of_any, &large).unwrap(), true);
    }
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

fn write(path: &Path, batch: &RecordBatch, properties: WriterPropertiesBuilder) {
    let file = File::create(path).unwrap();
    let properties = properties.set_max_row_group_row_count(Some(300)).build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// All rows of a file by pages, or those of each row group that are selected.
fn by_pages(
    path: &Path,
    fields: &[FieldRef],
    selection: Option<&[RowSelector]>,
    (parts, batch_rows): (usize, usize),
) -> Result<Vec<RecordBatch>> {
    let file = File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    reader.try_parse(&file).unwrap();
    let metadata = Arc::new(reader.finish().unwrap());
    let described = metadata.file_metadata().schema_descr();
    let layouts: Vec<_> = fields
        .iter()
        .map(|field| Layout::of(field, described).expect("a column of numbers"))
        .collect();
    for group in metadata.row_groups() {
        assert!(layouts.iter().all(|layout| layout.is_readable(group.column(layout.leaf))));
    }
    let groups = metadata.num_row_groups();
    let place = Arc::new(Place { path: path.to_owned(), bytes, metadata, layouts });
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut batches = Vec::new();
        for group in 0..groups {
            let rows = place.metadata.row_group(group).num_rows() as usize;
            let all = [RowSelector::select(rows)];
            let selection = selection.unwrap_or(&all).to_vec();
            let mut windows = Windows::open(&place, group, selection, None, parts, batch_rows);
            while let Some(columns) = windows.next(None).await? {
                batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).unwrap());
            }
        }
        Ok(batches)
    })
}

fn by_the_crate(path: &Path, selection: Option<&RowSelection>) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let schema = Arc::clone(reader.schema());
    let reader = match selection {
        Some(selection) => reader.with_row_selection(selection.clone()),
        None => reader,
    };
    let batches: Vec<_> = reader.build().unwrap().collect::<std::result::Result<_, _>>().unwrap();
    concat_batches(&schema, &batches).unwrap()
}

fn compare(path: &Path, parts: usize, batch_rows: usize, what: &str) {
    let expected = by_the_crate(path, None);
    let fields: Vec<_> = expected.schema().fields().iter().cloned().collect();
    let found = by_pages(path, &fields, None, (parts, batch_rows));
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = concat_batches(&expected.schema(), &found).unwrap();
    for (field, (found, expected)) in
        fields.iter().zip(found.columns().iter().zip(expected.columns()))
    {
        assert_eq!(found, expected, "{what}, {}", field.name());
    }
}

/// Every way to write pages that is read here, with a name.
fn ways() -> Vec<(String, WriterPropertiesBuilder)> {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut ways = Vec::new();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for compression in [Compression::UNCOMPRESSED, zstd] {
            for page_rows in [13, 128, 10_000] {
                let plain = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(compression)
                    .set_data_page_row_count_limit(page_rows)
                    .set_write_batch_size(7);
                let name = format!("{version:?}, {compression:?}, {page_rows} rows");
                let apart = plain.clone().set_dictionary_enabled(false);
                ways.push((format!("{name}, plain"), apart.clone().set_encoding(Encoding::PLAIN)));
                ways.push((format!("{name}, dictionary"), plain.clone()));
                let given_up = plain.set_dictionary_page_size_limit(64);
                ways.push((format!("{name}, dictionary given up"), given_up));
                let without_index = apart.set_offset_index_disabled(true);
                ways.push((format!("{name}, by levels"), without_index));
            }
        }
    }
    ways
}

#[test]
fn rows_are_those_of_the_crates_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let batch = columns();
    for (at, (name, properties)) in ways().into_iter().enumerate() {
        write(&path, &batch, properties);
        for (parts, batch_rows) in [(1, 1000), (3, 64), (2, 7 + at)] {
            compare(&path, parts, batch_rows, &format!("{name}, {batch_rows} at a time"));
        }
    }
}

#[test]
fn numbers_may_be_split_into_bytes_or_be_differences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let batch = columns();
    for (encoding, of_floats) in
        [(Encoding::BYTE_STREAM_SPLIT, true), (Encoding::DELTA_BINARY_PACKED, false)]
    {
        let schema = batch.schema();
        let is_float = |at: usize| schema.field(at).name().starts_with("Float");
        let some = (0..batch.num_columns()).filter(|&at| is_float(at) == of_floats);
        let some: Vec<usize> = some.collect();
        let batch = batch.project(&some).unwrap();
        for page_rows in [13, 10_000] {
            let properties = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_encoding(encoding)
                .set_data_page_row_count_limit(page_rows)
                .set_write_batch_size(7);
            write(&path, &batch, properties);
            compare(&path, 2, 50, &format!("{encoding}, {page_rows} rows"));
        }
    }
}

#[test]
fn rows_that_are_not_selected_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.parquet");
    let batch = columns().slice(0, 300);
    let lengths = [3, 20, 40, 1, 90, 2, 50, 94];
    let selectors: Vec<_> = lengths
        .iter()
        .enumerate()
        .map(|(at, &rows)| match at % 2 {
            0 => RowSelector::skip(rows),
            _ => RowSelector::select(rows),
        })
        .collect();
    let selection = RowSelection::from(selectors.clone());
    for (name, properties) in ways() {
        write(&path, &batch, properties);
        let expected = by_the_crate(&path, Some(&selection));
        let fields: Vec<_> = expected.schema().fields().iter().cloned().collect();
        let found = by_pages(&path, &fields, Some(&selectors), (2, 16)).unwrap();
        assert_eq!(concat_batches(&expected.schema(), &found).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_file_without_rows_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.parquet");
    let batch = columns().slice(0, 0);
    write(&path, &batch, WriterProperties::builder());
    let fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    assert!(by_pages(&path, &fields, None, (2, 16)).unwrap().is_empty());
}

/// Files with a byte that is wrong are read to their end, or refused with their path.
#[test]
fn a_wrong_byte_is_an_error_or_another_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.parquet");
    let batch = columns();
    let some: Vec<usize> = (0..batch.num_columns())
        .filter(|&at| batch.schema().field(at).name().starts_with("Int32"))
        .collect();
    let batch = batch.project(&some).unwrap().slice(0, 90);
    let fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    for (name, properties) in ways().into_iter().step_by(11) {
        write(&path, &batch, properties);
        let right = std::fs::read(&path).unwrap();
        let footer =
            u32::from_le_bytes(right[right.len() - 8..right.len() - 4].try_into().unwrap());
        let data = right.len() - 8 - footer as usize;
        let mut refused = 0;
        for at in (4..data).step_by(data.div_ceil(400)) {
            let mut wrong = right.clone();
            wrong[at] ^= 1 << (at % 8);
            std::fs::write(&path, &wrong).unwrap();
            // The index of pages lies before the footer and is not read by everybody.
            if let Err(error) = by_pages_or_refused(&path, &fields) {
                refused += 1;
                assert_contains!(error.to_string(), "wrong.parquet");
                assert!(!error.to_string().contains("make no sense"), "{name}, byte {at}: {error}");
            }
        }
        assert!(refused > 0, "{name}");
    }
}

/// As [`by_pages`], and no rows where the file's index of pages cannot be read.
fn by_pages_or_refused(path: &Path, fields: &[FieldRef]) -> Result<Vec<RecordBatch>> {
    let file = File::open(path).unwrap();
    let mut reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    match reader.try_parse(&file) {
        Ok(()) => by_pages(path, fields, None, (1, 32)),
        Err(_) => Ok(Vec::new()),
    }
}

#[test]
fn a_file_that_was_cut_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.parquet");
    let batch = columns().slice(0, 200);
    write(&path, &batch, WriterProperties::builder());
    let right = std::fs::read(&path).unwrap();
    let fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(&path).unwrap());
    let metadata = Arc::new(metadata.unwrap());
    let layout = Layout::of(&fields[0], metadata.file_metadata().schema_descr()).unwrap();
    let place = |bytes| {
        Arc::new(Place {
            path: path.clone(),
            bytes,
            metadata: Arc::clone(&metadata),
            layouts: vec![layout.clone()],
        })
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = |place: Arc<Place>| {
        runtime.block_on(async move {
            let all = [RowSelector::select(200)];
            Windows::open(&place, 0, all, None, 1, 500).next(None).await
        })
    };
    for kept in [0, 4, 50, right.len() - 1] {
        std::fs::write(&path, &right[..kept]).unwrap();
        let error = read(place(right.len() as u64)).unwrap_err();
        assert_contains!(error.to_string(), "cut.parquet: the file was changed");
    }
    std::fs::write(&path, &right[..50]).unwrap();
    assert_contains!(read(place(50)).unwrap_err().to_string(), "cut.parquet: column");
}

/// A plan as text, of one statement after others.
fn plan(settings: &str, query: &str) -> String {
    let connection = Database::builder().threads(2).build().unwrap().connect();
    connection.execute(settings).unwrap();
    let rows = connection.query(query).unwrap().rows::<(String, String)>().unwrap();
    rows.into_iter().map(|(_, plan)| plan).collect()
}

#[test]
fn a_plan_says_who_reads() {
    let on = "SET parquet_pages = on";
    let flights = "'examples/data/flights.parquet'";
    let distances = format!("EXPLAIN SELECT sum(distance) FROM {flights} WHERE month > 5");
    assert_contains!(plan(on, &distances), "reader=pages");
    let lists = "EXPLAIN SELECT id, pixels FROM 'examples/data/digits.parquet'";
    assert_contains!(plan(on, lists), "reader=pages");
    let of_matrix =
        "EXPLAIN SELECT * FROM MATRIX(sum((SELECT pixels FROM 'examples/data/digits.parquet')))";
    assert_contains!(plan(on, of_matrix), "reader=pages");
    // By itself it reads lists, and numbers where groups of rows are large.
    let auto = "SET parquet_pages = auto";
    assert_contains!(plan(auto, &distances), "reader=pages of large groups");
    let explained = plan(auto, lists);
    assert!(explained.contains("reader=pages") && !explained.contains("large groups"));
    let left = [
        (on, format!("EXPLAIN SELECT carrier, distance FROM {flights}")),
        // Row groups are read in the order of their statistics.
        (on, format!("EXPLAIN SELECT distance FROM {flights} ORDER BY distance LIMIT 3")),
        (on, format!("EXPLAIN SELECT DISTINCT origin FROM {flights} WHERE month = 3")),
        ("SET parquet_pages = off", distances),
    ];
    for (settings, query) in left {
        assert!(!plan(settings, &query).contains("reader=pages"), "{query}");
    }
}

#[test]
fn real_files_are_read_by_pages() {
    for (columns, condition) in [("distance, arr_delay", "month > 5"), ("distance", "flight = 461")]
    {
        let query = format!(
            "EXPLAIN ANALYZE SELECT {columns} FROM 'examples/data/flights.parquet' WHERE {condition}"
        );
        let text = plan("SET parquet_pages = on", &query);
        // Those that have Bloom filters are left where a value is asked for.
        let left =
            if condition.contains('=') { "files_not_by_pages=2" } else { "files_not_by_pages=0" };
        assert_contains!(text, left);
        let text = plan("SET parquet_pages = auto", &query);
        assert_contains!(text, "files_not_by_pages=2");
    }
}

#[test]
fn a_damaged_page_is_an_error_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.parquet");
    let batch = columns().project(&[2 * 7, 2 * 7 + 2]).unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::default());
    write(&path, &batch, WriterProperties::builder().set_compression(zstd));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40..80].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let connection = Database::memory().unwrap().connect();
    let query = format!("SELECT * FROM '{}'", path.display());
    let error = connection.query(&query).and_then(|rows| rows.collect()).unwrap_err();
    assert_contains!(error.to_string(), "damaged.parquet: column 'Int32 required'");
}
