//! Why no unit was opened.

use miette::Diagnostic;
use thiserror::Error;

use super::selector::Selector;
use crate::bridge::{Location, UnitInfo};
use crate::failure::{Exit, Failure};
use crate::usb::{DescriptorFault, MountedError, UsbError};
use crate::virtual_bridge;

/// No unit was opened; nothing was sent to any.
#[derive(Debug, Error, Diagnostic)]
pub enum OpenError {
    /// None is there.
    #[error("no ASM2464PD bridge is connected")]
    #[diagnostic(
        code(asmpatch::device::none),
        help(
            "plug one in over USB (a Thunderbolt or USB4 tunnel shows none). `asmpatch list --known` shows the USB IDs that \
             are looked for: where `lsusb` lists yours under another one, name it with `--usb-id VID:PID`. `--device \
             virtual` works without one"
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
    #[diagnostic(
        code(asmpatch::device::no_match),
        help(
            "`asmpatch list` shows port paths and serial numbers. A dock under a USB ID that is not known has to be named: \
             `--usb-id VID:PID`"
        )
    )]
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
    #[error(transparent)]
    #[diagnostic(transparent)]
    Mounted(#[from] MountedError),
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
    /// UAS was asked for and the system gives no streams.
    #[error("the system gives no bulk streams to the unit at {location}, which UAS needs")]
    #[diagnostic(
        code(asmpatch::device::no_streams),
        help(
            "leave --transport out to speak Bulk-Only; a host controller without streams, or one whose driver switches them off, has none"
        )
    )]
    NoStreams {
        /// The unit.
        location: Location,
    },
    /// A capture of a real unit was asked for.
    #[error("--pcap records virtual bridges alone")]
    #[diagnostic(
        code(asmpatch::device::not_recordable),
        help("name one with --device virtual:DIR; Wireshark's usbmon interfaces record a real unit")
    )]
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
    #[diagnostic(code(asmpatch::device::no_data_folder), help("name a folder yourself: --device virtual:DIR"))]
    NoDataFolder(String),
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
            Self::Several { .. } | Self::Ambiguous { .. } => Exit::Refused,
            Self::Mounted(mounted) => mounted.exit(),
            Self::Virtual(error) => error.exit(),
            Self::Absent(error) => error.exit(),
            Self::Unopened(error) => error.exit(),
            Self::NoDataFolder(_) | Self::NotRecordable => Exit::Usage,
            Self::None | Self::NoMatch { .. } | Self::NoUas { .. } | Self::NoStreams { .. } | Self::Usb(_) => {
                Exit::Device
            }
        }
    }
}
