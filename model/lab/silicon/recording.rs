//! Recordings of real chips: every access to a register, the interrupts, and the returns from them.
//!
//! The rig ran the CPU in an emulator and sent its register accesses to a chip. A line is
//! `[cycle] PC=0x5280 Write 0xCC32 = 0x01`, and the PC is one more than the MOVX's address.
//!
//! An interrupt that the chip raised during another's handler began at the handler's RETI, for which the rig wrote no
//! line. Here it is at the line in which the rig reported it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use asm2464::firmware::Image;
use asm2464::scsi::bot::{CBW_LEN, CBW_SIGNATURE};
use asm2464_chip::chip::Speed;
use asm2464_chip::mcu::{AccessKind, CodeSpace};

/// An access of the CPU to a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Address of the MOVX, without its bank.
    pub pc: u16,
    pub kind: AccessKind,
    pub addr: u16,
    pub value: u8,
    /// Line of the recording; 0 in an access of the model.
    pub line: usize,
    /// Number of the interrupt in which it was made, from 1; 0 outside interrupts.
    pub interrupt: usize,
}

impl Access {
    /// The access without its value: the PC, whether it is a write, and the address.
    pub fn what(&self) -> (u16, bool, u16) {
        (self.pc, self.kind == AccessKind::Write, self.addr)
    }

    pub fn is_read(&self) -> bool {
        self.kind == AccessKind::Read
    }

    /// Whether it is a read of this register that shows one of these bits.
    pub fn reads(&self, addr: u16, bits: u8) -> bool {
        self.is_read() && self.addr == addr && self.value & bits != 0
    }

    fn writes(&self, addr: u16, bits: u8) -> bool {
        !self.is_read() && self.addr == addr && self.value & bits != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Access(Access),
    /// The chip raised an interrupt: 0 for INT0, 1 for INT1.
    Interrupt(u8),
    Return,
}

impl Event {
    pub fn access(&self) -> Option<&Access> {
        match self {
            Self::Access(access) => Some(access),
            Self::Interrupt(_) | Self::Return => None,
        }
    }
}

/// For each interrupt, from number 1 on, the bits that each register showed there.
pub fn shown_in_interrupts(events: &[Event]) -> BTreeMap<usize, BTreeMap<u16, u8>> {
    let mut shown: BTreeMap<usize, BTreeMap<u16, u8>> = BTreeMap::new();
    for access in events.iter().filter_map(Event::access).filter(|access| access.is_read() && access.interrupt > 0) {
        *shown.entry(access.interrupt).or_default().entry(access.addr).or_default() |= access.value;
    }
    shown
}

pub struct Recording {
    /// The file's name.
    pub name: String,
    pub events: Vec<Event>,
    /// The rig's cycle at each event, or the line's number where a line has no cycle.
    pub cycles: Vec<u64>,
    /// Whether it begins at the reset vector.
    pub from_reset: bool,
}

/// A request or an event from outside the chip, as far as the firmware's reads show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// New bits of an event register of the link.
    Link { register: u16, bits: u8 },
    /// New value of a register that shows the chip's surroundings: one of [`BOARD`], or 92F8, what the link negotiated.
    Outside { register: u16, value: u8 },
    /// A SETUP packet, and the data of a write.
    Setup([u8; 8], Vec<u8>),
    /// A UAS command.
    Command { tag: u16, cdb: [u8; CDB_LEN] },
    /// A CBW, and the data that follows it.
    Cbw([u8; CBW_LEN], Vec<u8>),
}

impl Request {
    /// A CBW, with zeros for the data from the host that it announces, at most [`DATA_LEN`].
    pub fn cbw(cbw: [u8; CBW_LEN]) -> Self {
        let len = u32::from_le_bytes([cbw[8], cbw[9], cbw[10], cbw[11]]) as usize;
        let is_out = cbw[12] & 0x80 == 0;
        Self::Cbw(cbw, vec![0; if is_out { len.min(DATA_LEN) } else { 0 }])
    }

    /// Whether the host sent it.
    pub fn is_hosts(&self) -> bool {
        !matches!(self, Self::Link { .. } | Self::Outside { .. })
    }

    /// The bits by which a register shows the request: in 9101 and C802, which summarise events, or in the link's.
    fn bits(&self, addr: u16) -> u8 {
        match (addr, self) {
            (0x9101, Self::Setup(..)) => 0x02,
            (0x9101, Self::Cbw(..)) => 0x40,
            (0x9101, Self::Link { register: 0x91D1, .. }) => 0x01,
            (0x9101, Self::Link { register: 0x9301, bits: 0x40.. } | Self::Link { register: 0x9302, bits: 0x80.. }) => {
                0x08
            }
            (0x9101, Self::Link { register: 0x9300, .. }) => 0x10,
            (0x9101, Self::Link { register: 0x9302, bits }) if bits & 0x3F != 0 => 0x10,
            (_, Self::Link { register, bits }) if *register == addr => *bits,
            (0xC802, Self::Setup(..) | Self::Cbw(..)) => 0x01,
            (0xC802, Self::Link { .. }) => u8::from(self.bits(0x9101) != 0),
            (0xC802, Self::Command { .. }) => 0x04,
            _ => 0,
        }
    }
}

/// A request, and where the recording shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// Index of the first event that shows it: an interrupt or a read.
    pub shows: usize,
    /// Index of the read by which the firmware knows what has come.
    pub seen: usize,
    pub request: Request,
}

/// Bytes of a CDB in a UAS command IU.
pub const CDB_LEN: usize = 16;
/// Maximum number of bytes that a host sends with a command.
const DATA_LEN: usize = 0x1_0000;
/// Accesses within which the firmware reads what has come, after it saw that something has.
const SOON: usize = 60;

/// Registers that show what is around the chip. C6DB is 01 on one of two recorded boards, and 00 on the other. E302.5:4
/// is what the host's port offers: from 2 on the firmware relies on it for its power (240417, b0:0xB394, b0:0xA6EF).
const BOARD: [u16; 2] = [0xC6DB, 0xE302];

/// Addresses that the rig answered itself, so that no chip ever saw them. Source: the rig's list of ranges.
pub fn is_emulated(addr: u16) -> bool {
    matches!(addr, 0..=0x8FFF | 0xC000..=0xC00F | 0xC65A | 0xCC81 | 0xD000..=0xD7FF)
}

impl Recording {
    /// # Errors
    /// A line is damaged, or there is no access.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (mut events, mut cycles) = (Vec::new(), Vec::new());
        let last = text.lines().count();
        for (at, line) in text.lines().enumerate() {
            let is_cut = at + 1 == last && !text.ends_with('\n');
            let event =
                event(line, at + 1, is_cut).map_err(|why| format!("{name}: line {}: {why}: {line:?}", at + 1))?;
            let Some(event) = event else { continue };
            let cycle = cycle(line).unwrap_or(at as u64);
            // The rig executed one more instruction before the interrupt: an access of the same cycle.
            let is_before = matches!((events.last(), event), (Some(Event::Interrupt(_)), Event::Access(_)))
                && cycles.last() == Some(&cycle);
            let place = events.len() - usize::from(is_before);
            events.insert(place, event);
            cycles.insert(place, cycle);
        }
        number_interrupts(&mut events);
        if !events.iter().any(|event| event.access().is_some()) {
            return Err(format!("{name}: line 1: holds no access, in all of its {} lines", text.lines().count()));
        }
        Ok(Self { name: name.to_owned(), events, cycles, from_reset: text.contains("Starting execution at PC=0x0000") })
    }

    /// Every recording in the folder that `ASMPATCH_SILICON_TRACES` names, sorted by name. Panics if there is none.
    pub fn all() -> Vec<Result<Self, String>> {
        let folder = std::env::var_os("ASMPATCH_SILICON_TRACES").expect("set ASMPATCH_SILICON_TRACES to the folder");
        let all = Self::in_folder(Path::new(&folder));
        assert!(!all.is_empty(), "{} holds no recording", folder.display());
        all
    }

    /// Every recording in a folder, sorted by name, or what is wrong with it. Ignores a file without any access, unless
    /// its name has a recording's extension: `.txt`, `.log` or none.
    pub fn in_folder(folder: &Path) -> Vec<Result<Self, String>> {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let read = paths.iter().filter(|path| path.is_file()).filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let text = String::from_utf8_lossy(&bytes);
            let is_named = path.extension().is_none_or(|end| end == "txt" || end == "log");
            let is_one =
                is_named || text.lines().any(|line| matches!(event(line, 0, false), Ok(Some(Event::Access(_)))));
            is_one.then(|| Self::parse(&name, &text))
        });
        read.collect()
    }

    /// The link's speed, as the firmware read it at 0x9100. If it did not, the ends of requests show the speed: 9091.4
    /// at SuperSpeed, and an OUT packet at high speed. The known recordings were made at SuperSpeed.
    ///
    /// # Errors
    /// The recording was made at full speed, which the model doesn't have.
    pub fn speed(&self) -> Result<Speed, String> {
        let read = self.accesses().find(|access| access.addr == 0x9100 && access.is_read());
        let ends = |bits| self.accesses().any(|access| access.reads(0x9091, bits));
        match read.map(|access| (access.value & 0x03, access.line)) {
            Some((0, line)) => Err(format!("{}: line {line}: made at full speed, which the model lacks", self.name)),
            Some((1, _)) => Ok(Speed::High),
            None if !ends(0x10) && ends(0x02) => Ok(Speed::High),
            Some(_) | None => Ok(Speed::Super),
        }
    }

    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.events.iter().filter_map(Event::access)
    }

    /// The image that was running: the one that has a MOVX of the right kind at every recorded address.
    pub fn image<'a>(&self, images: &'a [(String, Image)]) -> Option<&'a (String, Image)> {
        let fits = |image: &Image| {
            let code = CodeSpace::new(image);
            let misses = self.accesses().filter(|access| {
                let opcodes: &[u8] = if access.is_read() { &[0xE0, 0xE2, 0xE3] } else { &[0xF0, 0xF2, 0xF3] };
                !(0..2).any(|bank| opcodes.contains(&code.byte(bank, access.pc)))
            });
            misses.count() == 0
        };
        images.iter().find(|(_, image)| fits(image))
    }

    /// Whether the recording has interrupts, and not accesses alone.
    pub fn has_interrupts(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Interrupt(_)))
    }

    /// Number of the interrupt that the recording's end cuts off, which may hide the interrupt's cause.
    pub fn cut_off(&self) -> Option<usize> {
        let last = self.events.iter().rev().find_map(Event::access)?.interrupt;
        (last > 0 && self.events.last() != Some(&Event::Return)).then_some(last)
    }

    /// Whether the firmware soon took an interrupt or a UAS command after this line: something had come by then.
    pub fn comes_soon(&self, line: usize) -> bool {
        let is_after = |event: &Event| event.access().is_some_and(|access| access.line == line);
        self.events.iter().skip_while(|event| !is_after(event)).take(SOON).any(|event| match event {
            Event::Interrupt(_) => true,
            Event::Return => false,
            Event::Access(access) => access.reads(0xC471, 0x01),
        })
    }

    /// Whether the read at event `at` shows that the request has come, and the answer `model` does not. The bit has to
    /// stay set until the firmware sees the request, however late: the firmware may do other work first.
    pub fn shows_early(&self, act: &Act, at: usize, model: u8) -> bool {
        let Some(access) = self.events[at].access() else { return false };
        let bits = act.request.bits(access.addr) & access.value & !model;
        let reads = self.events[at..act.seen.max(at)].iter().filter_map(Event::access);
        bits != 0
            && reads.filter(|read| read.is_read() && read.addr == access.addr).all(|read| read.value & bits == bits)
    }

    /// The event at which the firmware's work on a request begins: its interrupt, or the read that shows it. If the
    /// request had come in the interrupt before, which left it for the next one, it is that interrupt. Firmware that
    /// polls the link's events sees them some time after they came: the result is a range then.
    pub fn begins(&self, act: &Act) -> RangeInclusive<usize> {
        let Some(begins) = self.interrupt_around(act.seen) else {
            let Request::Link { register, .. } = act.request else { return act.shows..=act.shows };
            let is_read = |access: &Access| access.is_read() && access.addr == register;
            let polled = self.events[..act.shows].iter().rposition(|event| event.access().is_some_and(is_read));
            return polled.map_or(0, |at| at + 1)..=act.shows;
        };
        let before = self.events[..begins].iter().rposition(|event| matches!(event, Event::Interrupt(_)));
        let is_left = |before: &usize| {
            let work = self.events[*before..begins].iter().filter_map(Event::access);
            let [summary, serves] = match act.request {
                Request::Link { register, .. } | Request::Outside { register, .. } => [0x9101, register],
                Request::Setup(..) => [0x9101, 0x9091],
                Request::Cbw(..) => [0x9101, 0x90E2],
                Request::Command { .. } => [0xC802, 0xC471],
            };
            work.clone().any(|access| access.reads(summary, act.request.bits(summary)))
                && !work.clone().any(|access| access.addr == serves)
        };
        let begins = before.filter(is_left).unwrap_or(begins);
        begins..=begins
    }

    /// Whether the request had come by the end of the interrupt before the one that begins here.
    pub fn comes_before(&self, begins: usize, request: &Request) -> bool {
        let before = self.events[..begins].iter().rev().take_while(|event| !matches!(event, Event::Interrupt(_)));
        let mut accesses = before.filter_map(Event::access);
        let last = accesses.find(|access| access.addr == 0xC802 && access.interrupt > 0);
        last.is_some_and(|access| access.reads(0xC802, request.bits(0xC802)))
    }

    /// The chip's surroundings at power-on: registers, each with the value of the firmware's first read.
    pub fn board(&self) -> impl Iterator<Item = (u16, u8)> {
        let first = |addr| self.accesses().find(|access| access.addr == addr).filter(|access| access.is_read());
        BOARD.into_iter().filter_map(first).map(|access| (access.addr, access.value))
    }

    /// What came from outside, in the order in which the firmware saw it.
    pub fn acts(&self) -> Vec<Act> {
        let mut acts: Vec<Act> = Vec::new();
        let mut last = 0;
        for (seen, kind) in self.seen() {
            let rest = &self.events[seen..];
            let request = match kind {
                Kind::Link { register, bits } => Request::Link { register, bits },
                Kind::Outside { register, value } => Request::Outside { register, value },
                Kind::Setup => setup(rest),
                Kind::Command => command(rest),
                Kind::Cbw => cbw(rest),
            };
            let shows = self.shows(&request, seen, last);
            let shows = if kind == Kind::Command { self.frees_lower(seen, last).unwrap_or(shows) } else { shows };
            acts.push(Act { shows, seen, request });
            if acts.last().is_some_and(|act| act.request.is_hosts()) {
                last = seen + 1;
            }
        }
        acts
    }

    /// The first event, from `from` on, that frees a lower slot than that of the command that the firmware knows at
    /// `seen`. The command had come before that event: otherwise it would be in the lower slot.
    fn frees_lower(&self, seen: usize, from: usize) -> Option<usize> {
        let mut after = self.events[seen..].iter().filter_map(Event::access);
        let slot = after.find(|access| access.is_read() && access.addr == 0xC47A)?.value & 0x1F;
        let lower = ((1_u32 << slot) - 1).to_le_bytes();
        let frees = |event: &Event| {
            event.access().is_some_and(|access| match access.addr {
                0x9096..=0x9099 => access.writes(access.addr, lower[usize::from(access.addr - 0x9096)]),
                _ => false,
            })
        };
        Some(from + self.events[from..seen].iter().position(frees)?)
    }

    /// The interrupt in which this event lies, if it lies in one.
    fn interrupt_around(&self, seen: usize) -> Option<usize> {
        let before = self.events[..seen].iter().rposition(|event| event.access().is_none());
        before.filter(|at| matches!(self.events[*at], Event::Interrupt(_)))
    }

    /// The reads that show that something new has come.
    fn seen(&self) -> Vec<(usize, Kind)> {
        let mut seen = Vec::new();
        // What the firmware has seen, and not acknowledged.
        let (mut setup, mut command, mut cbw) = (false, false, false);
        // At USB 2, 9300.2 is up at power-on.
        let mut links = BTreeMap::from([(0x9300, if self.speed() == Ok(Speed::High) { 0x04 } else { 0 })]);
        // The model's link has negotiated 24.
        let mut outside: BTreeMap<u16, u8> = self.board().chain([(0x92F8, 0x24)]).collect();
        let mut is_up = false;
        for (at, event) in self.events.iter().enumerate() {
            let Event::Access(access) = event else { continue };
            let mut shows = |known: &mut bool, kind| {
                let came = access.value & 0x01 != 0;
                if came && !*known {
                    seen.push((at, kind));
                }
                *known = came;
            };
            match (access.addr, access.is_read()) {
                (0x9091, true) => shows(&mut setup, Kind::Setup),
                (0x9091, false) if access.value & 0x01 != 0 => setup = false,
                // A stall.
                (0x9092, false) if access.value & 0x01 != 0 => setup = false,
                // A read of 0 does not mean that the command was acknowledged.
                (0xC471, true) if access.value & 0x01 != 0 => shows(&mut command, Kind::Command),
                (0xC47A, false) => command = false,
                (0x90E2, true) => shows(&mut cbw, Kind::Cbw),
                (0x90E2, false) if access.value & 0x01 != 0 => cbw = false,
                (register @ (0x9300..=0x9302 | 0x91D1), is_read) => {
                    is_up |= is_read && access.value != 0;
                    let known: &mut u8 = links.entry(register).or_default();
                    let bits = access.value & !*known;
                    if is_read && bits != 0 {
                        seen.push((at, Kind::Link { register, bits }));
                    }
                    *known = if is_read { access.value } else { *known & !access.value };
                }
                (0x92F8, _) if !is_up => {}
                (register, is_read) if register == 0x92F8 || BOARD.contains(&register) => {
                    let value = access.value;
                    if outside.insert(register, value).is_some_and(|known| known != value) && is_read {
                        seen.push((at, Kind::Outside { register, value }));
                    }
                }
                _ => {}
            }
        }
        seen
    }

    /// The first event, from `from` on, that shows the request that the firmware knows at `seen`: its interrupt, or a
    /// read of a register with the request's bit.
    fn shows(&self, request: &Request, seen: usize, from: usize) -> usize {
        let mut shows = seen;
        for at in (from..seen).rev().take(SOON) {
            match &self.events[at] {
                Event::Interrupt(_) => return at,
                Event::Return => break,
                Event::Access(access) if request.bits(access.addr) == 0 || !access.is_read() => {}
                Event::Access(access) if access.reads(access.addr, request.bits(access.addr)) => shows = at,
                Event::Access(_) => break,
            }
        }
        shows
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Link { register: u16, bits: u8 },
    Outside { register: u16, value: u8 },
    Setup,
    Command,
    Cbw,
}

/// The SETUP packet that the firmware saw at the first of these events, and the data that it read. Firmware need not
/// read all of it: the rest follows from what the firmware did, as far as the chip's answers depend on it.
fn setup(events: &[Event]) -> Request {
    let mut bytes = [None; 8];
    let (mut sent, mut is_in) = (0, false);
    let mut length = [0_u8; 2];
    // Of each packet of a write's data, what the firmware read.
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut is_acknowledged = false;
    for access in events.iter().filter_map(Event::access) {
        match (access.addr, access.is_read()) {
            (0x9091, true) if access.value & 0x01 != 0 && is_acknowledged => break,
            (0x9091, true) => is_in |= is_acknowledged && packets.is_empty() && access.value & 0x08 != 0,
            (0x9091, false) => is_acknowledged |= access.value & 0x01 != 0,
            (0x9104..=0x910B, true) => {
                bytes[usize::from(access.addr - 0x9104)].get_or_insert(access.value);
            }
            (0x9003..=0x9004, false) => length[usize::from(access.addr - 0x9003)] = access.value,
            (0x9092, false) => {
                is_acknowledged |= access.value & 0x01 != 0;
                if access.value & 0x04 != 0 {
                    sent += usize::from(u16::from_be_bytes(length));
                }
                if access.value & 0x02 != 0 {
                    packets.push(Vec::new());
                }
            }
            (0x9E00..=0x9FFF, true) => {
                if let Some(packet) = packets.last_mut() {
                    let at = usize::from(access.addr - 0x9E00);
                    packet.resize(packet.len().max(at + 1), 0);
                    packet[at] = access.value;
                }
            }
            _ => {}
        }
    }
    let direction = bytes[0].unwrap_or(if is_in || sent > 0 { 0x80 } else { 0 });
    let is_in = direction & 0x80 != 0;
    // A packet that is not the last is full, at either speed.
    let most = if packets.len() > 1 && packets.iter().all(|packet| packet.len() <= 64) { 64 } else { 512 };
    let last = packets.len().saturating_sub(1);
    packets.iter_mut().take(last).for_each(|packet| packet.resize(most, 0));
    let read: Vec<u8> = packets.concat();
    let known = match (bytes[6], bytes[7]) {
        (None, None) if is_in => sent.max(usize::from(sent == 0 && bytes[0].is_some())),
        (None, None) => read.len().max(usize::from(!packets.is_empty())),
        (low, high) => usize::from(u16::from_le_bytes([low.unwrap_or(0), high.unwrap_or(0)])),
    };
    let [low, high] = (known.min(0xFFFF) as u16).to_le_bytes();
    let [_, b, c, d, e, f, ..] = bytes.map(Option::unwrap_or_default);
    let mut data = if is_in { Vec::new() } else { read };
    data.resize(if is_in { 0 } else { known }, 0);
    Request::Setup([direction, b, c, d, e, f, low, high], data)
}

/// The UAS command that the firmware saw at the first of these events. Its CDB lies in a range that no known rig
/// logged: the firmware read zeros there, from the rig's own memory, whatever the host had sent. So TEST UNIT READY is
/// what the firmware carried out.
fn command(events: &[Event]) -> Request {
    let mut tag = [None; 2];
    let mut cdb = [0; CDB_LEN];
    let mut is_taken = false;
    // The command's slot, and the one whose tag the firmware asks for.
    let (mut slot, mut asked) = (None, None);
    for access in events.iter().filter_map(Event::access) {
        let byte = usize::from(access.addr & 1);
        match (access.addr, access.is_read()) {
            (0xC47A, false) => is_taken = true,
            (0xC471, true) if is_taken && slot.is_none() && access.value & 0x01 != 0 => break,
            // Another command is in the slot.
            (0xC47A, true) if is_taken && slot == Some(access.value & 0x1F) => break,
            (0xC47A, true) if !is_taken => slot = Some(access.value & 0x1F),
            (0xC4ED, false) => asked = Some(access.value & 0x1F),
            (0xCEB2..=0xCEB3, true) if !is_taken => tag[byte] = tag[byte].or(Some(access.value)),
            (0xC4EE..=0xC4EF, true) if asked == slot => tag[byte] = tag[byte].or(Some(access.value)),
            (0xD000..=0xD3FF, true)
                if access.addr & 0x10 != 0 && slot.is_none_or(|slot| u16::from(slot) == access.addr >> 5 & 0x1F) =>
            {
                cdb[usize::from(access.addr & 0x0F)] = access.value;
            }
            _ => {}
        }
    }
    Request::Command { tag: u16::from_be_bytes(tag.map(|byte| byte.unwrap_or(0))), cdb }
}

/// The CBW that the firmware saw at the first of these events. What it did not read is as in any CBW, or 0.
fn cbw(events: &[Event]) -> Request {
    let mut cbw = [0; CBW_LEN];
    cbw[..4].copy_from_slice(&CBW_SIGNATURE);
    // An event and its acknowledgement, then the CBW, then the next event or the CSW.
    let accesses = events.iter().filter_map(Event::access);
    let mut is_acknowledged = false;
    for access in accesses {
        if access.writes(0x90A1, 0x01) || is_acknowledged && access.reads(0x90E2, 0x01) {
            break;
        }
        is_acknowledged |= access.writes(0x90E2, 0x01);
        if let (0x911B..=0x9139, true) = (access.addr, access.is_read()) {
            cbw[usize::from(access.addr - 0x911B)] = access.value;
        }
    }
    Request::cbw(cbw)
}

/// Sets the interrupt number of each access.
fn number_interrupts(events: &mut [Event]) {
    let (mut interrupts, mut inside) = (0, 0);
    for event in events {
        match event {
            Event::Interrupt(_) => {
                interrupts += 1;
                inside = interrupts;
            }
            Event::Return => inside = 0,
            Event::Access(access) => access.interrupt = inside,
        }
    }
}

/// The cycle in a line's brackets.
fn cycle(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']')?.0.trim().parse().ok()
}

/// The event of a line; `None` for the rig's other output. `is_cut`: the file ends within the line.
fn event(line: &str, number: usize, is_cut: bool) -> Result<Option<Event>, &'static str> {
    if line.contains("Triggering interrupt: INT0") {
        return Ok(Some(Event::Interrupt(0)));
    }
    if line.contains("Triggering interrupt: INT1") {
        return Ok(Some(Event::Interrupt(1)));
    }
    if line.contains("RETI") {
        return Ok(Some(Event::Return));
    }
    let Some((before, rest)) = line.split_once("PC=") else { return Ok(None) };
    let mut fields = rest.split_whitespace();
    let is_access = match rest.split_whitespace().nth(1) {
        Some(kind) => "Read".starts_with(kind) || "Write".starts_with(kind),
        // The rig's other output contains `PC=`, too.
        None => is_cut && before.trim_end().ends_with(']'),
    };
    if !is_access {
        return Ok(None);
    }
    let hex = |text: Option<&str>, digits: usize| {
        let digits_of = text.and_then(|text| text.strip_prefix("0x")).filter(|text| text.len() == digits);
        digits_of.and_then(|text| u16::from_str_radix(text, 16).ok())
    };
    let damaged = "not an access as the rig writes it, `PC=0x1234 Read  0x5678 = 0x9A`";
    let pc = hex(fields.next(), 4).ok_or(damaged)?;
    let kind = match fields.next() {
        Some("Read") => AccessKind::Read,
        Some("Write") => AccessKind::Write,
        _ => return Err(damaged),
    };
    let addr = hex(fields.next(), 4).ok_or(damaged)?;
    let is_equal = fields.next() == Some("=");
    let value = hex(fields.next(), 2).filter(|_| is_equal).ok_or(damaged)?;
    let value = value as u8;
    Ok(Some(Event::Access(Access { pc: pc.wrapping_sub(1), kind, addr, value, line: number, interrupt: 0 })))
}

/// Formats events with their cycles as the rig writes a recording from reset.
pub fn written(events: &[(u64, Event)]) -> String {
    let mut text = "Starting execution at PC=0x0000\n".to_owned();
    for (cycle, event) in events {
        let _ = match event {
            Event::Interrupt(which) => writeln!(text, "[{cycle:8}] [EMU] Triggering interrupt: INT{which}"),
            Event::Return => writeln!(text, "[{cycle:8}] [EMU] RETI - sending INT_ACK mask=0x01"),
            Event::Access(Access { pc, kind, addr, value, .. }) => {
                let kind = format!("{kind:?}");
                writeln!(
                    text,
                    "[{cycle:8}] PC=0x{:04X} {kind:<5} 0x{addr:04X} = 0x{value:02X}  NAME",
                    pc.wrapping_add(1)
                )
            }
        };
    }
    text
}
