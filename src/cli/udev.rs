//! `asmpatch udev`.

use super::Context;
use super::known::DeviceIds;
use crate::failure::{AnyFailure, Exit};
use crate::usb::udev_rules;

/// Print the udev rules that let a Linux user open a bridge.
///
/// They name every USB ID that `asmpatch list --known` shows, and those that you add with --usb-id.
///
/// Put them in place with `asmpatch udev | sudo tee /etc/udev/rules.d/70-asmpatch.rules`, then
/// `sudo udevadm control --reload`, and plug the unit in again.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    ids: DeviceIds,
}

/// Runs the subcommand.
///
/// # Errors
/// Device files that can't be read or are wrong.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    out!("{}", udev_rules(&*args.ids.load()?));
    Ok(Exit::Done)
}
