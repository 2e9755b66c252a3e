//! The virtual unit as a USB device over usbredir, for QEMU's `usb-redir` device.
//!
//! [`Parser`] parses packets and `Outbox` encodes them; both are pure. The protocol is implemented here in safe code,
//! because the crate `usbredirparser` 0.4 binds the C library's functions, but all its callbacks panic, including the
//! one that reads.

mod guest;
mod packets;
mod server;
#[cfg(test)]
mod tests;

pub use guest::GuestEvent;
pub use packets::Parser;
pub use server::{Address, Listener, ServerEvent, serve};
