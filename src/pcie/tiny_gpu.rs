//! tiny-gpu's card, as a host drives it: program and data go in by memory writes, the result comes by memory reads, or
//! the card sends it to host memory itself.

use miette::Diagnostic;
use thiserror::Error;

use super::access::{Pcie, SRAM_ADDRESS};
use super::bar::Bar;
use super::engine::TlpEngine;
use super::error::PcieError;
use super::function::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY};
use super::place::Bdf;
use super::survey::Survey;
use crate::tiny_gpu::registers::{
    AWAIT, CACHES, COMMAND_AT, CONTROL, CYCLES_MAX, CardFault, DEVICE, ID, ID_VALUE, PROGRAM_AT, RAN, RUN, SEND,
    SEND_FROM, SENT, STATUS, VENDOR, WAITS,
};

/// Where this driver puts a program in the card's memory, and where the data memory's 256 bytes.
const PROGRAM: u32 = 0;
const DATA: u32 = 0x400;

/// Why the card did not do a job.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum TinyGpuError {
    /// A request to it failed.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Pcie(#[from] PcieError),
    /// It has no address.
    #[error("the tiny-gpu at {at} has BARs without an address")]
    #[diagnostic(code(asmpatch::tiny_gpu::no_address))]
    NoAddress {
        /// The card.
        at: Bdf,
    },
    /// Something else answers where its registers should be.
    #[error("the device at {at} has tiny-gpu's IDs, and its registers begin with {found:#010x}, expected \"TGPU\"")]
    #[diagnostic(code(asmpatch::tiny_gpu::other_device))]
    OtherDevice {
        /// The device.
        at: Bdf,
        /// What its first register reads.
        found: u32,
    },
    /// A job that can't be given to it: nothing was sent.
    #[error("{what}")]
    #[diagnostic(code(asmpatch::tiny_gpu::job))]
    Job {
        /// What is wrong with it.
        what: String,
    },
    /// It has tried.
    #[error("the tiny-gpu at {at}: {fault}")]
    #[diagnostic(forward(fault))]
    Fault {
        /// The card.
        at: Bdf,
        /// What its status tells.
        fault: CardFault,
    },
    /// It has neither done what it was told nor said why not.
    #[error("the tiny-gpu at {at} has the status {status:#x} after a job, expected {expected:#x}")]
    #[diagnostic(code(asmpatch::tiny_gpu::status))]
    Status {
        /// The card.
        at: Bdf,
        /// What it reads.
        status: u32,
        /// What it should.
        expected: u32,
    },
}

/// A completion entry: 16 bytes that the card writes behind the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// PCIe address of its place in a completion queue.
    pub to: u64,
    /// The entry.
    pub bytes: [u8; 16],
    /// PCIe address of the place in a submission queue where the command will stand that it completes: the card waits
    /// for it, and puts the command's ID into the entry. `None`: it is written at once.
    pub command_at: Option<u64>,
}

impl Entry {
    /// What the card's status shows once it has been told to send it.
    const fn told(entry: Option<&Self>) -> u32 {
        match entry {
            Some(Self { command_at: Some(_), .. }) => WAITS,
            _ => SENT,
        }
    }
}

/// What the card sends once its program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaWrite {
    /// First byte of data memory.
    pub from: u8,
    /// Bytes; what is past data memory is the card's memory behind it.
    pub len: u32,
    /// PCIe address.
    pub to: u64,
    /// What it writes after them.
    pub entry: Option<Entry>,
}

impl DmaWrite {
    /// What the card's registers say of it, from SEND_FROM on.
    fn registers(&self) -> Vec<u32> {
        let mut registers = vec![DATA + u32::from(self.from), self.len];
        registers.extend(halves(self.to));
        registers.extend(halves(self.entry.map_or(0, |entry| entry.to)));
        let entry = self.entry.iter().flat_map(|entry| entry.bytes.chunks_exact(4));
        registers.extend(entry.map(|dword| u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]])));
        registers
    }
}

/// An address as two registers have it.
const fn halves(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

/// A program with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job<'a> {
    /// Its words, at most 256.
    pub program: &'a [u16],
    /// Data memory from its start on, at most 256 bytes. What is not given stays as it is.
    pub data: &'a [u8],
    /// Threads.
    pub threads: u8,
    /// Runs it on the machine with caches.
    pub caches: bool,
    /// The most cycles that it may take, up to [`CYCLES_MAX`].
    pub cycle_limit: u32,
    /// What it sends.
    pub send: Option<DmaWrite>,
}

/// A card that has been found, and may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TinyGpu {
    at: Bdf,
    memory: u64,
    registers: u64,
}

impl TinyGpu {
    /// The first card in a tree whose BARs have addresses. Lets it answer and send.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn open<E: TlpEngine>(pcie: &mut Pcie<'_, E>, survey: &Survey) -> Result<Option<Self>, TinyGpuError> {
        let is_card = |id: (u16, u16)| id == (VENDOR, DEVICE);
        let mut found = survey.functions.iter().filter(|function| is_card((function.vendor, function.device)));
        let Some(function) = found.next() else { return Ok(None) };
        let at = function.at;
        let address = |index| {
            let bar = function.bars.iter().find(|bar| bar.index == index).filter(|bar| Bar::is_assigned(bar));
            bar.map(|bar| bar.address).ok_or(TinyGpuError::NoAddress { at })
        };
        let card = Self { at, memory: address(0)?, registers: address(2)? };
        let command = function.command | COMMAND_MEMORY | COMMAND_MASTER;
        pcie.config_write(at, COMMAND, u32::from(command), 0x03)?;
        let mut id = [0; 4];
        pcie.memory_read(card.registers + u64::from(ID), &mut id)?;
        match u32::from_le_bytes(id) {
            ID_VALUE => Ok(Some(card)),
            found => Err(TinyGpuError::OtherDevice { at, found }),
        }
    }

    /// Where it is.
    pub const fn at(&self) -> Bdf {
        self.at
    }

    /// Runs a program. Gives the cycles that it took.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn run<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, job: &Job<'_>) -> Result<u32, TinyGpuError> {
        let (words, bytes, limit) = (job.program.len(), job.data.len(), job.cycle_limit);
        if words > crate::tiny_gpu::PROGRAM_LEN || bytes > crate::tiny_gpu::DATA_LEN || limit > CYCLES_MAX {
            let what = format!(
                "a job of {words} words, {bytes} bytes and {limit} cycles; a card takes 256, 256 and {CYCLES_MAX}"
            );
            return Err(TinyGpuError::Job { what });
        }
        let program: Vec<u8> = job.program.iter().flat_map(|word| word.to_le_bytes()).collect();
        pcie.memory_write(self.memory + u64::from(PROGRAM), &program)?;
        pcie.memory_write(self.memory + u64::from(DATA), job.data)?;
        let caches = if job.caches { CACHES } else { 0 };
        let mut registers = vec![PROGRAM, words as u32, DATA, u32::from(job.threads), limit];
        registers.extend(job.send.iter().flat_map(DmaWrite::registers));
        self.put(pcie, PROGRAM_AT, &registers)?;
        match &job.send {
            Some(send) => self.start(pcie, RUN | caches | SEND, send),
            None => {
                self.put(pcie, CONTROL, &[RUN | caches])?;
                self.ended(pcie, RAN)
            }
        }
    }

    /// Sends what is in the card's memory, without a run.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn send<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, send: &DmaWrite) -> Result<(), TinyGpuError> {
        self.put(pcie, SEND_FROM, &send.registers())?;
        self.start(pcie, SEND, send).map(drop)
    }

    /// Sends a completion entry, and nothing before it.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn complete<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, entry: Entry) -> Result<(), TinyGpuError> {
        self.send(pcie, &DmaWrite { from: 0, len: 0, to: SRAM_ADDRESS, entry: Some(entry) })
    }

    /// Whether an entry that waited for its command has been written.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn has_completed<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>) -> Result<bool, TinyGpuError> {
        let (status, _, fault) = self.status(pcie)?;
        match fault {
            Some(fault) => Err(TinyGpuError::Fault { at: self.at, fault }),
            None => Ok(status & SENT != 0),
        }
    }

    /// Writes consecutive registers.
    fn put<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, at: u16, values: &[u32]) -> Result<(), TinyGpuError> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(pcie.memory_write(self.registers + u64::from(at), &bytes)?)
    }

    /// Starts work that sends, whose other registers stand.
    fn start<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, control: u32, send: &DmaWrite) -> Result<u32, TinyGpuError> {
        let command_at = send.entry.and_then(|entry| entry.command_at);
        if let Some(at) = command_at {
            self.put(pcie, COMMAND_AT, &halves(at))?;
        }
        let awaits = if command_at.is_some() { AWAIT } else { 0 };
        self.put(pcie, CONTROL, &[control | awaits])?;
        let ran = if control & RUN != 0 { RAN } else { 0 };
        self.ended(pcie, ran | Entry::told(send.entry.as_ref()))
    }

    /// Status, cycles of the last run, and what went wrong.
    fn status<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>) -> Result<(u32, u32, Option<CardFault>), TinyGpuError> {
        let mut told = [0; 12];
        pcie.memory_read(self.registers + u64::from(STATUS), &mut told)?;
        let [status, cycles, fault_at] =
            [0, 4, 8].map(|at| u32::from_le_bytes([told[at], told[at + 1], told[at + 2], told[at + 3]]));
        Ok((status, cycles, CardFault::of(status, fault_at)))
    }

    /// How the job ended: its cycles.
    fn ended<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, expected: u32) -> Result<u32, TinyGpuError> {
        let (status, cycles, fault) = self.status(pcie)?;
        match fault {
            Some(fault) => Err(TinyGpuError::Fault { at: self.at, fault }),
            None if status == expected => Ok(cycles),
            None => Err(TinyGpuError::Status { at: self.at, status, expected }),
        }
    }

    /// Reads data memory, and the card's memory behind it, by memory reads.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn read<E: TlpEngine>(&self, pcie: &mut Pcie<'_, E>, from: u8, buffer: &mut [u8]) -> Result<(), TinyGpuError> {
        Ok(pcie.memory_read(self.memory + u64::from(DATA) + u64::from(from), buffer)?)
    }
}
