//! Waits that count their passes: a loop that polls a register, and that a counter ends if the awaited bit never comes.
//!
//! No pass leaves the CPU as it was, so such a loop is not idle. But as long as only the counter's low byte moves, its
//! passes are alike, and any number of them is known from one. Builds of open firmware with the USB-C side wait for
//! their timers in this way (821f218, c:0x0B3D), and execute 150 million instructions before they enumerate.

use crate::mcu::CodeSpace;

/// Maximum number of instructions in one pass.
pub(super) const MOST: usize = 64;

/// The addresses of the instructions of a pass, in order.
pub(super) struct Pass {
    at: [u16; MOST],
    len: usize,
}

impl Pass {
    pub(super) fn new() -> Self {
        Self { at: [0; MOST], len: 0 }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, pc: u16) {
        if let Some(at) = self.at.get_mut(self.len) {
            *at = pc;
        }
        self.len += 1;
    }

    /// Whether the pass uses `counter`, a register of the selected bank, only to count: it increments it once, and may
    /// check whether it has become 0. No other instruction depends on it then, and the passes until it becomes 0 are
    /// alike. A pass that writes memory, calls, returns or uses RAM by its address is not looked into.
    pub(super) fn only_counts(&self, code: &CodeSpace, bank: u8, counter: u8) -> bool {
        let Some(pass) = self.at.get(..self.len) else { return false };
        let mut increments = 0;
        for pc in pass {
            let opcode = code.byte(bank, *pc);
            if is_of_register(opcode) && opcode & 7 == counter {
                match opcode & 0xF8 {
                    INC => increments += 1,
                    // Its carry says whether the register is less than the value. Nothing is less than 0.
                    CJNE if code.byte(bank, pc.wrapping_add(1)) == 0 => {}
                    _ => return false,
                }
            } else if !is_of_register(opcode) && !uses_no_ram(opcode) {
                return false;
            }
        }
        increments == 1
    }
}

const INC: u8 = 0x08;
const CJNE: u8 = 0xB8;

/// Whether an instruction's only operand in RAM is a register: INC, DEC, ADD, ADDC, ORL, ANL, XRL, MOV of a value, SUBB,
/// CJNE, XCH, DJNZ, MOV from it, MOV into it.
fn is_of_register(opcode: u8) -> bool {
    matches!(
        opcode & 0xF8,
        INC | 0x18 | 0x28 | 0x38 | 0x48 | 0x58 | 0x68 | 0x78 | 0x98 | CJNE | 0xC8 | 0xD8 | 0xE8 | 0xF8
    )
}

/// Whether an instruction uses at most the accumulator, the carry, DPTR, a bit (none is in a register) and XDATA, which it
/// doesn't write.
fn uses_no_ram(opcode: u8) -> bool {
    match opcode {
        // NOP, LJMP, the conditional jumps by a bit, the carry, the accumulator; SJMP.
        0x00 | 0x02 | 0x20 | 0x30 | 0x40 | 0x50 | 0x60 | 0x70 | 0x80 => true,
        // INC, DEC, rotations, CLR, CPL of the accumulator; arithmetic with a value; CJNE A,#.
        0x04 | 0x14 | 0x03 | 0x13 | 0x23 | 0x33 | 0xE4 | 0xF4 | 0x24 | 0x34 | 0x44 | 0x54 | 0x64 | 0x74 | 0x94
        | 0xB4 => true,
        // CLR C, SETB C, CPL C; MOV DPTR,#, INC DPTR, MOVX A,@DPTR.
        0xC3 | 0xD3 | 0xB3 | 0x90 | 0xA3 | 0xE0 => true,
        // AJMP.
        _ => opcode & 0x1F == 0x01,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As SDCC counts: MOV DPTR,#CC17; MOVX A,@DPTR; JB ACC.1; INC R4; CJNE R4,#0; CLR C; MOV A,R5; SUBB A,#9; JC.
    const WAIT: [u8; 17] =
        [0x90, 0xCC, 0x17, 0xE0, 0x20, 0xE1, 0x0A, 0x0C, 0xBC, 0x00, 0x00, 0xC3, 0xED, 0x94, 0x09, 0x40, 0xEF];
    const PLACES: [u16; 9] = [0, 3, 4, 7, 8, 11, 12, 13, 15];

    fn only_counts(code: &[u8], places: &[u16], counter: u8) -> bool {
        let mut pass = Pass::new();
        places.iter().for_each(|pc| pass.push(*pc));
        pass.only_counts(&CodeSpace::from_body(code), 0, counter)
    }

    #[test]
    fn only_the_register_that_a_pass_increments_once_counts() {
        assert!(only_counts(&WAIT, &PLACES, 4));
        assert!(!only_counts(&WAIT, &PLACES, 5), "it is compared with a bound");
        assert!(!only_counts(&WAIT, &PLACES, 6), "nothing increments it");
        assert!(!only_counts(&WAIT, &[&PLACES[..], &PLACES].concat(), 4), "twice");
    }

    #[test]
    fn an_instruction_that_depends_on_the_counter_or_may_do_so_ends_it() {
        // CJNE R4,#1; MOV A,R4; XCH A,R4; MOVX @DPTR,A; MOV A,@R0; MOV A,04; PUSH 04; RET; MOV R4,04.
        for (at, bytes) in [
            (8, &[0xBC, 0x01][..]),
            (12, &[0xEC]),
            (12, &[0xCC]),
            (12, &[0xF0]),
            (12, &[0xE6]),
            (13, &[0xE5, 0x04]),
            (13, &[0xC0, 0x04]),
            (12, &[0x22]),
            (13, &[0xAD, 0x04]),
        ] {
            let mut code = WAIT;
            code[at..at + bytes.len()].copy_from_slice(bytes);
            assert!(!only_counts(&code, &PLACES, 4), "{bytes:02X?}");
        }
    }

    #[test]
    fn a_pass_of_too_many_instructions_is_none() {
        let mut code = [0; 80];
        code[0] = 0x0C;
        let places: Vec<u16> = (0..80).collect();
        assert!(only_counts(&code, &places[..MOST], 4));
        assert!(!only_counts(&code, &places[..MOST + 1], 4));
    }
}
