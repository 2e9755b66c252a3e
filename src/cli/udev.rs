//! `asmpatch udev`.

use super::Context;
use crate::failure::{AnyFailure, Exit};
use crate::usb::udev_rules;

/// Print the udev rules that let a Linux user open a bridge.
///
/// Put them in place with `asmpatch udev | sudo tee /etc/udev/rules.d/70-asmpatch.rules`, then
/// `sudo udevadm control --reload`, and plug the unit in again.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the subcommand.
///
/// # Errors
/// None.
pub fn run(_args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    out!("{}", udev_rules());
    Ok(Exit::Done)
}
