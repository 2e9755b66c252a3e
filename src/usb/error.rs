//! What can go wrong between this process and a USB device, before any command is sent.

use miette::Diagnostic;
use thiserror::Error;

use super::descriptors::DescriptorFault;
use super::sysfs::Process;
use crate::bridge::{PipeError, PortPath};
use crate::firmware::BridgeState;

/// A device that could not be found, opened or prepared.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum UsbError {
    /// libusb can't work here.
    #[error("USB can't be used on this system")]
    #[diagnostic(code(asmpatch::usb::unavailable))]
    Unavailable {
        /// What libusb says.
        source: rusb::Error,
    },
    /// The system does not let this user open it.
    #[error("no permission to open the unit at {port}")]
    #[diagnostic(code(asmpatch::usb::permission))]
    Permission {
        /// Where it is.
        port: PortPath,
    },
    /// Windows gave it a driver that lets no program in.
    #[error("the unit at {port} has a driver through which no program can open it")]
    #[diagnostic(code(asmpatch::usb::driver))]
    Driver {
        /// Where it is.
        port: PortPath,
    },
    /// Someone else holds it.
    #[error("the unit at {port} is in use by {}", named(users))]
    #[diagnostic(code(asmpatch::usb::busy))]
    Busy {
        /// Where it is.
        port: PortPath,
        /// The processes that have it open, where the system tells.
        users: Vec<Process>,
    },
    /// It left.
    #[error("the unit at {port} was unplugged")]
    #[diagnostic(code(asmpatch::usb::gone))]
    Gone {
        /// Where it was.
        port: PortPath,
    },
    /// Its descriptors don't hold together.
    #[error("the descriptors of the unit at {port} make no sense: {fault}")]
    #[diagnostic(code(asmpatch::usb::descriptors))]
    Descriptors {
        /// Where it is.
        port: PortPath,
        /// What is wrong.
        fault: DescriptorFault,
    },
    /// What runs on it speaks another protocol.
    #[error("the unit at {port} runs its {state}, which {}", if *state == BridgeState::OpenFirmware { "speaks no SCSI" } else { "takes none of the open firmware's requests" })]
    #[diagnostic(code(asmpatch::usb::other_protocol))]
    OtherProtocol {
        /// Where it is.
        port: PortPath,
        /// What runs on it.
        state: BridgeState,
    },
    /// Anything else that libusb reports.
    #[error("cannot {what} the unit at {port}: {source}")]
    #[diagnostic(code(asmpatch::usb::open))]
    Failed {
        /// What was tried, as a verb.
        what: &'static str,
        /// Where it is.
        port: PortPath,
        /// What libusb says.
        source: rusb::Error,
    },
}

/// Several have a unit open where one of them only reads its descriptors.
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

/// What is tried on a device first.
pub(super) const OPEN: &str = "open";

impl UsbError {
    /// The error of something tried on a device.
    pub(super) fn of(what: &'static str, port: &PortPath, source: rusb::Error) -> Self {
        let port = port.clone();
        match source {
            rusb::Error::Access => Self::Permission { port },
            rusb::Error::Busy => Self::Busy { port, users: Vec::new() },
            rusb::Error::NoDevice | rusb::Error::NotFound => Self::Gone { port },
            rusb::Error::NotSupported if what == OPEN => Self::Driver { port },
            source => Self::Failed { what, port, source },
        }
    }
}

/// A transfer's error, of libusb's.
pub(super) fn pipe_error(error: rusb::Error) -> PipeError {
    match error {
        rusb::Error::Pipe => PipeError::Stall,
        rusb::Error::Timeout => PipeError::Timeout,
        rusb::Error::Overflow => PipeError::Overflow,
        rusb::Error::NoDevice | rusb::Error::NotFound => PipeError::Disconnected,
        other => PipeError::Other(other.to_string()),
    }
}
