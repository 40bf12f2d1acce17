//! Which expressions are terms that a device computes with the answers that SQL has.
//!
//! Enters: DataFusion's expressions over the columns of tables. Leaves: terms, the columns that they read, and what is
//! looked up; or nothing where any part of an expression is of another kind, or a number might leave its type.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
    NegativeExpr, NotExpr,
};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;

use super::rows::{Named, Rows};
use crate::exec::kernels::elementwise::BinaryFunction;
use crate::exec::kernels::selection::Comparison;
use crate::exec::offload::groups::{Join, Key, Kind, LOOKED_UP_MAX, LookUp, Term, Values};
use crate::exec::offload::kept;
use crate::storage::{TableColumn, number};

/// Constants of a list that are compared one by one.
const AMONG_MAX: usize = 32;

/// Terms over the columns of tables.
pub(super) struct Terms<'a> {
    rows: &'a Rows<'a>,
    schema: SchemaRef,
    /// The columns that are read, by their places among those of all tables.
    places: Vec<usize>,
    pub(super) columns: Vec<TableColumn>,
    pub(super) values: Vec<Values>,
    /// Of which table each is.
    pub(super) tables: Vec<usize>,
    pub(super) look_ups: Vec<LookUp>,
}

impl<'a> Terms<'a> {
    /// None yet, over the columns of these rows.
    pub(super) fn new(rows: &'a Rows<'a>) -> Self {
        let (places, columns, values) = (Vec::new(), Vec::new(), Vec::new());
        let (tables, look_ups) = (Vec::new(), Vec::new());
        Self { rows, schema: rows.schema(), places, columns, values, tables, look_ups }
    }

    fn data_type(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<DataType> {
        expr.data_type(&self.schema).ok()
    }

    /// An expression as a term that fits.
    pub(super) fn term(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Term> {
        let term = self.part(expr)?;
        term.fits(&self.values).then_some(term)
    }

    /// By what rows are kept; nothing where a part of that is none for devices.
    pub(super) fn conditions(&mut self) -> Option<Vec<Term>> {
        let all = self.rows.conditions.iter().flat_map(split_conjunction);
        let of = |of: &Arc<dyn PhysicalExpr>| {
            let own = (!is_volatile(of)).then(|| self.term(of)).flatten()?;
            (own.kind(&self.values) == Some(Kind::Truth)).then_some(own)
        };
        all.map(of).collect()
    }

    /// The number of a column that is read.
    pub(super) fn column(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let place = expr.downcast_ref::<Column>()?.index();
        if let Some(known) = self.places.iter().position(|known| *known == place) {
            return Some(known);
        }
        let (table, column) = self.rows.column(place)?;
        let values = match column.data_type() {
            DataType::Float64 => Values::Double,
            DataType::Float32 => Values::Single,
            DataType::Utf8 | DataType::Utf8View if !kept::is_unfit(&column) => Values::Texts,
            _ => {
                let [least, greatest] = column.bounds()?;
                Values::Whole([i64::try_from(least).ok()?, i64::try_from(greatest).ok()?])
            }
        };
        self.places.push(place);
        self.columns.push(column);
        self.values.push(values);
        self.tables.push(table);
        Some(self.places.len() - 1)
    }

    /// A join by whole numbers and a key of the same types.
    pub(super) fn join(&mut self, named: &Named) -> Option<Join> {
        let numbers = named.of.iter().zip(&named.key).map(|(of, key)| self.named(of, key));
        let (of, key) = numbers.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        Some(Join { of, key, is_near: named.is_near })
    }

    /// A whole number, and a column of a key that may be equal to it.
    fn named(
        &mut self,
        of: &Arc<dyn PhysicalExpr>,
        key: &Arc<dyn PhysicalExpr>,
    ) -> Option<(Term, usize)> {
        let data_type = self.data_type(key)?;
        let is_one_type = self.data_type(of)? == data_type;
        let of = self.term(of).filter(|of| of.kind(&self.values) == Some(Kind::Whole))?;
        let column = self.column(key_column(key))?;
        let own_type = self.columns[column].data_type();
        // Whole numbers that were made longer are what they were.
        let is_same = *own_type == data_type
            || (own_type.is_integer() && self.within(Term::Column(column), &data_type).is_some());
        (is_one_type && is_same).then_some((of, column))
    }

    /// By what rows are put into groups.
    pub(super) fn key(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Key> {
        if let Some(column) = self.column(expr) {
            let is_key = matches!(self.values[column], Values::Whole(_) | Values::Texts);
            return is_key.then_some(Key::Column(column));
        }
        // Two zeros, and NaN of two kinds, are one key.
        let is_plain = !self.data_type(expr)?.is_floating();
        let look_up = if is_plain { self.look_up(expr) } else { None };
        look_up.map(Key::LookedUp)
    }

    /// What is computed of each value of the only column of an expression.
    pub(super) fn look_up(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        let columns = collect_columns(expr);
        let mut columns = columns.into_iter();
        let (Some(only), None) = (columns.next(), columns.next()) else { return None };
        if is_volatile(expr) {
            return None;
        }
        let field = self.schema.field(only.index()).clone();
        let column = self.column(&(Arc::new(only) as Arc<dyn PhysicalExpr>))?;
        let is_few = match self.values[column] {
            Values::Texts => true,
            Values::Whole([least, greatest]) => greatest.abs_diff(least) < LOOKED_UP_MAX,
            Values::Double | Values::Single => false,
        };
        let alone = Schema::new(vec![field]);
        let of = reassign_expr_columns(Arc::clone(expr), &alone).ok()?;
        is_few.then(|| {
            self.look_ups.push(LookUp { column, of });
            self.look_ups.len() - 1
        })
    }

    fn part(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Term> {
        let [columns, look_ups] = [self.columns.len(), self.look_ups.len()];
        if let Some(term) = self.computed(expr) {
            return Some(term);
        }
        // What was read for the parts of it.
        self.places.truncate(columns);
        self.columns.truncate(columns);
        self.values.truncate(columns);
        self.tables.truncate(columns);
        self.look_ups.truncate(look_ups);
        let is_truth = self.data_type(expr)? == DataType::Boolean;
        let look_up = if is_truth { self.look_up(expr) } else { None };
        look_up.map(Term::Looked)
    }

    /// What is computed of the parts of an expression.
    fn computed(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Term> {
        if expr.is::<Column>() {
            return self.column(expr).map(Term::Column);
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return constant(literal.value());
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(expr, binary);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            return self.cast(cast.expr(), cast.cast_type());
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            let of = self.number(negative.arg())?;
            let data_type = self.data_type(expr)?;
            let negated = match of.kind(&self.values)? {
                Kind::Whole => arithmetic(BinaryFunction::Subtract, Term::Whole(0), of),
                Kind::Double => arithmetic(BinaryFunction::Multiply, of, Term::Double(-1.0)),
                Kind::Truth => return None,
            };
            return self.within(negated, &data_type);
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            if list.list().len() > AMONG_MAX {
                return None;
            }
            let among =
                list.list().iter().map(|one| self.compared(Comparison::Equal, list.expr(), one));
            let among = among.collect::<Option<Vec<_>>>()?.into_iter();
            let found = among.reduce(|all, one| Term::Or(Box::new(all), Box::new(one)))?;
            return Some(if list.negated() { found.negated() } else { found });
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return self.part(not.arg()).map(Term::negated);
        }
        if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
            return self.part(null.arg()).map(|of| Term::IsNull(Box::new(of)));
        }
        if let Some(known) = expr.downcast_ref::<IsNotNullExpr>() {
            return self.part(known.arg()).map(|of| Term::IsNull(Box::new(of)).negated());
        }
        self.case(expr.downcast_ref::<CaseExpr>()?)
    }

    /// The cases from the last to the first, each of which decides where it holds.
    fn case(&mut self, case: &CaseExpr) -> Option<Term> {
        let mut chosen = match case.else_expr() {
            Some(other) => Some(self.part(other)?),
            None => None,
        };
        for (when, then) in case.when_then_expr().iter().rev() {
            let condition = match case.expr() {
                Some(of) => self.compared(Comparison::Equal, of, when)?,
                None => self.part(when)?,
            };
            let then = self.part(then)?;
            let kind = then.kind(&self.values)?;
            let other = chosen.take().unwrap_or(Term::Null(kind));
            chosen = Some(Term::Choose(Box::new(condition), Box::new(then), Box::new(other)));
        }
        chosen
    }

    /// A number, and no truth.
    fn number(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<Term> {
        let term = self.part(expr)?;
        matches!(term.kind(&self.values)?, Kind::Whole | Kind::Double).then_some(term)
    }

    /// A whole number that has room in its type.
    fn within(&self, term: Term, data_type: &DataType) -> Option<Term> {
        if term.kind(&self.values)? != Kind::Whole {
            return (*data_type == DataType::Float64).then_some(term);
        }
        let [least, greatest] = term.bounds(&self.values)?.map(i128::from);
        let [from, to] = room(data_type)?;
        (from <= least && greatest <= to).then_some(term)
    }

    fn binary(&mut self, expr: &Arc<dyn PhysicalExpr>, binary: &BinaryExpr) -> Option<Term> {
        let (left, right) = (binary.left(), binary.right());
        let mut both = |of: fn(Box<Term>, Box<Term>) -> Term| {
            Some(of(Box::new(self.part(left)?), Box::new(self.part(right)?)))
        };
        match binary.op() {
            Operator::And => both(Term::And),
            Operator::Or => both(Term::Or),
            Operator::Eq => self.compared(Comparison::Equal, left, right),
            Operator::NotEq => self.compared(Comparison::Equal, left, right).map(Term::negated),
            Operator::Lt => self.compared(Comparison::Less, left, right),
            Operator::GtEq => self.compared(Comparison::Less, left, right).map(Term::negated),
            Operator::Gt => self.compared(Comparison::Greater, left, right),
            Operator::LtEq => self.compared(Comparison::Greater, left, right).map(Term::negated),
            Operator::Plus => self.arithmetic(BinaryFunction::Add, expr, left, right),
            Operator::Minus => self.arithmetic(BinaryFunction::Subtract, expr, left, right),
            Operator::Multiply => self.arithmetic(BinaryFunction::Multiply, expr, left, right),
            Operator::Divide if self.data_type(expr)? == DataType::Float64 => {
                self.arithmetic(BinaryFunction::Divide, expr, left, right)
            }
            _ => None,
        }
    }

    /// Two numbers of one type.
    fn compared(
        &mut self,
        comparison: Comparison,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<Term> {
        let types = self.data_type(left)?.eq(&self.data_type(right)?);
        let (left, right) = (self.number(left)?, self.number(right)?);
        let is_one = types && [&left, &right].iter().all(|side| has_order(side, &self.values));
        is_one.then(|| Term::Compare(comparison, Box::new(left), Box::new(right)))
    }

    fn arithmetic(
        &mut self,
        function: BinaryFunction,
        expr: &Arc<dyn PhysicalExpr>,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<Term> {
        let of = self.data_type(expr)?;
        let (a, b) = (self.data_type(left)?, self.data_type(right)?);
        let (left, right) = (self.number(left)?, self.number(right)?);
        let term = match (&of, &a, &b) {
            (DataType::Float64, DataType::Float64, DataType::Float64) => {
                arithmetic(function, left, right)
            }
            (
                DataType::Decimal128(_, of),
                DataType::Decimal128(_, a),
                DataType::Decimal128(_, b),
            ) => match function {
                BinaryFunction::Multiply if *of == a + b => arithmetic(function, left, right),
                BinaryFunction::Multiply => return None,
                _ => arithmetic(function, scaled(left, of - a)?, scaled(right, of - b)?),
            },
            (of, a, b) if of.is_integer() && of == a && of == b => {
                arithmetic(function, left, right)
            }
            _ => return None,
        };
        self.within(term, &of)
    }

    /// A number as one of another type, where none has to be rounded.
    fn cast(&mut self, of: &Arc<dyn PhysicalExpr>, to: &DataType) -> Option<Term> {
        let from = self.data_type(of)?;
        let term = self.number(of)?;
        let cast = match (&from, to) {
            (from, to) if from == to => term,
            (from, to) if from.is_integer() && to.is_integer() => term,
            (from, DataType::Decimal128(_, scale)) if from.is_integer() => scaled(term, *scale)?,
            (DataType::Decimal128(_, before), DataType::Decimal128(_, scale)) => {
                scaled(term, scale - before)?
            }
            (from, DataType::Float64) if from.is_integer() => Term::AsDouble(Box::new(term)),
            (DataType::Float32, DataType::Float64) => term,
            _ => return None,
        };
        self.within(cast, to)
    }
}

/// The column of a key, whose values may have been made longer to be compared.
pub(super) fn key_column(key: &Arc<dyn PhysicalExpr>) -> &Arc<dyn PhysicalExpr> {
    let cast = key.downcast_ref::<CastExpr>().filter(|cast| cast.cast_type().is_integer());
    cast.map_or(key, CastExpr::expr)
}

/// A whole number in units of so many more digits.
fn scaled(term: Term, digits: i8) -> Option<Term> {
    match digits {
        0 => Some(term),
        digits => {
            let factor = 10_i64.checked_pow(u32::try_from(digits).ok()?)?;
            Some(match term {
                Term::Whole(value) => Term::Whole(value.checked_mul(factor)?),
                term => arithmetic(BinaryFunction::Multiply, term, Term::Whole(factor)),
            })
        }
    }
}

fn arithmetic(function: BinaryFunction, left: Term, right: Term) -> Term {
    Term::Arithmetic(function, Box::new(left), Box::new(right))
}

/// Whether a number that is NaN is one of a table. NaN of one sign is above all numbers and that of the other below them, and which of them
/// arithmetic makes is a matter of who computes it.
fn has_order(term: &Term, values: &[Values]) -> bool {
    let is_finite = |term: &Term| match term {
        Term::Double(value) => value.is_finite(),
        term => matches!(term, Term::AsDouble(_)),
    };
    match term {
        Term::Choose(_, x, y) => has_order(x, values) && has_order(y, values),
        Term::Arithmetic(function, x, y) if term.kind(values) == Some(Kind::Double) => {
            *function != BinaryFunction::Divide && is_finite(x) && is_finite(y)
        }
        _ => true,
    }
}

/// The least and the greatest number that a type has.
fn room(data_type: &DataType) -> Option<[i128; 2]> {
    Some(match data_type {
        DataType::Int8 => [i8::MIN.into(), i8::MAX.into()],
        DataType::Int16 => [i16::MIN.into(), i16::MAX.into()],
        DataType::Int32 => [i32::MIN.into(), i32::MAX.into()],
        DataType::Int64 => [i64::MIN.into(), i64::MAX.into()],
        DataType::UInt8 => [0, u8::MAX.into()],
        DataType::UInt16 => [0, u16::MAX.into()],
        DataType::UInt32 => [0, u32::MAX.into()],
        DataType::UInt64 => [0, u64::MAX.into()],
        DataType::Decimal128(precision, _) => {
            let end = 10_i128.checked_pow((*precision).into())? - 1;
            [-end, end]
        }
        _ => return None,
    })
}

/// A constant as a term.
fn constant(value: &ScalarValue) -> Option<Term> {
    match value {
        ScalarValue::Boolean(Some(truth)) => Some(Term::Truth(*truth)),
        ScalarValue::Boolean(None) => Some(Term::Null(Kind::Truth)),
        ScalarValue::Float64(None) | ScalarValue::Float32(None) => Some(Term::Null(Kind::Double)),
        ScalarValue::Float64(Some(value)) => double(*value),
        ScalarValue::Float32(Some(value)) => double(f64::from(*value)),
        other => match number(other)? {
            Some(value) => i64::try_from(value).ok().map(Term::Whole),
            None => Some(Term::Null(Kind::Whole)),
        },
    }
}

/// Zeros of two signs are one constant, and the quotients by them are not.
fn double(value: f64) -> Option<Term> {
    (value != 0.0 || value.is_sign_positive()).then_some(Term::Double(value))
}
