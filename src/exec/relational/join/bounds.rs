//! What the keys of a build side tell whoever reads the probe side: rows outside of these bounds, or with other keys, meet
//! nobody.
//!
//! Scans wait for that before they open a file, so a join begins to read its probe side after it has told. One whose build
//! side is in partitions tells once all of them are known, and all of them wait for that; a partition that ends without a
//! word, or whose rows do not fit, lets the others go on with no bounds.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::{Accumulator, Operator};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{
    BinaryExpr, DynamicFilterPhysicalExpr, in_list, is_null, lit,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use tokio::sync::watch;

use super::indexed::Keys;
use super::members::{Members, Numbers};

/// Different values of a key that are told one by one.
const VALUES_MAX: usize = 100;

/// Rows of a build side whose values are counted for that.
const ROWS_MAX: usize = 8192;

/// Tables of keys, one for each partition, that are told: a row is looked for in all of them. An estimate of how many looks take as
/// long as to deal the row out.
const TABLES_MAX: usize = 8;

/// What is known of the keys of some rows.
#[derive(Debug, Default)]
struct Bounds {
    /// By key; none where there is no row, or no bound for values of its type.
    ranges: Vec<Option<(ScalarValue, ScalarValue)>>,
    /// All values of a single key.
    values: Option<Vec<ScalarValue>>,
    /// By key, where there are several and this is known of all rows.
    numbers: Vec<Option<Numbers>>,
    rows: usize,
    has_null: bool,
}

impl Bounds {
    /// Those of some rows, or of all of them.
    fn of(keys: &[ArrayRef], are_all: bool) -> Result<Self> {
        let ranges = keys.iter().map(range).collect::<Result<Vec<_>>>()?;
        let values = match keys {
            [key] => values(key)?,
            _ => None,
        };
        let numbers = match keys {
            [_, _, ..] if are_all => {
                let numbers = |(key, range): (_, &Option<(ScalarValue, ScalarValue)>)| match range {
                    Some((least, largest)) => Numbers::of(key, [least, largest]),
                    None => Ok(None),
                };
                keys.iter().zip(&ranges).map(numbers).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        let rows = keys.first().map_or(0, |key| key.len());
        let has_null = keys.iter().any(|key| key.logical_null_count() > 0);
        Ok(Self { ranges, values, numbers, rows, has_null })
    }

    /// Those of the rows of both.
    fn with(self, other: Self) -> Result<Self> {
        if self.rows == 0 || other.rows == 0 {
            return Ok(if self.rows == 0 { other } else { self });
        }
        let both = self.ranges.into_iter().zip(other.ranges).map(|(one, other)| {
            let (Some(one), Some(other)) = (one, other) else { return Ok(None) };
            range(&ScalarValue::iter_to_array([one.0, one.1, other.0, other.1])?)
        });
        let ranges = both.collect::<Result<_>>()?;
        let (rows, has_null) = (self.rows + other.rows, self.has_null || other.has_null);
        let values = match (self.values, other.values) {
            (Some(one), Some(other)) => {
                values(&ScalarValue::iter_to_array(one.into_iter().chain(other))?)?
            }
            _ => None,
        };
        Ok(Self { ranges, values, numbers: Vec::new(), rows, has_null })
    }
}

/// The least and the largest value, where their type has an order that files have too.
fn range(key: &ArrayRef) -> Result<Option<(ScalarValue, ScalarValue)>> {
    // Not of floating-point numbers: two zeros are equal and one is the lesser.
    let data_type = key.data_type();
    let is_ordered = data_type.is_integer()
        || matches!(data_type, DataType::Date32 | DataType::Timestamp(..) | DataType::Utf8View)
        || data_type.is_decimal();
    if !is_ordered || key.null_count() == key.len() {
        return Ok(None);
    }
    let (mut least, mut largest) =
        (MinAccumulator::try_new(data_type)?, MaxAccumulator::try_new(data_type)?);
    least.update_batch(std::slice::from_ref(key))?;
    largest.update_batch(std::slice::from_ref(key))?;
    Ok(Some((least.evaluate()?, largest.evaluate()?)))
}

/// The different values of a column, where they are few.
fn values(key: &ArrayRef) -> Result<Option<Vec<ScalarValue>>> {
    if key.len() > ROWS_MAX || key.data_type().is_floating() {
        return Ok(None);
    }
    let mut values = Vec::new();
    for row in (0..key.len()).filter(|&row| key.is_valid(row)) {
        let value = ScalarValue::try_from_array(key, row)?;
        if !values.contains(&value) {
            values.push(value);
        }
        if values.len() > VALUES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(values))
}

/// Where a join tells what it knows of the rows that its probe side needs.
#[derive(Debug)]
pub(super) struct Announcement {
    filter: Arc<DynamicFilterPhysicalExpr>,
    probe: Vec<PhysicalExprRef>,
    schema: SchemaRef,
    keeps_nulls: NullEquality,
    is_null_aware: bool,
    /// Partitions of the build side.
    partitions: usize,
    told: Mutex<Told>,
    is_complete: watch::Sender<bool>,
}

#[derive(Debug)]
struct Told {
    /// Partitions of the build side that have not told.
    waiting: usize,
    /// None once a partition does not know.
    bounds: Option<Bounds>,
    /// The keys of each partition that has told them.
    tables: Vec<Arc<Keys>>,
}

impl Told {
    fn nothing(partitions: usize) -> Mutex<Self> {
        let tables = Vec::new();
        Mutex::new(Self { waiting: partitions, bounds: Some(Bounds::default()), tables })
    }
}

impl Announcement {
    /// That of a join whose build side is in so many partitions; none where nobody listens.
    pub(super) fn of(join: &HashJoinExec, partitions: usize) -> Option<Arc<Self>> {
        let filter = join.dynamic_expressions_produced().into_iter().next()?;
        let filter = Arc::downcast(filter as Arc<dyn Any + Send + Sync>).ok()?;
        Some(Arc::new(Self {
            filter,
            probe: join.on().iter().map(|(_, probe)| Arc::clone(probe)).collect(),
            schema: join.right().schema(),
            keeps_nulls: join.null_equality(),
            is_null_aware: join.null_aware,
            partitions,
            told: Told::nothing(partitions),
            is_complete: watch::Sender::new(false),
        }))
    }

    /// Without bounds rows are read that meet nobody, and nothing else is different: an error leaves none. Where all partitions
    /// know their keys, and are not too many, these are told too.
    fn tell(&self, bounds: Option<Bounds>, keys: Option<&Arc<Keys>>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.waiting = told.waiting.saturating_sub(1);
        told.bounds = match (told.bounds.take(), bounds) {
            (Some(of_others), Some(bounds)) => of_others.with(bounds).ok(),
            _ => None,
        };
        told.tables.extend(keys.cloned());
        if told.waiting > 0 {
            return;
        }
        let (bounds, tables) = (told.bounds.take(), std::mem::take(&mut told.tables));
        if let Some(Ok(Some(predicate))) = bounds.map(|bounds| self.predicate(bounds, tables)) {
            let _ = self.filter.update(predicate);
        }
        self.filter.mark_complete();
        self.is_complete.send_replace(true);
    }

    /// What a row of the probe side must be that meets anybody; none where that may be any.
    fn predicate(&self, bounds: Bounds, tables: Vec<Arc<Keys>>) -> Result<Option<PhysicalExprRef>> {
        let mut all: Option<PhysicalExprRef> = None;
        let mut and = |predicate: PhysicalExprRef| {
            all = Some(match all.take() {
                Some(all) => binary(all, Operator::And, predicate),
                None => predicate,
            });
        };
        for (key, range) in self.probe.iter().zip(bounds.ranges) {
            let Some((least, largest)) = range else { continue };
            // Of another type, it would be another order.
            if key.data_type(&self.schema)? == least.data_type() {
                and(binary(Arc::clone(key), Operator::GtEq, lit(least)));
                and(binary(Arc::clone(key), Operator::LtEq, lit(largest)));
            }
        }
        for (key, numbers) in self.probe.iter().zip(bounds.numbers) {
            if let Some(numbers) = numbers
                && Numbers::are_of(&key.data_type(&self.schema)?)
            {
                and(Arc::new(Members::by_number(Arc::clone(key), numbers)));
            }
        }
        let has_values = bounds.values.is_some();
        if let (Some(values), [key]) = (bounds.values, self.probe.as_slice()) {
            let data_type = key.data_type(&self.schema)?;
            if !values.is_empty() && values.iter().all(|value| value.data_type() == data_type) {
                let values = values.into_iter().map(lit).collect();
                and(in_list(Arc::clone(key), values, &false, &self.schema)?);
            }
        }
        let are_all = tables.len() == self.partitions && self.partitions <= TABLES_MAX;
        if are_all && !has_values {
            and(Arc::new(Members::new(self.probe.clone(), tables)));
        }
        let keeps_nulls = self.keeps_nulls == NullEquality::NullEqualsNull && bounds.has_null;
        if keeps_nulls || self.is_null_aware {
            for key in &self.probe {
                let is_null = is_null(Arc::clone(key))?;
                all = all.map(|all| binary(all, Operator::Or, is_null));
            }
        }
        Ok(all)
    }
}

fn binary(left: PhysicalExprRef, operator: Operator, right: PhysicalExprRef) -> PhysicalExprRef {
    Arc::new(BinaryExpr::new(left, operator, right))
}

/// What one partition of a build side has to tell, once.
pub(super) struct Telling {
    announcement: Arc<Announcement>,
    has_told: bool,
}

impl Telling {
    pub(super) fn new(announcement: Arc<Announcement>) -> Self {
        Self { announcement, has_told: false }
    }

    /// Tells the keys of all rows, and waits until all partitions have told.
    pub(super) async fn tell(mut self, keys: &[ArrayRef], table: Option<&Arc<Keys>>) {
        self.has_told = true;
        let are_all = self.announcement.partitions == 1;
        self.announcement.tell(Bounds::of(keys, are_all).ok(), table);
        let mut complete = self.announcement.is_complete.subscribe();
        // It cannot be closed: the announcement has it.
        let _ = complete.wait_for(|is_complete| *is_complete).await;
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if !self.has_told {
            self.announcement.tell(None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
    use arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::expressions::Column;

    use super::*;

    fn announcement(types: &[DataType], partitions: usize) -> Arc<Announcement> {
        let fields =
            types.iter().enumerate().map(|(at, of)| Field::new(format!("k{at}"), of.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let probe: Vec<PhysicalExprRef> = (0..types.len())
            .map(|at| Arc::new(Column::new(schema.field(at).name(), at)) as PhysicalExprRef)
            .collect();
        Arc::new(Announcement {
            filter: Arc::new(DynamicFilterPhysicalExpr::new(probe.clone(), lit(true))),
            probe,
            schema,
            keeps_nulls: NullEquality::NullEqualsNothing,
            is_null_aware: false,
            partitions,
            told: Told::nothing(partitions),
            is_complete: watch::Sender::new(false),
        })
    }

    fn numbers(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    /// What is told once all of these have been: the keys of a partition, or none of one that ends without a word.
    fn told(announcement: &Arc<Announcement>, partitions: &[Option<Vec<ArrayRef>>]) -> String {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let partitions = partitions.iter().cloned().map(|keys| {
                let telling = Telling::new(Arc::clone(announcement));
                async move {
                    match keys {
                        Some(keys) => telling.tell(&keys, None).await,
                        None => drop(telling),
                    }
                }
            });
            futures::future::join_all(partitions.collect::<Vec<_>>()).await;
        });
        assert!(*announcement.is_complete.borrow());
        announcement.filter.current().unwrap().to_string()
    }

    #[test]
    fn bounds_are_those_of_all_partitions() {
        let few = Some(vec![numbers(&[Some(5), None, Some(9), Some(5)])]);
        let more = Some(vec![numbers(&[Some(-1)])]);
        let none = Some(vec![numbers(&[])]);
        let by = announcement(&[DataType::Int64], 3);
        assert_eq!(
            told(&by, &[few.clone(), none, more]),
            "k0@0 >= -1 AND k0@0 <= 9 AND k0@0 IN (SET) ([5, 9, -1])"
        );
        let by = announcement(&[DataType::Int64], 1);
        let many: Vec<_> = (0..500).map(Some).collect();
        assert_eq!(told(&by, &[Some(vec![numbers(&many)])]), "k0@0 >= 0 AND k0@0 <= 499");
        let by = announcement(&[DataType::Int64], 2);
        assert_eq!(told(&by, &[few, None]), "true");
    }

    fn table(by: &Announcement, keys: &ArrayRef) -> Arc<Keys> {
        let rows = RecordBatch::try_from_iter([("k0", Arc::clone(keys))]).unwrap();
        let on = vec![(Arc::clone(&by.probe[0]), Arc::clone(&by.probe[0]))];
        let nulls = NullEquality::NullEqualsNothing;
        Arc::new(Keys::new(&on, nulls, &rows, &by.schema, 1).unwrap())
    }

    /// Which of these rows meet what is told.
    fn met(by: &Announcement, probe: &[Option<i64>]) -> Vec<bool> {
        let rows = RecordBatch::try_from_iter([("k0", numbers(probe))]).unwrap();
        let met = by.filter.current().unwrap().evaluate(&rows).unwrap();
        let met = met.into_array(probe.len()).unwrap();
        met.as_boolean().iter().map(|met| met == Some(true)).collect()
    }

    #[test]
    fn keys_are_told_where_values_are_many_and_all_partitions_know_theirs() {
        let keys =
            |rows: std::ops::Range<i64>| numbers(&rows.map(|at| Some(at * 7)).collect::<Vec<_>>());
        for ends in [&[0, 500][..], &[0, 120, 250, 500]] {
            let by = announcement(&[DataType::Int64], ends.len() - 1);
            for part in ends.windows(2) {
                let keys = keys(part[0]..part[1]);
                by.tell(Bounds::of(&[Arc::clone(&keys)], false).ok(), Some(&table(&by, &keys)));
            }
            let told = by.filter.current().unwrap().to_string();
            assert_eq!(told, "k0@0 >= 0 AND k0@0 <= 3493 AND (k0@0) IN (build side)");
            let probe = [Some(14), Some(15), None, Some(1400), Some(3493), Some(-7)];
            assert_eq!(met(&by, &probe), [true, false, false, true, true, false]);
        }
        // One that has no table, and more than are looked into.
        let bounds = "k0@0 >= 0 AND k0@0 <= 3493";
        let by = announcement(&[DataType::Int64], 2);
        let all = keys(0..500);
        by.tell(Bounds::of(&[Arc::clone(&all)], false).ok(), Some(&table(&by, &all)));
        by.tell(Bounds::of(&[Arc::clone(&all)], false).ok(), None);
        assert_eq!(by.filter.current().unwrap().to_string(), bounds);
        let by = announcement(&[DataType::Int64], TABLES_MAX + 1);
        for _ in 0..=TABLES_MAX {
            by.tell(Bounds::of(&[Arc::clone(&all)], false).ok(), Some(&table(&by, &all)));
        }
        assert_eq!(by.filter.current().unwrap().to_string(), bounds);
    }

    #[test]
    fn of_several_keys_each_tells_which_of_its_numbers_are_there() {
        let by = announcement(&[DataType::Int64, DataType::Int32, DataType::Int64], 1);
        let keys = |step: i64| numbers(&(-200..300).map(|at| Some(at * step)).collect::<Vec<_>>());
        let narrow = arrow::compute::cast(&keys(4), &DataType::Int32).unwrap();
        // Of the first all that are between, of the last too few.
        let bounds = Bounds::of(&[keys(1), narrow, keys(1000)], true).unwrap();
        by.tell(Some(bounds), None);
        let predicate = by.filter.current().unwrap();
        assert!(predicate.to_string().ends_with(" AND (k1@1) IN (build side)"), "{predicate}");
        assert_eq!(predicate.to_string().matches(" IN ").count(), 1);
        let second: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![
            Some(-800),
            Some(-799),
            None,
            Some(1196),
        ]));
        let other = || numbers(&[Some(0), Some(0), Some(0), Some(0)]);
        let probe = [("k0", other()), ("k1", second), ("k2", other())];
        let probe = RecordBatch::try_from_iter(probe).unwrap();
        let met = predicate.evaluate(&probe).unwrap().into_array(4).unwrap();
        let met: Vec<_> = met.as_boolean().iter().map(|met| met == Some(true)).collect();
        assert_eq!(met, [true, false, false, true]);
    }

    #[test]
    fn keys_without_an_order_of_files_have_no_bounds() {
        let reals: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.5]));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "c"]));
        let by = announcement(&[DataType::Float64, DataType::Utf8View], 1);
        assert_eq!(told(&by, &[Some(vec![Arc::clone(&reals), texts])]), "k1@1 >= a AND k1@1 <= c");
        let by = announcement(&[DataType::Float64], 1);
        assert_eq!(told(&by, &[Some(vec![reals])]), "true");
    }

    #[test]
    fn rows_whose_key_is_null_are_read_where_they_count() {
        let mut by = announcement(&[DataType::Int64], 1);
        let keys = || Some(vec![numbers(&[Some(3), None])]);
        let inner = Arc::get_mut(&mut by).unwrap();
        inner.keeps_nulls = NullEquality::NullEqualsNull;
        assert!(told(&by, &[keys()]).ends_with("OR k0@0 IS NULL"));
        let mut by = announcement(&[DataType::Int64], 1);
        Arc::get_mut(&mut by).unwrap().is_null_aware = true;
        assert!(told(&by, &[keys()]).ends_with("OR k0@0 IS NULL"));
    }
}
