//! Files as tables: a path or a glob in FROM, its format told by the extension.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::arrow::ArrowFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::execution::session_state::SessionState;
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;

use super::Source;
use super::reads::Content;
use crate::error::{ErrorKind, Result};

/// Rows that are read to find the types of a text file; as many as DuckDB samples.
const SAMPLE_ROWS: usize = 20_480;

/// A format of rows in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    Csv { delimiter: u8 },
    Json,
    Arrow,
}

/// The format of a path, by its extension; `None` where that is no format of ours.
pub(crate) fn format_of(path: &str) -> Option<Format> {
    let extension = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
    match extension.as_str() {
        "parquet" => Some(Format::Parquet),
        "csv" => Some(Format::Csv { delimiter: b',' }),
        "tsv" => Some(Format::Csv { delimiter: b'\t' }),
        "json" | "ndjson" | "jsonl" => Some(Format::Json),
        "arrow" | "feather" | "ipc" => Some(Format::Arrow),
        _ => None,
    }
}

/// Whether a path is one of this machine, the only one whose files are read and written.
///
/// # Errors
/// Where it names another: `s3://…`, `https://…`.
pub(crate) fn check_local(path: &str) -> Result<()> {
    match path.split_once("://") {
        Some((scheme, _)) if !scheme.eq_ignore_ascii_case("file") => {
            let message = "files are read from and written to this machine only".to_owned();
            Err(ErrorKind::File { path: path.to_owned(), message }.into())
        }
        _ => Ok(()),
    }
}

/// What the files are that a path or a glob names.
pub(super) fn content(path: &str) -> Content {
    let address = ListingTableUrl::parse(path).ok().filter(|_| format_of(path).is_some());
    let source = address.and_then(|address| Source::of_files(&[address]));
    source.filter(Source::is_settled).map_or(Content::Unknown, Content::Rows)
}

/// The rows of the files that a path or a glob names; `None` where the name is not that of a file.
///
/// # Errors
/// Where there is no such file on this machine, or its schema cannot be read.
pub(super) async fn open(
    path: &str,
    state: &SessionState,
) -> Result<Option<Arc<dyn TableProvider>>> {
    check_local(path)?;
    let Some(format) = format_of(path) else { return Ok(None) };
    let fail =
        |message: &str| ErrorKind::File { path: path.to_owned(), message: message.to_owned() };
    let url = ListingTableUrl::parse(path)?;
    let store = state.runtime_env().object_store(&url)?;
    let files: Vec<ObjectMeta> =
        url.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
    let Some(first) = files.first() else {
        return Err(match url.get_glob() {
            Some(_) => fail("no file matches"),
            None => fail("no such file"),
        }
        .into());
    };
    let format: Arc<dyn FileFormat> = match format {
        Format::Parquet => {
            let options = state.table_options().parquet.clone();
            Arc::new(ParquetFormat::new().with_options(options))
        }
        Format::Csv { delimiter } => Arc::new(
            CsvFormat::default()
                .with_delimiter(delimiter)
                .with_has_header(true)
                // A line end within quotes would be cut by reading one file in parts.
                .with_newlines_in_values(true)
                .with_schema_infer_max_rec(SAMPLE_ROWS),
        ),
        Format::Json => {
            let local = format!("/{}", first.location);
            let array =
                is_json_array(Path::new(&local)).map_err(|error| fail(&error.to_string()))?;
            Arc::new(
                JsonFormat::default()
                    .with_newline_delimited(!array)
                    .with_schema_infer_max_rec(SAMPLE_ROWS),
            )
        }
        Format::Arrow => Arc::new(ArrowFormat),
    };
    let options = ListingOptions::new(format).with_file_extension("");
    let schema = options.infer_schema(state, &url).await;
    let schema = schema.map_err(|error| fail(&error.strip_backtrace()))?;
    let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(schema);
    let cache = state.runtime_env().cache_manager.get_file_statistic_cache();
    Ok(Some(Arc::new(ListingTable::try_new(config)?.with_cache(cache))))
}

/// Whether a file is one JSON array rather than one object to a line.
fn is_json_array(path: &Path) -> std::io::Result<bool> {
    let mut file = BufReader::new(File::open(path)?);
    loop {
        let bytes = file.fill_buf()?;
        match bytes.iter().position(|byte| !byte.is_ascii_whitespace()) {
            Some(at) => return Ok(bytes[at] == b'['),
            None if bytes.is_empty() => return Ok(false),
            None => {
                let blank = bytes.len() as u64;
                std::io::copy(&mut file.by_ref().take(blank), &mut std::io::sink())?;
            }
        }
    }
}
