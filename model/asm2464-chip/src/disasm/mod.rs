//! A disassembler: the `i8051` crate's decoder, plus banks, the compiler's case tables and known routines.
//!
//! Keil C51 puts a `switch`'s table after an LCALL to its library routine at 0x0DEF: entries of target and value, three
//! bytes each, then a zero word and the default's target. A routine in the other bank is called through a stub that
//! loads its address into DPTR and jumps to 0x0300 (bank 0) or 0x0311 (bank 1). Source: image 240417.

use std::fmt;

use asm2464::digest::to_hex;
use asm2464::firmware::{Bank, CodeAddress, Image, Routine, known_routines};
use i8051::{Instruction, Mnemonic};
use serde::{Serialize, Serializer};

use crate::mcu::assembly;
use crate::symbols::Symbols;

/// The kind of a listing's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    /// An instruction.
    Instruction,
    /// An entry of a case table.
    Case,
    /// Bytes that are not an instruction, or only the start of one.
    Data,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Line {
    /// Its code address: area or bank, and the CPU's address.
    #[serde(rename = "address")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub at: CodeAddress,
    /// Its place in the file, in bytes.
    file_offset: u32,
    /// Its bytes: two hexadecimal digits each, with spaces between them.
    #[serde(serialize_with = "hex")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub bytes: Vec<u8>,
    /// Its kind.
    pub kind: LineKind,
    /// The line in assembly.
    pub text: String,
    /// Its target in words, if the target has a name.
    pub note: Option<String>,
    /// The name of the function that begins here, if it is known or was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Line {
    fn new(at: CodeAddress, bytes: &[u8], kind: LineKind, text: String) -> Self {
        Self { at, file_offset: at.file_offset().0, bytes: bytes.to_vec(), kind, text, note: None, label: None }
    }

    fn data(at: CodeAddress, bytes: &[u8]) -> Self {
        let values: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02X}")).collect();
        Self::new(at, bytes, LineKind::Data, format!(".db {}", values.join(", ")))
    }
}

fn hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&to_hex(bytes, " "))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(label) = &self.label {
            writeln!(f, "{label}:")?;
        }
        write!(f, "{}  {:<12} {}", self.at, to_hex(&self.bytes, " "), self.text)?;
        match &self.note {
            Some(note) => write!(f, "{:1$}; {note}", "", 28usize.saturating_sub(self.text.len()).max(1)),
            None => Ok(()),
        }
    }
}

/// Address of Keil's `switch` on a byte.
const CASE_HELPER: u16 = 0x0DEF;
/// The targets of the bank-switch stubs, and the bank that each target enters.
const BANK_ENTRIES: [(u32, Bank); 2] = [(0x0300, Bank::Bank0), (0x0311, Bank::Bank1)];

/// Disassembles `code` as if it stood at `at` in `image`. Targets get the names of the image's stubs and routines.
pub fn disassemble_in(image: &Image, code: &[u8], at: CodeAddress) -> Vec<Line> {
    Disassembler::new(image, &Symbols::default(), code, at).run(usize::MAX)
}

/// Disassembles at most `count` lines of an image, from `at` to the end of its bank, with these names for functions and
/// targets.
pub fn listing(image: &Image, names: &Symbols, at: CodeAddress, count: usize) -> Vec<Line> {
    let rest = image.body().get(at.body_offset().0 as usize..).unwrap_or_default();
    let inside = (0..rest.len()).take_while(|offset| after(at, *offset).is_some()).count();
    Disassembler::new(image, names, &rest[..inside], at).run(count)
}

/// Returns the address `offset` bytes after `at` in the same bank.
fn after(at: CodeAddress, offset: usize) -> Option<CodeAddress> {
    CodeAddress::new(at.bank(), u16::try_from(usize::from(at.addr()).checked_add(offset)?).ok()?)
}

struct Disassembler<'a> {
    code: &'a [u8],
    start: CodeAddress,
    image: &'a Image,
    routines: Vec<Routine>,
    names: &'a Symbols,
}

impl<'a> Disassembler<'a> {
    fn new(image: &'a Image, names: &'a Symbols, code: &'a [u8], start: CodeAddress) -> Self {
        Self { code, start, image, routines: known_routines(image.version()).collect(), names }
    }

    fn run(&self, count: usize) -> Vec<Line> {
        let (mut lines, mut offset, mut in_table) = (Vec::new(), 0, false);
        while lines.len() < count
            && let Some(at) = after(self.start, offset)
            && let Some(rest) = self.code.get(offset..).filter(|rest| !rest.is_empty())
        {
            let line;
            (line, in_table) = if in_table { self.case(at, rest) } else { self.instruction(at, rest) };
            offset += line.bytes.len();
            lines.push(line);
        }
        lines
    }

    /// The line of the instruction that begins `rest`, and whether a case table follows.
    fn instruction(&self, at: CodeAddress, rest: &[u8]) -> (Line, bool) {
        let instruction = Instruction::decode_from_bytes(u32::from(at.addr()), rest);
        if instruction.mnemonic() == Mnemonic::Unknown || instruction.len() > rest.len() {
            return (Line::data(at, &rest[..instruction.len().min(rest.len())]), false);
        }
        let target = instruction.target();
        let note = target.and_then(|target| self.target_note(at, target));
        let label = self.names.entry(at).map(str::to_owned);
        let line = Line::new(at, instruction.bytes(), LineKind::Instruction, assembly(&instruction));
        let is_switch = instruction.mnemonic() == Mnemonic::LCALL && target == Some(u32::from(CASE_HELPER));
        (Line { note, label, ..line }, is_switch)
    }

    /// The line of the case table's entry that begins `rest`, and whether another follows.
    fn case(&self, at: CodeAddress, rest: &[u8]) -> (Line, bool) {
        let (bytes, what, target) = match *rest {
            [0, 0, high, low, ..] => (&rest[..4], "default".to_owned(), word(high, low)),
            [high, low, value, ..] if [high, low] != [0, 0] => {
                (&rest[..3], format!("case 0x{value:02X}"), word(high, low))
            }
            // The code ends inside an entry.
            _ => return (Line::data(at, rest), false),
        };
        let note = self.target_note(at, u32::from(target));
        let line = Line::new(at, bytes, LineKind::Case, format!("{what} 0x{target:04X}"));
        (Line { note, ..line }, bytes.len() == 3)
    }

    /// Returns what a jump or call from `at` to `target` reaches.
    fn target_note(&self, at: CodeAddress, target: u32) -> Option<String> {
        let target = u16::try_from(target).ok()?;
        let target = match at.bank() {
            _ if target < 0x8000 => CodeAddress::new(Bank::Common, target)?,
            // Common code runs with either bank selected, so the target is not known.
            Bank::Common => return None,
            bank => CodeAddress::new(bank, target)?,
        };
        if let Some(name) = self.name(target) {
            return Some(name);
        }
        let through = self.stub(target)?;
        Some(match self.name(through) {
            Some(name) => format!("through the stub to {through} {name}"),
            None => format!("through the stub to {through}"),
        })
    }

    /// Returns the name of what begins at `at`, and what it does if it is a known routine.
    fn name(&self, at: CodeAddress) -> Option<String> {
        let name = self.names.entry(at);
        match self.routines.iter().find(|routine| routine.at == at) {
            Some(Routine { name: known, what, .. }) if name.is_none_or(|name| name == *known) => {
                Some(format!("{known} ({what})"))
            }
            _ => name.map(str::to_owned),
        }
    }

    /// Returns the target of the bank-switch stub at `at`, if there is one: MOV DPTR,#target and a jump to 0x0300 or
    /// 0x0311.
    fn stub(&self, at: CodeAddress) -> Option<CodeAddress> {
        if at.bank() != Bank::Common {
            return None;
        }
        let start = at.body_offset().0 as usize;
        let code = self.image.body().get(start..start + 6)?;
        let [0x90, high, low, ..] = *code else { return None };
        let jump = Instruction::decode_from_bytes(u32::from(at.addr()) + 3, &code[3..]);
        if !matches!(jump.mnemonic(), Mnemonic::AJMP | Mnemonic::SJMP | Mnemonic::LJMP) {
            return None;
        }
        let target = jump.target()?;
        let (_, bank) = BANK_ENTRIES.into_iter().find(|(entry, _)| *entry == target)?;
        CodeAddress::new(bank, word(high, low))
    }
}

const fn word(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests;
