//! Errors between this process and a USB device, before any command is sent.

use std::path::PathBuf;

use asm2464::firmware::BridgeState;
use thiserror::Error;

use super::descriptors::DescriptorFault;
use super::sysfs::{NoAccess, Process, Sysfs, Udev};
use crate::bridge::{PipeError, PortPath};

/// An error that libusb reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LibusbError(pub(super) rusb::Error);

/// Reasons a device could not be found, opened or prepared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UsbError {
    /// libusb does not work on this system.
    #[error("USB can't be used on this system")]
    Unavailable {
        /// libusb's error.
        source: LibusbError,
    },
    /// The system does not let this user open the device.
    #[error("no permission to open the unit at {port}")]
    Permission {
        /// The device's port.
        port: PortPath,
    },
    /// The same: asmpatch's udev rules don't cover the device.
    #[error("no permission to open the unit at {port}: the udev rules in {} don't cover its USB ID", rule.display())]
    StaleRule {
        /// The device's port.
        port: PortPath,
        /// The file of rules.
        rule: PathBuf,
    },
    /// The same: a udev rule covers the device, and was not applied to it.
    #[error("no permission to open the unit at {port}: the udev rules in {} came after it was plugged in", rule.display())]
    NotReplugged {
        /// The device's port.
        port: PortPath,
        /// The file of rules.
        rule: PathBuf,
    },
    /// The same: a udev rule gives the device to whoever sits at the machine.
    #[error(
        "no permission to open the unit at {port}: it belongs to whoever sits at this machine, and this session has no seat"
    )]
    NoSeat {
        /// The device's port.
        port: PortPath,
    },
    /// Windows bound a driver that lets no program in.
    #[error("the driver of the unit at {port} does not let programs open it")]
    Driver {
        /// The device's port.
        port: PortPath,
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
    /// The device's descriptors are invalid.
    #[error("the descriptors of the unit at {port} are invalid: {fault}")]
    Descriptors {
        /// The device's port.
        port: PortPath,
        /// What is wrong.
        fault: DescriptorFault,
    },
    /// The device's firmware speaks another protocol.
    #[error("the unit at {port} runs its {state}, which {}", if *state == BridgeState::OpenFirmware { "speaks no SCSI" } else { "takes none of the open firmware's requests" })]
    OtherProtocol {
        /// The device's port.
        port: PortPath,
        /// The device's state.
        state: BridgeState,
    },
    /// UAS was requested, but the unit does not offer it.
    #[error("the unit at {port} offers no UAS: {fault}")]
    NoUas {
        /// The device's port.
        port: PortPath,
        /// What is wrong with its descriptors.
        fault: DescriptorFault,
    },
    /// UAS was requested, but the system provides no streams.
    #[error("UAS needs bulk streams, and the system provides none for the unit at {port}")]
    NoStreams {
        /// The device's port.
        port: PortPath,
    },
    /// A hub's port was switched off, and can't be switched on again.
    #[error("the power of the hub's port {port} was switched off, and can't be switched on again: {source}")]
    PortLeftOff {
        /// The port that is off.
        port: PortPath,
        /// libusb's error.
        source: LibusbError,
    },
    /// Any other error that libusb reports.
    #[error("cannot {what} the unit at {port}: {source}")]
    Failed {
        /// The failed operation, as a verb.
        what: &'static str,
        /// The device's port.
        port: PortPath,
        /// libusb's error.
        source: LibusbError,
    },
}

asm2464::coded!(UsbError {
    Unavailable => Device "asm2464::usb::unavailable",
    Permission => Device "asm2464::usb::permission",
    StaleRule => Device "asm2464::usb::stale_rule",
    NotReplugged => Device "asm2464::usb::not_replugged",
    NoSeat => Device "asm2464::usb::no_seat",
    Driver => Device "asm2464::usb::driver",
    Busy => Device "asm2464::usb::busy",
    Gone => Gone "asm2464::usb::gone",
    Descriptors => Device "asm2464::usb::descriptors",
    OtherProtocol => Device "asm2464::usb::other_protocol",
    NoUas => Device "asm2464::usb::no_uas",
    NoStreams => Device "asm2464::usb::no_streams",
    PortLeftOff => Device "asm2464::usb::port_left_off",
    Failed => Unopened "asm2464::usb::open",
});

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
    /// Whether the system may let this user open the device in a moment: udev is still at work on it.
    pub(super) const fn may_get_access(&self) -> bool {
        matches!(
            self,
            Self::Permission { .. } | Self::StaleRule { .. } | Self::NotReplugged { .. } | Self::NoSeat { .. }
        )
    }

    /// Builds the error of an operation on a device.
    pub(super) fn of(what: &'static str, port: &PortPath, source: rusb::Error) -> Self {
        let port = port.clone();
        match source {
            rusb::Error::Access => match Udev::system().no_access(&Sysfs::system(), &port) {
                Some(NoAccess::StaleRule(rule)) => Self::StaleRule { port, rule },
                Some(NoAccess::NotReplugged(rule)) => Self::NotReplugged { port, rule },
                Some(NoAccess::NoSeat) => Self::NoSeat { port },
                Some(NoAccess::NoRule) | None => Self::Permission { port },
            },
            rusb::Error::Busy => Self::Busy { port, users: Vec::new(), lock: None },
            rusb::Error::NoDevice | rusb::Error::NotFound => Self::Gone { port },
            rusb::Error::NotSupported if what == OPEN => Self::Driver { port },
            source => Self::Failed { what, port, source: LibusbError(source) },
        }
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
