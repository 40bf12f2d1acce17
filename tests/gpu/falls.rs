//! What a device has failed at three times is the host's from then on.

use relatrix::{Connection, Database};

use super::groups::{answer, table};
use super::{Pair, assert_close, built, count, left, standin};

const FALLEN: &str = "failed on the GPU three times: ";

fn explained(connection: &Connection, expression: &str) -> String {
    let text = format!("EXPLAIN SELECT * FROM ENTRIES({expression})");
    let rows = connection.query(&text).unwrap().rows::<(String, String)>().unwrap();
    rows.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn what_failed_three_times_is_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    for (expression, fault, why) in [
        ("x @ w + 3", "refuse_product", "cuBLAS fails"),
        ("x * y + 3", "refuse_launch", "the device refuses cuLaunchKernel"),
    ] {
        for _ in 0..3 {
            assert!(pair.explained(expression).contains("on the GPU: "), "{expression}");
            standin::set(fault, 1);
            assert_close(expression, &pair.both(expression), 64.0);
            assert_eq!(standin::get(fault), 0, "{expression}");
        }
        let plan = pair.explained(expression);
        let shown = format!("by the host ({FALLEN}{why}");
        assert!(!plan.contains("on the GPU: ") && plan.contains(&shown), "{plan}");
        let before = ["launches", "products", "failed"].map(|name| count(&pair.device, name));
        assert_close(expression, &pair.both(expression), 64.0);
        let after = ["launches", "products", "failed"].map(|name| count(&pair.device, name));
        assert_eq!(before, after, "{expression}");
    }
    // Others are as they were.
    assert!(pair.explained("x @ w + 4").contains("on the GPU: "));
    // Of whoever wants no failure to be hidden it is tried as ever.
    let insisting = Database::builder().threads(2).set("gpu", "force").unwrap();
    let insisting = insisting.set("gpu_on_failure", "error").unwrap();
    let folder = built::folder().unwrap();
    let insisting = insisting.set("gpu_libraries", folder.to_str().unwrap()).unwrap();
    let insisting = insisting.build().unwrap().connect();
    insisting
        .execute("CREATE MATRIX x = randn(300, 40, 1); CREATE MATRIX w = randn(40, 17, 3)")
        .unwrap();
    assert!(explained(&insisting, "x @ w + 3").contains("on the GPU: "));
    assert!(!pair.explained("x @ w + 3").contains("on the GPU: "));
    // Nobody's who wants none.
    pair.device.execute("SET gpu = 'off'").unwrap();
    assert!(!pair.explained("x @ w + 3").contains(FALLEN));
    // And whoever sets it anew has it tried again.
    pair.device.execute("SET gpu = 'force'").unwrap();
    assert!(pair.explained("x @ w + 3").contains("on the GPU: "));
    assert_eq!(left(&pair.device), 0);
}

/// A matrix of which the host says what is wrong is no failure of the device.
#[test]
fn what_the_host_refuses_too_is_no_fall() {
    let Some(pair) = Pair::new() else { return };
    let singular = "inv(v[1:40, 1:1] @ r) + 3";
    for _ in 0..4 {
        assert!(pair.explained(singular).contains("on the GPU: "));
        assert!(pair.device.matrix(singular).is_err());
    }
}

#[test]
fn an_aggregation_that_failed_three_times_is_the_hosts() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    let statement = "SELECT s, sum(p) - 3, count(*) FROM t GROUP BY s ORDER BY s";
    let plan = |text: &str| answer(&pair.device, &format!("EXPLAIN {text}"));
    // Whether it adds up is found out once, while nothing fails.
    let expected = answer(&pair.host, statement);
    assert_eq!(answer(&pair.device, statement), expected);
    for _ in 0..3 {
        assert!(plan(statement).contains("OffloadedAggregateExec: by the GPU"));
        standin::set("refuse_launch", 1);
        assert_eq!(answer(&pair.device, statement), expected);
        assert_eq!(standin::get("refuse_launch"), 0);
    }
    let shown = plan(statement);
    assert!(shown.contains("OffloadedAggregateExec: by the host"), "{shown}");
    assert!(shown.contains(FALLEN), "{shown}");
    let before = ["launches", "failed"].map(|name| count(&pair.device, name));
    assert_eq!(answer(&pair.device, statement), expected);
    assert_eq!(before, ["launches", "failed"].map(|name| count(&pair.device, name)));
    assert!(plan("SELECT s, sum(p), max(e) FROM t GROUP BY s").contains("by the GPU"));
    pair.try_again();
    assert!(plan(statement).contains("OffloadedAggregateExec: by the GPU"));
}
