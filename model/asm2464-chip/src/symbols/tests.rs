//! Tests of symbol files of each kind.

use asm2464::Coded as _;
use proptest::prelude::*;

use super::*;
use crate::practice;

fn at(text: &str) -> CodeAddress {
    text.parse().unwrap()
}

const MAP: &str = "\
ASxxxx Linker V03.00 + NoICE + sdld,  page 1.
Hexadecimal  [32-Bits]

Area                                    Addr        Size        Decimal Bytes (Attributes)
--------------------------------        ----        ----        ------- ----- ------------
CABS                                00000000    00000000 =           0. bytes (ABS,CON,CODE)

C:   00000020  l_CSEG
Area                                    Addr        Size        Decimal Bytes (Attributes)
CSEG                                00000062    000000A2 =         162. bytes (REL,CON,CODE)

      Value  Global                              Global Defined In Module
C:   00000062  A$a$145                            a
C:   00000062  Fa$helper$0$0                      a
C:   00000070  XFa$helper$0$0                     a
C:   0000007B  G$main$0$0                         a
C:   0000007B  _main                              a
C:   0000009E  XG$main$0$0                        a
C:   0000009F  __divuint                          _divuint
C:   0001C98D  _in_bank_1                         b
C:   00028000  _nowhere                           b
CONST                               00000104    00000010 =          16. bytes (REL,CON,CODE)
C:   00000104  _table                             a
C:\\sdcc\\lib\\small
";

#[test]
fn a_map_gives_functions_with_their_banks_and_leaves_constants_out() {
    let (form, symbols) = Symbols::parse(MAP.as_bytes()).unwrap();
    assert_eq!(form, SymbolsForm::Map);
    let names: Vec<_> = symbols.entries().map(|(at, name)| (at.to_string(), name)).collect();
    let expected = [("c:0x0062", "helper"), ("c:0x007B", "main"), ("c:0x009F", "_divuint"), ("b1:0xC98D", "in_bank_1")];
    assert_eq!(names, expected.map(|(at, name)| (at.to_owned(), name)));
    assert_eq!(symbols.ignored, 1, "an address in no bank");
    assert_eq!(symbols.label(at("c:0x0070")).as_deref(), Some("helper+0xe"));
    assert_eq!(symbols.label(at("c:0x0072")), None, "past its end, and before main");
    assert_eq!(symbols.label(at("c:0x009F")).as_deref(), Some("_divuint"));
    assert_eq!(symbols.label(at("c:0x7000")), None, "too far past the last one");
    assert_eq!(symbols.label(at("b0:0xC98D")), None);
}

#[test]
fn a_cdb_gives_functions_their_ends_and_lines() {
    let text = "M:a\nF:Fa$helper$0_0$0({2}DF,SC:U),C,0,0,0,0,0\nF:G$main$0_0$0({2}DF,SV:S),C,0,0,0,0,0\n\
        S:G$x$0_0$0({1}SC:U),E,0,0\nL:G$x$0_0$0:8\nL:A$a$97:0\nL:A$start$5:3\nL:C$a.c$3$0_0$2:62\n\
        L:Fa$helper$0$0:62\nL:XFa$helper$0$0:70\nL:G$main$0$0:1C98D\nL:XG$main$0$0:1C99E\nL:C$a.c$8$1_0$6:1C98D\n";
    let (form, symbols) = Symbols::parse(text.as_bytes()).unwrap();
    assert_eq!((form, symbols.functions(), symbols.ignored), (SymbolsForm::Cdb, 2, 0));
    assert_eq!(symbols.label(at("b1:0xC990")).as_deref(), Some("main+0x3"));
    assert_eq!(symbols.entry(at("c:0x0008")), None, "a variable");
    let lines: Vec<_> = symbols.lines().map(|line| (line.file.as_str(), line.line, line.at.to_string())).collect();
    let expected = [("a.c", 3, "c:0x0062"), ("a.c", 8, "b1:0xC98D"), ("start.asm", 5, "c:0x0003")];
    assert_eq!(lines, expected.map(|(file, line, at)| (file, line, at.to_owned())));
}

#[test]
fn the_elf_that_export_writes_gives_its_symbols_back() {
    let image = practice::image();
    let (form, symbols) = Symbols::parse(&crate::code::elf_of_image(&image)).unwrap();
    assert_eq!(form, SymbolsForm::Elf);
    assert_eq!(symbols.entry(at("b1:0xC98D")), Some("e4_xdata_read"));
    assert!(symbols.entries().eq(Symbols::known(&image).entries()));
}

#[test]
fn after_a_merge_the_first_file_gives_the_name_and_either_file_the_end() {
    let mut known = Symbols::default();
    known.add_function(at("c:0x007B"), "begin", Extent::Entry);
    known.merge(Symbols::parse(MAP.as_bytes()).unwrap().1);
    assert_eq!(known.label(at("c:0x007C")).as_deref(), Some("begin+0x1"));
}

#[test]
fn symbols_outside_the_image_are_left_out_and_counted() {
    let mut symbols = Symbols::parse(MAP.as_bytes()).unwrap().1;
    symbols.keep_inside(&practice::open_image());
    assert_eq!((symbols.functions(), symbols.ignored), (3, 2));
}

#[test]
fn a_malformed_file_is_refused_with_its_line_or_its_bad_records_are_left_out() {
    let refused = |text: &str| Symbols::parse(text.as_bytes()).unwrap_err();
    assert_eq!(refused("").code(), "asm2464::symbols::unknown_form");
    assert_eq!(refused("int main(void)").code(), "asm2464::symbols::unknown_form");
    for text in [
        "ASxxxx Linker\nC:   main\n",
        "ASxxxx Linker\nC:   0000007B\n",
        "M:a\nL:C$a.c$3\n",
        "M:a\nL:C$a.c$three$0$0:7B\n",
        "M:a\nL:C$a.c$3$0$0:1FFFFFFFF\n",
    ] {
        let error = refused(text);
        assert!(error.code() == "asm2464::symbols::malformed" && error.to_string().starts_with("line 2: "), "{error}");
    }
    assert_eq!(refused("\x7FELF").code(), "asm2464::elf::malformed");
    let lies =
        "M:a\nF:G$ma;in$0$0(),C\nL:G$ma;in$0$0:7B\nL:C$../../x.c$3$0$0:7B\nL:C$a\u{1b}[2J$3$0$0:7B\nL:C$a.c$0$0$0:7B\n";
    let symbols = Symbols::parse(lies.as_bytes()).unwrap().1;
    assert_eq!((symbols.functions(), symbols.lines().count(), symbols.ignored), (0, 0, 4));
    let backwards = "M:a\nF:G$f$0$0(),C\nL:G$f$0$0:70\nL:XG$f$0$0:60\n";
    let symbols = Symbols::parse(backwards.as_bytes()).unwrap().1;
    assert_eq!(symbols.label(at("c:0x0071")).as_deref(), Some("f+0x1"), "an end before its start is ignored");
}

#[test]
fn more_lines_than_a_firmware_can_have_are_refused() {
    use std::fmt::Write as _;
    let mut text = "M:a\n".to_owned();
    for line in 0..=MAX_LINES {
        writeln!(text, "L:C$a.c${}$0$0:7B", line + 1).unwrap();
    }
    assert_eq!(Symbols::parse(text.as_bytes()).unwrap_err().code(), "asm2464::symbols::too_many");
}

proptest! {
    #[test]
    fn any_bytes_give_symbols_or_an_error(bytes: Vec<u8>, lines in "(C:  |L:|F:|Area   |M:|[A-FX$:0-9 a-z\\n]){0,60}") {
        let _ = Symbols::parse(&bytes);
        let _ = Symbols::parse(&[b"ASxxxx Linker\n", &bytes[..]].concat());
        let _ = Symbols::parse(format!("ASxxxx Linker\n{lines}").as_bytes());
        let _ = Symbols::parse(format!("M:a\n{lines}").as_bytes());
    }

    #[test]
    fn the_names_of_a_map_are_found_at_their_addresses(
        functions in prop::collection::btree_map(0u32..0x1FF6B, "[a-z][a-z0-9_]{0,40}", 0..30)
    ) {
        let mut text = "ASxxxx Linker\n".to_owned();
        for (address, name) in &functions {
            text += &format!("C:   {address:08X}  _{name}      a\n");
        }
        let symbols = Symbols::parse(text.as_bytes()).unwrap().1;
        let mut found = 0;
        for (address, name) in &functions {
            if let Some(at) = place(*address) {
                // Bank 1 has no address in the common area, and each bank ends before 0xFF6B.
                prop_assert_eq!(symbols.entry(at), Some(name.as_str()));
                prop_assert_eq!(symbols.label(at), Some(name.clone()));
                found += 1;
            }
        }
        prop_assert_eq!(found + symbols.ignored, functions.len());
    }
}
