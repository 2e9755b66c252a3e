//! The virtual unit as a USB device over usbredir, for QEMU's `usb-redir` device.
//!
//! [`Parser`] parses packets and [`Outbox`] encodes them; both are pure. The protocol is implemented here in safe code,
//! because the crate `usbredirparser` 0.4 binds the C library's functions, but all its callbacks panic, including the
//! one that reads.

mod protocol;
mod reply;
mod request;
mod server;
mod session;
mod socket;
#[cfg(test)]
mod tests;

pub use protocol::{Capabilities, ENDPOINT_SLOTS, MAX_DATA, RedirStatus, slot};
pub use reply::Outbox;
pub use request::{Bulk, PacketError, Parser, Request, Setup};
pub use server::{ConnectionError, ServeError, ServerEvent, serve};
pub use session::{GuestEvent, Session};
pub use socket::{Address, ListenError, Listener, ParseAddressError};
