//! A unit that is open, by the firmware that it runs, and the only guard for an SSD behind it.

use std::error::Error;

use asm2464::firmware::BridgeState;
use asm2464::{Coded, Kind, Label};
use asm2464_host::bridge::{AnyTransport, Behind, Bridge, CommandError, OpenBridge, Port, PortError, survey};
use asm2464_host::pcie::{TlpEngine, VendorTlp};

use crate::failure::AnyFailure;

/// A unit that is open, by the firmware that it runs. Dropping it gives the unit back to the system.
pub enum Live {
    /// The vendor's firmware: SCSI commands. The boot loader takes only those that write the flash.
    Vendor(Bridge<AnyTransport>),
    /// Open firmware: control requests.
    Open(OpenBridge),
}

impl Live {
    /// Opens the unit at a port, which is in this state.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn at(port: &mut dyn Port, state: BridgeState) -> Result<Self, PortError> {
        Ok(match state {
            BridgeState::OpenFirmware => Self::Open(port.open_control()?),
            BridgeState::Vendor | BridgeState::BootLoader => Self::Vendor(port.open()?),
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
    /// [`GuardError`].
    pub fn spare_ssd(&mut self, device: &str, purpose: Purpose) -> Result<(), GuardError> {
        match self {
            Self::Vendor(bridge) => Ok(spare_ssd(&survey::behind(bridge)?, device, purpose)?),
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
/// [`Unfit`].
pub fn spare_ssd(behind: &Behind, device: &str, purpose: Purpose) -> Result<(), Unfit> {
    let device = device.to_owned();
    match behind {
        Behind::NoMedium => Ok(()),
        // A GPU runtime initialises a unit only if it has no SSD. That is not proof enough for WRITE(16).
        Behind::CannotTell(_) if purpose != Purpose::Bench && behind.is_initialised() => Ok(()),
        Behind::Ssd(what) => Err(Unfit::Ssd { device, purpose, what: what.clone() }),
        Behind::CannotTell(why) => Err(Unfit::CannotTell { device, purpose, why: why.clone() }),
    }
}

/// Reasons a unit is not used for a purpose. Nothing was sent that changes anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is in its boot loader.
    #[error("{device}: the unit runs its {}, which {}", BridgeState::BootLoader, .purpose.lacking())]
    NoFirmware {
        /// The unit.
        device: String,
        /// What it was opened for.
        purpose: Purpose,
    },
    /// An SSD is behind it.
    #[error("{device}: an SSD is behind the bridge ({what}){}", .purpose.harm())]
    Ssd {
        /// The unit.
        device: String,
        /// What it was opened for.
        purpose: Purpose,
        /// The SSD's capacity or model, as the unit reports it.
        what: String,
    },
    /// The unit does not tell whether an SSD is there.
    #[error("{device}: asmpatch can't tell whether an SSD is behind the bridge{}: {why}", .purpose.harm())]
    CannotTell {
        /// The unit.
        device: String,
        /// What it was opened for.
        purpose: Purpose,
        /// The reason.
        why: String,
    },
}

impl Unfit {
    /// Returns the refusal if a failure is one. Then nothing has changed, and the unit may do for another purpose.
    pub fn of(failure: &AnyFailure) -> Option<&Self> {
        (failure.coded() as &dyn Error).downcast_ref()
    }
}

impl Purpose {
    /// What a boot loader lacks for it.
    const fn lacking(self) -> &'static str {
        match self {
            Self::Bench => "has none of the paths that a bench measures",
            Self::Pcie => "carries no PCIe requests",
            Self::Xdata => "gives no access to XDATA",
        }
    }

    /// What it would do to an SSD, unless the error's help says so.
    const fn harm(self) -> &'static str {
        match self {
            Self::Bench => ", which WRITE(16) would overwrite",
            Self::Pcie | Self::Xdata => "",
        }
    }
}

/// Each purpose has codes of its own, because other advice helps.
impl Coded for Unfit {
    fn label(&self) -> Label {
        match self {
            Self::NoFirmware { purpose: Purpose::Bench, .. } => Kind::Device.code("asmpatch::bench::no_firmware"),
            Self::NoFirmware { purpose: Purpose::Pcie, .. } => Kind::Refused.code("asmpatch::pcie::no_firmware"),
            Self::NoFirmware { purpose: Purpose::Xdata, .. } => Kind::Refused.code("asmpatch::xdata::no_firmware"),
            Self::Ssd { purpose: Purpose::Bench, .. } => Kind::Refused.code("asmpatch::bench::ssd"),
            Self::Ssd { purpose: Purpose::Pcie, .. } => Kind::Refused.code("asmpatch::pcie::ssd"),
            Self::Ssd { purpose: Purpose::Xdata, .. } => Kind::Refused.code("asmpatch::xdata::ssd"),
            Self::CannotTell { purpose: Purpose::Bench, .. } => Kind::Refused.code("asmpatch::bench::unknown_behind"),
            Self::CannotTell { purpose: Purpose::Pcie, .. } => Kind::Refused.code("asmpatch::pcie::unknown_behind"),
            Self::CannotTell { purpose: Purpose::Xdata, .. } => Kind::Refused.code("asmpatch::xdata::unknown_behind"),
        }
    }
}

/// Reasons a unit does not pass the guard of an SSD.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The guard refuses the unit.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The unit could not be asked.
    #[error(transparent)]
    Command(#[from] CommandError),
}

asm2464::coded!(GuardError {
    Unfit(cause) => cause,
    Command(cause) => cause,
});
