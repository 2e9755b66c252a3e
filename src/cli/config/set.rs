//! The `asmpatch config set` command: changes a unit's serial number or names.

use std::str::FromStr;

use crate::failure::{AnyFailure, Failure};
use crate::flash::decide::NewFirmware;
use crate::flash::firmware_kind::{Firmware, Rewritable};
use crate::flash::observe::Observation;
use crate::flash::plan::FlashPlan;
use crate::flash::recovery::Writes;
use crate::flash::session::{PreparedUnit, UnitOutcome, WritingJob};
use crate::suggest::{nearest, question};
use crate::unit::ConnectError;
use asm2464::Kind;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigBlockError, ConfigField, FieldKind, Image, known_blocks};

use super::block;
use crate::cli::context::Context;
use crate::cli::errors::Exit;
use crate::cli::flash::{Choice, WritingArgs, WritingRun};
use crate::cli::known::PatchDirs;

/// Change a unit's serial number or names.
///
/// The fields are in a part of the flash that can't be erased without the firmware, so this writes the unit's own
/// firmware again: with a backup, a question, a readback and a restart, by the rules of `asmpatch flash`. A serial
/// number that another unit has is refused. Everything else stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch config set serial=LAB-07 --device 3-1.2\n  \
asmpatch config set manufacturer=Lab product='GPU dock 7' --dry-run")]
pub struct Args {
    /// A field and its new value: serial (at most 20 characters), manufacturer (36), t10-vendor (8), product (32),
    /// t10-product (16); printable ASCII.
    #[arg(value_name = "FIELD=TEXT", required = true)]
    edits: Vec<Edit>,

    #[command(flatten)]
    writing: WritingArgs,
}

/// A field and its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    field: ConfigField,
    text: String,
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        let names = || {
            let texts = ConfigField::ALL.iter().filter(|field| field.kind() == FieldKind::Text);
            texts.map(|field| field.name())
        };
        let texts = || names().collect::<Vec<_>>().join(", ");
        let (name, text) = argument.split_once('=').ok_or("expected FIELD=TEXT, as in serial=LAB-07")?;
        let unknown =
            || format!("unknown field `{name}`, expected one of {}{}", texts(), question(nearest(name, names())));
        let field = ConfigField::named(name).ok_or_else(unknown)?;
        if field.kind() != FieldKind::Text {
            return Err(format!("`{name}` is not text; `config set` changes {}", texts()));
        }
        if field == ConfigField::Serial && text.trim().is_empty() {
            return Err("a unit without a serial number can't be distinguished from another".to_owned());
        }
        let edit = Self { field, text: text.to_owned() };
        let [mut scratch, _] = known_blocks();
        edit.apply(&mut scratch).map_err(|error| error.to_string())?;
        Ok(edit)
    }
}

impl Edit {
    fn apply(&self, block: &mut ConfigBlock) -> Result<(), ConfigBlockError> {
        block.set_text(self.field, &self.text)
    }
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the unit's firmware and blocks can't be read, and for every reason that stops `flash` before its first
/// write.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let library = PatchDirs::default().load()?;
    let mut run = WritingRun::open(&args.writing, Choice::default(), context)?;
    let unit = match run.examine(|seen| plan(seen, &args.edits)).pop() {
        Some(PreparedUnit { outcome: UnitOutcome::Refused(failure), .. }) => return Err(failure),
        Some(unit) => unit,
        None => return Err(ConnectError::none().into()),
    };
    let image = match &unit.seen {
        Some((_, plan)) => Image::parse(&plan.file)?,
        None => return Err(ConnectError::none().into()),
    };
    let what = args.edits.iter().map(|Edit { field, text }| format!("{}={text}", field.name()).into()).collect();
    let job = WritingJob {
        subject: NewFirmware {
            firmware: Firmware::of(&image, &library),
            rewritable: Rewritable::within(&image, &context.proof_budget())?,
            is_unknown: false,
            from_virtual: false,
            serial_given: args.edits.iter().any(|edit| edit.field == ConfigField::Serial),
        },
        library,
        source: format!("the unit's own, SHA-256 {}", context.digest(&Sha256Digest::of(&image.to_file()))),
        commands: args.writing.commands(Writes::Fields, what, None),
    };
    run.carry_out(vec![unit], &job)
}

/// Plans to write the unit's own firmware and blocks, with the edits applied.
fn plan(seen: &Observation, edits: &[Edit]) -> Result<FlashPlan, AnyFailure> {
    let device = seen.attached.location.to_string();
    for index in BlockIndex::ALL {
        block(&device, seen.attached.state, &seen.blocks, index)?;
    }
    let image = seen.running.image().ok_or_else(|| {
        let label = Kind::Refused.code("asmpatch::config::no_firmware");
        Failure::new(label, format!("{device}: the unit's flash has no firmware that passes the chip's checks"))
    })?;
    let edit = |block: &mut ConfigBlock| edits.iter().try_for_each(|edit| edit.apply(block));
    Ok(FlashPlan::flash(seen.attached.clone(), seen.blocks, None, &image, edit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_names_a_text_field_and_a_text_that_fits_it() {
        let edit: Edit = "product=a = b".parse().unwrap();
        assert_eq!(edit, Edit { field: ConfigField::Product, text: "a = b".to_owned() });
        assert_eq!("manufacturer=".parse::<Edit>().unwrap().text, "");
        for (argument, expected) in [
            ("serial", "expected FIELD=TEXT"),
            (
                "Serial=1",
                "unknown field `Serial`, expected one of serial, manufacturer, t10-vendor, product, t10-product",
            ),
            ("seriel=1", "t10-product (did you mean `serial`?)"),
            ("vendor-id=0x174C", "`vendor-id` is not text"),
            ("flags=cfff02ff", "`flags` is not text"),
            ("serial= ", "can't be distinguished from another"),
            ("serial=123456789012345678901", "at most 20 ASCII characters"),
            ("product=Größe", "ASCII"),
            ("t10-vendor=\u{1b}[2J", "ASCII"),
        ] {
            let message = argument.parse::<Edit>().unwrap_err();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
