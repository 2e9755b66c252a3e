//! Why no unit was opened.

use miette::Diagnostic;
use thiserror::Error;

use super::selector::Selector;
use crate::bridge::{Location, UnitInfo};
use crate::usb::{DescriptorFault, MountedError, UsbError};
use crate::virtual_bridge;

/// No unit was opened; nothing was sent to any.
#[derive(Debug, Error, Diagnostic)]
pub enum OpenError {
    /// None is there.
    #[error("no ASM2464PD bridge is connected")]
    #[diagnostic(code(asmpatch::device::none))]
    None,
    /// Several are there and none was chosen.
    #[error("{} bridges are connected: {}", found.len(), listed(found))]
    #[diagnostic(code(asmpatch::device::several))]
    Several {
        /// Those found.
        found: Vec<UnitInfo>,
    },
    /// The one that was chosen is not there.
    #[error("no bridge matches {selector} (connected: {})", if found.is_empty() { "none".to_owned() } else { listed(found) })]
    #[diagnostic(code(asmpatch::device::no_match))]
    NoMatch {
        /// What was asked for.
        selector: Selector,
        /// Those found.
        found: Vec<UnitInfo>,
    },
    /// A serial number that several have.
    #[error("{} bridges have the serial number {selector}: {}", found.len(), listed(found))]
    #[diagnostic(code(asmpatch::device::ambiguous))]
    Ambiguous {
        /// What was asked for.
        selector: Selector,
        /// Those that match.
        found: Vec<UnitInfo>,
    },
    /// Its disk is in use.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mounted(#[from] MountedError),
    /// UAS was asked for and is not there.
    #[error("the unit at {location} offers no UAS: {fault}")]
    #[diagnostic(code(asmpatch::device::no_uas))]
    NoUas {
        /// The unit.
        location: Location,
        /// Why.
        fault: DescriptorFault,
    },
    /// UAS was asked for and the system gives no streams.
    #[error("the system gives no bulk streams to the unit at {location}, which UAS needs")]
    #[diagnostic(code(asmpatch::device::no_streams))]
    NoStreams {
        /// The unit.
        location: Location,
    },
    /// A capture of a real unit was asked for.
    #[error("only a virtual bridge's traffic can be recorded")]
    #[diagnostic(code(asmpatch::device::not_recordable))]
    NotRecordable,
    /// The virtual bridge's folder.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Virtual(#[from] virtual_bridge::VirtualOpenError),
    /// The virtual bridge is not plugged in.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Absent(#[from] virtual_bridge::Absent),
    /// The virtual bridge does not run open firmware.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Unopened(#[from] virtual_bridge::Unopened),
    /// No folder for the virtual bridge.
    #[error("no data folder for the virtual bridge: {0}")]
    #[diagnostic(code(asmpatch::device::no_data_folder))]
    NoDataFolder(String),
    /// libusb or the system.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Usb(#[from] UsbError),
}

fn listed(found: &[UnitInfo]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
