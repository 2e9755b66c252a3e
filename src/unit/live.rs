//! A unit that is open, by the firmware that it runs, and the only guard for an SSD behind it.

use asm2464::firmware::BridgeState;
use asm2464::{AnyFailure, Failure, Kind, TransportKind};
use asm2464_host::bridge::{Behind, Bridge, OpenBridge, Port, Storage};
use asm2464_host::pcie::{TlpEngine, VendorTlp};

/// A unit that is open, by the firmware that it runs. Dropping it gives the unit back to the system.
pub enum Live {
    /// The vendor's firmware: SCSI commands. The boot loader takes only those that write the flash.
    Vendor(Bridge),
    /// Open firmware: control requests.
    Open(OpenBridge),
}

impl Live {
    /// Opens the unit at a port, which is in this state, over Bulk-Only or for control requests.
    ///
    /// # Errors
    /// As for [`Port::open_over`].
    pub fn at(port: &mut dyn Port, state: BridgeState) -> Result<Self, AnyFailure> {
        Self::over(port, state, Some(TransportKind::BulkOnly))
    }

    /// Opens the unit at a port, which is in this state: for SCSI commands over `wanted` or else over the best that it
    /// offers, or for control requests.
    ///
    /// # Errors
    /// As for [`Port::open_over`].
    pub fn over(port: &mut dyn Port, state: BridgeState, wanted: Option<TransportKind>) -> Result<Self, AnyFailure> {
        Ok(match state {
            BridgeState::OpenFirmware => Self::Open(port.open_control()?),
            BridgeState::Vendor | BridgeState::BootLoader => Self::Vendor(port.open_over(wanted)?),
        })
    }

    /// Returns what carries PCIe requests and accesses XDATA.
    pub fn engine(&mut self) -> Box<dyn TlpEngine + '_> {
        match self {
            Self::Vendor(bridge) => Box::new(VendorTlp::new(bridge)),
            Self::Open(unit) => Box::new(unit),
        }
    }

    /// Finds out what the vendor's firmware has behind it, and refuses an SSD as [`spare_ssd`] does. Open firmware
    /// drives none.
    ///
    /// # Errors
    /// As of [`spare_ssd`], and if the unit could not be asked.
    pub fn spare_ssd(&mut self, device: &str, purpose: Purpose) -> Result<(), AnyFailure> {
        match self {
            Self::Vendor(bridge) => Ok(spare_ssd(&Storage::ask(bridge)?.behind(), device, purpose)?),
            Self::Open(_) => Ok(()),
        }
    }
}

/// What a unit is opened for, if that can harm an SSD behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To measure its paths, which write.
    Bench,
    /// To send requests to PCIe.
    Pcie,
    /// To read or write XDATA.
    Xdata,
}

/// Refuses a unit of the vendor's firmware with an SSD behind it, or with what could be one: the firmware drives it
/// through the same registers, and WRITE(16) overwrites it.
///
/// # Errors
/// Of kind [`Kind::Refused`]. Nothing was sent that changes anything.
pub fn spare_ssd(behind: &Behind, device: &str, purpose: Purpose) -> Result<(), Failure> {
    match behind {
        Behind::NoMedium => Ok(()),
        // A GPU runtime initialises a unit only if it has no SSD. That is not proof enough for WRITE(16).
        Behind::Initialised(_) if purpose != Purpose::Bench => Ok(()),
        Behind::Initialised(why) | Behind::CannotTell(why) => Err(purpose.cannot_tell(device, why)),
        Behind::Ssd(what) => Err(purpose.ssd(device, what)),
    }
}

impl Purpose {
    /// The failure of a unit that is in its boot loader. Each purpose has codes of its own, because other advice helps.
    pub(crate) fn no_firmware(self, device: &str) -> Failure {
        let (label, lacks) = match self {
            Self::Bench => {
                (Kind::Refused.code("asmpatch::bench::no_firmware"), "has none of the paths that a bench measures")
            }
            Self::Pcie => (Kind::Refused.code("asmpatch::pcie::no_firmware"), "carries no PCIe requests"),
            Self::Xdata => (Kind::Refused.code("asmpatch::xdata::no_firmware"), "gives no access to XDATA"),
        };
        Failure::new(label, format!("{device}: the unit runs its {}, which {lacks}", BridgeState::BootLoader))
    }

    /// The failure of a unit with an SSD behind it.
    fn ssd(self, device: &str, what: &str) -> Failure {
        let label = match self {
            Self::Bench => Kind::Refused.code("asmpatch::bench::ssd"),
            Self::Pcie => Kind::Refused.code("asmpatch::pcie::ssd"),
            Self::Xdata => Kind::Refused.code("asmpatch::xdata::ssd"),
        };
        Failure::new(label, format!("{device}: an SSD is behind the bridge ({what}){}", self.harm()))
    }

    /// The failure of a unit that does not tell whether an SSD is there.
    pub(crate) fn cannot_tell(self, device: &str, why: &str) -> Failure {
        let label = match self {
            Self::Bench => Kind::Refused.code("asmpatch::bench::unknown_behind"),
            Self::Pcie => Kind::Refused.code("asmpatch::pcie::unknown_behind"),
            Self::Xdata => Kind::Refused.code("asmpatch::xdata::unknown_behind"),
        };
        let harm = self.harm();
        Failure::new(label, format!("{device}: asmpatch can't tell whether an SSD is behind the bridge{harm}: {why}"))
    }

    /// What it would do to an SSD, unless the error's help says so.
    const fn harm(self) -> &'static str {
        match self {
            Self::Bench => ", which WRITE(16) would overwrite",
            Self::Pcie | Self::Xdata => "",
        }
    }
}
