//! Changes to configuration block 0, field by field.

use std::collections::BTreeMap;

use asm2464::digest::{parse_hex, to_hex};
use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigBlockError, ConfigField, FieldKind};
use asm2464_dock::files::toml_file;
use derive_more::Display;
use serde::{Deserialize, Serialize, Serializer};

/// The new value of a field. Displays as patch files and receipts have it.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum ConfigValue {
    /// Printable ASCII, at most as long as the field.
    #[display("{}", toml_file::string(_0))]
    Text(String),
    /// A 16-bit number.
    #[display("0x{_0:04X}")]
    Number(u16),
    /// As many bytes as the field has.
    #[display("\"{}\"", to_hex(_0, ""))]
    Bytes(Vec<u8>),
}

/// Fields of configuration block 0 with their new values. Fields that are not named keep the unit's values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, TomlValue>")]
pub struct ConfigEdits(BTreeMap<ConfigField, ConfigValue>);

impl ConfigEdits {
    /// Whether there are no edits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields and their values, in the order of the block.
    pub fn iter(&self) -> impl Iterator<Item = (ConfigField, &ConfigValue)> {
        self.0.iter().map(|(field, value)| (*field, value))
    }

    /// Returns a field's new value, if it changes.
    pub fn get(&self, field: ConfigField) -> Option<&ConfigValue> {
        self.0.get(&field)
    }

    /// Adds the edits of another patch. Returns the field as an error if both name it with different values.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), ConfigField> {
        for (field, value) in other.iter() {
            if self.0.insert(field, value.clone()).is_some_and(|before| before != *value) {
                return Err(field);
            }
        }
        Ok(())
    }

    /// Writes the fields into a block and recomputes its checksum.
    ///
    /// # Errors
    /// [`ConfigBlockError::Magic`] if the block is not block 0, which the fields belong to.
    pub fn apply(&self, block: &mut ConfigBlock) -> Result<(), ConfigBlockError> {
        if block.index() != BlockIndex::Zero {
            return Err(ConfigBlockError::Magic { index: BlockIndex::Zero, found: block.index().magic() });
        }
        for (field, value) in self.iter() {
            match value {
                ConfigValue::Text(text) => block.set_text(field, text)?,
                ConfigValue::Number(number) => block.set_number(field, *number)?,
                ConfigValue::Bytes(bytes) => block.set_bytes(field, bytes)?,
            }
        }
        Ok(())
    }
}

impl TryFrom<BTreeMap<String, TomlValue>> for ConfigEdits {
    type Error = String;

    fn try_from(table: BTreeMap<String, TomlValue>) -> Result<Self, String> {
        let edit = |(name, value): (String, TomlValue)| {
            let field = ConfigField::named(&name).ok_or_else(|| {
                let names: Vec<_> = ConfigField::ALL.iter().map(|field| field.name()).collect();
                format!("unknown field `{name}`, expected one of {}", names.join(", "))
            })?;
            let (kind, len) = (field.kind(), field.range().len());
            let value = match (kind, value) {
                (FieldKind::Text, TomlValue::Text(text)) if !field.accepts(&text) => {
                    return Err(format!(
                        "`{name}` takes at most {len} printable ASCII characters, {text:?} does not fit"
                    ));
                }
                (FieldKind::Text, TomlValue::Text(text)) => Some(ConfigValue::Text(text)),
                (FieldKind::U16, TomlValue::Number(number)) => number.try_into().ok().map(ConfigValue::Number),
                (FieldKind::Bytes, TomlValue::Text(text)) => {
                    parse_hex(&text).ok().filter(|bytes| bytes.len() == len).map(ConfigValue::Bytes)
                }
                _ => None,
            };
            let form = if kind == FieldKind::Bytes { "hexadecimal " } else { "" };
            Ok((field, value.ok_or_else(|| format!("`{name}` takes {form}{kind}"))?))
        };
        table.into_iter().map(edit).collect::<Result<_, _>>().map(Self)
    }
}

/// Serialises for `--json`: field names map to texts and numbers, and bytes become hexadecimal text.
impl Serialize for ConfigEdits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(field, value)| {
            let value = match value {
                ConfigValue::Number(number) => TomlValue::Number((*number).into()),
                ConfigValue::Text(text) => TomlValue::Text(text.clone()),
                ConfigValue::Bytes(bytes) => TomlValue::Text(to_hex(bytes, "")),
            };
            (field.name(), value)
        }))
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for ConfigEdits {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConfigEdits".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "additionalProperties": { "type": ["string", "integer"] },
            "description": "Fields of configuration block 0 by name: texts, numbers, bytes in hexadecimal."
        })
    }
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum TomlValue {
    Number(i64),
    Text(String),
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{UsbId, known_blocks};

    use super::*;

    fn edits(text: &str) -> Result<ConfigEdits, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn only_the_named_fields_change() {
        let [mut block, mut one] = known_blocks();
        let before = block;
        let edits = edits("vendor-id = 0x174C\nproduct = 'dock'\nflags = '01020304'").unwrap();
        edits.apply(&mut block).unwrap();
        assert_eq!(block.usb_id(), UsbId { vendor: 0x174C, product: 1 });
        assert_eq!(block.text(ConfigField::Product), "dock");
        assert_eq!(block.field(ConfigField::Flags), [1, 2, 3, 4]);
        assert_eq!(block.field(ConfigField::Serial), before.field(ConfigField::Serial));
        assert!(edits.apply(&mut one).is_err(), "block 1 has other fields");
    }

    #[test]
    fn a_value_that_does_not_fit_its_field_is_refused() {
        for (text, expected) in [
            ("vendor = 1", "unknown field `vendor`, expected one of serial, manufacturer,"),
            ("vendor-id = 0x10000", "`vendor-id` takes a number from 0 to 0xFFFF"),
            ("vendor-id = -1", "`vendor-id` takes a number"),
            ("vendor-id = 'ADD1'", "`vendor-id` takes a number"),
            ("product = 1", "`product` takes a text"),
            ("t10-vendor = 'ninechars'", "at most 8 printable ASCII characters"),
            ("product = 'Größe'", "printable ASCII"),
            ("flags = 'cfff02'", "exact length"),
        ] {
            let message = edits(text).unwrap_err();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn values_print_as_they_are_written() {
        let text = "serial = \"a \\\" b\"\nvendor-id = 0xADD1\nflags = \"cfff02ff\"\n";
        let edits = edits(text).unwrap();
        let printed: String = edits.iter().map(|(field, value)| format!("{} = {value}\n", field.name())).collect();
        assert_eq!(toml::from_str(&printed), Ok(edits));
        assert!(printed.contains("vendor-id = 0xADD1"), "{printed}");
    }
}
