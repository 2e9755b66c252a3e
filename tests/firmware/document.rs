//! docs/chip.md against the chip model.

use asm2464_chip::chip::registers;

#[test]
fn the_document_has_a_row_for_every_register() {
    let document = include_str!("../../docs/chip.md");
    for (_, register) in registers() {
        let name = register.name.trim_end_matches(|last: char| last.is_ascii_digit());
        assert!(document.contains(name), "{}", register.name);
    }
}
