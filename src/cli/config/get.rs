//! The `asmpatch config get` command: shows the fields of a unit's configuration.

use std::collections::BTreeMap;

use crate::flash::observe;
use crate::patch::ConfigValue;
use crate::suggest::{nearest, question};
use asm2464::AnyFailure;
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{ConfigBlock, ConfigField, known_blocks};
use asm2464_host::bridge::UnitInfo;
use serde::Serialize;

use super::read;
use crate::cli::arguments::PortArgs;
use crate::cli::errors::Exit;
use crate::cli::interrupt;
use crate::cli::{print, table};

/// Show the fields of a unit's configuration.
///
/// Reads both configuration blocks and writes nothing. A unit in its boot loader can't return them. Fields whose place
/// is a guess are marked with ?, and bytes that no field names are shown with their place.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch config get\n  asmpatch config get serial --device 3-1.2")]
pub struct Args {
    /// Print only the value of this field, such as serial, product, vendor-id or usb4-model.
    #[arg(value_parser = parse_field)]
    field: Option<ConfigField>,

    #[command(flatten)]
    port: PortArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn parse_field(name: &str) -> Result<ConfigField, String> {
    let names = || ConfigField::ALL.iter().map(|field| field.name());
    let meant = || question(nearest(name, names()));
    ConfigField::named(name)
        .ok_or_else(|| format!("expected one of {}{}", names().collect::<Vec<_>>().join(", "), meant()))
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

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, its disk is in use, or it returns no valid blocks.
pub fn run(args: &Args) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let device = port.location().to_string();
    let (unit, blocks) = observe::configuration(&mut *port, interrupt)?;
    let blocks = read(&device, unit.state, &blocks)?;
    let value = |field: ConfigField| ConfigValue::of(&blocks[usize::from(field.block().number())], field);
    if args.json {
        let shown = args.field.as_ref().map_or(ConfigField::ALL, std::slice::from_ref);
        let fields = shown.iter().map(|field| (field.name(), value(*field))).collect();
        let unnamed = if args.field.is_some() { BTreeMap::new() } else { unnamed(&blocks).into_iter().collect() };
        print::json(&ConfigJson { unit: &unit, fields, unnamed });
    } else if let Some(field) = args.field {
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
            let note = "tinygrad's patch.py gives every unit this serial number: `asmpatch config set serial=TEXT`";
            lines.push(("note".to_owned(), note.to_owned()));
        }
        table::print_labelled(2, lines);
    }
    Ok(Exit::Done)
}
