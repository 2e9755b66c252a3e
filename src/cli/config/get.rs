//! The `asmpatch config get` command: shows the fields of a unit's configuration.

use std::collections::BTreeMap;

use crate::failure::AnyFailure;
use crate::flash::observe;
use crate::suggest::{nearest, question};
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, FieldKind, known_blocks};
use asm2464_host::bridge::UnitInfo;
use serde::Serialize;

use super::block;
use crate::cli::device::PortArgs;
use crate::cli::errors::Exit;
use crate::cli::interrupt;
use crate::cli::{print, table};

/// Show the fields of a unit's configuration.
///
/// Reads configuration block 0 and writes nothing. A unit in its boot loader can't return it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch config get\n  asmpatch config get serial --device 3-1.2")]
pub struct Args {
    /// Print only the value of this field: serial, manufacturer, t10-vendor, product, t10-product, vendor-id,
    /// product-id, device-release or flags.
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
    /// The fields of configuration block 0 by name.
    fields: BTreeMap<&'a str, Value>,
}

impl print::Document for ConfigJson<'_> {}

/// A field's value: numbers as numbers, unknown bytes as hexadecimal digits.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum Value {
    Text(String),
    Number(u16),
}

impl Value {
    fn of(block: &ConfigBlock, field: ConfigField) -> Self {
        match field.kind() {
            FieldKind::Text => Self::Text(block.text(field)),
            FieldKind::U16 => Self::Number(block.number(field)),
            FieldKind::Bytes => Self::Text(to_hex(block.field(field), "")),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Text(text) => text.shown().to_string(),
            Self::Number(number) => format!("0x{number:04X}"),
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, its disk is in use, or it returns no valid block.
pub fn run(args: &Args) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let device = port.location().to_string();
    let (unit, blocks) = observe::configuration(&mut *port, interrupt)?;
    let zero = block(&device, unit.state, &blocks, BlockIndex::Zero)?;
    let shown = args.field.as_ref().map_or(ConfigField::ALL, std::slice::from_ref);
    let value = |field: ConfigField| Value::of(&zero, field);
    if args.json {
        let fields = shown.iter().map(|field| (field.name(), value(*field))).collect();
        print::json(&ConfigJson { unit: &unit, fields });
    } else if let Some(field) = args.field {
        outln!("{}", value(field).words());
    } else {
        outln!("{}: {} ({})", device.shown(), unit.id, unit.state);
        let mut lines: Vec<_> = shown.iter().map(|field| (field.name(), value(*field).words())).collect();
        if zero.field(ConfigField::Serial) == known_blocks()[0].field(ConfigField::Serial) {
            let note = "tinygrad's patch.py gives every unit this serial number: `asmpatch config set serial=TEXT`";
            lines.push(("note", note.to_owned()));
        }
        table::print_labelled(2, lines);
    }
    Ok(Exit::Done)
}
