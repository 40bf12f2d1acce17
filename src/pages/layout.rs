//! Which columns are read here, and how they lie in a file.

use arrow::datatypes::{DataType, FieldRef, TimeUnit};
use parquet::basic::{Encoding, Repetition, Type as Physical};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use super::chunk;
use super::page::Form;

/// Whether a column of this type is read here.
pub(super) fn is_known(data_type: &DataType) -> bool {
    let of_type = |physical: &Physical| is_stored_as(data_type, *physical);
    [
        Physical::BOOLEAN,
        Physical::INT32,
        Physical::INT64,
        Physical::FLOAT,
        Physical::DOUBLE,
        Physical::BYTE_ARRAY,
        Physical::FIXED_LEN_BYTE_ARRAY,
    ]
    .iter()
    .any(of_type)
}

/// Whether a column of this type has such values in a file, which need not be computed.
fn is_stored_as(data_type: &DataType, physical: Physical) -> bool {
    let element = element(data_type);
    // Numbers alone have lists.
    number(element) == Some(physical)
        || element == data_type
            && match element {
                DataType::Decimal128(..) => matches!(
                    physical,
                    Physical::INT32 | Physical::INT64 | Physical::FIXED_LEN_BYTE_ARRAY
                ),
                // Seconds may be stored as something else.
                DataType::Time32(TimeUnit::Millisecond) => physical == Physical::INT32,
                DataType::Timestamp(TimeUnit::Second, _) => false,
                DataType::Time64(_) | DataType::Timestamp(..) => physical == Physical::INT64,
                DataType::Boolean => physical == Physical::BOOLEAN,
                DataType::Utf8View | DataType::BinaryView => physical == Physical::BYTE_ARRAY,
                _ => false,
            }
}

/// The type that a column of this type has where its texts are not read as views.
pub(super) fn is_view_of(here: &DataType, there: &DataType) -> bool {
    match here {
        DataType::Utf8View => {
            matches!(there, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        }
        DataType::BinaryView => {
            matches!(there, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        }
        _ => here == there,
    }
}

/// The type of a list's elements, else the type itself.
fn element(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) => field.data_type(),
        DataType::FixedSizeList(field, size) if *size > 0 => field.data_type(),
        other => other,
    }
}

/// What a number of this type is in a file; `None` where it is none, or of a type whose numbers may have to be
/// computed.
fn number(data_type: &DataType) -> Option<Physical> {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Date32 => {
            Some(Physical::INT32)
        }
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Some(Physical::INT32),
        DataType::Int64 | DataType::UInt64 => Some(Physical::INT64),
        DataType::Float32 => Some(Physical::FLOAT),
        DataType::Float64 => Some(Physical::DOUBLE),
        _ => None,
    }
}

/// One column as it lies in a file.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) field: FieldRef,
    /// Its place among the columns that hold values.
    pub(super) leaf: usize,
    pub(super) form: Form,
    /// Whether decimals are given as the integers that they are in the file.
    pub(super) is_encoded: bool,
}

impl Layout {
    /// That of a column in a file; `None` where the file has no such column, or has it otherwise.
    pub(super) fn of(field: &FieldRef, schema: &SchemaDescriptor) -> Option<Self> {
        let mut leaves = (0..schema.num_columns())
            .filter(|&leaf| schema.get_column_root(leaf).name() == field.name());
        let (leaf, None) = (leaves.next()?, leaves.next()) else { return None };
        let column = schema.column(leaf);
        if !is_stored_as(field.data_type(), column.physical_type()) {
            return None;
        }
        let form = match element(field.data_type()) == field.data_type() {
            true => flat(&column)?,
            false => list(&column, schema.get_column_root(leaf))?,
        };
        Some(Self { field: FieldRef::clone(field), leaf, form, is_encoded: false })
    }

    /// Whether the pages of a row group are encoded and compressed in ways that are known here.
    pub(super) fn is_readable(&self, chunk: &ColumnChunkMetaData) -> bool {
        let is_flat = self.form.element.is_none();
        let is_known = |encoding: Encoding| match encoding {
            Encoding::PLAIN
            | Encoding::RLE
            | Encoding::PLAIN_DICTIONARY
            | Encoding::RLE_DICTIONARY => true,
            Encoding::BYTE_STREAM_SPLIT => matches!(
                chunk.column_type(),
                Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE
            ),
            Encoding::DELTA_BINARY_PACKED => {
                matches!(chunk.column_type(), Physical::INT32 | Physical::INT64)
            }
            #[allow(deprecated, reason = "older writers name it for levels that flat columns lack")]
            Encoding::BIT_PACKED => is_flat,
            _ => false,
        };
        let is_compressed_well = chunk::is_known(chunk.compression());
        is_compressed_well && chunk.file_path().is_none() && chunk.encodings().all(is_known)
    }
}

/// A column that is no list: required or optional.
fn flat(column: &ColumnDescriptor) -> Option<Form> {
    let is_flat = column.path().parts().len() == 1 && column.max_rep_level() == 0;
    let present = u8::try_from(column.max_def_level()).ok()?;
    let value_bytes = usize::try_from(column.type_length()).unwrap_or(0);
    is_flat.then_some(Form { present, element: None, value_bytes })
}

/// A column of lists in the form of three levels: the list, what repeats, the number.
fn list(column: &ColumnDescriptor, root: &Type) -> Option<Form> {
    let optional = |node: &Type| {
        let repetition = node.get_basic_info().repetition();
        (repetition != Repetition::REPEATED).then_some(u8::from(repetition == Repetition::OPTIONAL))
    };
    if root.is_primitive() || column.path().parts().len() != 3 || column.max_rep_level() != 1 {
        return None;
    }
    let [repeated] = root.get_fields() else { return None };
    if repeated.is_primitive() || repeated.get_basic_info().repetition() != Repetition::REPEATED {
        return None;
    }
    let [number] = repeated.get_fields() else { return None };
    let element = optional(root)? + 1;
    let present = element + optional(number)?;
    Some(Form { present, element: Some(element), value_bytes: 0 })
}
