//! Random aggregations over one to three tables: what a device answers is what the host answers.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::groups::{assert_same, explained, named_tables, table};
use super::{Pair, figure, left};

/// Statements, and how many of them a device has at least: some are the host's, such as sums of doubles with too many digits.
const STATEMENTS: usize = 40;
const BY_DEVICE: usize = 30;

/// Some of the tables, each of which is named by the one before it.
struct Random {
    rng: SmallRng,
    tables: usize,
}

impl Random {
    fn one_of<'a>(&mut self, all: &[(usize, &'a str)]) -> &'a str {
        let known: Vec<&str> =
            all.iter().filter(|(tables, _)| *tables <= self.tables).map(|(_, one)| *one).collect();
        known[self.rng.random_range(0..known.len())]
    }

    /// A whole number.
    fn whole(&mut self, depth: usize) -> String {
        let column = self.one_of(&[
            (1, "CAST(t.a AS BIGINT)"),
            (1, "CAST(t.b AS BIGINT)"),
            (1, "t.c"),
            (2, "CAST(d.w AS BIGINT)"),
            (2, "d.l"),
            (3, "l.w"),
        ]);
        match self.rng.random_range(0..8) {
            _ if depth == 0 => column.to_owned(),
            0 => self.rng.random_range(-40..400).to_string(),
            1 => format!("(7 * {})", self.whole(depth - 1)),
            2 | 3 => format!("({} + {})", self.whole(depth - 1), self.whole(depth - 1)),
            4 => format!("({} - {})", self.whole(depth - 1), self.whole(depth - 1)),
            5 => format!("CASE WHEN {} THEN {} END", self.truth(depth - 1), self.whole(depth - 1)),
            6 => format!("(-{})", self.whole(depth - 1)),
            _ => column.to_owned(),
        }
    }

    fn decimal(&mut self) -> &'static str {
        self.one_of(&[
            (1, "t.p"),
            (1, "t.q"),
            (1, "t.p * t.q"),
            (1, "t.q - 1"),
            (2, "d.p"),
            (2, "t.p * d.p"),
        ])
    }

    fn truth(&mut self, depth: usize) -> String {
        let comparison = ["<", "<=", "=", "<>", ">"][self.rng.random_range(0..5)];
        match self.rng.random_range(0..9) {
            0 if depth > 0 => format!("({} AND {})", self.truth(depth - 1), self.truth(depth - 1)),
            1 if depth > 0 => format!("({} OR {})", self.truth(depth - 1), self.truth(depth - 1)),
            2 if depth > 0 => format!("NOT ({})", self.truth(depth - 1)),
            3 => format!(
                "{} IS NULL",
                self.one_of(&[(1, "t.a"), (1, "t.s"), (2, "d.s"), (2, "d.w")])
            ),
            4 => self
                .one_of(&[
                    (1, "t.n LIKE 'name_'"),
                    (1, "t.s IN ('A', 'C')"),
                    (2, "d.s > 'b'"),
                    (3, "l.n <> 'land2'"),
                ])
                .to_owned(),
            5 => format!("{} {comparison} 40.5", self.decimal()),
            6 => format!("t.x {comparison} {}e0", self.rng.random_range(-90..90)),
            7 => {
                format!("t.e {comparison} {}", self.one_of(&[(1, "DATE '1996-02-03'"), (2, "d.e")]))
            }
            _ => format!("{} {comparison} {}", self.whole(depth), self.whole(depth)),
        }
    }

    fn aggregate(&mut self) -> String {
        match self.rng.random_range(0..8) {
            0 => format!("sum({})", self.decimal()),
            1 => format!("avg({})", self.decimal()),
            2 => format!("min({})", self.whole(1)),
            3 => format!("max({})", self.one_of(&[(1, "t.e"), (1, "t.p"), (2, "d.e"), (3, "l.w")])),
            4 => {
                format!("count({})", self.one_of(&[(1, "t.a"), (1, "t.s"), (2, "d.s"), (2, "d.w")]))
            }
            5 => format!("sum({}) FILTER (WHERE {})", self.whole(1), self.truth(1)),
            6 => format!(
                "round(sum({}), 3)",
                self.one_of(&[(1, "t.x"), (1, "t.x - t.y"), (1, "t.x * CAST(t.a AS DOUBLE)")])
            ),
            _ => format!("sum({})", self.whole(2)),
        }
    }

    fn statement(&mut self) -> String {
        let mut from = String::from("t");
        let joins = [" JOIN d ON t.b = d.k", " JOIN l ON d.l = l.k"];
        from.extend(joins.into_iter().take(self.tables - 1));
        let keys = [
            (1, "t.s"),
            (1, "t.a"),
            (1, "t.n"),
            (1, "t.e"),
            (1, "t.c"),
            (1, "t.b"),
            (1, "extract(month FROM t.e)"),
            (2, "d.s"),
            (2, "d.k"),
            (2, "d.x"),
            (2, "d.e"),
            (3, "l.n"),
            (3, "l.k"),
        ];
        let keys = (0..self.rng.random_range(0..4)).map(|_| self.one_of(&keys).to_owned());
        let mut keys: Vec<String> = keys.collect();
        keys.dedup();
        let aggregates = (0..self.rng.random_range(1..4)).map(|_| self.aggregate());
        let all = [keys.clone(), aggregates.collect()].concat().join(", ");
        let kept =
            if self.rng.random() { format!(" WHERE {}", self.truth(2)) } else { String::new() };
        let keys = keys.join(", ");
        match keys.as_str() {
            "" => format!("SELECT {all} FROM {from}{kept}"),
            keys => format!("SELECT {all} FROM {from}{kept} GROUP BY {keys} ORDER BY {keys}"),
        }
    }
}

#[test]
fn random_aggregations_are_what_the_host_answers() {
    let Some(pair) = Pair::new() else { return };
    table(&pair);
    named_tables(&pair);
    let mut random = Random { rng: SmallRng::seed_from_u64(2), tables: 1 };
    let mut by_device = 0;
    for at in 0..STATEMENTS {
        random.tables = 1 + at % 3;
        let statement = random.statement();
        by_device += usize::from(explained(&pair.device, &statement).contains("by the GPU"));
        assert_same(&pair, &statement);
    }
    assert_eq!((left(&pair.device), figure(&pair.device, "failure")), (0, None));
    assert!(by_device >= BY_DEVICE, "{by_device} of {STATEMENTS}");
}
