//! Recordings of real chips: every access to a register, the interrupts, and the returns from them.
//!
//! The rig ran the CPU in an emulator and sent its register accesses to a chip. A line is
//! `[cycle] PC=0x5280 Write 0xCC32 = 0x01`, and the PC is one more than the MOVX's address.

use std::path::{Path, PathBuf};

use asm2464::firmware::Image;
use asm2464::scsi::bot::CBW_LEN;
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
}

impl Access {
    /// What it is, apart from its value.
    pub fn what(&self) -> (u16, bool, u16) {
        (self.pc, self.kind == AccessKind::Write, self.addr)
    }

    pub fn is_read(&self) -> bool {
        self.kind == AccessKind::Read
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Access(Access),
    /// The chip interrupted: INT0 or INT1. Holds the line.
    Interrupt(u8, usize),
    Return,
}

pub struct Recording {
    /// The file's name.
    pub name: String,
    pub events: Vec<Event>,
    /// Whether it begins at the reset vector.
    pub from_reset: bool,
}

/// What the host did to cause an interrupt, as far as the firmware's reads tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    Setup([u8; 8]),
    /// A UAS command: its tag and its CDB's first byte.
    Command {
        tag: u16,
        opcode: u8,
    },
    Other,
}

/// What the host sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Setup([u8; 8]),
    /// A UAS command, by its tag.
    Command {
        tag: u16,
    },
    Cbw([u8; CBW_LEN]),
}

/// Addresses that the rig answered itself, so that no chip ever saw them. Source: the rig's list of ranges.
pub fn is_emulated(addr: u16) -> bool {
    matches!(addr, 0..=0x8FFF | 0xC000..=0xC00F | 0xC65A | 0xCC81 | 0xD000..=0xD7FF)
}

impl Recording {
    pub fn parse(name: &str, text: &str) -> Self {
        let events = text.lines().enumerate().filter_map(|(at, line)| event(line, at + 1)).collect();
        Self { name: name.to_owned(), events, from_reset: text.contains("Starting execution at PC=0x0000") }
    }

    /// Every recording in the folder that `ASMPATCH_SILICON_TRACES` names, by name.
    pub fn all() -> Vec<Self> {
        let folder = std::env::var_os("ASMPATCH_SILICON_TRACES").expect("set ASMPATCH_SILICON_TRACES to the folder");
        let all = Self::in_folder(Path::new(&folder));
        assert!(!all.is_empty(), "{} holds no recording", folder.display());
        all
    }

    /// Every recording in a folder, by name. A file that is no text or has no accesses is none.
    pub fn in_folder(folder: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let files = paths.iter().filter(|path| path.is_file());
        let read = files.filter_map(|path| {
            let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let recording = Self::parse(&path.file_name()?.to_string_lossy(), &String::from_utf8_lossy(&bytes));
            (recording.accesses().count() > 0).then_some(recording)
        });
        read.collect()
    }

    /// The link's speed, as the firmware read it at 0x9100. A recording without such a read was made at SuperSpeed, as the
    /// known ones were.
    ///
    /// # Errors
    /// It was made at full speed, which the model doesn't have.
    pub fn speed(&self) -> Result<Speed, String> {
        let read = self.accesses().find(|access| access.addr == 0x9100 && access.is_read());
        match read.map(|access| (access.value & 0x03, access.line)) {
            Some((0, line)) => Err(format!("{}: line {line}: made at full speed, which the model has not", self.name)),
            Some((1, _)) => Ok(Speed::High),
            Some(_) | None => Ok(Speed::Super),
        }
    }

    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.events.iter().filter_map(|event| match event {
            Event::Access(access) => Some(access),
            _ => None,
        })
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

    /// Whether it has the interrupts, and not accesses alone.
    pub fn tells_interrupts(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Interrupt(..)))
    }

    /// What the host sent, as the firmware's reads tell: the interrupt that told of it, and what it was.
    pub fn requests(&self) -> Vec<(usize, Vec<Request>)> {
        let mut all: Vec<(usize, Vec<Request>)> = Vec::new();
        let mut interrupt = 0;
        let mut setup = Vec::new();
        let mut cbw = [0; CBW_LEN];
        let mut tag = None;
        for (at, event) in self.events.iter().enumerate() {
            let Event::Access(access) = event else {
                if let Event::Interrupt(..) = event {
                    interrupt = at;
                }
                continue;
            };
            let request = match (access.addr, access.is_read()) {
                (0x9104..=0x910B, true) => {
                    setup.push(access.value);
                    std::mem::take(&mut setup).try_into().map_or_else(
                        |part| {
                            setup = part;
                            None
                        },
                        |setup| Some(Request::Setup(setup)),
                    )
                }
                // A command is taken: the tag that was read last is its tag.
                (0xCEB2..=0xCEB3, true) => {
                    let tag = tag.get_or_insert(0_u16);
                    *tag = *tag << 8 | u16::from(access.value);
                    None
                }
                (0xC47A, false) => tag.take().map(|tag| Request::Command { tag }),
                (0x911B..=0x9139, true) => {
                    cbw[usize::from(access.addr - 0x911B)] = access.value;
                    None
                }
                // The CSW is sent.
                (0x90A1, false) if cbw.starts_with(b"USBC") => {
                    Some(Request::Cbw(std::mem::replace(&mut cbw, [0; CBW_LEN])))
                }
                _ => None,
            };
            let Some(request) = request else { continue };
            match all.last_mut() {
                Some((same, requests)) if *same == interrupt => requests.push(request),
                _ => all.push((interrupt, vec![request])),
            }
        }
        all
    }

    /// What the host did before the interrupt that is event number `at`.
    pub fn cause(&self, at: usize) -> Cause {
        let until_return = self.events[at + 1..].iter().take_while(|event| matches!(event, Event::Access(_)));
        let mut bytes = [None; 8];
        let mut tag = [None; 2];
        for event in until_return {
            let Event::Access(access) = event else { continue };
            match access.addr {
                0x9104..=0x910B if access.is_read() => {
                    bytes[usize::from(access.addr - 0x9104)].get_or_insert(access.value);
                }
                0xC4EE..=0xC4EF | 0xCEB2..=0xCEB3 if access.is_read() => {
                    tag[usize::from(access.addr & 1)].get_or_insert(access.value);
                }
                _ => {}
            }
        }
        if let [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f), Some(g), Some(h)] = bytes {
            return Cause::Setup([a, b, c, d, e, f, g, h]);
        }
        match tag {
            // The unit itself lies in a range that the rig did not log. The hosts that were recorded sent nothing but
            // TEST UNIT READY.
            [Some(high), Some(low)] => Cause::Command { tag: u16::from_be_bytes([high, low]), opcode: 0 },
            _ => Cause::Other,
        }
    }
}

fn event(line: &str, number: usize) -> Option<Event> {
    if line.contains("Triggering interrupt: INT0") {
        return Some(Event::Interrupt(0, number));
    }
    if line.contains("Triggering interrupt: INT1") {
        return Some(Event::Interrupt(1, number));
    }
    if line.contains("RETI") {
        return Some(Event::Return);
    }
    let fields: Vec<&str> = line.get(line.find("PC=0x")?..)?.split_whitespace().collect();
    let [pc, kind, addr, "=", value, ..] = *fields.as_slice() else { return None };
    let hex = |text: &str| u16::from_str_radix(text.trim_start_matches("PC=").strip_prefix("0x")?, 16).ok();
    let kind = match kind {
        "Read" => AccessKind::Read,
        "Write" => AccessKind::Write,
        _ => return None,
    };
    let value = u8::try_from(hex(value)?).ok()?;
    Some(Event::Access(Access { pc: hex(pc)?.wrapping_sub(1), kind, addr: hex(addr)?, value, line: number }))
}
