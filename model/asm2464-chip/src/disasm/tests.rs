//! Tests of listings: instructions, data and names.

use std::process::Command;
use std::{fs, iter};

use super::*;
use crate::practice;

fn at(text: &str) -> CodeAddress {
    text.parse().unwrap()
}

/// The lines of `code`, which stands at `at`.
fn disassemble(code: &[u8], at: CodeAddress) -> Vec<Line> {
    disassemble_in(&practice::image(), code, at)
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
fn a_case_table_is_listed_as_cases_and_the_code_after_it_as_instructions() {
    let image = practice::image();
    let lines = listing(&image, &Symbols::known(&image), at("c:0x3912"), 24);
    assert_eq!(lines[0].text, "lcall 0x0DEF");
    assert_eq!(lines[0].note.as_deref(), Some("case (jumps by A through the table behind the call)"));
    let cases: Vec<_> = lines.iter().filter(|line| line.kind == LineKind::Case).collect();
    assert_eq!(cases.len(), 21);
    assert!(cases[0].text.starts_with("case 0x00 0x39"));
    assert!(cases[19].text.starts_with("case 0xE8 0x39"));
    assert!(cases[20].text.starts_with("default 0x39"));
    assert_eq!(lines[22].text, "lcall 0x1900");
}

#[test]
fn a_case_table_that_is_cut_off_ends_as_data() {
    let code = [0x12, 0x0D, 0xEF, 0x39, 0x64, 0x00, 0x39];
    assert_eq!(texts(&disassemble(&code, at("c:0x3912"))), ["lcall 0x0DEF", "case 0x00 0x3964", ".db 0x39"]);
}

#[test]
fn a_call_through_a_bank_switch_stub_names_the_routine_in_the_other_bank() {
    let image = practice::image();
    let lines = listing(&image, &Symbols::known(&image), at("c:0x3955"), 64);
    let e4 = lines.iter().find(|line| line.note.as_ref().is_some_and(|note| note.contains("e4_xdata_read")));
    let note = e4.unwrap().note.as_deref().unwrap();
    assert_eq!(note, "through the stub to b1:0xC98D e4_xdata_read (E4)");
}

#[test]
fn names_stand_at_function_starts_and_targets_and_a_files_names_win_over_known_ones() {
    let image = practice::image();
    let map = "ASxxxx Linker V03.00\nC:   000028D0  _mine_too    main\nC:   0001C98D  _mine    main\n";
    let mut names = Symbols::parse(map.as_bytes()).unwrap().1;
    names.merge(Symbols::known(&image));
    let lines = listing(&image, &names, at("c:0x28A0"), 40);
    assert!(lines.iter().any(|line| line.note.as_deref() == Some("mine_too")), "{lines:?}");
    let entry = lines.iter().find(|line| line.at == at("c:0x28D0")).unwrap();
    assert!(entry.to_string().starts_with("mine_too:\nc:0x28D0  "), "{entry}");
    assert!(lines.iter().filter(|line| line.label.is_some()).count() == 1);
    let lines = listing(&image, &names, at("c:0x3955"), 64);
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
    for (tool, args) in [("sdas8051", &["-o", "all.rel", "all.asm"][..]), ("sdld", &["-n", "-i", "all.ihx", "all.rel"])]
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
