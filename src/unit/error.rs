//! Errors of finding and opening a unit.

use asm2464_dock::virtual_unit;
use asm2464_host::bridge::{PortError, UnitInfo};
use asm2464_host::usb::UsbError;
use asm2464_host::usb::sysfs::{Sysfs, Tunnels};
use thiserror::Error;

use super::Selector;
use crate::suggest;

/// Reasons no unit was opened. Nothing was sent to any unit.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// No unit is connected.
    #[error("no ASM2464PD unit is connected")]
    None,
    /// No unit is connected over USB, but these are over USB4 or Thunderbolt.
    #[error("no ASM2464PD unit is connected over USB, but over USB4 or Thunderbolt: {_0}")]
    Tunnelled(Tunnels),
    /// The same, and the host has not authorised one of them.
    #[error("no ASM2464PD unit is connected over USB, but over USB4 or Thunderbolt: {_0}")]
    Unauthorised(Tunnels),
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
    /// The virtual unit's folder can't be used.
    #[error(transparent)]
    Virtual(#[from] virtual_unit::VirtualOpenError),
    /// The unit is not at its port, or the system can't tell.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The system names no data folder for the virtual unit.
    #[error("no data folder for the virtual unit: {0}")]
    NoDataFolder(String),
    /// libusb or the system failed.
    #[error(transparent)]
    Usb(#[from] UsbError),
}

asm2464::coded!(ConnectError {
    None => Device "asmpatch::device::none",
    Tunnelled => Device "asmpatch::device::tunnelled",
    Unauthorised => Device "asmpatch::device::unauthorised",
    Several => Refused "asmpatch::device::several",
    NoMatch => Device "asmpatch::device::no_match",
    Ambiguous => Refused "asmpatch::device::ambiguous",
    Other => Device "asmpatch::device::other",
    Virtual(cause) => cause,
    Port(cause) => cause,
    NoDataFolder => Usage "asmpatch::device::no_data_folder",
    Usb(cause) => cause,
});

impl ConnectError {
    /// The error if no unit is connected. Looks at the system's USB4, Thunderbolt and PCIe.
    pub fn none() -> Self {
        let tunnels = Sysfs::system().tunnels();
        if tunnels.is_empty() { Self::None } else { Self::over(tunnels) }
    }

    /// The error if no unit is connected over USB, but these are over USB4 or Thunderbolt.
    pub fn over(tunnels: Tunnels) -> Self {
        if tunnels.await_authorisation() { Self::Unauthorised(tunnels) } else { Self::Tunnelled(tunnels) }
    }

    /// The error if the buses can't be searched for this unit. If the selector looks like a mistyped virtual unit,
    /// reports that instead of the USB error.
    pub(super) fn unsearched(error: UsbError, selector: Option<&Selector>) -> Self {
        let mistyped = selector.filter(|selector| {
            let selector = selector.to_string();
            suggest::nearest(&selector, [&*in_software(&selector)]).is_some()
        });
        match mistyped {
            Some(selector) => Self::NoMatch { selector: selector.clone(), found: Vec::new() },
            None => Self::Usb(error),
        }
    }
}

/// The question whether a connected unit's port or serial number, or a virtual unit was meant.
fn meant(selector: &Selector, found: &[UnitInfo]) -> String {
    let selector = selector.to_string();
    let connected = found.iter().flat_map(|unit| [Some(unit.location.to_string()), unit.serial.clone()]).flatten();
    let names: Vec<String> = connected.chain([in_software(&selector)]).collect();
    suggest::question(suggest::nearest(&selector, names.iter().map(String::as_str)))
}

/// The name of a virtual unit that this selector may have meant.
fn in_software(selector: &str) -> String {
    match selector.split_once(':') {
        Some((_, place)) => format!("virtual:{place}"),
        None => "virtual".to_owned(),
    }
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
            |text: &str| ConnectError::NoMatch { selector: text.parse().unwrap(), found: Vec::new() }.to_string();
        assert!(message("vritual:dock").contains("did you mean `virtual:dock`?"), "{}", message("vritual:dock"));
        assert!(message("virtul").contains("did you mean `virtual`?"));
        assert!(!message("00:1B:21").contains("did you mean"), "{}", message("00:1B:21"));
    }

    #[test]
    fn a_mistyped_virtual_unit_is_recognised_where_usb_cant_be_used() {
        let message = |text: &str| {
            let error = UsbError::Gone { port: "3-1".parse().unwrap() };
            ConnectError::unsearched(error, Some(&text.parse().unwrap())).to_string()
        };
        assert!(message("virtul:m1").contains("did you mean `virtual:m1`?"), "{}", message("virtul:m1"));
        for other in ["3-1", "00:1B:21", "LAB-07"] {
            assert_eq!(message(other), "the unit at 3-1 was unplugged");
        }
    }
}
