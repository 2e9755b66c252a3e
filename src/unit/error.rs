//! Errors of finding and opening a unit.

use asm2464_dock::record::ReplayError;
use asm2464_dock::virtual_unit;
use asm2464_host::bridge::{Location, UnitInfo};
use asm2464_host::usb::sysfs::{Sysfs, TunnelledDevice};
use asm2464_host::usb::{DescriptorFault, DiskError, UsbError};
use thiserror::Error;

use super::selector::Selector;
use crate::record::RecordFileError;
use crate::suggest;

/// Reasons no unit was opened. Nothing was sent to any unit.
#[derive(Debug, Error)]
pub enum OpenError {
    /// No unit is connected.
    #[error("no ASM2464PD unit is connected")]
    None,
    /// No unit is connected over USB, but these devices are over USB4 or Thunderbolt.
    #[error("no ASM2464PD unit is connected over USB, but over USB4 or Thunderbolt: {}", named(.0))]
    Tunnelled(Vec<TunnelledDevice>),
    /// Several units are connected, and none was selected.
    #[error("{} units are connected: {}", found.len(), listed(found))]
    Several {
        /// The units that were found.
        found: Vec<UnitInfo>,
    },
    /// The selected unit is not connected.
    #[error(
        "no unit matches {selector}{} (connected: {})",
        meant(selector, found),
        if found.is_empty() { "none".to_owned() } else { listed(found) }
    )]
    NoMatch {
        /// The unit that was asked for.
        selector: Selector,
        /// The units that were found.
        found: Vec<UnitInfo>,
    },
    /// Several units have the requested serial number.
    #[error("{} units have the serial number {selector}: {}", found.len(), listed(found))]
    Ambiguous {
        /// The serial number that was asked for.
        selector: Selector,
        /// The units that match.
        found: Vec<UnitInfo>,
    },
    /// Another unit has taken the place of the selected one.
    #[error(
        "another unit is at {} now: {} {}",
        found.location,
        found.id,
        found.serial.as_ref().map_or("without a serial number".to_owned(), |serial| format!("with serial number {serial}"))
    )]
    Other {
        /// The unit that is there.
        found: Box<UnitInfo>,
    },
    /// The unit's disk is in use, or may be.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// UAS was requested, but the unit does not offer it.
    #[error("the unit at {location} offers no UAS: {fault}")]
    NoUas {
        /// The unit.
        location: Location,
        /// What is wrong with its descriptors.
        fault: DescriptorFault,
    },
    /// UAS was requested, but the system provides no streams.
    #[error("UAS needs bulk streams, and the system provides none for the unit at {location}")]
    NoStreams {
        /// The unit.
        location: Location,
    },
    /// A record was named where a unit is needed that changes.
    #[error("{location} is a record, which only answers what it was asked when it was made")]
    Record {
        /// The record.
        location: Location,
    },
    /// The record's file can't be used.
    #[error(transparent)]
    RecordFile(#[from] RecordFileError),
    /// The record's unit could not be opened.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The virtual unit's folder can't be used.
    #[error(transparent)]
    Virtual(#[from] virtual_unit::VirtualOpenError),
    /// The virtual unit is not on the bus, or does not run open firmware.
    #[error(transparent)]
    Unopened(#[from] virtual_unit::Unopened),
    /// The system names no data folder for the virtual unit.
    #[error("no data folder for the virtual unit: {0}")]
    NoDataFolder(String),
    /// libusb or the system failed.
    #[error(transparent)]
    Usb(#[from] UsbError),
}

asm2464::coded!(OpenError {
    None => "asmpatch::device::none",
    Tunnelled => "asmpatch::device::tunnelled",
    Several => "asmpatch::device::several",
    NoMatch => "asmpatch::device::no_match",
    Ambiguous => "asmpatch::device::ambiguous",
    Other => "asmpatch::device::other",
    Disk(cause) => cause,
    NoUas => "asmpatch::device::no_uas",
    NoStreams => "asmpatch::device::no_streams",
    Record => "asmpatch::device::record",
    RecordFile(cause) => cause,
    Replay(cause) => cause,
    Virtual(cause) => cause,
    Unopened(cause) => cause,
    NoDataFolder => "asmpatch::device::no_data_folder",
    Usb(cause) => cause,
});

impl OpenError {
    /// The error if no unit is connected. Looks at the system's USB4 and Thunderbolt devices.
    pub fn none() -> Self {
        let tunnelled = Sysfs::system().tunnelled();
        if tunnelled.is_empty() { Self::None } else { Self::Tunnelled(tunnelled) }
    }
}

fn named(devices: &[TunnelledDevice]) -> String {
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The question whether a connected unit's port or serial number, or a virtual unit, was meant.
fn meant(selector: &Selector, found: &[UnitInfo]) -> String {
    let selector = selector.to_string();
    let connected = found.iter().flat_map(|unit| [Some(unit.location.to_string()), unit.serial.clone()]).flatten();
    let in_folder = selector.split_once(':').map(|(_, folder)| format!("virtual:{folder}"));
    let names: Vec<String> = connected.chain(in_folder).collect();
    suggest::question(suggest::nearest(&selector, names.iter().map(String::as_str)))
}

fn listed(found: &[UnitInfo]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_virtual_unit_is_recognised_and_a_serial_number_with_a_colon_is_not_taken_for_one() {
        let message =
            |text: &str| OpenError::NoMatch { selector: text.parse().unwrap(), found: Vec::new() }.to_string();
        assert!(message("vritual:dock").contains("did you mean `virtual:dock`?"), "{}", message("vritual:dock"));
        assert!(!message("00:1B:21").contains("did you mean"), "{}", message("00:1B:21"));
    }
}
