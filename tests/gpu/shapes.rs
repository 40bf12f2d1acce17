//! Blocks of other sizes than ours, as a file has them: the same bits, by other threads.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Pair, assert_close, cells, figure, left, standin};

/// An expression whose last kernel is this one.
const LAST: [(&str, &str); 4] = [
    ("x * y + r", "loop"),
    ("t(x)", "transpose_f64"),
    ("x[3:20, 5:20]", "copy_f64"),
    ("net @ s[1:200, 1:37]", "product_f64"),
];

fn written(name: &str, text: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn threads_that_were_chosen_compute_the_same() {
    let Some(pair) = Pair::new() else { return };
    for (expression, _) in LAST {
        assert_close(expression, &pair.both(expression), 64.0);
        assert_eq!(standin::get("block"), 256, "{expression}");
    }
    let ours = LAST.map(|(expression, _)| cells(&pair.device.matrix(expression).unwrap()));
    for threads in [32, 64, 128, 256, 512, 1024] {
        let lines = LAST.map(|(_, kernel)| format!("{kernel} {threads}\n")).concat();
        let file = written("shapes", &lines);
        let set = format!("SET gpu_launch_shapes = '{}'", file.display());
        pair.device.execute(&set).unwrap();
        for ((expression, _), ours) in LAST.iter().zip(&ours) {
            let found = cells(&pair.device.matrix(expression).unwrap());
            assert_eq!((standin::get("block"), &found), (threads, ours), "{expression}");
        }
        assert_eq!(figure(&pair.device, "launch_shape"), Some(threads.to_string()));
    }
    // Others keep theirs, and all have them again.
    pair.device.matrix("row_sums(x)").unwrap();
    assert_eq!(standin::get("block"), 256);
    pair.device.execute("RESET gpu_launch_shapes").unwrap();
    pair.device.matrix("x * y + r").unwrap();
    assert_eq!(standin::get("block"), 256);
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

#[test]
fn a_file_with_an_error_changes_nothing() {
    let Some(pair) = Pair::new() else { return };
    for (name, line, why) in [
        ("none", "loop 0", "a block has no '0' threads"),
        ("many", "loop 2048", "a block has no '2048' threads"),
        ("odd", "loop 48", "a block has no '48' threads"),
        ("fixed", "run 64", "the threads of 'run' cannot be chosen"),
        ("words", "loop", "'loop' is not a kernel and its threads"),
    ] {
        let file = written(name, &format!("transpose_f64 64\n{line}\n"));
        let set = format!("SET gpu_launch_shapes = '{}'", file.display());
        let error = pair.device.execute(&set).unwrap_err().to_string();
        let expected = format!("{}, line 2: {why}", file.display());
        assert!(error.contains(&expected), "{error}");
    }
    pair.device.matrix("t(x)").unwrap();
    assert_eq!(standin::get("block"), 256);
}
