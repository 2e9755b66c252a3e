//! Real devices through libusb: found, checked, opened, and carried over.
//!
//! [`discover`] lists what can be an ASM2464PD without opening anything. [`Device`] is one that is opened: its kernel
//! driver is detached, its interface claimed, and both are given back when it is dropped. [`sysfs`] asks Linux what
//! hangs on a unit: its kernel driver, its disks and where they are mounted.

mod descriptors;
mod device;
mod discovery;
mod error;
mod hotplug;
mod port;
mod rules;
pub mod sysfs;

pub use descriptors::{Alternate, DescriptorFault, EndpointInfo, Layout, UasPipes};
pub use device::Device;
pub use discovery::{Found, discover};
pub use error::UsbError;
pub use hotplug::Watch;
pub use port::{MountedError, UsbPort, refuse_mounted};
pub use rules::{RULES_PATH, udev_rules};

use crate::bridge::{AnyTransport, BulkOnly};

/// Opens a device and puts an engine on it.
///
/// # Errors
/// [`UsbError`].
pub fn transport(found: &Found) -> Result<AnyTransport, UsbError> {
    let layout = found.layout.as_ref().map_err(Clone::clone)?;
    Ok(Box::new(BulkOnly::new(Device::open(found, layout.bulk_only)?)))
}
