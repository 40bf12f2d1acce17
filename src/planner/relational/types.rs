//! Names of types that DataFusion's planner does not know, as DuckDB has them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::planner::TypePlanner;
use sqlparser::ast;

/// Plans these names; see the header of this file.
#[derive(Debug)]
pub(crate) struct TypeNames;

impl TypePlanner for TypeNames {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        let data_type = match sql_type {
            ast::DataType::Blob(_) => DataType::Binary,
            ast::DataType::Signed | ast::DataType::SignedInteger => DataType::Int64,
            ast::DataType::HugeInt => DataType::Decimal128(38, 0),
            ast::DataType::UTinyInt => DataType::UInt8,
            ast::DataType::USmallInt => DataType::UInt16,
            ast::DataType::UBigInt => DataType::UInt64,
            ast::DataType::Custom(name, modifiers) if modifiers.is_empty() => {
                match name.to_string().to_lowercase().as_str() {
                    "short" => DataType::Int16,
                    "long" => DataType::Int64,
                    "uinteger" => DataType::UInt32,
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}
