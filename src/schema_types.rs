//! JSON Schemas for types that serialise themselves by hand, for `schemas/`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::patch::ConfigEdits;

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
