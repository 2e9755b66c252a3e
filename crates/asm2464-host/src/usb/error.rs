//! Errors between this process and a USB device, before any command is sent.

use std::path::PathBuf;
use std::sync::Arc;

use asm2464::{Coded, Failure, Kind, Label};
use thiserror::Error;

use super::descriptors::DescriptorFault;
use super::docks::OtherChip;
use super::sysfs::{AccessFault, Process, no_access};
use crate::bridge::{BusSpeed, PipeError, PortPath};

/// Reasons a device could not be found, opened or prepared, as far as the next attempt differs.
#[derive(Debug, Clone, Error)]
pub enum UsbError {
    /// The system does not let this user open the device.
    #[error("no permission to open the unit at {port}{}", why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NoAccess {
        /// The device's port.
        port: PortPath,
        /// Why, if the system tells.
        why: Option<AccessFault>,
    },
    /// Another program holds the device.
    #[error(
        "the unit at {port} is in use by {}{}",
        named(users),
        lock.as_ref().map(|lock| format!(" (its lock: {})", lock.display())).unwrap_or_default()
    )]
    Busy {
        /// The device's port.
        port: PortPath,
        /// The processes that have the device open or hold its lock, if the system reports them.
        users: Vec<Process>,
        /// The lock's file, if it is the lock that another program holds.
        lock: Option<PathBuf>,
    },
    /// The device left the bus.
    #[error("the unit at {port} was unplugged")]
    Gone {
        /// The device's former port.
        port: PortPath,
    },
    /// Any other reason: libusb or the system failed, or the unit's descriptors don't allow what was asked for.
    #[error(transparent)]
    Other(Arc<Failure>),
}

impl Coded for UsbError {
    fn label(&self) -> Label {
        match self {
            Self::NoAccess { why: None, .. } => Kind::Device.code("asm2464::usb::permission"),
            Self::NoAccess { why: Some(AccessFault::StaleRule(_)), .. } => {
                Kind::Device.code("asm2464::usb::stale_rule")
            }
            Self::NoAccess { why: Some(AccessFault::NotReplugged(_)), .. } => {
                Kind::Device.code("asm2464::usb::not_replugged")
            }
            Self::NoAccess { why: Some(AccessFault::NoSeat), .. } => Kind::Device.code("asm2464::usb::no_seat"),
            Self::Busy { .. } => Kind::Device.code("asm2464::usb::busy"),
            Self::Gone { .. } => Kind::Gone.code("asm2464::usb::gone"),
            Self::Other(failure) => failure.label(),
        }
    }

    fn passed_on(&self) -> Option<&(dyn Coded + 'static)> {
        match self {
            Self::NoAccess { .. } | Self::Busy { .. } | Self::Gone { .. } => None,
            Self::Other(failure) => Some(&**failure),
        }
    }
}

impl From<Failure> for UsbError {
    fn from(failure: Failure) -> Self {
        Self::Other(Arc::new(failure))
    }
}

/// Maximum number of processes to name. Several may have a unit open, some of them only to read its descriptors.
const MOST_NAMED: usize = 4;

fn named(users: &[Process]) -> String {
    if users.is_empty() {
        return "another program".to_owned();
    }
    let mut text = users.iter().take(MOST_NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if users.len() > MOST_NAMED {
        text.push_str(&format!(" and {} more", users.len() - MOST_NAMED));
    }
    text
}

/// The first operation on a device.
pub(super) const OPEN: &str = "open";

impl UsbError {
    /// Whether the cause may pass by itself while the system settles: udev or the kernel's driver is still at work on the
    /// device, or it is not back on the bus yet.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(self, Self::NoAccess { .. } | Self::Busy { .. } | Self::Gone { .. })
    }

    /// The device at this port is a chip that asmpatch must not send anything to.
    pub(super) fn of_other_chip(port: &PortPath, chip: &OtherChip) -> Self {
        let label = Kind::Refused.code("asm2464::usb::other_chip");
        Failure::new(label, format!("{port}: {}, so nothing is sent to it", chip.refusal())).into()
    }

    /// Builds the error of an operation on a device; `what` is a verb.
    pub(super) fn of(what: &str, port: &PortPath, source: rusb::Error) -> Self {
        match source {
            rusb::Error::Access => Self::NoAccess { port: port.clone(), why: no_access(port) },
            rusb::Error::Busy => Self::Busy { port: port.clone(), users: Vec::new(), lock: None },
            rusb::Error::NoDevice | rusb::Error::NotFound => Self::Gone { port: port.clone() },
            rusb::Error::NotSupported if what == OPEN => {
                // Windows bound a driver that lets no program in.
                let message = format!("the driver of the unit at {port} does not let programs open it");
                Failure::new(Kind::Device.code("asm2464::usb::driver"), message).into()
            }
            source => {
                let message = format!("cannot {what} the unit at {port}: {source}");
                Failure::new(Kind::Unopened.code("asm2464::usb::open"), message).into()
            }
        }
    }

    /// Builds the error of a system on which libusb does not work.
    pub(super) fn unavailable(source: rusb::Error) -> Self {
        let label = Kind::Device.code("asm2464::usb::unavailable");
        Failure::new(label, "USB can't be used on this system").because(source).into()
    }

    /// Builds the error of a device whose descriptors are invalid.
    pub(super) fn of_descriptors(port: &PortPath, speed: BusSpeed, fault: DescriptorFault) -> Self {
        let at_speed = if speed.is_slow() { format!(", whose link is at {speed},") } else { String::new() };
        let message = format!("the descriptors of the unit at {port}{at_speed} are invalid: {fault}");
        Failure::new(Kind::Device.code("asm2464::usb::descriptors"), message).into()
    }
}

/// Converts a libusb error into a transfer's error.
pub(super) fn pipe_error(error: rusb::Error) -> PipeError {
    match error {
        rusb::Error::Pipe => PipeError::Stall,
        rusb::Error::Timeout => PipeError::Timeout,
        rusb::Error::Overflow => PipeError::Overflow,
        rusb::Error::NoDevice | rusb::Error::NotFound => PipeError::Disconnected,
        other => PipeError::Other(other.to_string()),
    }
}
