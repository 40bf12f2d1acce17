//! Answers in files that outlive the process: those of queries over files, and over views of them.
//!
//! Enters: an answer, and what it was made of as that was. Leaves: the same rows for an equal query in another process,
//! while that is as it was.
//!
//! ```text
//! Arrow's file of the rows, and in it: query, seconds, each name and what it stood for
//! ```

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;

use super::Rows;
use crate::anew::Folder;

/// Names of what is told beside the rows.
const QUERY: &str = "query";
const SECONDS: &str = "seconds";
const READ: &str = "read ";

/// What tells a question from all others, in every process of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurableQuestion(u128);

/// An answer of another time.
#[derive(Debug)]
pub(crate) struct DurableAnswer {
    pub(crate) rows: Rows,
    pub(crate) query: String,
    pub(crate) seconds: f64,
    /// What it was made of: names, and what they stood for.
    pub(crate) reads: Vec<(String, String)>,
}

impl DurableQuestion {
    /// That of anything that is hashed. Another build of the program may answer otherwise, so its questions are others; nothing
    /// where it cannot be told from them.
    pub(super) fn of(what: impl Hash) -> Option<Self> {
        let program = std::env::current_exe().and_then(fs::metadata).ok()?;
        let program = (program.len(), program.modified().ok()?);
        let [low, high] = [0_u64, 1].map(|part| {
            let mut state = DefaultHasher::new();
            (part, env!("CARGO_PKG_VERSION"), &program, &what).hash(&mut state);
            u128::from(state.finish())
        });
        Some(Self(high << 64 | low))
    }
}

impl DurableAnswer {
    /// The answer to a question, if `is_current` of what it was made of; else it is forgotten.
    pub(super) fn get(
        folder: &Folder,
        DurableQuestion(key): DurableQuestion,
        is_current: impl FnOnce(&[(String, String)]) -> bool,
    ) -> Option<Self> {
        let answer = read(&folder.get(key)?).filter(|answer| is_current(&answer.reads));
        if answer.is_none() {
            folder.remove(key);
        }
        answer
    }

    /// Writes it down, where all have no more bytes than these. Where that cannot be, whoever asks computes it.
    pub(super) fn put(
        &self,
        folder: &Folder,
        DurableQuestion(key): DurableQuestion,
        bytes_max: usize,
    ) {
        if let Ok(bytes) = written(self) {
            folder.put(key, &bytes, bytes_max as u64);
        }
    }
}

fn written(answer: &DurableAnswer) -> Result<Vec<u8>, ArrowError> {
    let Rows { schema, batches } = &answer.rows;
    let mut writer = FileWriter::try_new(Vec::new(), schema)?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.write_metadata(QUERY, &answer.query);
    writer.write_metadata(SECONDS, answer.seconds.to_bits().to_string());
    for (name, is) in &answer.reads {
        writer.write_metadata(format!("{READ}{name}"), is);
    }
    writer.into_inner()
}

/// An answer from a file; nothing where that is none.
fn read(bytes: &[u8]) -> Option<DurableAnswer> {
    let reader = FileReader::try_new(Cursor::new(bytes), None).ok()?;
    let mut about = reader.custom_metadata().clone();
    let (query, seconds) = (about.remove(QUERY)?, about.remove(SECONDS)?.parse().ok()?);
    let read = |(name, is): (String, String)| Some((name.strip_prefix(READ)?.to_owned(), is));
    let mut reads = about.into_iter().map(read).collect::<Option<Vec<_>>>()?;
    reads.sort();
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<RecordBatch>, _>>().ok()?;
    Some(DurableAnswer {
        rows: Rows { schema, batches },
        query,
        seconds: f64::from_bits(seconds),
        reads,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, StringViewArray};

    use super::*;

    fn answer(text: &str, rows: usize) -> DurableAnswer {
        let texts = (0..rows).map(|row| (row % 3 > 0).then(|| format!("{text}, row {row}")));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
        let numbers = Decimal128Array::from_iter_values((0..rows).map(|row| row as i128 - 7));
        let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(20, 3).unwrap());
        let batch = RecordBatch::try_from_iter([("t", texts), ("n", numbers)]).unwrap();
        DurableAnswer {
            rows: Rows { schema: batch.schema(), batches: vec![batch.slice(0, 1), batch] },
            query: text.to_owned(),
            seconds: 0.1,
            reads: vec![("a".to_owned(), "as it was".to_owned()), ("b".to_owned(), String::new())],
        }
    }

    #[test]
    fn an_answer_is_found_by_another_process_while_what_it_was_made_of_is_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let folder = || Folder::new(Some(directory.path().to_path_buf()));
        let [one, other] = ["one", "other"].map(|what| DurableQuestion::of(what).unwrap());
        let put = answer("SELECT 1", 10);
        put.put(&folder(), one, 1 << 20);
        let get = |question, is_current: &dyn Fn(&[(String, String)]) -> bool| {
            DurableAnswer::get(&folder(), question, is_current)
        };
        let found = get(one, &|reads| reads == put.reads).unwrap();
        assert_eq!((&found.query, found.seconds, &found.reads), (&put.query, 0.1, &put.reads));
        assert_eq!((found.rows.schema, found.rows.batches), (put.rows.schema, put.rows.batches));
        assert!(get(other, &|_| true).is_none());
        // What is out of date is gone, whatever becomes of that.
        assert!(get(one, &|_| false).is_none());
        assert!(get(one, &|_| true).is_none());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
