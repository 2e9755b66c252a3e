//! The `asmpatch config` command: shows and changes the fields of one unit's configuration.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::flash::access;
use crate::flash::examined::NewFirmware;
use crate::flash::observe;
use crate::flash::wanted::Wanted;
use crate::patch::{ConfigEdits, ConfigValue};
use crate::suggest::question;
use crate::unit::NoUnit;
use asm2464::AnyFailure;
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{ConfigBlock, ConfigField, Image, known_blocks};
use asm2464_host::bridge::UnitInfo;
use serde::Serialize;

use crate::cli::commands::flash::{Choice, WritingArgs, WritingRun};
use crate::cli::given::arguments::{PatchDirs, PortArgs};
use crate::cli::given::context::Context;
use crate::cli::words::errors::Exit;
use crate::cli::words::{interrupt, print, table};

/// Read and change one unit's configuration: its serial number, names and IDs.
#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Show the fields of a unit's configuration.
    ///
    /// Reads both configuration blocks and writes nothing. A unit in its boot loader can't return them. Fields whose
    /// place is a guess are marked with ?, and bytes that no field names are shown with their place.
    #[command(after_help = "Examples:\n  asmpatch config get\n  asmpatch config get serial --device 3-1.2")]
    Get {
        /// Print only the value of this field, such as serial, product, vendor-id or usb4-model.
        #[arg(value_parser = parse_field)]
        field: Option<ConfigField>,

        #[command(flatten)]
        port: PortArgs,

        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change a unit's serial number, names, IDs or revisions.
    ///
    /// The fields are in a part of the flash that can't be erased without the firmware, so this writes the unit's own
    /// firmware again: with a backup, a question, a readback and a restart, by the rules of `asmpatch flash`. A serial
    /// number that another unit has is refused. Everything else stays as it is. After vendor-id or product-id the dock
    /// has another USB ID: name it with --usb-id, in this command and in later ones, if asmpatch doesn't know it.
    #[command(after_help = "Examples:\n  asmpatch config set serial=LAB-07 --device 3-1.2\n  \
asmpatch config set manufacturer=Lab product='GPU dock 7' --dry-run\n  \
asmpatch config set usb4-vendor=Lab usb4-vendor-id=0x174C\n  \
asmpatch config set vendor-id=0x1209 product-id=0x0001 --usb-id 1209:0001")]
    Set {
        /// A field and its new value: a text of printable ASCII, a number as in 0x174C, or bytes in hexadecimal. The
        /// fields are those of `asmpatch config get`.
        #[arg(value_name = "FIELD=VALUE", required = true)]
        edits: Vec<Edit>,

        #[command(flatten)]
        writing: WritingArgs,
    },
}

impl ConfigCommand {
    /// Whether the command only shows something.
    pub const fn only_prints(&self) -> bool {
        matches!(self, Self::Get { .. })
    }
}

fn parse_field(name: &str) -> Result<ConfigField, String> {
    let names = || ConfigField::ALL.iter().map(|field| field.name());
    let meant = || question(name, names());
    ConfigField::named(name)
        .ok_or_else(|| format!("expected one of {}{}", names().collect::<Vec<_>>().join(", "), meant()))
}

/// A field and its new value, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    field: ConfigField,
    value: ConfigValue,
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        let (name, text) = argument.split_once('=').ok_or("expected FIELD=VALUE, as in serial=LAB-07")?;
        let field = parse_field(name).map_err(|expected| format!("unknown field `{name}`, {expected}"))?;
        if field == ConfigField::Serial && text.trim().is_empty() {
            return Err("a unit without a serial number can't be distinguished from another".to_owned());
        }
        Ok(Self { field, value: ConfigValue::typed(field, text)? })
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, its disk is in use, or it returns no valid blocks. `set` also fails for every reason that
/// stops `flash` before its first write.
pub fn run(command: &ConfigCommand, context: &Context) -> Result<Exit, AnyFailure> {
    match command {
        ConfigCommand::Get { field, port, json } => get(*field, port, *json),
        ConfigCommand::Set { edits, writing } => set(edits, writing, context),
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct ConfigJson<'a> {
    #[serde(flatten)]
    unit: &'a UnitInfo,
    /// The fields of both configuration blocks by name.
    fields: BTreeMap<&'a str, ConfigValue>,
    /// The bytes that no field names, in hexadecimal, by their place, such as `1:0x67`: block 1, byte 0x67.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unnamed: BTreeMap<String, String>,
}

impl print::Document for ConfigJson<'_> {}

fn words(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) => text.shown().to_string(),
        ConfigValue::Number(number) => format!("0x{number:04X}"),
        ConfigValue::Bytes(bytes) => to_hex(bytes, ""),
    }
}

/// The bytes that no field names, each with its place. Erased ones are left out.
fn unnamed(blocks: &[ConfigBlock; 2]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for block in blocks {
        for range in block.unnamed() {
            let bytes = &block.bytes()[range.clone()];
            if bytes.iter().any(|byte| *byte != 0xFF) {
                found.push((format!("{}:{:#04x}", block.index().number(), range.start), to_hex(bytes, "")));
            }
        }
    }
    found
}

fn get(field: Option<ConfigField>, port: &PortArgs, json: bool) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = port.open()?;
    let device = port.location().to_string();
    let (unit, blocks) = observe::configuration(&mut *port, interrupt)?;
    let blocks = access::parsed(&blocks, &unit)?;
    let value = |field: ConfigField| ConfigValue::of(field.block().of(&blocks), field);
    if json {
        let shown = field.as_ref().map_or(ConfigField::ALL, std::slice::from_ref);
        let fields = shown.iter().map(|field| (field.name(), value(*field))).collect();
        let unnamed = if field.is_some() { BTreeMap::new() } else { unnamed(&blocks).into_iter().collect() };
        print::json(&ConfigJson { unit: &unit, fields, unnamed });
    } else if let Some(field) = field {
        outln!("{}", words(&value(field)));
    } else {
        outln!("{}: {} ({})", device.shown(), unit.id, unit.state);
        let mut lines: Vec<(String, String)> = Vec::new();
        for field in ConfigField::ALL {
            let guess = if field.is_guess() { "?" } else { "" };
            lines.push((format!("{}{guess}", field.name()), words(&value(*field))));
        }
        lines.extend(unnamed(&blocks));
        if blocks[0].field(ConfigField::Serial) == known_blocks()[0].field(ConfigField::Serial) {
            let note = "tinygrad's patch.py gives every unit this serial number: `config set serial=TEXT`";
            lines.push(("note".to_owned(), note.to_owned()));
        }
        table::print_labelled(2, lines);
    }
    Ok(Exit::Done)
}

fn set(edits: &[Edit], writing: &WritingArgs, context: &Context) -> Result<Exit, AnyFailure> {
    let images = context.images(PatchDirs::default().load()?);
    let mut changes = ConfigEdits::default();
    for edit in edits {
        changes.set(edit.field, edit.value.clone());
    }
    let wanted = Wanted::Fields(changes);
    let mut writing_run = WritingRun::open(writing, Choice::default(), context)?;
    let mut unit = writing_run.examine(&wanted, &images).pop().ok_or_else(NoUnit::now)?;
    let examined = unit.examined?;
    let proof = images.prove(&Image::parse(&examined.plan.file)?)?;
    unit.examined = Ok(examined);
    let source = format!("the unit's own, SHA-256 {}", context.digest(&proof.known.sha256));
    let subject = NewFirmware::of(proof, None, [], wanted.gives_serial());
    let job = writing_run.job(wanted, subject, images, source, None)?;
    writing_run.carry_out(vec![unit], &job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_names_a_field_and_a_value_that_fits_it() {
        let edit: Edit = "product=a = b".parse().unwrap();
        assert_eq!((edit.field, edit.value), (ConfigField::Product, ConfigValue::Text("a = b".to_owned())));
        assert_eq!("manufacturer=".parse::<Edit>().unwrap().value, ConfigValue::Text(String::new()));
        assert_eq!("vendor-id=0x1209".parse::<Edit>().unwrap().value, ConfigValue::Number(0x1209));
        for (argument, expected) in [
            ("serial", "expected FIELD=VALUE"),
            ("Serial=1", "unknown field `Serial`, expected one of serial, manufacturer, t10-vendor, product"),
            ("seriel=1", "u4-mode (did you mean `serial`?)"),
            ("vendor-id=174C", "`vendor-id` takes a number from 0 to 0xFFFF"),
            ("flags=cfff02", "`flags` takes 4 bytes in hexadecimal"),
            ("serial= ", "can't be distinguished from another"),
            ("serial=123456789012345678901", "at most 20 printable ASCII characters"),
            ("product=Größe", "ASCII"),
            ("t10-vendor=\u{1b}[2J", "ASCII"),
        ] {
            let message = argument.parse::<Edit>().unwrap_err();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
