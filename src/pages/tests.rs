//! What is read by pages against what the `parquet` crate's reader makes of the same file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, StringViewArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat_batches, filter_record_batch, take};
use arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Int64Type, Schema, TimeUnit};
use bytes::Bytes;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{ScalarValue, ToDFSchema, assert_contains};
use datafusion::config::ConfigNonZeroUsize;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{binary, col, lit, not};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::chunk::Source;
use super::kept::KeptColumns;
use super::layout::Layout;
use super::rule::ParquetByPages;
use super::source::Shared;
use super::window::{By, Place, Windows};
use crate::config::{ColumnLimits, Settings};
use crate::encoding::{as_they_are, decoded_batch};
use crate::error::Result;
use crate::memory::{Eviction, Thresholds, share_of};
use crate::steps::steps;
use crate::{Database, config};

mod kept;

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
    let some = numbers(&DataType::Int64, ROWS, 99);
    let units = |unit| DataType::Timestamp(unit, None);
    for of in [
        DataType::Decimal128(9, 2),
        DataType::Decimal128(18, 4),
        DataType::Decimal128(25, 3),
        DataType::Decimal128(38, 0),
        DataType::Time64(TimeUnit::Microsecond),
        units(TimeUnit::Millisecond),
        units(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Boolean,
        DataType::Utf8View,
        DataType::BinaryView,
    ] {
        let one = match &of {
            DataType::Utf8View | DataType::BinaryView => cast(&texts(), &of).unwrap(),
            of => cast(&some, of).unwrap(),
        };
        push(format!("{of} required"), Arc::clone(&one), false);
        push(format!("{of} optional"), with_nulls(&one, 3), true);
    }
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Texts of up to some dozen letters, with runs among them, some in letters of two bytes.
fn texts() -> ArrayRef {
    let letters =
        ["", "a", "bé", "a text that no view holds whole", "cçc", "an ümlaut in a longer text"];
    let text = |i: usize| {
        format!("{}{}", letters[(i * 5 + i / 7) % 6], if i.is_multiple_of(3) { i % 50 } else { 0 })
    };
    Arc::new((0..ROWS).map(|i| Some(text(i))).collect::<StringArray>())
}

fn write(path: &Path, batch: &RecordBatch, properties: WriterPropertiesBuilder) {
    let file = File::create(path).unwrap();
    let properties = properties.set_max_row_group_row_count(Some(300)).build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// Who reads a row group: so many threads, or where there are none whoever asks.
fn by(place: &Place, group: usize, threads: usize) -> By {
    if threads > 0 {
        return By::Threads(threads);
    }
    let file = std::fs::read(&place.path).unwrap();
    let sources = (0..place.layouts.len()).map(|at| {
        let part = place.part(group, at);
        let bytes = Bytes::copy_from_slice(&file[part.start as usize..part.end as usize]);
        place.kept(group, at).unwrap_or(Source::Fetched(bytes, part.start))
    });
    By::Here(sources.collect())
}

/// What keeps columns of so many bytes, within a memory limit.
fn keeps(
    bytes: usize,
    limit_bytes: usize,
) -> (Arc<KeptColumns>, Arc<Eviction>, Arc<dyn MemoryPool>) {
    let pool = share_of(limit_bytes);
    let compression = config::Compression::None;
    let thresholds = Thresholds { memory: 90, compressed: 95, compression };
    let eviction = Eviction::new(&pool, thresholds);
    let limits = ColumnLimits { least: bytes, most: bytes };
    (KeptColumns::new(&pool, &eviction, limits), eviction, pool)
}

/// All rows of a file by pages, or those of each row group that are selected.
fn by_pages(
    path: &Path,
    fields: &[FieldRef],
    selection: Option<&[RowSelector]>,
    (threads, batch_rows): (usize, usize),
) -> Result<Vec<RecordBatch>> {
    by_pages_where(path, fields, (selection, None), (threads, batch_rows))
}

/// As [`by_pages`], and of the rows at least those that meet a condition.
fn by_pages_where(
    path: &Path,
    fields: &[FieldRef],
    rows: (Option<&[RowSelector]>, Option<&Arc<dyn PhysicalExpr>>),
    by: (usize, usize),
) -> Result<Vec<RecordBatch>> {
    by_pages_again(path, fields, rows, by, &keeps(0, usize::MAX).0)
}

/// As [`by_pages_where`], with columns that others have read; encoded they are the same once they are decoded.
fn by_pages_again(
    path: &Path,
    fields: &[FieldRef],
    rows: (Option<&[RowSelector]>, Option<&Arc<dyn PhysicalExpr>>),
    by: (usize, usize),
    kept: &Arc<KeptColumns>,
) -> Result<Vec<RecordBatch>> {
    let found = by_pages_as(path, fields, rows, by, kept, false)?;
    let encoded = by_pages_as(path, fields, rows, by, &keeps(0, usize::MAX).0, true)?;
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let decoded = encoded.iter().map(|batch| decoded_batch(batch, &schema));
    assert_eq!(decoded.collect::<std::result::Result<Vec<_>, _>>().unwrap(), found);
    Ok(found)
}

fn by_pages_as(
    path: &Path,
    fields: &[FieldRef],
    (selection, condition): (Option<&[RowSelector]>, Option<&Arc<dyn PhysicalExpr>>),
    (threads, batch_rows): (usize, usize),
    kept: &Arc<KeptColumns>,
    is_encoded: bool,
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
        .map(|layout| Layout { is_encoded, ..layout })
        .collect();
    for group in metadata.row_groups() {
        assert!(layouts.iter().all(|layout| layout.is_readable(group.column(layout.leaf))));
    }
    let groups = metadata.num_row_groups();
    let place = Place::open(path.to_owned(), bytes, metadata, layouts, &Arc::default(), kept);
    let place = place.map_err(|flaw| flaw.at(path))?;
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut batches = Vec::new();
        for group in 0..groups {
            let rows = place.metadata.row_group(group).num_rows() as usize;
            let all = [RowSelector::select(rows)];
            let selection = selection.unwrap_or(&all).to_vec();
            let mut steps = condition.map_or(Vec::new(), |condition| steps(condition, &schema));
            let by = by(&place, group, threads);
            let windows = Windows::open(&place, group, selection, &steps, &by, batch_rows);
            let mut windows = windows.map_err(|flaw| flaw.at(path))?;
            while let Some(columns) = windows.next(&mut steps).await? {
                if !columns.is_empty() {
                    let rows = columns[0].len();
                    batches.push(as_they_are(&schema, columns, rows).unwrap());
                }
            }
        }
        Ok(batches)
    })
}

fn by_the_crate(path: &Path, selection: Option<&RowSelection>) -> RecordBatch {
    let file = File::open(path).unwrap();
    let options = ArrowReaderOptions::new();
    let known = ArrowReaderMetadata::load(&file, options.clone()).unwrap();
    // Texts are read as views, as DataFusion has it.
    let as_view = |field: &FieldRef| match field.data_type() {
        DataType::Utf8 => field.as_ref().clone().with_data_type(DataType::Utf8View),
        DataType::Binary => field.as_ref().clone().with_data_type(DataType::BinaryView),
        _ => field.as_ref().clone(),
    };
    let fields: Vec<Field> = known.schema().fields().iter().map(as_view).collect();
    let options = options.with_schema(Arc::new(Schema::new(fields)));
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
    let schema = Arc::clone(reader.schema());
    let reader = match selection {
        Some(selection) => reader.with_row_selection(selection.clone()),
        None => reader,
    };
    let batches: Vec<_> = reader.build().unwrap().collect::<std::result::Result<_, _>>().unwrap();
    concat_batches(&schema, &batches).unwrap()
}

fn compare(path: &Path, threads: usize, batch_rows: usize, what: &str) {
    let expected = by_the_crate(path, None);
    let fields: Vec<_> = expected.schema().fields().iter().cloned().collect();
    let found = by_pages(path, &fields, None, (threads, batch_rows));
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = concat_batches(&expected.schema(), &found).unwrap();
    for (field, (found, expected)) in
        fields.iter().zip(found.columns().iter().zip(expected.columns()))
    {
        assert_eq!(found, expected, "{what}, {}", field.name());
    }
}

/// Properties by which texts are written plainly where they have no dictionary.
fn plain_texts() -> WriterPropertiesBuilder {
    let mut properties = WriterProperties::builder();
    for of in ["Utf8View", "BinaryView", "Decimal128(25, 3)", "Decimal128(38, 0)"] {
        for column in ["required", "optional"] {
            let column = ColumnPath::new(vec![format!("{of} {column}")]);
            properties = properties.set_column_encoding(column, Encoding::PLAIN);
        }
    }
    properties
}

/// Every way to write pages that is read here, with a name.
fn ways() -> Vec<(String, WriterPropertiesBuilder)> {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut ways = Vec::new();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for compression in
            [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW, zstd]
        {
            for page_rows in [13, 128, 10_000] {
                let plain = plain_texts()
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
        for (threads, batch_rows) in [(0, 1000), (3, 64), (at % 2, 7 + at)] {
            compare(&path, threads, batch_rows, &format!("{name}, {batch_rows} at a time"));
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
        let is_number = |at: usize| {
            let of = schema.field(at).data_type();
            let is_long = matches!(of, DataType::Decimal128(19.., _));
            let is_other =
                matches!(of, DataType::Boolean | DataType::Utf8View | DataType::BinaryView);
            !is_long && !is_other
        };
        let some =
            (0..batch.num_columns()).filter(|&at| is_float(at) == of_floats && is_number(at));
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

/// The rows of a batch that meet a condition.
fn meeting(condition: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> RecordBatch {
    let met = condition.evaluate(batch).unwrap().into_array(batch.num_rows()).unwrap();
    filter_record_batch(batch, met.as_boolean()).unwrap()
}

#[test]
fn rows_that_do_not_meet_the_condition_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("where.parquet");
    let batch = columns();
    let schema = batch.schema();
    let column = |name: &str| col(name, &schema).unwrap();
    let (of, and) =
        (|left, operator, right| binary(left, operator, right, &schema).unwrap(), Operator::And);
    let numbers = of(column("Int64 required"), Operator::Gt, lit(30_i64));
    // Zero, which stands where a number is NULL, would meet it.
    let other = of(column("Float64 optional"), Operator::Lt, lit(10.0_f64));
    let texts =
        of(column("Utf8View optional"), Operator::Gt, lit(ScalarValue::Utf8View(Some("b".into()))));
    let conditions = [
        Arc::clone(&numbers),
        of(Arc::clone(&numbers), and, Arc::clone(&other)),
        of(of(texts, and, numbers), and, other),
        // Most rows meet it, and none does.
        of(column("Int32 required"), Operator::GtEq, lit(-50_i32)),
        of(column("Int32 required"), Operator::Gt, lit(50_i32)),
    ];
    for (name, properties) in ways().into_iter().step_by(3) {
        write(&path, &batch, properties);
        let all = by_the_crate(&path, None);
        let fields: Vec<_> = all.schema().fields().iter().cloned().collect();
        for (at, condition) in conditions.iter().enumerate() {
            let expected = meeting(condition, &all);
            for how in [(0, 64), (2, 64), (0, 300)] {
                let found = by_pages_where(&path, &fields, (None, Some(condition)), how).unwrap();
                let found = concat_batches(&all.schema(), &found).unwrap();
                assert_eq!(meeting(condition, &found), expected, "{name}, {at}, {how:?}");
                let most = if at == 3 { ROWS } else { ROWS / 4 * 3 };
                assert!(found.num_rows() <= most, "{name}, {at}: {}", found.num_rows());
            }
        }
    }
}

/// A condition as SQL says it.
fn condition(sql: &str, schema: &Schema) -> Arc<dyn PhysicalExpr> {
    let (context, schema) = (SessionContext::new(), schema.clone().to_dfschema().unwrap());
    let condition = context.parse_sql_expr(sql, &schema).unwrap();
    context.create_physical_expr(condition, &schema).unwrap()
}

/// Texts of which there are few, but for one in each hundred rows that is there once; the same as bytes, with NULLs, and with
/// nothing else in the first row group; and the number of each row.
fn few_texts() -> RecordBatch {
    let kinds = ["MAIL", "SHIP", "", "a text that no view holds whole", "AIR"];
    let text = |i: usize| match i % 100 {
        99 => format!("the only text of row {i}"),
        _ => kinds[(i * 7 + i / 5) % 5].to_owned(),
    };
    let texts: ArrayRef = Arc::new((0..ROWS).map(|i| Some(text(i))).collect::<StringViewArray>());
    let nulls = with_nulls(&texts, 1);
    let late = (0..ROWS as u64).map(|i| (i >= 300).then_some(i)).collect::<UInt64Array>();
    let columns: [(_, ArrayRef, _); 5] = [
        ("row", Arc::new(Int32Array::from_iter_values(0..ROWS as i32)), false),
        ("s", Arc::clone(&texts), false),
        ("holed", Arc::clone(&nulls), true),
        ("bytes", cast(&nulls, &DataType::BinaryView).unwrap(), true),
        ("late", take(&texts, &late, None).unwrap(), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[test]
fn texts_of_a_dictionary_are_decided_by_its_values() {
    let conditions = [
        "s = 'SHIP'",
        "s = 'SHIP' OR s = 'a text that no view holds whole'",
        "s IN ('AIR', '', 'nowhere') AND s <> ''",
        "s LIKE 'a text%whole'",
        // Where a dictionary is given up, they are not in it.
        "s = 'the only text of row 299' OR s = 'the only text of row 499'",
        "s = 'nowhere'",
        "holed = 'SHIP'",
        "holed IS NULL AND row % 2 = 0",
        "holed IS NULL OR holed = 'SHIP'",
        "NOT (holed <> 'SHIP')",
        "holed IS NOT DISTINCT FROM 'SHIP'",
        "CASE WHEN holed IS NULL THEN 'MAIL' ELSE holed END = 'MAIL'",
        "bytes = X'53484950'",
        "late = 'AIR'",
        "row % 3 = 1 AND holed = 'SHIP'",
        "s = 'SHIP' AND late = s",
        // Of these a step keeps most rows.
        "late IS NULL",
        "holed IS DISTINCT FROM 'SHIP'",
        "holed <> 'SHIP' OR holed IS NULL",
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("few.parquet");
    let batch = few_texts();
    let fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    let properties = || WriterProperties::builder().set_write_batch_size(7);
    for (name, properties) in [
        ("one page", properties()),
        ("pages", properties().set_data_page_row_count_limit(40)),
        ("dictionary given up", properties().set_dictionary_page_size_limit(80)),
        ("plain", properties().set_dictionary_enabled(false).set_encoding(Encoding::PLAIN)),
    ] {
        write(&path, &batch, properties);
        for (at, sql) in conditions.iter().enumerate() {
            let condition = condition(sql, &batch.schema());
            let expected = meeting(&condition, &batch);
            for how in [(0, 50), (2, 50), (0, 300)] {
                let found = by_pages_where(&path, &fields, (None, Some(&condition)), how).unwrap();
                let found = concat_batches(&batch.schema(), &found).unwrap();
                let met = if at < 16 { found.clone() } else { meeting(&condition, &found) };
                assert_eq!(met, expected, "{name}: {sql}, {how:?}");
            }
        }
    }
}

#[test]
fn a_condition_that_fails_for_a_text_that_no_row_has_keeps_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fails.parquet");
    let selection = [RowSelector::skip(50), RowSelector::select(250)];
    // Of many values each row is looked at by itself.
    for (has_dictionary, values, expected) in [(true, 4, 250), (false, 4, 62), (true, 50, 5)] {
        let text = |i| format!("{}{}", if i < 50 { "x" } else { "" }, i % values);
        let texts = (0..300).map(|i| Some(text(i))).collect::<StringViewArray>();
        let batch = RecordBatch::try_from_iter([("s", Arc::new(texts) as _)]).unwrap();
        let fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
        let condition = condition("CAST(s AS BIGINT) = 1", &batch.schema());
        let properties = WriterProperties::builder().set_encoding(Encoding::PLAIN);
        write(&path, &batch, properties.set_dictionary_enabled(has_dictionary));
        let rows = (Some(&selection[..]), Some(&condition));
        let found = by_pages_where(&path, &fields, rows, (0, 50)).unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), expected);
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
    let layouts = vec![layout];
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = |bytes| {
        let metadata = Arc::clone(&metadata);
        let (spare, kept) = (Arc::default(), keeps(0, usize::MAX).0);
        let place = Place::open(path.clone(), bytes, metadata, layouts.clone(), &spare, &kept);
        let place = place.map_err(|flaw| flaw.at(&path))?;
        runtime.block_on(async move {
            let all = [RowSelector::select(200)];
            let windows = Windows::open(&place, 0, all, &[], &By::Threads(1), 500);
            windows.map_err(|flaw| flaw.at(&place.path))?.next(&mut []).await
        })
    };
    for kept in [0, 4, 50, right.len() - 1] {
        std::fs::write(&path, &right[..kept]).unwrap();
        let error = read(right.len() as u64).unwrap_err();
        assert_contains!(error.to_string(), "cut.parquet: the file was changed");
    }
    std::fs::write(&path, &right[..50]).unwrap();
    assert_contains!(read(50).unwrap_err().to_string(), "cut.parquet: column");
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
    // No statistics know the order of what is computed, and DataFusion tells no scan about lists.
    let digits = "'examples/data/digits.parquet'";
    let nearest = |condition: &str, key: &str| {
        format!("EXPLAIN SELECT id FROM {digits} {condition} ORDER BY {key} LIMIT 3")
    };
    let norm = "first=3, by=[l2_norm(pixels@";
    assert_contains!(plan(on, &nearest("", "l2_norm(pixels)")), norm);
    assert_contains!(plan(on, &nearest("WHERE id > 7", "l2_norm(pixels)")), norm);
    let of_all = plan("SET first_rows = off", &nearest("", "l2_norm(pixels)"));
    assert!(of_all.contains("reader=pages") && !of_all.contains(norm), "{of_all}");
    let length =
        plan(on, &format!("EXPLAIN SELECT flight FROM {flights} ORDER BY -distance LIMIT 3"));
    assert!(length.contains("reader=pages") && !length.contains("first=3"), "{length}");
    // Row groups are read in the order of their statistics.
    let longest =
        format!("EXPLAIN SELECT distance, flight FROM {flights} ORDER BY distance DESC LIMIT 3");
    let longest = plan(on, &longest);
    assert_contains!(longest, "reader=pages, first_by=distance DESC");
    assert!(!plan("SET parquet_pages = off", &distances).contains("reader=pages"));
}

/// How often a condition was made what it is computed as.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// The rows that do not meet a condition.
fn others(
    condition: Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> datafusion::error::Result<Transformed<Arc<dyn PhysicalExpr>>> {
    MADE.fetch_add(1, Ordering::Relaxed);
    assert_eq!(condition.data_type(schema)?, DataType::Boolean);
    not(condition).map(Transformed::yes)
}

#[test]
fn a_condition_is_made_what_it_is_computed_as_once_for_all_windows_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts.parquet");
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{row:b}"))));
    let batch = RecordBatch::try_from_iter([("s", texts)]).unwrap();
    write(&path, &batch, WriterProperties::builder().set_dictionary_enabled(false));
    let mut session = SessionConfig::new();
    Settings { threads: 1, ..Settings::default() }.apply(session.options_mut());
    session.options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(100).unwrap();
    let footers = RuntimeEnv::default().cache_manager.get_file_metadata_cache();
    let shared = Shared { kept: keeps(0, 1 << 30).0, footers, computed: others };
    let rule = ParquetByPages(shared);
    let state = SessionStateBuilder::new().with_config(session).with_default_features();
    let state = state.with_physical_optimizer_rule(Arc::new(rule)).build();
    let session = SessionContext::new_with_state(state);
    let count = async {
        let path = path.to_str().unwrap();
        session.register_parquet("t", path, ParquetReadOptions::default()).await?;
        let count = session.sql("SELECT count(*) FROM t WHERE s LIKE '_%1'").await?;
        count.collect().await
    };
    let count = tokio::runtime::Runtime::new().unwrap().block_on(count).unwrap();
    // Half of the texts of each window meet it: the scan drops these, and the filter above the others.
    assert_eq!(count[0].column(0).as_primitive::<Int64Type>().value(0), 0);
    assert_eq!(MADE.load(Ordering::Relaxed), 1);
}

#[test]
fn rows_that_meet_nobody_in_a_join_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.parquet");
    let connection = Database::builder().threads(2).build().unwrap().connect();
    let copy = "COPY (SELECT value AS k, value * 0.5 AS x FROM range(200000)) TO";
    connection.execute(&format!("{copy} '{}'", file.display())).unwrap();
    let keys = "CREATE TABLE keys AS SELECT value * 661 AS k FROM range(300)";
    connection.execute(keys).unwrap();
    // Analyzed, the query is to run once more.
    connection.execute("SET result_cache = off").unwrap();
    let query = format!("SELECT count(*), sum(x) FROM '{}' JOIN keys USING (k)", file.display());
    let rows = connection.query(&query).unwrap().rows::<(i64, f64)>().unwrap();
    assert_eq!(rows, [(300, 0.5 * 661.0 * 299.0 * 150.0)]);
    let analyzed = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
    let text: String =
        analyzed.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect();
    let scan = text.lines().find(|line| line.contains("reader=pages")).unwrap();
    let (_, rows) = scan.split_once("output_rows=").unwrap();
    // Of 200,000 rows.
    assert!(rows.starts_with("300,"), "{scan}");
}

#[test]
fn rows_that_are_not_among_the_nearest_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("near.parquet");
    let connection = Database::builder().threads(2).build().unwrap().connect();
    let rows = "SELECT value AS k, 'text ' || value AS s, [value, 1.0] AS v FROM range(200000)";
    connection.execute(&format!("COPY ({rows}) TO '{}'", file.display())).unwrap();
    // Analyzed, the query is to run once more.
    connection.execute("SET result_cache = off").unwrap();
    for (condition, expected) in [("true", [0, 1, 2]), ("k % 7 = 1", [1, 8, 15])] {
        let order = "ORDER BY l2_distance(v, [0, 1]), k LIMIT 3";
        let query = format!("SELECT k, s FROM '{}' WHERE {condition} {order}", file.display());
        let found = connection.query(&query).unwrap().rows::<(i64, String)>().unwrap();
        assert_eq!(found, expected.map(|k| (k, format!("text {k}"))));
        let analyzed = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
        let text: String =
            analyzed.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect();
        let scan = text.lines().find(|line| line.contains("reader=pages, first=3")).unwrap();
        let (_, rows) = scan.split_once("output_rows=").unwrap();
        let (thousands, _) = rows.split_once(" K,").unwrap();
        // Of 200,000 rows.
        assert!(thousands.parse::<f64>().unwrap() < 50.0, "{scan}");
    }
}

#[test]
fn row_groups_that_may_have_the_first_rows_are_read_first() {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..12_i64 {
        let numbers: ArrayRef =
            Arc::new(Int64Array::from_iter_values(file * 6000..file * 6000 + 6000));
        let texts: ArrayRef =
            Arc::new((0..6000).map(|i| Some(format!("text {i}"))).collect::<StringViewArray>());
        let batch = RecordBatch::try_from_iter([("k", numbers), ("s", texts)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1000));
        write(&folder.path().join(format!("{file:02}.parquet")), &batch, properties);
    }
    let connection = Database::builder().threads(2).build().unwrap().connect();
    // Analyzed, the query is to run once more.
    connection.execute("SET result_cache = off").unwrap();
    for (order, expected) in [("k DESC", 71_999), ("k", 0)] {
        let files = folder.path().join("*.parquet");
        let query = format!("SELECT * FROM '{}' ORDER BY {order} LIMIT 3", files.display());
        let found = connection.query(&query).unwrap().rows::<(i64, String)>().unwrap();
        assert_eq!(found[0].0, expected);
        let analyzed = connection.query(&format!("EXPLAIN ANALYZE {query}")).unwrap();
        let text: String =
            analyzed.rows::<(String, String)>().unwrap().into_iter().map(|row| row.1).collect();
        let scan = text.lines().find(|line| line.contains("reader=pages, first_by=k ")).unwrap();
        let (_, rows) = scan.split_once("output_rows=").unwrap();
        let (rows, _) = rows.split_once(',').unwrap();
        let rows = match rows.split_once(" K") {
            Some((thousands, _)) => 1000.0 * thousands.parse::<f64>().unwrap(),
            None => rows.parse().unwrap(),
        };
        // Each of two threads has begun a file or two, of 12.
        assert!(rows < 24_000.0, "{scan}");
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
