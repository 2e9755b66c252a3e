//! The `asmpatch reset` command: restarts a bridge.

use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::ResetMode;
use asm2464_host::bridge::{Attached, BusSpeed, CommandError, Port};
use serde::Serialize;
use thiserror::Error;
use tracing::info;

use super::deadlines::Deadlines;
use super::device::PortArgs;
use super::{AnyFailure, Context, Exit, print};
use crate::interrupt::{self};

/// Restart a bridge: reset its CPU and retrain its link.
///
/// For a dock that came up at 480 Mbit/s and stays there, as docks do that are plugged in while the host boots. The
/// unit leaves the bus and returns after about 3 s. Writes nothing, and leaves a unit alone while its disk is in use.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch reset --device 3-1.2")]
pub struct Args {
    #[command(flatten)]
    port: PortArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Reasons a unit was not restarted.
#[derive(Debug, Error)]
enum ResetError {
    /// It runs no firmware that has the command.
    #[error("{device}: the unit runs its {state}, which has no CPU reset")]
    NoFirmware { device: String, state: BridgeState },
    /// It did not come back in time.
    #[error("{device}: the unit has not come back within {deadline:?}")]
    NotBack { device: String, deadline: Duration },
    /// Its flash holds no firmware.
    #[error(
        "{device}: the unit came back in its boot loader: its flash holds no firmware that passes the chip's checks"
    )]
    BootLoader { device: String },
}

asm2464::coded!(ResetError {
    NoFirmware => "asmpatch::reset::no_firmware",
    NotBack => "asmpatch::reset::not_back",
    BootLoader => "asmpatch::reset::boot_loader",
});

/// A unit before or after.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Seen {
    /// VID:PID.
    usb_id: String,
    /// What runs on it.
    state: BridgeState,
    /// Its serial number.
    serial: String,
    /// Its product string.
    product: String,
    /// The speed of its link.
    speed: BusSpeed,
}

impl Seen {
    fn new(attached: Attached, speed: BusSpeed) -> Self {
        let Attached { usb_id, state, serial, product, .. } = attached;
        Self { usb_id: usb_id.to_string(), state, serial, product, speed }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ResetJson {
    /// The unit's port now: after the link is retrained, the unit may be on the connector's other port.
    device: String,
    /// The unit before.
    before: Seen,
    /// The unit after.
    after: Seen,
}

impl print::Document for ResetJson {}

/// Runs the subcommand.
///
/// # Errors
/// Fails if no unit is found, its disk is in use, or it does not come back.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let before = Seen::new(port.attached()?, port.speed()?);
    let after = restart(&mut *port, before.state, interrupt)?;
    let after = Seen::new(after, port.speed()?);
    // After the link is retrained, the unit may be on the connector's other port.
    let device = port.device();
    if args.json {
        print::json(&ResetJson { device, before, after });
        return Ok(Exit::Done);
    }
    outln!("{device}: back as {} ({}) at {}, was {}", after.usb_id, after.state, after.speed, before.speed);
    if matches!(after.speed, BusSpeed::Low | BusSpeed::Full | BusSpeed::High) {
        outln!("  still slow: try another cable, another port, no hub");
    }
    Ok(Exit::Done)
}

/// Restarts the unit with E8 mode 0x50 and waits until it is back.
pub(super) fn restart(
    port: &mut dyn Port,
    state: BridgeState,
    interrupt: Interrupt<'_>,
) -> Result<Attached, AnyFailure> {
    let device = port.device();
    if state != BridgeState::Vendor {
        return Err(ResetError::NoFirmware { device, state }.into());
    }
    interrupt.check()?;
    let mut bridge = port.open()?;
    match bridge.reset(ResetMode::CpuReset) {
        // A unit that resets at once does not answer. Its return shows whether it reset.
        Ok(()) | Err(CommandError::Transport(_)) => {}
        Err(refused) => return Err(refused.into()),
    }
    info!("{device}: CPU reset sent");
    // Release the port only after the unit has left the bus: see `flash`.
    let deadline = Deadlines::of_this_run().come_back;
    let back = port.wait_for_return(deadline, interrupt);
    drop(bridge);
    match back? {
        Some(found) if found.state == BridgeState::BootLoader => Err(ResetError::BootLoader { device }.into()),
        Some(found) => Ok(found),
        None => {
            interrupt.check()?;
            Err(ResetError::NotBack { device, deadline }.into())
        }
    }
}
