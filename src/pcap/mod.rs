//! Records USB traffic as pcapng files that Wireshark and `tshark` read.
//!
//! [`pcapng`] and [`usbmon`] turn packets into bytes; both are pure. [`Capture`] owns the file, and [`Bus`] and
//! [`Device`] record what moves. A file that can't keep up, or can't be written, loses packets and counts them; it never
//! holds up the unit.

mod capture;
mod device;
pub mod pcapng;
pub mod usbmon;

pub use capture::{Capture, CaptureError, Summary};
pub use device::{Bus, Device, End, Urb};
