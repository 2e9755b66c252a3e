//! The tree behind a bridge: functions found, bus numbers given where there are none, BARs sized.

use serde::Serialize;

use super::access::{Link, Pcie, refused};
use super::bar::Bar;
use super::capability::Capabilities;
use super::engine::TlpEngine;
use super::error::PcieError;
use super::function::{BUS_NUMBERS, Buses, COMMAND, COMMAND_IO, COMMAND_MEMORY, Function, HEADER_DWORDS};
use super::note::{Change, Note};
use super::place::Bdf;
use crate::bridge::open::CompletionStatus;

/// More functions than this are no tree behind a dock.
pub(super) const FUNCTIONS_MAX: usize = 256;
/// What a function answers to a read of its IDs while it is not ready, where its root port hides the retries from
/// software. Source: PCI Express base specification 4.0, 2.3.2.
const NOT_READY: u32 = 0xFFFF_0001;

/// What a survey may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Give bus numbers to bridges that have none. What stands behind such a bridge isn't seen without.
    pub buses: bool,
    /// Give windows to bridges, where no BAR in the tree has an address yet.
    pub windows: bool,
    /// Ask BARs for their size: all ones are written to each and what stood there is put back. Memory decoding is off
    /// meanwhile.
    pub sizes: bool,
    /// Look at the extended capabilities, too, which many devices have a dozen of.
    pub extended: bool,
}

impl Scope {
    /// Nothing is written.
    pub const READ_ONLY: Self = Self { buses: false, windows: false, sizes: false, extended: false };
    /// What is missing is assigned, BARs apart.
    pub const USUAL: Self = Self { buses: true, windows: true, sizes: true, extended: false };
}

/// What a survey found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Survey {
    /// The link below the bridge.
    pub link: Link,
    /// The functions, each behind the bridge above it.
    pub functions: Vec<Function>,
    /// What was written.
    pub changes: Vec<Change>,
    /// What is not as it should be.
    pub notes: Vec<Note>,
}

impl Survey {
    /// The functions directly behind a bridge, by their indices; those on bus 0 for `None`.
    pub fn behind(&self, bridge: Option<usize>) -> impl Iterator<Item = usize> {
        (0..self.functions.len()).filter(move |index| self.functions[*index].parent == bridge)
    }

    /// The function at a place.
    pub fn at(&self, at: Bdf) -> Option<&Function> {
        self.functions.iter().find(|function| function.at == at)
    }
}

impl<E: TlpEngine> Pcie<'_, E> {
    /// Finds everything behind the bridge, and changes no more than `scope` allows.
    ///
    /// # Errors
    /// [`PcieError`]; [`PcieError::LinkDown`] where there is no link. Devices that misbehave are notes, no errors.
    pub fn survey(&mut self, scope: Scope) -> Result<Survey, PcieError> {
        let link = self.link()?;
        if !link.is_up {
            return Err(PcieError::LinkDown { ltssm: link.ltssm });
        }
        let survey = Survey { link, functions: Vec::new(), changes: Vec::new(), notes: Vec::new() };
        let mut walk = Walk { pcie: self, scope, survey };
        walk.bus(0, None)?;
        let mut survey = walk.survey;
        if scope.sizes {
            for index in 0..survey.functions.len() {
                match self.size_bars(&mut survey, index) {
                    Err(PcieError::Completion { .. } | PcieError::NotReady { .. }) => {
                        survey.notes.push(Note::Lost { at: survey.functions[index].at });
                    }
                    sized => sized?,
                }
            }
        }
        if scope.windows && scope.sizes {
            self.open_windows(&mut survey)?;
        }
        note_slow_links(&mut survey);
        survey.link = self.link()?;
        if !survey.link.is_up {
            survey.notes.push(Note::LinkWentDown);
        }
        Ok(survey)
    }

    /// Asks a function's BARs for their sizes.
    fn size_bars(&mut self, survey: &mut Survey, index: usize) -> Result<(), PcieError> {
        let function = &mut survey.functions[index];
        let (at, count) = (function.at, function.bar_registers() as u16);
        // The root port's are the firmware's business.
        if count == 0 || function.parent.is_none() || survey.notes.contains(&Note::Lost { at }) {
            return Ok(());
        }
        let command = u32::from(function.command);
        let decodes = function.command & (COMMAND_IO | COMMAND_MEMORY) != 0;
        if decodes {
            let quiet = command & !u32::from(COMMAND_IO | COMMAND_MEMORY);
            self.config_write(at, COMMAND, quiet, 0x03)?;
        }
        let registers = self.config_dwords(at, 0x10, count)?;
        let offsets = || (0x10..0x10 + 4 * count).step_by(4);
        for offset in offsets() {
            self.config_write(at, offset, u32::MAX, 0x0F)?;
        }
        let masks = self.config_dwords(at, 0x10, count);
        for (index, (offset, register)) in offsets().zip(&registers).enumerate() {
            // What took none of the ones holds what it held.
            let took = masks.as_ref().map_or(true, |masks| masks[index] != *register);
            if took {
                self.config_write(at, offset, *register, 0x0F)?;
            }
        }
        if decodes {
            self.config_write(at, COMMAND, command, 0x03)?;
        }
        function.bars = Bar::decode(&registers, Some(&masks?));
        let odd = function.bars.iter().filter(|bar| bar.size.is_none());
        survey.notes.extend(odd.map(|bar| Note::OddBar { at, index: bar.index }));
        Ok(())
    }
}

/// Notes each link that is slower or narrower than both its ends can.
fn note_slow_links(survey: &mut Survey) {
    let slow = survey.functions.iter().filter_map(|function| {
        // All functions of a device show its link.
        let below = function.capabilities.express().filter(|_| function.at.function == 0)?;
        let above = survey.functions[function.parent?].capabilities.express()?;
        let can = below.link_max.least(above.link_max);
        let is_slow = above.has_link_below() && below.link.lanes != 0 && below.link.least(can) != can;
        is_slow.then_some(Note::Slow { at: function.at, link: below.link, can })
    });
    let slow: Vec<Note> = slow.collect();
    survey.notes.extend(slow);
}

/// A survey under way.
struct Walk<'w, 'a, E> {
    pcie: &'w mut Pcie<'a, E>,
    scope: Scope,
    survey: Survey,
}

impl<E: TlpEngine> Walk<'_, '_, E> {
    /// Finds the functions of a bus, and then what is behind its bridges.
    fn bus(&mut self, bus: u8, parent: Option<usize>) -> Result<(), PcieError> {
        let has_link = |above: &Function| {
            // A bridge whose type nobody knows is taken for a port with a link below.
            above.capabilities.express().is_none_or(|express| express.has_link_below())
        };
        let devices = match parent {
            // The bridge itself.
            None => 0..=0,
            Some(above) if has_link(&self.survey.functions[above]) => 0..=0,
            Some(_) => 0..=31,
        };
        let first = self.survey.functions.len();
        // Most places on a switch's own bus are empty: they are all asked at once.
        let absent = if devices.end() > devices.start() { self.absent(bus)? } else { [false; 32] };
        for device in devices.filter(|device| !absent[usize::from(*device)]) {
            if !self.device(Bdf::new(bus, device, 0), parent)? {
                break;
            }
        }
        for index in first..self.survey.functions.len() {
            if let Some(secondary) = self.secondary(index)? {
                self.bus(secondary, Some(index))?;
            }
        }
        Ok(())
    }

    /// The devices of a bus for which nobody answers.
    fn absent(&mut self, bus: u8) -> Result<[bool; 32], PcieError> {
        let tlps: Vec<_> = (0..32).map(|device| Bdf::new(bus, device, 0).read(0)).collect();
        let completions = self.pcie.completions(&tlps)?;
        let mut absent = [false; 32];
        for (absent, completion) in absent.iter_mut().zip(completions) {
            *absent = completion.is_some_and(|found| found.status == CompletionStatus::UnsupportedRequest);
        }
        Ok(absent)
    }

    /// Finds a device's functions; `false` where its bus is better left alone.
    fn device(&mut self, at: Bdf, parent: Option<usize>) -> Result<bool, PcieError> {
        let mut functions = 0..=0;
        while let Some(function) = functions.next() {
            let at = Bdf { function, ..at };
            if !self.pcie.patience.goes_on() {
                return Err(PcieError::Stopped { at });
            }
            if self.survey.functions.len() == FUNCTIONS_MAX {
                if !self.survey.notes.contains(&Note::TooMany) {
                    self.survey.notes.push(Note::TooMany);
                }
                return Ok(false);
            }
            match self.is_there(at) {
                Ok(true) => {
                    let is_multi_function = self.function(at, parent)?;
                    if function == 0 && is_multi_function {
                        functions = 1..=7;
                    }
                }
                Ok(false) => {}
                Err(PcieError::NotReady { at, attempts }) => self.survey.notes.push(Note::NotReady { at, attempts }),
                Err(PcieError::Completion { status, .. }) => {
                    self.survey.notes.push(Note::NoAnswer { at, answer: status.to_string() });
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether a function answers. A device that answers with all ones is none.
    fn is_there(&mut self, at: Bdf) -> Result<bool, PcieError> {
        let tlp = at.read(0);
        let mut attempts = 0;
        loop {
            let completion = self.pcie.settled(at, &tlp)?;
            match (completion.status, completion.data) {
                (CompletionStatus::Success, NOT_READY) => {
                    attempts += 1;
                    self.pcie.another_attempt(at, attempts)?;
                }
                (CompletionStatus::Success, ids) => return Ok(!matches!(ids as u16, 0 | 0xFFFF)),
                (CompletionStatus::UnsupportedRequest, _) => return Ok(false),
                (status, _) => return Err(refused(&tlp, status)),
            }
        }
    }

    /// Reads a function's header and capabilities; whether its device has more functions.
    fn function(&mut self, at: Bdf, parent: Option<usize>) -> Result<bool, PcieError> {
        let header = match self.pcie.config_dwords(at, 0, HEADER_DWORDS) {
            Ok(header) if header[0] as u16 != 0xFFFF => header,
            Ok(_) | Err(PcieError::Completion { .. } | PcieError::NotReady { .. }) => {
                self.survey.notes.push(Note::Lost { at });
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let mut function = Function::parse(at, parent, &header);
        if function.has_capabilities() {
            match Capabilities::walk(self.scope.extended, |offset| match header.get(usize::from(offset / 4)) {
                Some(dword) => Ok(*dword),
                None => self.pcie.config_read(at, offset),
            }) {
                Ok(found) => function.capabilities = found,
                Err(PcieError::Completion { .. } | PcieError::NotReady { .. }) => {
                    self.survey.notes.push(Note::Lost { at });
                }
                Err(error) => return Err(error),
            }
        }
        let faults = function.capabilities.faults.iter();
        self.survey.notes.extend(faults.map(|fault| Note::Capabilities { at, fault: *fault }));
        let is_multi_function = function.is_multi_function;
        self.survey.functions.push(function);
        Ok(is_multi_function)
    }

    /// The bus behind a bridge, numbered now where it may be; `None` for what is no bridge or can't be passed.
    fn secondary(&mut self, index: usize) -> Result<Option<u8>, PcieError> {
        let function = &self.survey.functions[index];
        let (at, Some(buses)) = (function.at, function.buses()) else { return Ok(None) };
        let note = match buses.secondary {
            0 if self.scope.buses => return self.number(index),
            0 => Note::NotNumbered { at },
            secondary if self.fits(index, buses) => return Ok(Some(secondary)),
            _ => Note::OddBuses { at, buses },
        };
        self.survey.notes.push(note);
        Ok(None)
    }

    /// Whether a bridge's numbers are its own, and within those of the bridge above.
    fn fits(&self, index: usize, buses: Buses) -> bool {
        let within = self.survey.functions[index].parent.is_none_or(|above| {
            self.survey.functions[above]
                .buses()
                .is_some_and(|above| buses.secondary > above.secondary && buses.subordinate <= above.subordinate)
        });
        let others = self.survey.functions.iter().enumerate().filter(|(other, _)| *other != index);
        within
            && buses.secondary <= buses.subordinate
            && buses.secondary > self.survey.functions[index].at.bus
            && others.filter_map(|(_, other)| other.buses()).all(|other| other.secondary != buses.secondary)
    }

    /// Gives a bridge the next bus number, and the bridges above room for it.
    fn number(&mut self, index: usize) -> Result<Option<u8>, PcieError> {
        let at = self.survey.functions[index].at;
        let above: Vec<usize> =
            std::iter::successors(self.survey.functions[index].parent, |above| self.survey.functions[*above].parent)
                .collect();
        let used = self.survey.functions.iter().enumerate().filter_map(|(other, function)| {
            let buses = function.buses()?;
            Some(if above.contains(&other) { buses.secondary } else { buses.subordinate })
        });
        let Some(secondary) = used.max().unwrap_or(0).checked_add(1) else {
            self.survey.notes.push(Note::NoBusLeft { at });
            return Ok(None);
        };
        // What is numbered beside the bridges above must not get behind them.
        let stands_in_the_way = |bridge: &usize| {
            let mut functions = self.survey.functions.iter().enumerate();
            self.survey.functions[*bridge].buses().is_some_and(|grows| {
                functions.any(|(other, function)| {
                    let beside = function.buses().filter(|_| !above.contains(&other));
                    beside.is_some_and(|beside| beside.secondary > grows.subordinate)
                })
            })
        };
        if above.iter().any(stands_in_the_way) {
            self.survey.notes.push(Note::NoBusLeft { at });
            return Ok(None);
        }
        let own = Buses { primary: at.bus, secondary, subordinate: secondary };
        for (bridge, buses) in above
            .iter()
            .rev()
            .filter_map(|above| {
                let buses = self.survey.functions[*above].buses()?;
                Some((*above, Buses { subordinate: buses.subordinate.max(secondary), ..buses }))
            })
            .chain([(index, own)])
            .collect::<Vec<_>>()
        {
            if self.survey.functions[bridge].buses() != Some(buses) && !self.write_buses(bridge, buses)? {
                return Ok(None);
            }
        }
        Ok(Some(secondary))
    }

    /// Writes a bridge's bus numbers; `false` where they don't stay.
    fn write_buses(&mut self, index: usize, buses: Buses) -> Result<bool, PcieError> {
        let at = self.survey.functions[index].at;
        let value = u32::from_le_bytes([buses.primary, buses.secondary, buses.subordinate, 0]);
        let written = self.pcie.config_write(at, BUS_NUMBERS, value, 0x07);
        let read = written.and_then(|()| self.pcie.config_read(at, BUS_NUMBERS));
        match read {
            Ok(read) if read & 0x00FF_FFFF == value => {}
            Ok(_) => {
                self.survey.notes.push(Note::BusesNotKept { at });
                return Ok(false);
            }
            Err(PcieError::Completion { .. } | PcieError::NotReady { .. }) => {
                self.survey.notes.push(Note::Lost { at });
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.survey.functions[index].set_buses(buses);
        let change = Change::Buses { at, buses };
        let earlier = self
            .survey
            .changes
            .iter_mut()
            .find(|earlier| matches!(earlier, Change::Buses { at: other, .. } if *other == at));
        match earlier {
            Some(earlier) => *earlier = change,
            None => self.survey.changes.push(change),
        }
        Ok(true)
    }
}
