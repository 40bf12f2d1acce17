//! Kernels under sanitizers: tests that run many of them do so once more, in a process whose kernels end it where they leave a buffer or
//! an array, or compute what C++ does not define.

use std::env;
use std::process::Command;

use super::{built, sanitizer};

/// Loops, reductions, products with sparse matrices, transposes and what decompositions are made of, in four orders; rows that lanes and
/// blocks share; factors of 16 bits; windows over images; pairs of sparse matrices; totals of groups, and of joins; sorts.
const TESTS: [&str; 9] = [
    "a_device_computes_what_the_host_computes",
    "rows::sums_of_a_row_depend_on_nothing_else",
    "only_products_of_dense_matrices_are_less_precise",
    "images::windows_show_what_they_show_on_the_host",
    "sparse::products_of_sparse_matrices_have_the_bits_of_the_host",
    "groups::sums_of_doubles_are_nearer_than_the_hosts",
    "groups::a_device_adds_up_what_the_host_adds_up",
    "groups::rows_of_other_tables_are_found_by_their_keys",
    "sorts::a_device_sorts_as_the_host_does",
];

#[test]
fn kernels_keep_to_their_memory() {
    let (Some(folder), Some(variables)) = (built::folder(), sanitizer::variables()) else { return };
    let output = Command::new(env::current_exe().unwrap())
        .args(TESTS)
        .args(["--exact", "--nocapture", "--test-threads", "1"])
        .env("RELATRIX_STANDIN", folder)
        .envs(variables)
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let is_done = output.status.success() && text[0].contains(&format!("{} passed", TESTS.len()));
    assert!(is_done, "{}", text.concat());
}
