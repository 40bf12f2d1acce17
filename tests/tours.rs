//! The tours in `examples/` answer what other tools answer, to 1e-9 relative.
//!
//! Every figure here was computed apart from this engine and by another route, named beside it, with
//! pandas 3.1, NumPy 2.4 and SciPy 1.17 from the same Parquet files. A tour leaves views and matrices
//! behind at full precision; the tests ask those.

use std::fs;

use relatrix::{Connection, Database};

/// Runs a tour from the folder `examples` and hands over what it left.
fn toured(name: &str) -> Connection {
    let connection = Database::memory().unwrap().connect();
    connection.execute(&fs::read_to_string(format!("examples/{name}")).unwrap()).unwrap();
    connection
}

#[track_caller]
fn assert_close(found: f64, expected: f64, what: &str) {
    let error = (found - expected).abs() / expected.abs();
    assert!(error <= 1e-9, "{what}: {found:?}, expected {expected:?}, relative error {error:e}");
}

/// The join by `pandas.merge`, inner, rows with a missing value dropped; coefficients by
/// `numpy.linalg.lstsq`, which decomposes the 325,724 x 7 matrix itself and forms no normal equations;
/// standard errors from the triangle of its QR decomposition; typical effects with `std(ddof=1)`.
#[test]
fn weather_delays_arrivals_as_least_squares_by_svd_says() {
    let connection = toured("flights.sql");

    let expected = [
        ("hour", 1.8196949309716555, 0.01657150429872334, 8.476094303009386),
        ("humid", 0.31974151816009155, 0.004762344344449492, 6.2562699334767355),
        ("wind_speed", 0.6176728241773236, 0.014158239266108824, 3.418664362166642),
        ("visib", -1.4407003337784565, 0.04720417913231219, -2.8498052041914987),
        ("precip", 81.87810547346774, 2.7123484039698766, 2.417765762432869),
        ("temp", 0.07014274200188986, 0.004317186373474367, 1.2552647831887307),
    ];
    let effects: Vec<(String, f64, f64, f64)> = connection
        .query(
            "SELECT term, minutes, error, typical FROM effects WHERE term <> 'intercept'
             ORDER BY abs(typical) DESC",
        )
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(effects.len(), expected.len());
    for (found, expected) in effects.iter().zip(expected) {
        assert_eq!(found.0, expected.0);
        assert_close(found.1, expected.1, expected.0);
        assert_close(found.2, expected.2, expected.0);
        assert_close(found.3, expected.3, expected.0);
    }

    let intercept: Vec<(f64, f64)> = connection
        .query("SELECT minutes, error FROM effects WHERE term = 'intercept'")
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(intercept.len(), 1);
    assert_close(intercept[0].0, -33.74110628925337, "intercept");
    assert_close(intercept[0].1, 0.7247712756179432, "intercept's error");

    let fit: Vec<(f64, f64)> = connection
        .query(
            "SELECT (MATRIX(nrow(x))) AS flights,
                    (MATRIX(1 - sum((y - x @ coefficients) ^ 2) / sum((y - mean(y)) ^ 2))) AS r2",
        )
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(fit[0].0, 325_724.0);
    assert_close(fit[0].1, 0.07327672320078082, "r squared");
}

/// Residuals of the same fit, grouped by `pandas` after a merge with the carriers' names.
#[test]
fn residuals_find_their_carriers() {
    let expected = [
        ("AirTran Airways Corporation", 3162, 13.72011143667121),
        ("Alaska Airlines Inc.", 704, -16.338730144360877),
        ("American Airlines Inc.", 31815, -5.76162372508941),
        ("Delta Air Lines Inc.", 47455, -5.6680539620122845),
        ("Endeavor Air Inc.", 17225, -2.2343187169471777),
        ("Envoy Air", 24935, 3.9314157795341975),
        ("ExpressJet Airlines Inc.", 50855, 9.727983681241462),
        ("Frontier Airlines Inc.", 679, 15.036123642138168),
        ("Hawaiian Airlines Inc.", 339, -8.323617738010046),
        ("JetBlue Airways", 53686, 0.3247157536195161),
        ("Mesa Airlines Inc.", 541, 6.877123767358495),
        ("SkyWest Airlines Inc.", 29, -0.22641325858379088),
        ("Southwest Airlines Co.", 11986, 4.900105728324209),
        ("US Airways Inc.", 19760, -2.67237980238847),
        ("United Air Lines Inc.", 57465, -2.5114173051393864),
        ("Virgin America", 5088, -4.71690365956618),
    ];
    let lateness: Vec<(String, i64, f64)> = toured("flights.sql")
        .query("SELECT name, flights, minutes FROM lateness ORDER BY name")
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(lateness.len(), expected.len());
    for (found, expected) in lateness.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1), (expected.0, expected.1));
        assert_close(found.2, expected.2, expected.0);
    }
}

/// No iteration: `scipy.sparse.linalg.spsolve` of (I - 0.85 m) r = 1, scaled to sum to one, over the same
/// 57,802 nodes. Scaling is what starting anew at nodes without dependencies comes to. Among `depends`
/// no pair occurs twice and no package depends on itself; the ten ranks hold no tie.
#[test]
fn pagerank_is_the_solution_of_its_linear_system() {
    let connection = toured("packages.sql");

    let expected = [
        ("libc6", 0.15461294146641882, 21783),
        ("libgcc-s1", 0.14131320016600224, 6253),
        ("gcc-12-base", 0.06326693241489985, 96),
        ("python3", 0.01525597255139117, 6337),
        ("perl", 0.014513624063889128, 5061),
        ("libstdc++6", 0.008789650514741598, 7436),
        ("perl-base", 0.008134391247401174, 9),
        ("libpython3.11-stdlib", 0.007432417773836684, 5),
        ("python3.11", 0.006596939853080573, 41),
        ("libpython3-stdlib", 0.006489260137044053, 2),
    ];
    let top: Vec<(String, f64, i64)> = connection
        .query(
            "SELECT ranks.package, ranks.rank, count(*)
             FROM ranks JOIN dependencies ON dependencies.depends_on = ranks.package
             GROUP BY ranks.package, ranks.rank ORDER BY ranks.rank DESC LIMIT 10",
        )
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(top.len(), expected.len());
    for (found, expected) in top.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.2), (expected.0, expected.2));
        assert_close(found.1, expected.1, expected.0);
    }

    let whole: Vec<(i64, f64)> =
        connection.query("SELECT count(*), sum(rank) FROM ranks").unwrap().rows().unwrap();
    assert_eq!(whole[0].0, 57_802);
    assert_close(whole[0].1, 1.0, "sum of all ranks");
}

/// The ranks of the test above, merged by `pandas` with the sections; a package listed twice counts once.
#[test]
fn sections_carry_the_ranks_of_their_packages() {
    let expected = [
        ("libs", 6670, 0.5312279005984557),
        ("python", 4531, 0.07494051123472265),
        ("perl", 4203, 0.054336080676863664),
        ("libdevel", 5376, 0.03775506874419772),
        ("devel", 3416, 0.02873589188112936),
        ("javascript", 1596, 0.021122141694176037),
        ("admin", 1433, 0.02041664531396426),
        ("java", 1627, 0.016991877491556454),
    ];
    let sections: Vec<(String, i64, f64)> = toured("packages.sql")
        .query("SELECT section, packages, share FROM sections ORDER BY share DESC LIMIT 8")
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(sections.len(), expected.len());
    for (found, expected) in sections.iter().zip(expected) {
        assert_eq!((found.0.as_str(), found.1), (expected.0, expected.1));
        assert_close(found.2, expected.2, expected.0);
    }
}

/// No singular values: the eigenvalues of the 64 x 64 covariance by `numpy.linalg.eigh`, over their sum.
#[test]
fn explained_variance_is_the_spectrum_of_the_covariance() {
    let expected = [
        0.1489059358406385,
        0.13618771239635447,
        0.11794593763975787,
        0.08409979421009185,
        0.057824146640055266,
        0.04916910317124001,
        0.04315987010825786,
        0.03661372577084055,
        0.03353248097967133,
        0.03078806208904548,
    ];
    let explained: Vec<(i64, f64, f64)> = toured("digits.sql")
        .query("SELECT component, share, total FROM explained ORDER BY component")
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(explained.len(), 64);
    let mut total = 0.0;
    for (found, (index, expected)) in explained.iter().zip((1..).zip(expected)) {
        total += expected;
        assert_eq!(found.0, index);
        assert_close(found.1, expected, &format!("component {index}"));
        assert_close(found.2, total, &format!("components 1 to {index}"));
    }
}

/// Scores along the first two eigenvectors of the covariance, each turned so that it sums to above zero,
/// averaged by digit with NumPy; the nearest neighbour of every image by cosine in double precision.
/// No two of the similarities that decide are closer than 4e-6, so rounding moves no neighbour.
#[test]
fn digits_lie_where_eigenvectors_put_them_and_read_their_neighbours() {
    let connection = toured("digits.sql");

    // Images, place along both components, images whose nearest neighbour is the same digit.
    let expected = [
        (178, 1.9563600824942138, 21.13284071239213, 178),
        (182, 5.428424390215548, -12.691665951384296, 182),
        (177, -9.819712435391176, -6.379495005028537, 177),
        (183, -18.66467291134799, 0.0869048129109221, 182),
        (181, 22.25344599455383, -0.5781754778153062, 181),
        (182, -2.9675103692806046, -0.22527319195594442, 179),
        (181, 16.183258943006276, 11.59535146026974, 180),
        (179, -0.17079400589686458, -15.806926692752196, 178),
        (174, -1.2667252872126613, -4.79462759933117, 168),
        (180, -13.046974829561403, 7.622780777063837, 172),
    ];
    let centres: Vec<(i64, i64, f64, f64)> = connection
        .query("SELECT CAST(digit AS BIGINT), images, first, second FROM centres ORDER BY digit")
        .unwrap()
        .rows()
        .unwrap();
    let readings: Vec<(i64, i64)> = connection
        .query(
            "SELECT CAST(digit AS BIGINT), count(*) FROM readings WHERE digit = reading
             GROUP BY digit ORDER BY digit",
        )
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!((centres.len(), readings.len()), (10, 10));
    for (digit, expected) in (0..).zip(expected) {
        let (centre, reading) = (&centres[digit as usize], &readings[digit as usize]);
        assert_eq!((centre.0, centre.1), (digit, expected.0));
        assert_close(centre.2, expected.1, &format!("first component of {digit}"));
        assert_close(centre.3, expected.2, &format!("second component of {digit}"));
        assert_eq!(*reading, (digit, expected.3));
    }

    let expected = [
        (1, 0, 1.0),
        (878, 0, 0.9807386373853507),
        (465, 0, 0.9744736605756292),
        (1366, 0, 0.9741884555651186),
        (1542, 0, 0.9718313651280307),
        (1168, 0, 0.9711301326365951),
    ];
    let similar: Vec<(i64, i64, f64)> = connection
        .query(
            "SELECT id, CAST(digit AS BIGINT), similarity FROM similar
             ORDER BY similarity DESC LIMIT 6",
        )
        .unwrap()
        .rows()
        .unwrap();
    assert_eq!(similar.len(), expected.len());
    for (found, expected) in similar.iter().zip(expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1));
        assert_close(found.2, expected.2, &format!("similarity of {}", expected.0));
    }
}
