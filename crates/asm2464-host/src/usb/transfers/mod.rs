//! Asynchronous transfers of one device: many in flight, on bulk streams if the device has them, and control requests.
//! This is a safe type around libusb's asynchronous calls, which rusb does not wrap. `unsafe` code is only here and in
//! `memory`.
//!
//! Safety rests on this:
//! - A transfer's `libusb_transfer`, its buffer and its `Ticket` live in [`Transfers`] until the transfer is back. If
//!   it never comes back, they are leaked, not freed.
//! - libusb and the kernel touch a buffer only between `libusb_submit_transfer` and the callback. During that time
//!   [`LibusbTransfer::is_out`] is set, and no reference to the buffer is given out.
//! - The device's handle is closed after all of that: [`Transfers`] owns it.
//!
//! Source: libusb 1.0.27's documentation of its asynchronous API, including "Considerations for object lifetime".
#![allow(unsafe_code)]

mod memory;

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libusb1_sys as ffi;
use libusb1_sys::constants as code;
use memory::{SharedPages, TransferMemory};
use rusb::UsbContext as _;

use super::descriptors::INTERFACE;
use super::device::ClaimedDevice;
use super::error::pipe_error;
use super::forced_exit::{is_released, stop_at_the_end};
use crate::bridge::setup::MASS_STORAGE_RESET;
use crate::bridge::{
    ControlPipes, Endpoint, PipeError, Pipes, Reaped, SETUP_LEN, TransferEnd, TransferId, control_data_len, deadline,
};

/// The pipes with streams.
const STREAM_PIPES: [Endpoint; 3] = [Endpoint::DataIn, Endpoint::DataOut, Endpoint::Status];
/// Number of streams to request: one for each of 31 commands, and one for task management.
const WANTED_STREAMS: u16 = 32;
/// Minimum number of streams: one for a command, one for task management.
const FEWEST_STREAMS: u16 = 2;
/// Time that cancelled transfers may take to return when the device is dropped.
const DROP_TIMEOUT: Duration = Duration::from_secs(3);

/// User data of a callback: the transfer, and the list to report its return in.
struct Ticket {
    transfer: usize,
    back: Arc<Mutex<VecDeque<usize>>>,
}

extern "system" fn on_back(transfer: *mut ffi::libusb_transfer) {
    // SAFETY: libusb calls back with a transfer that it was given, whose user_data is the `Ticket` that `submit` put
    // there; both live until the transfer has been taken from `back`.
    let ticket = unsafe { &*(*transfer).user_data.cast::<Ticket>() };
    // Adding a transfer made room for it, so this does not allocate.
    ticket.back.lock().unwrap_or_else(PoisonError::into_inner).push_back(ticket.transfer);
}

struct LibusbTransfer {
    raw: NonNull<ffi::libusb_transfer>,
    ticket: NonNull<Ticket>,
    buffer: TransferMemory,
    is_out: bool,
}

/// A device's bulk pipes. The module's documentation explains their safety.
pub(super) struct Transfers {
    transfers: Vec<LibusbTransfer>,
    shared: Option<SharedPages>,
    back: Arc<Mutex<VecDeque<usize>>>,
    streams: u16,
    wanted: u16,
    device: ClaimedDevice,
}

// SAFETY: libusb may be called from any thread; the pointers are to what this value alone owns. The callback can run
// on another thread that handles the context's events: what it shares is behind the mutex.
unsafe impl Send for Transfers {}

impl Transfers {
    /// Creates the pipes of a device on an alternate without streams.
    pub(super) fn without_streams(device: ClaimedDevice) -> Self {
        Self::new(device, 0, 0)
    }

    /// Creates the pipes of a device on its UAS alternate. `offered` is the number of streams in its descriptors, 0 for
    /// none.
    ///
    /// # Errors
    /// Returns the device if streams are offered and can't be allocated.
    pub(super) fn with_streams(device: ClaimedDevice, offered: u16) -> Result<Self, Box<ClaimedDevice>> {
        let wanted = offered.min(WANTED_STREAMS);
        match alloc_streams(&device, wanted) {
            Ok(streams) => Ok(Self::new(device, streams, wanted)),
            Err(_) => Err(Box::new(device)),
        }
    }

    fn new(device: ClaimedDevice, streams: u16, wanted: u16) -> Self {
        let shared = SharedPages::new(device.handle.at_rest().as_raw());
        Self { transfers: Vec::new(), shared, back: Arc::default(), streams, wanted, device }
    }

    /// The alternate setting that the device is on.
    pub(super) fn alternate(&self) -> u8 {
        self.device.alternate
    }

    /// The handle, for what sends the device no request.
    fn raw_handle(&self) -> *mut ffi::libusb_device_handle {
        self.device.handle.at_rest().as_raw()
    }

    /// Sends or receives the first `len` bytes of the transfer's buffer. `kind` is libusb's type of the transfer.
    fn start(
        &mut self,
        transfer: TransferId,
        kind: u8,
        endpoint: u8,
        stream: u16,
        len: usize,
    ) -> Result<(), PipeError> {
        let handle = self.device.handle.enter().map_err(pipe_error)?;
        let transfer = self.transfers.get_mut(transfer.0).ok_or_else(unknown_transfer)?;
        let length = match c_int::try_from(len) {
            Ok(length) if len <= transfer.buffer.len && !transfer.is_out => length,
            _ => return Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned())),
        };
        let user_data = transfer.ticket.as_ptr().cast::<c_void>();
        let (raw, start) = (transfer.raw.as_ptr(), transfer.buffer.start.as_ptr());
        // SAFETY: the transfer is not out, so its fields are ours to fill; buffer and ticket live until it is back;
        // `length` is within the buffer. Transfers of the three types differ in their type, endpoint and stream alone.
        // libusb's timeout 0 is none: deadlines are the engine's.
        let outcome = unsafe {
            ffi::libusb_fill_bulk_transfer(raw, handle.as_raw(), endpoint, start, length, on_back, user_data, 0);
            (*raw).transfer_type = kind;
            if stream > 0 {
                ffi::libusb_transfer_set_stream_id(raw, u32::from(stream));
            }
            ffi::libusb_submit_transfer(raw)
        };
        if outcome != 0 {
            return Err(error_of(outcome));
        }
        transfer.is_out = true;
        Ok(())
    }

    /// Lets libusb work until a transfer is back or `longest` has passed.
    fn handle_events(&self, longest: Duration) -> Result<(), PipeError> {
        let time = libc::timeval {
            // On Windows and 32-bit systems the seconds have 32 bits: 68 years are enough.
            tv_sec: longest.as_secs().min(i32::MAX as u64) as _,
            // Less than a million, which fits every platform's type.
            tv_usec: longest.subsec_micros() as _,
        };
        // SAFETY: the context lives as long as the device's handle, and `time` through the call; no completion flag is
        // passed.
        let outcome = unsafe {
            ffi::libusb_handle_events_timeout_completed(
                self.device.handle.at_rest().context().as_raw(),
                &time,
                ptr::null_mut(),
            )
        };
        match outcome {
            0 | code::LIBUSB_ERROR_INTERRUPTED => Ok(()),
            error => Err(error_of(error)),
        }
    }

    /// Takes a transfer whose callback has run.
    fn reaped(&mut self, at: usize) -> Reaped {
        let transfer = &mut self.transfers[at];
        transfer.is_out = false;
        // SAFETY: the callback has run, so libusb is done with the transfer until it is submitted again.
        let (status, moved) = unsafe { ((*transfer.raw.as_ptr()).status, (*transfer.raw.as_ptr()).actual_length) };
        let end = match status {
            // The release ended the transfer, whatever its status.
            _ if is_released() => TransferEnd::Failed(PipeError::Disconnected),
            code::LIBUSB_TRANSFER_COMPLETED => TransferEnd::Completed,
            code::LIBUSB_TRANSFER_CANCELLED => TransferEnd::Cancelled,
            code::LIBUSB_TRANSFER_STALL => TransferEnd::Failed(PipeError::Stall),
            code::LIBUSB_TRANSFER_OVERFLOW => TransferEnd::Failed(PipeError::Overflow),
            code::LIBUSB_TRANSFER_NO_DEVICE => TransferEnd::Failed(PipeError::Disconnected),
            _ => TransferEnd::Failed(PipeError::Other("the host controller reports a failed transfer".to_owned())),
        };
        let moved = usize::try_from(moved).unwrap_or(0).min(transfer.buffer.len);
        Reaped { transfer: TransferId(at), moved, end }
    }

    /// Cancels all transfers. Returns `false` if some did not return.
    fn take_all_back(&mut self) -> bool {
        // Cancel the newest first: see `BulkOnly::withdraw`.
        for at in (0..self.transfers.len()).rev() {
            self.cancel(TransferId(at));
        }
        let until = Instant::now() + DROP_TIMEOUT;
        while self.transfers.iter().any(|transfer| transfer.is_out) {
            let rest = until.saturating_duration_since(Instant::now());
            let Ok(Some(_)) = self.reap(rest) else { return false };
        }
        true
    }
}

/// The error of a number that no transfer of this device has.
fn unknown_transfer() -> PipeError {
    PipeError::Other("the device has no transfer of this number".to_owned())
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // If the process ends, its release comes first.
        stop_at_the_end();
        let are_all_back = self.take_all_back();
        let handle = self.raw_handle();
        // A transfer that is still out stays allocated forever: libusb may yet write to it.
        for transfer in self.transfers.drain(..).filter(|transfer| !transfer.is_out) {
            // SAFETY: it is back, so neither libusb nor the kernel uses any of the three; each is freed once, and the
            // handle is still open.
            unsafe {
                ffi::libusb_free_transfer(transfer.raw.as_ptr());
                transfer.buffer.free(handle);
                drop(Box::from_raw(transfer.ticket.as_ptr()));
            }
        }
        if let Some(shared) = self.shared.take().filter(|_| are_all_back) {
            // SAFETY: no transfer is out, and those whose buffers were in these pages are gone.
            unsafe { shared.free(handle) };
        }
        free_streams(&self.device, self.streams);
    }
}

impl Pipes for Transfers {
    fn streams(&self) -> u16 {
        self.streams
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        let at = self.transfers.len();
        // SAFETY: 0 isochronous packets; a null pointer is caught.
        let raw = NonNull::new(unsafe { ffi::libusb_alloc_transfer(0) })
            .ok_or_else(|| PipeError::Other("no memory for a transfer".to_owned()))?;
        let ticket = NonNull::from(Box::leak(Box::new(Ticket { transfer: at, back: self.back.clone() })));
        let buffer = TransferMemory::new(self.raw_handle(), self.shared.as_mut(), capacity);
        self.transfers.push(LibusbTransfer { raw, ticket, buffer, is_out: false });
        self.back.lock().unwrap_or_else(PoisonError::into_inner).reserve(self.transfers.len());
        Ok(TransferId(at))
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        let handle = self.raw_handle();
        let transfer = self.transfers.get_mut(transfer.0).ok_or_else(unknown_transfer)?;
        if transfer.is_out {
            return Err(PipeError::Other("the transfer is in flight".to_owned()));
        }
        if transfer.buffer.len < capacity {
            let old =
                std::mem::replace(&mut transfer.buffer, TransferMemory::new(handle, self.shared.as_mut(), capacity));
            // SAFETY: the transfer is not out, the handle is the one that made it, and nothing else has it.
            unsafe { old.free(handle) };
        }
        Ok(())
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        let Some(transfer) = self.transfers.get_mut(transfer.0) else { return &mut [] };
        if transfer.is_out {
            return &mut [];
        }
        // SAFETY: `start` is good for `len` initialised bytes (zeroed heap, or pages from the kernel); the transfer is
        // not out, so nothing else touches them, and `&mut self` keeps it from being submitted meanwhile.
        unsafe { std::slice::from_raw_parts_mut(transfer.buffer.start.as_ptr(), transfer.buffer.len) }
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError> {
        let kind = if stream == 0 { code::LIBUSB_TRANSFER_TYPE_BULK } else { code::LIBUSB_TRANSFER_TYPE_BULK_STREAM };
        self.start(transfer, kind, endpoint.address(), stream, len)
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        if let Some(reaped) = self.reap_known() {
            return Ok(Some(reaped));
        }
        // Read the clock only if a wait is needed. Without a timeout, take only what is already back.
        let until = deadline(timeout);
        let mut rest = timeout;
        loop {
            self.handle_events(rest)?;
            if let Some(reaped) = self.reap_known() {
                return Ok(Some(reaped));
            }
            rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Ok(None);
            }
        }
    }

    fn reap_known(&mut self) -> Option<Reaped> {
        let at = self.back.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        Some(self.reaped(at))
    }

    fn cancel(&mut self, transfer: TransferId) {
        let Some(transfer) = self.transfers.get(transfer.0) else { return };
        if transfer.is_out {
            // SAFETY: the transfer was submitted and lives; libusb returns NOT_FOUND for one that is already back.
            unsafe { ffi::libusb_cancel_transfer(transfer.raw.as_ptr()) };
        }
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        let handle = self.device.handle.enter().map_err(pipe_error)?;
        handle.clear_halt(endpoint.address()).map_err(pipe_error)
    }

    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError> {
        let handle = self.device.handle.enter().map_err(pipe_error)?;
        let [kind, request, ..] = MASS_STORAGE_RESET;
        handle.write_control(kind, request, 0, INTERFACE.into(), &[], timeout).map(drop).map_err(pipe_error)
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        free_streams(&self.device, self.streams);
        // They are gone, whether or not the reset succeeds.
        self.streams = 0;
        self.device.reset()?;
        self.streams = alloc_streams(&self.device, self.wanted)?;
        Ok(())
    }
}

impl ControlPipes for Transfers {
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError> {
        let Some(data_len) = control_data_len(self.buffer(transfer)) else {
            return Err(PipeError::Other("the transfer is in flight, or its buffer too short".to_owned()));
        };
        self.start(transfer, code::LIBUSB_TRANSFER_TYPE_CONTROL, 0, 0, SETUP_LEN + data_len)
    }
}

/// Allocates streams on the three pipes that have them, as many as possible: the host controller may have given some to
/// another device meanwhile. Returns the number on each.
fn alloc_streams(device: &ClaimedDevice, wanted: u16) -> Result<u16, PipeError> {
    let mut asked = wanted;
    while asked > 0 {
        let mut endpoints = STREAM_PIPES.map(Endpoint::address);
        let len = endpoints.len() as c_int;
        let handle = device.handle.enter().map_err(pipe_error)?;
        // SAFETY: the handle is open, and the array lives through the call with the length given.
        let outcome =
            unsafe { ffi::libusb_alloc_streams(handle.as_raw(), u32::from(asked), endpoints.as_mut_ptr(), len) };
        drop(handle);
        let error = match u16::try_from(outcome) {
            Ok(0) => PipeError::Other("the host controller gives no streams".to_owned()),
            Ok(streams) => return Ok(streams.min(asked)),
            Err(_) => error_of(outcome),
        };
        if asked < 2 * FEWEST_STREAMS || error == PipeError::Disconnected {
            return Err(error);
        }
        asked /= 2;
    }
    Ok(0)
}

/// Frees the streams. A device that is gone or released has none.
fn free_streams(device: &ClaimedDevice, streams: u16) {
    if streams == 0 {
        return;
    }
    let mut endpoints = STREAM_PIPES.map(Endpoint::address);
    let Ok(handle) = device.handle.enter() else { return };
    // SAFETY: as in `alloc_streams`; the kernel takes back what still uses a stream.
    unsafe {
        ffi::libusb_free_streams(handle.as_raw(), endpoints.as_mut_ptr(), endpoints.len() as c_int);
    }
}

fn error_of(error: c_int) -> PipeError {
    match error {
        code::LIBUSB_ERROR_NO_DEVICE | code::LIBUSB_ERROR_NOT_FOUND => PipeError::Disconnected,
        code::LIBUSB_ERROR_PIPE => PipeError::Stall,
        code::LIBUSB_ERROR_TIMEOUT => PipeError::Timeout,
        code::LIBUSB_ERROR_OVERFLOW => PipeError::Overflow,
        other => PipeError::Other(format!("libusb reports error {other}")),
    }
}
