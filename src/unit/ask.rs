//! Questions to a unit, one function each. Every command asks through these, so that all of them know the same.
//!
//! Asking can change a unit, so a function says what it changes and in which order it asks. Contents of the flash and
//! what is behind vendor firmware have their own: [`Running`](crate::flash::observe::ObservedFirmware) and
//! [`Storage`](asm2464_host::bridge::Storage).

use asm2464::interrupt::Interrupt;
use asm2464::sram::DMA_STATE;
use asm2464_host::bridge::{Bridge, CommandError, ControlError, OpenBridge};
use asm2464_host::pcie::{Link, Pcie, Scope, Survey, TlpEngine};

use super::facts::{Asked, PipeState};
use super::live::Live;

/// Assigns bus numbers only: without them, devices behind bridges stay invisible.
const WHO_ANSWERS: Scope = Scope { buses: true, ..Scope::READ_ONLY };
/// The most checks of the PCIe link after a reset, [`LINK_STEP_MS`] apart: two seconds, twice the time that PCIe allows
/// a device.
pub(crate) const LINK_STEPS: u32 = 20;
/// Time between two checks of the link, in milliseconds.
pub(crate) const LINK_STEP_MS: u64 = 100;

/// Whether the unit moves bulk data. Vendor firmware gets an INQUIRY, at which 240417 looks for an SSD. Open firmware is
/// asked only if it `may_write`: 64 bytes go to the SRAM and come back, and the DMA is disarmed again. If the unit is
/// silent, its port is reset.
pub fn pipes(live: &mut Live, may_write: bool) -> Asked<PipeState> {
    match live {
        // The kernel's driver may have been identifying the unit until it was taken, and an answer to the driver can
        // come in place of the first one. The transport has recovered from that, so ask once more.
        Live::Vendor(bridge) => match answers(bridge) {
            Asked::Failed(_) => answers(bridge),
            answered => answered,
        },
        Live::Open(bridge) => moves(bridge, may_write),
    }
}

/// Whether vendor firmware answers commands. If it does not, a control request shows whether only the bulk pipes hang or
/// the whole unit is dead.
pub(crate) fn answers(bridge: &mut Bridge) -> Asked<PipeState> {
    let mut asked = bridge.inquiry();
    if matches!(&asked, Err(CommandError::Transport(error)) if error.is_timeout()) {
        asked = bridge.inquiry();
    }
    let error = match asked {
        Ok(_) => return Asked::Is(PipeState::Move),
        Err(error) => error,
    };
    let CommandError::Transport(transport) = &error else { return Asked::Failed(error.into()) };
    let is_silent = transport.is_timeout();
    if is_silent && bridge.transport_mut().answers_control() {
        return Asked::Is(PipeState::Hang);
    }
    // Recovery ends with a port reset. Some systems remove a unit from the bus if it is still silent then.
    if is_silent || transport.is_gone() {
        return Asked::Is(PipeState::Dead);
    }
    Asked::Failed(error.into())
}

/// Whether open firmware moves bulk data.
fn moves(bridge: &mut OpenBridge, may_write: bool) -> Asked<PipeState> {
    let mut status = [0];
    let mut asked = bridge.xdata_read(DMA_STATE, &mut status);
    if matches!(asked, Err(ControlError::Timeout { .. })) {
        asked = bridge.reset_port().and_then(|()| bridge.xdata_read(DMA_STATE, &mut status));
    }
    match (asked, status[0]) {
        (Err(ControlError::Timeout { .. } | ControlError::Disconnected { .. }), _) => Asked::Is(PipeState::Dead),
        (Err(error), _) => Asked::Failed(error.into()),
        (Ok(()), busy @ 1..) => Asked::Is(PipeState::Busy(busy)),
        (Ok(()), 0) if !may_write => Asked::NotAsked,
        (Ok(()), 0) => match bridge.check_bulk() {
            Ok(()) => Asked::Is(PipeState::Move),
            Err(ControlError::BulkTimeout { answers: true, .. }) => Asked::Is(PipeState::Hang),
            Err(ControlError::SramBusy { status, .. }) => Asked::Is(PipeState::Busy(status)),
            Err(ControlError::Timeout { .. } | ControlError::Disconnected { .. }) => Asked::Is(PipeState::Dead),
            Err(error) => Asked::Failed(error.into()),
        },
    }
}

/// The PCIe link, and the tree behind it if it is up. If it `may_write`, bridges without bus numbers get some, because
/// devices behind them would stay invisible. The numbers last as long as PCIe has power.
pub fn pcie(engine: &mut dyn TlpEngine, may_write: bool, interrupt: Interrupt<'_>) -> (Asked<Link>, Asked<Survey>) {
    let mut patience = interrupt;
    let mut pcie = Pcie::new(engine, &mut patience);
    let link = match pcie.trained_link() {
        Ok(link) => link,
        Err(error) => return (Asked::Failed(error.into()), Asked::NotAsked),
    };
    if !link.is_up {
        return (Asked::Is(link), Asked::NotAsked);
    }
    let scope = if may_write { WHO_ANSWERS } else { Scope::READ_ONLY };
    (Asked::Is(link), pcie.survey(scope).into())
}

/// Switches PCIe's power on (F3), as a runtime does before it looks for its GPU, and waits for the link. Some builds
/// leave it off until then. Returns `false` on builds without F3.
///
/// # Errors
/// [`ControlError`]. A link that stays down is none: ask for it with [`pcie`].
pub fn switch_pcie_on(bridge: &mut OpenBridge, interrupt: Interrupt<'_>) -> Result<bool, ControlError> {
    match bridge.pcie_power(true) {
        Ok(()) => {}
        Err(ControlError::Stalled { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    let mut patience = interrupt;
    let _ = Pcie::new(bridge, &mut patience).wait_for_link(LINK_STEPS, LINK_STEP_MS);
    Ok(true)
}
