//! What is asked of rows as the text of a CUDA kernel, for `kernels/groups.cuh` to run.
//!
//! ```text
//! SELECT a, sum(x * 2) … WHERE y < 7 GROUP BY a
//!
//!     Registers<3, 2, 0, 0, 0> totals;
//!     each_stretch(rows, stretch, blocks, [&](u64 pack, u32 count) {
//!         const Cells<u8> p0(c0, pack);                    of a its codes, of x and y what is above their least values
//!         …
//!         for (u32 k = 0; k < PACK; k++) {
//!             if (k >= count) continue;
//!             const i64 s1 = b2 + (i64)p2[k];
//!             const bool s2 = s1 < k0;
//!             if (!s2) continue;
//!             const u32 group = totals.place((u32)p0[k]);
//!             if (!totals.has(group)) continue;
//!             totals.take(0, group, 1);
//!             totals.take(1, group, (u64)s6);
//! ```
//!
//! A row of another table has a number, `r1`, and its cells are `c3[r1]`; a row that finds none there goes no further. Conditions come as
//! soon as there is what they read, those of the rows alone before any join.
//!
//! A number that may be NULL has a truth beside it, and a truth that may be neither has another one for that it fails. Constants,
//! least values and numbers of groups beyond registers are parameters, and what is equal but for them is one kernel.

mod written;

use std::iter;

use super::column::Width;
use super::term::{Kind, Term, Values};
use super::{Asked, Join, Key, What};
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::selection::Comparison;
use crate::gpu::ARGUMENTS_MAX;

/// The entries of a text: what goes through the rows, what adds the parts of blocks up, and what clears a table for all.
pub(in crate::exec::offload) const ENTRY: &str = "run";
pub(super) const FINISH: &str = "finish_totals";
pub(super) const CLEAR: &str = "clear_totals";
/// What tells the groups that there are.
pub(super) const COUNT: &str = "count_groups_there";
pub(super) const SCAN: &str = "scan_counts_there";
pub(super) const GATHER: &str = "gather_groups_there";

/// Words that a thread has in registers, and a block in shared memory, at most.
pub(crate) const REGISTERS_MAX: usize = 40;
pub(crate) const SHARED_MAX: usize = 4096;

/// Parameters before all others: the place for totals, the number of rows, how long a stretch is and how many blocks it has; of a table
/// for all the first code and how many it has, and of slots their codes, how many there are, whether they are full, and of which part
/// of how many of the codes they are.
const GIVEN: usize = 4;
const GIVEN_OF_RANGE: usize = 2;
const GIVEN_OF_SLOTS: usize = 5;

/// Codes that have a table for all of them, if there are no more than rows.
const CODES_MIN: u64 = 1 << 22;

/// A column as it lies on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec::offload) struct Facts {
    pub(in crate::exec::offload) width: Width,
    pub(in crate::exec::offload) is_nullable: bool,
}

/// What a kernel is given behind the place for its totals and the numbers of rows, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::exec::offload) enum Parameter {
    /// The cells of a column, their bits for what is NULL, the least value.
    Cells(usize),
    Valid(usize),
    Base(usize),
    /// The rows of the table of this join by its keys, and how many places there are.
    Places(usize),
    Numbers(usize),
    /// The codes of the slots of this join, where it has them, and how many numbers a column has.
    Slots(usize),
    Span(usize),
    /// What a look-up has for each value, and the place of what it has for NULL.
    Looked(usize),
    Last(usize),
    /// The codes of a key.
    Codes(usize),
    Whole(i64),
    /// By its bits.
    Double(u64),
}

/// Where totals are while rows are added to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    Registers,
    Shared,
    Global,
    /// As before, by slots of codes.
    Hashed,
}

/// What is added up for a state of an aggregate, by the words of its totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Words {
    /// How many values there are; the first word counts all rows.
    pub(super) count: usize,
    pub(super) value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// The count.
    Count,
    Whole(usize),
    /// The lower 32 bits of all, and what is above them.
    Halves(usize),
    /// A double, and what it lost to rounding.
    Real(usize),
    /// A double in multiples of this power of two: the lower 32 bits of all, the next, and what is above them.
    Units(usize, i32),
}

/// A kernel beside what it is to be given, and what it gives.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) text: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) space: Space,
    /// Of a group.
    pub(super) words: usize,
    pub(super) states: Vec<Words>,
}

/// What was made of a term.
#[derive(Debug, Clone)]
pub(in crate::exec::offload) enum Made {
    /// Without `valid` there is always one.
    Number { value: String, valid: Option<String> },
    /// Without `fails` it fails where it does not hold.
    Truth { holds: String, fails: Option<String> },
}

impl Made {
    pub(in crate::exec::offload) fn value(&self) -> &str {
        match self {
            Self::Number { value, .. } => value,
            Self::Truth { holds, .. } => holds,
        }
    }

    fn fails(&self) -> String {
        match self {
            Self::Truth { holds, fails } => fails.clone().unwrap_or_else(|| format!("!{holds}")),
            Self::Number { .. } => "false".to_owned(),
        }
    }

    /// When there is a number, or a truth is one; nothing where that is always so.
    pub(in crate::exec::offload) fn valid(&self) -> Option<String> {
        match self {
            Self::Number { valid, .. } => valid.clone(),
            Self::Truth { holds, fails } => {
                fails.as_ref().map(|fails| format!("({holds} || {fails})"))
            }
        }
    }
}

/// What becomes of a word, and of which value.
#[derive(Debug, Clone, PartialEq)]
enum Word {
    Rows,
    /// Of the rows for which this holds, as the text has it.
    Valid(String),
    Sum(Term),
    /// Two words each.
    Halves(Term),
    Real(Term),
    /// Three words.
    Units(Term, i32),
    Least(Term),
    Greatest(Term),
    /// Another of several.
    Rest,
}

/// Whether groups of so many codes are in slots, rather than each in the place of its code.
pub(crate) fn is_hashed(asked: &Asked, codes: u64) -> bool {
    codes > CODES_MIN.max(asked.rows as u64)
}

/// Words that are added up for each group of so many codes.
pub(crate) fn words(asked: &Asked, codes: f64) -> usize {
    let facts = asked.columns.iter().zip(&asked.values).map(|(column, values)| Facts {
        width: Width::expected(*values),
        is_nullable: column.nulls() > 0,
    });
    let facts = Vec::from_iter(facts);
    let of = |sums| Text::of(asked, &facts, false, sums).0;
    let rounded = of(Sums::Rounded);
    let few = rounded.words.len();
    match codes * few as f64 > REGISTERS_MAX as f64 && rounded.adds_real() {
        true => of(Sums::Exact).words.len(),
        false => few,
    }
}

/// How doubles are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sums {
    /// As doubles, beside what each sum loses.
    Rounded,
    /// As whole numbers of a unit.
    Exact,
}

/// A text that is being written.
pub(in crate::exec::offload) struct Text<'a> {
    asked: &'a Asked,
    columns: &'a [Facts],
    pub(in crate::exec::offload) parameters: Vec<Parameter>,
    pub(in crate::exec::offload) lines: Vec<String>,
    known: Vec<(Term, Made)>,
    words: Vec<Word>,
    sums: Sums,
}

impl Kernel {
    /// The kernel for what is asked of columns that lie so, with so many codes of groups; why there is none where a device cannot say.
    pub(super) fn new(asked: &Asked, columns: &[Facts], codes: u64) -> Result<Self, &'static str> {
        let is_hashed = is_hashed(asked, codes);
        let groups = codes as usize;
        let space = |words: usize| match groups.saturating_mul(words) {
            _ if is_hashed => Space::Hashed,
            few if few <= REGISTERS_MAX => Space::Registers,
            more if more <= SHARED_MAX => Space::Shared,
            _ => Space::Global,
        };
        let mut made = Text::of(asked, columns, is_hashed, Sums::Rounded);
        if made.0.adds_real() && space(made.0.words.len()) != Space::Registers {
            made = Text::of(asked, columns, is_hashed, Sums::Exact);
            let mut sums = asked.real_sums();
            if sums.any(|of| asked.digits(of).is_none()) {
                return Err("sums of floating-point numbers of too many digits by many groups");
            }
        }
        let (text, states) = made;
        let words = text.words.len();
        let space = space(words);
        if words > u64::BITS as usize {
            return Err("more totals than a word has bits");
        }
        let parameters = text.parameters.clone();
        let given = match space {
            Space::Registers | Space::Shared => GIVEN,
            Space::Global => GIVEN + GIVEN_OF_RANGE,
            Space::Hashed => GIVEN + GIVEN_OF_SLOTS,
        };
        if given + parameters.len() > ARGUMENTS_MAX {
            return Err("more columns and constants than a kernel has parameters");
        }
        Ok(Self { text: text.written(space, groups), parameters, space, words, states })
    }
}

impl<'a> Text<'a> {
    /// What is done for each row before anything becomes of it: it goes on where it is kept, beside those of other tables that it names.
    pub(in crate::exec::offload) fn of_rows(asked: &'a Asked, columns: &'a [Facts]) -> Self {
        let mut text = Text {
            asked,
            columns,
            parameters: Vec::new(),
            lines: Vec::new(),
            known: Vec::new(),
            words: vec![Word::Rows],
            sums: Sums::Rounded,
        };
        // What lies behind the last row is any cell, and nobody is to look anything up by it.
        text.lines.push("if (k >= count) continue;".to_owned());
        text.keep(0);
        for join in 0..asked.joins.len() {
            text.join(join);
            text.keep(join + 1);
        }
        text
    }

    /// What is done for each row, and where the states of aggregates are among the totals.
    fn of(
        asked: &'a Asked,
        columns: &'a [Facts],
        is_hashed: bool,
        sums: Sums,
    ) -> (Self, Vec<Words>) {
        let mut text = Self { sums, ..Self::of_rows(asked, columns) };
        let code = text.code(if is_hashed { "u64" } else { "u32" });
        text.lines.push(format!("const u32 group = totals.place({code});"));
        text.lines.push("if (!totals.has(group)) continue;".to_owned());
        let states = asked.states.iter().map(|state| text.state(state.what, state.of.as_ref()));
        let states: Vec<Words> = states.collect();
        text.takes();
        (text, states)
    }
}

impl Text<'_> {
    /// Whether doubles are added up as such.
    fn adds_real(&self) -> bool {
        self.words.iter().any(|word| matches!(word, Word::Real(_)))
    }

    /// The place of a parameter, which is passed once.
    pub(in crate::exec::offload) fn parameter(&mut self, of: Parameter) -> usize {
        let known = self.parameters.iter().position(|known| *known == of);
        known.unwrap_or_else(|| {
            self.parameters.push(of);
            self.parameters.len() - 1
        })
    }

    /// A line that gives a value a name.
    fn named(&mut self, kind: &str, value: &str) -> String {
        let name = format!("s{}", self.lines.len());
        self.lines.push(format!("const {kind} {name} = {value};"));
        name
    }

    fn truth(&mut self, value: &str) -> String {
        self.named("bool", value)
    }

    /// The truth of all of these; nothing where there are none.
    fn all(&mut self, valid: [Option<String>; 2]) -> Option<String> {
        match valid {
            [Some(x), Some(y)] if x != y => Some(self.truth(&format!("{x} && {y}"))),
            [x, y] => x.or(y),
        }
    }

    pub(in crate::exec::offload) fn made(&mut self, term: &Term) -> Made {
        if let Some((_, made)) = self.known.iter().find(|(known, _)| known == term) {
            return made.clone();
        }
        let made = self.make(term);
        self.known.push((term.clone(), made.clone()));
        made
    }

    fn make(&mut self, term: &Term) -> Made {
        let always = |value: String| Made::Number { value, valid: None };
        match term {
            Term::Column(at) => self.column(*at),
            Term::Whole(value) => always(format!("a{}", self.parameter(Parameter::Whole(*value)))),
            Term::Double(value) => {
                always(format!("a{}", self.parameter(Parameter::Double(value.to_bits()))))
            }
            Term::Truth(holds) => Made::Truth { holds: holds.to_string(), fails: None },
            Term::Null(Kind::Truth) => {
                Made::Truth { holds: "false".into(), fails: Some("false".into()) }
            }
            Term::Null(kind) => {
                Made::Number { value: format!("({kind})0"), valid: Some("false".into()) }
            }
            Term::Looked(at) => {
                let code = self.looked_at(*at);
                let table = self.parameter(Parameter::Looked(*at));
                let found = self.named("u8", &format!("a{table}[{code}]"));
                let holds = self.truth(&format!("{found} == 1"));
                Made::Truth { holds, fails: Some(self.truth(&format!("{found} == 0"))) }
            }
            Term::Arithmetic(function, x, y) => {
                let kind = x.kind(&self.asked.values).unwrap_or(Kind::Double).to_string();
                let (x, y) = (self.made(x), self.made(y));
                let sign = match function {
                    BinaryFunction::Add => '+',
                    BinaryFunction::Subtract => '-',
                    BinaryFunction::Multiply => '*',
                    _ => '/',
                };
                let value = self.named(&kind, &format!("{} {sign} {}", x.value(), y.value()));
                Made::Number { value, valid: self.all([x.valid(), y.valid()]) }
            }
            Term::AsDouble(x) => {
                let x = self.made(x);
                let value = self.named("f64", &format!("(f64){}", x.value()));
                Made::Number { value, valid: x.valid() }
            }
            Term::Compare(comparison, x, y) => {
                let is_double = x.kind(&self.asked.values) == Some(Kind::Double);
                let (x, y) = (self.made(x), self.made(y));
                let [a, b] = [&x, &y].map(|side| match is_double {
                    true => format!("ordered({})", side.value()),
                    false => side.value().to_owned(),
                });
                let sign = match comparison {
                    Comparison::Less => "<",
                    Comparison::Greater => ">",
                    Comparison::Equal => "==",
                };
                let compared = self.truth(&format!("{a} {sign} {b}"));
                match self.all([x.valid(), y.valid()]) {
                    None => Made::Truth { holds: compared, fails: None },
                    Some(valid) => Made::Truth {
                        holds: self.truth(&format!("{valid} && {compared}")),
                        fails: Some(self.truth(&format!("{valid} && !{compared}"))),
                    },
                }
            }
            Term::And(x, y) => self.combined(x, y, ["&&", "||"]),
            Term::Or(x, y) => self.combined(x, y, ["||", "&&"]),
            Term::Not(x) => {
                let x = self.made(x);
                let holds = self.truth(&x.fails());
                let fails = x.valid().map(|_| x.value().to_owned());
                Made::Truth { holds, fails }
            }
            Term::IsNull(x) => {
                let valid = match x.as_ref() {
                    Term::Column(at) => self.valid(*at),
                    other => self.made(other).valid(),
                };
                let holds = valid.map_or("false".to_owned(), |valid| format!("(!{valid})"));
                Made::Truth { holds, fails: None }
            }
            Term::Choose(condition, x, y) => {
                let kind = x.kind(&self.asked.values).unwrap_or(Kind::Double);
                let holds = self.made(condition).value().to_owned();
                let (x, y) = (self.made(x), self.made(y));
                let chosen = |x: &str, y: &str| format!("{holds} ? {x} : {y}");
                let value = self.named(&kind.to_string(), &chosen(x.value(), y.value()));
                let is_known = x.valid().is_none() && y.valid().is_none();
                if kind == Kind::Truth {
                    let fails = chosen(&x.fails(), &y.fails());
                    let fails = (!is_known).then(|| self.truth(&fails));
                    return Made::Truth { holds: value, fails };
                }
                let or_true = |of: Option<String>| of.unwrap_or_else(|| "true".to_owned());
                let valid = chosen(&or_true(x.valid()), &or_true(y.valid()));
                let valid = (!is_known).then(|| self.truth(&valid));
                Made::Number { value, valid }
            }
        }
    }

    /// Two truths by SQL's logic of three values: how those that hold are put together, and those that fail.
    fn combined(&mut self, x: &Term, y: &Term, [hold, fail]: [&str; 2]) -> Made {
        let (x, y) = (self.made(x), self.made(y));
        let holds = self.truth(&format!("{} {hold} {}", x.value(), y.value()));
        let is_known = x.valid().is_none() && y.valid().is_none();
        let fails = format!("{} {fail} {}", x.fails(), y.fails());
        Made::Truth { holds, fails: (!is_known).then(|| self.truth(&fails)) }
    }

    /// Goes on where all conditions hold whose last table is this one.
    fn keep(&mut self, table: usize) {
        let asked = self.asked;
        let own = asked.conditions.iter().filter(|of| asked.table(of) == table);
        if let Some(all) = own.cloned().reduce(Term::and) {
            let holds = self.made(&all).value().to_owned();
            self.lines.push(format!("if (!{holds}) continue;"));
        }
    }

    /// The row of the table that a join goes on with.
    fn join(&mut self, join: usize) {
        let Join { of, key, is_near } = &self.asked.joins[join];
        let table = join + 1;
        let named: Vec<Made> = of.iter().map(|of| self.made(of)).collect();
        let valid: Vec<String> = named.iter().filter_map(Made::valid).collect();
        let places = self.parameter(Parameter::Places(join));
        let numbers = self.parameter(Parameter::Numbers(join));
        let leasts = key.iter().map(|key| self.parameter(Parameter::Base(*key)));
        let leasts: Vec<usize> = leasts.collect();
        let mut known = valid;
        let found = match is_near {
            true => format!("found(a{places}, a{numbers}, a{}, {})", leasts[0], named[0].value()),
            false => {
                let codes = self.parameter(Parameter::Slots(join));
                self.lines.push(format!("u64 e{table} = 0, w{table} = 1;"));
                for ((named, least), key) in named.iter().zip(leasts).zip(key) {
                    let (value, span) = (named.value(), self.parameter(Parameter::Span(*key)));
                    let given = format!("e{table}, w{table}, {value}, a{least}, a{span}");
                    known.push(format!("coded({given})"));
                }
                format!("found_far(a{places}, a{codes}, a{numbers}, e{table})")
            }
        };
        let found = match known.is_empty() {
            true => found,
            false => format!("{} ? {found} : 0", known.join(" && ")),
        };
        self.lines.push(format!("const u32 f{table} = {found};"));
        self.lines.push(format!("if (!f{table}) continue;"));
        self.lines.push(format!("const u32 r{table} = f{table} - 1;"));
    }

    /// When a column has a value; nothing where it always has.
    pub(in crate::exec::offload) fn valid(&mut self, at: usize) -> Option<String> {
        self.parameter(Parameter::Cells(at));
        self.columns[at].is_nullable.then(|| {
            self.parameter(Parameter::Valid(at));
            match self.asked.tables[at] {
                0 => format!("(m{at} >> k & 1)"),
                table => format!("is_valid(n{at}, r{table})"),
            }
        })
    }

    /// The cell of a column in a row.
    pub(in crate::exec::offload) fn cell(&self, at: usize) -> String {
        match self.asked.tables[at] {
            0 => format!("p{at}[k]"),
            table => format!("c{at}[r{table}]"),
        }
    }

    fn column(&mut self, at: usize) -> Made {
        let valid = self.valid(at).map(|valid| self.truth(&valid));
        let cell = self.cell(at);
        let value = match self.asked.values[at] {
            Values::Whole(_) => {
                let base = self.parameter(Parameter::Base(at));
                self.named("i64", &format!("a{base} + (i64){cell}"))
            }
            Values::Double | Values::Single => self.named("f64", &format!("(f64){cell}")),
            // Nobody reads the number of a text but for its code.
            Values::Texts => cell,
        };
        Made::Number { value, valid }
    }

    /// The place in a look-up of a row's value.
    pub(in crate::exec::offload) fn looked_at(&mut self, look_up: usize) -> String {
        let column = self.asked.look_ups[look_up].column;
        let (valid, cell) = (self.valid(column), self.cell(column));
        match valid {
            None => cell,
            Some(valid) => {
                let last = self.parameter(Parameter::Last(look_up));
                format!("{valid} ? (u64){cell} : a{last}")
            }
        }
    }

    /// The code of a row's group in this type: codes of keys, the first of which differs soonest.
    fn code(&mut self, of: &str) -> String {
        let asked = self.asked;
        let mut group = String::from("0");
        for (at, key) in asked.keys.iter().enumerate().rev() {
            let codes = self.parameter(Parameter::Codes(at));
            let code = match key {
                Key::Column(column) => {
                    let (valid, cell) = (self.valid(*column), self.cell(*column));
                    match valid {
                        None => format!("({of}){cell}"),
                        Some(valid) => format!("({valid} ? ({of}){cell} : ({of})a{codes} - 1)"),
                    }
                }
                Key::LookedUp(look_up) => {
                    let (place, table) =
                        (self.looked_at(*look_up), self.parameter(Parameter::Looked(*look_up)));
                    format!("a{table}[{place}]")
                }
                Key::Row(table) => format!("({of})r{table}"),
            };
            group = match group.as_str() {
                "0" => code,
                more => format!("{code} + ({of})a{codes} * ({more})"),
            };
        }
        group
    }

    /// The place of a word, which is added up once.
    fn word(&mut self, word: Word) -> usize {
        if let Some(known) = self.words.iter().position(|known| *known == word) {
            return known;
        }
        let place = self.words.len();
        let others = match word {
            Word::Units(..) => 2,
            Word::Halves(_) | Word::Real(_) => 1,
            _ => 0,
        };
        self.words.push(word);
        self.words.extend(iter::repeat_n(Word::Rest, others));
        place
    }

    fn state(&mut self, what: What, of: Option<&Term>) -> Words {
        let Some(term) = of else { return Words { count: 0, value: Value::Count } };
        let count = match self.made(term).valid() {
            None => 0,
            Some(valid) => self.word(Word::Valid(valid)),
        };
        let whole = match (what, term) {
            // Whole numbers add up without rounding, and are rounded once.
            (What::Sum, Term::AsDouble(whole)) => whole.as_ref(),
            _ => term,
        };
        let value = match what {
            What::Count => Value::Count,
            What::Least => Value::Whole(self.word(Word::Least(term.clone()))),
            What::Greatest => Value::Whole(self.word(Word::Greatest(term.clone()))),
            What::Sum => match whole.bounds(&self.asked.values) {
                Some([least, greatest]) => {
                    let largest = least.unsigned_abs().max(greatest.unsigned_abs());
                    let sum = u128::from(largest) * self.asked.rows as u128;
                    match sum <= i64::MAX as u128 {
                        true => Value::Whole(self.word(Word::Sum(whole.clone()))),
                        false => Value::Halves(self.word(Word::Halves(whole.clone()))),
                    }
                }
                None => match self.sums {
                    Sums::Rounded => Value::Real(self.word(Word::Real(term.clone()))),
                    Sums::Exact => {
                        let unit = self.asked.digits(term).map_or(0, |digits| digits.unit);
                        Value::Units(self.word(Word::Units(term.clone(), unit)), unit)
                    }
                },
            },
        };
        Words { count, value }
    }

    /// Adds what a row has to the totals.
    fn takes(&mut self) {
        for (place, word) in self.words.clone().into_iter().enumerate() {
            let take = |place: usize, value: &str| format!("totals.take({place}, group, {value});");
            let term = match &word {
                Word::Rows => {
                    self.lines.push(take(place, "1"));
                    continue;
                }
                Word::Valid(valid) => {
                    self.lines.push(format!("if ({valid}) {{ {} }}", take(place, "1")));
                    continue;
                }
                Word::Rest => continue,
                Word::Sum(term) | Word::Halves(term) | Word::Real(term) => term,
                Word::Units(term, _) => term,
                Word::Least(term) | Word::Greatest(term) => term,
            };
            let made = self.made(term);
            let value = made.value();
            let line = match word {
                Word::Real(_) => format!("totals.add({place}, group, {value});"),
                Word::Units(_, unit) => {
                    let unit = self.parameter(Parameter::Whole(unit.into()));
                    format!("totals.add({place}, group, units({value}, a{unit}));")
                }
                Word::Halves(_) => {
                    let low = take(place, &format!("(u64){value} & 0xffffffffull"));
                    format!("{low} {}", take(place + 1, &format!("(u64)({value} >> 32)")))
                }
                _ => take(place, &format!("(u64){value}")),
            };
            self.lines.push(match made.valid() {
                None => line,
                Some(valid) => format!("if ({valid}) {{ {line} }}"),
            });
        }
    }
}
