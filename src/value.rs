//! Parameters: the values that stand in for `$1`, `$name` and `?` in a text.
//!
//! Enters: Rust values. Leaves: [`Parameters`], which the planner puts in place before it optimizes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::PrimitiveArray;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Values, cast};

use crate::error::{ErrorKind, Result};
use crate::matrix::Matrix;

/// One SQL value.
///
/// ```
/// use relatrix::Value;
/// assert_eq!(Value::from(2_i32).to_string(), "2");
/// assert!(Value::from(None::<f64>).is_null());
/// assert_eq!(Value::from(vec![0.5, 1.5]).to_string(), "[0.5, 1.5]");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value(ScalarValue);

impl Value {
    /// NULL of no type in particular.
    pub const NULL: Self = Self(ScalarValue::Null);

    /// Whether this is NULL.
    ///
    /// ```
    /// use relatrix::Value;
    /// assert!(Value::NULL.is_null() && !Value::from(0).is_null());
    /// ```
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The value as DataFusion knows it.
    ///
    /// ```
    /// use relatrix::{Value, datafusion::common::ScalarValue};
    /// assert_eq!(Value::from(0.5).scalar(), &ScalarValue::Float64(Some(0.5)));
    /// ```
    pub fn scalar(&self) -> &ScalarValue {
        &self.0
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<ScalarValue> for Value {
    fn from(value: ScalarValue) -> Self {
        Self(value)
    }
}

/// Conversions from Rust types that have an SQL type of the same values.
macro_rules! values {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl From<$rust> for Value {
            fn from(value: $rust) -> Self {
                Self(ScalarValue::$variant(Some(value.into())))
            }
        }
        impl From<Option<$rust>> for Value {
            fn from(value: Option<$rust>) -> Self {
                Self(ScalarValue::$variant(value.map(Into::into)))
            }
        }
    )*};
}

values! {
    bool => Boolean,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
    f32 => Float32, f64 => Float64,
    &str => Utf8, String => Utf8,
    &[u8] => Binary, Vec<u8> => Binary,
}

/// Lists of numbers, as the vector functions take them.
macro_rules! lists {
    ($($rust:ty => $arrow:ident),* $(,)?) => {$(
        impl From<&[$rust]> for Value {
            fn from(list: &[$rust]) -> Self {
                let elements = Arc::new(PrimitiveArray::<$arrow>::from_iter_values(list.iter().copied()));
                Self(SingleRowListArrayBuilder::new(elements).build_list_scalar())
            }
        }
        impl From<Vec<$rust>> for Value {
            fn from(list: Vec<$rust>) -> Self {
                list.as_slice().into()
            }
        }
    )*};
}

lists! { f64 => Float64Type, f32 => Float32Type }

/// The values of a statement's parameters.
///
/// Positional ones count from 1 and fill `$1`, `$2` … or each `?` in turn; named ones fill `$name`.
/// A matrix goes by name.
///
/// ```
/// use relatrix::{Database, Parameters, params};
/// # fn main() -> relatrix::Result<()> {
/// let connection = Database::memory()?.connect();
/// let rows = connection.query_with("SELECT $1 + $2", params![2, 3])?.rows::<(i64,)>()?;
/// assert_eq!(rows, [(5,)]);
/// let named = Parameters::new().named("low", 2).named("high", 3);
/// let rows = connection.query_with("SELECT $high - $low", named)?.rows::<(i64,)>()?;
/// assert_eq!(rows, [(1,)]);
/// let near = connection.query_with("SELECT l2_distance([1, 1], $1)", params![vec![4.0, 5.0]])?;
/// assert_eq!(near.rows::<(f64,)>()?, [(5.0,)]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    scalars: Scalars,
    matrices: BTreeMap<String, Arc<Matrix>>,
}

/// Parameters that are single values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Scalars {
    positional: Vec<Value>,
    named: BTreeMap<String, Value>,
}

impl Parameters {
    /// No parameters.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let rows = connection.query_with("SELECT 1", relatrix::Parameters::new())?;
    /// assert_eq!(rows.rows::<(i64,)>()?, [(1,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next positional value.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let both = relatrix::Parameters::new().push("a").push(2.5);
    /// let rows = connection.query_with("SELECT $2, $1", both)?.rows::<(f64, String)>()?;
    /// assert_eq!(rows, [(2.5, "a".to_owned())]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn push(mut self, value: impl Into<Value>) -> Self {
        self.scalars.positional.push(value.into());
        self
    }

    /// Sets the value of `$name`.
    ///
    /// ```
    /// let connection = relatrix::Database::memory()?.connect();
    /// let limit = relatrix::Parameters::new().named("limit", 3);
    /// let rows = connection.query_with("SELECT count(*) FROM range(10) WHERE value < $limit", limit)?;
    /// assert_eq!(rows.rows::<(i64,)>()?, [(3,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn named(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.scalars.named.insert(name.into(), value.into());
        self
    }

    /// Sets the matrix of `$name`.
    ///
    /// ```
    /// use relatrix::{Parameters, matrix::{Matrix, Shape}};
    /// let connection = relatrix::Database::memory()?.connect();
    /// let x = Matrix::from_row_major(Shape::new(2, 1), vec![3.0, 4.0]).expect("two cells");
    /// let rows = connection.query_with("SELECT (MATRIX(sum($x)))", Parameters::new().matrix("x", x))?;
    /// assert_eq!(rows.rows::<(f64,)>()?, [(7.0,)]);
    /// # Ok::<(), relatrix::Error>(())
    /// ```
    pub fn matrix(mut self, name: impl Into<String>, matrix: impl Into<Arc<Matrix>>) -> Self {
        self.matrices.insert(name.into(), matrix.into());
        self
    }

    /// Whether there are none.
    ///
    /// ```
    /// use relatrix::{Parameters, params};
    /// assert!(Parameters::new().is_empty() && !params![1].is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.scalars == Scalars::default() && self.matrices.is_empty()
    }

    /// All of them, where none is a matrix.
    pub(crate) fn all_scalars(&self) -> Option<&Scalars> {
        self.matrices.is_empty().then_some(&self.scalars)
    }

    /// The matrix of `$name`.
    pub(crate) fn matrix_named(&self, name: &str) -> Option<&Arc<Matrix>> {
        self.matrices.get(name)
    }

    /// The scalar that the text's `$1`, `$name` stands for; `placeholder` includes the `$`.
    pub(crate) fn scalar(&self, placeholder: &str) -> Option<&Value> {
        let name = placeholder.strip_prefix('$')?;
        match name.parse::<usize>() {
            Ok(position) => self.scalars.positional.get(position.checked_sub(1)?),
            Err(_) => self.scalars.named.get(name),
        }
    }

    /// All scalars by name, positional ones under their number, as DataFusion's planner wants them.
    fn scalars(&self) -> ParamValues {
        let positional = self.scalars.positional.iter().enumerate();
        let positional = positional.map(|(index, value)| ((index + 1).to_string(), value));
        let named = self.scalars.named.iter().map(|(name, value)| (name.clone(), value));
        let all = positional.chain(named);
        ParamValues::Map(all.map(|(name, value)| (name, value.0.clone().into())).collect())
    }
}

impl Parameters {
    /// The same names with NULLs of the same types; nothing where one is a matrix, which may be any.
    pub(crate) fn types(&self) -> Option<Self> {
        let null =
            |value: &Value| Some(Value(ScalarValue::try_new_null(&value.0.data_type()).ok()?));
        let Scalars { positional, named } = self.all_scalars()?;
        let positional = positional.iter().map(null).collect::<Option<_>>()?;
        let named = named.iter().map(|(name, value)| Some((name.clone(), null(value)?)));
        let scalars = Scalars { positional, named: named.collect::<Option<_>>()? };
        Some(Self { scalars, ..Self::default() })
    }

    /// Gives a plan's parameters the types of their values, which are put in place later.
    ///
    /// # Errors
    /// None but DataFusion's.
    pub(crate) fn type_them(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let typed = |expr: Expr| match &expr {
            Expr::Placeholder(Placeholder { id, .. }) => Ok(match self.scalar(id) {
                Some(value) => {
                    let field = Field::new("", value.0.data_type(), true);
                    let field = Some(Arc::new(field));
                    Transformed::yes(Expr::Placeholder(Placeholder { id: id.clone(), field }))
                }
                None => Transformed::no(expr),
            }),
            _ => Ok(Transformed::no(expr)),
        };
        let typed = plan.transform_up_with_subqueries(|node| {
            node.map_expressions(|expr| expr.transform_up(typed))?
                .map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(typed.data)
    }

    /// Puts the scalars in the place of a plan's parameters.
    ///
    /// # Errors
    /// For the first parameter that has no value.
    pub(crate) fn fill(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let names = plan.get_parameter_names()?;
        if names.is_empty() {
            return Ok(plan);
        }
        if let Some(missing) = names.iter().find(|name| self.scalar(name).is_none()) {
            let (what, hint) = ("value for parameter", String::new());
            return Err(ErrorKind::Unknown { what, name: missing.clone(), hint }.into());
        }
        let plan = self.fill_sets(cast_values(plan)?)?;
        Ok(plan.with_param_values(self.scalars())?)
    }

    /// Puts the scalars into sets of groups, key by key: DataFusion would give the whole a name, and its keys none.
    fn fill_sets(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let placed = |part: Expr| match &part {
            Expr::Placeholder(Placeholder { id, .. }) => Ok(match self.scalar(id) {
                Some(value) => Transformed::yes(Expr::Literal(value.0.clone(), None)),
                None => Transformed::no(part),
            }),
            _ => Ok(Transformed::no(part)),
        };
        let filled = plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(_) = &node else { return Ok(Transformed::no(node)) };
            let names = NamePreserver::new(&node);
            let filled = node.map_expressions(|expr| match expr {
                Expr::GroupingSet(_) => expr.map_children(|key| {
                    let name = names.save(&key);
                    let key = key.transform_up(placed)?;
                    Ok(key.update_data(|key| name.restore(key)))
                }),
                other => Ok(Transformed::no(other)),
            })?;
            filled.map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(filled.data)
    }
}

/// Casts the parameters in a VALUES to the types of its columns, as its constants are: else the columns
/// would take the types of what is put in their place.
fn cast_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    let cast_cell = |cell: Expr, of: &DataType| match cell {
        Expr::Placeholder(_) if *of != DataType::Null => cast(cell, of.clone()),
        other => other,
    };
    let cast = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Values(Values { schema, values }) => {
            let typed = |row: Vec<Expr>| {
                let cells = row.into_iter().zip(schema.fields());
                cells.map(|(cell, field)| cast_cell(cell, field.data_type())).collect()
            };
            let values = values.into_iter().map(typed).collect();
            Ok(Transformed::yes(LogicalPlan::Values(Values { schema, values })))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(cast.data)
}

impl<V: Into<Value>> FromIterator<V> for Parameters {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        values.into_iter().fold(Self::new(), Self::push)
    }
}

/// Positional parameters of any mixture of types: `params![1, "two", 3.0]`.
///
/// ```
/// let connection = relatrix::Database::memory()?.connect();
/// let rows = connection.query_with("SELECT $1 + 1, $2", relatrix::params![1, "one"])?;
/// assert_eq!(rows.rows::<(i64, String)>()?, [(2, "one".to_owned())]);
/// # Ok::<(), relatrix::Error>(())
/// ```
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        $crate::Parameters::new()$(.push($value))*
    };
}
