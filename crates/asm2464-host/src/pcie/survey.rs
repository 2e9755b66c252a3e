//! Survey of the tree behind a bridge: finds functions, assigns missing bus numbers, and sizes BARs. Finds the function
//! that takes a memory request: the one with a BAR there, if every bridge above forwards the request. Besides the tree it
//! says what was written ([`Assignment`]), and what is wrong ([`Note`]).

use asm2464::Bdf;
use asm2464::tlp::{Completion, CompletionStatus, Tlp};
use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::access::{Link, Pcie, answer};
use super::capability::{Capabilities, CapabilityFault, LinkRate};
use super::engine::PcieError;
use super::function::{
    BUS_NUMBERS, Bar, BarKind, Buses, CAPABILITIES, COMMAND, COMMAND_IO, COMMAND_MEMORY, Function, HEADER_OFFSETS,
    Header, STATUS_CAPABILITIES, Window,
};

/// IDs of a function that is not ready, if its root port hides the retries from software. Source: PCI Express base
/// specification 4.0, 2.3.2.
const NOT_READY: u32 = 0xFFFF_0001;
/// Bit in the dword of the header's type: the device has other functions.
const MULTI_FUNCTION: u32 = 0x0080_0000;
/// Offsets of an endpoint's BAR registers. A bridge has the first two.
const BARS: [u16; 6] = [0x10, 0x14, 0x18, 0x1C, 0x20, 0x24];
/// Maximum number of functions. No tree behind a dock has more.
const FUNCTIONS_MAX: usize = 256;

/// Changes that a survey may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Assign bus numbers to bridges without any. Otherwise devices behind such a bridge stay invisible.
    pub buses: bool,
    /// Assign windows to bridges if no BAR in the tree has an address yet.
    pub windows: bool,
    /// Size the BARs: writes all ones to each and restores its value. Memory decoding is off meanwhile.
    pub sizes: bool,
    /// Read the extended capabilities too. Many devices have a dozen.
    pub extended: bool,
}

impl Scope {
    /// Writes nothing.
    pub const READ_ONLY: Self = Self { buses: false, windows: false, sizes: false, extended: false };
    /// Assigns what is missing, except BARs.
    pub const USUAL: Self = Self { buses: true, windows: true, sizes: true, extended: false };
}

/// Result of a survey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Survey {
    /// The link below the bridge.
    pub link: Link,
    /// The functions, each after the bridge above it.
    pub functions: Vec<Function>,
    /// What the survey wrote.
    pub changes: Vec<Assignment>,
    /// Problems that it found.
    pub notes: Vec<Note>,
}

impl Survey {
    /// The functions directly behind a bridge, as indices; those on bus 0 for `None`.
    pub fn behind(&self, bridge: Option<usize>) -> impl Iterator<Item = usize> {
        (0..self.functions.len()).filter(move |index| self.functions[*index].parent == bridge)
    }

    /// The function that decodes all of `len` bytes from `address` on, by its sized BARs; `None` if there is none. Ask
    /// before a write: one that no function decodes causes no error.
    pub fn decoder(&self, address: u64, len: u64) -> Option<Bdf> {
        let last = address.checked_add(len.checked_sub(1)?)?;
        let asked = Window { base: address, limit: last };
        let holds = |bar: &Bar| {
            let Some(limit) = bar.size.and_then(|size| bar.address.checked_add(size - 1)) else { return false };
            bar.kind != BarKind::Io && bar.is_assigned() && Window { base: bar.address, limit }.contains(asked)
        };
        for function in self.functions.iter().filter(|function| function.decodes_memory()) {
            if function.bars.iter().any(holds) && self.above(function).all(|bridge| bridge.forwards(asked)) {
                return Some(function.at);
            }
        }
        None
    }

    fn above(&self, function: &Function) -> impl Iterator<Item = &Function> {
        let above = |function: &Function| function.parent.map(|parent| &self.functions[parent]);
        std::iter::successors(above(function), move |bridge| above(bridge))
    }

    /// Adds a note, and returns `None`, if the function no longer answers.
    fn unless_lost<X>(&mut self, at: Bdf, asked: Result<X, PcieError>) -> Result<Option<X>, PcieError> {
        if let Err(PcieError::Completion { .. } | PcieError::NotReady { .. }) = asked {
            self.notes.push(Note::Lost { at });
            return Ok(None);
        }
        asked.map(Some)
    }
}

impl Pcie<'_> {
    /// Finds everything behind the bridge, and makes no other changes than `scope` allows.
    ///
    /// # Errors
    /// [`PcieError`]; [`PcieError::LinkDown`] if there is no link. Devices that misbehave are notes, not errors.
    pub fn survey(&mut self, scope: Scope) -> Result<Survey, PcieError> {
        let link = self.trained_link()?;
        if !link.is_up {
            return Err(PcieError::LinkDown { ltssm: link.ltssm });
        }
        let survey = Survey { link, functions: Vec::new(), changes: Vec::new(), notes: Vec::new() };
        let mut walk = Walk { pcie: self, scope, survey, bars: Vec::new() };
        walk.bus(0, None)?;
        let Walk { mut survey, bars, .. } = walk;
        if scope.sizes {
            for (index, registers) in bars.iter().enumerate() {
                let sized = self.size_bars(&mut survey, index, registers);
                survey.unless_lost(survey.functions[index].at, sized)?;
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

    /// Sizes a function's BARs. `registers` are their values when the function was found.
    fn size_bars(&mut self, survey: &mut Survey, index: usize, registers: &[u32]) -> Result<(), PcieError> {
        let function = &mut survey.functions[index];
        let (at, registers) = (function.at, &registers[..function.bar_registers()]);
        // The root port's BARs belong to the firmware.
        if registers.is_empty() || function.parent.is_none() || survey.notes.contains(&Note::Lost { at }) {
            return Ok(());
        }
        let command = u32::from(function.command);
        let decodes = function.command & (COMMAND_IO | COMMAND_MEMORY) != 0;
        if decodes {
            let quiet = command & !u32::from(COMMAND_IO | COMMAND_MEMORY);
            self.config_write(at, COMMAND, quiet, 0x03)?;
        }
        let offsets = &BARS[..registers.len()];
        let mut asks: Vec<Tlp> = offsets.iter().map(|offset| Tlp::config_write(at, *offset, u32::MAX)).collect();
        asks.extend(offsets.iter().map(|offset| Tlp::config_read(at, *offset)));
        let masks = self.config_all(at, &asks).map(|mut answers| answers.split_off(registers.len()));
        let mut back = Vec::with_capacity(registers.len() + 1);
        for (index, (offset, register)) in offsets.iter().zip(registers).enumerate() {
            // A register that took none of the ones still has its value.
            let is_unchanged = masks.as_ref().is_ok_and(|masks| masks[index] == *register);
            if !is_unchanged {
                back.push(Tlp::config_write(at, *offset, *register));
            }
        }
        if decodes {
            back.push(Tlp::config_write(at, COMMAND, command).with_enables(0x03));
        }
        self.config_all(at, &back)?;
        function.bars = Bar::decode(registers, Some(&masks?));
        let odd = function.bars.iter().filter(|bar| bar.size.is_none());
        survey.notes.extend(odd.map(|bar| Note::OddBar { at, index: bar.index }));
        Ok(())
    }
}

/// Adds a note for each link that is slower or narrower than both its ends support.
fn note_slow_links(survey: &mut Survey) {
    for function in &survey.functions {
        // All functions of a device show its link.
        if function.at.function != 0 {
            continue;
        }
        let Some(below) = function.capabilities.express() else { continue };
        let Some(parent) = function.parent else { continue };
        let Some(above) = survey.functions[parent].capabilities.express() else { continue };
        let can = below.link_max.least(above.link_max);
        if above.has_link_below() && below.link.lanes != 0 && below.link.least(can) != can {
            survey.notes.push(Note::Slow { at: function.at, link: below.link, can });
        }
    }
}

/// A survey in progress.
struct Walk<'w, 'a> {
    pcie: &'w mut Pcie<'a>,
    scope: Scope,
    survey: Survey,
    /// Values of each function's BAR registers.
    bars: Vec<[u32; BARS.len()]>,
}

impl Walk<'_, '_> {
    /// Finds the functions of a bus, and then those behind its bridges.
    fn bus(&mut self, bus: u8, parent: Option<usize>) -> Result<(), PcieError> {
        let has_link = |above: &Function| {
            // A bridge of unknown type is treated as a port with a link below.
            above.capabilities.express().is_none_or(|express| express.has_link_below())
        };
        let has_device_0_alone = match parent {
            // Bus 0 has only the bridge's root port.
            None => true,
            Some(above) => has_link(&self.survey.functions[above]),
        };
        let first = self.survey.functions.len();
        let devices: Vec<_> = (0..if has_device_0_alone { 1 } else { 32 }).map(|n| Bdf::new(bus, n, 0)).collect();
        // Most places on a switch's own bus are empty, so all are asked at once.
        let asked = if has_device_0_alone { vec![None] } else { self.ask(&devices)? };
        for (at, asked) in devices.into_iter().zip(asked) {
            if !self.device(at, parent, asked)? {
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

    /// Asks each place for its IDs, and returns the first answers.
    fn ask(&mut self, places: &[Bdf]) -> Result<Vec<Option<Completion>>, PcieError> {
        let tlps: Vec<Tlp> = places.iter().map(|at| Tlp::config_read(*at, 0)).collect();
        self.pcie.engine.tlps(&tlps)
    }

    /// Finds a device's functions. Returns `false` if the rest of its bus must not be scanned. `asked` is the first
    /// answer.
    fn device(&mut self, at: Bdf, parent: Option<usize>, asked: Option<Completion>) -> Result<bool, PcieError> {
        let mut functions = vec![(at, asked)].into_iter();
        while let Some((at, asked)) = functions.next() {
            if asked.is_some_and(|asked| asked.status == CompletionStatus::UnsupportedRequest) {
                continue;
            }
            if !self.pcie.patience.goes_on() {
                return Err(PcieError::Stopped { at });
            }
            if self.survey.functions.len() == FUNCTIONS_MAX {
                if !self.survey.notes.contains(&Note::TooMany) {
                    self.survey.notes.push(Note::TooMany);
                }
                return Ok(false);
            }
            match self.ids(at, asked) {
                Ok(Some(ids)) => {
                    let is_multi_function = self.function(at, parent, ids)?;
                    if at.function == 0 && is_multi_function {
                        let others: Vec<_> = (1..=7).map(|function| Bdf { function, ..at }).collect();
                        let asked = self.ask(&others)?;
                        functions = others.into_iter().zip(asked).collect::<Vec<_>>().into_iter();
                    }
                }
                Ok(None) => {}
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

    /// Reads the IDs of a function; `None` if no function answers, or all bits are ones. `asked` is its first answer,
    /// if there is one already.
    fn ids(&mut self, at: Bdf, mut asked: Option<Completion>) -> Result<Option<u32>, PcieError> {
        let tlp = Tlp::config_read(at, 0);
        let mut attempts = 0;
        loop {
            let completion = match asked.take() {
                Some(asked) if asked.status != CompletionStatus::ConfigRetry => asked,
                _ => self.pcie.settled(at, &tlp)?,
            };
            if completion.status == CompletionStatus::UnsupportedRequest {
                return Ok(None);
            }
            let ids = answer(&tlp, Some(completion))?;
            if ids != NOT_READY {
                let has_vendor = !matches!(ids as u16, 0 | 0xFFFF);
                return Ok(if has_vendor { Some(ids) } else { None });
            }
            attempts += 1;
            self.pcie.another_attempt(at, attempts)?;
        }
    }

    /// Reads a function's header and capabilities. Returns whether its device has more functions.
    fn function(&mut self, at: Bdf, parent: Option<usize>, ids: u32) -> Result<bool, PcieError> {
        let mut header = [0; 16];
        let asked = self.pcie.config_all(at, &HEADER_OFFSETS.map(|offset| Tlp::config_read(at, offset)));
        let Some(dwords) = self.survey.unless_lost(at, asked)? else { return Ok(false) };
        if dwords.last() == Some(&u32::MAX) {
            self.survey.notes.push(Note::Lost { at });
            return Ok(false);
        }
        header[0] = ids;
        for (offset, dword) in HEADER_OFFSETS.iter().zip(dwords) {
            header[usize::from(offset / 4)] = dword;
        }
        let mut function = Function::parse(at, parent, &header);
        if function.status & STATUS_CAPABILITIES != 0 {
            let first = header[CAPABILITIES / 4] as u8;
            let mut read = |offset, count| self.pcie.config_dwords(at, offset, count);
            let walked = Capabilities::walk(first, self.scope.extended, &mut read);
            function.capabilities = self.survey.unless_lost(at, walked)?.unwrap_or_default();
        }
        let faults = function.capabilities.faults.iter();
        self.survey.notes.extend(faults.map(|fault| Note::Capabilities { at, fault: *fault }));
        self.survey.functions.push(function);
        self.bars.push(BARS.map(|offset| header[usize::from(offset / 4)]));
        Ok(header[3] & MULTI_FUNCTION != 0)
    }

    /// Returns the bus behind a bridge, and assigns its number if allowed; `None` if it is not a bridge or can't be
    /// passed.
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

    /// Whether a bridge's numbers are unique, and within those of the bridge above.
    fn fits(&self, index: usize, buses: Buses) -> bool {
        let functions = &self.survey.functions;
        if buses.secondary > buses.subordinate || buses.secondary <= functions[index].at.bus {
            return false;
        }
        if let Some(parent) = functions[index].parent {
            let Some(above) = functions[parent].buses() else { return false };
            if buses.secondary <= above.secondary || buses.subordinate > above.subordinate {
                return false;
            }
        }
        let has_number = |function: &Function| function.buses().is_some_and(|other| other.secondary == buses.secondary);
        !functions.iter().enumerate().any(|(other, function)| other != index && has_number(function))
    }

    /// Assigns the next bus number to a bridge, and extends the bridges above.
    fn number(&mut self, index: usize) -> Result<Option<u8>, PcieError> {
        let functions = &self.survey.functions;
        let at = functions[index].at;
        let mut above = Vec::new();
        let mut next = functions[index].parent;
        while let Some(bridge) = next {
            above.push(bridge);
            next = functions[bridge].parent;
        }
        let (mut last, mut last_beside) = (0, 0);
        for (other, function) in functions.iter().enumerate() {
            let Some(buses) = function.buses() else { continue };
            if above.contains(&other) {
                last = last.max(buses.secondary);
            } else {
                last = last.max(buses.subordinate);
                last_beside = last_beside.max(buses.secondary);
            }
        }
        // The ranges of the bridges above must not grow over the buses of other bridges.
        let may_grow = |bridge: &usize| functions[*bridge].buses().is_none_or(|buses| buses.subordinate >= last_beside);
        let secondary = match last.checked_add(1) {
            Some(next) if above.iter().all(may_grow) => next,
            _ => {
                self.survey.notes.push(Note::NoBusLeft { at });
                return Ok(None);
            }
        };
        let mut numbers = Vec::new();
        for bridge in above.into_iter().rev() {
            if let Some(buses) = functions[bridge].buses() {
                numbers.push((bridge, Buses { subordinate: buses.subordinate.max(secondary), ..buses }));
            }
        }
        numbers.push((index, Buses { primary: at.bus, secondary, subordinate: secondary }));
        for (bridge, buses) in numbers {
            if self.survey.functions[bridge].buses() != Some(buses) && !self.write_buses(bridge, buses)? {
                return Ok(None);
            }
        }
        Ok(Some(secondary))
    }

    /// Writes a bridge's bus numbers. Returns `false` if the bridge does not keep them.
    fn write_buses(&mut self, index: usize, buses: Buses) -> Result<bool, PcieError> {
        let at = self.survey.functions[index].at;
        let value = u32::from_le_bytes([buses.primary, buses.secondary, buses.subordinate, 0]);
        let write = Tlp::config_write(at, BUS_NUMBERS, value).with_enables(0x07);
        let asked = self.pcie.config_all(at, &[write, Tlp::config_read(at, BUS_NUMBERS)]);
        let Some(answers) = self.survey.unless_lost(at, asked)? else { return Ok(false) };
        if answers.last().is_none_or(|read| read & 0x00FF_FFFF != value) {
            self.survey.notes.push(Note::BusesNotKept { at });
            return Ok(false);
        }
        if let Header::Bridge { buses: held, .. } = &mut self.survey.functions[index].header {
            *held = buses;
        }
        let assigned = Assignment::Buses { at, buses };
        for earlier in &mut self.survey.changes {
            if matches!(earlier, Assignment::Buses { at: other, .. } if *other == at) {
                *earlier = assigned;
                return Ok(true);
            }
        }
        self.survey.changes.push(assigned);
        Ok(true)
    }
}

impl Function {
    fn forwards(&self, asked: Window) -> bool {
        match self.header {
            Header::Bridge { memory, prefetchable, .. } => {
                self.decodes_memory()
                    && [memory, prefetchable].into_iter().flatten().any(|window| window.contains(asked))
            }
            _ => false,
        }
    }
}

impl Window {
    const fn contains(self, other: Self) -> bool {
        self.base <= other.base && other.limit <= self.limit
    }
}

/// A lasting change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "Change"))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Assignment {
    /// A bridge got bus numbers.
    Buses {
        /// The bridge.
        at: Bdf,
        /// The new numbers.
        buses: Buses,
    },
    /// A bridge got windows. It now forwards memory requests, and devices behind it may send some.
    Windows {
        /// The bridge.
        at: Bdf,
        /// The window below 4 GiB.
        memory: Option<Window>,
        /// The window for prefetchable memory.
        prefetchable: Option<Window>,
    },
    /// A BAR got an address. The function now answers memory requests.
    Bar {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
        /// The new address.
        address: u64,
    },
}

/// A problem that the survey found.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Note {
    /// A function never became ready.
    #[display("{at} is still not ready after {attempts} attempts")]
    NotReady {
        /// The function.
        at: Bdf,
        /// Number of attempts.
        attempts: u32,
    },
    /// A function sent no completion, so the rest of its bus was left alone.
    #[display("{at}: {answer}; the rest of its bus was not scanned")]
    NoAnswer {
        /// The function.
        at: Bdf,
        /// The answer instead of a completion.
        answer: String,
    },
    /// A function stopped answering.
    #[display("{at} stopped answering")]
    Lost {
        /// The function.
        at: Bdf,
    },
    /// A bridge has no bus numbers. What is behind it was not examined.
    #[display("{at} has no bus numbers assigned: what is behind it was not scanned")]
    NotNumbered {
        /// The bridge.
        at: Bdf,
    },
    /// A bridge's bus numbers are invalid. What is behind it was not examined.
    #[display(
        "{at} has bus numbers that make no sense ({:02x}, {:02x}-{:02x}): what is behind it was not scanned",
        buses.primary,
        buses.secondary,
        buses.subordinate
    )]
    OddBuses {
        /// The bridge.
        at: Bdf,
        /// Its numbers.
        buses: Buses,
    },
    /// No bus number is left for a bridge. What is behind it was not examined.
    #[display("no bus number is left for {at}: what is behind it was not scanned")]
    NoBusLeft {
        /// The bridge.
        at: Bdf,
    },
    /// A bridge does not keep the bus numbers that were written.
    #[display("{at} does not keep its bus numbers: what is behind it was not scanned")]
    BusesNotKept {
        /// The bridge.
        at: Bdf,
    },
    /// There are more functions than asmpatch examines.
    #[display("more than {FUNCTIONS_MAX} functions: the rest was not scanned")]
    TooMany,
    /// A list of capabilities is malformed.
    #[display("{at}: {fault}")]
    Capabilities {
        /// The function.
        at: Bdf,
        /// What is wrong with it.
        fault: CapabilityFault,
    },
    /// A BAR returned an invalid size.
    #[display("{at}: BAR {index} has an invalid size")]
    OddBar {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
    },
    /// A bridge forwards no memory requests although BARs in the tree have addresses.
    #[display("{at} forwards no memory requests")]
    Closed {
        /// The bridge.
        at: Bdf,
    },
    /// There is no room for a BAR.
    #[display("{at}: no room for the {size:#x} bytes of BAR {index}")]
    NoRoom {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
        /// Its size.
        size: u64,
    },
    /// A link is slower or narrower than both its ends support.
    #[display(
        "{at}: the link runs at {link}, both ends support {can}: check the card's seat and its cable; an idle GPU may lower \
         the speed by itself"
    )]
    Slow {
        /// The function at its lower end.
        at: Bdf,
        /// Rate that the link trained to.
        link: LinkRate,
        /// Rate that both ends support.
        can: LinkRate,
    },
    /// The link went down during the survey.
    #[display("the link went down meanwhile")]
    LinkWentDown,
}
