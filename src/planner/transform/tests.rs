//! Random filters and projections answer with the same bits as DataFusion's own operators.

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int64Array, RecordBatch, StringArray, StringViewArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::ScalarValue;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, IsNotNullExpr, IsNullExpr, Literal, NegativeExpr, NotExpr, in_list, like,
};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::{ExecutionPlanProperties, StatisticsContext, collect, displayable};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::config::{ForRules, Patterns, Settings};
use crate::storage::testing::scan_of;

const DOUBLES: [f64; 11] = [
    0.0,
    -0.0,
    1.0,
    -2.5,
    3e-320,
    f64::MAX,
    f64::MIN_POSITIVE,
    f64::INFINITY,
    f64::NEG_INFINITY,
    -f64::NAN,
    1e-3,
];

/// Some longer than what a view holds, equal in their first bytes.
const TEXTS: [&str; 7] =
    ["", "a", "abcd", "twelve bytes", "thirteen byte", "thirteen long", "thirteen byte\0"];

fn fusion() -> Fusion {
    Fusion { patterns: Patterns::all(), operations_min: 2, depth_max: 64 }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("a", DataType::Float64, true),
        Field::new("b", DataType::Float64, true),
        Field::new("r", DataType::Float32, true),
        Field::new("q", DataType::Float32, true),
        Field::new("i", DataType::Int64, true),
        Field::new("d", DataType::Date32, true),
        Field::new("t", DataType::Boolean, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("v", DataType::Utf8View, true),
        Field::new("j", DataType::Int64, true),
        Field::new("m", DataType::Decimal128(20, 2), true),
        Field::new("n", DataType::Decimal128(20, 2), true),
    ]))
}

/// Which of two `NaN` of different signs an operation hands on is for the compiler to choose. So there are either no
/// `NaN`, or all have the sign of 0 / 0 and none changes it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Special,
    Plain,
}

fn double(rng: &mut SmallRng, kind: Kind) -> f64 {
    match kind == Kind::Special && rng.random_bool(0.4) {
        true => DOUBLES[rng.random_range(0..DOUBLES.len())],
        false => rng.random_range(-2.0..2.0),
    }
}

/// Numbers that need 8, 16, 32, 64 or more bits where a column has all below so many of them.
const WIDE: [i128; 5] = [-3, 300, -70_000, 1 << 40, 1 << 65];

/// Rows in which a number of cells are NULL, or none is.
fn batch(rng: &mut SmallRng, rows: usize, kind: Kind) -> RecordBatch {
    let nulls = if rng.random_bool(0.5) { 0.0 } else { 0.2 };
    let valid = |rng: &mut SmallRng| !rng.random_bool(nulls);
    let wide = [rng.random_range(1..=WIDE.len()), rng.random_range(1..=WIDE.len())];
    let mut wide = wide.into_iter();
    let mut column = |of: &DataType| -> ArrayRef {
        macro_rules! cells {
            ($array:ty, $cell:expr) => {
                Arc::new((0..rows).map(|_| valid(rng).then(|| $cell)).collect::<$array>())
            };
        }
        match of {
            DataType::Float64 => cells!(Float64Array, double(rng, kind)),
            DataType::Float32 => cells!(Float32Array, double(rng, kind) as f32),
            DataType::Int64 => {
                let least = if kind == Kind::Special { -3 } else { 1 };
                cells!(Int64Array, rng.random_range(least..4))
            }
            DataType::Date32 => cells!(Date32Array, rng.random_range(-3..3)),
            DataType::Decimal128(precision, scale) => {
                let below = wide.next().unwrap();
                let numbers: Decimal128Array = (0..rows)
                    .map(|_| valid(rng).then(|| WIDE[rng.random_range(0..below)]))
                    .collect();
                Arc::new(numbers.with_precision_and_scale(*precision, *scale).unwrap())
            }
            DataType::Boolean => cells!(BooleanArray, rng.random_bool(0.5)),
            DataType::Utf8View => cells!(StringViewArray, TEXTS[rng.random_range(0..TEXTS.len())]),
            _ => cells!(StringArray, rng.random_range(0..9).to_string()),
        }
    };
    let columns = schema().fields().iter().map(|field| column(field.data_type())).collect();
    // What a scan hands on may be a part of an array.
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    let skipped = rng.random_range(0..=rows.min(70));
    batch.slice(skipped, rows - skipped)
}

type Expr = Arc<dyn PhysicalExpr>;

fn column(name: &str) -> Expr {
    Arc::new(Column::new(name, schema().index_of(name).unwrap()))
}

fn literal(value: ScalarValue) -> Expr {
    Arc::new(Literal::new(value))
}

fn binary(left: Expr, operator: Operator, right: Expr) -> Expr {
    Arc::new(BinaryExpr::new(left, operator, right))
}

fn number(rng: &mut SmallRng, kind: Kind, is_double: bool, depth: usize) -> Expr {
    let part = |rng: &mut SmallRng| number(rng, kind, is_double, depth - 1);
    if depth == 0 || rng.random_bool(0.2) {
        return match (is_double, rng.random_range(0..4)) {
            (true, 0) => column("a"),
            (true, 1) => column("b"),
            (true, 2) => {
                let from = ["i", "r"][rng.random_range(0..2)];
                Arc::new(CastExpr::new(column(from), DataType::Float64, None))
            }
            (true, _) => literal(ScalarValue::Float64(Some(double(rng, kind)))),
            (false, 0 | 1) => column("r"),
            (false, 2) => column("q"),
            (false, _) => literal(ScalarValue::Float32(Some(double(rng, kind) as f32))),
        };
    }
    let operators = [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide];
    match rng.random_range(0..6) {
        0 if kind == Kind::Plain => Arc::new(NegativeExpr::new(part(rng))),
        _ => binary(part(rng), operators[rng.random_range(0..4)], part(rng)),
    }
}

/// Arithmetic of decimals, none of which leaves its digits.
fn decimal(rng: &mut SmallRng, depth: usize) -> Expr {
    let constant = |rng: &mut SmallRng| {
        literal(ScalarValue::Decimal128(Some(rng.random_range(-300..300)), 5, 1))
    };
    if depth == 0 || rng.random_bool(0.2) {
        return match rng.random_range(0..5) {
            0 => constant(rng),
            1 | 2 => column("m"),
            _ => column("n"),
        };
    }
    match rng.random_range(0..3) {
        0 => binary(decimal(rng, depth - 1), Operator::Multiply, constant(rng)),
        1 => binary(decimal(rng, depth - 1), Operator::Plus, decimal(rng, depth - 1)),
        _ => binary(decimal(rng, depth - 1), Operator::Minus, decimal(rng, depth - 1)),
    }
}

fn condition(rng: &mut SmallRng, kind: Kind, depth: usize) -> Expr {
    let comparisons =
        [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq, Operator::Eq, Operator::NotEq];
    let comparison = comparisons[rng.random_range(0..comparisons.len())];
    if depth > 0 && rng.random_bool(0.7) {
        let part = |rng: &mut SmallRng| condition(rng, kind, depth - 1);
        return match rng.random_range(0..5) {
            0 => Arc::new(NotExpr::new(part(rng))),
            1 | 2 => binary(part(rng), Operator::And, part(rng)),
            _ => binary(part(rng), Operator::Or, part(rng)),
        };
    }
    match rng.random_range(0..15) {
        13 => {
            let number = WIDE[rng.random_range(0..WIDE.len())] + rng.random_range(-1..=1);
            let constant = literal(ScalarValue::Decimal128(Some(number), 20, 2));
            binary(column("m"), comparison, constant)
        }
        14 => binary(column("m"), comparison, column("n")),
        9 => {
            let text = TEXTS[rng.random_range(0..TEXTS.len())].to_owned();
            let equality = [Operator::Eq, Operator::NotEq][rng.random_range(0..2)];
            binary(column("v"), equality, literal(ScalarValue::Utf8View(Some(text))))
        }
        10 => {
            let text = rng.random_range(0..9).to_string();
            binary(literal(ScalarValue::Utf8(Some(text))), Operator::Eq, column("s"))
        }
        11 => binary(column("i"), comparison, column("j")),
        12 => {
            let texts = (0..rng.random_range(1..5)).map(|at| TEXTS[at].to_owned());
            let texts = texts.map(|text| literal(ScalarValue::Utf8View(Some(text)))).collect();
            let is_negated = rng.random_bool(0.5);
            in_list(column("v"), texts, &is_negated, &schema()).unwrap()
        }
        0 => Arc::new(IsNullExpr::new(column("s"))),
        1 => Arc::new(IsNotNullExpr::new(number(rng, kind, true, 1))),
        2 => column("t"),
        3 => {
            let constant = literal(ScalarValue::Int64(Some(rng.random_range(-3..3))));
            binary(column("i"), comparison, constant)
        }
        4 => {
            let constant = literal(ScalarValue::Date32(Some(rng.random_range(-3..3))));
            binary(constant, comparison, column("d"))
        }
        5 | 6 => binary(number(rng, kind, false, 2), comparison, number(rng, kind, false, 2)),
        _ => binary(number(rng, kind, true, 2), comparison, number(rng, kind, true, 2)),
    }
}

fn scan(batches: &[RecordBatch]) -> Arc<dyn ExecutionPlan> {
    MemorySourceConfig::try_new_exec(&[batches.to_vec()], schema(), None).unwrap()
}

fn optimized(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let mut options = ConfigOptions::new();
    let reservable_bytes = 1 << 30;
    options.extensions.insert(ForRules {
        fusion: fusion(),
        reads_pages: false,
        threads: 1,
        orders_joins: true,
        measured_costs: false,
        groups_early: true,
        groups_windows: true,
        reversible_rows: 0,
        shares_plans: true,
        partitions_by_cost: false,
        drops_rows: true,
        spills_groups: true,
        reservable_bytes,
        gpu: Settings::default().gpu_use(),
    });
    TransformFilter.optimize(Arc::clone(plan), &options).unwrap()
}

fn rows(plan: Arc<dyn ExecutionPlan>) -> Vec<RecordBatch> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(collect(plan, Arc::new(TaskContext::default()))).unwrap()
}

/// All rows in one batch, if there are any.
fn whole(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let first = batches.iter().find(|batch| batch.num_rows() > 0);
    first.map(|first| concat_batches(&first.schema(), batches).unwrap()).into_iter().collect()
}

/// The batches are as long, and have the same NULLs and the same bits, those of NaN among them.
fn assert_same_bits(expected: &[RecordBatch], found: &[RecordBatch], what: &str) {
    let lengths = |batches: &[RecordBatch]| -> Vec<usize> {
        batches.iter().map(RecordBatch::num_rows).collect()
    };
    assert_eq!(lengths(expected), lengths(found), "{what}");
    let Some(first) = expected.first() else { return };
    let whole = |batches| concat_batches(&first.schema(), batches).unwrap();
    for (expected, found) in whole(expected).columns().iter().zip(whole(found).columns()) {
        assert_eq!(expected.data_type(), found.data_type(), "{what}");
        // Arrow's floats are equal where their bits are.
        let same = arrow::compute::kernels::cmp::not_distinct(expected, found).unwrap();
        let differs = same.iter().position(|same| same != Some(true));
        if let Some(row) = differs {
            let (expected, found) = (expected.slice(row, 1), found.slice(row, 1));
            panic!("row {row}: {expected:?} became {found:?} in {what}");
        }
    }
}

#[test]
fn random_queries_have_the_bits_that_they_have_as_written() {
    let mut fused = 0;
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let kind = if rng.random_bool(0.5) { Kind::Special } else { Kind::Plain };
        let sizes: &[usize] =
            [&[0][..], &[1], &[1000, 0, 200], &[5000, 8192, 6000, 90]][seed as usize % 4];
        let batches: Vec<_> = sizes.iter().map(|&rows| batch(&mut rng, rows, kind)).collect();
        let filter = FilterExecBuilder::new(condition(&mut rng, kind, 3), scan(&batches))
            .with_fetch(rng.random_bool(0.1).then_some(700))
            .build()
            .unwrap();
        let mut below: Arc<dyn ExecutionPlan> = Arc::new(filter);
        if rng.random_bool(0.2) {
            below = scan(&batches);
        }
        let passed = ["s", "a", "i", "v", "m", "d"];
        let mut projected: Vec<_> = passed.map(|name| (column(name), name)).into();
        projected.extend(["x", "y"].map(|name| (number(&mut rng, kind, true, 4), name)));
        projected.push((number(&mut rng, kind, false, 4), "z"));
        if rng.random_bool(0.5) {
            projected.extend(["exact", "sum"].map(|name| (decimal(&mut rng, 3), name)));
        }
        if rng.random_bool(0.3) {
            let square = binary(column("i"), Operator::Multiply, column("i"));
            let rest = binary(number(&mut rng, kind, true, 3), Operator::Modulo, column("a"));
            projected.extend([(square, "square"), (rest, "rest")]);
        }
        let projected = projected
            .into_iter()
            .map(|(expr, alias)| ProjectionExpr { expr, alias: alias.to_owned() });
        let plan: Arc<dyn ExecutionPlan> =
            Arc::new(ProjectionExec::try_new(projected, below).unwrap());
        let plan = if rng.random_bool(0.2) { Arc::clone(plan.children()[0]) } else { plan };
        let found = optimized(&plan);
        fused += usize::from(!std::ptr::addr_eq(Arc::as_ptr(&found), Arc::as_ptr(&plan)));
        assert_eq!(found.schema(), plan.schema());
        let what = displayable(plan.as_ref()).indent(false).to_string();
        let expected = rows(plan);
        // Where columns are kept in fewer bytes they are decoded for the rows that are left.
        let kept = Arc::clone(&found).transform_up(|node| match node.children().is_empty() {
            true => Ok(Transformed::yes(scan_of(&schema(), &batches))),
            false => Ok(Transformed::no(node)),
        });
        let kept = whole(&rows(kept.unwrap().data));
        assert_same_bits(&whole(&expected), &kept, &format!("seed {seed}, a table: {what}"));
        assert_same_bits(&expected, &rows(found), &format!("seed {seed}: {what}"));
    }
    assert!(fused > 300, "only {fused} of 400 were fused");
}

/// What may be asked of a text, NULL or not.
fn of_text(rng: &mut SmallRng) -> Expr {
    let (name, of): (_, fn(&str) -> ScalarValue) = match rng.random_bool(0.5) {
        true => ("s", |text| ScalarValue::Utf8(Some(text.to_owned()))),
        false => ("v", |text| ScalarValue::Utf8View(Some(text.to_owned()))),
    };
    let text = |rng: &mut SmallRng| literal(of(TEXTS[rng.random_range(0..TEXTS.len())]));
    let pattern = literal(of(["a%", "%e%", "3", "_", "thir%te"][rng.random_range(0..5)]));
    let comparisons = [Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];
    match rng.random_range(0..4) {
        0 => like(rng.random_bool(0.5), false, column(name), pattern, &schema()).unwrap(),
        1 => binary(column(name), comparisons[rng.random_range(0..4)], text(rng)),
        2 => binary(text(rng), comparisons[rng.random_range(0..4)], column(name)),
        _ => {
            let texts = (0..12).map(|_| text(rng)).collect();
            in_list(column(name), texts, &rng.random_bool(0.5), &schema()).unwrap()
        }
    }
}

#[test]
fn texts_that_a_table_keeps_as_codes_are_asked_as_they_are_one_by_one() {
    for seed in 0..60 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let sizes = [2000, 1200];
        let batches: Vec<_> = sizes.map(|rows| batch(&mut rng, rows, Kind::Plain)).to_vec();
        let other = condition(&mut rng, Kind::Plain, 1);
        let both = [Operator::And, Operator::Or][rng.random_range(0..2)];
        let asked = binary(of_text(&mut rng), both, other);
        let filter = |input| Arc::new(FilterExec::try_new(Arc::clone(&asked), input).unwrap());
        let coded = optimized(&(filter(scan_of(&schema(), &batches)) as _));
        assert!(coded.is::<TransformExec>(), "{asked}");
        let expected = rows(filter(scan(&batches)));
        assert_same_bits(&whole(&expected), &whole(&rows(coded)), &format!("seed {seed}: {asked}"));
        let plain = optimized(&(filter(scan(&batches)) as _));
        assert!(!plain.is::<TransformExec>(), "{asked}");
    }
}

#[test]
fn what_several_expressions_share_is_computed_below_them() {
    let mut rng = SmallRng::seed_from_u64(1);
    let difference = binary(column("a"), Operator::Minus, column("b"));
    let named = |expr: Expr, alias: &str| ProjectionExpr { expr, alias: alias.to_owned() };
    let shared = ProjectionExec::try_new(
        [named(difference, "shared"), named(column("s"), "s")],
        scan(&[batch(&mut rng, 3000, Kind::Special)]),
    );
    let shared = Arc::new(shared.unwrap()) as Arc<dyn ExecutionPlan>;
    let read: Expr = Arc::new(Column::new("shared", 0));
    let square = binary(Arc::clone(&read), Operator::Multiply, read);
    let above = [named(square, "square"), named(Arc::new(Column::new("s", 1)), "s")];
    let plan = Arc::new(ProjectionExec::try_new(above, shared).unwrap()) as Arc<dyn ExecutionPlan>;
    let found = optimized(&plan);
    assert!(found.is::<TransformExec>());
    assert!(!found.children()[0].is::<ProjectionExec>());
    assert_same_bits(&rows(plan), &rows(found), "a shared difference");
}

#[test]
fn a_single_operation_is_left_alone() {
    let plan = |predicate: Expr| -> Arc<dyn ExecutionPlan> {
        Arc::new(FilterExec::try_new(predicate, scan(&[])).unwrap())
    };
    let zero = || literal(ScalarValue::Float64(Some(0.0)));
    let positive = || binary(column("a"), Operator::Gt, zero());
    assert!(!optimized(&plan(positive())).is::<TransformExec>());
    let both = binary(positive(), Operator::And, binary(column("b"), Operator::Lt, zero()));
    assert!(optimized(&plan(Arc::clone(&both))).is::<TransformExec>());
    // The order of texts is DataFusion's to know.
    let text = literal(ScalarValue::Utf8(Some("x".to_owned())));
    let mixed = binary(both, Operator::And, binary(column("s"), Operator::Lt, text));
    assert!(!optimized(&plan(mixed)).is::<TransformExec>());
}

#[test]
fn what_is_promised_of_the_rows_stays_promised() {
    let mut rng = SmallRng::seed_from_u64(2);
    let zero = literal(ScalarValue::Int64(Some(0)));
    let predicate = binary(
        binary(column("i"), Operator::Eq, zero),
        Operator::And,
        binary(column("a"), Operator::Eq, column("b")),
    );
    let filter =
        FilterExec::try_new(predicate, scan(&[batch(&mut rng, 100, Kind::Plain)])).unwrap();
    let plan = Arc::new(filter) as Arc<dyn ExecutionPlan>;
    let found = optimized(&plan);
    let statistics = |plan: &Arc<dyn ExecutionPlan>| {
        StatisticsContext::new().compute(plan.as_ref(), &Default::default()).unwrap()
    };
    assert_eq!(statistics(&plan), statistics(&found));
    let constants = |plan: &Arc<dyn ExecutionPlan>| plan.equivalence_properties().constants();
    assert_eq!(constants(&plan).len(), constants(&found).len());
    // And over another input.
    let other = scan(&[batch(&mut rng, 5, Kind::Plain)]);
    let moved = |plan: Arc<dyn ExecutionPlan>| {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        plan.replace_children(vec![Arc::clone(&other)], options).unwrap()
    };
    let (plan, found) = (moved(plan), moved(found));
    assert_eq!(statistics(&plan), statistics(&found));
    assert_same_bits(&rows(plan), &rows(found), "another input");
}
