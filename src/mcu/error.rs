//! How an emulated routine can fail to return.

use crate::firmware::CodeAddress;
use miette::Diagnostic;
use thiserror::Error;

/// An emulated routine that did not return. The machine's memory is as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum RunError {
    /// More instructions than allowed.
    #[error("the routine at {entry} did not return within {budget} instructions; it was at {at} then")]
    #[diagnostic(code(asmpatch::mcu::budget))]
    Budget {
        /// The routine.
        entry: CodeAddress,
        /// Instructions allowed.
        budget: u64,
        /// Where it was.
        at: CodeAddress,
    },
    /// A jump to itself: the chip would wait for an interrupt for ever.
    #[error("the routine at {entry} stops in a jump to itself at {at}")]
    #[diagnostic(code(asmpatch::mcu::halted))]
    Halted {
        /// The routine.
        entry: CodeAddress,
        /// Where it stays.
        at: CodeAddress,
    },
    /// The program counter left the image.
    #[error(
        "the routine at {entry} runs to 0x{to:04X} in bank {bank}, where the image has no code; the last instruction was at {from}"
    )]
    #[diagnostic(code(asmpatch::mcu::outside_code))]
    OutsideCode {
        /// The routine.
        entry: CodeAddress,
        /// The last instruction inside.
        from: CodeAddress,
        /// SFR 0x96 at that time.
        bank: u8,
        /// The address outside.
        to: u16,
        /// First address without code.
        end: u16,
    },
    /// The stack pointer passed its limit.
    #[error("the routine at {entry} overflows the stack at {at}: SP passed 0x{limit:02X}")]
    #[diagnostic(code(asmpatch::mcu::stack))]
    StackOverflow {
        /// The routine.
        entry: CodeAddress,
        /// The instruction that pushed.
        at: CodeAddress,
        /// The highest SP allowed.
        limit: u8,
    },
    /// The routine returned past its caller.
    #[error("the routine at {entry} takes more from the stack than it put there: at {at} SP fell below its caller's")]
    #[diagnostic(code(asmpatch::mcu::stack_underflow))]
    StackUnderflow {
        /// The routine.
        entry: CodeAddress,
        /// The instruction that popped.
        at: CodeAddress,
    },
}
