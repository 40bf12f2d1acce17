//! Products of two sparse matrices: the cells of the host, to the last bit, wherever a row is made.

use relatrix::matrix::Layout;

use super::{Pair, assert_close, cells, count, figure, left, standin};

/// Rows of no pairs, of few, of some and of more than a block holds: graphs of 400 nodes, of which one has edges to all, and what is long and
/// tall.
const GRAPHS: &str = "CREATE MATRIX thin = sparse(where(rand(400, 400, 31) < 0.01, randn(400, 400, 32), 0));
    CREATE MATRIX thick = sparse(where(rand(400, 400, 33) < 0.1, randn(400, 400, 34), 0));
    CREATE MATRIX star = sparse(where((t(range(1, 401)) = 7) + (range(1, 401) = 9) > 0, randn(400, 400, 35), thin));
    CREATE MATRIX long = sparse(where(rand(400, 9000, 36) < 0.004, randn(400, 9000, 37), 0));
    CREATE MATRIX tall = sparse(where(rand(9000, 400, 38) < 0.004, randn(9000, 400, 39), 0));
    CREATE MATRIX full = sparse(vstack(rand(1, 9000, 40), where(rand(399, 9000, 41) < 0.004, 1, 0)));
    CREATE MATRIX single = sparse(CAST(thin AS REAL)); CREATE MATRIX empty = sparse(zeros(400, 400));
    CREATE MATRIX none = sparse(zeros(0, 400)); CREATE MATRIX whole = sparse(where(rand(400, 400, 42) < 0.01, 1, 0) - where(rand(400, 400, 43) < 0.01, 1, 0));
    CREATE MATRIX bad = sparse(where(rand(400, 400, 44) < 0.001, 1 / zeros(1, 1), thin))";

const PRODUCTS: &[&str] = &[
    "thin @ thin",
    "thin @ thin @ thin",
    "thick @ thin",
    "thin @ thick[1:400, 30:50]",
    "thin[30:60, 1:400] @ thin",
    "star @ thin",
    "thin @ star",
    "long @ tall",
    "full @ tall[1:9000, 1:40]",
    "tall[1:300, 1:400] @ full",
    "single @ single",
    "empty @ thin",
    "none @ thin",
    // Sums of ones and minus ones, many of which are zeros that are not stored.
    "whole @ whole[1:400, 1:200]",
];

fn pair() -> Option<Pair> {
    let pair = Pair::new()?;
    pair.execute("DROP MATRIX long; DROP MATRIX tall; DROP MATRIX none");
    pair.execute(GRAPHS);
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    Some(pair)
}

#[test]
fn products_of_sparse_matrices_have_the_bits_of_the_host() {
    let Some(pair) = pair() else { return };
    let mut by_device = 0;
    for order in 0..4 {
        standin::set("order", order);
        for product in PRODUCTS {
            let both = pair.both(product);
            assert_close(product, &both, 0.0);
            let [device, host] = both.map(|matrix| (matrix.layout(), matrix.cells().stored()));
            assert_eq!(device, host, "{product}");
            by_device += usize::from(pair.explained(product).contains("on the GPU: "));
        }
    }
    // Where the result is expected to fill up it is dense, and the host's.
    assert!(by_device >= 4 * 12, "{by_device}");
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// What reads all cells of a sparse matrix has it brought as it is, and made dense there.
#[test]
fn a_sparse_matrix_is_decomposed_as_a_dense_one() {
    let Some(pair) = pair() else { return };
    pair.execute(
        "CREATE MATRIX chain = sparse(where(abs(range(1, 201) - t(range(1, 201))) = 1, -1, 0) + 4 * eye(200));
         CREATE MATRIX few = sparse(vstack(rand(1, 5000, 46), where(rand(7, 5000, 47) < 0.01, 1, 0)));
         CREATE MATRIX dense = randn(200, 200, 48)",
    );
    let expressions = [
        ("inv(chain)", 64.0),
        ("solve(chain, dense)", 64.0),
        ("solve(dense, chain)", 1e6),
        ("det(CAST(chain AS REAL) / 4)", 64.0),
        ("lu(chain).u", 64.0),
        ("qr(chain).r", 64.0),
        // A row of more cells than some threads go through.
        ("qr(few).r", 64.0),
        ("eigh(chain).values", 64.0),
        ("svd(chain).s", 4096.0),
        ("expm(chain / 4)", 4096.0),
        ("cholesky(chain) + chain @ dense", 4096.0),
        ("inv(chain @ chain)", 4096.0),
    ];
    for (expression, units) in expressions {
        let plan = pair.explained(expression);
        assert!(plan.contains("on the GPU: "), "{expression}: {plan}");
        let brought = count(&pair.device, "uploaded");
        assert_close(expression, &pair.both(expression), units);
        let brought = count(&pair.device, "uploaded") - brought;
        // All cells of the chain are 320,000 bytes.
        let of_chain = expression.contains("chain") && !expression.contains("dense");
        assert!(!of_chain || brought < 100_000, "{expression}: {brought}");
    }
    // Found by products with it.
    let plan = pair.explained("svd(chain, 3).s");
    assert!(plan.find("evaluate svd") < plan.find("on the GPU: "), "{plan}");
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// A product with the host is sparse for those that read it, on the device and elsewhere.
#[test]
fn a_sparse_product_goes_on_as_one() {
    let Some(pair) = pair() else { return };
    for (expression, units) in [
        ("(thin @ thin) @ s[1:200, 1:5]", 64.0),
        ("thin @ thin + thin", 0.0),
        ("t(thin @ thin) @ (thin @ thin)", 64.0),
        ("ITERATE(q => x2, 0.5 * ((thin @ thin) @ q) + 0.1, times => 5)", 4096.0),
        ("row_sums(thin @ thin) * 2", 64.0),
    ] {
        let expression = expression.replace("s[1:200, 1:5]", "x2");
        pair.execute("CREATE OR REPLACE MATRIX x2 = randn(400, 3, 45)");
        assert!(pair.explained(&expression).contains("on the GPU: "), "{expression}");
        assert_close(&expression, &pair.both(&expression), units);
    }
    let [device, host] = pair.both("thin @ thin");
    assert_eq!([device.layout(), host.layout()], [Layout::Csr; 2]);
    assert_eq!(cells(&device), cells(&host));
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// What is not finite meets cells that are not stored, of which the host knows; that is no failure.
#[test]
fn a_sparse_matrix_that_is_not_finite_is_the_hosts() {
    let Some(pair) = pair() else { return };
    for expression in ["bad @ thin", "thin @ bad"] {
        let before = count(&pair.device, "failed");
        assert_close(expression, &pair.both(expression), 0.0);
        let is_for_it = pair.explained(expression).contains("on the GPU: ");
        assert_eq!(count(&pair.device, "failed") - before, u64::from(is_for_it), "{expression}");
    }
    assert_eq!(left(&pair.device), 0);
}

/// Its rows are brought once, and what comes back is as large as what is stored.
#[test]
fn a_graph_stays_for_the_next_product() {
    let Some(pair) = pair() else { return };
    pair.device.execute("SET gpu_keep = off; SET gpu_keep = on").unwrap();
    let brought = || {
        let before = count(&pair.device, "uploaded");
        pair.device.matrix("thin @ thin").unwrap();
        count(&pair.device, "uploaded") - before
    };
    let stored = pair.host.matrix("thin").unwrap().cells().stored() as u64;
    let own = 401 * 8 + stored * 12;
    let (first, second) = (brought(), brought());
    assert_eq!(first - second, own);
}
