//! Why no unit was opened.

use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::selector::Selector;
use crate::bridge::{Location, UnitInfo};
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupted;
use crate::usb::{DescriptorFault, UsbError, sysfs::DiskUse};

/// No unit was opened; nothing was sent to any.
#[derive(Debug, Error, Diagnostic)]
pub enum OpenError {
    /// None is there.
    #[error("no ASM2464PD bridge is connected")]
    #[diagnostic(
        code(asmpatch::device::none),
        help(
            "plug one in over USB (a Thunderbolt or USB4 tunnel shows none) and see whether `lsusb` lists 174C:246x or \
             ADD1:0001; `--device virtual` works without one"
        )
    )]
    None,
    /// Several are there and none was chosen.
    #[error("{} bridges are connected: {}", found.len(), listed(found))]
    #[diagnostic(code(asmpatch::device::several), help("choose one with --device PORT or --device SERIAL"))]
    Several {
        /// Those found.
        found: Vec<UnitInfo>,
    },
    /// The one that was chosen is not there.
    #[error("no bridge matches --device {selector} (connected: {})", if found.is_empty() { "none".to_owned() } else { listed(found) })]
    #[diagnostic(code(asmpatch::device::no_match), help("`asmpatch list` shows port paths and serial numbers"))]
    NoMatch {
        /// What was asked for.
        selector: Selector,
        /// Those found.
        found: Vec<UnitInfo>,
    },
    /// A serial number that several have.
    #[error("{} bridges have the serial number {selector}: {}", found.len(), listed(found))]
    #[diagnostic(
        code(asmpatch::device::ambiguous),
        help("choose one by its port path; units flashed by other tools often share one serial number")
    )]
    Ambiguous {
        /// What was asked for.
        selector: Selector,
        /// Those that match.
        found: Vec<UnitInfo>,
    },
    /// Its disk is in use.
    #[error("the disk behind the unit at {location} is in use: {}", uses.iter().map(|used| format!("{} at {}", used.device, used.place)).collect::<Vec<_>>().join(", "))]
    #[diagnostic(
        code(asmpatch::device::mounted),
        help(
            "asmpatch would take the unit from the system and cut the disk off; unmount it first: `umount PLACE`, `swapoff DEVICE`"
        )
    )]
    Mounted {
        /// The unit.
        location: Location,
        /// What uses it.
        uses: Vec<DiskUse>,
    },
    /// UAS was asked for and is not there.
    #[error("the unit at {location} offers no UAS: {fault}")]
    #[diagnostic(
        code(asmpatch::device::no_uas),
        help("leave --transport out to speak Bulk-Only; the boot loader and units at a slow port have no UAS")
    )]
    NoUas {
        /// The unit.
        location: Location,
        /// Why.
        fault: DescriptorFault,
    },
    /// It did not come back.
    #[error("the unit at {location} did not come back within {deadline:?}{}", if *left { "" } else { ": it never left the bus" })]
    #[diagnostic(
        code(asmpatch::device::no_return),
        help("unplug it, wait five seconds, plug it in again, and see what `asmpatch list` says of it")
    )]
    NoReturn {
        /// Where it was.
        location: Location,
        /// How long was waited.
        deadline: Duration,
        /// Whether it left the bus.
        left: bool,
    },
    /// Stopped by Ctrl-C while waiting.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Interrupted(#[from] Interrupted),
    /// libusb or the system.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Usb(#[from] UsbError),
}

fn listed(found: &[UnitInfo]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Failure for OpenError {
    fn exit(&self) -> Exit {
        match self {
            Self::Several { .. } | Self::Ambiguous { .. } | Self::Mounted { .. } => Exit::Refused,
            Self::Interrupted(interrupted) => interrupted.exit(),
            Self::None | Self::NoMatch { .. } | Self::NoUas { .. } | Self::NoReturn { .. } | Self::Usb(_) => {
                Exit::Device
            }
        }
    }
}
