//! The registers of tiny-gpu as a PCIe card: what the card has, and what a host writes.
//!
//! The card is ours: the machine's hardware description ends at its memories. BAR 0 is the card's memory, BAR 2 its
//! registers, dwords, little-endian. A host writes them in ascending order, [`CONTROL`] last, which starts the work; all of it
//! is done when the write has been carried out.

use miette::Diagnostic;
use thiserror::Error;

use super::machine::{DATA_LEN, PROGRAM_LEN};

/// Vendor and device ID. The vendor's is not assigned to anybody; virtual devices use it.
pub const VENDOR: u16 = 0x1234;
/// "TG".
pub const DEVICE: u16 = 0x5447;
/// Processing accelerator.
pub const CLASS: u32 = 0x12_00_00;
/// Bytes of BAR 0.
pub const MEMORY_LEN: u32 = 16 << 20;
/// Bytes of BAR 2.
pub const REGISTERS_LEN: u32 = 0x1000;

/// Read-only: "TGPU".
pub const ID: u16 = 0x00;
/// What [`ID`] reads.
pub const ID_VALUE: u32 = u32::from_le_bytes(*b"TGPU");
/// Read-only: [`RAN`], [`SENT`], and a [`CardFault`]'s code in bits 15:8.
pub const STATUS: u16 = 0x04;
/// Read-only: cycles of the last run.
pub const CYCLES: u16 = 0x08;
/// Read-only: where a run went wrong: block in bits 31:16, word of its program in 15:0.
pub const FAULT_AT: u16 = 0x0C;
/// Offset of the program in the card's memory: words of 16 bits, little-endian.
pub const PROGRAM_AT: u16 = 0x10;
/// Its words, at most 256.
pub const PROGRAM_WORDS: u16 = 0x14;
/// Offset of the data memory's 256 bytes in the card's memory: a run begins with them and leaves them there.
pub const DATA_AT: u16 = 0x18;
/// Threads, at most 255.
pub const THREADS: u16 = 0x1C;
/// The most cycles of a run, at most [`CYCLES_MAX`].
pub const CYCLE_LIMIT: u16 = 0x20;
/// Offset in the card's memory of what is sent.
pub const SEND_FROM: u16 = 0x24;
/// Its bytes; 0 for none.
pub const SEND_LEN: u16 = 0x28;
/// The PCIe address that it is sent to; its upper half is the next register.
pub const SEND_TO: u16 = 0x2C;
/// The PCIe address for a completion entry, written behind the data; 0 for none. Its upper half is the next register.
pub const ENTRY_TO: u16 = 0x34;
/// The entry's 16 bytes.
pub const ENTRY: u16 = 0x3C;
/// [`RUN`], [`SEND`], [`CACHES`], [`AWAIT`]: what to do. It forgets status, cycles and fault of what was done before.
pub const CONTROL: u16 = 0x4C;
/// With [`AWAIT`]: the PCIe address of the NVMe submission queue entry that the completion entry waits for. Its upper
/// half is the next register.
pub const COMMAND_AT: u16 = 0x50;

/// CONTROL: runs the program.
pub const RUN: u32 = 0x01;
/// CONTROL: sends data and entry as bus master, after a run that ended.
pub const SEND: u32 = 0x02;
/// CONTROL: the run uses the machine with caches.
pub const CACHES: u32 = 0x04;
/// CONTROL, with [`SEND`]: the completion entry is sent once a command stands at [`COMMAND_AT`]: once the entry's first
/// byte there, its opcode, is not 0. The command's ID goes into the completion entry.
pub const AWAIT: u32 = 0x08;
/// STATUS: the program has ended.
pub const RAN: u32 = 0x01;
/// STATUS: all is sent.
pub const SENT: u32 = 0x02;
/// STATUS: the data are sent, and the completion entry waits for its command.
pub const WAITS: u32 = 0x04;

/// The most cycles that a run may be given.
pub const CYCLES_MAX: u32 = 1 << 20;

/// What the card's status tells of work that it did not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Diagnostic)]
pub enum CardFault {
    /// The program went on where it has no word.
    #[error("block {block} went on at word {word}, outside of its program")]
    #[diagnostic(code(asmpatch::tiny_gpu::left_program))]
    LeftProgram {
        /// The block.
        block: u16,
        /// The word.
        word: u16,
    },
    /// It was stopped.
    #[error("the program did not end within the cycles that it may take: block {block} is at word {word}")]
    #[diagnostic(code(asmpatch::tiny_gpu::never_ends))]
    NeverEnds {
        /// A block that had not ended.
        block: u16,
        /// Where it was.
        word: u16,
    },
    /// Registers that describe no run.
    #[error(
        "the registers describe no run: at most {PROGRAM_LEN} words and {DATA_LEN} bytes within the card's memory, 255 \
         threads, {CYCLES_MAX} cycles"
    )]
    #[diagnostic(code(asmpatch::tiny_gpu::no_run))]
    NoRun,
    /// It must not send: Bus Master Enable is off.
    #[error("it was to send, and Bus Master Enable is off")]
    #[diagnostic(code(asmpatch::tiny_gpu::not_master))]
    NotMaster,
    /// What is to be sent is not in its memory.
    #[error("what it was to send is not in its memory")]
    #[diagnostic(code(asmpatch::tiny_gpu::no_source))]
    NoSource,
    /// Nobody takes what it sends.
    #[error("nobody takes a write at the PCIe address that it was to send to")]
    #[diagnostic(code(asmpatch::tiny_gpu::no_target))]
    NoTarget,
    /// It can't see the command that it was to wait for.
    #[error("nobody answers a read at the PCIe address where it was to wait for a command")]
    #[diagnostic(code(asmpatch::tiny_gpu::no_command))]
    NoCommand,
    /// A code that this version does not know.
    #[error("its status has the code {0:#04x}, which has no meaning")]
    #[diagnostic(code(asmpatch::tiny_gpu::fault))]
    Unknown(u8),
}

impl CardFault {
    /// Its code in STATUS, 15:8.
    pub const fn number(self) -> u8 {
        match self {
            Self::LeftProgram { .. } => 1,
            Self::NeverEnds { .. } => 2,
            Self::NoRun => 3,
            Self::NotMaster => 4,
            Self::NoSource => 5,
            Self::NoTarget => 6,
            Self::NoCommand => 7,
            Self::Unknown(code) => code,
        }
    }

    /// What FAULT_AT reads with it.
    pub fn at(self) -> u32 {
        match self {
            Self::LeftProgram { block, word } | Self::NeverEnds { block, word } => {
                u32::from(block) << 16 | u32::from(word)
            }
            _ => 0,
        }
    }

    /// The fault that STATUS and FAULT_AT tell; `None` where there is none.
    pub const fn of(status: u32, at: u32) -> Option<Self> {
        let (block, word) = ((at >> 16) as u16, at as u16);
        Some(match (status >> 8) as u8 {
            0 => return None,
            1 => Self::LeftProgram { block, word },
            2 => Self::NeverEnds { block, word },
            3 => Self::NoRun,
            4 => Self::NotMaster,
            5 => Self::NoSource,
            6 => Self::NoTarget,
            7 => Self::NoCommand,
            code => Self::Unknown(code),
        })
    }
}
