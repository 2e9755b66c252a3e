//! Follows the call stack of running code, instruction by instruction.
//!
//! An 8051's calls, returns and interrupts move the stack pointer by two, so the stack pointer shows when a function is
//! left: by RET, by a popped return address (the compiler's helpers for `switch` do that), or by a new stack. A RET
//! that leaves no function is a jump: the vendor's stubs enter the other bank this way.

use asm2464::firmware::CodeAddress;

use crate::mcu::Step;

/// A function that was entered and not yet left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Its first address.
    pub entry: CodeAddress,
    /// The stack pointer there, after the return address was pushed.
    sp: u8,
    /// Whether it is an interrupt handler.
    pub is_interrupt: bool,
}

/// The effect of an instruction on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StackEffect {
    Call,
    Return,
    Jump,
    Push,
    Pop,
    Other,
}

impl StackEffect {
    fn of(opcode: u8) -> Self {
        match opcode {
            0x12 => Self::Call,
            0x22 | 0x32 => Self::Return,
            0x02 | 0x73 | 0x80 => Self::Jump,
            0xC0 => Self::Push,
            0xD0 => Self::Pop,
            // ACALL and AJMP have bits of the target address above these five.
            opcode if opcode & 0x1F == 0x11 => Self::Call,
            opcode if opcode & 0x1F == 0x01 => Self::Jump,
            _ => Self::Other,
        }
    }

    /// Returns the stack pointer after the instruction, unless it writes that register itself.
    fn sp_after(self, sp: u8) -> u8 {
        match self {
            Self::Call => sp.wrapping_add(2),
            Self::Return => sp.wrapping_sub(2),
            Self::Push => sp.wrapping_add(1),
            Self::Pop => sp.wrapping_sub(1),
            Self::Jump | Self::Other => sp,
        }
    }
}

/// The call stack. Stack pointers rise from frame to frame, so there are at most 257 frames.
#[derive(Debug, Clone, Default)]
pub struct CallStack {
    frames: Vec<Frame>,
    /// The stack pointer before the last instruction, and that instruction's effect on it.
    before: Option<(u8, StackEffect)>,
}

impl CallStack {
    /// Returns the frames, outermost first. The innermost one is executing.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Follows the step from the last instruction to this one. `is_entry` says where functions begin: a jump there is
    /// a call without a return.
    ///
    /// Returns the number of frames, from the outermost, that are the same as before. Those from that index on are new.
    pub fn step(&mut self, step: &Step<'_>, is_entry: impl Fn(CodeAddress) -> bool) -> usize {
        let sp = step.cpu.sp();
        let kind = StackEffect::of(step.opcode);
        let Some((sp_before, before)) = self.before.replace((sp, kind)) else {
            self.frames.push(Frame { entry: step.at, sp: 0, is_interrupt: false });
            return 0;
        };
        let is_vector = matches!(step.at.addr(), 0x03 | 0x0B | 0x13 | 0x1B | 0x23);
        let is_interrupt = is_vector && sp == before.sp_after(sp_before).wrapping_add(2);
        // Most instructions do not change the stack.
        if !is_interrupt && sp == sp_before && before == StackEffect::Other {
            return self.frames.len();
        }
        // An interrupt may come before a function's first instruction, whose address is then on the stack.
        let (at, own_sp) = match interrupted(step).filter(|_| is_interrupt) {
            Some(at) => (at, sp.wrapping_sub(2)),
            None => (step.at, sp),
        };
        let depth = self.frames.len();
        let mut lowest = self.leave(own_sp);
        match before {
            StackEffect::Call => lowest = lowest.min(self.enter(at, own_sp, false)),
            StackEffect::Return if lowest == depth => lowest = lowest.min(self.enter(at, own_sp, false)),
            StackEffect::Jump if is_entry(at) => {
                if let Some(top) = self.frames.last_mut().filter(|top| top.entry != at) {
                    top.entry = at;
                    lowest = lowest.min(self.frames.len() - 1);
                }
            }
            _ => {}
        }
        if is_interrupt {
            lowest = lowest.min(self.enter(step.at, sp, true));
        }
        lowest
    }

    /// Drops the frames whose return address is no longer on the stack. Returns the number of frames that are left.
    fn leave(&mut self, sp: u8) -> usize {
        while self.frames.len() > 1 && self.frames.last().is_some_and(|top| u16::from(sp) + 2 <= u16::from(top.sp)) {
            self.frames.pop();
        }
        self.frames.len()
    }

    fn enter(&mut self, entry: CodeAddress, sp: u8, is_interrupt: bool) -> usize {
        while self.frames.len() > 1 && self.frames.last().is_some_and(|top| top.sp >= sp) {
            self.frames.pop();
        }
        self.frames.push(Frame { entry, sp, is_interrupt });
        self.frames.len() - 1
    }
}

/// Returns where the code continues after the interrupt that has just occurred.
fn interrupted(step: &Step<'_>) -> Option<CodeAddress> {
    let sp = step.cpu.sp();
    let [high, low] = [sp, sp.wrapping_sub(1)].map(|at| step.cpu.internal_ram[usize::from(at)]);
    CodeAddress::fetched(step.bank, u16::from_be_bytes([high, low]))
}
