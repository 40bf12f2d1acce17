//! What is fused is said, and changes no bit.

use relatrix::Connection;

use super::builder;

/// What EXPLAIN says of an expression, on one line.
fn explained(connection: &Connection, expression: &str) -> String {
    let plan = connection.query(&format!("EXPLAIN SELECT * FROM MATRIX({expression})")).unwrap();
    let rows = plan.rows::<(String, String)>().unwrap();
    rows.into_iter().map(|(_, text)| text).collect()
}

/// The bits of a result.
fn bits(connection: &Connection, expression: &str) -> Vec<u64> {
    let matrix = connection.matrix(expression).unwrap();
    let shape = matrix.shape();
    let cell = |at: usize| matrix.cell(at / shape.columns, at % shape.columns).to_bits();
    (0..shape.cells()).map(cell).collect()
}

#[test]
fn a_pattern_that_is_turned_off_is_gone_and_changes_no_bit() {
    let patterns = [
        ("elementwise", "sqrt(abs(x - 0.5)) * 2"),
        ("multiply-add", "relu(x * x + 0.1)"),
        ("norm-activation", "relu((x - col_means(x)) / sqrt(col_maxs(x) + 1e-5) + 0.1)"),
        ("map-reduce", "sum((x - 0.5) ^ 2)"),
        ("row-reduce", "exp(x - row_maxs(x)) / row_sums(exp(x - row_maxs(x)))"),
        ("row-reduce", "x - row_means(abs(x) * 2)"),
        ("map-reduce", "sum(x - row_mins(x))"),
        ("product-add", "x @ w + 1"),
        ("map-reduce", "sum(relu(x @ w + 1) * x[:, 1:4])"),
        ("linear-activation", "relu(x @ w + 1)"),
        ("conv-norm-activation", "relu(conv2d(x, f, channels => 1) / 3)"),
        ("shared-scan", "hstack(sum(x), max(x), col_sums(x))"),
    ];
    let connection = builder().threads(2).build().unwrap().connect();
    connection
        .execute(
            "CREATE MATRIX x = rand(20000, 16, 7); CREATE MATRIX w = rand(16, 4, 8);
             CREATE MATRIX f = rand(2, 9, 9)",
        )
        .unwrap();
    for (pattern, expression) in patterns {
        connection.execute("RESET fusion_patterns").unwrap();
        let fused = format!("fused {pattern} ");
        let plan = explained(&connection, expression);
        assert!(plan.contains(&fused), "{plan}");
        let expected = bits(&connection, expression);
        let others = patterns.map(|(name, _)| name).into_iter().filter(|name| *name != pattern);
        let others = others.collect::<Vec<_>>().join(", ");
        for setting in [
            format!("fusion_patterns = '{others}'"),
            "fusion_patterns = 'none'".into(),
            "fusion_max_depth = 1".into(),
            "fusion_min_operations = 9".into(),
        ] {
            connection.execute(&format!("SET {setting}")).unwrap();
            if setting.starts_with("fusion_patterns") {
                let plan = explained(&connection, expression);
                assert!(!plan.contains(&fused), "{plan}");
            }
            assert!(bits(&connection, expression) == expected, "{expression} with {setting}");
            connection.execute("RESET ALL").unwrap();
        }
    }
}
