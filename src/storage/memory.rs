//! A table in memory: a current version that never changes, and the writers that make the next one.
//!
//! Writers of one table take turns (`MemoryTable::turn`), so the version a writer has read is the version it
//! changes. A writer that fails leaves the table as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::logical_expr::Expr;
use tokio::sync::OwnedMutexGuard;

use super::batch::{Batch, Figures, encoded_if_many};
use super::dictionary::{Coding, Progress, Texts, are_plain};
use super::digits::Digits;
use super::keys::{Key, UniqueKey};
use super::zones::Zones;
use crate::encoding::is_held;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Kept, Movable, Tier, is_away};

/// Batches shorter than this grow by what is inserted next; the size that DataFusion likes to read.
pub(super) const BATCH_ROWS: usize = 8192;

/// What a table is, apart from its rows.
#[derive(Debug, Default)]
pub(crate) struct TableDefinition {
    pub(crate) keys: Vec<Key>,
    /// What a column gets that an INSERT leaves out.
    pub(crate) defaults: HashMap<String, Expr>,
}

/// A table in memory.
#[derive(Debug)]
pub(crate) struct MemoryTable {
    id: u64,
    schema: SchemaRef,
    defaults: HashMap<String, Expr>,
    primary_key: Option<Vec<usize>>,
    state: Mutex<State>,
    /// What is known of texts, by column; locked before the state.
    texts: Mutex<HashMap<usize, Texts>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct State {
    current: Arc<Version>,
    keys: Vec<UniqueKey>,
    /// Where the rows are, and what they count for.
    kept: Kept,
    read: Instant,
}

impl State {
    /// Whether somebody reads the rows, or has some of them still: to put them away would free nothing.
    fn is_read(&self) -> bool {
        let mut columns = self.current.at_rest().flat_map(RecordBatch::columns);
        Arc::strong_count(&self.current) > 1 || columns.any(is_held)
    }

    /// Whether all rows are in memory.
    fn is_in_memory(&self) -> bool {
        !self.current.at_rest().any(is_away)
    }

    /// Keeps a column in another way, in each batch.
    fn keep_column(&mut self, at: usize, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let batches = self.current.batches.iter().zip(columns);
        let batches = batches.map(|(batch, column)| batch.with_column(at, column));
        let batches: Vec<Batch> = batches.collect::<Result<_, _>>()?;
        self.kept.recount(batches.iter().map(Batch::at_rest));
        self.current = self.current.with(batches);
        Ok(())
    }
}

/// All rows at one time.
#[derive(Debug, Default)]
pub(crate) struct Version {
    pub(crate) number: u64,
    /// The first version of which this one has all rows, before those that have come since.
    pub(crate) grown_since: u64,
    pub(crate) batches: Vec<Batch>,
    pub(super) zones: Zones,
    pub(crate) rows: usize,
    /// Once somebody has asked.
    figures: OnceLock<Vec<Figures>>,
    /// One for all that have the same rows in the same batches, however these are kept.
    batched: Arc<Batched>,
}

/// Rows in batches, as far as they are told from others, and what was found out about them.
#[derive(Debug, Default)]
pub(crate) struct Batched {
    /// Whether a column has each of its values once, by its place.
    keys: Mutex<BTreeMap<usize, bool>>,
    /// What digits its values have, where they are doubles that have few.
    digits: Mutex<BTreeMap<usize, Option<Digits>>>,
}

impl Batched {
    fn keys(&self) -> MutexGuard<'_, BTreeMap<usize, bool>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a column has each value once, where somebody has looked.
    pub(super) fn known_key(&self, column: usize) -> Option<bool> {
        self.keys().get(&column).copied()
    }

    /// What is known of whether a column has each value once; where nothing is, what `look` finds.
    ///
    /// # Errors
    /// Those of `look`.
    pub(super) fn is_key(
        &self,
        column: usize,
        look: impl FnOnce() -> Result<bool, ArrowError>,
    ) -> Result<bool, ArrowError> {
        known_or_found(&mut self.keys(), column, look)
    }

    /// The same of its digits.
    ///
    /// # Errors
    /// Those of `look`.
    pub(super) fn digits(
        &self,
        column: usize,
        look: impl FnOnce() -> Result<Option<Digits>, ArrowError>,
    ) -> Result<Option<Digits>, ArrowError> {
        let mut digits = self.digits.lock().unwrap_or_else(PoisonError::into_inner);
        known_or_found(&mut digits, column, look)
    }
}

fn known_or_found<T: Copy>(
    known: &mut BTreeMap<usize, T>,
    column: usize,
    look: impl FnOnce() -> Result<T, ArrowError>,
) -> Result<T, ArrowError> {
    if let Some(known) = known.get(&column) {
        return Ok(*known);
    }
    let found = look()?;
    known.insert(column, found);
    Ok(found)
}

impl Version {
    /// By column; none where there are no rows.
    pub(super) fn figures(&self) -> &[Figures] {
        self.figures.get_or_init(|| {
            let columns = self.batches.first().map_or(0, |batch| batch.schema().fields().len());
            let mut figures = vec![Figures::default(); columns];
            for batch in &self.batches {
                for (known, of) in figures.iter_mut().zip(batch.figures()) {
                    known.nulls += of.nulls;
                    known.bytes += of.bytes;
                }
            }
            figures
        })
    }

    /// What is the same for all that have the same rows in the same batches.
    pub(super) fn batched(&self) -> &Arc<Batched> {
        &self.batched
    }

    /// The batches at rest.
    pub(super) fn at_rest(&self) -> impl Iterator<Item = &RecordBatch> {
        self.batches.iter().map(Batch::at_rest)
    }

    /// The version after this one, which has its rows and some more.
    fn grown(&self, batches: Vec<Batch>) -> Arc<Self> {
        self.next(self.grown_since, batches)
    }

    /// The version after this one, with other rows.
    fn changed(&self, batches: Vec<Batch>) -> Arc<Self> {
        self.next(self.number + 1, batches)
    }

    fn next(&self, grown_since: u64, batches: Vec<Batch>) -> Arc<Self> {
        let rows = batches.iter().map(Batch::num_rows).sum();
        let zones = self.zones.next(&self.batches, &batches);
        let (figures, batched) = (OnceLock::new(), Arc::default());
        let number = self.number + 1;
        Arc::new(Self { number, grown_since, batches, zones, rows, figures, batched })
    }

    /// The same rows where they lie now.
    fn moved(&self, kept: Vec<RecordBatch>) -> Arc<Self> {
        self.with(self.batches.iter().zip(kept).map(|(batch, kept)| batch.moved(kept)).collect())
    }

    /// The same rows, kept in another way.
    fn with(&self, batches: Vec<Batch>) -> Arc<Self> {
        let (zones, figures) = (self.zones.clone(), self.figures.clone());
        Arc::new(Self { batches, zones, figures, batched: Arc::clone(&self.batched), ..*self })
    }

    /// The rows after so many of them.
    ///
    /// # Errors
    /// None, for what is kept was such rows.
    pub(super) fn after(&self, rows: usize) -> Result<Arc<Self>, ArrowError> {
        let mut first = 0;
        let mut batches = Vec::new();
        for batch in &self.batches {
            let skipped = rows.saturating_sub(first).min(batch.num_rows());
            first += batch.num_rows();
            if skipped < batch.num_rows() {
                batches.push(if skipped == 0 { batch.clone() } else { batch.after(skipped)? });
            }
        }
        let zones = self.zones.next(&self.batches, &batches);
        let (rows, grown_since) = (self.rows.saturating_sub(rows), self.number);
        let (figures, batched) = (OnceLock::new(), Arc::default());
        Ok(Arc::new(Self { batches, zones, rows, grown_since, figures, batched, ..*self }))
    }
}

impl Movable for MemoryTable {
    fn movable_bytes(&self) -> usize {
        // Who works with the state may be waiting for memory that this table is asked to give.
        let Ok(state) = self.state.try_lock() else { return 0 };
        if state.is_read() { 0 } else { state.kept.memory_bytes() }
    }

    fn unused_for(&self) -> Duration {
        self.state.try_lock().map_or(Duration::ZERO, |state| state.read.elapsed())
    }

    /// Rows go to a file as they are, for there they can be read without being brought back.
    fn move_down(&self, to: Tier) -> usize {
        let Ok(mut state) = self.state.try_lock() else { return 0 };
        if to != Tier::Disk || state.is_read() {
            return 0;
        }
        let State { current, kept, .. } = &mut *state;
        let freed = kept.memory_bytes();
        let alone = current.batches.iter().map(|batch| batch.alone().ok());
        let Some(away) = kept.put_away(alone) else { return 0 };
        *current = current.moved(away);
        freed
    }
}

/// What to do with rows that are named by their numbers in a version.
#[derive(Debug)]
pub(crate) enum Change {
    /// Remove them.
    Delete(Vec<UInt64Array>),
    /// Give them new values in these columns, one batch of values beside each array of numbers.
    Update { columns: Vec<usize>, rows: Vec<UInt64Array>, values: Vec<Vec<ArrayRef>> },
}

impl MemoryTable {
    /// A table of these rows, which are kept already.
    ///
    /// # Errors
    /// Where a row breaks a key or a NOT NULL.
    pub(crate) fn new(
        schema: &Schema,
        definition: TableDefinition,
        batches: Vec<Batch>,
        kept: Kept,
    ) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let TableDefinition { keys, defaults } = definition;
        let primary_key = keys.iter().find(|key| key.primary).map(|key| key.columns.clone());
        let required = |column| primary_key.as_ref().is_some_and(|key| key.contains(&column));
        let fields = schema.fields().iter().enumerate().map(|(column, field)| {
            let nullable = field.is_nullable() && !required(column);
            // Metadata of the source, as a file's, says nothing about the table.
            Field::new(field.name(), field.data_type().clone(), nullable)
        });
        let empty = Version::default();
        let table = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            defaults,
            primary_key,
            state: Mutex::new(State {
                current: Arc::new(empty),
                keys: keys.into_iter().map(UniqueKey::new).collect(),
                kept,
                read: Instant::now(),
            }),
            texts: Mutex::default(),
            turn: Arc::default(),
        };
        table.insert_kept(batches)?;
        Ok(table)
    }

    /// A number that no other table of this process has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns of the declared PRIMARY KEY.
    pub(crate) fn primary_key(&self) -> Option<&[usize]> {
        self.primary_key.as_deref()
    }

    pub(crate) fn default_of(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    /// The version that a statement beginning now reads.
    pub(crate) fn current(&self) -> Arc<Version> {
        let mut state = self.state();
        state.read = Instant::now();
        Arc::clone(&state.current)
    }

    /// Takes note that a column of a version is read from its first row on, by who decodes it or not.
    pub(super) fn note_read(&self, version: &Version, column: usize, is_encoded: bool) {
        let is_text =
            |field: &Field| matches!(field.data_type(), DataType::Utf8 | DataType::Utf8View);
        if !self.schema.fields().get(column).is_some_and(|field| is_text(field)) {
            return;
        }
        let mut texts = self.texts();
        let known = texts.get(&column);
        let may_be_few = known.is_none_or(|known| known.may_be_few(version.rows));
        let is_coded = matches!(known, Some(Texts::Coded(coding)) if coding.is_of(version));
        if is_coded || !may_be_few || !are_plain(&version.batches, column) {
            return;
        }
        if known.is_none() {
            texts.insert(column, Texts::Read);
            return;
        }
        let state = self.state();
        // What a statement sees of a version may be a part of its rows.
        let is_current = Arc::ptr_eq(&state.current.batched, &version.batched);
        // Codes are for those who take them.
        if is_encoded && is_current && state.is_in_memory() {
            let bytes = state.kept.reservation("dictionary of a column");
            let coding = Coding::new(version, column, bytes);
            texts.insert(column, Texts::Coded(Arc::new(coding)));
        }
    }

    /// Bytes of the rows that are in memory.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.state().kept.memory_bytes()
    }

    /// Who gives codes to the texts of a column of this version, if anybody does.
    pub(super) fn coding(&self, version: &Version, column: usize) -> Option<Arc<Coding>> {
        match self.texts().get(&column) {
            Some(Texts::Coded(coding)) if coding.is_of(version) => Some(Arc::clone(coding)),
            _ => None,
        }
    }

    /// What becomes of a column whose texts were given codes.
    ///
    /// # Errors
    /// None, for each code is that of a text.
    pub(super) fn coded(&self, coding: &Coding, progress: Progress) -> Result<(), ArrowError> {
        if progress == Progress::GoesOn {
            return Ok(());
        }
        let mut texts = self.texts();
        let is_over = progress == Progress::Over;
        // Another version may be coded by now.
        let known = texts.get(&coding.column);
        if matches!(known, Some(Texts::Coded(known)) if std::ptr::eq(known.as_ref(), coding)) {
            match is_over {
                true => texts.insert(coding.column, Texts::TooMany { rows: coding.rows() }),
                false => texts.remove(&coding.column),
            };
        }
        let mut state = self.state();
        if is_over || !coding.is_of(&state.current) || !state.is_in_memory() {
            return Ok(());
        }
        match coding.columns(&state.current.batches)? {
            Some(columns) => state.keep_column(coding.column, &columns),
            None => Ok(()),
        }
    }

    fn texts(&self) -> MutexGuard<'_, HashMap<usize, Texts>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for other writers to be done; whoever holds the guard is the only writer.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A state is replaced as a whole, so one that a panic left behind is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same rows where there is room for them, to be inserted.
    ///
    /// # Errors
    /// None, for any rows can be kept.
    pub(crate) fn keep(&self, rows: &RecordBatch) -> Result<Batch, ArrowError> {
        let rows = Batch::new(rows)?;
        Ok(rows.kept(&mut self.state().kept))
    }

    /// Appends rows that are kept already, and counts them.
    ///
    /// # Errors
    /// Where a row breaks a key or a NOT NULL; then none is in.
    pub(crate) fn insert_kept(&self, rows: Vec<Batch>) -> Result<u64> {
        let inserted = self.append(rows);
        if inserted.is_err() {
            let mut state = self.state();
            let current = Arc::clone(&state.current);
            state.kept.recount(current.at_rest());
        }
        inserted
    }

    fn append(&self, rows: Vec<Batch>) -> Result<u64> {
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|batch| batch.num_rows() > 0)
            .map(|batch| self.conform(batch))
            .collect::<Result<_>>()?;
        let mut state = self.state();
        let State { current, keys, .. } = &mut *state;
        let new: Vec<_> = keys
            .iter_mut()
            .map(|key| key.check(&self.schema, &current.batches, &rows))
            .collect::<Result<_>>()?;
        let count: usize = rows.iter().map(Batch::num_rows).sum();
        let mut batches = current.batches.clone();
        for batch in rows {
            append(&mut batches, batch)?;
        }
        for (key, new) in keys.iter_mut().zip(new) {
            key.keep(new);
        }
        *current = current.grown(batches);
        Ok(count as u64)
    }

    /// Changes rows of the version that `seen` names, and counts them.
    ///
    /// # Errors
    /// Where a row breaks a key or a NOT NULL, or another writer came between; then nothing changes.
    pub(crate) fn change(&self, seen: u64, change: Change) -> Result<u64> {
        let mut state = self.state();
        let State { current, keys, kept, .. } = &mut *state;
        if current.number != seen {
            let message = "the table was changed by another statement meanwhile";
            return Err(ErrorKind::Unsupported(message.to_owned()).into());
        }
        let (batches, count, touched) = match change {
            Change::Delete(rows) => {
                let (batches, count) = delete(&current.batches, &rows)?;
                (batches, count, None)
            }
            Change::Update { columns, rows, values } => {
                let (batches, count) = self.update(&current.batches, &columns, &rows, &values)?;
                (batches, count, Some(columns))
            }
        };
        if count == 0 {
            return Ok(0);
        }
        let changes = |key: &UniqueKey, columns: &[usize]| {
            key.key.columns.iter().any(|column| columns.contains(column))
        };
        let mut fresh = Vec::with_capacity(keys.len());
        for key in keys.iter() {
            fresh.push(match &touched {
                Some(columns) if changes(key, columns) => {
                    let mut key = UniqueKey::new(key.key.clone());
                    let all = key.check(&self.schema, &[], &batches)?;
                    key.keep(all);
                    Some(key)
                }
                _ => None,
            });
        }
        for (key, fresh) in keys.iter_mut().zip(fresh) {
            match (fresh, &touched) {
                (Some(fresh), _) => *key = fresh,
                (None, Some(_)) => (),
                (None, None) => key.forget(),
            }
        }
        kept.recount(batches.iter().map(Batch::at_rest));
        *current = current.changed(batches);
        Ok(count)
    }

    /// Removes all rows and counts them.
    pub(crate) fn truncate(&self) -> u64 {
        let mut state = self.state();
        let State { current, keys, kept, .. } = &mut *state;
        let count = current.rows as u64;
        kept.recount([]);
        keys.iter_mut().for_each(UniqueKey::forget);
        *current = current.changed(Vec::new());
        count
    }

    /// Adds a key that the rows there are must keep to.
    ///
    /// # Errors
    /// Where two rows share a key.
    pub(crate) fn add_key(&self, key: Key) -> Result<()> {
        let mut state = self.state();
        let mut key = UniqueKey::new(key);
        let taken = key.check(&self.schema, &[], &state.current.batches)?;
        key.keep(taken);
        state.keys.push(key);
        Ok(())
    }

    /// Lifts the keys that this index made.
    pub(crate) fn drop_index(&self, index: &str) {
        self.state().keys.retain(|key| key.key.index.as_deref() != Some(index));
    }

    /// The rows under the table's schema, with a plain word about a NULL where none may be.
    fn conform(&self, rows: Batch) -> Result<Batch> {
        let mut columns = self.schema.fields().iter().zip(rows.figures());
        columns.try_for_each(|(field, figures)| check_not_null(field, figures.nulls))?;
        Ok(rows.under(&self.schema)?)
    }

    fn update(
        &self,
        batches: &[Batch],
        columns: &[usize],
        rows: &[UInt64Array],
        values: &[Vec<ArrayRef>],
    ) -> Result<(Vec<Batch>, u64)> {
        // Where a row is named twice, as by a join that matches it twice, the first value stays.
        let mut new: HashMap<u64, (usize, usize)> = HashMap::new();
        for (batch, numbers) in rows.iter().enumerate() {
            for (row, &number) in numbers.values().iter().enumerate() {
                new.entry(number).or_insert((batch + 1, row));
            }
        }
        let mut first = 0;
        let mut updated = Vec::with_capacity(batches.len());
        for old in batches {
            let numbers = first..first + old.num_rows() as u64;
            first = numbers.end;
            let places: Vec<_> = numbers
                .enumerate()
                .map(|(row, number)| new.get(&number).copied().unwrap_or((0, row)))
                .collect();
            if places.iter().all(|&(source, _)| source == 0) {
                updated.push(old.clone());
                continue;
            }
            let mut batch = old.clone();
            for (at, &column) in columns.iter().enumerate() {
                let before = batch.column(column)?;
                let sources = std::iter::once(before.as_ref());
                let sources: Vec<&dyn Array> =
                    sources.chain(values.iter().map(|batch| batch[at].as_ref())).collect();
                let after = interleave(&sources, &places)?;
                check_not_null(self.schema.field(column), after.logical_null_count())?;
                batch = batch.with_column(column, &encoded_if_many(&after))?;
            }
            updated.push(batch.settled()?);
        }
        Ok((updated, new.len() as u64))
    }
}

fn check_not_null(field: &Field, nulls: usize) -> Result<()> {
    if field.is_nullable() || nulls == 0 {
        return Ok(());
    }
    Err(Error::argument(
        format!("column '{}'", field.name()),
        "is NOT NULL, and this row has no value",
    ))
}

/// Appends a batch, merged with shorter ones before it as the digits of a counter carry: each row is
/// copied O(log n) times, and there are few batches however rows come in.
fn append(batches: &mut Vec<Batch>, mut batch: Batch) -> Result<()> {
    while let Some(last) = batches.last()
        && last.num_rows() + batch.num_rows() <= BATCH_ROWS
        && last.num_rows() <= 2 * batch.num_rows()
    {
        batch = last.followed_by(&batch)?;
        batches.pop();
    }
    batches.push(batch);
    Ok(())
}

fn delete(batches: &[Batch], rows: &[UInt64Array]) -> Result<(Vec<Batch>, u64)> {
    let total: usize = batches.iter().map(Batch::num_rows).sum();
    let mut keep = vec![true; total];
    let mut count = 0;
    for &row in rows.iter().flat_map(|numbers| numbers.values()) {
        // A row that a join names twice goes once.
        count += u64::from(std::mem::replace(&mut keep[row as usize], false));
    }
    let mut first = 0;
    let mut left = Vec::with_capacity(batches.len());
    for batch in batches {
        let kept = &keep[first..first + batch.num_rows()];
        first += batch.num_rows();
        if kept.iter().all(|&kept| kept) {
            left.push(batch.clone());
        } else if kept.contains(&true) {
            left.push(batch.filtered(&BooleanArray::from(kept.to_vec()))?);
        }
    }
    Ok((left, count))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::compute::concat_batches;
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};

    use super::*;

    fn batch(values: &[i64]) -> Batch {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        Batch::new(&RecordBatch::try_from_iter([("a", values)]).unwrap()).unwrap()
    }

    fn table(keys: Vec<Key>, values: &[i64]) -> Result<MemoryTable> {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let definition = TableDefinition { keys, ..TableDefinition::default() };
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut kept = Kept::new("test", &pool);
        let rows = batch(values).kept(&mut kept);
        MemoryTable::new(&schema, definition, vec![rows], kept)
    }

    fn values(table: &MemoryTable) -> Vec<i64> {
        let current = table.current();
        let all: Vec<_> = current.batches.iter().map(|batch| batch.rows().unwrap()).collect();
        let all = concat_batches(table.schema(), &all).unwrap();
        assert_eq!(all.num_rows(), current.rows);
        arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(all.column(0))
            .values()
            .to_vec()
    }

    fn primary() -> Vec<Key> {
        vec![Key { index: None, columns: vec![0], primary: true }]
    }

    #[test]
    fn single_rows_grow_into_few_batches_in_order() {
        let table = table(Vec::new(), &[]).unwrap();
        for value in 0..1000 {
            table.insert_kept(vec![batch(&[value])]).unwrap();
        }
        assert_eq!(values(&table), (0..1000).collect::<Vec<_>>());
        assert!(table.current().batches.len() <= 11);
    }

    #[test]
    fn a_version_stays_as_it_was() {
        let table = table(Vec::new(), &[1, 2, 3]).unwrap();
        let before = table.current();
        let gone = Change::Delete(vec![UInt64Array::from(vec![1, 1])]);
        assert_eq!(table.change(before.number, gone).unwrap(), 1);
        assert_eq!(values(&table), [1, 3]);
        assert_eq!(before.rows, 3);
        assert_eq!(before.batches[0].num_rows(), 3);
    }

    #[test]
    fn a_stale_writer_changes_nothing() {
        let table = table(Vec::new(), &[1]).unwrap();
        let seen = table.current().number;
        table.insert_kept(vec![batch(&[2])]).unwrap();
        table.change(seen, Change::Delete(vec![UInt64Array::from(vec![0])])).unwrap_err();
        assert_eq!(values(&table), [1, 2]);
    }

    #[test]
    fn a_key_holds_each_value_once() {
        table(primary(), &[1, 1]).unwrap_err();
        let table = table(primary(), &[1, 2]).unwrap();
        let error = table.insert_kept(vec![batch(&[3]), batch(&[2])]).unwrap_err();
        assert_eq!(error.to_string(), "primary key a = 2 appears twice; it holds each value once");
        assert_eq!(values(&table), [1, 2]);
        // The failed insert has not taken 3.
        table.insert_kept(vec![batch(&[3])]).unwrap();
        // A deleted key is free again.
        let seen = table.current().number;
        table.change(seen, Change::Delete(vec![UInt64Array::from(vec![0])])).unwrap();
        table.insert_kept(vec![batch(&[1])]).unwrap();
        assert_eq!(values(&table), [2, 3, 1]);
    }

    #[test]
    fn an_update_may_pass_through_taken_keys() {
        let table = table(primary(), &[1, 2, 3]).unwrap();
        let up = |numbers: Vec<u64>, new: Vec<i64>| Change::Update {
            columns: vec![0],
            rows: vec![UInt64Array::from(numbers)],
            values: vec![vec![Arc::new(Int64Array::from(new))]],
        };
        let seen = table.current().number;
        assert_eq!(table.change(seen, up(vec![0, 1, 2], vec![2, 3, 4])).unwrap(), 3);
        assert_eq!(values(&table), [2, 3, 4]);
        table.change(seen + 1, up(vec![0], vec![4])).unwrap_err();
        assert_eq!(values(&table), [2, 3, 4]);
    }
}
