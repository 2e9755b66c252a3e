//! What answers on a unit's wire.

use std::fmt::Debug;
use std::time::Instant;

use asm2464_host::bridge::Endpoint;

use super::reply::Reply;
use super::scenario::FaultPlan;

/// Answers on a unit's bulk pipes: firmware on the chip model, the boot loader, or a program's own code
/// ([`VirtualUnit::of_responder`](super::VirtualUnit::of_responder)).
pub trait Responder: Debug + Send {
    /// Handles SET_CONFIGURATION with 0 or 1, which selects alternate 0 and drops transfers in progress. Returns
    /// whether the value is accepted.
    fn set_configuration(&mut self, value: u8) -> bool;

    /// The selected alternate setting of interface 0.
    fn alternate(&self) -> u8 {
        0
    }

    /// Handles SET_INTERFACE, which drops transfers in progress. Returns whether there is such an alternate.
    fn set_alternate(&mut self, alternate: u8) -> bool;

    /// Handles SET_FEATURE(ENDPOINT_HALT). Firmware that owns endpoint 0 never gets this call.
    fn halt(&mut self, _endpoint: Endpoint) {}

    /// Handles CLEAR_FEATURE(ENDPOINT_HALT).
    fn clear_halt(&mut self, endpoint: Endpoint);

    /// Whether an endpoint of the selected alternate is halted. Firmware that owns endpoint 0 never gets this call.
    fn is_halted(&self, _endpoint: Endpoint) -> bool {
        false
    }

    /// Handles Bulk-Only Mass Storage Reset. Returns `false` to stall it.
    fn mass_storage_reset(&mut self) -> bool;

    /// Handles a port reset, which drops transfers in progress and the configuration.
    fn bus_reset(&mut self);

    /// Suspends or resumes the link.
    fn set_suspended(&mut self, _is_suspended: bool) {}

    /// Handles data from the host. `stream` is 0 without streams. `faults` decides on each command.
    fn bulk_out(&mut self, endpoint: Endpoint, stream: u16, data: &[u8], faults: &mut FaultPlan) -> Reply;

    /// Handles the host's request for up to `buffer.len()` bytes.
    fn bulk_in(&mut self, endpoint: Endpoint, stream: u16, buffer: &mut [u8]) -> Reply;

    /// Time at which something that is silent now may change by itself.
    fn ready_at(&self) -> Option<Instant>;
}
