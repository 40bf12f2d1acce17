//! COPY between tables and files: the format follows the extension, and what could not be written says why.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::physical_plan::FileSink;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::DataFusionError;
use datafusion::object_store::path::Path as Location;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as SqlStatement;
use sqlparser::ast::{self, CopySource, CopyTarget, Value};

use crate::catalog::{Format, LocalFiles, check_local, format_of};
use crate::error::{Error, ErrorKind, Result};
use crate::sql::{self, Statement, StatementKind};

/// Fills in the format of `COPY … TO 'file'`, and makes `COPY table FROM 'file'` the INSERT that it is.
///
/// # Errors
/// Where the file is not one of this machine, or its extension not one of a format.
pub(super) fn rewrite(syntax: &mut SqlStatement) -> Result<()> {
    if let SqlStatement::CopyTo(copy) = syntax {
        check_local(&copy.target)?;
    }
    match syntax {
        SqlStatement::CopyTo(copy) if copy.stored_as.is_none() => {
            let name = match format_of(&copy.target).ok_or_else(|| unknown_format(&copy.target))? {
                Format::Parquet => "PARQUET",
                Format::Json => "JSON",
                Format::Arrow => "ARROW",
                Format::Csv { delimiter } => {
                    let key = "format.delimiter";
                    if !copy.options.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
                        let delimiter = char::from(delimiter).to_string();
                        copy.options.push((key.to_owned(), Value::SingleQuotedString(delimiter)));
                    }
                    "CSV"
                }
            };
            copy.stored_as = Some(name.to_owned());
            Ok(())
        }
        SqlStatement::Statement(statement) => {
            let ast::Statement::Copy {
                source: CopySource::Table { table_name, columns },
                to: false,
                target: CopyTarget::File { filename },
                options,
                ..
            } = statement.as_ref()
            else {
                return Ok(());
            };
            if !options.is_empty() {
                let message = "COPY FROM takes no options; the extension tells the format";
                return Err(Error::unsupported(message));
            }
            check_local(filename)?;
            format_of(filename).ok_or_else(|| unknown_format(filename))?;
            let names: Vec<_> = columns.iter().map(ToString::to_string).collect();
            let columns =
                if names.is_empty() { String::new() } else { format!("({})", names.join(", ")) };
            let file = filename.replace('\'', "''");
            let insert = format!("INSERT INTO {table_name} {columns} SELECT * FROM '{file}'");
            let parsed = sql::parse(&insert)?;
            let Some(StatementKind::Sql(insert)) = parsed.first().map(Statement::kind) else {
                return Err(Error::syntax(insert));
            };
            syntax.clone_from(insert);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Where a plan writes files of texts, before it does: what went wrong there earlier is forgotten.
///
/// # Errors
/// None but DataFusion's.
pub(super) fn places(plan: &Arc<dyn ExecutionPlan>, files: &LocalFiles) -> Result<Vec<Location>> {
    let mut places = Vec::new();
    plan.apply(|operator| {
        let sink = operator.downcast_ref::<DataSinkExec>().map(|of| of.sink() as &dyn Any);
        let texts = sink.and_then(|sink| {
            let csv = sink.downcast_ref::<CsvSink>().map(FileSink::config);
            csv.or_else(|| sink.downcast_ref::<JsonSink>().map(FileSink::config))
        });
        let paths = texts.into_iter().flat_map(|config| &config.table_paths);
        places.extend(paths.map(|path| path.prefix().clone()));
        Ok(TreeNodeRecursion::Continue)
    })?;
    places.iter().for_each(|place| files.forget(place));
    Ok(places)
}

/// The error of a plan that writes files there, as that of the file which could not be written.
///
/// DataFusion's writers of texts hold back 10 MB until the end, and drop why they could not be written then.
pub(super) fn of_file(error: DataFusionError, places: &[Location], files: &LocalFiles) -> Error {
    match places.iter().find_map(|place| files.unwritten(place)) {
        Some((path, message)) => ErrorKind::File { path, message }.into(),
        None => error.into(),
    }
}

fn unknown_format(path: &str) -> Error {
    let message =
        "its extension is none of parquet, csv, tsv, json, ndjson, jsonl, arrow, feather, ipc";
    ErrorKind::File { path: path.to_owned(), message: message.to_owned() }.into()
}
