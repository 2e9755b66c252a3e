//! Driver of tiny-gpu's card: writes program and data by memory writes. The result comes back by memory reads, or the
//! card sends it to host memory itself.

use thiserror::Error;
use tiny_gpu::{DATA_LEN, PROGRAM_LEN};

use asm2464::Bdf;
use asm2464::sram::SRAM_ADDRESS;
use asm2464_host::bridge::PortError;
use asm2464_host::pcie::{
    COMMAND, COMMAND_MASTER, COMMAND_MEMORY, Entry, Function, Pcie, PcieError, SramReadError, Survey,
};

use super::registers::{
    AWAIT, CACHES, COMMAND_AT, CONTROL, CYCLES_MAX, CardFault, DEVICE, ID, ID_VALUE, PROGRAM_AT, RAN, RUN, SEND,
    SEND_FROM, SENT, STATUS, VENDOR, WAITS,
};

/// Offsets of the program and of the data memory's 256 bytes in the card's memory.
const PROGRAM: u32 = 0;
const DATA: u32 = 0x400;

/// Reasons the card did not do a job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TinyGpuError {
    /// A request to the card failed.
    #[error(transparent)]
    Pcie(#[from] PcieError),
    /// The card has no address.
    #[error("the tiny-gpu at {at} has BARs without an address")]
    NoAddress {
        /// The card.
        at: Bdf,
    },
    /// Another device answers at the address of the card's registers.
    #[error("the device at {at} has tiny-gpu's IDs, and its registers begin with {found:#010x}, expected \"TGPU\"")]
    OtherDevice {
        /// The device.
        at: Bdf,
        /// Value of its first register.
        found: u32,
    },
    /// The job is invalid. Nothing was sent.
    #[error("{what}")]
    Job {
        /// What is wrong with it.
        what: String,
    },
    /// The card reports a fault.
    #[error("the tiny-gpu at {at}: {fault}")]
    Fault {
        /// The card.
        at: Bdf,
        /// The fault in its status.
        fault: CardFault,
    },
    /// The card has neither done the job nor reported a fault.
    #[error("the tiny-gpu at {at} has the status {status:#x} after a job, expected {expected:#x}")]
    Status {
        /// The card.
        at: Bdf,
        /// Its status.
        status: u32,
        /// The expected status.
        expected: u32,
    },
}

asm2464::coded!(TinyGpuError {
    Pcie(cause) => cause,
    NoAddress => Device "asm2464::tiny_gpu::no_address",
    OtherDevice => Device "asm2464::tiny_gpu::other_device",
    Job => Usage "asm2464::tiny_gpu::job",
    Fault { fault, .. } => fault,
    Status => Device "asm2464::tiny_gpu::status",
});

impl From<TinyGpuError> for SramReadError {
    fn from(error: TinyGpuError) -> Self {
        Self::Device(PortError::new(error))
    }
}

/// A write that the card makes once its program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaWrite {
    /// First byte of data memory.
    pub from: u8,
    /// Length in bytes. After the last byte of data memory, the card's memory behind it is sent.
    pub len: u32,
    /// Target PCIe address.
    pub to: u64,
    /// The entry to write afterwards.
    pub entry: Option<Entry>,
}

impl DmaWrite {
    /// The values of the card's registers from SEND_FROM on.
    fn registers(&self) -> Vec<u32> {
        let mut registers = vec![DATA + u32::from(self.from), self.len];
        registers.extend(halves(self.to));
        registers.extend(halves(self.entry.map_or(0, |entry| entry.to)));
        let entry = self.entry.iter().flat_map(|entry| entry.bytes.chunks_exact(4));
        registers.extend(entry.map(|dword| u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]])));
        registers
    }
}

/// Splits an address into two registers.
const fn halves(address: u64) -> [u32; 2] {
    [address as u32, (address >> 32) as u32]
}

/// A program with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job<'a> {
    /// The program's words, at most 256.
    pub program: &'a [u16],
    /// Data memory from its start on, at most 256 bytes. The rest stays unchanged.
    pub data: &'a [u8],
    /// Number of threads.
    pub threads: u8,
    /// Whether to run on the machine with caches.
    pub caches: bool,
    /// Maximum number of cycles, up to [`CYCLES_MAX`].
    pub cycle_limit: u32,
    /// What the card sends afterwards.
    pub send: Option<DmaWrite>,
}

/// A card that answers memory requests and may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TinyGpu {
    /// Address of the card.
    pub at: Bdf,
    memory: u64,
    registers: u64,
}

impl TinyGpu {
    /// Finds the first card of a survey, and sets its Memory Space Enable and Bus Master Enable. `None` if there is no
    /// card. The card's BARs must have addresses.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn open(pcie: &mut Pcie<'_>, survey: &Survey) -> Result<Option<Self>, TinyGpuError> {
        let is_card = |function: &&Function| (function.vendor, function.device) == (VENDOR, DEVICE);
        let Some(function) = survey.functions.iter().find(is_card) else { return Ok(None) };
        let at = function.at;
        let address = |index| {
            let bar = function.bars.iter().find(|bar| bar.index == index && bar.is_assigned());
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

    /// Runs a program, then has the card send what the job says. Returns the number of cycles that the run took.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn run(&self, pcie: &mut Pcie<'_>, job: &Job<'_>) -> Result<u32, TinyGpuError> {
        let (words, bytes, limit) = (job.program.len(), job.data.len(), job.cycle_limit);
        if words > PROGRAM_LEN || bytes > DATA_LEN || limit > CYCLES_MAX {
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
        self.start(pcie, RUN | caches, job.send.as_ref())
    }

    /// Sends bytes of the card's memory without a run.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn send(&self, pcie: &mut Pcie<'_>, send: &DmaWrite) -> Result<(), TinyGpuError> {
        self.put(pcie, SEND_FROM, &send.registers())?;
        self.start(pcie, 0, Some(send)).map(drop)
    }

    /// Sends only a completion entry.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn complete(&self, pcie: &mut Pcie<'_>, entry: Entry) -> Result<(), TinyGpuError> {
        self.send(pcie, &DmaWrite { from: 0, len: 0, to: SRAM_ADDRESS, entry: Some(entry) })
    }

    /// Writes consecutive registers.
    fn put(&self, pcie: &mut Pcie<'_>, at: u16, values: &[u32]) -> Result<(), TinyGpuError> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(pcie.memory_write(self.registers + u64::from(at), &bytes)?)
    }

    /// Starts the work that the other registers describe, and checks how it ended. Returns the cycles of the last run.
    fn start(&self, pcie: &mut Pcie<'_>, run: u32, send: Option<&DmaWrite>) -> Result<u32, TinyGpuError> {
        let (control, sent) = match send {
            None => (0, 0),
            Some(DmaWrite { entry: Some(Entry { command_at: Some(at), .. }), .. }) => {
                self.put(pcie, COMMAND_AT, &halves(*at))?;
                (SEND | AWAIT, WAITS)
            }
            Some(_) => (SEND, SENT),
        };
        self.put(pcie, CONTROL, &[run | control])?;
        let mut registers = [0; 12];
        pcie.memory_read(self.registers + u64::from(STATUS), &mut registers)?;
        let (registers, _) = registers.as_chunks::<4>();
        let [status, cycles, fault_at] = [registers[0], registers[1], registers[2]].map(u32::from_le_bytes);
        let expected = sent | if run & RUN != 0 { RAN } else { 0 };
        match CardFault::of(status, fault_at) {
            Some(fault) => Err(TinyGpuError::Fault { at: self.at, fault }),
            None if status == expected => Ok(cycles),
            None => Err(TinyGpuError::Status { at: self.at, status, expected }),
        }
    }

    /// Reads data memory, and the card's memory behind it, through memory reads.
    ///
    /// # Errors
    /// [`TinyGpuError`].
    pub fn read(&self, pcie: &mut Pcie<'_>, from: u8, buffer: &mut [u8]) -> Result<(), TinyGpuError> {
        Ok(pcie.memory_read(self.memory + u64::from(DATA) + u64::from(from), buffer)?)
    }
}
