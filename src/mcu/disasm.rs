//! Disassembly: the `i8051` crate's decoder, with the banks, the compiler's case tables and the known routines.
//!
//! The text is what SDCC's assembler `sdas8051` takes back, with absolute targets. Keil C51 puts a `switch`'s table
//! behind an LCALL to its library routine at 0x0DEF: entries of target and value, three bytes each, then a zero word
//! and the default's target. A routine in the other bank is called through a stub that loads its address into DPTR
//! and jumps to 0x0300 (bank 0) or 0x0311 (bank 1). Source: image 240417.

use std::fmt::{self, Write as _};

use i8051::{Instruction, Mnemonic, Operand};
use serde::Serialize;

use crate::firmware::{Bank, CodeAddress, Image, Routine, known_routines};
use crate::symbols::Symbols;

/// What one line of a listing holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LineKind {
    /// An instruction.
    Instruction,
    /// An entry of a case table.
    Case,
    /// Bytes that are no instruction, or only the start of one.
    Data,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where it stands.
    pub at: CodeAddress,
    /// Its bytes, at least one.
    pub bytes: Vec<u8>,
    /// What it holds.
    pub kind: LineKind,
    /// The line in assembly.
    pub text: String,
    /// Where it leads, where that has a name.
    pub note: Option<String>,
    /// The name of the function that begins here.
    pub label: Option<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = String::new();
        for byte in &self.bytes {
            write!(bytes, "{byte:02x} ")?;
        }
        if let Some(label) = &self.label {
            writeln!(f, "{label}:")?;
        }
        write!(f, "{}  {bytes:<12} {}", self.at, self.text)?;
        match &self.note {
            Some(note) => write!(f, "{:1$}; {note}", "", 28usize.saturating_sub(self.text.len()).max(1)),
            None => Ok(()),
        }
    }
}

/// The keys of a line in `--json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Line"))]
pub(crate) struct Keys<'a> {
    /// Where it stands: area or bank, and the CPU's address.
    address: String,
    /// Where it stands in the file, in bytes.
    file_offset: u32,
    /// Its bytes: two hexadecimal digits each, with spaces between them.
    bytes: String,
    /// What it holds.
    kind: LineKind,
    /// The line in assembly.
    text: &'a str,
    /// Where it leads, where that has a name.
    note: Option<&'a str>,
    /// The name of the function that begins here, of those that --symbols names.
    label: Option<&'a str>,
}

impl Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        Keys {
            address: self.at.to_string(),
            file_offset: self.at.file_offset().0,
            bytes,
            kind: self.kind,
            text: &self.text,
            note: self.note.as_deref(),
            label: self.label.as_deref(),
        }
        .serialize(serializer)
    }
}

/// Keil's `switch` on a byte.
const CASE_HELPER: u16 = 0x0DEF;
/// The bank-switch stubs' targets, and the bank that each enters.
const BANK_ENTRIES: [(u32, Bank); 2] = [(0x0300, Bank::Bank0), (0x0311, Bank::Bank1)];

/// The lines of `code`, which stands at `at`, from its first byte to its last. Nothing around it is known, so stubs
/// and routines have no names.
pub fn disassemble(code: &[u8], at: CodeAddress) -> Vec<Line> {
    let mut lines = Vec::new();
    Disassembler { code, start: at, image: None, routines: Vec::new(), names: None }.run(usize::MAX, &mut lines);
    lines
}

/// The lines of `code` as it would stand at `at` in `image`, whose stubs and routines give their names to targets.
pub fn disassemble_in(image: &Image, code: &[u8], at: CodeAddress) -> Vec<Line> {
    let mut lines = Vec::new();
    let routines = known_routines(image.version()).collect();
    Disassembler { code, start: at, image: Some(image), routines, names: None }.run(usize::MAX, &mut lines);
    lines
}

/// At most `count` lines of an image, from `at` to the end of its bank, with these names for functions and targets.
pub fn listing(image: &Image, names: &Symbols, at: CodeAddress, count: usize) -> Vec<Line> {
    let rest = image.body().get(at.body_offset().0 as usize..).unwrap_or_default();
    let inside = (0..rest.len()).take_while(|offset| after(at, *offset).is_some()).count();
    let mut lines = Vec::new();
    let routines = known_routines(image.version()).collect();
    let names = Some(names);
    Disassembler { code: &rest[..inside], start: at, image: Some(image), routines, names }.run(count, &mut lines);
    lines
}

/// The place `offset` bytes behind `at` in the same bank.
fn after(at: CodeAddress, offset: usize) -> Option<CodeAddress> {
    CodeAddress::new(at.bank(), u16::try_from(usize::from(at.addr()).checked_add(offset)?).ok()?)
}

struct Disassembler<'a> {
    code: &'a [u8],
    start: CodeAddress,
    image: Option<&'a Image>,
    routines: Vec<Routine>,
    names: Option<&'a Symbols>,
}

impl Disassembler<'_> {
    fn run(&self, count: usize, lines: &mut Vec<Line>) {
        let mut offset = 0;
        while lines.len() < count
            && let Some(at) = after(self.start, offset)
            && let Some(rest) = self.code.get(offset..).filter(|rest| !rest.is_empty())
        {
            let instruction = Instruction::decode_from_bytes(u32::from(at.addr()), rest);
            if instruction.mnemonic() == Mnemonic::Unknown || instruction.len() > rest.len() {
                let len = instruction.len().min(rest.len());
                lines.push(data(at, &rest[..len]));
                offset += len;
                continue;
            }
            offset += instruction.len();
            lines.push(Line {
                at,
                bytes: instruction.bytes().to_vec(),
                kind: LineKind::Instruction,
                text: text(&instruction),
                note: self.note(at, &instruction),
                label: self.names.and_then(|names| names.entry(at)).map(str::to_owned),
            });
            if instruction.mnemonic() == Mnemonic::LCALL && instruction.target() == Some(u32::from(CASE_HELPER)) {
                offset = self.case_table(offset, count, lines);
            }
        }
    }

    /// The lines of the case table at `offset`; gives the offset behind it.
    fn case_table(&self, mut offset: usize, count: usize, lines: &mut Vec<Line>) -> usize {
        while lines.len() < count
            && let Some(at) = after(self.start, offset)
            && let Some(rest) = self.code.get(offset..).filter(|rest| !rest.is_empty())
        {
            let (entry, text) = match rest {
                [0, 0, high, low, ..] => (&rest[..4], format!("default {:#06X}", word(*high, *low))),
                [high, low, value, ..] if [*high, *low] != [0, 0] => {
                    (&rest[..3], format!("case {value:#04X} {:#06X}", word(*high, *low)))
                }
                // The code ends inside an entry.
                _ => {
                    lines.push(data(at, rest));
                    return offset + rest.len();
                }
            };
            let is_default = entry.len() == 4;
            let target = word(
                entry[entry.len() - if is_default { 2 } else { 3 }],
                entry[entry.len() - if is_default { 1 } else { 2 }],
            );
            let note = self.target_note(at, u32::from(target));
            let text = text.replace("0X", "0x");
            lines.push(Line { at, bytes: entry.to_vec(), kind: LineKind::Case, text, note, label: None });
            offset += entry.len();
            if is_default {
                break;
            }
        }
        offset
    }

    fn note(&self, at: CodeAddress, instruction: &Instruction) -> Option<String> {
        self.target_note(at, instruction.target()?)
    }

    /// What a jump or call from `at` to `target` reaches.
    fn target_note(&self, at: CodeAddress, target: u32) -> Option<String> {
        let target = u16::try_from(target).ok()?;
        let target = match at.bank() {
            _ if target < 0x8000 => CodeAddress::new(Bank::Common, target)?,
            // Common code runs with either bank selected.
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

    /// What begins at `at`; of a known routine also what it does.
    fn name(&self, at: CodeAddress) -> Option<String> {
        let name = self.names.and_then(|names| names.entry(at));
        match self.routines.iter().find(|routine| routine.at == at) {
            Some(Routine { name: known, what, .. }) if name.is_none_or(|name| name == *known) => {
                Some(format!("{known} ({what})"))
            }
            _ => name.map(str::to_owned),
        }
    }

    /// Where the bank-switch stub at `at` leads, if one stands there: MOV DPTR,#target and a jump to 0x0300 or 0x0311.
    fn stub(&self, at: CodeAddress) -> Option<CodeAddress> {
        let image = self.image.filter(|_| at.bank() == Bank::Common)?;
        let start = at.body_offset().0 as usize;
        let code = image.body().get(start..start + 6)?;
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

fn data(at: CodeAddress, bytes: &[u8]) -> Line {
    let values: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02X}")).collect();
    let text = format!(".db {}", values.join(", "));
    Line { at, bytes: bytes.to_vec(), kind: LineKind::Data, text, note: None, label: None }
}

fn text(instruction: &Instruction) -> String {
    let mut text = instruction.mnemonic().as_str().to_ascii_lowercase();
    for (at, operand) in instruction.operands().as_slice().iter().enumerate() {
        text.push_str(if at == 0 { " " } else { ", " });
        text.push_str(&operand_text(instruction, operand));
    }
    text
}

fn operand_text(instruction: &Instruction, operand: &Operand) -> String {
    match *operand {
        Operand::A => "a".to_owned(),
        Operand::C => "c".to_owned(),
        Operand::AB => "ab".to_owned(),
        Operand::Dptr => "dptr".to_owned(),
        Operand::IndirectDptr => "@dptr".to_owned(),
        Operand::IndirectADptr => "@a+dptr".to_owned(),
        Operand::IndirectAPc => "@a+pc".to_owned(),
        Operand::Reg(n) => format!("r{n}"),
        Operand::IndirectReg(n) => format!("@r{n}"),
        Operand::Direct(at) => direct(at),
        Operand::Bit(at) => bit(at),
        Operand::BitNot(at) => format!("/{}", bit(at)),
        Operand::Imm8(value) => format!("#0x{value:02X}"),
        Operand::Imm16(value) => format!("#0x{value:04X}"),
        Operand::Rel(_) | Operand::Addr11(_) | Operand::Addr16(_) => {
            format!("0x{:04X}", instruction.target().unwrap_or_default())
        }
    }
}

/// The special function registers that every 8051 has where the ASM2464PD has them too.
fn sfr(at: u8) -> Option<&'static str> {
    Some(match at {
        0x81 => "sp",
        0x82 => "dpl",
        0x83 => "dph",
        0xD0 => "psw",
        0xE0 => "acc",
        0xF0 => "b",
        _ => return None,
    })
}

fn direct(at: u8) -> String {
    sfr(at).map_or_else(|| format!("0x{at:02X}"), str::to_owned)
}

fn bit(at: u8) -> String {
    match sfr(at & 0xF8).filter(|_| at >= 0x80) {
        Some(register) => format!("{register}.{}", at & 7),
        None => format!("0x{at:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{fs, iter};

    use super::*;
    use crate::practice;

    fn at(text: &str) -> CodeAddress {
        text.parse().unwrap()
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn targets_are_absolute_and_registers_have_their_names() {
        let code = [0x90, 0x90, 0x07, 0xE0, 0x30, 0xE0, 0xFD, 0x8F, 0x82, 0x12, 0xAA, 0x37, 0x75, 0x96, 0x01, 0x22];
        assert_eq!(
            texts(&disassemble(&code, at("b1:0xC98D"))),
            [
                "mov dptr, #0x9007",
                "movx a, @dptr",
                "jnb acc.0, 0xC991",
                "mov dpl, r7",
                "lcall 0xAA37",
                "mov 0x96, #0x01",
                "ret"
            ]
        );
    }

    #[test]
    fn a_cut_off_instruction_and_the_reserved_opcode_are_data() {
        assert_eq!(texts(&disassemble(&[0xA5, 0x12, 0xAA], at("c:0x2A0E"))), [".db 0xA5", ".db 0x12, 0xAA"]);
        assert!(disassemble(&[], at("c:0x2A0E")).is_empty());
    }

    #[test]
    fn a_case_table_is_a_table_and_the_code_behind_it_is_code() {
        let image = practice::image();
        let lines = listing(&image, &Symbols::known(&image), at("c:0x3912"), 24);
        assert_eq!(lines[0].text, "lcall 0x0DEF");
        assert_eq!(lines[0].note.as_deref(), Some("case (jumps by A through the table behind the call)"));
        let cases: Vec<_> = lines.iter().filter(|line| line.kind == LineKind::Case).collect();
        assert_eq!(cases.len(), 21);
        assert!(cases[0].text.starts_with("case 0x00 0x39"));
        assert!(cases[19].text.starts_with("case 0xE8 0x39"));
        assert!(cases[20].text.starts_with("default 0x39"));
        assert_eq!(lines[22].text, "lcall 0x5440");
    }

    #[test]
    fn a_case_table_that_is_cut_off_ends_as_data() {
        let code = [0x12, 0x0D, 0xEF, 0x39, 0x64, 0x00, 0x39];
        assert_eq!(texts(&disassemble(&code, at("c:0x3912"))), ["lcall 0x0DEF", "case 0x00 0x3964", ".db 0x39"]);
    }

    #[test]
    fn a_call_through_a_bank_switch_stub_names_the_routine_in_the_other_bank() {
        let image = practice::image();
        let lines = listing(&image, &Symbols::known(&image), at("c:0x3955"), 40);
        let e4 = lines.iter().find(|line| line.note.as_ref().is_some_and(|note| note.contains("e4_xdata_read")));
        let note = e4.unwrap().note.as_deref().unwrap();
        assert_eq!(note, "through the stub to b1:0xC98D e4_xdata_read (E4)");
    }

    #[test]
    fn names_stand_at_function_starts_and_targets_and_a_files_win_over_known_ones() {
        let image = practice::image();
        let map = "ASxxxx Linker V03.00\nC:   000028D0  _mine_too    main\nC:   0001C98D  _mine    main\n";
        let mut names = Symbols::parse(map.as_bytes()).unwrap().1;
        names.merge(Symbols::known(&image));
        let lines = listing(&image, &names, at("c:0x28A0"), 40);
        assert!(lines.iter().any(|line| line.note.as_deref() == Some("mine_too")), "{lines:?}");
        let entry = lines.iter().find(|line| line.at == at("c:0x28D0")).unwrap();
        assert!(entry.to_string().starts_with("mine_too:\nc:0x28D0  "), "{entry}");
        assert!(lines.iter().filter(|line| line.label.is_some()).count() == 1);
        let lines = listing(&image, &names, at("c:0x3955"), 40);
        assert!(lines.iter().any(|line| line.note.as_deref() == Some("through the stub to b1:0xC98D mine")));
        assert_eq!(listing(&image, &names, at("c:0x38D4"), 1)[0].label.as_deref(), Some("dispatch"));
    }

    #[test]
    fn a_listing_ends_with_its_bank() {
        let image = practice::image();
        let lines = listing(&image, &Symbols::known(&image), at("c:0x7FFE"), 10);
        assert_eq!(texts(&lines), ["nop", "nop"]);
        assert_eq!(listing(&image, &Symbols::known(&image), at("b1:0xFF6A"), 10).len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn the_lines_hold_every_byte_once_and_in_order(code: Vec<u8>) {
            let lines = disassemble(&code, at("b0:0x9000"));
            let bytes: Vec<u8> = lines.iter().flat_map(|line| line.bytes.iter().copied()).collect();
            proptest::prop_assert_eq!(bytes, code);
            let mut expected = 0x9000;
            for line in &lines {
                proptest::prop_assert_eq!(usize::from(line.at.addr()), expected);
                expected += line.bytes.len();
            }
        }
    }

    #[test]
    #[ignore = "needs SDCC"]
    fn sdccs_assembler_takes_the_text_of_every_opcode_back_to_the_same_bytes() {
        // The operands keep every jump in range. Each opcode has an area of its own: sdld mixes up the relocations
        // of an AJMP and of the relative jumps before it in one record.
        let place = |opcode: u8| CodeAddress::new(Bank::Common, 0x4000 + 4 * u16::from(opcode)).unwrap();
        let lines: Vec<Line> =
            (0..=255u8).map(|opcode| disassemble(&[opcode, 0x3A, 0x10], place(opcode)).swap_remove(0)).collect();
        let mut source = String::new();
        for line in &lines {
            source += &format!("\t.area LINES (ABS,CODE)\n\t.org 0x{:04X}\n\t{}\n", line.at.addr(), line.text);
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("all.asm"), source).unwrap();
        for (tool, args) in
            [("sdas8051", &["-o", "all.rel", "all.asm"][..]), ("sdld", &["-n", "-i", "all.ihx", "all.rel"])]
        {
            let output = Command::new(tool).current_dir(dir.path()).args(args).output().expect("Debian's package sdcc");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let mut assembled = Vec::new();
        for record in ihex::Reader::new(&fs::read_to_string(dir.path().join("all.ihx")).unwrap()) {
            if let ihex::Record::Data { offset, value } = record.unwrap() {
                let end = usize::from(offset) - 0x4000 + value.len();
                assembled.extend(iter::repeat_n(0, end.saturating_sub(assembled.len())));
                assembled[end - value.len()..end].copy_from_slice(&value);
            }
        }
        for line in &lines {
            let start = usize::from(line.at.addr()) - 0x4000;
            assert_eq!(assembled[start..start + line.bytes.len()], line.bytes, "{line}");
        }
    }
}
