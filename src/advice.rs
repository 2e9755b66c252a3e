//! Advice as data. The program puts it into words, for a dock or for a virtual unit.

use asm2464::Named;
use asm2464_host::bridge::Location;
use asm2464_host::pcie::Note;
use asm2464_host::usb::sysfs::DevicePort;
use serde::Serialize;

use crate::failure::PROGRAM;
use crate::gpus::PciId;

/// Who can take a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Applicability {
    /// Anyone, or a program: it is right without a doubt.
    Certain,
    /// Anyone, once the user has answered a question with yes.
    IfYes,
    /// The user, who alone knows a value.
    NeedsValue,
    /// The user, by hand.
    Hands,
}

/// Steps that the user carries out by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hands {
    /// Unplug the unit and plug it in again.
    Replug,
    /// The same, in a sentence that has already named the unit.
    ReplugIt,
    /// Plug the unit in again.
    PlugIn,
    /// Unplug cable and supply. The cable powers the chip, so unplugging only the supply does not restart it. Source:
    /// jacobrosenthal/tinygrad, `extra/usbgpu`, August 2026, for the order and the times.
    ReplugWithSupply,
    /// Steps against a slow link, one a line, in the order in which to try them. Source: the same; jagoff2/sunnypilot,
    /// September 2026.
    SlowLink,
    /// Have the unit handed on to this system again, where another system does that; nothing elsewhere.
    HandOn,
    /// Look at the cable and the power.
    CheckCable,
    /// Try another cable and port.
    OtherCable,
    /// The same, without a hub.
    OtherCableNoHub,
    /// The same, for a link that is slow.
    OtherPort,
    /// Try another cable and port, for a unit that is slower than it was to be.
    FasterLink,
    /// Try another supply.
    OtherSupply,
    /// Connect the supply.
    ConnectSupply,
    /// Check the supply.
    CheckSupply,
    /// Look for a backup of the unit, or do without one.
    FindBackup,
}

/// What helps against a finding about a unit, or about USB4 and Thunderbolt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// What helps against the error with this code.
    AgainstError {
        /// The code, as asmpatch shows it.
        code: String,
        /// What the error names.
        named: Vec<Named>,
    },
    /// Train the link again: by hand or, if the unit has firmware, by a restart.
    RetrainLink {
        /// Whether a restart can help.
        restarts: bool,
    },
    /// Keep the system from suspending the unit at this port.
    KeepAwake(Location),
    /// Give the CPU another frequency governor.
    OtherGovernor,
    /// End the process that holds a runtime's lock.
    EndLockHolder,
    /// Flash a newer build of the open firmware. The text says what this build lacks.
    NewerBuild(&'static str),
    /// Flash open firmware with a product string that the runtime accepts.
    FlashCustom,
    /// Flash open firmware with an ID that the runtime opens.
    FlashOtherId,
    /// Flash open firmware, or a version that the runtime initialises.
    FlashInitialised,
    /// Flash open firmware for later releases of the runtime.
    FlashForLater,
    /// Give the patched image the identity that the runtime looks for.
    PatchIdentity,
    /// Flash firmware that a runtime drives.
    FlashForRuntime,
    /// Make the unit start the firmware in its flash.
    StartFlashed,
    /// Give the unit a power cycle: nothing else helps.
    PowerCycle,
    /// Allow what a power cycle undoes.
    AllowWrites,
    /// End the runtime that initialised the unit, then restart the unit.
    EndRuntimeAndRestart,
    /// Check the supply if the link drops under load.
    CheckSupplyUnderLoad,
    /// Connect the supply, without which no dock works.
    ConnectSupply,
    /// Disconnect a supply that reports a fault, then try another one.
    ReplaceSupply,
    /// Check the supply if the card is not found.
    CheckSupplyWithoutCard,
    /// Put a GPU in the SSD's place.
    ReplaceSsd,
    /// Check the card's seat, and look at the PCIe tree.
    CheckSeat,
    /// Put a GPU on the bus on which the runtime looks.
    OtherBus {
        /// The GPU.
        id: PciId,
        /// Whether its bus has a higher number than that one.
        is_higher: bool,
    },
    /// Pass `--expect` if a runtime of the user's own drives this device.
    Expect {
        /// The device.
        id: PciId,
        /// Source of the statement that no known runtime drives it.
        source: Option<String>,
    },
    /// Try another cable, then compare the flash.
    OtherCableThenVerify,
    /// What helps against what a survey of PCIe noted, if anything does.
    AgainstNote(Note),
    /// Authorise the USB4 device with this UUID, if it says one.
    Authorise(Option<String>),
    /// Choose another security level in the host's firmware settings.
    AllowPcie,
    /// Look for a newer NVM.
    NewerNvm,
    /// Keep these folders of /sys awake. `rescans` says whether a search of PCIe shall follow.
    KeepPortsAwake {
        /// The folders, below /sys.
        folders: Vec<String>,
        /// Whether something is missing.
        rescans: bool,
    },
    /// Keep the kernel from resetting the host router at boot.
    KeepTunnels,
    /// Another cable or port for a dock whose tunnel or card has fewer lanes.
    MoreLanes,
    /// Find out why the host sees no PCIe of the dock.
    FindDock,
    /// Give the card its power, and search PCIe.
    PowerCard,
    /// Load the driver for a device: its PCI address, and the kernel's driver for its vendor's GPUs.
    LoadDriver {
        /// The device's PCI address.
        address: String,
        /// The driver, if its vendor's is known.
        driver: Option<&'static str>,
    },
    /// Make this USB-C port the host.
    BecomeHost(DevicePort),
    /// See why the tunnel of USB4 did not come up.
    MissingTunnel,
    /// Take the GPU back from a driver that only holds it: its PCI address.
    ReleaseHolder(String),
}

impl Advice {
    /// What helps against the error with this code, without the program's name: `pcie::link_down`.
    pub fn against(code: &str) -> Self {
        Self::AgainstError { code: format!("{PROGRAM}::{code}"), named: Vec::new() }
    }
}
