//! The text of one instruction. SDCC's assembler `sdas8051` accepts it; targets are absolute.

use i8051::{Instruction, Operand};

/// Returns an instruction as SDCC's assembler accepts it.
pub fn assembly(instruction: &Instruction) -> String {
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

/// Names of the special function registers that every 8051 has and the ASM2464PD shares.
const SFRS: [(u8, &str); 6] = [(0x81, "sp"), (0x82, "dpl"), (0x83, "dph"), (0xD0, "psw"), (0xE0, "acc"), (0xF0, "b")];

fn sfr(at: u8) -> Option<&'static str> {
    SFRS.iter().find(|(known, _)| *known == at).map(|(_, name)| *name)
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
