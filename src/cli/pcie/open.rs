//! Opens a unit for its PCIe side, whatever firmware it runs.

use std::time::Instant;

use crate::failure::AnyFailure;
use asm2464::firmware::BridgeState;
use asm2464_host::bridge::{Behind, ControlError, OpenBridge, survey};
use asm2464_host::pcie::{Pcie, TlpEngine, VendorTlp};

use super::{PcieRefusal, Reached, SURVEY_TIMEOUT, Waits};
use crate::cli::device::DeviceArgs;
use crate::cli::errors::Exit;
use crate::cli::interrupt;

/// How often to check the link after a reset, in steps of [`LINK_STEP_MS`]. Source: PCIe allows a device one second.
const LINK_STEPS: u32 = 20;
const LINK_STEP_MS: u64 = 100;

/// Opens the unit, resets what is behind it if `resets` says so, and passes its PCIe side to `work`.
///
/// # Errors
/// Fails if no unit is found, it has an SSD, its firmware carries no PCIe requests, or `work` fails.
pub(super) fn with_engine(
    args: &DeviceArgs,
    resets: bool,
    work: &mut dyn FnMut(&mut Reached<'_>) -> Result<(), AnyFailure>,
) -> Result<Exit, AnyFailure> {
    let recording = args.port.pcap.start()?;
    let mut chosen = args.port.choose(recording.capture())?;
    let (state, device) = (chosen.info.state, chosen.info.location.to_string());
    let mut patience = Waits { interrupt: interrupt::install(), until: Instant::now() + SURVEY_TIMEOUT };
    let interrupt = patience.interrupt;
    let mut reach = |engine: &mut dyn TlpEngine, supply, is_power_cycled: bool| {
        let mut pcie = Pcie::new(engine, &mut patience);
        if resets {
            if !is_power_cycled {
                pcie.hot_reset()?;
            }
            pcie.wait_for_link(LINK_STEPS, LINK_STEP_MS)?;
        }
        work(&mut Reached { pcie, device: device.clone(), firmware: state, supply, interrupt })
    };
    match state {
        BridgeState::OpenFirmware => {
            let mut unit = chosen.open_control()?;
            let supply = unit.bridge.supply()?;
            let is_power_cycled = resets && power_cycle(&mut unit.bridge)?;
            reach(&mut unit.bridge, supply, is_power_cycled)?;
        }
        BridgeState::Vendor => {
            let mut unit = chosen.open(args.transport.into())?;
            // These commands are also the first SCSI commands that the firmware gets, and it brings the link up with
            // those.
            match survey::behind(&mut unit.bridge)? {
                Behind::Ssd(what) => return Err(PcieRefusal::Ssd { device, what }.into()),
                // A GPU runtime initialises a unit only if it has no SSD.
                behind @ Behind::CannotTell(_) if behind.is_initialised() => {}
                Behind::CannotTell(why) => return Err(PcieRefusal::CannotTell { device, why }.into()),
                Behind::NoMedium => {}
            }
            reach(&mut VendorTlp::new(&mut unit.bridge), None, false)?;
        }
        BridgeState::BootLoader => return Err(PcieRefusal::NoFirmware { device, state }.into()),
    }
    Ok(Exit::Done)
}

/// Switches PCIe's power off and on. Returns `false` on builds that don't know the request.
fn power_cycle(bridge: &mut OpenBridge) -> Result<bool, ControlError> {
    match bridge.pcie_power(false) {
        Err(ControlError::Stalled { .. }) => return Ok(false),
        other => other?,
    }
    bridge.pcie_power(true)?;
    Ok(true)
}
