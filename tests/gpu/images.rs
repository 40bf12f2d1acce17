//! Networks of images: convolution and pooling by kernels of their own, norms and softmax by loops and reductions.

use super::{Pair, assert_close, cells, count, figure, left, standin};

/// Images: 5 of 3x12x15 pixels in `p`, the same in single precision in `g`, 3 of one channel of 40x31 in `big`; and filters of 3x3x2 cells,
/// of which there are few and many.
const IMAGES: &str = "CREATE MATRIX p = randn(5, 540, 21); CREATE MATRIX g = CAST(p AS REAL);
    CREATE MATRIX big = randn(3, 1240, 22);
    CREATE MATRIX few = randn(7, 18, 23); CREATE MATRIX many = randn(70, 18, 24);
    CREATE MATRIX nothing = zeros(0, 540); CREATE MATRIX wide = randn(17, 35, 25); CREATE MATRIX one = randn(20, 3, 26);
    CREATE MATRIX bad = where(p > 2, 1 / zeros(1, 1), where(p < -2, (p - p) / (p - p), p))";

/// Convolutions, by how many units of rounding the device may differ.
const CONVOLUTIONS: &[(&str, f64)] = &[
    ("conv2d(p, few, channels => 3, height => 12, kernel_height => 3)", 64.0),
    ("conv2d(p, many, channels => 3, height => 12, kernel_height => 3)", 64.0),
    (
        "conv2d(p, many, channels => 3, height => 12, kernel_height => 3, stride => 2, padding => 1)",
        64.0,
    ),
    ("conv2d(p, few, channels => 3, height => 12, kernel_height => 2, padding => 4)", 64.0),
    ("conv2d(g, CAST(few AS REAL), channels => 3, height => 12, kernel_height => 3)", 64.0),
    (
        "conv2d(g, CAST(many AS REAL), channels => 3, height => 12, kernel_height => 3, stride => 3)",
        64.0,
    ),
    ("conv2d(g, few, channels => 3, height => 12, kernel_height => 3)", 64.0),
    ("conv2d(p, one, channels => 3, height => 12, kernel => 1)", 64.0),
    ("conv2d(p, one[1:2, :], channels => 3, height => 12, kernel => 1, stride => 5)", 64.0),
    ("conv2d(big, wide, height => 40, kernel_height => 5, padding => 2)", 64.0),
    ("conv2d(big, wide[1:16, :], height => 40, kernel_height => 5, stride => 4)", 64.0),
    ("conv2d(big, big[1:1, :], height => 40, kernel_height => 40)", 64.0),
    ("conv2d(nothing, few, channels => 3, height => 12, kernel_height => 3)", 0.0),
    (
        "conv2d(p, few, channels => 3, height => 12, kernel_height => 3, bias => few[:, 1:1]) * 2",
        64.0,
    ),
    ("conv2d(bad, abs(few), channels => 3, height => 12, kernel_height => 3)", 64.0),
];

/// Pooling, which has the bits of the host.
const POOLINGS: &[&str] = &[
    "max_pool2d(p, channels => 3, height => 12, kernel => 2)",
    "avg_pool2d(p, channels => 3, height => 12, kernel => 2, stride => 1)",
    "max_pool2d(p, channels => 3, height => 12, kernel => 3, padding => 1)",
    "avg_pool2d(p, channels => 3, height => 12, kernel_height => 5, kernel_width => 4, stride => 3, padding => 2)",
    "max_pool2d(g, channels => 3, height => 12, kernel => 3, stride => 2)",
    "avg_pool2d(g, channels => 3, height => 12, kernel => 3, stride => 2, padding => 1)",
    "avg_pool2d(big, height => 40, kernel_height => 40, kernel_width => 31)",
    "max_pool2d(big, height => 40, kernel => 1, stride => 3)",
    "max_pool2d(bad, channels => 3, height => 12, kernel => 2)",
    "avg_pool2d(bad, channels => 3, height => 12, kernel => 3, stride => 1, padding => 1)",
    "max_pool2d(nothing, channels => 3, height => 12, kernel => 2)",
];

/// What networks have between products and convolutions.
const BETWEEN: &[(&str, f64)] = &[
    ("softmax(x)", 64.0),
    ("softmax(f)", 64.0),
    ("layer_norm(x, gamma => r, beta => 0.5)", 256.0),
    ("batch_norm(x, mean => col_means(x), var => t(diag(t(x) @ x)) / 300)", 256.0),
    ("batch_norm(x, mean => r, var => abs(r), gamma => r * 2, beta => r - 1, eps => 0.1)", 0.0),
    ("silu(x) + leaky_relu(y) + softplus(x) + relu(y)", 0.0),
];

const NETWORK: &str = "softmax(batch_norm(max_pool2d(relu(conv2d(p, few, channels => 3, height => 12, kernel_height => 3, padding => 1)),
    channels => 7, height => 12, kernel => 2) @ t(w2), mean => m2, var => v2))";

fn pair() -> Option<Pair> {
    let pair = Pair::new()?;
    pair.execute(IMAGES);
    // The convolution makes 12x16 places, of which pooling leaves 6x8.
    pair.execute("CREATE MATRIX w2 = randn(10, 336, 27) / 20; CREATE MATRIX m2 = randn(1, 10, 28); CREATE MATRIX v2 = abs(m2) + 0.5");
    pair.device.execute("SET gpu_on_failure = 'error'").unwrap();
    Some(pair)
}

#[test]
fn windows_show_what_they_show_on_the_host() {
    let Some(pair) = pair() else { return };
    for order in 0..4 {
        standin::set("order", order);
        for (expression, units) in CONVOLUTIONS {
            assert_close(expression, &pair.both(expression), *units);
        }
        for expression in POOLINGS {
            assert_close(expression, &pair.both(expression), 0.0);
        }
    }
    for expression in CONVOLUTIONS.iter().map(|(expression, _)| expression).chain(POOLINGS) {
        assert!(pair.explained(expression).contains("on the GPU: "), "{expression}");
    }
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

#[test]
fn a_network_stays_on_the_device_from_its_images_to_its_classes() {
    let Some(pair) = pair() else { return };
    for (expression, units) in BETWEEN {
        let plan = pair.explained(expression);
        assert_eq!(plan.matches("on the GPU: ").count(), 1, "{plan}");
        assert_close(expression, &pair.both(expression), *units);
    }
    let plan = pair.explained(NETWORK);
    assert_eq!(plan.matches("on the GPU: ").count(), 1, "{plan}");
    let before = count(&pair.device, "downloaded");
    let both = pair.both(NETWORK);
    assert_close(NETWORK, &both, 4096.0);
    let moved = count(&pair.device, "downloaded") - before;
    assert_eq!(moved, 5 * 10 * 8, "only the classes come back");
    assert!(cells(&both[0]).chunks(10).all(|row| (row.iter().sum::<f64>() - 1.0).abs() < 1e-12));
    assert_eq!((figure(&pair.device, "failure"), left(&pair.device)), (None, 0));
}

/// The bits of a result depend on its image and its filter alone: not on who stands beside them in a tile, nor on which tile it is.
#[test]
fn an_image_is_convolved_the_same_beside_others() {
    let Some(pair) = pair() else { return };
    let of = |images: &str, filters: &str| {
        let text =
            format!("conv2d({images}, {filters}, channels => 3, height => 12, kernel_height => 3)");
        cells(&pair.device.matrix(&text).unwrap())
    };
    assert!(
        pair.explained("conv2d(p, many, channels => 3, height => 12, kernel_height => 3)")
            .contains("on the GPU: ")
    );
    let all = of("p", "many");
    let places = all.len() / 5 / 70;
    for image in 0..5 {
        let one = of(&format!("p[{0}:{0}, :]", image + 1), "many[61:67, :]");
        let expected = &all[(image * 70 + 60) * places..][..7 * places];
        assert_eq!(one, expected, "image {image}");
    }
}

/// Whatever products may be computed in, convolutions are computed in the type of their cells.
#[test]
fn convolutions_are_not_less_precise() {
    let Some(pair) = pair() else { return };
    pair.device.execute("SET gpu_precision = 'bf16'").unwrap();
    for (expression, units) in &CONVOLUTIONS[..4] {
        assert!(!pair.explained(expression).contains(", in bf16"), "{expression}");
        assert_close(expression, &pair.both(expression), *units);
    }
}
