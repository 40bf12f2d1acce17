//! What a device took for a program counts for the next choice.

use super::Pair;
use super::groups::{answer, explained};

/// The seconds that a plan expects of the device, as it says them.
fn expected(plan: &str) -> &str {
    let behind = plan.split_once("by the GPU (GPU ").or_else(|| plan.split_once("on the GPU: "));
    let behind = behind.unwrap_or_else(|| panic!("nothing for the device in\n{plan}")).1;
    behind.split_once(',').unwrap_or_else(|| panic!("{plan}")).0
}

/// A stand-in takes another time than a device of its rates would.
#[test]
fn a_plan_expects_what_the_last_runs_took() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_keep = off").unwrap();
    pair.execute(
        "CREATE TABLE t AS SELECT CAST(i % 7 AS INT) AS k, i * 7919 % 1000 AS v FROM generate_series(1, 300000) AS g(i)",
    );
    let query = "SELECT k, sum(v), max(v + 3) FROM t GROUP BY k";
    let by_rates = explained(&pair.device, query);
    let product = "relu((tall[1:5000, 1:2] @ w[1:2, 1:17]) * 3 - 1)";
    let product_by_rates = pair.explained(product);
    let run = || {
        answer(&pair.device, query);
        pair.device.matrix(product).unwrap();
    };
    // Kernels are compiled in the first run, which tells nothing of others; one run alone is none.
    (0..2).for_each(|_| run());
    assert_eq!(expected(&explained(&pair.device, query)), expected(&by_rates));
    assert_eq!(expected(&pair.explained(product)), expected(&product_by_rates));
    run();
    assert_ne!(expected(&explained(&pair.device, query)), expected(&by_rates));
    assert_ne!(expected(&pair.explained(product)), expected(&product_by_rates));
}
