//! The virtual bridge as a USB device over usbredir: what QEMU's `usb-redir` device connects to.
//!
//! [`Parser`] takes packets out of bytes, [`Outbox`] puts them in; both are pure. The protocol is written out here, in
//! safe code, since the crate `usbredirparser` 0.4 binds the C library's functions but leaves every callback, the one
//! that reads included, as a panic.

mod control;
mod protocol;
mod recorder;
mod reply;
mod request;
mod server;
mod session;
mod socket;
#[cfg(test)]
mod tests;

pub use protocol::{Capabilities, ENDPOINT_SLOTS, MAX_DATA, RedirStatus, slot};
pub use reply::{DeviceConnect, EpInfo, Outbox};
pub use request::{Bulk, PacketError, Parser, Request, Setup};
pub use server::{ConnectionError, ServeError, ServerEvent, serve};
pub use session::{GuestEvent, Session};
pub use socket::{Address, ListenError, Listener, ParseAddressError};
