//! Restarts a unit, in most cases without unplugging it. Tries the levels from strobes of its transfer engines to its
//! power, and stops at the mildest that helps.
//!
//! Sources: owners' notes on units with open firmware (2026), and the open firmware's own recovery. This project has
//! tried none of it on silicon.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use asm2464::firmware::{BridgeState, restarts_by_f4};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::ResetMode;
use asm2464::{AnyFailure, Kind};
use asm2464_host::bridge::{CommandError, ControlError, OpenBridge, Port, UnitInfo};
use asm2464_host::pcie::{Header, Pcie, PcieError};
use derive_more::Display;
use serde::Serialize;
use tracing::info;

use crate::advice::Advice;
use crate::unit::Live;
use crate::unit::ask::{self, LINK_STEP_MS, LINK_STEPS, answers, switch_pcie_on};
use crate::unit::facts::{Asked, PipeState};

/// Ways to restart a unit, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Strobes of the transfer engines, on open firmware. PCIe and the firmware go on.
    #[display("engines")]
    Engines,
    /// Everything behind the bridge, on open firmware: PCIe's power off and on (F3), or a hot reset on builds without
    /// F3.
    #[display("pcie-power")]
    PciePower,
    /// The CPU: E8 on the vendor's firmware, 0xCC31 on open firmware.
    #[display("cpu")]
    Cpu,
    /// The power of the unit's port, by its hub.
    #[display("port-power")]
    PortPower,
    /// The cable, by the user.
    #[display("cable")]
    Cable,
}

impl Level {
    /// All levels, mildest first.
    pub const ALL: [Self; 5] = [Self::Engines, Self::PciePower, Self::Cpu, Self::PortPower, Self::Cable];

    /// Whether a unit in this state supports the level; `None` is a unit that is off the bus.
    pub fn fits(self, state: Option<BridgeState>) -> bool {
        match self {
            Self::Engines | Self::PciePower => state == Some(BridgeState::OpenFirmware),
            Self::Cpu => matches!(state, Some(BridgeState::OpenFirmware | BridgeState::Vendor)),
            Self::PortPower | Self::Cable => true,
        }
    }
}

/// Kinds of faults that a restart may help against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "FaultKindJson"))]
#[serde(rename_all = "kebab-case")]
pub enum UnitFaultKind {
    /// The unit is off the bus.
    Away,
    /// It answers no request.
    Silent,
    /// Its bulk pipes don't move data, or change them.
    Bulk,
    /// The PCIe link is down.
    PcieLink,
    /// The PCIe link is up, but no device answers behind it.
    PcieSilent,
    /// The USB link runs at 480 Mbit/s or less.
    Slow,
}

impl UnitFaultKind {
    /// The levels that can help.
    pub const fn levels(self) -> RangeInclusive<Level> {
        match self {
            Self::Away => Level::PortPower..=Level::Cable,
            Self::Silent => Level::Cpu..=Level::Cable,
            Self::Bulk => Level::Engines..=Level::Cable,
            // A power cycle does not bring back a card that isn't there.
            Self::PcieLink | Self::PcieSilent => Level::PciePower..=Level::Cpu,
            // A port or a cable without SuperSpeed stays slow.
            Self::Slow => Level::Cpu..=Level::Cpu,
        }
    }

    /// Whether the unit can't be used with it.
    const fn is_grave(self) -> bool {
        matches!(self, Self::Away | Self::Silent | Self::Bulk)
    }
}

/// A fault of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "FaultJson"))]
#[display("{found}")]
pub struct UnitFault {
    /// Its kind.
    pub kind: UnitFaultKind,
    /// What was found, in words.
    pub found: String,
}

/// The state of a unit and its faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Condition"))]
#[cfg_attr(feature = "schemas", schemars(transform = whole_unit_or_none))]
pub struct UnitCondition {
    /// The unit; `None` if it is off the bus.
    #[serde(flatten)]
    pub attached: Option<UnitInfo>,
    /// Devices behind the bridge, as VENDOR:DEVICE and place; `None` if they were not looked for.
    #[serde(rename = "devices", skip_serializing_if = "Option::is_none")]
    pub behind: Option<Vec<String>>,
    /// What is wrong.
    pub faults: Vec<UnitFault>,
}

/// Requires all keys that a unit always has if one of them is present: schemars requires none for a flattened `Option`.
#[cfg(feature = "schemas")]
fn whole_unit_or_none(schema: &mut schemars::Schema) {
    use schemars::generate::SchemaSettings;
    use serde_json::{Map, Value};
    let unit = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<UnitInfo>();
    let keys = unit.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let all = |key: &Value| Some((key.as_str()?.to_owned(), keys.clone().into()));
    schema.insert("dependentRequired".to_owned(), keys.iter().filter_map(all).collect::<Map<_, _>>().into());
}

impl UnitCondition {
    fn state(&self) -> Option<BridgeState> {
        self.attached.as_ref().map(|attached| attached.state)
    }

    fn add(&mut self, kind: UnitFaultKind, found: impl Into<String>) {
        self.faults.push(UnitFault { kind, found: found.into() });
    }

    fn has(&self, kind: UnitFaultKind) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }

    /// Whether a level can help against one of the faults. `ignores_speed` leaves out a slow link.
    fn calls_for(&self, level: Level, ignores_speed: bool) -> bool {
        self.faults.iter().any(|UnitFault { kind, .. }| {
            let counts = !ignores_speed || *kind != UnitFaultKind::Slow;
            counts && kind.levels().contains(&level)
        })
    }
}

/// A level that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "TriedLevelJson"))]
pub struct Tried {
    /// The level.
    pub level: Level,
    /// Whether it could be carried out.
    pub done: bool,
    /// Whether a fault was gone after it.
    pub helped: bool,
    /// What happened, in words.
    pub result: String,
}

/// The course of a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RestartReport {
    /// The unit before.
    pub before: UnitCondition,
    /// The levels that were tried, in their order.
    pub tried: Vec<Tried>,
    /// The unit after.
    pub after: UnitCondition,
}

impl RestartReport {
    /// The level that helped; `None` if nothing was wrong before, or nothing has helped.
    pub fn helped(&self) -> Option<Level> {
        self.tried.iter().rev().find(|tried| tried.helped).map(|tried| tried.level)
    }

    /// What helps against a fault that is still there, but with which the unit can be used.
    pub fn advice(&self, fault: &UnitFault) -> Option<Advice> {
        let was_switched_on = self.tried.iter().any(|tried| tried.level == Level::PciePower);
        match fault.kind {
            UnitFaultKind::Slow => Some(Advice::RetrainLink { restarts: false }),
            UnitFaultKind::PcieLink if was_switched_on => Some(Advice::against("pcie::stays_down")),
            UnitFaultKind::PcieLink => Some(Advice::against("pcie::link_down")),
            UnitFaultKind::PcieSilent => Some(Advice::CheckSeat),
            UnitFaultKind::Away | UnitFaultKind::Silent | UnitFaultKind::Bulk => None,
        }
    }

    /// Whether a level was carried out, and the unit can be used after it.
    pub fn is_success(&self) -> bool {
        self.tried.iter().any(|tried| tried.done) && !self.after.faults.iter().any(|fault| fault.kind.is_grave())
    }
}

/// Options of a restart.
#[derive(Debug, Clone, Copy)]
pub struct RestartOptions {
    /// The only level to try; `None` tries all that can help, mildest first.
    pub only: Option<Level>,
    /// Time that a unit may take to come back by itself.
    pub come_back: Duration,
    /// Time that the user may take to unplug it and plug it in again; zero if nobody is there.
    pub replug: Duration,
}

/// Whether a restart of the unit's firmware trains a slow link anew. Open firmware that has fallen back to USB 2 has
/// switched SuperSpeed off in 0xCC30, and a CPU reset keeps that, except on builds with F4.
pub fn retrains(unit: &UnitInfo) -> bool {
    match unit.state {
        BridgeState::Vendor => true,
        BridgeState::OpenFirmware => restarts_by_f4(&unit.product),
        BridgeState::BootLoader => false,
    }
}

/// Time that PCIe stays without power.
const PCIE_OFF: Duration = Duration::from_millis(100);

/// Restarts the unit at a port. Starts at the mildest level that can help against what is wrong with it, or resets its
/// CPU if nothing is, and stops when nothing is wrong any more. Calls `ask_to_replug` when the user should unplug the
/// unit and plug it in again.
///
/// # Errors
/// If the unit can't be opened because of its disk, its user or permissions, and on Ctrl-C. A unit that stays faulty is
/// no error: see [`RestartReport::is_success`].
pub fn restart(
    port: &mut dyn Port,
    options: RestartOptions,
    ask_to_replug: &mut dyn FnMut(),
    interrupt: Interrupt<'_>,
) -> Result<RestartReport, AnyFailure> {
    let before = examine(port, false, false, interrupt)?;
    let mut report = RestartReport { after: before.clone(), before, tried: Vec::new() };
    let mut restarter = Restarter { port, options, ask_to_replug, interrupt, met: None };
    for level in Level::ALL {
        let is_done = report.tried.iter().any(|tried| tried.done);
        let is_wanted = match options.only {
            Some(only) => level == only,
            // Nothing is wrong: the user wants a restart.
            None if report.before.faults.is_empty() && !is_done => level >= Level::Cpu,
            None => {
                let ignores_speed = report.before.faults.iter().any(|fault| fault.kind != UnitFaultKind::Slow);
                report.after.calls_for(level, ignores_speed)
            }
        };
        if !is_wanted || !level.fits(report.after.state()) {
            continue;
        }
        interrupt.check()?;
        info!("restart level: {level}");
        let end = restarter.apply(level, &report.after)?;
        if let Some(met) = restarter.met.take()
            && !report.after.has(met.kind)
        {
            // No level has helped yet, so the fault was there before.
            report.before.faults.push(met.clone());
            report.after.faults.push(met);
        }
        let is_back = !matches!(end, LevelEnd::NotBack);
        let (done, result) = match end {
            LevelEnd::Done(what) => (true, what),
            LevelEnd::NotBack => (true, NOT_BACK.to_owned()),
            LevelEnd::NotDone(why) => (false, why),
        };
        let mut helped = false;
        // PCIe may have lost its power although the level failed.
        if done || level == Level::PciePower {
            let asks = report.before.faults.iter().any(|fault| fault.kind.is_grave());
            let mut now = examine(restarter.port, level >= Level::PciePower, asks, interrupt)?;
            if !is_back && now.attached.is_some() {
                now.add(UnitFaultKind::Silent, NOT_BACK);
            }
            let ends_one = report.after.faults.iter().any(|fault| !now.has(fault.kind));
            // A level that made the unit leave the bus has not helped.
            helped = done && ends_one && !now.has(UnitFaultKind::Away);
            report.after = now;
        }
        report.tried.push(Tried { level, done, helped, result });
    }
    interrupt.check()?;
    Ok(report)
}

const NOT_BACK: &str = "it has not come back in time";
const CPU_RESET: &str = "CPU reset";
const CPU_RESET_BY_F4: &str = "CPU reset with SuperSpeed allowed again (F4)";
/// A unit that is still on the bus after this time has ignored E8. One that takes it is back after about 3 s.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// Carries out the levels.
struct Restarter<'a, 'i> {
    port: &'a mut dyn Port,
    options: RestartOptions,
    ask_to_replug: &'a mut dyn FnMut(),
    interrupt: Interrupt<'i>,
    /// What a level found wrong with a unit that runs vendor firmware, once it had taken the unit.
    met: Option<UnitFault>,
}

/// How a level ended.
enum LevelEnd {
    /// It was carried out, in words.
    Done(String),
    /// It was carried out, and the unit has not come back in time.
    NotBack,
    /// It could not be carried out, for this reason.
    NotDone(String),
}

impl Restarter<'_, '_> {
    fn apply(&mut self, level: Level, now: &UnitCondition) -> Result<LevelEnd, AnyFailure> {
        match level {
            Level::Engines => self.with_open(|unit, _| unit.strobe_engines().map(|()| "strobed".to_owned())),
            Level::PciePower => self.with_open(pcie_power),
            Level::Cpu => match &now.attached {
                Some(unit) if unit.state == BridgeState::OpenFirmware => {
                    self.reset_open(unit, now.has(UnitFaultKind::PcieLink))
                }
                _ => self.reset_by_command(),
            },
            Level::PortPower => self.cycle_port(now),
            Level::Cable if self.port.location().is_virtual() => {
                Ok(LevelEnd::NotDone("a virtual unit has no cable to unplug".to_owned()))
            }
            Level::Cable if self.options.replug.is_zero() => {
                Ok(LevelEnd::NotDone("there is no terminal on which to ask you to unplug it".to_owned()))
            }
            Level::Cable => {
                (self.ask_to_replug)();
                self.wait(self.options.replug, "unplugged and plugged in again")
            }
        }
    }

    fn with_open(
        &mut self,
        act: impl FnOnce(&mut OpenBridge, Interrupt<'_>) -> Result<String, ControlError>,
    ) -> Result<LevelEnd, AnyFailure> {
        let mut unit = match self.port.open_control() {
            Ok(unit) => unit,
            Err(error) => return fault_message(error).map(LevelEnd::NotDone),
        };
        Ok(act(&mut unit, self.interrupt).map_or_else(|error| LevelEnd::NotDone(error.to_string()), LevelEnd::Done))
    }

    /// Resets the CPU of open firmware. `was_link_down` is whether PCIe's link was down before.
    fn reset_open(&mut self, attached: &UnitInfo, was_link_down: bool) -> Result<LevelEnd, AnyFailure> {
        let mut unit = match self.port.open_control() {
            Ok(unit) => unit,
            Err(error) => return fault_message(error).map(LevelEnd::NotDone),
        };
        let done = match restart_open(&mut unit, attached) {
            Ok(done) => done,
            Err(refused) => return Ok(LevelEnd::NotDone(refused.to_string())),
        };
        // Keep the unit until it has left: see `restart_cpu`.
        let outcome = self.wait(self.options.come_back, done);
        drop(unit);
        let outcome = outcome?;
        if matches!(outcome, LevelEnd::Done(_)) && !was_link_down {
            // Some builds start with PCIe switched off. Builds without F3 refuse it.
            if let Ok(mut unit) = self.port.open_control()
                && !unit.link().is_ok_and(|link| link.is_up)
            {
                let _ = unit.pcie_power(true);
            }
        }
        Ok(outcome)
    }

    fn reset_by_command(&mut self) -> Result<LevelEnd, AnyFailure> {
        let mut bridge = match self.port.open() {
            Ok(bridge) => bridge,
            Err(error) => return fault_message(error).map(LevelEnd::NotDone),
        };
        self.met = fault_in(answers(&mut bridge));
        if self.met.as_ref().is_some_and(|met| met.kind == UnitFaultKind::Silent) {
            return Ok(LevelEnd::NotDone("E8, its CPU reset, was not sent, because nothing answers".to_owned()));
        }
        match bridge.reset(ResetMode::CpuReset) {
            // A unit that resets at once does not answer. Its return shows whether it reset.
            Ok(()) | Err(CommandError::Transport(_)) => {}
            Err(refused) => return Ok(LevelEnd::NotDone(refused.to_string())),
        }
        info!("{}: CPU reset sent", self.port.location());
        // Release the port only after the unit has left the bus: see `flash`.
        let outcome = match self.met {
            None => self.wait(self.options.come_back, CPU_RESET),
            // It is not known which pipes hang. The unit may send no data but still take E8, which has none.
            Some(_) => self.wait_if_it_leaves(),
        };
        drop(bridge);
        outcome
    }

    /// Waits for a unit that may not have taken E8.
    fn wait_if_it_leaves(&mut self) -> Result<LevelEnd, AnyFailure> {
        let outcome = self.wait(LEAVES_WITHIN.min(self.options.come_back), CPU_RESET)?;
        if matches!(outcome, LevelEnd::Done(_)) {
            return Ok(outcome);
        }
        if self.port.attached().is_ok() {
            return Ok(LevelEnd::NotDone("E8, its CPU reset, was sent, but it stayed on the bus".to_owned()));
        }
        self.wait(self.options.come_back, CPU_RESET)
    }

    fn cycle_port(&mut self, now: &UnitCondition) -> Result<LevelEnd, AnyFailure> {
        // Keep other programs off the disk behind a unit whose power is cut.
        let mut held = match now.state().map(|state| Live::at(&mut *self.port, state)).transpose() {
            Ok(held) => held,
            // If the unit can't be opened at all, cycle its power nevertheless.
            Err(error) => fault_message(error).map(|_| None)?,
        };
        if let (Some(Live::Vendor(bridge)), Some(BridgeState::Vendor)) = (&mut held, now.state()) {
            self.met = fault_in(answers(bridge));
        }
        let cycled = self.port.power_cycle();
        drop(held);
        match cycled {
            Ok(true) => self.wait(self.options.come_back, "its hub switched its power off and on"),
            Ok(false) => Ok(LevelEnd::NotDone("no hub on its way can switch its power".to_owned())),
            Err(error) => Ok(LevelEnd::NotDone(error.to_string())),
        }
    }

    fn wait(&mut self, deadline: Duration, done: &str) -> Result<LevelEnd, AnyFailure> {
        let back = self.port.wait_for_return(deadline, self.interrupt)?;
        self.interrupt.check()?;
        Ok(if back.is_some() { LevelEnd::Done(done.to_owned()) } else { LevelEnd::NotBack })
    }
}

/// Restarts open firmware that runs on this unit, with SuperSpeed allowed again where its link is slow and its build can do
/// that. Returns what was done, in words. Keep the unit until it has left: see [`OpenBridge::restart_cpu`].
///
/// # Errors
/// [`ControlError::Stalled`] if the firmware refuses.
pub(crate) fn restart_open(unit: &mut OpenBridge, attached: &UnitInfo) -> Result<&'static str, ControlError> {
    if attached.speed.is_slow() && retrains(attached) {
        unit.restart_at_super_speed()?;
        return Ok(CPU_RESET_BY_F4);
    }
    unit.restart_cpu()?;
    Ok(CPU_RESET)
}

/// Returns the message of an error that the unit itself causes. Passes on any other: it forbids touching the unit.
fn fault_message(error: AnyFailure) -> Result<String, AnyFailure> {
    match error.kind() {
        Kind::Unopened | Kind::Gone => Ok(error.to_string()),
        _ => Err(error),
    }
}

/// Switches PCIe off and on, or resets what is behind the bridge on builds without F3.
fn pcie_power(unit: &mut OpenBridge, interrupt: Interrupt<'_>) -> Result<String, ControlError> {
    if !unit.link()?.is_up && switch_pcie_on(unit, interrupt)? && unit.link()?.is_up {
        return Ok("PCIe's power on: it was off".to_owned());
    }
    if cycle_pcie(unit)? {
        return Ok("PCIe's power off and on".to_owned());
    }
    let mut patience = interrupt;
    Ok(match Pcie::new(unit, &mut patience).hot_reset() {
        Ok(()) => "hot reset behind the bridge, because this build has no F3".to_owned(),
        Err(error) => format!("this build has no F3, and the hot reset failed: {error}"),
    })
}

/// Switches PCIe's power off and on. Returns `false` on builds without F3.
pub(crate) fn cycle_pcie(unit: &mut OpenBridge) -> Result<bool, ControlError> {
    match unit.pcie_power(false) {
        Err(ControlError::Stalled { .. }) => return Ok(false),
        other => other?,
    }
    thread::sleep(PCIE_OFF);
    // Try twice: otherwise everything behind the bridge stays off.
    unit.pcie_power(true).or_else(|_| unit.pcie_power(true))?;
    Ok(true)
}

/// What keeps a unit from moving data, if anything does.
fn fault_in(pipes: Asked<PipeState>) -> Option<UnitFault> {
    let (kind, found) = match pipes {
        Asked::NotAsked | Asked::Is(PipeState::Move) => return None,
        Asked::Is(PipeState::Hang) => (UnitFaultKind::Bulk, STUCK.to_owned()),
        Asked::Is(PipeState::Busy(status)) => {
            (UnitFaultKind::Bulk, format!("its SRAM DMA waits for data that doesn't come: 0xC450 reads {status:#04x}"))
        }
        Asked::Is(PipeState::Dead) => {
            (UnitFaultKind::Silent, "it answers neither commands nor control requests".to_owned())
        }
        Asked::Failed(error) => (UnitFaultKind::Bulk, format!("bulk data to it: {}", error.message)),
    };
    Some(UnitFault { kind, found })
}

/// Bulk pipes that hang, in words.
const STUCK: &str = "bulk data to it doesn't move, though it answers control requests";

/// Examines the unit. `looks_behind` also numbers the buses behind the bridge and lists the devices that answer there.
/// `asks` also takes a unit with vendor firmware from its driver, to see whether it answers commands.
fn examine(
    port: &mut dyn Port,
    looks_behind: bool,
    asks: bool,
    interrupt: Interrupt<'_>,
) -> Result<UnitCondition, AnyFailure> {
    let mut found = UnitCondition { attached: None, behind: None, faults: Vec::new() };
    let Ok(attached) = port.attached() else {
        found.add(UnitFaultKind::Away, "it is not on the bus");
        return Ok(found);
    };
    if attached.speed.is_slow() {
        found.add(UnitFaultKind::Slow, format!("its link is at {}", attached.speed));
    }
    let state = attached.state;
    found.attached = Some(attached);
    let takes_it = match state {
        BridgeState::OpenFirmware => true,
        // Leave it to the kernel's driver, which may wait long for the unit. The levels that take it show whether it
        // works.
        BridgeState::Vendor => asks,
        BridgeState::BootLoader => false,
    };
    if !takes_it {
        return Ok(found);
    }
    match Live::at(port, state) {
        Ok(mut live) => {
            found.faults.extend(fault_in(ask::pipes(&mut live, true)));
            if let Live::Open(mut unit) = live
                && !found.has(UnitFaultKind::Silent)
            {
                examine_pcie(&mut unit, looks_behind, interrupt, &mut found);
            }
        }
        // Something uses the unit's disk, so the unit answers.
        Err(error) if state == BridgeState::Vendor && error.kind() == Kind::DiskInUse => {}
        Err(error) => found.add(UnitFaultKind::Silent, fault_message(error)?),
    }
    Ok(found)
}

fn examine_pcie(unit: &mut OpenBridge, looks_behind: bool, interrupt: Interrupt<'_>, found: &mut UnitCondition) {
    let steps = if looks_behind { LINK_STEPS } else { 0 };
    let mut patience = interrupt;
    let mut pcie = Pcie::new(unit, &mut patience);
    match pcie.trained_link().and_then(|_| pcie.wait_for_link(steps, LINK_STEP_MS)) {
        Ok(()) => {}
        Err(error @ PcieError::LinkDown { .. }) => return found.add(UnitFaultKind::PcieLink, error.to_string()),
        Err(error) => return found.add(UnitFaultKind::Silent, format!("it does not answer: {error}")),
    }
    if !looks_behind {
        return;
    }
    // The restart has cleared the bus numbers anyway.
    let survey = match ask::pcie(unit, true, interrupt) {
        (_, Asked::Is(survey)) => survey,
        (Asked::Failed(error), _) | (_, Asked::Failed(error)) => {
            return found.add(UnitFaultKind::PcieSilent, format!("the PCIe link is up, but: {}", error.message));
        }
        (_, Asked::NotAsked) => return found.add(UnitFaultKind::PcieLink, "the PCIe link went down again"),
    };
    let mut ends = Vec::new();
    for function in &survey.functions {
        if matches!(function.header, Header::Endpoint { .. }) {
            ends.push(format!("{:04X}:{:04X} at {}", function.vendor, function.device, function.at));
        }
    }
    if ends.is_empty() {
        found.add(UnitFaultKind::PcieSilent, "the PCIe link is up, but no device answers behind it");
    }
    found.behind = Some(ends);
}

#[cfg(test)]
mod tests {
    use asm2464::TransportKind;
    use asm2464::firmware::Image;
    use asm2464::scsi::XdataAddress;
    use asm2464_chip::practice;
    use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
    use asm2464_host::bridge::{Bridge, Location};

    use super::*;
    use crate::tests::unknown_open_build;

    /// A unit that stays listed on the bus, but is never reported back after a restart.
    struct Stuck {
        unit: VirtualPort,
        attached: UnitInfo,
        control_opened: usize,
    }

    impl Stuck {
        fn with(image: &Image) -> Self {
            let unit = VirtualUnit::in_memory(Scenario::default(), b"stuck", Some(&image.to_file())).unwrap();
            let mut unit = VirtualPort::new("unit", unit);
            Self { attached: unit.attached().unwrap(), unit, control_opened: 0 }
        }
    }

    impl Port for Stuck {
        fn location(&self) -> Location {
            self.unit.location()
        }

        fn attached(&mut self) -> Result<UnitInfo, AnyFailure> {
            Ok(self.attached.clone())
        }

        fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, AnyFailure> {
            self.unit.open_over(wanted)
        }

        fn open_control(&mut self) -> Result<OpenBridge, AnyFailure> {
            self.control_opened += 1;
            self.unit.open_control()
        }

        fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
            Ok(true)
        }

        fn wait_for_return(&mut self, _: Duration, _: Interrupt<'_>) -> Result<Option<UnitInfo>, AnyFailure> {
            Ok(None)
        }
    }

    fn restarted(port: &mut Stuck, level: Level) -> RestartReport {
        let options = RestartOptions { only: Some(level), come_back: Duration::ZERO, replug: Duration::ZERO };
        restart(port, options, &mut || (), Interrupt::never()).unwrap()
    }

    #[test]
    fn a_unit_that_has_not_come_back_is_no_success_although_the_system_still_lists_it() {
        for level in [Level::Cpu, Level::PortPower] {
            let report = restarted(&mut Stuck::with(&practice::image()), level);
            let [Tried { done, helped, result, .. }] = &report.tried[..] else { panic!("{report:?}") };
            assert_eq!((*done, *helped, result.as_str()), (true, false, NOT_BACK), "{level}");
            assert!(report.after.attached.is_some() && report.after.has(UnitFaultKind::Silent), "{report:?}");
            assert!(!report.is_success(), "{level}");
        }
    }

    /// A unit with vendor firmware.
    fn vendor_unit(scenario: &str) -> VirtualPort {
        let scenario = Scenario::parse(scenario).unwrap();
        let image = practice::image().to_file();
        VirtualPort::new("unit", VirtualUnit::in_memory(scenario, b"vendor", Some(&image)).unwrap())
    }

    fn restarted_by(port: &mut dyn Port, only: Option<Level>) -> Result<RestartReport, AnyFailure> {
        let options = RestartOptions { only, come_back: Duration::from_secs(1), replug: Duration::ZERO };
        restart(port, options, &mut || (), Interrupt::never())
    }

    /// Restarts a unit with vendor firmware whose bulk pipes hang until its power goes.
    fn restarted_while_bulk_hangs(rest: &str, only: Option<Level>) -> RestartReport {
        restarted_by(&mut vendor_unit(&format!("bulk-hangs = true\n{rest}")), only).unwrap()
    }

    fn kinds(condition: &UnitCondition) -> Vec<UnitFaultKind> {
        condition.faults.iter().map(|fault| fault.kind).collect()
    }

    #[test]
    fn vendor_firmware_whose_bulk_pipes_hang_is_said_to_hang_before_anything_is_tried() {
        let report = restarted_while_bulk_hangs("port-power = true\n", None);
        assert_eq!(kinds(&report.before), [UnitFaultKind::Bulk], "{report:?}");
        let tried: Vec<_> = report.tried.iter().map(|tried| (tried.level, tried.done, tried.helped)).collect();
        assert_eq!(tried, [(Level::Cpu, false, false), (Level::PortPower, true, true)], "{report:?}");
        assert!(report.is_success() && report.after.faults.is_empty(), "{report:?}");
    }

    #[test]
    fn vendor_firmware_that_still_hangs_after_all_levels_is_no_success() {
        let report = restarted_while_bulk_hangs("", None);
        assert_eq!(
            (kinds(&report.before), kinds(&report.after)),
            (vec![UnitFaultKind::Bulk], vec![UnitFaultKind::Bulk])
        );
        assert!(report.tried.iter().all(|tried| !tried.done) && !report.is_success(), "{report:?}");
    }

    #[test]
    fn the_power_of_a_port_alone_also_says_what_was_wrong_with_vendor_firmware() {
        let report = restarted_while_bulk_hangs("port-power = true\n", Some(Level::PortPower));
        assert_eq!(kinds(&report.before), [UnitFaultKind::Bulk], "{report:?}");
        assert_eq!(report.helped(), Some(Level::PortPower), "{report:?}");
    }

    /// Restarts a unit with vendor firmware whose first INQUIRYs fail.
    fn restarted_while_inquiry_fails(rest: &str, kind: &str, times: u64) -> RestartReport {
        let fault = format!("[[fault]]\nkind = '{kind}'\nopcode = 0x12\ntimes = {times}\n");
        restarted_by(&mut vendor_unit(&format!("{rest}{fault}")), None).unwrap()
    }

    #[test]
    fn e8_restarts_vendor_firmware_that_still_takes_commands_although_none_of_its_data_arrives() {
        let report = restarted_while_inquiry_fails("", "timeout", 2);
        assert_eq!(kinds(&report.before), [UnitFaultKind::Bulk], "{report:?}");
        let [Tried { level: Level::Cpu, done: true, helped: true, result }] = &report.tried[..] else {
            panic!("{report:?}")
        };
        assert_eq!((result.as_str(), report.is_success()), ("CPU reset", true));
    }

    /// Restarts units that hang until their power goes, and whose first INQUIRYs then fail in each of three ways.
    fn restarted_while_inquiry_fails_after_a_level(times: u64) -> [RestartReport; 3] {
        thread::scope(|scope| {
            let restart = |kind| {
                scope
                    .spawn(move || restarted_while_inquiry_fails("bulk-hangs = true\nport-power = true\n", kind, times))
            };
            ["stall", "bad-tag", "phase-error"].map(restart).map(|report| report.join().unwrap())
        })
    }

    #[test]
    fn vendor_firmware_whose_commands_fail_after_a_level_is_no_success() {
        for report in restarted_while_inquiry_fails_after_a_level(9) {
            let power = report.tried.iter().find(|tried| tried.level == Level::PortPower).unwrap();
            assert_eq!((power.done, kinds(&report.after)), (true, vec![UnitFaultKind::Bulk]), "{report:?}");
            assert!(!power.helped && !report.is_success(), "{report:?}");
        }
    }

    #[test]
    fn vendor_firmware_whose_first_command_after_a_level_fails_is_asked_once_more() {
        for report in restarted_while_inquiry_fails_after_a_level(1) {
            assert_eq!((report.helped(), kinds(&report.after)), (Some(Level::PortPower), vec![]), "{report:?}");
        }
    }

    #[test]
    fn commands_of_vendor_firmware_that_fail_before_the_levels_are_a_fault_too() {
        let report = restarted_while_inquiry_fails("", "bad-tag", 1);
        assert_eq!((kinds(&report.before), kinds(&report.after)), (vec![UnitFaultKind::Bulk], vec![]), "{report:?}");
        assert_eq!(report.helped(), Some(Level::Cpu), "{report:?}");
    }

    /// A unit whose bulk pipes hang until its hub cuts its power, and which can't be opened after that. One that is gone
    /// has left the bus.
    struct Unopened {
        unit: VirtualPort,
        is_cycled: bool,
        kind: Kind,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the system says no")]
    struct SystemError(Kind);

    impl asm2464::Coded for SystemError {
        fn label(&self) -> asm2464::Label {
            self.0.code("asm2464::test")
        }
    }

    impl Port for Unopened {
        fn location(&self) -> Location {
            self.unit.location()
        }

        fn attached(&mut self) -> Result<UnitInfo, AnyFailure> {
            if self.is_cycled && self.kind == Kind::Gone {
                return Err(SystemError(self.kind).into());
            }
            self.unit.attached()
        }

        fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, AnyFailure> {
            if self.is_cycled { Err(SystemError(self.kind).into()) } else { self.unit.open_over(wanted) }
        }

        fn open_control(&mut self) -> Result<OpenBridge, AnyFailure> {
            self.unit.open_control()
        }

        fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
            self.is_cycled = true;
            self.unit.power_cycle()
        }

        fn wait_for_return(&mut self, wait: Duration, ask: Interrupt<'_>) -> Result<Option<UnitInfo>, AnyFailure> {
            self.unit.wait_for_return(wait, ask)
        }
    }

    fn restarted_unopened(kind: Kind) -> Result<RestartReport, AnyFailure> {
        let unit = vendor_unit("bulk-hangs = true\nport-power = true\n");
        restarted_by(&mut Unopened { unit, is_cycled: false, kind }, Some(Level::PortPower))
    }

    #[test]
    fn vendor_firmware_that_cannot_be_opened_after_a_level_is_no_success() {
        let report = restarted_unopened(Kind::Unopened).unwrap();
        assert_eq!(kinds(&report.after), [UnitFaultKind::Silent], "{report:?}");
        assert!(!report.is_success(), "{report:?}");
        assert_eq!(restarted_unopened(Kind::Device).unwrap_err().kind(), Kind::Device);
    }

    #[test]
    fn a_level_after_which_the_unit_is_off_the_bus_has_not_helped() {
        let report = restarted_unopened(Kind::Gone).unwrap();
        let was_tried: Vec<_> = report.tried.iter().map(|tried| (tried.level, tried.done, tried.helped)).collect();
        assert_eq!(was_tried, [(Level::PortPower, true, false)], "its pipes don't hang any more: {report:?}");
        assert_eq!((report.helped(), kinds(&report.after)), (None, vec![UnitFaultKind::Away]), "{report:?}");
        assert!(!report.is_success(), "{report:?}");
    }

    #[test]
    fn vendor_firmware_whose_disk_is_in_use_after_a_level_moves_data() {
        let report = restarted_unopened(Kind::DiskInUse).unwrap();
        assert!(report.after.faults.is_empty() && report.is_success(), "{report:?}");
    }

    /// A unit with open firmware that has fallen back to USB 2, as ed4e39b does it.
    fn fallen_back(image: &Image) -> VirtualPort {
        let unit = VirtualUnit::in_memory(Scenario::default(), b"slow", Some(&image.to_file())).unwrap();
        let mut port = VirtualPort::new("unit", unit);
        let mut bridge = port.open_control().unwrap();
        bridge.xdata_write(XdataAddress::main(0xCC30), 0).unwrap();
        bridge.restart_cpu().unwrap();
        drop(bridge);
        assert!(port.wait_for_return(Duration::from_secs(1), Interrupt::never()).unwrap().unwrap().speed.is_slow());
        port
    }

    #[test]
    fn open_firmware_that_has_fallen_back_to_usb_2_comes_back_at_superspeed_if_its_build_has_f4() {
        for (image, helped, result) in
            [(practice::open_image(), Some(Level::Cpu), CPU_RESET_BY_F4), (unknown_open_build(), None, CPU_RESET)]
        {
            let mut port = fallen_back(&image);
            assert_eq!(retrains(&port.attached().unwrap()), helped.is_some());
            let report = restarted_by(&mut port, None).unwrap();
            assert_eq!(report.helped(), helped, "{report:?}");
            assert_eq!((report.tried.len(), report.tried[0].result.as_str()), (1, result), "{report:?}");
            assert_eq!(report.after.attached.as_ref().unwrap().speed.is_slow(), helped.is_none(), "{report:?}");
        }
    }

    #[test]
    fn a_link_that_may_be_down_only_because_pcie_is_off_is_not_blamed_on_the_card() {
        let unit = |scenario: &str| {
            let image = practice::open_image().to_file();
            let unit = VirtualUnit::in_memory(Scenario::parse(scenario).unwrap(), b"off", Some(&image)).unwrap();
            VirtualPort::new("unit", unit)
        };
        for (scenario, level, expected) in [
            ("pcie-starts-off = true\n", Level::Cpu, Advice::against("pcie::link_down")),
            ("behind = 'nothing'\n", Level::PciePower, Advice::against("pcie::stays_down")),
        ] {
            let report = restarted_by(&mut unit(scenario), Some(level)).unwrap();
            let [fault] = &report.after.faults[..] else { panic!("{report:?}") };
            assert_eq!((fault.kind, report.advice(fault)), (UnitFaultKind::PcieLink, Some(expected)));
        }
    }

    #[test]
    fn pcie_is_not_switched_on_for_a_unit_that_has_not_come_back() {
        let mut port = Stuck::with(&practice::open_image());
        let report = restarted(&mut port, Level::Cpu);
        assert_eq!(report.tried[0].result, NOT_BACK, "{report:?}");
        // Before, for the restart, and after.
        assert_eq!(port.control_opened, 3);
    }
}
