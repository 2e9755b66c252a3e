//! The `asmpatch virtual set` command: writes a virtual unit's bridge.toml, in the same words in every shell.

use crate::unit::{self, Selector};
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_dock::virtual_unit::VirtualUnit;

use super::context::Context;
use super::errors::Exit;

/// Set what is behind a virtual unit and what goes wrong: keys of its bridge.toml.
///
/// The next command on the unit finds it so. `asmpatch help virtual-unit` lists the keys. A key without a value takes
/// it out again, so that its default applies.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  asmpatch virtual set power-loss-after=70000 --device virtual:u
  asmpatch virtual set power-loss-after= state=boot-loader --device virtual:u")]
pub struct SetArgs {
    /// The keys and their new values; a text needs no quotes.
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = edit)]
    edits: Vec<(String, String)>,

    /// The virtual unit; the next command makes a new one if it is missing.
    #[arg(long, value_name = "virtual[:DIR]", env = "ASMPATCH_DEVICE", default_value = "virtual")]
    device: Selector,
}

/// Parses `KEY=VALUE`.
fn edit(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, or KEY= to take it out")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the device is no virtual unit, if the result is no scenario, or if the file can't be written.
pub fn run(args: &SetArgs, context: &Context) -> Result<Exit, AnyFailure> {
    let Selector::Virtual(dir) = &args.device else {
        let message = format!("{} is no virtual unit: only those have a bridge.toml", args.device.to_string().shown());
        return Err(Failure::new(Kind::Usage.code("asmpatch::virtual::dock"), message).into());
    };
    let dir = unit::virtual_folder(dir.clone())?;
    VirtualUnit::configure(&dir, &args.edits)?;
    if !context.is_quiet {
        outln!("wrote {}", dir.join("bridge.toml").shown());
    }
    Ok(Exit::Done)
}
