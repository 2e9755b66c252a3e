//! The pipes that a transport needs from a device: many transfers in flight on the bulk endpoints, and recovery; for the
//! open firmware also control requests. And what watches them, in the order in which the host sees it.
//!
//! [`Watched`] wraps the pipes of a real or a virtual unit. Each [`Monitor`] of its [`Monitors`] sees every transfer when it
//! is submitted and when it is back, and what is done to the endpoints in between.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::attached::UnitInfo;

/// Returns the end of a timeout that begins now. One that is longer than the clock can tell ends in a century.
pub fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 24 * 3600))
}

/// A bulk endpoint of the bridge. Its value is bEndpointAddress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Endpoint {
    /// 0x81 IN.
    DataIn = 0x81,
    /// 0x02 OUT.
    DataOut = 0x02,
    /// 0x83 IN, UAS only.
    Status = 0x83,
    /// 0x04 OUT, UAS only.
    Command = 0x04,
}

impl Endpoint {
    /// bEndpointAddress.
    pub const fn address(self) -> u8 {
        self as u8
    }

    /// The endpoint of this address.
    pub fn from_address(address: u8) -> Option<Self> {
        let all = [Self::DataIn, Self::DataOut, Self::Status, Self::Command];
        all.into_iter().find(|endpoint| endpoint.address() == address)
    }
}

/// Reasons a transfer failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PipeError {
    /// The endpoint is halted. Clear it with [`Pipes::clear_halt`].
    #[error("the endpoint stalled")]
    Stall,
    /// The device did not answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The device sent more data than requested.
    #[error("the device sent more data than requested")]
    Overflow,
    /// The device is gone.
    #[error("the device is gone")]
    Disconnected,
    /// Any other error that the system reports.
    #[error("{0}")]
    Other(String),
}

/// Number of a transfer. A device's transfers, each with a reusable buffer, are numbered from 0 in the order in which
/// they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransferId(pub usize);

/// Result of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEnd {
    /// The device moved all bytes, or ended the transfer with a short packet.
    Completed,
    /// The transfer was cancelled.
    Cancelled,
    /// The transfer failed.
    Failed(PipeError),
}

/// A transfer that has returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// The transfer.
    pub transfer: TransferId,
    /// Bytes moved, however the transfer ended.
    pub moved: usize,
    /// Its result.
    pub end: TransferEnd,
}

/// A device's bulk pipes. You submit transfers, and they return in any order. On one stream of one endpoint they move
/// in the order of submission.
///
/// If an endpoint halts, the transfers behind the stalled one may also return stalled, or stay in flight. Cancel all of
/// them before you clear the halt.
///
/// Buffers belong to the pipes, which may keep them in memory that the host controller reaches without a copy.
/// Submitting and reaping allocate nothing.
pub trait Pipes {
    /// Number of streams on the data and status pipes, numbered from 1; 0 if there are none (Bulk-Only, or high speed).
    fn streams(&self) -> u16;

    /// Adds a transfer with a buffer of `capacity` bytes.
    ///
    /// # Errors
    /// [`PipeError`].
    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError>;

    /// Grows an idle transfer's buffer to at least `capacity` bytes. Discards its contents.
    ///
    /// # Errors
    /// [`PipeError`].
    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError>;

    /// Buffer of a transfer; empty while it is in flight.
    fn buffer(&mut self, transfer: TransferId) -> &mut [u8];

    /// Copies these bytes to the start of a transfer's buffer.
    ///
    /// # Errors
    /// [`PipeError`] if the transfer is in flight or its buffer is too short.
    fn put(&mut self, transfer: TransferId, bytes: &[u8]) -> Result<(), PipeError> {
        let Some(place) = self.buffer(transfer).get_mut(..bytes.len()) else {
            return Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned()));
        };
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Sends the first `len` bytes of the transfer's buffer, or receives up to `len` bytes into it. `stream` is 0 if
    /// the pipe has no streams.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError>;

    /// Returns the next transfer that is back, or `None` after `timeout`.
    ///
    /// # Errors
    /// [`PipeError::Timeout`] from pipes without a real device, which know that no transfer in flight will return by
    /// itself in that time; any other error of the system.
    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError>;

    /// Returns a transfer that is already known to be back, without reading the clock or asking the system.
    fn reap_known(&mut self) -> Option<Reaped> {
        None
    }

    /// Cancels a transfer. It is reaped like any other. Has no effect on an idle transfer.
    fn cancel(&mut self, transfer: TransferId);

    /// Clears a halt with CLEAR_FEATURE(ENDPOINT_HALT), and resets the data toggle or sequence number to 0. No transfer
    /// may be in flight on the endpoint.
    ///
    /// # Errors
    /// [`PipeError`].
    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError>;

    /// Sends the class request Bulk-Only Mass Storage Reset (0xFF), the first step of Bulk-Only's reset recovery. No
    /// transfer may be in flight.
    ///
    /// # Errors
    /// [`PipeError`].
    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError>;

    /// Whether the unit answers a control request, possibly with a stall. Sends the class reset, which UAS stalls.
    fn answers_control(&mut self) -> bool {
        const TIMEOUT: Duration = Duration::from_secs(2);
        !matches!(self.mass_storage_reset(TIMEOUT), Err(PipeError::Timeout | PipeError::Disconnected))
    }

    /// Resets the port and sets up the pipes as before: the last resort. Cancelled transfers that are still in flight
    /// return with the reset.
    ///
    /// # Errors
    /// [`PipeError`]; [`PipeError::Disconnected`] if the device came back as another.
    fn reset_port(&mut self) -> Result<(), PipeError>;
}

/// Bytes of a setup packet (USB 3.2, 9.3).
pub const SETUP_LEN: usize = 8;

/// Bulk pipes with a control endpoint, which the open firmware needs.
pub trait ControlPipes: Pipes {
    /// Sends a control request. The first [`SETUP_LEN`] bytes of the transfer's buffer are the setup packet. The data
    /// of either direction, wLength bytes, follows behind it.
    ///
    /// The transfer is reaped like any other; [`Reaped::moved`] counts only the data. A unit carries out requests in
    /// the order of submission. A stalled request does not stop the others.
    ///
    /// # Errors
    /// [`PipeError`]; the transfer is then not in flight.
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError>;
}

/// wLength of the setup packet at the start of a control transfer's buffer; `None` if the buffer is too short for that
/// much data.
pub fn control_data_len(buffer: &[u8]) -> Option<usize> {
    let setup = buffer.first_chunk::<SETUP_LEN>()?;
    let len = usize::from(u16::from_le_bytes([setup[6], setup[7]]));
    (SETUP_LEN + len <= buffer.len()).then_some(len)
}

/// A transfer that was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted<'a> {
    /// A bulk transfer of up to `len` bytes.
    Bulk {
        /// Its endpoint.
        endpoint: Endpoint,
        /// How many bytes to send, or to receive at most.
        len: usize,
        /// The bytes to send.
        data: &'a [u8],
    },
    /// A control request.
    Control {
        /// Its setup packet.
        setup: [u8; SETUP_LEN],
        /// The bytes to send.
        data: &'a [u8],
    },
}

/// What is done to a unit beside its transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipeAction {
    /// [`Pipes::clear_halt`].
    ClearHalt(Endpoint),
    /// [`Pipes::mass_storage_reset`].
    MassStorageReset,
    /// [`Pipes::reset_port`].
    ResetPort,
}

/// Sees what goes over the wire of a unit after it was opened. Must not block.
pub trait Tap: Send {
    /// A transfer was submitted.
    fn submitted(&mut self, transfer: TransferId, submitted: Submitted<'_>);

    /// A transfer is back. `moved` bytes were moved; `data` are those that came from the unit.
    fn returned(&mut self, transfer: TransferId, end: &TransferEnd, moved: usize, data: &[u8]);

    /// The system did not accept the transfer that [`Tap::submitted`] has just reported.
    fn refused(&mut self, transfer: TransferId, error: &PipeError);

    /// Something else was done to the unit.
    fn done(&mut self, action: PipeAction, outcome: &Result<(), PipeError>);
}

/// Watches one unit, each time it is opened.
pub trait Monitor: fmt::Debug + Send + Sync {
    /// The unit was opened on this alternate setting. `descriptors` are its raw ones: device, configuration, BOS. They are
    /// empty if the system does not provide them.
    fn opened(&self, unit: &UnitInfo, descriptors: &[u8], alternate: u8) -> Box<dyn Tap>;
}

/// The monitors of a unit; none by default.
#[derive(Debug, Clone, Default)]
pub struct Monitors(Vec<Arc<dyn Monitor>>);

impl Monitors {
    /// Adds a monitor.
    pub fn add(&mut self, monitor: impl Monitor + 'static) {
        self.0.push(Arc::new(monitor));
    }

    /// Puts the monitors on the pipes of a unit that was just opened on this alternate setting. Asks for the unit's
    /// descriptors only if there are monitors.
    pub fn over<P: Pipes>(
        &self,
        pipes: P,
        unit: &UnitInfo,
        alternate: u8,
        descriptors: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Watched<P> {
        let mut taps = Vec::new();
        if !self.0.is_empty() {
            let descriptors = descriptors().unwrap_or_default();
            taps.extend(self.0.iter().map(|monitor| monitor.opened(unit, &descriptors, alternate)));
        }
        Watched { pipes, taps, in_flight: Vec::new() }
    }
}

/// Pipes whose transfers are watched.
pub struct Watched<P> {
    pipes: P,
    taps: Vec<Box<dyn Tap>>,
    /// The transfers in flight, by their number. Stays empty without taps.
    in_flight: Vec<Option<Way>>,
}

/// Direction of a transfer's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the unit.
    Out,
    /// From the unit, into the buffer from here on.
    In(usize),
}

impl<P: fmt::Debug> fmt::Debug for Watched<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("pipes", &self.pipes).field("taps", &self.taps.len()).finish()
    }
}

/// Whether an endpoint's or a request's data go to the host: bit 7 of its address or of bmRequestType (USB 3.2, 9.3).
pub const fn is_to_host(address_or_type: u8) -> bool {
    address_or_type & 0x80 != 0
}

impl<P: Pipes> Watched<P> {
    /// Shows a transfer to the taps before it is submitted. `begins` is where the data begin in its buffer.
    fn submitted(&mut self, transfer: TransferId, begins: usize, what: impl Fn(&[u8]) -> Option<Submitted<'_>>) {
        if self.taps.is_empty() {
            return;
        }
        let Some(submitted) = what(self.pipes.buffer(transfer)) else { return };
        self.taps.iter_mut().for_each(|tap| tap.submitted(transfer, submitted));
        self.in_flight.resize(self.in_flight.len().max(transfer.0 + 1), None);
        self.in_flight[transfer.0] = Some(match submitted {
            Submitted::Bulk { endpoint, .. } if is_to_host(endpoint.address()) => Way::In(begins),
            Submitted::Control { setup, .. } if is_to_host(setup[0]) => Way::In(begins),
            Submitted::Bulk { .. } | Submitted::Control { .. } => Way::Out,
        });
    }

    /// Reports to the taps if the transfer was not accepted, and passes the result on.
    fn accepted(&mut self, transfer: TransferId, outcome: Result<(), PipeError>) -> Result<(), PipeError> {
        if let Err(error) = &outcome
            && self.in_flight.get_mut(transfer.0).and_then(Option::take).is_some()
        {
            self.taps.iter_mut().for_each(|tap| tap.refused(transfer, error));
        }
        outcome
    }

    fn returned(&mut self, transfer: TransferId, end: &TransferEnd, moved: usize) {
        let Some(way) = self.in_flight.get_mut(transfer.0).and_then(Option::take) else { return };
        let data = match way {
            Way::In(at) => self.pipes.buffer(transfer).get(at..at + moved).unwrap_or_default(),
            Way::Out => &[],
        };
        self.taps.iter_mut().for_each(|tap| tap.returned(transfer, end, moved, data));
    }

    fn done(&mut self, action: PipeAction, outcome: Result<(), PipeError>) -> Result<(), PipeError> {
        self.taps.iter_mut().for_each(|tap| tap.done(action, &outcome));
        outcome
    }
}

impl<P: Pipes> Pipes for Watched<P> {
    fn streams(&self) -> u16 {
        self.pipes.streams()
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.pipes.add_transfer(capacity)
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        self.pipes.reserve(transfer, capacity)
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        self.pipes.buffer(transfer)
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError> {
        self.submitted(transfer, 0, |buffer| {
            let data = if is_to_host(endpoint.address()) { &[] } else { buffer.get(..len)? };
            Some(Submitted::Bulk { endpoint, len, data })
        });
        let outcome = self.pipes.submit(transfer, endpoint, stream, len);
        self.accepted(transfer, outcome)
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        let reaped = self.pipes.reap(timeout)?;
        if let Some(Reaped { transfer, moved, end }) = &reaped {
            self.returned(*transfer, end, *moved);
        }
        Ok(reaped)
    }

    fn reap_known(&mut self) -> Option<Reaped> {
        let reaped = self.pipes.reap_known()?;
        self.returned(reaped.transfer, &reaped.end, reaped.moved);
        Some(reaped)
    }

    fn cancel(&mut self, transfer: TransferId) {
        self.pipes.cancel(transfer);
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        let outcome = self.pipes.clear_halt(endpoint);
        self.done(PipeAction::ClearHalt(endpoint), outcome)
    }

    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError> {
        let outcome = self.pipes.mass_storage_reset(timeout);
        self.done(PipeAction::MassStorageReset, outcome)
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        let outcome = self.pipes.reset_port();
        self.done(PipeAction::ResetPort, outcome)
    }
}

impl<P: ControlPipes> ControlPipes for Watched<P> {
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError> {
        self.submitted(transfer, SETUP_LEN, |buffer| {
            let len = control_data_len(buffer)?;
            let setup = *buffer.first_chunk()?;
            let data = if is_to_host(setup[0]) { &[] } else { &buffer[SETUP_LEN..SETUP_LEN + len] };
            Some(Submitted::Control { setup, data })
        });
        let outcome = self.pipes.submit_control(transfer);
        self.accepted(transfer, outcome)
    }
}
