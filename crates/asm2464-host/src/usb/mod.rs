//! Real devices through libusb: discovery, checks, opening and transfers.
//!
//! [`discover`] lists possible ASM2464PD units without opening anything. [`Device`] is an opened one: its kernel driver
//! is detached and its interface claimed, and dropping it undoes both. [`UnitLock`] is the file that lets only one
//! program at a time work on a unit. [`sysfs`] reads from Linux what belongs to a unit: its kernel driver, its disks
//! and their mounts.

mod awake;
mod descriptors;
mod device;
mod discovery;
mod disk_guard;
mod error;
mod forced_exit;
mod gate;
mod lock;
mod port;
mod port_power;
pub mod sysfs;
mod transfers;

pub use descriptors::{Alternate, DescriptorFault, EndpointInfo, Layout, UasPipes};
pub use device::Device;
pub use discovery::{DOCKS, Found, HotplugWatch, KnownUnits, discover};
pub use disk_guard::{DiskError, refuse_mounted};
pub use error::{LibusbError, UsbError};
pub use forced_exit::{ports_left_off, release_all, release_all_and_stop};
pub use lock::UnitLock;
pub use port::UsbPort;
pub use sysfs::FreeDisk;

use tracing::info;

use crate::bridge::{AnyTransport, BulkOnly, OpenBridge, Uas, Watched};
use sysfs::Sysfs;
use transfers::Transfers;

/// Opens a device and puts an engine on it: UAS if the device offers it and the system provides the streams; Bulk-Only
/// otherwise.
fn best_transport(found: &Found) -> Result<AnyTransport, UsbError> {
    let layout = found.layout.as_ref().map_err(Clone::clone)?;
    if let Ok(UasPipes { alternate, streams }) = layout.uas {
        match Transfers::with_streams(Device::open(found, alternate)?, streams) {
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
/// [`UsbError`]; [`UsbError::OtherProtocol`] for a device that runs anything else.
pub fn control(found: &Found) -> Result<OpenBridge, UsbError> {
    let device = Device::open(found, found.open_firmware()?)?;
    let pipes = watched(found, Transfers::without_streams(device));
    Ok(OpenBridge::new(Box::new(pipes), found.info.speed))
}

/// Creates a Bulk-Only engine on a device that is on the Bulk-Only alternate.
fn bulk_only(found: &Found, device: Device) -> Result<AnyTransport, UsbError> {
    let engine = BulkOnly::new(watched(found, Transfers::without_streams(device)));
    Ok(Box::new(engine.map_err(|_| UsbError::of("get transfers for", &found.port, rusb::Error::NoMem))?))
}

/// Puts the unit's monitors on its pipes.
fn watched(found: &Found, pipes: Transfers) -> Watched<Transfers> {
    let alternate = pipes.alternate();
    found.watch.over(pipes, &found.info, alternate, || Sysfs::system().descriptors(&found.port))
}
