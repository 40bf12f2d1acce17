//! Zip archives of NumPy arrays, `.npz`: one dense array, or a sparse matrix as SciPy stores it.
//!
//! ```text
//! dense    arr_0.npy                       np.savez(file, x)
//! sparse   format.npy   'csr' 'csc' 'coo'  scipy.sparse.save_npz(file, x)
//!          shape.npy    rows, columns
//!          data.npy     stored cells
//!          indices.npy, indptr.npy         csr: columns by row; csc: rows by column
//!          row.npy, col.npy                coo
//! ```
//!
//! SciPy adds duplicate entries up where it computes; here they are an error.

use std::io::{Read, Seek, Write};

use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::matrix::{Csr, Duplicates, Element, Matrix, Scalar, Shape, Storage};
use crate::with_storage;

use super::entries::{Entries, csr, place};
use super::flaw::{Checked, Flaw, Limit};
use super::numpy::{self, Header};

pub(super) fn read(
    reader: impl Read + Seek,
    array: Option<&str>,
    duplicates: Duplicates,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let mut archive = ZipArchive::new(reader)?;
    let members = archive.file_names().collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<String> =
        members.iter().filter_map(|name| Some(name.strip_suffix(".npy")?.to_owned())).collect();
    names.sort();
    let has = |name: &str| names.iter().any(|known| known == name);
    let name = match (array, names.as_slice()) {
        (Some(array), _) if has(array) => array,
        (None, [only]) => only,
        (None, _) if has("format") && has("shape") && has("data") => {
            return read_sparse(&mut archive, duplicates, limit);
        }
        (Some(array), _) => {
            return Err(Flaw::new(format!("no array '{array}', only {}", listed(&names))));
        }
        (None, []) => return Err(Flaw::new("an archive without NumPy arrays")),
        (None, _) => {
            let message =
                format!("{} arrays: OPTIONS (array '…') chooses {}", names.len(), listed(&names));
            return Err(Flaw::new(message));
        }
    };
    let mut member = open(&mut archive, name)?;
    let header = Header::read(&mut member)?;
    numpy::read_matrix(member, &header, limit)
}

/// The first names, quoted.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut text: Vec<String> = names.iter().take(SHOWN).map(|name| format!("'{name}'")).collect();
    if names.len() > SHOWN {
        text.push("…".to_owned());
    }
    text.join(", ")
}

fn open<'a, R: Read + Seek>(
    archive: &'a mut ZipArchive<R>,
    name: &str,
) -> Checked<impl Read + use<'a, R>> {
    archive.by_name(&format!("{name}.npy")).map_err(|error| match error {
        ZipError::FileNotFound => Flaw::new(format!("the archive lacks the array '{name}'")),
        error => Flaw::new(format!("array '{name}': {}", std::io::Error::from(error))),
    })
}

fn read_sparse<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    duplicates: Duplicates,
    limit: Limit<'_>,
) -> Checked<Matrix> {
    let format = read_format(archive)?;
    if !["csr", "csc", "coo"].contains(&format.as_str()) {
        return Err(Flaw::new(format!(
            "SciPy's sparse format '{format}'; convert it with tocsr()"
        )));
    }
    let shape = match indices(archive, "shape", limit)?.as_slice() {
        &[rows, columns] => Shape::new(rows as usize, columns as usize),
        sizes => return Err(Flaw::new(format!("a matrix of {} dimensions", sizes.len()))),
    };
    place(shape.rows.max(shape.columns))?;
    let data = Header::read(open(archive, "data")?)?;
    match data.number()?.element() {
        Element::Float32 => {
            Ok(Matrix::new(read_entries::<f32, R>(archive, &format, shape, duplicates, limit)?))
        }
        Element::Float64 => {
            Ok(Matrix::new(read_entries::<f64, R>(archive, &format, shape, duplicates, limit)?))
        }
    }
}

fn read_entries<T: Scalar, R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    format: &str,
    shape: Shape,
    duplicates: Duplicates,
    limit: Limit<'_>,
) -> Checked<Csr<T>> {
    let values: Vec<T> = {
        let mut member = open(archive, "data")?;
        let header = Header::read(&mut member)?;
        let &[stored] = header.shape.as_slice() else {
            return Err(Flaw::new("the stored cells have one dimension"));
        };
        limit.admit_sparse::<T>(shape, stored)?;
        numpy::read_cells(member, &header, Shape::new(stored, 1))?
    };
    let whole = |places: &[u32]| match places.len() == values.len() {
        true => Ok(()),
        false => {
            let message = format!("{} stored cells at {} places", values.len(), places.len());
            Err(Flaw::new(message))
        }
    };
    match format {
        "csr" => {
            let columns = places(archive, "indices", limit)?;
            let offsets = indices(archive, "indptr", limit)?;
            csr(shape, offsets, (columns, values), duplicates, limit)
        }
        "csc" => {
            let rows = places(archive, "indices", limit)?;
            whole(&rows)?;
            let columns = expand(&indices(archive, "indptr", limit)?, shape.columns, rows.len())?;
            Entries::from_parts(rows, columns, values).into_csr(shape, duplicates, limit)
        }
        _ => {
            let (rows, columns) = (places(archive, "row", limit)?, places(archive, "col", limit)?);
            whole(&rows)?;
            whole(&columns)?;
            Entries::from_parts(rows, columns, values).into_csr(shape, duplicates, limit)
        }
    }
}

/// The column of each stored cell from where each column begins.
fn expand(offsets: &[i64], columns: usize, stored: usize) -> Checked<Vec<u32>> {
    let fits = offsets.len() == columns + 1
        && offsets.is_sorted()
        && offsets.first() == Some(&0)
        && offsets.last() == Some(&(stored as i64));
    if !fits {
        return Err(Flaw::new(format!(
            "the offsets do not fit {columns} columns of {stored} entries"
        )));
    }
    let mut expanded = Vec::with_capacity(stored);
    for (column, range) in offsets.windows(2).enumerate() {
        expanded.resize(range[1] as usize, place(column)?);
    }
    Ok(expanded)
}

/// The name of the sparse format: a byte string, or text of four bytes a letter.
fn read_format<R: Read + Seek>(archive: &mut ZipArchive<R>) -> Checked<String> {
    let mut member = open(archive, "format")?;
    let header = Header::read(&mut member)?;
    let mut bytes = Vec::new();
    member.take(64).read_to_end(&mut bytes)?;
    bytes.retain(|&byte| byte != 0);
    match String::from_utf8(bytes) {
        Ok(format) if header.dtype.starts_with(['|', '<', '>']) => Ok(format),
        _ => Err(Flaw::new("the name of the sparse format is not text")),
    }
}

fn indices<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    name: &str,
    limit: Limit<'_>,
) -> Checked<Vec<i64>> {
    let mut member = open(archive, name)?;
    let header = Header::read(&mut member)?;
    numpy::read_indices(member, &header, limit)
}

fn places<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    name: &str,
    limit: Limit<'_>,
) -> Checked<Vec<u32>> {
    indices(archive, name, limit)?.into_iter().map(|index| place(index as usize)).collect()
}

pub(super) fn write(writer: &mut (impl Write + Seek), matrix: &Matrix) -> Checked<()> {
    let mut archive = ZipWriter::new(writer);
    with_storage!(matrix.cells(), storage => match storage {
        Storage::Dense(_) => {
            begin(&mut archive, "arr_0", matrix.size_bytes())?;
            numpy::write(&mut archive, matrix)?;
        }
        Storage::Csr(csr) => write_csr(&mut archive, csr)?,
    });
    archive.finish()?;
    Ok(())
}

fn write_csr<T: Scalar>(archive: &mut ZipWriter<impl Write + Seek>, csr: &Csr<T>) -> Checked<()> {
    let Shape { rows, columns } = csr.shape();
    let stored = csr.stored();
    let range = csr.offsets()[0] as usize..csr.offsets()[rows] as usize;
    let offset = |index: usize| csr.offsets()[index] - csr.offsets()[0];

    begin(archive, "indices", stored * 8)?;
    let cells = csr.columns()[range.clone()].iter().map(|&column| i64::from(column));
    let narrow = i32::try_from(stored.max(rows).max(columns)).is_ok();
    write_indices(archive, cells, narrow)?;
    begin(archive, "indptr", (rows + 1) * 8)?;
    write_indices(archive, (0..rows + 1).map(offset), narrow)?;
    begin(archive, "format", 0)?;
    numpy::write_header(archive, "|S3", "()")?;
    archive.write_all(b"csr")?;
    begin(archive, "shape", 0)?;
    write_indices(archive, [rows as i64, columns as i64].into_iter(), false)?;
    begin(archive, "data", stored * 8)?;
    numpy::write_header(archive, numpy::float_name(T::ELEMENT), &format!("({stored},)"))?;
    numpy::write_cells(archive, &csr.values()[range])
}

/// Begins the member of this name, which holds about so many bytes.
fn begin(archive: &mut ZipWriter<impl Write + Seek>, name: &str, size_bytes: usize) -> Checked<()> {
    // The header and the directory add less than this to what is counted in 32 bits.
    const SMALL_BYTES_MAX: usize = u32::MAX as usize - (1 << 20);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(size_bytes > SMALL_BYTES_MAX);
    Ok(archive.start_file(format!("{name}.npy"), options)?)
}

/// Writes indices as SciPy does: in 32 bits where every index of the matrix fits.
fn write_indices(
    writer: &mut impl Write,
    indices: impl ExactSizeIterator<Item = i64>,
    narrow: bool,
) -> Checked<()> {
    let dtype = if narrow { "<i4" } else { "<i8" };
    numpy::write_header(writer, dtype, &format!("({},)", indices.len()))?;
    for index in indices {
        match narrow {
            true => writer.write_all(&(index as i32).to_le_bytes())?,
            false => writer.write_all(&index.to_le_bytes())?,
        }
    }
    Ok(())
}
