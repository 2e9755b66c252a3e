//! Real devices through libusb: found, checked, opened, and carried over.
//!
//! [`discover`] lists what can be an ASM2464PD without opening anything. [`Device`] is one that is opened: its kernel
//! driver is detached, its interface claimed, and both are given back when it is dropped. [`sysfs`] asks Linux what
//! hangs on a unit: its kernel driver, its disks and where they are mounted.

mod awake;
mod boot_loader;
mod descriptors;
mod device;
mod discovery;
mod disk_guard;
mod error;
mod forced_exit;
mod hotplug;
mod port;
mod port_power;
mod rules;
pub mod sysfs;
mod transfers;

pub use descriptors::{Alternate, DescriptorFault, EndpointInfo, Layout, UasPipes};
pub use device::Device;
pub use discovery::{Found, discover};
pub use disk_guard::{FreeDisk, MountedError, refuse_mounted};
pub use error::UsbError;
pub use hotplug::Watch;
pub use port::UsbPort;
pub use rules::{RULES_PATH, udev_rules};

use tracing::info;

use crate::bridge::{AnyTransport, BulkOnly, OpenBridge, Uas};
use crate::firmware::BridgeState;
use transfers::Transfers;

/// The interface of every state of a bridge.
const INTERFACE: u8 = 0;

/// Opens a device and puts an engine on it: UAS where `with_uas` and the device offers it and the system gives the
/// streams, else Bulk-Only.
///
/// # Errors
/// [`UsbError`].
pub fn transport(found: &Found, with_uas: bool) -> Result<AnyTransport, UsbError> {
    let layout = found.layout.as_ref().map_err(Clone::clone)?;
    if found.info.state == BridgeState::BootLoader {
        return bulk_only(boot_loader::open(found, false)?);
    }
    if with_uas && let Ok(UasPipes { alternate, streams }) = layout.uas {
        match Transfers::with_streams(Device::open(found, alternate)?, streams) {
            Ok(pipes) => {
                if let Ok(engine) = Uas::new(pipes) {
                    return Ok(Box::new(engine));
                }
            }
            Err(device) => {
                info!("{}: the system gives no streams: Bulk-Only", found.port);
                return bulk_only(device.on_alternate(found.bulk_only()?)?);
            }
        }
    }
    bulk_only(Device::open(found, found.bulk_only()?)?)
}

/// Opens a device that runs open firmware, for its control requests.
///
/// # Errors
/// [`UsbError`]; [`UsbError::OtherProtocol`] for a device that runs anything else.
pub fn control(found: &Found) -> Result<OpenBridge, UsbError> {
    let device = Device::open(found, found.open_firmware()?)?;
    Ok(OpenBridge::new(Box::new(Transfers::without_streams(device)), found.info.speed))
}

/// Bulk-Only on a device that is on its alternate.
fn bulk_only(device: Device) -> Result<AnyTransport, UsbError> {
    let port = device.port().clone();
    match BulkOnly::new(Transfers::without_streams(device)) {
        Ok(engine) => Ok(Box::new(engine)),
        Err(_) => Err(UsbError::of("get transfers for", &port, rusb::Error::NoMem)),
    }
}
