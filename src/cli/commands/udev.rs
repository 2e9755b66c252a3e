//! The `asmpatch udev` command: prints the rules that let a Linux user open a dock.

use asm2464::AnyFailure;

use crate::cli::given::arguments::DeviceIds;
use crate::cli::words::errors::Exit;
use crate::cli::words::print;

/// Print the udev rules that let a Linux user open a dock.
///
/// The rules cover every USB ID that `asmpatch list --known` shows, and those that you add with --usb-id.
///
/// Install them with `asmpatch udev | sudo tee /etc/udev/rules.d/70-asmpatch.rules`, then
/// `sudo udevadm control --reload`, and plug the unit in again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch udev --usb-id 1234:ABCD")]
pub struct Args {
    #[command(flatten)]
    ids: DeviceIds,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if a device file can't be read or is wrong.
pub fn run(args: &Args) -> Result<Exit, AnyFailure> {
    print::whole(&args.ids.load()?.udev_rules());
    Ok(Exit::Done)
}
