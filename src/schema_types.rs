//! JSON Schemas for types that serialise themselves by hand, for `schemas/`.

use std::borrow::Cow;

use asm2464_host::bridge::UnitInfo;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use crate::patch::ConfigEdits;

/// Requires all keys that a unit always has if one of them is present: schemars requires none for a flattened `Option`.
pub(crate) fn whole_unit_or_none(schema: &mut Schema) {
    let unit = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<UnitInfo>();
    let keys = unit.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let all = |key: &Value| Some((key.as_str()?.to_owned(), keys.clone().into()));
    schema.insert("dependentRequired".to_owned(), keys.iter().filter_map(all).collect::<Map<_, _>>().into());
}

/// Leaves out the values of keys that a file may lack: they are printed all the same.
pub(crate) fn without_defaults(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut).for_each(|property| {
        property.remove("default");
    });
}

impl JsonSchema for ConfigEdits {
    fn schema_name() -> Cow<'static, str> {
        "ConfigEdits".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "additionalProperties": { "type": ["string", "integer"] },
            "description": "Fields of configuration block 0 by name: texts, numbers, bytes in hexadecimal."
        })
    }
}
