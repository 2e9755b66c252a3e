//! Generates `schemas/`: the JSON Schemas of `--json` output, derived from the printed types.
//!
//! After an intended change of an output, run `SCHEMAS=overwrite cargo test --lib schemas` and read the difference
//! before you commit it. If a key is removed, or changes its type or its meaning, raise [`Document::VERSION`], which
//! starts a new file.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use crate::fetch::Md5Digest;
use asm2464::Bdf;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::{FirmwareVersion, UsbId};
use asm2464_host::usb::KnownDevice;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::cli::commands::{
    backup, bench, config, disasm, doctor, download, flash, info, list, patch, pcie, reset, restore, run, unpatch,
    verify, wrap, xdata,
};
use crate::cli::words::errors;
use crate::cli::words::print::Document;

/// Builds the schema of one document. `text` says what prints it.
fn document<T: JsonSchema>(name: &str, version: u32, text: &str) -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    // A document of one kind or another has only what each kind has.
    let object = schema.as_object_mut().unwrap_or_else(|| panic!("{name}: a schema is an object"));
    object.entry("properties").or_insert_with(|| json!({}));
    let mut parts = BTreeSet::new();
    find_parts(&schema, &mut parts);
    close(&mut schema, true, &parts);
    reword(&mut schema);
    let Value::Object(mut schema) = schema else { panic!("{name}: a schema is an object") };
    let properties = schema["properties"].as_object_mut().unwrap();
    properties.insert("schema".into(), json!({ "const": version, "description": "The version of this schema." }));
    let required = schema.entry("required").or_insert_with(|| json!([]));
    let required = required.as_array_mut().unwrap();
    required.retain(|key| key != "schema");
    required.insert(0, "schema".into());
    schema.insert("$id".into(), format!("urn:asmpatch:{name}:{version}").into());
    schema.insert("title".into(), name.into());
    schema.insert("description".into(), text.into());
    schema
}

/// Takes out of the schema of a document what stands at the head of its file.
fn head_of(document: &mut Map<String, Value>) -> Map<String, Value> {
    let keys = ["$schema", "$id", "title", "description", "$defs"];
    keys.into_iter().filter_map(|key| document.remove_entry(key)).collect()
}

/// Builds the schema of an array of such documents.
fn array_of(mut document: Map<String, Value>) -> Map<String, Value> {
    let mut array = head_of(&mut document);
    array.insert("type".into(), "array".into());
    array.insert("items".into(), document.into());
    array
}

/// Builds the schema of such a document or of an array of them.
fn one_or_array_of(mut document: Map<String, Value>) -> Map<String, Value> {
    let mut either = head_of(&mut document);
    let definitions = either.entry("$defs").or_insert_with(|| json!({})).as_object_mut().unwrap();
    definitions.insert("Document".into(), document.into());
    let one = json!({ "$ref": "#/$defs/Document" });
    either.insert("anyOf".into(), json!([one, { "type": "array", "items": one }]));
    either
}

/// Turns doc comments into descriptions: on one line, and in JSON's terms.
fn reword(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if key == "description" => {
                        *text = text
                            .replace("\n\n", " ")
                            .replace('\n', " ")
                            .replace("`None`", "nothing")
                            .replace("[`", "`")
                            .replace("`]", "`");
                    }
                    other => reword(other),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(reword),
        _ => {}
    }
}

/// Finds the definitions that describe only some keys of an object: `$ref`, or several in `anyOf`, beside `properties`.
fn find_parts(schema: &Value, parts: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let (Some(Value::String(reference)), true) = (object.get("$ref"), object.contains_key("properties")) {
                parts.extend(reference.strip_prefix("#/$defs/").map(str::to_owned));
            }
            if let (Some(Value::Array(kinds)), true) = (object.get("anyOf"), object.contains_key("properties")) {
                let references = kinds.iter().filter_map(|kind| kind["$ref"].as_str()?.strip_prefix("#/$defs/"));
                parts.extend(references.map(str::to_owned));
            }
            object.values().for_each(|inner| find_parts(inner, parts));
        }
        Value::Array(values) => values.iter().for_each(|inner| find_parts(inner, parts)),
        _ => {}
    }
}

/// Marks each object with known keys as having no others. `is_whole` is false for a schema that describes only some
/// keys of an object, as the definitions in `parts` do.
fn close(schema: &mut Value, is_whole: bool, parts: &BTreeSet<String>) {
    let Some(object) = schema.as_object_mut() else { return };
    let has_keys = object.contains_key("properties");
    let in_parts = ["oneOf", "anyOf", "allOf", "$ref"].iter().any(|key| object.contains_key(*key));
    if has_keys && is_whole {
        object.remove("additionalProperties");
        object.insert(if in_parts { "unevaluatedProperties" } else { "additionalProperties" }.into(), false.into());
    }
    for (key, value) in object {
        match (key.as_str(), value) {
            ("$defs", Value::Object(inner)) => {
                inner.iter_mut().for_each(|(name, inner)| close(inner, !parts.contains(name), parts));
            }
            ("properties", Value::Object(inner)) => inner.values_mut().for_each(|inner| close(inner, true, parts)),
            ("oneOf" | "anyOf" | "allOf", Value::Array(inner)) => {
                inner.iter_mut().for_each(|inner| close(inner, is_whole && !has_keys, parts));
            }
            ("prefixItems", Value::Array(inner)) => inner.iter_mut().for_each(|inner| close(inner, true, parts)),
            ("items" | "additionalProperties", inner) => close(inner, true, parts),
            _ => {}
        }
    }
}

/// Compares a schema with its file, or overwrites the file.
fn is_committed(schema: &Map<String, Value>, version: u32) -> bool {
    let name = schema["title"].as_str().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.v{version}.json"));
    let text = format!("{:#}\n", Value::Object(schema.clone()));
    if env::var_os("SCHEMAS").is_some_and(|wish| wish == "overwrite") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &text).unwrap();
    }
    fs::read_to_string(&path).is_ok_and(|there| there == text)
}

#[test]
fn a_text_that_is_printed_fits_the_pattern_of_its_schema() {
    fn fits<T: JsonSchema + serde::Serialize>(value: T) -> bool {
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<T>();
        jsonschema::is_valid(schema.as_value(), &serde_json::to_value(value).unwrap())
    }
    assert!(fits(Sha256Digest([0xAB; 32])) && fits(Md5Digest([0xAB; 16])));
    assert!(fits(UsbId { vendor: 0xABCD, product: 0xEF01 }) && fits(FirmwareVersion([0xAB; 6])));
    assert!(fits(Bdf::new(0xAB, 31, 7)));
}

#[test]
fn the_schemas_are_those_of_the_types_that_are_printed() {
    let mut stale = Vec::new();
    let mut check = |schema: Map<String, Value>, version: u32| {
        if !is_committed(&schema, version) {
            stale.push(schema["title"].clone());
        }
    };
    macro_rules! one {
        ($name:literal, $type:ty, $text:literal) => {
            check(document::<$type>($name, <$type>::VERSION, $text), <$type>::VERSION);
        };
    }
    macro_rules! each {
        ($name:literal, $type:ty, $text:literal) => {
            check(array_of(document::<$type>($name, <$type>::VERSION, $text)), <$type>::VERSION);
        };
    }
    one!("error", errors::FailureJson, "What any command prints with --json where it fails before it has a result.");
    let units = "asmpatch backup --json: an object; with --all, or for several units, an array with an element a unit";
    let version = backup::UnitJson::VERSION;
    check(one_or_array_of(document::<backup::UnitJson>("backup", version, units)), version);
    each!("backups", backup::ListedJson, "asmpatch backup --list --json: an element a backup");
    one!("bench", bench::BenchJson<'_>, "asmpatch bench --json");
    one!("bench-soak", crate::bench::soak::SoakReport, "asmpatch bench --soak --json");
    one!("config", config::ConfigJson<'_>, "asmpatch config get --json");
    each!("devices", &KnownDevice, "asmpatch list --known --json: an element a USB ID");
    one!("disasm", disasm::DisasmReport<'_>, "asmpatch disasm --json");
    let units = "asmpatch doctor --json: an object; with --all, or for several units, an array with an element a unit";
    let version = doctor::DoctorJson::VERSION;
    check(one_or_array_of(document::<doctor::DoctorJson>("doctor", version, units)), version);
    one!("doctor-fix", doctor::fix::closing::DoctorFixJson, "asmpatch doctor --fix --json");
    one!("download", download::DownloadReport<'_>, "asmpatch download --json");
    each!(
        "flash",
        flash::show::UnitJson<'_>,
        "asmpatch flash, restore and config set --json: an element a unit. A command that fails before it knows its units, such as for a file that isn't there, prints the object of error.v2 in place of the array: the failure is no unit's"
    );
    each!(
        "restore-list",
        restore::OwnBackupsJson,
        "asmpatch restore --json without a folder: an element a unit, with the backups that fit it"
    );
    each!("images", &crate::fetch::Manifest, "asmpatch download --list --json: an element an image");
    one!("info", info::InfoJson<'_>, "asmpatch info --json");
    one!("list", list::ListJson<'_>, "asmpatch list --json");
    one!("patch", patch::PatchReport<'_>, "asmpatch patch --json");
    each!("patches", &crate::patch::Patch, "asmpatch patch --list --json: an element a patch");
    one!("pcie", pcie::show::PcieJson<'_>, "asmpatch pcie and pcie reset --json");
    one!("pcie-memory", pcie::MemoryJson<'_>, "asmpatch pcie read and pcie write --json");
    one!("pcie-power", pcie::power::PowerJson<'_>, "asmpatch pcie off and pcie on --json");
    one!("xdata", xdata::XdataJson<'_>, "asmpatch xdata read and write --json");
    one!("reset", reset::ResetJson<'_>, "asmpatch reset --json");
    one!("run", run::RunReport, "asmpatch run --json");
    one!("unpatch", unpatch::UnpatchJson<'_>, "asmpatch unpatch --json");
    each!("verify", verify::VerifyReport<'_>, "asmpatch verify --json: an element a file");
    one!("wrap", wrap::WrapJson, "asmpatch wrap --json");
    let report = crate::doctor::REPORT_SCHEMA;
    check(document::<crate::doctor::Report>("doctor-report", report, "The file of asmpatch doctor --report"), report);
    assert!(stale.is_empty(), "out of date: {stale:?}; run `SCHEMAS=overwrite cargo test --lib schemas`");
}
