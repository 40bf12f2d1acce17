//! Relatrix as a library: a table, a regression over it, a matrix of the program's own as a parameter.
//!
//! ```text
//! cargo run --release --example library
//! ```

use relatrix::matrix::{Matrix, Shape};
use relatrix::{Database, Parameters};

fn main() -> relatrix::Result<()> {
    let connection = Database::memory()?.connect();
    connection.execute(
        "CREATE TABLE flats (id INT, area DOUBLE, floor DOUBLE, rent DOUBLE) AS VALUES
             (1, 50, 1, 620), (2, 64, 3, 810), (3, 38, 2, 500), (4, 81, 5, 1040), (5, 72, 0, 840);
         CREATE MATRIX x AS SELECT id, 1.0 AS base, area, floor FROM flats ROWS BY id;
         CREATE MATRIX y AS SELECT id, rent FROM flats ROWS BY id;
         CREATE MATRIX w = lstsq(x, y);",
    )?;

    // The result knows what its rows mean, and is a table where a table is wanted.
    let terms = connection.query("SELECT * FROM MATRIX(w) AS w(term, value)")?;
    for (term, value) in terms.rows::<(String, f64)>()? {
        println!("{term:>5} {value:8.2}");
    }

    // Two flats that the program has in memory: as they are, by name.
    let flats = Matrix::from_row_major(Shape::new(2, 3), vec![1.0, 55.0, 2.0, 1.0, 90.0, 4.0])
        .expect("two rows of three cells");
    let rents = connection.query_with(
        "SELECT * FROM MATRIX($flats @ w) AS r(flat, rent)",
        Parameters::new().matrix("flats", flats),
    )?;
    for (flat, rent) in rents.rows::<(i64, f64)>()? {
        println!("flat {flat}: {rent:.0}");
    }
    Ok(())
}
