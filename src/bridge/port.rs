//! A place where a bridge is attached. The unit behind it leaves and comes back, as another state or identity.

use std::time::Duration;

use super::client::Bridge;
use super::open::OpenBridge;
use super::transport::AnyTransport;
use super::unit_info::Speed;
use crate::failure::AnyFailure;
use crate::firmware::{BridgeState, UsbId};
use crate::interrupt::Interrupt;

/// Who is attached, as the descriptors tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// VID:PID.
    pub usb_id: UsbId,
    /// What runs on it.
    pub state: BridgeState,
    /// iSerialNumber, empty where there is none.
    pub serial: String,
    /// iManufacturer.
    pub manufacturer: String,
    /// iProduct.
    pub product: String,
}

/// A USB port with a bridge, or a virtual bridge's folder: what `--device` names.
///
/// It stays the same while the unit behind it is reset, changes its identity, or falls back to its boot loader.
pub trait Port: Send {
    /// The port as `--device` takes it: `1-2`, `virtual:DIR`. It changes where a unit comes back at another speed: a
    /// connector's USB 2 and SuperSpeed ports are two.
    fn device(&self) -> String;

    /// Who is attached now.
    ///
    /// # Errors
    /// Where nobody is, or it can't be told.
    fn attached(&mut self) -> Result<Attached, AnyFailure>;

    /// The speed of the unit that is attached now.
    ///
    /// # Errors
    /// As for [`Port::attached`].
    fn speed(&mut self) -> Result<Speed, AnyFailure>;

    /// The raw descriptors of the unit that is attached now, as far as they can be had without opening it: device,
    /// configuration, BOS.
    fn descriptors(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Opens the unit over Bulk-Only, which the vendor's firmware and the boot loader speak. What it held is given back
    /// when the bridge is dropped.
    ///
    /// # Errors
    /// No unit, no permission, busy; a unit that runs open firmware.
    fn open(&mut self) -> Result<Bridge<AnyTransport>, AnyFailure>;

    /// Opens a unit that runs open firmware, for its control requests. What it held is given back when the bridge is
    /// dropped.
    ///
    /// # Errors
    /// No unit, no permission, busy; a unit that runs anything else.
    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure>;

    /// Whether nothing can have used the disk behind the unit when it was opened last. `false` where the exclusive check
    /// needs root: then only mounts, swap and holders that this process sees were looked at.
    fn is_disk_checked(&self) -> bool {
        true
    }

    /// Lets the hub switch the power of the unit's port off and on, and waits until it is on again. `false` where no hub
    /// does that.
    ///
    /// # Errors
    /// Where a hub that can switch it does not.
    fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
        Ok(false)
    }

    /// Waits until the unit that was told to reset has come back; `None` where it has not within `deadline`, or
    /// where `interrupt` asked to stop.
    ///
    /// # Errors
    /// Where the system can't tell who is attached.
    fn wait_for_return(&mut self, deadline: Duration, interrupt: Interrupt<'_>)
    -> Result<Option<Attached>, AnyFailure>;
}
