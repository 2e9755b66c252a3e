//! What the JSON Schema of a type with a flattened unit needs beyond what schemars derives, for `schemas/`.

use asm2464_host::bridge::UnitInfo;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Requires all keys that a unit always has if one of them is present: schemars requires none for a flattened `Option`.
pub(crate) fn whole_unit_or_none(schema: &mut Schema) {
    let unit = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<UnitInfo>();
    let keys = unit.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let all = |key: &Value| Some((key.as_str()?.to_owned(), keys.clone().into()));
    schema.insert("dependentRequired".to_owned(), keys.iter().filter_map(all).collect::<Map<_, _>>().into());
}
