//! Columns that are kept: their rows, their bytes, and which of them stay.

use arrow::array::{Float32Array, Int64Array};

use super::*;

/// Until a file that was written just now counts as one that stays as it is.
fn settle() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn columns_that_are_read_again_have_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("again.parquet");
    let batch = columns();
    let fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    // Of the last row group, which has a hundred rows, the first and the last.
    let ends = [RowSelector::select(20), RowSelector::skip(70), RowSelector::select(10)];
    for (compression, version) in [
        (Compression::SNAPPY, WriterVersion::PARQUET_1_0),
        (Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0),
        (Compression::ZSTD(ZstdLevel::default()), WriterVersion::PARQUET_2_0),
    ] {
        let properties = WriterProperties::builder().set_compression(compression);
        let properties = properties.set_writer_version(version).set_data_page_row_count_limit(40);
        write(&path, &batch, properties.set_write_batch_size(20));
        settle();
        let (kept, _, pool) = keeps(64 << 20, usize::MAX);
        let read = |selection, threads| {
            let rows = by_pages_again(&path, &fields, (selection, None), (threads, 64), &kept);
            concat_batches(&batch.schema(), &rows.unwrap()).unwrap()
        };
        let some = read(Some(&ends), 0);
        // A column of which pages were passed over is not kept.
        assert_eq!(read(Some(&ends), 0), some);
        for threads in [0, 2, 0, 2] {
            assert_eq!(read(None, threads), batch, "{compression} on {threads} threads");
        }
        assert!(kept.usage().0 > 0 && kept.usage().1 > 0, "{:?}", kept.usage());
        assert_eq!(pool.reserved(), kept.usage().0);
        for threads in [0, 2] {
            assert_eq!(read(Some(&ends), threads), some);
        }
        // Of another file under the same name nothing is kept.
        let other = batch.slice(200, 500);
        write(&path, &other, WriterProperties::builder());
        settle();
        for _ in 0..3 {
            let rows = by_pages_again(&path, &fields, (None, None), (0, 64), &kept).unwrap();
            assert_eq!(concat_batches(&batch.schema(), &rows).unwrap(), other);
        }
        kept.set_limits(ColumnLimits::default());
        assert_eq!((kept.usage().0, pool.reserved()), (0, 0));
    }
}

/// A file of 300,000 rows in eight columns, so many of them in each row group; the first so many columns are compressed.
fn file_of_eight(path: &Path, group_rows: usize, compressed: usize) -> Vec<FieldRef> {
    // Of whole numbers fewer bytes would be kept.
    let numbers = (0..300_000).map(|at| (at % 64) as f32);
    let numbers: ArrayRef = Arc::new(Float32Array::from_iter_values(numbers));
    let field = |at: usize| Arc::new(Field::new(format!("c{at}"), DataType::Float32, false));
    let fields: Vec<FieldRef> = (0..8).map(field).collect();
    let schema = Arc::new(Schema::new(fields.clone()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers; 8]).unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(group_rows));
    let properties = fields[..compressed].iter().fold(properties, |properties, field| {
        let column = vec![field.name().clone()].into();
        properties.set_column_compression(column, Compression::SNAPPY)
    });
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    settle();
    fields
}

#[test]
fn a_scan_that_is_many_times_the_cache_moves_little_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.parquet");
    // Columns that are not compressed save less, and give way to others.
    for compressed in [0, 4, 8] {
        let fields = file_of_eight(&path, 3000, compressed);
        let (kept, ..) = keeps(1 << 20, 100 << 20);
        let scan = || {
            let before = kept.usage().1;
            by_pages_again(&path, &fields, (None, None), (0, 8192), &kept).unwrap();
            kept.usage().1 - before
        };
        let _first = [scan(), scan()];
        // Of 800 columns of 12 kB each about 85 have room, and are not read from the file.
        let file_bytes = if compressed == 0 { 900_000..1 << 20 } else { 40_000..1 << 20 };
        let found = [scan(), scan(), scan()];
        assert!(found.iter().all(|bytes| file_bytes.contains(bytes)), "{compressed}: {found:?}");
    }
}

#[test]
fn kept_columns_give_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.parquet");
    let fields = file_of_eight(&path, 300_000, 0);
    // Of eight columns of 1.2 MB each, four have room.
    let (kept, eviction, pool) = keeps(5 << 20, 100 << 20);
    let read = |fields: &[FieldRef]| {
        by_pages_again(&path, fields, (None, None), (0, 8192), &kept).unwrap();
    };
    (0..3).for_each(|_| read(&fields));
    assert!((3 << 20..5 << 20).contains(&kept.usage().0), "{:?}", kept.usage());
    // Those that do not fit push out none of those that do.
    let read_bytes = |fields: &[FieldRef]| {
        let before = kept.usage().1;
        read(fields);
        kept.usage().1 - before
    };
    let all = read_bytes(&fields);
    assert!(all > 3 * 300_000 * 4 && all == read_bytes(&fields), "{all}");
    // But what is read again and again gets in.
    (0..500).for_each(|_| read(&fields[7..]));
    assert!(read_bytes(&fields[7..]) > 300_000);
    // They are dropped for whoever needs the memory, and nothing is kept while there is little.
    let before = pool.reserved();
    assert_eq!(eviction.give_way(2 << 20), before - pool.reserved());
    assert_eq!(kept.usage().0, pool.reserved());
    assert!(pool.reserved() <= before - (2 << 20), "{} of {before}", pool.reserved());
    eviction.give_way(pool.reserved());
    let other = MemoryConsumer::new("other").register(&pool);
    other.grow(90 << 20);
    (0..3).for_each(|_| read(&fields));
    assert_eq!(kept.usage().0, 0);
    drop(other);
    // A column may have a quarter of all.
    kept.set_limits(ColumnLimits { least: 4 << 20, most: 4 << 20 });
    (0..3).for_each(|_| read(&fields));
    assert_eq!(kept.usage().0, 0);
}

#[test]
fn what_is_kept_is_in_proportion_to_what_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.parquet");
    // Ten row groups of eight columns of 120 kB each, 9.6 MB; of what is read, a quarter may be kept.
    let fields = file_of_eight(&path, 30_000, 0);
    for (most, expected) in [(100 << 20, 1 << 20..3 << 20), (1 << 20, 700_000..(1 << 20) + 1)] {
        let (kept, ..) = keeps(0, 100 << 20);
        kept.set_limits(ColumnLimits { least: 0, most });
        (0..3).for_each(|_| {
            by_pages_again(&path, &fields, (None, None), (0, 8192), &kept).unwrap();
        });
        assert!(expected.contains(&kept.usage().0), "{most}: {}", kept.usage().0);
    }
}

#[test]
fn whole_numbers_are_kept_in_the_bits_that_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.parquet");
    // Numbers that differ, in 16 bits, below zero too, some of them NULL; with two digits more, in 23 bits; of 64 bits; and few that a
    // dictionary has in two.
    let spread = |at: i64| (at * 40_503) % 65_521 - 30_000;
    let far = |at: i64| spread(at).wrapping_mul(i64::MAX / 7);
    let whole: ArrayRef = Arc::new(Int64Array::from_iter_values((0..60_000).map(spread)));
    let columns = [
        ("64", Arc::clone(&whole)),
        ("32", cast(&whole, &DataType::Int32).unwrap()),
        ("optional", with_nulls(&whole, 1)),
        ("decimal", cast(&whole, &DataType::Decimal128(15, 2)).unwrap()),
        ("far", Arc::new(Int64Array::from_iter_values((0..60_000).map(far)))),
        ("few", Arc::new(Int64Array::from_iter_values((0..60_000).map(|at| at % 3 * 100_000)))),
        ("real", cast(&whole, &DataType::Float64).unwrap()),
    ];
    for has_dictionary in [true, false] {
        let bytes = columns.each_ref().map(|(name, array)| {
            let field = Arc::new(Field::new(*name, array.data_type().clone(), *name == "optional"));
            let schema = Arc::new(Schema::new(vec![Arc::clone(&field)]));
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(array)]).unwrap();
            let properties = WriterProperties::builder().set_dictionary_enabled(has_dictionary);
            let mut writer = ArrowWriter::try_new(
                File::create(&path).unwrap(),
                schema,
                Some(properties.build()),
            )
            .unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            settle();
            let (kept, ..) = keeps(64 << 20, usize::MAX);
            for selection in
                [None, None, None, Some([RowSelector::skip(7), RowSelector::select(9)])]
            {
                let selection = selection.as_ref().map(<[RowSelector; 2]>::as_slice);
                let rows = by_pages_again(
                    &path,
                    std::slice::from_ref(&field),
                    (selection, None),
                    (0, 1000),
                    &kept,
                );
                let rows = concat_batches(&batch.schema(), &rows.unwrap()).unwrap();
                let expected = selection.map_or(batch.clone(), |_| batch.slice(7, 9));
                assert_eq!(rows, expected, "{name}");
            }
            assert!(kept.usage().1 > 0, "{name} is not read from what is kept");
            kept.usage().0
        });
        let [of_64, of_32, optional, decimal, far, few, real] = bytes;
        let two_bytes = 120_000..122_000;
        assert!(two_bytes.contains(&of_64) && two_bytes.contains(&of_32), "{bytes:?}");
        assert!((172_500..174_000).contains(&decimal), "{bytes:?}");
        assert!((60_000..110_000).contains(&optional), "{bytes:?}");
        // What needs all of its bits is as its file has it, and few values are in the bits of their indices.
        assert!(far >= 480_000 && real >= 480_000, "{bytes:?}");
        assert!(if has_dictionary { few < 16_000 } else { few < 160_000 }, "{bytes:?}");
    }
}
