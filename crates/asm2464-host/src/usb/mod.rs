//! Real devices through libusb: discovery, checks, opening and transfers.
//!
//! # The way to a unit
//! [`discover`] lists possible ASM2464PD units without opening anything, by [`KnownUnits`], the table of known USB IDs. What
//! it found ([`Found`]) has its descriptors, whose `Layout` is checked before anything relies on it. [`UsbPort`] opens
//! a unit and finds it again after it has restarted; [`control`] opens one with open firmware directly. On the way
//!
//! 1. the [`UnitLock`] keeps other programs off the unit, also while it restarts;
//! 2. a `FreeDisk` holds the disk behind it, or a [`DiskError`] says what uses it;
//! 3. the kernel's driver is detached and the interface claimed, and dropping what was opened undoes both;
//! 4. the transfers, the only `unsafe` code, carry the unit's [`Pipes`](crate::bridge::Pipes).
//!
//! [`sysfs`] reads from Linux what belongs to a unit: its kernel driver, its disks and their mounts.
//!
//! # Why so
//! libusb and not the kernel's drivers, because a flash needs the unit's recovery in its hands, and UAS needs streams.
//! rusb does not wrap libusb's asynchronous calls, so this module does.
//!
//! A process can end without unwinding, at a second Ctrl-C. A handle that is left behind keeps its interface from the
//! kernel's driver, and a port that was switched off stays off. Every request therefore passes a gate, which
//! [`release_all`] closes before it gives everything back.
//!
//! # What is not known
//! Whether a hub switches a port's power although it says so: the unit's leaving is what counts. On systems other than Linux
//! nothing is known of disks and drivers, and the system's own claim is all that protects a unit.

mod awake;
mod descriptors;
mod device;
mod discovery;
mod docks;
mod error;
mod forced_exit;
mod gate;
mod lock;
mod port;
mod power;
pub mod sysfs;
mod transfers;

pub use discovery::{Found, KnownUnits, discover, id_at};
pub use docks::{DOCKS, KnownDevice, OtherChip};
pub use error::UsbError;
pub use forced_exit::{ports_left_off, release_all, release_all_and_stop};
pub use lock::UnitLock;
pub use port::UsbPort;
pub use sysfs::DiskError;

use descriptors::UasPipes;
use device::ClaimedDevice;
use sysfs::Sysfs;
use tracing::info;
use transfers::Transfers;

use crate::bridge::{AnyTransport, BulkOnly, OpenBridge, Uas, Watched};

/// Opens a device and puts an engine on it: UAS if the device offers it and the system provides the streams; Bulk-Only
/// otherwise.
fn best_transport(found: &Found) -> Result<AnyTransport, UsbError> {
    if let Ok(UasPipes { alternate, streams }) = found.layout()?.uas {
        match Transfers::with_streams(ClaimedDevice::open(found, alternate)?, streams) {
            Ok(pipes) => {
                if let Ok(engine) = Uas::new(watched(found, pipes)) {
                    return Ok(Box::new(engine));
                }
            }
            Err(device) => {
                info!("{}: the system gives no streams: Bulk-Only", found.port);
                return bulk_only(found, device.on_alternate(found.bulk_only()?)?);
            }
        }
    }
    bulk_only(found, device::open_bulk_only(found, false)?)
}

/// Opens a device that runs open firmware, for its control requests.
///
/// # Errors
/// [`UsbError`]; `asm2464::usb::other_protocol` for a device that runs anything else.
pub fn control(found: &Found) -> Result<OpenBridge, UsbError> {
    let device = ClaimedDevice::open(found, found.open_firmware()?)?;
    let pipes = watched(found, Transfers::without_streams(device));
    Ok(OpenBridge::new(Box::new(pipes), found.info.speed))
}

/// Creates a Bulk-Only engine on a device that is on the Bulk-Only alternate.
fn bulk_only(found: &Found, device: ClaimedDevice) -> Result<AnyTransport, UsbError> {
    let engine = BulkOnly::new(watched(found, Transfers::without_streams(device)));
    Ok(Box::new(engine.map_err(|_| UsbError::of("get transfers for", &found.port, rusb::Error::NoMem))?))
}

/// Puts the unit's monitors on its pipes.
fn watched(found: &Found, pipes: Transfers) -> Watched<Transfers> {
    let alternate = pipes.alternate();
    found.monitors.over(pipes, &found.info, alternate, || Sysfs::system().descriptors(&found.port))
}
