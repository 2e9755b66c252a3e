//! JSON Schemas of the types that JSON holds as text.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::Bdf;
use crate::digest::{Md5Digest, Sha256Digest};
use crate::firmware::{FirmwareVersion, UsbId};

/// Implements the schema of a type that is printed as text of a certain form.
macro_rules! text {
    ($type:ident, $pattern:literal, $description:literal) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $description })
            }
        }
    };
}

text!(Sha256Digest, "^[0-9a-f]{64}$", "A SHA-256 in hexadecimal.");
text!(Md5Digest, "^[0-9a-f]{32}$", "An MD5 in hexadecimal.");
text!(UsbId, "^[0-9A-F]{4}:[0-9A-F]{4}$", "idVendor and idProduct in hexadecimal.");
text!(FirmwareVersion, r"^[0-9A-F]{6}(\.[0-9A-F]{2}){3}$", "A firmware's version: its date, then its line.");
text!(Bdf, r"^[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", "Bus, device and function in hexadecimal.");
