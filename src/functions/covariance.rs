//! `corr(y, x)`, `covar_pop`, `covar_samp` and `regr_slope` and its like: all that is made of the sums of pairs of numbers, their
//! squares and their products.
//!
//! The sums are those of distances to a point (x₀, y₀) of each group:
//!
//! ```text
//! u = x - x₀   v = y - y₀      x̄ = x₀ + Σu/n      Σ(x - x̄)·(y - ȳ) = Σuv - Σu·Σv/n
//! ```
//!
//! The point is where the mean was when the pairs became 1, 2, 4, 8, …: that of half of all at least, whose mean is no further from
//! that of all than a standard deviation. So Σu² is at most twice Σ(x - x̄)², and what is subtracted costs no more than a bit, however
//! far from zero the numbers are and whichever comes first. To add a pair takes no division; to add n of which these sums are known
//! about their own mean adds n·u for Σu, and Σ(x - x̄)² + n·u² for Σu².
//!
//! DataFusion's serves DISTINCT and what windows slide over. By group it adds up x² and x·y for `corr`, of which nothing is left where
//! numbers are far from zero, and has an accumulator for each group for all others.
//!
//! Source: Chan, Golub and LeVeque, "Algorithms for computing the sample variance", *The American Statistician* 37 (1983), on shifted
//! data and on parts.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::prep_null_mask_filter;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::correlation::corr_udaf;
use datafusion::functions_aggregate::covariance::{covar_pop_udaf, covar_samp_udaf};
use datafusion::functions_aggregate::regr;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};

/// An aggregate over pairs `(y, x)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct OfPairs {
    /// DataFusion's.
    any: Arc<AggregateUDF>,
    answer: Answer,
}

/// What is asked of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Answer {
    Correlation,
    Covariance,
    SampleCovariance,
    Slope,
    Intercept,
    Determination,
    Count,
    MeanX,
    MeanY,
    SquaresX,
    SquaresY,
    Products,
}

impl OfPairs {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let all = [
            (corr_udaf(), Answer::Correlation),
            (covar_pop_udaf(), Answer::Covariance),
            (covar_samp_udaf(), Answer::SampleCovariance),
            (regr::regr_slope_udaf(), Answer::Slope),
            (regr::regr_intercept_udaf(), Answer::Intercept),
            (regr::regr_r2_udaf(), Answer::Determination),
            (regr::regr_count_udaf(), Answer::Count),
            (regr::regr_avgx_udaf(), Answer::MeanX),
            (regr::regr_avgy_udaf(), Answer::MeanY),
            (regr::regr_sxx_udaf(), Answer::SquaresX),
            (regr::regr_syy_udaf(), Answer::SquaresY),
            (regr::regr_sxy_udaf(), Answer::Products),
        ];
        all.into_iter().map(|(any, answer)| Self { any, answer })
    }
}

impl AggregateUDFImpl for OfPairs {
    super::as_datafusion_does!();

    fn aliases(&self) -> &[String] {
        self.any.aliases()
    }

    fn is_nullable(&self) -> bool {
        self.any.is_nullable()
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        self.any.default_value(data_type)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if args.is_distinct {
            return self.any.state_fields(args);
        }
        let field = |(name, data_type)| {
            Arc::new(Field::new(format_state_name(args.name, name), data_type, true))
        };
        let count = field(("count", DataType::UInt64));
        let numbers = ["mean_x", "mean_y", "xx", "yy", "xy"];
        let numbers = numbers.into_iter().map(|name| field((name, DataType::Float64)));
        Ok(std::iter::once(count).chain(numbers).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return self.any.accumulator(args);
        }
        Ok(Box::new(One { sums: Sums::default(), answer: self.answer }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.any.create_sliding_accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct || self.any.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if args.is_distinct {
            return self.any.create_groups_accumulator(args);
        }
        Ok(Box::new(Groups { sums: Vec::new(), answer: self.answer }))
    }
}

/// What is known of some pairs: how many they are, their means, and the sums of squares and products of the distances to these.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: u64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Moments {
    fn of_one(x: f64, y: f64) -> Self {
        Self { count: 1, mean_x: x, mean_y: y, ..Self::default() }
    }
}

impl Answer {
    /// NULL as DataFusion has it: of too few pairs, and where a constant would divide.
    fn of(self, pairs: &Moments) -> Option<f64> {
        let Moments { count, mean_x, mean_y, xx, yy, xy } = *pairs;
        let n = count as f64;
        let slope = || (count > 1 && xx != 0.0).then(|| xy / xx);
        let if_any = |answer: f64| (count > 0).then_some(answer);
        match self {
            Self::Correlation => match (mean_x.is_nan(), mean_y.is_nan()) {
                (true, true) => Some(f64::NAN),
                (false, false) => {
                    let deviations = (xx * yy).sqrt();
                    (count > 1 && deviations != 0.0).then(|| xy / deviations)
                }
                _ => None,
            },
            Self::Covariance => if_any(xy / n),
            Self::SampleCovariance => (count > 1).then(|| xy / (n - 1.0)),
            Self::Slope => slope(),
            Self::Intercept => slope().map(|slope| mean_y - slope * mean_x),
            Self::Determination => slope().filter(|_| yy != 0.0).map(|slope| slope * xy / yy),
            Self::Count => Some(n),
            Self::MeanX => if_any(mean_x),
            Self::MeanY => if_any(mean_y),
            Self::SquaresX => if_any(xx),
            Self::SquaresY => if_any(yy),
            Self::Products => if_any(xy),
        }
    }
}

/// Sums over pairs, of distances to (x, y); see the header of this file. They fill a line of a processor's cache.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: u64,
    x: f64,
    y: f64,
    u: f64,
    v: f64,
    uu: f64,
    vv: f64,
    uv: f64,
}

impl Sums {
    #[inline]
    fn add(&mut self, pairs: &Moments) {
        // Whether the count gets another binary digit.
        if self.count ^ (self.count + pairs.count) > self.count {
            self.move_to_mean_with(pairs);
        }
        self.put(pairs);
    }

    #[inline]
    fn put(&mut self, pairs: &Moments) {
        let n = pairs.count as f64;
        let (u, v) = (pairs.mean_x - self.x, pairs.mean_y - self.y);
        self.count += pairs.count;
        self.u += n * u;
        self.v += n * v;
        self.uu += pairs.xx + n * u * u;
        self.vv += pairs.yy + n * v * v;
        self.uv += pairs.xy + n * u * v;
    }

    /// Takes the distances to where the mean is with these pairs, which are not among them yet.
    fn move_to_mean_with(&mut self, pairs: &Moments) {
        let own = self.moments();
        let share = pairs.count as f64 / (own.count + pairs.count) as f64;
        let mean = |own: f64, other: f64| {
            let mean = own + (other - own) * share;
            // Infinite numbers have no distance to each other.
            if mean.is_finite() { mean } else { 0.0 }
        };
        let (x, y) = (mean(own.mean_x, pairs.mean_x), mean(own.mean_y, pairs.mean_y));
        *self = Self { x, y, ..Self::default() };
        self.put(&own);
    }

    fn moments(&self) -> Moments {
        if self.count == 0 {
            return Moments::default();
        }
        let n = self.count as f64;
        Moments {
            count: self.count,
            mean_x: self.x + self.u / n,
            mean_y: self.y + self.v / n,
            xx: self.uu - self.u * self.u / n,
            yy: self.vv - self.v * self.v / n,
            xy: self.uv - self.u * self.v / n,
        }
    }
}

/// Which pairs count: all where there is nothing.
fn counted(values: &[ArrayRef], chosen: Option<&BooleanArray>) -> Option<NullBuffer> {
    let valid = NullBuffer::union(values[0].nulls(), values[1].nulls());
    let chosen = chosen.map(|chosen| match chosen.null_count() {
        0 => NullBuffer::new(chosen.values().clone()),
        _ => NullBuffer::new(prep_null_mask_filter(chosen).values().clone()),
    });
    NullBuffer::union(valid.as_ref(), chosen.as_ref()).filter(|valid| valid.null_count() > 0)
}

/// Hands on the pairs that count, with their rows.
fn for_each_pair(
    values: &[ArrayRef],
    chosen: Option<&BooleanArray>,
    mut put: impl FnMut(usize, &Moments),
) {
    let [y, x] = [&values[0], &values[1]].map(|of| of.as_primitive::<Float64Type>().values());
    let mut put = |row: usize| put(row, &Moments::of_one(x[row], y[row]));
    match counted(values, chosen) {
        None => (0..x.len()).for_each(&mut put),
        Some(valid) => valid.valid_indices().for_each(&mut put),
    }
}

/// Hands on what is known of parts, with their rows.
fn for_each_part(states: &[ArrayRef], mut put: impl FnMut(usize, &Moments)) {
    let counts = states[0].as_primitive::<UInt64Type>();
    let numbers = |at: usize| states[at].as_primitive::<Float64Type>();
    let (means, squares) = ([1, 2].map(numbers), [3, 4, 5].map(numbers));
    for (row, &count) in counts.values().iter().enumerate() {
        if count > 0 {
            let [mean_x, mean_y] = means.map(|of| of.value(row));
            let [xx, yy, xy] = squares.map(|of| of.value(row));
            put(row, &Moments { count, mean_x, mean_y, xx, yy, xy });
        }
    }
}

/// The sums of all rows.
#[derive(Debug)]
struct One {
    sums: Sums,
    answer: Answer,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_pair(values, None, |_, pair| self.sums.add(pair));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for_each_part(states, |_, part| self.sums.add(part));
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Moments { count, mean_x, mean_y, xx, yy, xy } = self.sums.moments();
        let numbers = [mean_x, mean_y, xx, yy, xy].map(ScalarValue::from);
        Ok(std::iter::once(ScalarValue::from(count)).chain(numbers).collect())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(match self.answer {
            Answer::Count => ScalarValue::from(self.sums.count),
            answer => ScalarValue::Float64(answer.of(&self.sums.moments())),
        })
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sums of many groups.
#[derive(Debug)]
struct Groups {
    sums: Vec<Sums>,
    answer: Answer,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        chosen: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, Sums::default());
        for_each_pair(values, chosen, |row, pair| self.sums[groups[row]].add(pair));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.sums.resize(count, Sums::default());
        for_each_part(states, |row, part| self.sums[groups[row]].add(part));
        Ok(())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let moments: Vec<Moments> = sums.iter().map(Sums::moments).collect();
        let numbers = |of: fn(&Moments) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(moments.iter().map(of)))
        };
        let counts = UInt64Array::from_iter_values(moments.iter().map(|of| of.count));
        Ok(vec![
            Arc::new(counts),
            numbers(|of| of.mean_x),
            numbers(|of| of.mean_y),
            numbers(|of| of.xx),
            numbers(|of| of.yy),
            numbers(|of| of.xy),
        ])
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        Ok(match self.answer {
            Answer::Count => {
                Arc::new(UInt64Array::from_iter_values(sums.iter().map(|sums| sums.count)))
            }
            answer => {
                let answers = sums.iter().map(|sums| answer.of(&sums.moments()));
                Arc::new(answers.collect::<Float64Array>())
            }
        })
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        chosen: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let counts = match counted(values, chosen) {
            None => vec![1; rows],
            Some(valid) => valid.iter().map(u64::from).collect(),
        };
        let zeros: ArrayRef = Arc::new(Float64Array::from(vec![0.0; rows]));
        let counts: ArrayRef = Arc::new(UInt64Array::from(counts));
        let [y, x] = [&values[0], &values[1]].map(Arc::clone);
        Ok(vec![counts, x, y, Arc::clone(&zeros), Arc::clone(&zeros), zeros])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Sums>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::compute::take as rows;
    use arrow::datatypes::Schema;
    use datafusion::physical_expr::GroupsAccumulatorAdapter;
    use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
    use datafusion::physical_expr::expressions::col;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn call(of: Arc<AggregateUDF>) -> Arc<AggregateFunctionExpr> {
        let fields = ["y", "x"].map(|name| Field::new(name, DataType::Float64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let columns = ["y", "x"].map(|name| col(name, &schema).unwrap());
        let call = AggregateExprBuilder::new(of, columns.to_vec()).schema(schema).alias("a");
        Arc::new(call.build().unwrap())
    }

    /// DataFusion's accumulators of one group, for each group: those of many add up squares as they are.
    fn datafusions(of: &OfPairs) -> Box<dyn GroupsAccumulator> {
        let call = call(Arc::clone(&of.any));
        Box::new(GroupsAccumulatorAdapter::new(move || call.create_accumulator()))
    }

    fn ours(answer: Answer) -> Groups {
        Groups { sums: Vec::new(), answer }
    }

    /// NULL where the other is, and NaN; else the same but for some digits.
    fn assert_alike(found: &ArrayRef, expected: &ArrayRef, tolerance: f64, what: &str) {
        assert_eq!((found.data_type(), found.len()), (expected.data_type(), expected.len()));
        let Some(found) = found.as_primitive_opt::<Float64Type>() else {
            return assert_eq!(found, expected, "{what}");
        };
        for (group, pair) in found.iter().zip(expected.as_primitive::<Float64Type>()).enumerate() {
            match pair {
                (Some(one), Some(other)) if !other.is_nan() => {
                    let distance = (one - other).abs();
                    assert!(
                        distance <= tolerance * (1.0 + other.abs()),
                        "{what}: {group} {pair:?}"
                    );
                }
                (one, other) => {
                    let is_nan = |of: Option<f64>| of.map(f64::is_nan);
                    assert_eq!(is_nan(one), is_nan(other), "{what}: {group} {pair:?}");
                }
            }
        }
    }

    /// Pairs that belong together more or less; with NULLs, and with numbers that are few or no numbers.
    fn pairs(random: &mut SmallRng, rows: usize) -> [ArrayRef; 2] {
        let few = random.random_bool(0.3);
        let nulls = [0.0, 0.2][random.random_range(0..2)];
        let (mut y, mut x) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            let at = if few { 0.1 } else { random.random_range(-9.0..11.0) };
            let number = [at, f64::NAN][usize::from(random.random_bool(0.001))];
            let own: f64 = random.random_range(-3.0..3.0);
            x.push((!random.random_bool(nulls)).then_some(number));
            y.push((!random.random_bool(nulls)).then_some(2.5 - at + own));
        }
        [y, x].map(|of| Arc::new(Float64Array::from(of)) as ArrayRef)
    }

    #[test]
    fn answers_are_those_of_datafusion_in_parts_and_as_a_whole() {
        let random = &mut SmallRng::seed_from_u64(5);
        for (round, of) in (0..8).flat_map(|round| OfPairs::all().map(move |of| (round, of))) {
            let groups = [1, 3, 40, 700][round % 4];
            let (mut own, mut later) = (ours(of.answer), ours(of.answer));
            let mut other = datafusions(&of);
            for batch in 0..5 {
                let count = random.random_range(1..600);
                let values = pairs(random, count);
                let numbers: Vec<usize> =
                    (0..count).map(|_| random.random_range(0..groups)).collect();
                let chosen = random.random_bool(0.5).then(|| {
                    let kinds = [None, Some(false), Some(true), Some(true)];
                    let chosen = (0..count).map(|_| kinds[random.random_range(0..4)]);
                    chosen.collect::<BooleanArray>()
                });
                let chosen = chosen.as_ref();
                match batch {
                    0 | 3 => own.update_batch(&values, &numbers, chosen, groups).unwrap(),
                    1 => later.update_batch(&values, &numbers, chosen, groups).unwrap(),
                    // Rows as parts.
                    _ => {
                        let states = own.convert_to_state(&values, chosen).unwrap();
                        own.merge_batch(&states, &numbers, groups).unwrap();
                    }
                }
                other.update_batch(&values, &numbers, chosen, groups).unwrap();
            }
            assert_eq!(own.size(), own.sums.capacity() * size_of::<Sums>());
            // The groups of the other part in another order.
            let backwards = arrow::array::UInt32Array::from_iter_values((0..groups as u32).rev());
            let states = later.state(EmitTo::All).unwrap();
            let states: Vec<ArrayRef> =
                states.iter().map(|of| rows(of, &backwards, None).unwrap()).collect();
            let numbers: Vec<usize> = (0..groups).rev().collect();
            own.merge_batch(&states, &numbers, groups).unwrap();
            // DataFusion's has no answers of no group.
            let some = (groups > 1).then_some(EmitTo::First(groups / 3));
            for emitted in some.into_iter().chain([EmitTo::All]) {
                let expected = other.evaluate(emitted).unwrap();
                assert_alike(&own.evaluate(emitted).unwrap(), &expected, 1e-9, of.any.name());
            }
        }
    }

    /// All rows as one group, in two parts.
    #[test]
    fn all_rows_have_the_answer_of_one_group() {
        let random = &mut SmallRng::seed_from_u64(6);
        for (rows, of) in
            [0, 1, 2, 300].into_iter().flat_map(|n| OfPairs::all().map(move |of| (n, of)))
        {
            let of_ours =
                call(Arc::new(AggregateUDF::from(OfPairs { any: Arc::clone(&of.any), ..of })));
            let new = || of_ours.create_accumulator().unwrap();
            let (mut one, mut half) = (new(), new());
            let mut other = call(Arc::clone(&of.any)).create_accumulator().unwrap();
            for part in [&mut one, &mut half] {
                let values = pairs(random, rows);
                part.update_batch(&values).unwrap();
                other.update_batch(&values).unwrap();
            }
            let states = half.state().unwrap();
            let states: Vec<ArrayRef> = states.iter().map(|of| of.to_array().unwrap()).collect();
            assert_eq!(states.len(), of_ours.state_fields().unwrap().len());
            one.merge_batch(&states).unwrap();
            let [found, expected] =
                [one, other].map(|mut of| of.evaluate().unwrap().to_array().unwrap());
            assert_alike(&found, &expected, 1e-9, of.any.name());
        }
    }

    /// What does not depend on where zero is has the same digits far from it, in parts too; numbers of eighths are moved exactly.
    #[test]
    fn numbers_far_from_zero_are_related_as_those_near_it() {
        let random = &mut SmallRng::seed_from_u64(7);
        let eighths = |random: &mut SmallRng| f64::from(random.random_range(-80..80)) / 8.0;
        let near: Vec<[f64; 2]> = (0..4000).map(|_| [eighths(random), eighths(random)]).collect();
        let numbers: Vec<usize> = (0..4000).map(|_| random.random_range(0..5)).collect();
        for answer in [Answer::Correlation, Answer::SampleCovariance, Answer::Slope] {
            let answers = [0.0, 1e9, -1e12].map(|by| {
                let column = |at: usize| -> ArrayRef {
                    let moved = near.iter().map(|pair| pair[0] * at as f64 + pair[1] + by);
                    Arc::new(moved.collect::<Float64Array>())
                };
                let values = [column(0), column(1)];
                let (mut one, mut half) = (ours(answer), ours(answer));
                let halves = [(&mut one, 0), (&mut half, 2000)];
                for (part, start) in halves {
                    let values = [&values[0], &values[1]].map(|of| of.slice(start, 2000));
                    part.update_batch(&values, &numbers[start..][..2000], None, 5).unwrap();
                }
                let states = half.state(EmitTo::All).unwrap();
                one.merge_batch(&states, &[0, 1, 2, 3, 4], 5).unwrap();
                one.evaluate(EmitTo::All).unwrap()
            });
            assert_alike(&answers[1], &answers[0], 1e-6, "1e9");
            assert_alike(&answers[2], &answers[0], 1e-4, "-1e12");
        }
    }

    #[test]
    fn a_first_pair_far_from_all_others_costs_no_digits() {
        let far = std::iter::once(1e6);
        let x: Vec<f64> = far.chain((0..9999).map(|at| f64::from(at % 7))).collect();
        let mean = x.iter().sum::<f64>() / 1e4;
        let expected = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 9999.0;
        let column: ArrayRef = Arc::new(Float64Array::from(x));
        // Where the others are added as rows, and where they are merged as a part.
        for parts in [1, 2] {
            let mut own = ours(Answer::SampleCovariance);
            let values = [&column, &column].map(Arc::clone);
            let first = values.each_ref().map(|of| of.slice(0, 1));
            let others = values.each_ref().map(|of| of.slice(1, 9999));
            own.update_batch(&first, &[0], None, 1).unwrap();
            if parts == 1 {
                own.update_batch(&others, &[0; 9999], None, 1).unwrap();
            } else {
                let mut half = ours(Answer::SampleCovariance);
                half.update_batch(&others, &[0; 9999], None, 1).unwrap();
                own.merge_batch(&half.state(EmitTo::All).unwrap(), &[0], 1).unwrap();
            }
            let found = own.evaluate(EmitTo::All).unwrap();
            let found = found.as_primitive::<Float64Type>().value(0);
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        }
    }
}
