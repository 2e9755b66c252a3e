//! What an examination means for a GPU runtime, as data. Pure.

use asm2464_host::bridge::open::{Supply, SupplyMeasurement};
use asm2464_host::pcie::{Function, Survey};

use crate::gpus::{GpuSupport, Gpus, PciId};
use crate::runtimes::Runtime;

/// Minimum voltage at which a dock works, in millivolts. Source: openpilot's `modeld/helpers.py`, September 2026.
const SUPPLY_MIN_MV: u16 = 5_000;
/// Minimum voltage of a 12 V supply without load, in millivolts: ATX allows 11.4 V. Docks work with less, and healthy
/// ones measure up to 15.2 V. Source: sunnypilot's pull request 2023, openpilot's issue 39002, September 2026.
const SUPPLY_USUAL_MV: u16 = 11_400;
/// Base classes of devices that a GPU runtime may drive: display controllers, and processing accelerators. Source:
/// PCI-SIG's class codes.
const DISPLAY: u8 = 0x03;
const ACCELERATOR: u8 = 0x12;

/// State of a unit's supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SupplyState {
    /// The build doesn't report it.
    NotReported,
    /// The board doesn't measure it.
    NotMeasured {
        /// Whether its fault line is active.
        has_fault: bool,
    },
    /// The board reports a fault.
    Fault(SupplyMeasurement),
    /// Too low for any dock.
    Off(SupplyMeasurement),
    /// Lower than usual: it may sag under load until the link drops.
    Low(SupplyMeasurement),
    /// As it should be.
    Good(SupplyMeasurement),
}

impl SupplyState {
    /// Judges what a unit says about its supply; `None` if its build doesn't know the request.
    pub fn of(supply: Option<&Supply>) -> Self {
        match supply {
            None => Self::NotReported,
            Some(Supply { measured: None, has_fault }) => Self::NotMeasured { has_fault: *has_fault },
            Some(Supply { measured: Some(measured), has_fault: true }) => Self::Fault(*measured),
            Some(Supply { measured: Some(measured), .. }) => match measured.voltage_mv {
                ..SUPPLY_MIN_MV => Self::Off(*measured),
                SUPPLY_MIN_MV..SUPPLY_USUAL_MV => Self::Low(*measured),
                SUPPLY_USUAL_MV.. => Self::Good(*measured),
            },
        }
    }
}

/// What a runtime wants behind the bridge.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The GPUs that a runtime drives.
    pub gpus: &'a Gpus,
    /// The units that it opens, and the bus on which it looks.
    pub runtime: &'a Runtime,
    /// The device that the user expects, of whatever class.
    pub expected: Option<PciId>,
}

/// A device behind the bridge that a runtime might drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate<'a> {
    /// The device that the user expects.
    Expected(&'a Function),
    /// A GPU or an accelerator.
    Gpu(&'a Function, GpuSupport<'a>),
}

impl Wanted<'_> {
    /// Whether the known runtime drives what is wanted, and finds it where it is.
    pub fn is_known(&self, tree: &Survey) -> bool {
        let Some(expected) = self.expected else { return true };
        let is_found = |function: &&Function| id_of(function) == expected && function.at.bus == self.runtime.bus;
        matches!(self.gpus.support(expected), GpuSupport::Driven { .. }) && tree.functions.iter().any(|f| is_found(&f))
    }

    /// The devices behind the bridge that a runtime might drive, starting with those that one drives for certain; and
    /// all other devices.
    pub fn among<'a>(&'a self, tree: &'a Survey) -> (Vec<Candidate<'a>>, Vec<&'a Function>) {
        let (wanted, others): (Vec<&Function>, Vec<&Function>) =
            tree.functions.iter().partition(|function| match self.expected {
                Some(expected) => id_of(function) == expected,
                None => matches!((function.class >> 16) as u8, DISPLAY | ACCELERATOR),
            });
        let candidate = |function: &'a Function| match self.expected {
            Some(_) => Candidate::Expected(function),
            None => Candidate::Gpu(function, self.gpus.support(id_of(function))),
        };
        let mut wanted: Vec<Candidate<'_>> = wanted.into_iter().map(candidate).collect();
        wanted.sort_by_key(|candidate| !candidate.is_driven(self.runtime));
        (wanted, others)
    }
}

impl Candidate<'_> {
    /// Whether a runtime drives it, and looks where it is.
    pub fn is_driven(&self, runtime: &Runtime) -> bool {
        match self {
            Self::Expected(_) => true,
            Self::Gpu(function, GpuSupport::Driven { .. }) => function.at.bus == runtime.bus,
            Self::Gpu(..) => false,
        }
    }
}

/// A device's PCI ID.
fn id_of(function: &Function) -> PciId {
    PciId { vendor: function.vendor, device: function.device }
}
