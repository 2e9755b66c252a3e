//! Changes to the configuration blocks, field by field.

use std::collections::BTreeMap;

use asm2464::Failure;
use asm2464::digest::{parse_hex, to_hex};
use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, FieldKind};
use asm2464::text::parse_number;
use asm2464_files::toml_file;
use derive_more::Display;
use serde::{Deserialize, Serialize, Serializer};

/// The value of a field. Displays as patch files and receipts have it; JSON has bytes as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[serde(untagged)]
pub enum ConfigValue {
    /// Printable ASCII, at most as long as the field.
    #[display("{}", toml_file::string(_0))]
    Text(String),
    /// A 16-bit number.
    #[display("0x{_0:04X}")]
    Number(u16),
    /// As many bytes as the field has.
    #[display("\"{}\"", to_hex(_0, ""))]
    Bytes(#[serde(serialize_with = "as_hex")] Vec<u8>),
}

pub(super) fn as_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes, ""))
}

impl ConfigValue {
    /// Reads the value that a block has.
    pub fn of(block: &ConfigBlock, field: ConfigField) -> Self {
        match field.kind() {
            FieldKind::Text => Self::Text(block.text(field)),
            FieldKind::U16 => Self::Number(block.number(field)),
            FieldKind::Bytes => Self::Bytes(block.field(field).to_vec()),
        }
    }

    /// Reads the value of a field as it is typed: a text, a number as `0x174C` or `5964`, or bytes in hexadecimal.
    ///
    /// # Errors
    /// Says what the field takes.
    pub fn typed(field: ConfigField, text: &str) -> Result<Self, String> {
        match field.kind() {
            FieldKind::Text => Self::of_text(field, text.to_owned()),
            FieldKind::Bytes => Self::of_hex(field, text),
            FieldKind::U16 => {
                let number = parse_number(text).and_then(|number| u16::try_from(number).ok());
                number.map(Self::Number).ok_or_else(|| Self::expected(field))
            }
        }
    }

    fn of_text(field: ConfigField, text: String) -> Result<Self, String> {
        if field.accepts(&text) {
            return Ok(Self::Text(text));
        }
        let (name, len) = (field.name(), field.range().len());
        Err(format!("`{name}` takes at most {len} printable ASCII characters, {text:?} does not fit"))
    }

    fn of_hex(field: ConfigField, text: &str) -> Result<Self, String> {
        match parse_hex(text) {
            Ok(bytes) if bytes.len() == field.range().len() => Ok(Self::Bytes(bytes)),
            _ => Err(Self::expected(field)),
        }
    }

    fn expected(field: ConfigField) -> String {
        match field.kind() {
            FieldKind::Bytes => format!("`{}` takes {} bytes in hexadecimal", field.name(), field.range().len()),
            kind => format!("`{}` takes {kind}", field.name()),
        }
    }

    /// Writes the value into its field, and recomputes the block's checksum.
    fn write(&self, field: ConfigField, block: &mut ConfigBlock) -> Result<(), Failure> {
        match self {
            Self::Text(text) => block.set_text(field, text),
            Self::Number(number) => block.set_number(field, *number),
            Self::Bytes(bytes) => block.set_bytes(field, bytes),
        }
    }
}

/// Fields of the configuration blocks with their new values. Fields that are not named keep the unit's values. A patch
/// file names fields of block 0 alone: block 1 has a unit's own identity.
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

    /// Sets a field. A later value replaces an earlier one.
    pub fn set(&mut self, field: ConfigField, value: ConfigValue) {
        self.0.insert(field, value);
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

    /// Writes the fields into their blocks, and recomputes the checksums.
    ///
    /// # Errors
    /// `asm2464::config::kind` if a value has another kind than its field.
    pub fn apply(&self, blocks: &mut [ConfigBlock; 2]) -> Result<(), Failure> {
        for (field, value) in self.iter() {
            value.write(field, &mut blocks[usize::from(field.block().number())])?;
        }
        Ok(())
    }
}

impl TryFrom<BTreeMap<String, TomlValue>> for ConfigEdits {
    type Error = String;

    fn try_from(table: BTreeMap<String, TomlValue>) -> Result<Self, String> {
        let mut edits = Self::default();
        for (name, value) in table {
            let Some(field) = ConfigField::named(&name).filter(|field| field.block() == BlockIndex::Zero) else {
                let names: Vec<_> = ConfigField::of(BlockIndex::Zero).map(ConfigField::name).collect();
                return Err(format!("unknown field `{name}`, expected one of {}", names.join(", ")));
            };
            let value = match (field.kind(), value) {
                (FieldKind::Text, TomlValue::Text(text)) => ConfigValue::of_text(field, text)?,
                (FieldKind::Bytes, TomlValue::Text(text)) => ConfigValue::of_hex(field, &text)?,
                (FieldKind::U16, TomlValue::Number(number)) => {
                    ConfigValue::Number(u16::try_from(number).map_err(|_| ConfigValue::expected(field))?)
                }
                _ => return Err(ConfigValue::expected(field)),
            };
            edits.set(field, value);
        }
        Ok(edits)
    }
}

/// Serialises for `--json`: field names map to texts and numbers, and bytes become hexadecimal text.
impl Serialize for ConfigEdits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(field, value)| (field.name(), value)))
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for ConfigValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [String::json_schema(generator), u16::json_schema(generator)],
            "description": "A field's value: numbers as numbers, unknown bytes as hexadecimal digits."
        })
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

#[derive(Deserialize)]
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
        let mut blocks = known_blocks();
        let [before, one] = blocks;
        let edits = edits("vendor-id = 0x174C\nproduct = 'dock'\nflags = '01020304'").unwrap();
        edits.apply(&mut blocks).unwrap();
        let block = blocks[0];
        assert_eq!(block.usb_id(), UsbId { vendor: 0x174C, product: 1 });
        assert_eq!(block.text(ConfigField::Product), "dock");
        assert_eq!(block.field(ConfigField::Flags), [1, 2, 3, 4]);
        assert_eq!(block.field(ConfigField::Serial), before.field(ConfigField::Serial));
        assert_eq!(blocks[1], one);
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
            ("flags = 'cfff02'", "`flags` takes 4 bytes in hexadecimal"),
            ("usb4-unique-id = '0102030405060708'", "unknown field `usb4-unique-id`"),
        ] {
            let message = edits(text).unwrap_err();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }

    #[test]
    fn a_typed_value_is_read_by_its_fields_kind() {
        let typed = |name: &str, text: &str| ConfigValue::typed(ConfigField::named(name).unwrap(), text);
        assert_eq!(typed("usb4-vendor", "a = b"), Ok(ConfigValue::Text("a = b".to_owned())));
        assert_eq!(typed("vendor-id", "0x174C"), Ok(ConfigValue::Number(0x174C)));
        assert_eq!(typed("vendor-id", "5964"), Ok(ConfigValue::Number(0x174C)));
        assert_eq!(typed("hardware-revision", "5a"), Ok(ConfigValue::Bytes(vec![0x5A])));
        for (name, text, expected) in [
            ("vendor-id", "174C", "a number from 0 to 0xFFFF"),
            ("vendor-id", "0x10000", "a number from 0 to 0xFFFF"),
            ("usb4-unique-id", "0102", "5 bytes in hexadecimal"),
            ("usb4-model", "Größe", "printable ASCII"),
        ] {
            let message = typed(name, text).unwrap_err();
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
