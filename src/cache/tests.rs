//! What is remembered, what is forgotten first, and where it goes when memory gets short.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::physical_plan::spill::get_record_batch_memory_size;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::DFParser;
use futures::executor::block_on;
use futures::{TryStreamExt, stream};

use super::*;
use crate::config::{Compression, Directory};
use crate::matrix::{Cells, Matrix, Shape};
use crate::memory::{Disk, Movable, Pool, PoolLimits, Thresholds, Tier};
use crate::value::Parameters;

impl Cache {
    /// Puts something else in the place of what is remembered of a kind, as a fault would; how often.
    pub(crate) fn falsify(&self, kind: Kind, falsified: impl Fn(Content) -> Content) -> usize {
        let is_such = |slot: &Slot| slot.answer.about().kind == kind;
        let all: Vec<(Question, Arc<Answer>)> = {
            let state = self.state();
            let such = state.answers.iter().filter(|(_, slot)| is_such(slot));
            such.map(|(question, slot)| (question.clone(), Arc::clone(&slot.answer))).collect()
        };
        for (question, answer) in &all {
            let content = falsified(answer.content().unwrap());
            self.keep_all(question.clone(), answer.about().clone(), content);
        }
        all.len()
    }
}

fn rows(count: usize) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count as i64));
    let texts = (0..count).map(|row| format!("what is told of row {row}"));
    let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
    RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
}

const POOL_LIMITS: PoolLimits =
    PoolLimits { idle_bytes: 0, total_bytes: 0, resident_bytes: 1 << 40, poison: false };

struct Memory {
    pool: Arc<dyn MemoryPool>,
    cache: Arc<Cache>,
}

impl Memory {
    fn with_limit(bytes: usize) -> Self {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let compression = Compression::None;
        let thresholds = Thresholds { memory: 90, compressed: 95, compression };
        let eviction = Eviction::new(&pool, thresholds);
        let limits = CacheLimits { bytes, answer_bytes: bytes };
        let disk = Disk::new(vec![Directory::at(std::env::temp_dir())]);
        let blocks = Pool::on(disk, POOL_LIMITS);
        let cache = Cache::new(&pool, &blocks, &eviction, limits);
        Self { pool, cache }
    }

    /// Keeps so many rows that took so long.
    fn keep(&self, text: &str, count: usize, seconds: f64) {
        let batch = rows(count);
        let bytes = MemoryConsumer::new("test").register(&self.pool);
        bytes.grow(get_record_batch_memory_size(&batch));
        let (schema, reads) = (batch.schema(), Reads::default());
        let about = About::new(Kind::Answer, text.into(), reads, seconds);
        let content = Content::Rows(Rows { schema, batches: vec![batch] });
        let answer = Answer::new(about, content, Counted::rows(bytes), &self.cache.shelf);
        self.cache.keep(self.question(text), answer);
    }

    fn question(&self, text: &str) -> Question {
        self.asked(text, &Parameters::new(), "").unwrap()
    }

    fn asked(&self, text: &str, parameters: &Parameters, settings: &str) -> Option<Question> {
        let mut statements = DFParser::parse_sql(text).unwrap();
        let statement = statements.pop_front().unwrap();
        self.cache.question(query_of(&statement)?, parameters, settings.into())
    }

    fn knows(&self, text: &str) -> bool {
        self.cache.answer(&self.question(text), |_| true).is_some()
    }

    fn queries(&self) -> Vec<String> {
        self.cache.all().into_iter().map(|(answer, _)| answer.about().query.clone()).collect()
    }
}

#[test]
fn questions_are_equal_by_what_they_ask_and_not_by_how_it_is_spelled() {
    let memory = Memory::with_limit(0);
    let question = |text: &str| memory.question(text);
    let asked = |text: &str, parameters: &Parameters, settings: &str| {
        memory.asked(text, parameters, settings)
    };
    let one = question("SELECT a, 'x' FROM t -- as it is");
    assert_eq!(one, question("select  a,\n 'x' from t"));
    for other in ["SELECT a, 'X' FROM t", "SELECT a, 'x' FROM T", "SELECT a FROM t"] {
        assert_ne!(one, question(other), "{other}");
    }
    let with = |parameters: Parameters| asked("SELECT $1", &parameters, "").unwrap();
    let parameters = |value: f64| Parameters::new().push(value);
    assert_eq!(with(parameters(0.5)), with(parameters(0.5)));
    assert_ne!(with(parameters(0.0)), with(parameters(-0.0)));
    assert_ne!(with(Parameters::new().push(1_i32)), with(Parameters::new().push(1_i64)));
    let none = Parameters::new();
    assert_ne!(asked("SELECT 1", &none, ""), asked("SELECT 1", &none, "timezone=UTC"));
    assert_eq!(asked("CREATE TABLE t (a INT)", &none, ""), None);
    let matrix = crate::matrix::Matrix::from_row_major(crate::matrix::Shape::new(1, 1), vec![1.0]);
    assert_eq!(asked("SELECT 1", &none.matrix("x", matrix.unwrap()), ""), None);
}

#[test]
fn what_saves_least_for_its_bytes_is_forgotten_first() {
    let memory = Memory::with_limit(3 * (get_record_batch_memory_size(&rows(1000)) + 3000));
    memory.keep("SELECT 1", 1000, 1.0);
    memory.keep("SELECT 2", 1000, 0.4);
    memory.keep("SELECT 3", 1000, 0.5);
    assert_eq!(memory.queries(), ["SELECT 1", "SELECT 3", "SELECT 2"]);
    // Used twice, it saves 0.8 seconds.
    assert!(memory.knows("SELECT 2") && memory.knows("SELECT 2"));
    memory.keep("SELECT 4", 1000, 0.1);
    assert_eq!(memory.queries(), ["SELECT 1", "SELECT 2", "SELECT 4"]);
    // What is new is worth as much more as what was forgotten for it, so that old worth fades.
    memory.keep("SELECT 5", 1000, 0.6);
    assert_eq!(memory.queries(), ["SELECT 5", "SELECT 1", "SELECT 2"]);
    memory.keep("SELECT 5", 500, 0.6);
    let usage = memory.cache.usage();
    assert_eq!((usage.answers, usage.hits, usage.misses), (3, 2, 0));
    assert_eq!(memory.pool.reserved(), usage.bytes);
}

#[test]
fn no_answer_is_larger_than_its_limit() {
    let memory = Memory::with_limit(get_record_batch_memory_size(&rows(1000)) + 3000);
    memory.keep("SELECT 1", 1000, 1.0);
    assert!(memory.knows("SELECT 1"));
    memory.keep("SELECT 1", 1100, 1.0);
    assert!(!memory.knows("SELECT 1"));
    assert_eq!((memory.cache.usage().bytes, memory.pool.reserved()), (0, 0));
    memory.keep("SELECT 1", 10, 1.0);
    memory.cache.set_limits(CacheLimits { bytes: 0, answer_bytes: 0 });
    assert_eq!((memory.cache.usage().answers, memory.pool.reserved()), (0, 0));
}

#[test]
fn an_answer_made_of_other_rows_is_forgotten() {
    let memory = Memory::with_limit(1 << 20);
    memory.keep("SELECT 1", 10, 1.0);
    assert!(memory.cache.answer(&memory.question("SELECT 1"), |_| false).is_none());
    assert!(!memory.knows("SELECT 1"));
    let usage = memory.cache.usage();
    assert_eq!((usage.outdated, usage.misses, usage.hits), (1, 2, 0));
}

#[test]
fn a_remembered_answer_that_is_not_the_one_computed_is_an_error() {
    let memory = Memory::with_limit(1 << 20);
    memory.keep("SELECT 1", 10, 1.0);
    let answer = memory.cache.answer(&memory.question("SELECT 1"), |_| true).unwrap();
    let compared = |batches: Vec<RecordBatch>| -> Result<Vec<RecordBatch>, _> {
        let run = stream::iter(batches.into_iter().map(Ok));
        let schema = answer.as_rows().unwrap().schema;
        let run = Box::pin(RecordBatchStreamAdapter::new(schema, run));
        block_on(Comparison::with(Arc::clone(&answer)).of(run).try_collect())
    };
    let halves = vec![rows(10).slice(5, 5), rows(10).slice(0, 5)];
    assert_eq!(compared(halves.clone()).unwrap(), halves);
    let error = compared(vec![rows(9)]).unwrap_err().to_string();
    assert!(
        error.contains("what is remembered of this query is not what was computed: 10 rows, and 9"),
        "{error}"
    );
}

/// Runs on a thread whose pool has files, and is left with none.
fn with_files(work: impl FnOnce() + Send) {
    let disk = Disk::new(vec![Directory::at(std::env::temp_dir())]);
    let blocks = Pool::on(Arc::clone(&disk), POOL_LIMITS);
    let work = || {
        blocks.serve_this_thread();
        work();
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    assert_eq!(disk.usage()[0].used_bytes, 0);
}

#[test]
fn answers_go_to_files_and_are_read_there() {
    with_files(|| {
        let memory = Memory::with_limit(1 << 24);
        memory.keep("SELECT 1", 20_000, 1.0);
        let answer = memory.cache.answer(&memory.question("SELECT 1"), |_| true).unwrap();
        let read = answer.as_rows().unwrap();
        assert_eq!((answer.movable_bytes(), answer.move_down(Tier::Disk)), (0, 0));
        drop(read);
        assert_eq!(answer.move_down(Tier::Compressed), 0);
        assert!(answer.movable_bytes() > 900_000);
        let left = answer.bytes() - answer.move_down(Tier::Disk);
        assert_eq!((answer.tier(), memory.pool.reserved()), (Tier::Disk, left));
        assert!(left < 3000);
        assert_eq!(answer.as_rows().unwrap().batches, [rows(20_000)]);
        assert_eq!(answer.move_down(Tier::Disk), 0);
    });
}

#[test]
fn matrices_go_to_files_too_and_those_that_somebody_has_are_let_go() {
    with_files(|| {
        let memory = Memory::with_limit(1 << 24);
        let cells = |count: usize| {
            let cells = (0..count).map(|at| at as f64).collect();
            Matrix::from_row_major(Shape::new(count / 100, 100), cells).unwrap().cells().clone()
        };
        let question = memory.question("SELECT 1");
        let keep = |matrices: Vec<Cells>| {
            let about = About::new(Kind::Matrix, "svd(x)".into(), Reads::default(), 1.0);
            memory.cache.keep_all(question.clone(), about, Content::Matrices(matrices));
            memory.cache.known(&question).unwrap()
        };
        let is = |answer: &Answer, matrices: &[Cells]| match answer.content() {
            Some(known @ Content::Matrices(_)) => {
                unlike(&known, &Content::Matrices(matrices.to_vec())).is_none()
            }
            _ => false,
        };
        let answer = keep(vec![cells(100_000), cells(100)]);
        assert!(is(&answer, &[cells(100_000), cells(100)]));
        assert!(!is(&answer, &[cells(100_000)]) && !is(&answer, &[cells(100), cells(100_000)]));
        assert_eq!((answer.rows(), answer.tier()), (1001, Tier::Memory));
        assert_eq!(answer.move_down(Tier::Disk), 800_000);
        assert_eq!(answer.tier(), Tier::Disk);
        assert!(is(&answer, &[cells(100_000), cells(100)]));
        drop(answer);
        // Whoever has it keeps it, and counts it.
        let theirs = cells(100_000);
        let answer = keep(vec![theirs.clone()]);
        assert_eq!(answer.move_down(Tier::Disk), 800_000);
        assert!(memory.cache.known(&question).is_none());
        assert_eq!(memory.cache.usage().bytes, 0);
        assert_eq!(theirs.cell(999, 99), 99_999.0);
        drop(answer);
        assert_eq!(memory.pool.reserved(), 0);
        // What is larger than an answer may be is not kept, nor what memory has no room for.
        let large = cells(3_000_000);
        let about = About::new(Kind::Matrix, "x".into(), Reads::default(), 1.0);
        memory.cache.keep_all(question.clone(), about, Content::Matrices(vec![large]));
        assert!(memory.cache.known(&question).is_none());
    });
}
