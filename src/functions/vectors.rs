//! `dot(a, b)`, `cosine_similarity`, `cosine_distance`, `l2_distance`, `l1_distance` and `l2_norm(a)` of
//! lists of numbers.
//!
//! - Takes: `List`, `LargeList` or `FixedSizeList` columns, list literals and parameters, in any mix.
//!   `FLOAT` and `DOUBLE` elements are read in place, all other numbers are cast to `DOUBLE`.
//! - Gives: a `DOUBLE`, added in 64 bits from `FLOAT` elements too. A row's value depends on its two
//!   lists alone, and not on what is computed beside it.
//! - NULL: of a NULL list. A NULL *element* is an error, as are lists of two lengths.
//! - The cosine to a zero vector is `NaN`, as in DuckDB, whose names are aliases here. DataFusion's own
//!   `cosine_distance`, which gives NULL there, is replaced.
//!
//! A constant list stays one list: it is not repeated for every row, and its norm is computed once a
//! batch.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::lists::{Lists, cells_of, not_numbers, numeric_list, readable, refused};
use crate::exec::kernels::vectors::{Measure, Vectors, measure};
use crate::matrix::Scalar;

/// Each function with DuckDB's names for it. `array_distance` and `inner_product` are DataFusion's.
const FUNCTIONS: [(&str, Measure, &[&str]); 6] = [
    (
        "dot",
        Measure::Dot,
        &["list_dot_product", "array_dot_product", "list_inner_product", "array_inner_product"],
    ),
    (
        "cosine_similarity",
        Measure::CosineSimilarity,
        &["list_cosine_similarity", "array_cosine_similarity"],
    ),
    (
        "cosine_distance",
        Measure::CosineDistance,
        &["list_cosine_distance", "array_cosine_distance"],
    ),
    ("l2_distance", Measure::Euclidean, &[]),
    ("l1_distance", Measure::Manhattan, &[]),
    ("l2_norm", Measure::Norm, &[]),
];

pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, measure, aliases) in FUNCTIONS {
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        let signature = Signature::variadic_any(Volatility::Immutable);
        let function = VectorFunction { name, measure, aliases, signature };
        registry.register_udf(Arc::new(ScalarUDF::from(function)))?;
    }
    Ok(())
}

/// Whether a function is one of these: NULL of a NULL list, whatever its elements.
pub(crate) fn is_measure(function: &ScalarUDF) -> bool {
    function.inner().is::<VectorFunction>()
}

/// A measure as a function of SQL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct VectorFunction {
    name: &'static str,
    measure: Measure,
    aliases: Vec<String>,
    signature: Signature,
}

impl VectorFunction {
    fn argument_count(&self) -> usize {
        if self.measure == Measure::Norm { 1 } else { 2 }
    }

    fn different_lengths(&self, left: usize, right: usize) -> DataFusionError {
        let message = format!("needs lists of one length, not of {left} and {right} elements");
        refused(self.name, message)
    }
}

impl ScalarUDFImpl for VectorFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Checks the arguments, too: what is said here arrives as it is, unlike what a coercion says.
    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let count = self.argument_count();
        if arguments.len() != count {
            let takes = if count == 1 { "one list" } else { "two lists" };
            return Err(refused(self.name, format!("takes {takes}, not {}", arguments.len())));
        }
        if let [DataType::FixedSizeList(_, left), DataType::FixedSizeList(_, right)] = arguments
            && left != right
        {
            return Err(self.different_lengths(*left as usize, *right as usize));
        }
        match arguments.iter().find(|given| numeric_list(given, true).is_none()) {
            Some(given) => Err(not_numbers(self.name, given)),
            None => Ok(DataType::Float64),
        }
    }

    /// A NULL list, and no other NULL, makes NULL.
    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let sides: Vec<Side> = args.args.into_iter().map(Side::new).collect::<Result<_>>()?;
        let all_constant = sides.iter().all(|side| side.is_constant);
        let rows = if all_constant { 1 } else { args.number_rows };
        let values: ArrayRef = match &sides[..] {
            [x] => Arc::new(self.values(x, x, rows)?),
            [left, right] => Arc::new(self.values(left, right, rows)?),
            _ => return Err(refused(self.name, "takes lists")),
        };
        Ok(match all_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?),
            false => ColumnarValue::Array(values),
        })
    }
}

/// An argument: a list for each row, or a list of one that serves every row.
struct Side {
    lists: ArrayRef,
    is_constant: bool,
}

impl Side {
    fn new(value: ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(lists) => {
                Self { lists: readable(lists, true)?, is_constant: false }
            }
            ColumnarValue::Scalar(list) => {
                let doubles = DataType::new_list(DataType::Float64, true);
                Self { lists: cast(&list.to_array()?, &doubles)?, is_constant: true }
            }
        })
    }

    /// Which of so many rows have a list; `None` where all have.
    fn nulls(&self, rows: usize) -> Option<NullBuffer> {
        match self.is_constant {
            true => self.lists.is_null(0).then(|| NullBuffer::new_null(rows)),
            false => self.lists.nulls().cloned(),
        }
    }
}

/// The lists of an argument, and the list that a row has there.
struct Rows<'a> {
    lists: Lists<'a>,
    is_constant: bool,
}

impl Rows<'_> {
    fn place(&self, row: usize) -> usize {
        if self.is_constant { 0 } else { row }
    }

    fn length(&self, row: usize) -> usize {
        self.lists.range(self.place(row)).len()
    }

    fn has_null(&self, row: usize) -> bool {
        self.lists.has_null(self.place(row))
    }

    fn vectors<T: Scalar>(&self, function: &str) -> Result<Vectors<'_, T>> {
        let cells = cells_of::<T>(function, self.lists.elements)?;
        Ok(match self.is_constant {
            true => Vectors::constant(&cells[self.lists.range(0)]),
            false => Vectors { cells, bounds: self.lists.bounds },
        })
    }

    fn is_float(&self) -> bool {
        self.lists.elements.data_type() == &DataType::Float32
    }
}

impl VectorFunction {
    fn values(&self, left: &Side, right: &Side, rows: usize) -> Result<Float64Array> {
        let nulls = NullBuffer::union(left.nulls(rows).as_ref(), right.nulls(rows).as_ref());
        let (left, right) = (self.rows(left)?, self.rows(right)?);
        let is_valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        for row in (0..rows).filter(|row| is_valid(*row)) {
            let lengths = (left.length(row), right.length(row));
            if lengths.0 != lengths.1 {
                return Err(self.different_lengths(lengths.0, lengths.1));
            }
            if left.has_null(row) || right.has_null(row) {
                return Err(refused(self.name, "an element of a list is NULL"));
            }
        }
        let mut values = vec![0.0; rows];
        let some = nulls.as_ref().filter(|nulls| nulls.null_count() > 0);
        let some: Option<Vec<usize>> = some.map(|nulls| nulls.valid_indices().collect());
        if some.as_ref().is_none_or(|some| !some.is_empty()) {
            self.measure(&left, &right, some.as_deref(), &mut values)?;
        }
        Ok(Float64Array::new(values.into(), nulls))
    }

    fn rows<'a>(&self, side: &'a Side) -> Result<Rows<'a>> {
        let lists = Lists::of(&side.lists).ok_or_else(|| refused(self.name, "takes lists"))?;
        Ok(Rows { lists, is_constant: side.is_constant })
    }

    /// Every measure is symmetric: a constant goes to the right, where its norm is computed once, and
    /// three of the four pairs of element types are enough.
    fn measure(
        &self,
        left: &Rows<'_>,
        right: &Rows<'_>,
        rows: Option<&[usize]>,
        out: &mut [f64],
    ) -> Result<()> {
        match (left.is_float(), right.is_float()) {
            (true, true) => self.of::<f32, f32>(left, right, rows, out),
            (true, false) => self.of::<f32, f64>(left, right, rows, out),
            (false, true) => self.of::<f32, f64>(right, left, rows, out),
            (false, false) if left.is_constant => self.of::<f64, f64>(right, left, rows, out),
            (false, false) => self.of::<f64, f64>(left, right, rows, out),
        }
    }

    fn of<A: Scalar, B: Scalar>(
        &self,
        left: &Rows<'_>,
        right: &Rows<'_>,
        rows: Option<&[usize]>,
        out: &mut [f64],
    ) -> Result<()> {
        let (left, right) = (left.vectors::<A>(self.name)?, right.vectors::<B>(self.name)?);
        measure(self.measure, left, right, rows, out);
        Ok(())
    }
}
