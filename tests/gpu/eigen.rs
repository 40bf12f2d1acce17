//! Eigenvalues of matrices that are not symmetric: the library finds them, and the host puts them into its order.

use super::{Pair, assert_close, cells, count, figure, left, standin};

/// A part of what is found, and by how many units of rounding of its largest cell the device may differ: the condition of random matrices.
const PARTS: &[(&str, f64)] = &[
    ("eig(s[1:60, 1:60]).values_re", 1e6),
    ("eig(s[1:60, 1:60]).values_im", 1e6),
    ("eig(s[1:60, 1:60]).vectors_re + 0", 1e7),
    ("eig(s[1:60, 1:60]).vectors_im - 0", 1e7),
    ("eig(s[1:1, 1:1]).values_re + eig(s[1:1, 1:1]).vectors_re", 4.0),
    // Values that are all real.
    ("eig(hstack(vstack(s[1:1, 1:1], 0), vstack(2, 5))).vectors_re", 4096.0),
    ("eig(CAST(s[1:30, 1:30] AS REAL)).values_re", 4096.0),
    ("eig(CAST(s[1:30, 1:30] AS REAL)).vectors_im", 1e6),
    // As by eigh.
    ("eig(t(x) @ x).values_re + eig(t(x) @ x).values_im", 4096.0),
    ("eig(t(x) @ x).vectors_re + eig(t(x) @ x).vectors_im", 1e6),
    ("eig(s * 1e150).values_re / 1e150", 1e7),
];

#[test]
fn eigenvalues_are_those_of_the_host_in_its_order() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    for (expression, units) in PARTS {
        let found = || count(&pair.device, "factorizations");
        let before = found();
        assert_close(expression, &pair.both(expression), *units);
        assert!(found() > before, "{expression}");
    }
    assert_eq!((figure(&pair.device, "failure"), count(&pair.device, "failed")), (None, 0));
    assert_eq!(left(&pair.device), 0);
}

/// By their definition: `a·(u + iv) = (u + iv)·(λ + iμ)`, and what the values have to come to.
#[test]
fn eigenvectors_are_those_of_the_definition() {
    let Some(pair) = Pair::new() else { return };
    let part = |part: &str| pair.device.matrix(&format!("eig(s).{part}")).unwrap();
    let [re, im, u, v] = ["values_re", "values_im", "vectors_re", "vectors_im"].map(part);
    let (n, a) = (200, cells(&pair.host.matrix("s").unwrap()));
    let [re, im, u, v] = [re, im, u, v].map(|matrix| cells(&matrix));
    let trace: f64 = (0..n).map(|at| a[at * n + at]).sum();
    assert!((re.iter().sum::<f64>() - trace).abs() < 1e-10 * n as f64);
    assert!(im.iter().sum::<f64>().abs() < 1e-10 && im.iter().any(|im| *im != 0.0));
    for j in 0..n {
        let times =
            |of: &[f64], i: usize| (0..n).map(|k| a[i * n + k] * of[k * n + j]).sum::<f64>();
        for i in 0..n {
            let (x, y) = (u[i * n + j], v[i * n + j]);
            assert!((times(&u, i) - (x * re[j] - y * im[j])).abs() < 1e-10, "vector {j}");
            assert!((times(&v, i) - (y * re[j] + x * im[j])).abs() < 1e-10, "vector {j}");
        }
        let length: f64 = (0..n).map(|i| u[i * n + j].powi(2) + v[i * n + j].powi(2)).sum();
        assert!((length - 1.0).abs() < 1e-12);
    }
    assert!(re.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn eigenvalues_that_only_the_host_finds_are_no_failure() {
    let Some(pair) = Pair::new() else { return };
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    let expression = "eig(t(odd) @ y).values_re";
    let [device, host] = [&pair.device, &pair.host]
        .map(|connection| connection.matrix(expression).unwrap_err().to_string());
    assert_eq!(device, host);
    assert!(device.contains("finite"), "{device}");
    standin::set("refuse_factorization", 1);
    let error = pair.device.matrix("eig(s[1:60, 1:60]).values_re").unwrap_err().to_string();
    assert!(error.contains("the GPU failed: "), "{error}");
    standin::reset();
    assert_eq!(left(&pair.device), 0);
}
