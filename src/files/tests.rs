//! Round trips, files of other programs, and files that lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int64Array,
    LargeListArray, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::datatypes::{Float32Type, Float64Type};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use parquet::arrow::ArrowWriter;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::{Format, ReadOptions, Rules};
use crate::error::{Error, ErrorKind};
use crate::matrix::{Csr, Dense, Duplicates, Element, Labels, Layout, Matrix, Scalar, Shape};

const MIB: usize = 1 << 20;
const EVERY_EXTENSION: [&str; 6] = ["mtx", "npy", "npz", "parquet", "arrow", "csv"];

/// Nobody asks to stop.
static NEVER: AtomicBool = AtomicBool::new(false);

fn read(path: &Path, options: &ReadOptions) -> Result<Matrix, Error> {
    super::read(path, options, &NEVER)
}

fn write(path: &Path, matrix: &Matrix, format: Option<Format>) -> Result<(), Error> {
    super::write(path, matrix, format, &NEVER)
}

fn load(path: &Path) -> Result<Matrix, Error> {
    read(path, &ReadOptions::within(64 * MIB))
}

fn round_trip(matrix: &Matrix, extension: &str) -> Matrix {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x").with_extension(extension);
    write(&path, matrix, None).unwrap();
    load(&path).unwrap_or_else(|error| panic!("{extension}: {error}"))
}

fn text_file(name: &str, text: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn load_text(name: &str, text: impl AsRef<[u8]>) -> Result<Matrix, Error> {
    let (_folder, path) = text_file(name, text);
    load(&path)
}

fn failure(name: &str, text: impl AsRef<[u8]>) -> String {
    let (_folder, path) = text_file(name, text);
    let message = load(&path).expect_err("a flaw").to_string();
    message.replace(&path.display().to_string(), name)
}

fn dense<T: Scalar>(rows: usize, columns: usize, cells: Vec<T>) -> Matrix {
    Matrix::new(Dense::new(Shape::new(rows, columns), cells.into()))
}

fn sparse<T: Scalar>(
    rows: usize,
    columns: usize,
    offsets: &[i64],
    places: &[u32],
    values: Vec<T>,
) -> Matrix {
    let shape = Shape::new(rows, columns);
    Matrix::new(Csr::new(shape, offsets.to_vec().into(), places.to_vec().into(), values.into()))
}

/// Cells row by row, as bits, so that -0.0 differs from 0.0 and NaN equals NaN.
fn bits(matrix: &Matrix) -> Vec<u64> {
    let shape = matrix.shape();
    let cells = (0..shape.rows).flat_map(|row| (0..shape.columns).map(move |column| (row, column)));
    cells.map(|(row, column)| matrix.cell(row, column).to_bits()).collect()
}

fn assert_same_cells(left: &Matrix, right: &Matrix, what: &str) {
    assert_eq!(left.shape(), right.shape(), "{what}");
    assert_eq!(bits(left), bits(right), "{what}");
}

fn assert_same(left: &Matrix, right: &Matrix, what: &str) {
    assert_same_cells(left, right, what);
    assert_eq!(left.element(), right.element(), "{what}");
    assert_eq!(left.layout(), right.layout(), "{what}");
    assert_eq!(left.cells().stored(), right.cells().stored(), "{what}");
    assert_eq!(left.row_labels(), right.row_labels(), "{what}");
    assert_eq!(left.column_labels(), right.column_labels(), "{what}");
}

fn special_f64() -> Matrix {
    let tiny = f64::from_bits(1);
    let cells =
        vec![0.1, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, tiny, f64::MAX, 1.0 / 3.0];
    dense(2, 4, cells)
}

fn special_f32() -> Matrix {
    dense(3, 2, vec![0.1f32, -0.0, f32::NAN, f32::INFINITY, f32::from_bits(1), f32::MAX])
}

fn some_sparse() -> Matrix {
    // An empty first row and last column, and a stored zero.
    sparse(4, 5, &[0, 0, 2, 2, 4], &[1, 3, 0, 2], vec![0.1, -2.5, 0.0, 1e300])
}

fn two_key_labels(count: usize) -> Labels {
    let names: StringArray = (0..count).map(|i| (i != 1).then(|| format!("n, \"{i}\""))).collect();
    let ids = Int64Array::from_iter_values((0..count as i64).map(|i| i * 7));
    Labels::new(vec![
        ("name".to_owned(), Arc::new(names) as ArrayRef),
        ("id".to_owned(), Arc::new(ids)),
    ])
}

fn date_labels(count: usize) -> Labels {
    let days = Date32Array::from_iter_values(0..count as i32);
    Labels::new(vec![("day".to_owned(), Arc::new(days) as ArrayRef)])
}

#[test]
fn every_format_keeps_cells() {
    let empty_rows = dense::<f64>(0, 3, vec![]);
    for matrix in [special_f64(), special_f32(), some_sparse(), empty_rows, dense(1, 1, vec![7.0])]
    {
        for extension in EVERY_EXTENSION {
            let what = format!("{extension}, {} {:?}", matrix.layout(), matrix.shape());
            let back = round_trip(&matrix, extension);
            if extension == "csv" {
                // Neither trailing rows without entries nor f32 are known to CSV.
                assert_eq!(back.shape().columns.min(4), matrix.shape().columns.min(4), "{what}");
                continue;
            }
            assert_same_cells(&back, &matrix, &what);
        }
    }
}

#[test]
fn binary_formats_keep_element_and_layout() {
    for matrix in [special_f64(), special_f32(), some_sparse()] {
        for extension in ["npz", "parquet", "arrow", "feather", "ipc"] {
            assert_same(&round_trip(&matrix, extension), &matrix, extension);
        }
    }
    let narrow = sparse(2, 2, &[0, 1, 1], &[1], vec![0.1f32]);
    for extension in ["npz", "parquet", "arrow"] {
        assert_same(&round_trip(&narrow, extension), &narrow, extension);
    }
}

#[test]
fn matrices_without_rows_or_columns_keep_their_shape() {
    for shape in [Shape::new(0, 0), Shape::new(0, 3), Shape::new(3, 0)] {
        let offsets = vec![0; shape.rows + 1];
        let matrices = [
            dense::<f64>(shape.rows, shape.columns, vec![]),
            dense::<f32>(shape.rows, shape.columns, vec![]),
            sparse::<f64>(shape.rows, shape.columns, &offsets, &[], vec![]),
        ];
        for matrix in matrices {
            for extension in ["npz", "parquet", "arrow"] {
                let what = format!("{extension} {shape} {}", matrix.layout());
                assert_same(&round_trip(&matrix, extension), &matrix, &what);
            }
            for extension in ["mtx", "npy"] {
                assert_eq!(round_trip(&matrix, extension).shape(), shape, "{extension}");
            }
        }
    }
}

#[test]
fn tables_keep_labels_of_any_type() {
    let names = || Labels::names(["a", "b, c", "", "a"]);
    for extension in ["parquet", "arrow"] {
        let dense = special_f64();
        let rows = [None, Some(two_key_labels(2)), Some(date_labels(2))];
        for rows in rows {
            for columns in [None, Some(names()), Some(date_labels(4)), Some(two_key_labels(4))] {
                let matrix = dense.clone().with_labels(rows.clone(), columns);
                assert_same(&round_trip(&matrix, extension), &matrix, extension);
            }
        }
        let entries = some_sparse();
        for rows in [None, Some(two_key_labels(4)), Some(names())] {
            for columns in [None, Some(date_labels(5)), Some(two_key_labels(5))] {
                let matrix = entries.clone().with_labels(rows.clone(), columns);
                assert_same(&round_trip(&matrix, extension), &matrix, extension);
            }
        }
        let no_columns = dense_rows_without_columns().with_labels(Some(date_labels(3)), None);
        assert_same(&round_trip(&no_columns, extension), &no_columns, extension);
        let no_rows = super::tests::dense::<f64>(0, 2, vec![])
            .with_labels(Some(two_key_labels(0)), Some(date_labels(2)));
        assert_same(&round_trip(&no_rows, extension), &no_rows, extension);
    }
}

fn dense_rows_without_columns() -> Matrix {
    dense::<f64>(3, 0, vec![])
}

#[test]
fn a_block_of_rows_is_written_as_itself() {
    let whole = some_sparse();
    let part = Matrix::new(whole.cells().rows(2..4));
    for extension in ["mtx", "npy", "npz", "parquet", "arrow"] {
        assert_same_cells(&round_trip(&part, extension), &part, extension);
    }
}

#[test]
fn more_columns_than_a_table_should_have_become_vectors() {
    let matrix = dense(2, 2000, (0..4000).map(f64::from).collect());
    let matrix = matrix.with_labels(Some(date_labels(2)), Some(two_key_labels(2000)));
    for extension in ["parquet", "arrow"] {
        assert_same(&round_trip(&matrix, extension), &matrix, extension);
    }
}

#[test]
fn many_batches_make_one_matrix() {
    let matrix = dense(200_000, 7, (0..1_400_000).map(f64::from).collect());
    for extension in ["parquet", "arrow", "npy", "npz"] {
        assert_same(&round_trip(&matrix, extension), &matrix, extension);
    }
    let offsets: Vec<i64> = (0..=300_000).map(|row| row * 2).collect();
    let places: Vec<u32> = (0..600_000u32).map(|i| i % 2 * 3).collect();
    let sparse = sparse(300_000, 4, &offsets, &places, (0..600_000).map(f64::from).collect());
    for extension in ["parquet", "arrow", "npz", "mtx"] {
        assert_same(&round_trip(&sparse, extension), &sparse, extension);
    }
}

/// Written by NumPy and SciPy: `tests/data/README.md` says how.
/// Many cells are read to where they stay, in memory that is taken as they come.
#[test]
fn an_array_of_many_cells_is_read_whole_or_not_at_all() {
    let cells: Vec<f64> = (0..700_000).map(f64::from).collect();
    let matrix = dense(1000, 700, cells);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.npy");
    write(&path, &matrix, None).unwrap();
    assert_same(&load(&path).unwrap(), &matrix, "many cells");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert!(load(&path).is_err());
}

#[test]
fn files_of_numpy_and_scipy_are_read() {
    let sample = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        load(&path).unwrap_or_else(|error| panic!("{error}"))
    };
    let expected = dense(2, 3, vec![0.0, 1.5, -2.0, 3.25, 4.0, 0.1]);
    for name in ["c_f8.npy", "fortran_f8.npy", "big_endian_f8.npy", "dense.npz", "array.mtx"] {
        let read = sample(name);
        assert_same(&read, &expected, name);
    }
    assert_eq!(sample("f4.npy").element(), Element::Float32);
    assert_eq!(bits(&sample("f4.npy")), bits(&dense(2, 2, vec![0.1f32, 1.0, -0.0, 2.5])));
    let integers = dense(2, 2, vec![-1.0, 2.0, 3.0, 127.0]);
    for name in ["i1.npy", "big_endian_i8.npy"] {
        assert_same(&sample(name), &integers, name);
    }
    assert_same(&sample("bool_1d.npy"), &dense(3, 1, vec![1.0, 0.0, 1.0]), "a column");
    assert_same(&sample("scalar.npy"), &dense(1, 1, vec![2.5]), "one cell");
    let entries = sparse(3, 4, &[0, 1, 1, 3], &[1, 0, 3], vec![1.5, -2.0, 0.1]);
    for name in ["csr.npz", "csc.npz", "coo_compressed.npz", "coordinate.mtx"] {
        assert_same(&sample(name), &entries, name);
    }
    let symmetric = sparse(3, 3, &[0, 2, 3, 4], &[0, 1, 0, 2], vec![1.0, 2.0, 2.0, 5.0]);
    assert_same(&sample("symmetric.mtx"), &symmetric, "both triangles");
    let skew = sparse(3, 3, &[0, 1, 2, 2], &[1, 0], vec![2.0, -2.0]);
    assert_same(&sample("skew.mtx"), &skew, "both triangles");
    let pattern = sparse(2, 3, &[0, 1, 2], &[2, 0], vec![1.0, 1.0]);
    assert_same(&sample("pattern.mtx"), &pattern, "ones");
}

#[test]
fn one_array_of_several_is_chosen_by_name() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/several.npz");
    let message = load(&path).unwrap_err().to_string();
    assert!(message.ends_with("2 arrays: OPTIONS (array '…') chooses 'a', 'b'"), "{message}");
    let mut options = ReadOptions::within(MIB);
    options.set("array", "b").unwrap();
    assert_same(&read(&path, &options).unwrap(), &dense(1, 2, vec![3.0, 4.0]), "b");
    options.set("array", "z").unwrap();
    let message = read(&path, &options).unwrap_err().to_string();
    assert!(message.ends_with("no array 'z', only 'a', 'b'"), "{message}");
}

#[test]
fn matrix_market_takes_what_its_format_allows() {
    let text = "%%matrixmarket MATRIX Coordinate Integer General\r\n% note\r\n\r\n2 2 2\r\n\
                % between\r\n 2  1 -3 \r\n1 2 9007199254740992\r\n";
    let expected = sparse(2, 2, &[0, 1, 2], &[1, 0], vec![9007199254740992.0, -3.0]);
    assert_same(&load_text("x.mtx", text).unwrap(), &expected, "mixed case, blanks, comments");
    let text = "%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n";
    let expected = dense(3, 3, vec![0.0, -1.0, -2.0, 1.0, 0.0, -3.0, 2.0, 3.0, 0.0]);
    assert_eq!(load_text("x.mtx", text).unwrap().cell(0, 1), -1.0);
    assert_same(&load_text("x.mtx", text).unwrap(), &expected, "a skew array");
}

#[test]
fn matrix_market_errors_name_the_line() {
    let head = "%%MatrixMarket matrix coordinate real general\n";
    let cases = [
        ("", "not a Matrix Market file: the first line begins '%%MatrixMarket matrix'"),
        (
            "%%MatrixMarket matrix coordinate complex general\n",
            "line 1: a matrix has real cells, and these are complex",
        ),
        (
            "%%MatrixMarket matrix array real hermitian\n",
            "line 1: a matrix has real cells, and these are hermitian",
        ),
        ("%%MatrixMarket matrix array pattern general\n", "line 1: an array cannot be a pattern"),
        (
            "%%MatrixMarket vector array real general\n",
            "line 1: object 'vector' is not of this format",
        ),
        (
            "%%MatrixMarket matrix array real symmetric\n2 3\n",
            "line 2: a symmetric matrix is square, not 2x3",
        ),
        (
            "%%MatrixMarket matrix array real general\n1 2\n1\n",
            "the file ends before row 1 of column 2",
        ),
        (
            "%%MatrixMarket matrix array real general\n1 1\n1\n2\n",
            "line 4: there are more values than a 1x1 matrix has",
        ),
        (
            "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 3\n",
            "line 3: a skew-symmetric matrix stores no diagonal",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(failure("x.mtx", text), format!("x.mtx: {expected}"));
    }
    let cases = [
        ("2 2\n", "line 2: not rows, columns and number of entries"),
        ("2 2 2\n1 1 5\n", "the file ends after 1 of 2 entries"),
        ("2 2 1\n1 1 5\n2 2 6\n", "line 4: there are more than the 1 entries declared"),
        ("2 2 1\n0 1 5\n", "line 3: not a row and a column of a 2x2 matrix, counted from 1"),
        ("2 2 1\n1 3 5\n", "line 3: not a row and a column of a 2x2 matrix, counted from 1"),
        ("2 2 1\n1 1 five\n", "line 3: 'five' is not a number"),
        ("2 2 1\n1 1\n", "line 3: '' is not a number"),
        ("2 2 1\n1 1 5 5\n", "line 3: more than one entry"),
        (
            "2 2 2\n1 1 5\n1 1 5\n",
            "entry (1, 1) appears twice; WITH (duplicates = 'sum' | 'last') chooses what to do",
        ),
        ("5000000000 5 0\n", "a sparse matrix has at most 2^32 rows and columns"),
    ];
    for (text, expected) in cases {
        assert_eq!(failure("x.mtx", format!("{head}{text}")), format!("x.mtx: {expected}"));
    }
    let text = "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 9007199254740993\n";
    let error = load_text("x.mtx", text).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Inexact { .. }), "{error}");
}

#[test]
fn entries_that_come_twice_are_added_up_or_the_last_stays() {
    let head = "%%MatrixMarket matrix coordinate real general\n";
    let entries = "3 3 7\n2 3 1\n1 1 5\n2 3 10\n1 2 4\n2 1 7\n2 3 100\n3 1 8\n";
    let (_folder, path) = text_file("x.mtx", format!("{head}{entries}"));
    let with = |duplicates| {
        let rules = Rules { duplicates, ..Rules::default() };
        let matrix = read(&path, &ReadOptions { rules, ..ReadOptions::within(MIB) }).unwrap();
        assert_eq!(matrix.cells().stored(), 5);
        (0..9).map(|at| matrix.cell(at / 3, at % 3)).collect::<Vec<f64>>()
    };
    assert_eq!(with(Duplicates::Sum), [5.0, 4.0, 0.0, 7.0, 0.0, 111.0, 8.0, 0.0, 0.0]);
    assert_eq!(with(Duplicates::Last), [5.0, 4.0, 0.0, 7.0, 0.0, 100.0, 8.0, 0.0, 0.0]);
}

#[test]
fn what_a_file_declares_is_checked_before_it_is_allocated() {
    let npy = |shape: &str, version: &[u8]| {
        let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend(version);
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes
    };
    let large = [
        ("x.mtx", b"%%MatrixMarket matrix coordinate real general\n4000000000 1 0\n".to_vec()),
        ("x.mtx", b"%%MatrixMarket matrix coordinate real general\n1 1 99999999999999\n".to_vec()),
        ("x.mtx", b"%%MatrixMarket matrix array real general\n99999999999 99999999999\n".to_vec()),
        ("x.npy", npy("(99999999999, 99999999999)", &[2, 0])),
    ];
    for (name, bytes) in large {
        let error = load_text(name, bytes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::MemorySpent { .. }), "{error}");
    }
    let short = failure("x.npy", npy("(1000, 1000)", &[2, 0]));
    assert_eq!(short, "x.npy: the file is cut short: it declares 1000000 cells");
    let matrix = dense(1000, 1000, vec![0.0; 1_000_000]);
    for extension in EVERY_EXTENSION {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("x").with_extension(extension);
        write(&path, &matrix, None).unwrap();
        let error = read(&path, &ReadOptions::within(7 * MIB)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::MemorySpent { .. }), "{extension}: {error}");
    }
}

#[test]
fn arrays_of_other_types_and_shapes_are_refused() {
    let npy = |header: &str| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        failure("x.npy", bytes)
    };
    let of = |dtype: &str, shape: &str| {
        npy(&format!("{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}"))
    };
    for (dtype, name) in
        [("'<c16'", "<c16"), ("'|O'", "|O"), ("'<f2'", "<f2"), ("[('a', '<f8')]", "a structure")]
    {
        let message = of(dtype, "(1,)");
        assert!(message.contains(&format!("this array's type is {name};")), "{message}");
    }
    assert!(of("'<f8'", "(1, 2, 3)").ends_with("a matrix has two dimensions, this array 3"));
    for header in ["", "{}", "{'descr': '<f8'}", "((((((((((", "{'descr': '<f8', 'shape': (-1,)}"] {
        assert!(npy(header).contains("cannot read the header"), "{header}");
    }
    assert!(failure("x.npy", "PK").contains("not a NumPy array"));
    assert!(failure("x.npz", "PK").starts_with("x.npz: "));
}

#[test]
fn integers_beyond_what_a_cell_holds_are_refused() {
    let mut bytes = Vec::new();
    super::numpy::write_header(&mut bytes, "<i8", "(1, 2)").unwrap();
    bytes.extend(1i64.to_le_bytes());
    bytes.extend(((1i64 << 53) + 1).to_le_bytes());
    let error = load_text("x.npy", bytes).unwrap_err();
    let expected =
        "9007199254740993 in column 'c2' does not fit float64 exactly; cast it to accept rounding";
    assert_eq!(error.to_string(), expected);
    let error = load_text("x.csv", "a,b\n1,9007199254740993\n").unwrap_err();
    assert_eq!(error.to_string(), expected.replace("c2", "b"));
    let column: ArrayRef = Arc::new(UInt64Array::from(vec![1, (1 << 53) + 1]));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    for extension in ["parquet", "arrow"] {
        let error = load_table(&batch, extension).unwrap_err();
        assert_eq!(error.to_string(), expected.replace("c2", "n"));
    }
}

/// Reads a table that another program wrote, without metadata of ours.
fn load_table(batch: &RecordBatch, extension: &str) -> Result<Matrix, Error> {
    let mut bytes = Vec::new();
    if extension == "parquet" {
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    } else {
        // As `pyarrow.feather` writes by default.
        let options = IpcWriteOptions::default();
        let options = options.try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let schema = batch.schema();
        let mut writer = FileWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    }
    load_text(&format!("x.{extension}"), bytes)
}

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

#[test]
fn a_foreign_table_is_labels_then_numbers() {
    let id = || Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef;
    let batch = table(vec![
        ("id", id()),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![5, 6]))),
        ("whole", Arc::new(Int64Array::from(vec![1, -2]))),
        ("flag", Arc::new(BooleanArray::from(vec![true, false]))),
        (
            "price",
            Arc::new(Decimal128Array::from(vec![125, 50]).with_precision_and_scale(9, 2).unwrap()),
        ),
    ]);
    for extension in ["parquet", "arrow"] {
        let matrix = load_table(&batch, extension).unwrap();
        assert_same_cells(&matrix, &dense(2, 3, vec![1.0, 1.0, 1.25, -2.0, 0.0, 0.5]), extension);
        assert_eq!(matrix.row_labels().unwrap().fields().len(), 2);
        assert_eq!(matrix.column_labels(), Some(&Labels::names(["whole", "flag", "price"])));
    }
    let mixed = table(vec![("x", Arc::new(Float64Array::from(vec![1.0, 2.0]))), ("id", id())]);
    let message = load_table(&mixed, "parquet").unwrap_err().to_string();
    assert!(
        message
            .ends_with("column 'id' is Utf8, not numbers; only leading columns can be row labels"),
        "{message}"
    );
    let with_null =
        table(vec![("id", id()), ("x", Arc::new(Float64Array::from(vec![Some(1.0), None])))]);
    for extension in ["parquet", "arrow"] {
        let message = load_table(&with_null, extension).unwrap_err().to_string();
        assert!(message.starts_with("column 'x' is NULL in row 2;"), "{message}");
    }
    let narrow = table(vec![("x", Arc::new(Float32Array::from(vec![0.1f32])))]);
    assert_eq!(load_table(&narrow, "arrow").unwrap().element(), Element::Float32);
}

#[test]
fn a_foreign_list_column_is_rows() {
    let rows = vec![Some(vec![Some(1.0f32), Some(2.0)]), Some(vec![Some(3.0), Some(0.1)])];
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows));
    let id: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    for extension in ["parquet", "arrow"] {
        let matrix =
            load_table(&table(vec![("id", Arc::clone(&id)), ("v", Arc::clone(&lists))]), extension)
                .unwrap();
        assert_same_cells(&matrix, &dense(2, 2, vec![1.0f32, 2.0, 3.0, 0.1]), extension);
        assert_eq!((matrix.element(), matrix.column_labels()), (Element::Float32, None));
        let ragged = vec![Some(vec![Some(1.0)]), Some(vec![Some(1.0), Some(2.0)])];
        let ragged: ArrayRef =
            Arc::new(LargeListArray::from_iter_primitive::<Float64Type, _, _>(ragged));
        let message = load_table(&table(vec![("v", ragged)]), extension).unwrap_err().to_string();
        assert_eq!(message, "the list in row 2 has 2 elements, the first has 1");
    }
}

#[test]
fn columns_named_as_entries_are_a_sparse_matrix() {
    let batch = table(vec![
        ("row", Arc::new(Int64Array::from(vec![3, 1]))),
        ("column", Arc::new(Int64Array::from(vec![1, 2]))),
        ("value", Arc::new(Float64Array::from(vec![0.5, 4.0]))),
    ]);
    let expected = sparse(3, 2, &[0, 1, 1, 2], &[1, 0], vec![4.0, 0.5]);
    for extension in ["parquet", "arrow"] {
        assert_same(&load_table(&batch, extension).unwrap(), &expected, extension);
    }
    let csv = load_text("x.csv", "row,column,value\n3,1,0.5\n1,2,4\n").unwrap();
    assert_same(&csv, &expected, "csv");
    assert_eq!(
        failure("x.csv", "row,column,value\n0,1,0.5\n"),
        "x.csv: line 2: '0' does not count from 1"
    );
}

#[test]
fn csv_keeps_what_its_text_can_say() {
    let names = Labels::names(["x", "y \"z\"", "w,", "v"]);
    let matrix = special_f64().with_labels(Some(date_labels(2)), Some(names.clone()));
    assert_same(&round_trip(&matrix, "csv"), &matrix, "dates and names");
    let matrix = special_f64().with_labels(Some(two_key_labels(2)), Some(names));
    let back = round_trip(&matrix, "csv");
    assert_eq!(back.shape(), Shape::new(2, 5), "a key that is a number is read as a cell");
    assert_eq!(back.column_labels().unwrap().text(0), "id");
    assert_same(&round_trip(&some_sparse_filled(), "csv"), &some_sparse_filled(), "entries");
    let no_columns = dense::<f64>(2, 0, vec![]);
    let folder = TempDir::new().unwrap();
    let message = write(&folder.path().join("x.csv"), &no_columns, None).unwrap_err().to_string();
    assert!(message.ends_with("CSV has no text for a matrix without columns"), "{message}");
}

fn some_sparse_filled() -> Matrix {
    sparse(2, 3, &[0, 1, 2], &[2, 0], vec![0.1, -2.5])
}

#[test]
fn csv_reads_labels_header_and_numbers() {
    let text = "\u{feff}city,at,\"a\nb\",flag\nOslo,2024-01-02 03:04:05,1e-3,true\n\"New, York\",2024-01-02 03:04:06,NaN,FALSE\n";
    let matrix = load_text("x.csv", text).unwrap();
    assert_same_cells(&matrix, &dense(2, 2, vec![1e-3, 1.0, f64::NAN, 0.0]), "cells");
    let labels = matrix.row_labels().unwrap();
    assert_eq!(labels.text(1), "New, York,2024-01-02T03:04:06");
    assert_eq!(labels.fields()[0].0, "city");
    assert_eq!(matrix.column_labels(), Some(&Labels::names(["a\nb", "flag"])));
    assert_eq!(load_text("x.csv", "a,b\n").unwrap().shape(), Shape::new(0, 2));

    let (_folder, path) = text_file("x.csv", "1,2\n3,4\n");
    let message = load(&path).unwrap_err().to_string();
    assert!(message.contains("line 1: all numbers"), "{message}");
    let mut options = ReadOptions::within(MIB);
    options.set("header", "false").unwrap();
    assert_same(&read(&path, &options).unwrap(), &dense(2, 2, vec![1.0, 2.0, 3.0, 4.0]), "rows");
    options.set("header", "true").unwrap();
    assert_eq!(read(&path, &options).unwrap().column_labels(), Some(&Labels::names(["1", "2"])));
}

#[test]
fn csv_errors_name_the_line() {
    let cases = [
        ("", "x.csv: the file is empty: there is no header"),
        ("a,b\n1,2\n3\n", "x.csv: line 3: 1 fields, where the lines before have 2"),
        ("k,a\n\"x\ny\",2\nz,two\n", "x.csv: line 4: 'two' in column 'a' is not a number"),
        ("a,b\n1,x\n", "x.csv: line 2: 'x' in column 'b' is not a number"),
    ];
    for (text, expected) in cases {
        assert_eq!(failure("x.csv", text), expected);
    }
    assert!(failure("x.csv", "a,b\n1,\n").starts_with("column 'b' is NULL in row 1;"));
    assert_eq!(failure("x.csv", b"a,b\n1,\xff\n"), "x.csv: line 2: not UTF-8 text");
}

#[test]
fn the_format_is_told_by_extension_or_option() {
    assert_eq!(Format::of(Path::new("a/B.Feather"), None).unwrap(), Format::Ipc);
    assert_eq!(Format::of(Path::new("a.MTX"), Some(Format::Csv)).unwrap(), Format::Csv);
    for path in ["a", "a.xlsx", ".npy"] {
        assert!(Format::of(Path::new(path), None).is_err(), "{path}");
    }
    let mut options = ReadOptions::within(MIB);
    assert!(
        options
            .set("format", "xlsx")
            .unwrap_err()
            .to_string()
            .contains("no matrix file format 'xlsx'")
    );
    assert!(options.set("colour", "red").is_err());
}

#[test]
fn a_failed_write_leaves_what_was_there() {
    let (folder, path) = text_file("x.csv", "a\n1\n");
    assert!(write(&path, &dense::<f64>(2, 0, vec![]), None).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"a\n1\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    write(&path, &dense(1, 1, vec![2.0]), None).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"c1\n2.0\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let message = write(&folder.path().join("no/x.csv"), &dense(1, 1, vec![2.0]), None)
        .unwrap_err()
        .to_string();
    assert!(message.contains("no/x.csv: "), "{message}");
    assert!(write(folder.path(), &dense(1, 1, vec![2.0]), Some(Format::Csv)).is_err());
}

/// Flips bytes and cuts files: whatever is left, the answer is a matrix or an error about the file.
#[test]
fn damaged_files_are_errors() {
    let labelled = special_f64().with_labels(Some(two_key_labels(2)), Some(date_labels(4)));
    let entries = some_sparse().with_labels(Some(two_key_labels(4)), None);
    for matrix in [labelled, entries] {
        for extension in EVERY_EXTENSION {
            let folder = TempDir::new().unwrap();
            let path = folder.path().join("x").with_extension(extension);
            write(&path, &matrix, None).unwrap();
            let whole = std::fs::read(&path).unwrap();
            for seed in 0..100 {
                let mut random = SmallRng::seed_from_u64(seed);
                let mut bytes = whole.clone();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] = random.random();
                }
                if random.random_bool(0.2) {
                    bytes.truncate(random.random_range(0..bytes.len()));
                }
                std::fs::write(&path, &bytes).unwrap();
                let read = std::panic::catch_unwind(|| load(&path).map(|matrix| bits(&matrix)));
                assert!(read.is_ok(), "{extension} {}, seed {seed}", matrix.layout());
            }
        }
    }
}

#[test]
fn a_sparse_matrix_in_npy_is_dense() {
    let back = round_trip(&some_sparse(), "npy");
    assert_eq!((back.layout(), back.shape()), (Layout::Dense, Shape::new(4, 5)));
}

#[test]
fn a_stop_leaves_no_matrix_and_no_file() {
    let folder = TempDir::new().unwrap();
    let asked = AtomicBool::new(true);
    for extension in EVERY_EXTENSION {
        let path = folder.path().join("x").with_extension(extension);
        let matrix = dense(2, 2, vec![1.0, 2.0, 3.0, 4.0]);
        let stopped = super::write(&path, &matrix, None, &asked).unwrap_err();
        assert!(matches!(stopped.kind(), ErrorKind::Cancelled), "{extension}: {stopped}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{extension}");
        write(&path, &matrix, None).unwrap();
        let options = ReadOptions::within(MIB);
        let stopped = super::read(&path, &options, &asked).unwrap_err();
        assert!(matches!(stopped.kind(), ErrorKind::Cancelled), "{extension}: {stopped}");
        std::fs::remove_file(&path).unwrap();
    }
}
