//! The registers of tiny-gpu as a PCIe card, and how a host uses them.
//!
//! The card is asmpatch's own design: the machine's hardware description has no PCIe interface. BAR 0 is the card's
//! memory, BAR 2 its registers: dwords, little-endian. A host writes [`CONTROL`] last, which starts the work. When that
//! write completes, all work is done, except an entry that waits for a command ([`AWAIT`]).

use asm2464::{Coded, Kind, Label};
use thiserror::Error;
use tiny_gpu::{DATA_LEN, PROGRAM_LEN, RunFault};

/// Vendor ID. It is not assigned to anybody; virtual devices use it.
pub const VENDOR: u16 = 0x1234;
/// Device ID: "TG".
pub const DEVICE: u16 = 0x5447;
/// Class code: processing accelerator.
pub const CLASS: u32 = 0x12_00_00;
/// Size of BAR 0, in bytes.
pub const MEMORY_LEN: u32 = 16 << 20;
/// Size of BAR 2, in bytes.
pub const REGISTERS_LEN: u32 = 0x1000;

/// Read-only: "TGPU".
pub const ID: u16 = 0x00;
/// The value of [`ID`].
pub const ID_VALUE: u32 = u32::from_le_bytes(*b"TGPU");
/// Read-only: [`RAN`], [`SENT`], [`WAITS`], and a [`CardFault`]'s code in bits 15:8.
pub const STATUS: u16 = 0x04;
/// Read-only: cycles of the last run.
pub const CYCLES: u16 = 0x08;
/// Read-only: where a run failed: block in bits 31:16, word of its program in 15:0.
pub const FAULT_AT: u16 = 0x0C;
/// Offset of the program in the card's memory: words of 16 bits, little-endian.
pub const PROGRAM_AT: u16 = 0x10;
/// Number of the program's words, at most 256.
pub const PROGRAM_WORDS: u16 = 0x14;
/// Offset of data memory's 256 bytes in the card's memory: a run starts with them and leaves its results there.
pub const DATA_AT: u16 = 0x18;
/// Number of threads, at most 255.
pub const THREADS: u16 = 0x1C;
/// The most cycles that a run may take, up to [`CYCLES_MAX`].
pub const CYCLE_LIMIT: u16 = 0x20;
/// Offset in the card's memory of the data to send.
pub const SEND_FROM: u16 = 0x24;
/// Number of bytes to send; 0 for none.
pub const SEND_LEN: u16 = 0x28;
/// PCIe address of the data's destination; its upper half is the next register.
pub const SEND_TO: u16 = 0x2C;
/// PCIe address of a completion entry, which is written after the data; 0 for none. Its upper half is the next
/// register.
pub const ENTRY_TO: u16 = 0x34;
/// The entry's 16 bytes.
pub const ENTRY: u16 = 0x3C;
/// [`RUN`], [`SEND`], [`CACHES`], [`AWAIT`]: the work to do. A write clears status, cycles and fault of earlier work.
pub const CONTROL: u16 = 0x4C;
/// With [`AWAIT`]: the PCIe address of the NVMe submission queue entry that the completion entry waits for. Its upper
/// half is the next register.
pub const COMMAND_AT: u16 = 0x50;

/// CONTROL: runs the program.
pub const RUN: u32 = 0x01;
/// CONTROL: sends the data and the entry as bus master, after the run has ended.
pub const SEND: u32 = 0x02;
/// CONTROL: the run uses the machine with caches.
pub const CACHES: u32 = 0x04;
/// CONTROL, with [`SEND`]: sends the completion entry only when a command is at [`COMMAND_AT`], which means that the
/// first byte there, its opcode, is not 0. The command's ID goes into the completion entry.
pub const AWAIT: u32 = 0x08;
/// STATUS: the program has ended.
pub const RAN: u32 = 0x01;
/// STATUS: everything is sent.
pub const SENT: u32 = 0x02;
/// STATUS: the data are sent, and the completion entry waits for its command.
pub const WAITS: u32 = 0x04;

/// The highest cycle limit of a run.
pub const CYCLES_MAX: u32 = 1 << 20;

/// Reasons that the card's status gives for work it did not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CardFault {
    /// The program's run failed.
    #[error(transparent)]
    Run(RunFault),
    /// The registers describe no valid run.
    #[error(
        "the registers describe no run: at most {PROGRAM_LEN} words and {DATA_LEN} bytes within the card's memory, 255 \
         threads, {CYCLES_MAX} cycles"
    )]
    NoRun,
    /// The card may not send: Bus Master Enable is off.
    #[error("it can't send, because Bus Master Enable is off")]
    NotMaster,
    /// The data to send are not completely in the card's memory.
    #[error("the data to send is outside its memory")]
    NoSource,
    /// Nothing accepts a write at the destination.
    #[error("no device accepts its write at the target PCIe address")]
    NoTarget,
    /// The card can't read the command that it should wait for.
    #[error("no device answers its read at the PCIe address of the awaited command")]
    NoCommand,
    /// A code that this version does not know.
    #[error("its status has the unknown code {0:#04x}")]
    Unknown(u8),
}

impl Coded for CardFault {
    fn label(&self) -> Label {
        match self {
            Self::Run(RunFault::LeftProgram { .. }) => Kind::Device.code("asm2464::tiny_gpu::left_program"),
            Self::Run(RunFault::NeverEnds { .. }) => Kind::Device.code("asm2464::tiny_gpu::never_ends"),
            Self::Run(RunFault::TooLong) | Self::NoRun => Kind::Device.code("asm2464::tiny_gpu::no_run"),
            Self::NotMaster => Kind::Device.code("asm2464::tiny_gpu::not_master"),
            Self::NoSource => Kind::Device.code("asm2464::tiny_gpu::no_source"),
            Self::NoTarget => Kind::Device.code("asm2464::tiny_gpu::no_target"),
            Self::NoCommand => Kind::Device.code("asm2464::tiny_gpu::no_command"),
            Self::Unknown(_) => Kind::Device.code("asm2464::tiny_gpu::fault"),
        }
    }
}

impl From<RunFault> for CardFault {
    fn from(fault: RunFault) -> Self {
        Self::Run(fault)
    }
}

impl CardFault {
    /// Returns its code in STATUS, bits 15:8.
    pub const fn number(self) -> u8 {
        match self {
            Self::Run(RunFault::LeftProgram { .. }) => 1,
            Self::Run(RunFault::NeverEnds { .. }) => 2,
            Self::Run(RunFault::TooLong) | Self::NoRun => 3,
            Self::NotMaster => 4,
            Self::NoSource => 5,
            Self::NoTarget => 6,
            Self::NoCommand => 7,
            Self::Unknown(code) => code,
        }
    }

    /// Returns the value of FAULT_AT for it.
    pub fn at(self) -> u32 {
        match self {
            Self::Run(RunFault::LeftProgram { block, word } | RunFault::NeverEnds { block, word }) => {
                u32::from(block) << 16 | u32::from(word)
            }
            _ => 0,
        }
    }

    /// Decodes the fault in STATUS and FAULT_AT; `None` if there is none.
    pub const fn of(status: u32, at: u32) -> Option<Self> {
        let (block, word) = ((at >> 16) as u16, at as u16);
        Some(match (status >> 8) as u8 {
            0 => return None,
            1 => Self::Run(RunFault::LeftProgram { block, word }),
            2 => Self::Run(RunFault::NeverEnds { block, word }),
            3 => Self::NoRun,
            4 => Self::NotMaster,
            5 => Self::NoSource,
            6 => Self::NoTarget,
            7 => Self::NoCommand,
            code => Self::Unknown(code),
        })
    }
}
