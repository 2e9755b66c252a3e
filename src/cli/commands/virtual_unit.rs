//! The `asmpatch virtual` command: configures virtual units and cycles their power. `virtual_serve.rs` serves them, over
//! sockets that only Unix has.

use std::ffi::OsStr;
#[cfg(not(unix))]
use std::ffi::OsString;
#[cfg(unix)]
use std::path::Path;

use crate::unit::{self, Selector};
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_dock::virtual_unit::VirtualUnit;
#[cfg(unix)]
use asm2464_dock::virtual_unit::replug;
use asm2464_host::bridge::Location;

#[cfg(unix)]
use crate::cli::commands::virtual_serve;
use crate::cli::given::context::Context;
use crate::cli::words::errors::Exit;
use crate::cli::words::interrupt;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::worded_step::{StepCommand, WordedStep};

#[cfg_attr(unix, doc = "Work with virtual units.")]
#[cfg_attr(
    not(unix),
    doc = "Work with virtual units. Every command takes one; this system can't serve them to virtual machines."
)]
#[derive(Debug, clap::Subcommand)]
pub enum VirtualCommand {
    /// Set what is behind a virtual unit and what goes wrong: keys of its bridge.toml.
    ///
    /// The next command on the unit finds it so. `asmpatch help virtual-unit` lists the keys. A key without a value
    /// takes it out again, so that its default applies.
    #[command(after_help = "Examples:
  asmpatch virtual set power-loss-after=70000 --device virtual:u
  asmpatch virtual set \"behind={ssd={bytes=67108864}}\" --device virtual:u
  asmpatch virtual set power-loss-after= state=boot-loader --device virtual:u")]
    Set {
        /// The keys and their new values; a text needs no quotes.
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = edit)]
        edits: Vec<(String, String)>,

        /// The virtual unit; the next command makes a new one if it is missing.
        #[arg(long, value_name = "virtual[:DIR]", env = "ASMPATCH_DEVICE", default_value = "virtual")]
        device: Selector,
    },
    #[cfg(unix)]
    Serve(virtual_serve::ServeArgs),
    /// Cycle a served unit's power.
    ///
    /// The guest sees the unit unplugged and plugged in again a moment later. A unit that has halted, as after a flash
    /// through the boot loader, returns no other way. A unit that isn't served has power only while a command
    /// runs, and needs no replugging.
    #[cfg(unix)]
    #[command(after_help = "Examples:\n  asmpatch virtual replug --device virtual:u")]
    Replug {
        /// The folder of a unit that `asmpatch virtual serve` serves.
        #[arg(long, value_name = "virtual:DIR", value_parser = virtual_serve::unit_folder)]
        device: Box<Path>,
    },
    #[cfg(not(unix))]
    #[command(external_subcommand)]
    Other(#[allow(dead_code, reason = "clap needs a place for the words")] Vec<OsString>),
}

/// Parses `KEY=VALUE`.
fn edit(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, or KEY= to take it out")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the subcommand.
///
/// # Errors
/// Fails as the subcommand below it does. Where there are no Unix sockets, every one but `set` fails.
pub fn run(command: &VirtualCommand, context: &Context) -> Result<Exit, AnyFailure> {
    match command {
        VirtualCommand::Set { edits, device } => set(edits, device, context),
        #[cfg(unix)]
        VirtualCommand::Serve(args) => virtual_serve::run(args, context),
        #[cfg(unix)]
        VirtualCommand::Replug { device } => {
            replug(device, interrupt::install())?;
            outln!("virtual:{}: replugged", device.display());
            Ok(Exit::Done)
        }
        #[cfg(not(unix))]
        VirtualCommand::Other(_) => {
            let message = "virtual units are served over Unix sockets, which this system lacks";
            Err(Failure::new(Kind::Usage.code("asmpatch::serve::no_sockets"), message).into())
        }
    }
}

/// Returns the command that takes these keys out of a virtual unit's bridge.toml.
pub fn unset(keys: &[&str], device: &OsStr) -> PrintedCommand {
    let set = PrintedCommand::named("virtual set").with("device", device);
    keys.iter().fold(set, |set, key| set.operand(format!("{key}=")))
}

/// The same for `--json`; `None` if there are no keys.
pub fn unset_at(keys: &[&str], unit: &Location) -> Option<StepCommand> {
    (!keys.is_empty()).then(|| unset(keys, unit.to_string().as_ref()).into())
}

/// Says below a verdict what is set on the virtual units that the command named, with the command that takes it out: what
/// looks like a fault of the unit is one of its bridge.toml.
pub fn remind(context: &Context) {
    let invocation = &context.invocation;
    let advised: Vec<String> = context.taken_left().steps.iter().filter_map(WordedStep::line).collect();
    let judges =
        !invocation.subcommand().starts_with("virtual") && !["config get", "demo"].contains(&invocation.subcommand());
    if !judges || context.is_quiet || context.json {
        return;
    }
    for device in invocation.named() {
        let selector = device.to_str().and_then(|device| device.parse::<Selector>().ok());
        let Some(place) = selector.as_ref().and_then(Selector::virtual_place) else { continue };
        let keys = unit::set_keys(&place);
        if keys.is_empty() {
            continue;
        }
        let set = unset(&keys, device);
        // A write that stopped has said it among its steps.
        if advised.contains(&set.to_string()) {
            continue;
        }
        let (device, keys) = (device.to_string_lossy(), keys.join(", "));
        errln!("{}: its bridge.toml sets {keys}; without:", device.shown());
        errln!("    {set}");
    }
}

/// The keys that only a new unit reads.
const OF_NEW_UNITS: [&str; 2] = ["serial", "factory"];

/// Writes a virtual unit's bridge.toml, in the same words in every shell.
fn set(edits: &[(String, String)], device: &Selector, context: &Context) -> Result<Exit, AnyFailure> {
    let Selector::Virtual(dir) = device else {
        let message = format!("{} is no virtual unit: only those have a bridge.toml", device.to_string().shown());
        return Err(Failure::new(Kind::Usage.code("asmpatch::virtual::dock"), message).into());
    };
    let dir = unit::virtual_folder(dir.clone())?;
    VirtualUnit::configure(&dir, edits)?;
    if !context.is_quiet {
        outln!("wrote {}", dir.join("bridge.toml").shown());
        let mut unread = edits.iter().filter(|(key, value)| OF_NEW_UNITS.contains(&key.as_str()) && !value.is_empty());
        if !VirtualUnit::is_new(&dir)
            && let Some((key, value)) = unread.next()
        {
            outln!("`{key}` is read when a unit is made, and this one exists");
            if key == "serial" {
                let change = PrintedCommand::named("config set").operand(format!("serial={value}"));
                outln!("change its serial number:");
                outln!("    {}", context.invocation.name_unit(change));
            } else {
                outln!("delete flash.bin in its folder for a new unit");
            }
        }
    }
    Ok(Exit::Done)
}
