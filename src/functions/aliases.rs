//! Other names for DataFusion's functions.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;

const SCALARS: [(&str, &[&str]); 6] = [
    ("lower", &["lcase"]),
    ("upper", &["ucase"]),
    ("regexp_like", &["regexp_matches"]),
    ("to_char", &["strftime"]),
    ("make_array", &["array", "list_value"]),
    ("octet_length", &["strlen"]),
];

const AGGREGATES: [(&str, &[&str]); 4] = [
    ("array_agg", &["list"]),
    ("first_value", &["first", "arbitrary"]),
    ("last_value", &["last"]),
    ("var", &["variance"]),
];

pub(super) fn register(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for (name, aliases) in SCALARS {
        let function = registry.udf(name)?;
        let aliased = function.as_ref().clone().with_aliases(aliases.iter().copied());
        registry.register_udf(Arc::new(aliased))?;
    }
    for (name, aliases) in AGGREGATES {
        let function = registry.udaf(name)?;
        let aliased = function.as_ref().clone().with_aliases(aliases.iter().copied());
        registry.register_udaf(Arc::new(aliased))?;
    }
    Ok(())
}
