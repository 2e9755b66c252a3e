//! The `asmpatch config set` command: changes fields of a unit's configuration.

use std::str::FromStr;

use crate::flash::decide::NewFirmware;
use crate::flash::observe::Observation;
use crate::flash::plan::FlashPlan;
use crate::flash::recovery::Writes;
use crate::flash::session::{FlashUnit, UnitOutcome};
use crate::image::Images;
use crate::patch::{ConfigEdits, ConfigValue};
use crate::suggest::{nearest, question};
use crate::unit::NoUnit;
use asm2464::firmware::{ConfigField, Image};
use asm2464::{AnyFailure, Failure, Kind};

use super::read;
use crate::cli::arguments::PatchDirs;
use crate::cli::context::Context;
use crate::cli::errors::Exit;
use crate::cli::flash::{Choice, WritingArgs, WritingRun};

/// Change a unit's serial number, names, IDs or revisions.
///
/// The fields are in a part of the flash that can't be erased without the firmware, so this writes the unit's own
/// firmware again: with a backup, a question, a readback and a restart, by the rules of `asmpatch flash`. A serial
/// number that another unit has is refused. Everything else stays as it is. After vendor-id or product-id the dock
/// has another USB ID: name it with --usb-id, in this command and in later ones, if asmpatch doesn't know it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch config set serial=LAB-07 --device 3-1.2\n  \
asmpatch config set manufacturer=Lab product='GPU dock 7' --dry-run\n  \
asmpatch config set usb4-vendor=Lab usb4-vendor-id=0x174C\n  \
asmpatch config set vendor-id=0x1209 product-id=0x0001 --usb-id 1209:0001")]
pub struct Args {
    /// A field and its new value: a text of printable ASCII, a number as in 0x174C, or bytes in hexadecimal. The fields
    /// are those of `asmpatch config get`.
    #[arg(value_name = "FIELD=VALUE", required = true)]
    edits: Vec<Edit>,

    #[command(flatten)]
    writing: WritingArgs,
}

/// A field and its new value, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    field: ConfigField,
    value: ConfigValue,
    text: String,
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        let (name, text) = argument.split_once('=').ok_or("expected FIELD=VALUE, as in serial=LAB-07")?;
        let Some(field) = ConfigField::named(name) else {
            let names: Vec<&str> = ConfigField::ALL.iter().map(|field| field.name()).collect();
            let meant = question(nearest(name, names.iter().copied()));
            return Err(format!("unknown field `{name}`, expected one of {}{meant}", names.join(", ")));
        };
        if field == ConfigField::Serial && text.trim().is_empty() {
            return Err("a unit without a serial number can't be distinguished from another".to_owned());
        }
        Ok(Self { field, value: ConfigValue::typed(field, text)?, text: text.to_owned() })
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the unit's firmware and blocks can't be read, and for every reason that stops `flash` before its first
/// write.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let images = context.images(PatchDirs::default().load()?);
    let mut run = WritingRun::open(&args.writing, Choice::default(), context)?;
    let unit = match run.examine(|seen| plan(seen, &args.edits, &images)).pop() {
        Some(FlashUnit { outcome: UnitOutcome::Refused(failure), .. }) => return Err(failure),
        Some(unit) => unit,
        None => return Err(NoUnit::now().into()),
    };
    let image = match &unit.examined {
        Some(examined) => images.identify(&Image::parse(&examined.plan.file)?),
        None => return Err(NoUnit::now().into()),
    };
    let what = args.edits.iter().map(|Edit { field, text, .. }| format!("{}={text}", field.name()).into()).collect();
    let subject = NewFirmware {
        proof: images.prove(&image)?,
        is_unknown: false,
        from_virtual: false,
        serial_given: args.edits.iter().any(|edit| edit.field == ConfigField::Serial),
    };
    let source = format!("the unit's own, SHA-256 {}", context.digest(&image.sha256));
    let job = run.job(subject, images, source, args.writing.invoked(Writes::Fields, what, None))?;
    run.carry_out(vec![unit], &job)
}

/// Plans to write the unit's own firmware and blocks, with the edits applied.
fn plan(seen: &Observation, edits: &[Edit], images: &Images) -> Result<FlashPlan, AnyFailure> {
    let device = seen.attached.location.to_string();
    read(&device, seen.attached.state, &seen.blocks)?;
    let image = seen.running.image().ok_or_else(|| {
        let label = Kind::Refused.code("asmpatch::config::no_firmware");
        Failure::new(label, format!("{device}: the unit's flash has no firmware that passes the chip's checks"))
    })?;
    let proof = images.prove(&images.identify(&image))?;
    let mut changes = ConfigEdits::default();
    for edit in edits {
        changes.set(edit.field, edit.value.clone());
    }
    Ok(FlashPlan::flash(seen.attached.clone(), seen.blocks, None, &proof, |blocks| changes.apply(blocks))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_names_a_field_and_a_value_that_fits_it() {
        let edit: Edit = "product=a = b".parse().unwrap();
        assert_eq!((edit.field, edit.value), (ConfigField::Product, ConfigValue::Text("a = b".to_owned())));
        assert_eq!("manufacturer=".parse::<Edit>().unwrap().text, "");
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
