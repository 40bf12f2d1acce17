//! Rows that are reduced on the way to their cells: one kernel, whatever their length, as far as a block keeps them.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Pair, assert_close, count, figure, left, standin};

/// A lane or several for a row, a warp and several, a block; more than it keeps.
const COLUMNS: [usize; 9] = [0, 1, 2, 31, 33, 1000, 4096, 5000, 9000];

/// Longer rows of doubles are not kept.
const COLUMNS_KEPT: usize = 8192;

/// Each with how many units of rounding the device may differ by, and whether it keeps cells from one reduction to the next.
const EXPRESSIONS: [(&str, f64, bool); 9] = [
    ("exp(m - row_maxs(m)) / row_sums(exp(m - row_maxs(m)))", 64.0, true),
    ("row_maxs(m) + log(row_sums(exp(m - row_maxs(m))))", 64.0, true),
    ("m / row_sums(abs(m))", 64.0, true),
    ("(m - row_means(m)) / sqrt(row_sums((m - row_means(m)) ^ 2))", 64.0, true),
    ("row_sums(relu(m * 2 - r))", 64.0, false),
    ("row_means(tanh(m) * v)", 64.0, false),
    ("row_maxs(m + r) - row_mins(m * v)", 0.0, true),
    ("row_maxs(m - v * 2)", 0.0, false),
    ("row_sums(m) * v", 64.0, false),
];

/// Whether the device computed so many expressions at least, all that it was asked for, and nothing of them is left there. One that is
/// not trusted would have computed none.
fn assert_ran(pair: &Pair, before: u64, expressions: usize) {
    assert!(count(&pair.device, "launches") - before >= expressions as u64);
    assert_eq!(figure(&pair.device, "failure"), None);
    assert_eq!(left(&pair.device), 0);
}

/// Rows of noise, of one number, with a few infinities and with a few that are no numbers.
fn matrices(pair: &Pair, columns: usize, element: &str) {
    pair.execute(&format!(
        "CREATE OR REPLACE MATRIX z = randn(1, {columns}, 1);
         CREATE OR REPLACE MATRIX m = CAST(vstack(randn(6, {columns}, 2), 0 * z + 0.25,
             where(z > 1, 1 / zeros(1, 1), z), where(z > 1, zeros(1, 1) / zeros(1, 1), z), -z) AS {element});
         CREATE OR REPLACE MATRIX r = CAST(z AS {element});
         CREATE OR REPLACE MATRIX v = CAST(randn(10, 1, 3) AS {element});"
    ));
}

#[test]
fn rows_of_any_length_are_what_the_host_computes() {
    let Some(pair) = Pair::new() else { return };
    let before = count(&pair.device, "launches");
    for (columns, element) in COLUMNS.iter().flat_map(|&of| [(of, "DOUBLE"), (of, "REAL")]) {
        matrices(&pair, columns, element);
        for order in [0, 3] {
            standin::set("order", order);
            for (expression, units, _) in EXPRESSIONS {
                let name = format!("{expression} of {columns} columns of {element}");
                assert_close(&name, &pair.both(expression), units);
            }
        }
    }
    assert_ran(&pair, before, 2 * 2 * COLUMNS.len() * EXPRESSIONS.len());
}

#[test]
fn rows_that_a_block_keeps_are_one_kernel() {
    let Some(pair) = Pair::new() else { return };
    for columns in [2, 33, 1000, 5000, 9000] {
        matrices(&pair, columns, "DOUBLE");
        for (expression, _, keeps) in EXPRESSIONS {
            let before = count(&pair.device, "launches");
            pair.device.matrix(expression).unwrap();
            let launches = count(&pair.device, "launches") - before;
            let is_one = !keeps || columns <= COLUMNS_KEPT;
            assert_eq!(launches == 1, is_one, "{expression} of {columns} columns: {launches}");
        }
    }
}

/// A row has the same bits again, wherever it stands and however many rows there are.
#[test]
fn sums_of_a_row_depend_on_nothing_else() {
    let Some(pair) = Pair::new() else { return };
    for columns in [3, 1000, 5000] {
        matrices(&pair, columns, "DOUBLE");
        for order in 0..4 {
            standin::set("order", order);
            for text in ["row_sums(exp({}))", "{} / row_sums({} * {})"] {
                let row = |of: &str, row: usize| -> Vec<u64> {
                    let found = pair.device.matrix(&text.replace("{}", of)).unwrap();
                    (0..found.shape().columns).map(|at| found.cell(row, at).to_bits()).collect()
                };
                assert_eq!(row("m", 5), row("m[6:7, :]", 0), "{text} of {columns} columns");
            }
        }
    }
}

/// An expression of the cells of `x` and `y`, the row `r`, the column `v` and reductions of rows; of continuous functions, whose
/// results are near where their operands are.
fn cells(rng: &mut SmallRng, depth: usize) -> String {
    let below = |rng: &mut SmallRng| cells(rng, depth - 1);
    match rng.random_range(0..10) {
        _ if depth == 0 => ["x", "y", "r", "0.75"][rng.random_range(0..4)].to_owned(),
        0..4 => {
            let function = ["tanh", "abs", "relu", "sigmoid"][rng.random_range(0..4)];
            format!("{function}({})", below(rng))
        }
        4..7 => {
            let operator = ["+", "-", "*"][rng.random_range(0..3)];
            format!("({} {operator} {})", below(rng), below(rng))
        }
        _ => format!("({} - {})", below(rng), column(rng, depth - 1)),
    }
}

/// One of numbers of rows.
fn column(rng: &mut SmallRng, depth: usize) -> String {
    let reduction = ["row_sums", "row_means", "row_maxs", "row_mins"][rng.random_range(0..4)];
    match rng.random_range(0..4) {
        _ if depth == 0 => "v".to_owned(),
        0 => format!("sigmoid({} * v)", column(rng, depth - 1)),
        1 => format!("({} + {})", column(rng, depth - 1), column(rng, depth - 1)),
        _ => format!("{reduction}(tanh({}))", cells(rng, depth)),
    }
}

#[test]
fn random_expressions_of_rows_are_what_the_host_computes() {
    let Some(pair) = Pair::new() else { return };
    let before = count(&pair.device, "launches");
    let mut rng = SmallRng::seed_from_u64(1);
    for columns in [1, 33, 1000, 5000] {
        for element in ["DOUBLE", "REAL"] {
            for name in ["x", "y", "r", "v"] {
                let [rows, columns] = match name {
                    "r" => [1, columns],
                    "v" => [7, 1],
                    _ => [7, columns],
                };
                let seed = rng.random_range(0..1000);
                pair.execute(&format!(
                    "CREATE OR REPLACE MATRIX {name} = CAST(randn({rows}, {columns}, {seed}) AS {element})"
                ));
            }
            for of in [cells, column, cells] {
                let expression = of(&mut rng, 4);
                let name = format!("{expression} of {columns} columns of {element}");
                // Of sums of so many terms.
                assert_close(&name, &pair.both(&expression), 256.0 * columns as f64);
            }
        }
    }
    assert_ran(&pair, before, 4 * 2 * 3);
}
