//! Records USB traffic as pcapng files that Wireshark and `tshark` read.
//!
//! `pcapng` and `usbmon` turn packets into bytes; both are pure. [`Capture`] owns the file, and `CapturedBus` and
//! [`CapturedDevice`] record the transfers. If the file can't keep up, or can't be written, packets are lost and
//! counted; the unit is never delayed.

mod capture;
mod device;
mod pcapng;
mod usbmon;

pub use capture::Capture;
pub use device::CapturedDevice;
