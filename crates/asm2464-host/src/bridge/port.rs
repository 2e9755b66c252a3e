//! A port with a bridge, and how its unit is opened. The unit leaves and comes back, possibly in another state or with
//! another identity.

use std::time::Duration;

use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, TransportKind};

use super::attached::{Location, UnitInfo};
use super::client::Bridge;
use super::open::OpenBridge;

/// A USB port with a bridge, or a virtual unit's folder: what `--device` names.
///
/// It stays the same while the unit behind it is reset, changes its identity, or falls back to its boot loader. Each kind
/// of port has errors of its own; their kind tells what the caller can do.
pub trait Port: Send {
    /// Where the port is. It changes if a unit comes back at another speed, because a connector's USB 2 and SuperSpeed
    /// ports are two ports.
    fn location(&self) -> Location;

    /// Describes the attached unit. Does not take it from its kernel driver.
    ///
    /// # Errors
    /// If no unit is attached, or the system can't tell.
    fn attached(&mut self) -> Result<UnitInfo, AnyFailure>;

    /// Raw descriptors of the attached unit that can be read without opening it: device, configuration, BOS.
    fn descriptors(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Opens the unit for SCSI commands, which the vendor's firmware and the boot loader speak: over `wanted`, or else
    /// over UAS if unit and system have it, or else over Bulk-Only. Dropping the bridge gives the unit back to its former
    /// driver.
    ///
    /// # Errors
    /// No unit, no permission, busy, a unit that runs open firmware, or no UAS where it is wanted.
    fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, AnyFailure>;

    /// Opens the unit over Bulk-Only, which the vendor's firmware and the boot loader always speak.
    ///
    /// # Errors
    /// As for [`open_over`](Self::open_over).
    fn open(&mut self) -> Result<Bridge, AnyFailure> {
        self.open_over(Some(TransportKind::BulkOnly))
    }

    /// Opens a unit that runs open firmware, for its control requests. Dropping the bridge gives the unit back to its
    /// former driver.
    ///
    /// # Errors
    /// No unit, no permission, busy, or a unit that runs anything else.
    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure>;

    /// Whether the last open made sure that nothing uses the disk behind the unit. `false` if the exclusive check needs
    /// root; then only mounts, swap and holders that this process sees were checked.
    fn is_disk_checked(&self) -> bool {
        true
    }

    /// Power-cycles the unit's port through its hub, and waits until the power is on again. Returns `false` if no hub
    /// can do that.
    ///
    /// # Errors
    /// If the hub supports it and fails.
    fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
        Ok(false)
    }

    /// Waits until a unit that was told to reset has come back; `None` if it has not within `deadline`, or if
    /// `interrupt` asked to stop.
    ///
    /// # Errors
    /// If the system can't tell which unit is attached.
    fn wait_for_return(&mut self, deadline: Duration, interrupt: Interrupt<'_>)
    -> Result<Option<UnitInfo>, AnyFailure>;
}
