//! Which expressions are numbers and conditions that one loop computes with the bits that SQL answers with.
//!
//! Enters: DataFusion's expressions over the rows below a projection or a filter. Leaves: the same over the columns of
//! the input, or nothing where any part of them is of another kind.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::math::abs::AbsFunc;
use datafusion::functions::math::ceil::CeilFunc;
use datafusion::functions::math::floor::FloorFunc;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NegativeExpr, NotExpr,
};
use datafusion::physical_expr::utils::reassign_expr_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::with_new_children_if_necessary;

use super::Rows;
use crate::exec::expressions::with_ours;
use crate::exec::kernels::elementwise::{BinaryFunction, UnaryFunction};
use crate::exec::kernels::selection::Comparison;
use crate::exec::transform::{Condition, Number, Test};

/// Constants of a list that are compared one by one; for more, a table of them is faster.
const AMONG_MAX: usize = 8;

/// What a column of a transformation is.
pub(super) enum Computed {
    Passed(usize),
    Double(Number),
    Single(Number),
    /// An expression of decimals over the columns of the input, and what it takes.
    Decimal(Arc<dyn PhysicalExpr>, Number),
}

impl Rows<'_> {
    /// What the expression of a reader is over the columns of the input.
    pub(super) fn output(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Computed> {
        if let Some(column) = self.column(expr, 0) {
            return Some(Computed::Passed(column));
        }
        let number = |of| {
            let number = self.number(expr, &of, 0)?;
            let is_computed = number.operations() > 0 && number.depth() <= self.fusion.depth_max;
            is_computed.then_some(number)
        };
        number(DataType::Float64)
            .map(Computed::Double)
            .or_else(|| number(DataType::Float32).map(Computed::Single))
    }

    /// The whole expression of a reader as one of decimals: unlike numbers it may fail, as it may where it stands.
    pub(super) fn decimal(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Computed>> {
        // What becomes of other rows is not encoded.
        if self.filter.is_none() && self.table().is_none() {
            return Ok(None);
        }
        let Some((expr, number)) = self.decimals(expr)? else { return Ok(None) };
        let is_computed = number.operations() > 0 && number.depth() <= self.fusion.depth_max;
        if !is_computed {
            return Ok(None);
        }
        let ours = with_ours(expr, &self.input.schema())?;
        Ok(Some(Computed::Decimal(ours.data, number)))
    }

    /// Arithmetic of decimals over the columns of the input.
    fn decimals(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Option<(Arc<dyn PhysicalExpr>, Number)>> {
        let is_decimal = |of: &DataType| matches!(of, DataType::Decimal128(..));
        if let Some(column) = expr.downcast_ref::<Column>() {
            let at = self.column(expr, 0).filter(|&at| is_decimal(&self.input_type(at)));
            return Ok(at.map(|at| {
                let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), at));
                (column, Number::Column(at))
            }));
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            let is_one = is_decimal(&literal.value().data_type());
            return Ok(is_one.then(|| (Arc::clone(expr), Number::Constant(0.0))));
        }
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return Ok(None) };
        let function = match binary.op() {
            Operator::Plus => BinaryFunction::Add,
            Operator::Minus => BinaryFunction::Subtract,
            Operator::Multiply => BinaryFunction::Multiply,
            _ => return Ok(None),
        };
        let sides = self.decimals(binary.left())?.zip(self.decimals(binary.right())?);
        let Some(((left, of_left), (right, of_right))) = sides else { return Ok(None) };
        let moved = with_new_children_if_necessary(Arc::clone(expr), vec![left, right])?;
        Ok(Some((moved, Number::Binary(function, Box::new(of_left), Box::new(of_right)))))
    }

    /// The column of the input that one below all projections is.
    fn of_input(&self, at: usize) -> usize {
        let kept = self.filter.as_ref().and_then(|(filter, _)| filter.projection().as_ref());
        kept.map_or(at, |columns| columns[at])
    }

    /// An expression over what is below so many of the projections as a number of this type.
    fn number(&self, expr: &Arc<dyn PhysicalExpr>, of: &DataType, level: usize) -> Option<Number> {
        let part = |expr| self.number(expr, of, level).map(Box::new);
        if let Some(column) = expr.downcast_ref::<Column>() {
            return match self.projections.get(level) {
                Some(below) => self.number(&below.expr()[column.index()].expr, of, level + 1),
                None => {
                    let at = self.of_input(column.index());
                    (self.input_type(at) == *of).then_some(Number::Column(at))
                }
            };
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return match (literal.value(), of) {
                (ScalarValue::Float64(Some(value)), DataType::Float64) => {
                    Some(Number::Constant(*value))
                }
                (ScalarValue::Float32(Some(value)), DataType::Float32) => {
                    Some(Number::Constant(f64::from(*value)))
                }
                _ => None,
            };
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return Some(Number::Unary(UnaryFunction::Negate, part(negative.arg())?));
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            let function = arithmetic(*binary.op())?;
            return Some(Number::Binary(function, part(binary.left())?, part(binary.right())?));
        }
        if let Some((function, argument)) = called(expr) {
            return Some(Number::Unary(function, part(argument)?));
        }
        let cast = expr.downcast_ref::<CastExpr>()?;
        let converted = self.column(cast.expr(), level)?;
        let from = self.input_type(converted);
        let is_nearest = from.is_integer() || from == DataType::Float32;
        let fits = *of == DataType::Float64 && *cast.cast_type() == *of && is_nearest;
        fits.then_some(Number::Column(converted))
    }

    /// The column of the input that an expression over what is below so many projections is.
    fn column(&self, expr: &Arc<dyn PhysicalExpr>, level: usize) -> Option<usize> {
        let mut at = expr.downcast_ref::<Column>()?.index();
        for projection in &self.projections[level..] {
            at = projection.expr()[at].expr.downcast_ref::<Column>()?.index();
        }
        Some(self.of_input(at))
    }

    fn input_type(&self, at: usize) -> DataType {
        self.input.schema().field(at).data_type().clone()
    }

    /// What a filter asks of a row of the input.
    pub(super) fn condition(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Condition> {
        self.combined(expr).or_else(|| self.of_texts(expr))
    }

    /// A condition on the texts of a column that a table keeps as codes, true or false of each of them.
    fn of_texts(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Condition> {
        let compares = |of: &BinaryExpr| {
            use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq, RegexIMatch, RegexMatch};
            use Operator::{RegexNotIMatch, RegexNotMatch};
            matches!(
                of.op(),
                Eq | NotEq
                    | Lt
                    | LtEq
                    | Gt
                    | GtEq
                    | RegexMatch
                    | RegexIMatch
                    | RegexNotMatch
                    | RegexNotIMatch
            )
        };
        let is_such = expr.is::<LikeExpr>()
            || expr.is::<InListExpr>()
            || expr.downcast_ref::<BinaryExpr>().is_some_and(compares);
        let is_constant = |of: &Arc<dyn PhysicalExpr>| {
            of.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null())
        };
        let children = expr.children();
        let mut columns = children.iter().filter(|child| !is_constant(child));
        let (Some(column), None) = (columns.next(), columns.next()) else { return None };
        let at = self.column(column, 0)?;
        let is_text = matches!(self.input_type(at), DataType::Utf8View | DataType::Utf8);
        if !is_such || !is_text || !self.table()?.has_codes(at) {
            return None;
        }
        let ours = with_ours(Arc::clone(expr), &self.input.schema()).ok()?.data;
        let alone = self.input.schema().project(&[at]).ok()?;
        let alone = reassign_expr_columns(ours, &alone).ok()?;
        Some(Condition::Test(Test::OfTexts(at, alone)))
    }

    /// The parts of a condition, of which each is one that is computed here.
    fn combined(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Condition> {
        let part = |expr| self.condition(expr).map(Box::new);
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            let (left, right) = (binary.left(), binary.right());
            return match binary.op() {
                Operator::And => Some(Condition::And(part(left)?, part(right)?)),
                Operator::Or => Some(Condition::Or(part(left)?, part(right)?)),
                Operator::Lt => self.test(Comparison::Less, left, right),
                Operator::Gt => self.test(Comparison::Greater, left, right),
                Operator::Eq => self.test(Comparison::Equal, left, right),
                Operator::GtEq => self.test(Comparison::Less, left, right).map(negated),
                Operator::LtEq => self.test(Comparison::Greater, left, right).map(negated),
                Operator::NotEq => self.test(Comparison::Equal, left, right).map(negated),
                _ => None,
            };
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            let found = self.among(list.expr(), list.list())?;
            return Some(if list.negated() { negated(found) } else { found });
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return part(not.arg()).map(Condition::Not);
        }
        if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
            return self.null(null.arg());
        }
        if let Some(known) = expr.downcast_ref::<IsNotNullExpr>() {
            return self.null(known.arg()).map(negated);
        }
        let at = self.column(expr, 0)?;
        let is_truth = self.input_type(at) == DataType::Boolean;
        is_truth.then_some(Condition::Test(Test::Holds(at)))
    }

    fn test(
        &self,
        comparison: Comparison,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<Condition> {
        let pair = |of| Some((self.number(left, &of, 0)?, self.number(right, &of, 0)?));
        let test = if let Some((left, right)) = pair(DataType::Float64) {
            Test::Doubles(comparison, left, right)
        } else if let Some((left, right)) = pair(DataType::Float32) {
            Test::Singles(comparison, left, right)
        } else if let Some((at, constant)) = self.with_constant(left, right) {
            Test::Column(comparison, at, constant)
        } else if let Some((at, constant)) = self.with_constant(right, left) {
            Test::Column(exchanged(comparison), at, constant)
        } else if let Some(pair) = self.whole_columns(left, right) {
            Test::Columns(comparison, pair)
        } else {
            let text = || self.with_text(left, right).or_else(|| self.with_text(right, left));
            let (at, text) = (comparison == Comparison::Equal).then(text).flatten()?;
            Test::Text(at, text)
        };
        Some(Condition::Test(test))
    }

    /// A column that is one of a few constants.
    fn among(
        &self,
        column: &Arc<dyn PhysicalExpr>,
        constants: &[Arc<dyn PhysicalExpr>],
    ) -> Option<Condition> {
        if constants.len() > AMONG_MAX {
            return None;
        }
        let tests = constants.iter().map(|constant| self.test(Comparison::Equal, column, constant));
        let tests = tests.collect::<Option<Vec<_>>>()?;
        tests.into_iter().reduce(|all, test| Condition::Or(Box::new(all), Box::new(test)))
    }

    /// A column and a number in its own unit.
    fn with_constant(
        &self,
        column: &Arc<dyn PhysicalExpr>,
        constant: &Arc<dyn PhysicalExpr>,
    ) -> Option<(usize, i128)> {
        let at = self.column(column, 0)?;
        let literal = constant.downcast_ref::<Literal>()?.value();
        let is_same_unit = literal.data_type() == self.input_type(at);
        whole(literal).filter(|_| is_same_unit).map(|constant| (at, constant))
    }

    /// Two columns of whole numbers in one unit.
    fn whole_columns(
        &self,
        left: &Arc<dyn PhysicalExpr>,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Option<[usize; 2]> {
        let pair = [self.column(left, 0)?, self.column(right, 0)?];
        let [left, right] = pair.map(|at| self.input_type(at));
        (left == right && is_whole(&left)).then_some(pair)
    }

    /// A column of texts and a text.
    fn with_text(
        &self,
        column: &Arc<dyn PhysicalExpr>,
        constant: &Arc<dyn PhysicalExpr>,
    ) -> Option<(usize, Arc<str>)> {
        let at = self.column(column, 0)?;
        let is_text = matches!(
            self.input_type(at),
            DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8
        );
        let text = constant.downcast_ref::<Literal>()?.value().try_as_str()??;
        is_text.then(|| (at, Arc::from(text)))
    }

    /// Whether an expression is NULL.
    fn null(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Condition> {
        let mut columns = BTreeSet::new();
        if let Some(at) = self.column(expr, 0) {
            columns.insert(at);
        } else {
            let number = self.number(expr, &DataType::Float64, 0);
            let number = number.or_else(|| self.number(expr, &DataType::Float32, 0))?;
            number.add_columns(&mut columns);
        }
        Some(Condition::Test(Test::IsNull(columns)))
    }
}

fn arithmetic(operator: Operator) -> Option<BinaryFunction> {
    match operator {
        Operator::Plus => Some(BinaryFunction::Add),
        Operator::Minus => Some(BinaryFunction::Subtract),
        Operator::Multiply => Some(BinaryFunction::Multiply),
        Operator::Divide => Some(BinaryFunction::Divide),
        _ => None,
    }
}

/// A function that never fails and has one answer on all processors, and its argument.
fn called(expr: &Arc<dyn PhysicalExpr>) -> Option<(UnaryFunction, &Arc<dyn PhysicalExpr>)> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let function = call.fun().inner().as_ref() as &dyn Any;
    let function = if function.is::<AbsFunc>() {
        UnaryFunction::Abs
    } else if function.is::<FloorFunc>() {
        UnaryFunction::Floor
    } else if function.is::<CeilFunc>() {
        UnaryFunction::Ceil
    } else {
        return None;
    };
    let [argument] = call.args() else { return None };
    Some((function, argument))
}

/// `b < a` for `a > b`.
fn exchanged(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::Greater => Comparison::Less,
        Comparison::Equal => Comparison::Equal,
    }
}

fn negated(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

/// Whether cells of a type are whole numbers in some unit.
fn is_whole(of: &DataType) -> bool {
    let is_time = matches!(of, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    of.is_integer() || is_time || matches!(of, DataType::Decimal128(..))
}

/// The number that a constant is stored as, where equal numbers are equal constants of its type.
fn whole(literal: &ScalarValue) -> Option<i128> {
    match *literal {
        ScalarValue::Int8(value) => value.map(i128::from),
        ScalarValue::Int16(value) => value.map(i128::from),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => value.map(i128::from),
        ScalarValue::Int64(value)
        | ScalarValue::Date64(value)
        | ScalarValue::TimestampSecond(value, _)
        | ScalarValue::TimestampMillisecond(value, _)
        | ScalarValue::TimestampMicrosecond(value, _)
        | ScalarValue::TimestampNanosecond(value, _) => value.map(i128::from),
        ScalarValue::UInt8(value) => value.map(i128::from),
        ScalarValue::UInt16(value) => value.map(i128::from),
        ScalarValue::UInt32(value) => value.map(i128::from),
        ScalarValue::UInt64(value) => value.map(i128::from),
        ScalarValue::Decimal128(value, ..) => value,
        _ => None,
    }
}
