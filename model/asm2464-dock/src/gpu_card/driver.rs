//! Driver of tiny-gpu's card: writes program and data by memory writes. The result comes back by memory reads, or the
//! card sends it to host memory itself.

use asm2464::sram::SRAM_ADDRESS;
use asm2464::{AnyFailure, Bdf, Coded as _, Failure, Kind};
use asm2464_host::pcie::{COMMAND, COMMAND_MASTER, COMMAND_MEMORY, Entry, Pcie, Survey};
use tiny_gpu::{DATA_LEN, PROGRAM_LEN};

use super::registers::{
    AWAIT, CACHES, COMMAND_AT, CONTROL, CYCLES_MAX, CardFault, DEVICE, ID, ID_VALUE, PROGRAM_AT, RAN, RUN, SEND,
    SEND_FROM, SENT, STATUS, VENDOR, WAITS,
};

/// Offsets of the program and of the data memory's 256 bytes in the card's memory.
const PROGRAM: u32 = 0;
const DATA: u32 = 0x400;

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
pub struct GpuJob<'a> {
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
    /// Those of a request to the card; `asm2464::tiny_gpu::no_address`; `asm2464::tiny_gpu::other_device` if something
    /// else answers at the address of the card's registers.
    pub fn open(pcie: &mut Pcie<'_>, survey: &Survey) -> Result<Option<Self>, AnyFailure> {
        let mut functions = survey.functions.iter();
        let card = functions.find(|function| (function.vendor, function.device) == (VENDOR, DEVICE));
        let Some(function) = card else { return Ok(None) };
        let at = function.at;
        let address = |index| {
            let bar = function.bars.iter().find(|bar| bar.index == index && bar.is_assigned());
            bar.map(|bar| bar.address).ok_or_else(|| {
                let label = Kind::Device.code("asm2464::tiny_gpu::no_address");
                Failure::new(label, format!("the tiny-gpu at {at} has BARs without an address"))
            })
        };
        let card = Self { at, memory: address(0)?, registers: address(2)? };
        let command = function.command | COMMAND_MEMORY | COMMAND_MASTER;
        pcie.config_write(at, COMMAND, u32::from(command), 0x03)?;
        let mut id = [0; 4];
        pcie.memory_read(card.registers + u64::from(ID), &mut id)?;
        let found = u32::from_le_bytes(id);
        if found != ID_VALUE {
            let label = Kind::Device.code("asm2464::tiny_gpu::other_device");
            let device = format!("the device at {at} has tiny-gpu's IDs");
            let message = format!("{device}, and its registers begin with {found:#010x}, expected \"TGPU\"");
            return Err(Failure::new(label, message).into());
        }
        Ok(Some(card))
    }

    /// Runs a program, then has the card send what the job says. Returns the number of cycles that the run took.
    ///
    /// # Errors
    /// `asm2464::tiny_gpu::job` if the job is too large: then nothing was sent. Those of a request to the card; a
    /// [`CardFault`]'s; `asm2464::tiny_gpu::status` if the card has neither done the job nor reported a fault.
    pub fn run(&self, pcie: &mut Pcie<'_>, job: &GpuJob<'_>) -> Result<u32, AnyFailure> {
        let (words, bytes, limit) = (job.program.len(), job.data.len(), job.cycle_limit);
        if words > PROGRAM_LEN || bytes > DATA_LEN || limit > CYCLES_MAX {
            let message = format!(
                "a job of {words} words, {bytes} bytes and {limit} cycles; a card takes 256, 256 and {CYCLES_MAX}"
            );
            return Err(Failure::new(Kind::Usage.code("asm2464::tiny_gpu::job"), message).into());
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
    /// As for [`TinyGpu::run`].
    pub fn send(&self, pcie: &mut Pcie<'_>, send: &DmaWrite) -> Result<(), AnyFailure> {
        self.put(pcie, SEND_FROM, &send.registers())?;
        self.start(pcie, 0, Some(send)).map(drop)
    }

    /// Sends only a completion entry.
    ///
    /// # Errors
    /// As for [`TinyGpu::run`].
    pub fn complete(&self, pcie: &mut Pcie<'_>, entry: Entry) -> Result<(), AnyFailure> {
        self.send(pcie, &DmaWrite { from: 0, len: 0, to: SRAM_ADDRESS, entry: Some(entry) })
    }

    /// Writes consecutive registers.
    fn put(&self, pcie: &mut Pcie<'_>, at: u16, values: &[u32]) -> Result<(), AnyFailure> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(pcie.memory_write(self.registers + u64::from(at), &bytes)?)
    }

    /// Starts the work that the other registers describe, and checks how it ended. Returns the cycles of the last run.
    fn start(&self, pcie: &mut Pcie<'_>, run: u32, send: Option<&DmaWrite>) -> Result<u32, AnyFailure> {
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
        let register = |index: usize| u32::from_le_bytes(registers[index]);
        let (status, cycles, fault_at) = (register(0), register(1), register(2));
        let at = self.at;
        if let Some(fault) = CardFault::of(status, fault_at) {
            return Err(Failure::new(fault.label(), format!("the tiny-gpu at {at}: {fault}")).into());
        }
        let expected = sent | if run & RUN != 0 { RAN } else { 0 };
        if status != expected {
            let label = Kind::Device.code("asm2464::tiny_gpu::status");
            let message =
                format!("the tiny-gpu at {at} has the status {status:#x} after a job, expected {expected:#x}");
            return Err(Failure::new(label, message).into());
        }
        Ok(cycles)
    }

    /// Reads data memory, and the card's memory behind it, through memory reads.
    ///
    /// # Errors
    /// Those of a request to the card.
    pub fn read(&self, pcie: &mut Pcie<'_>, from: u8, buffer: &mut [u8]) -> Result<(), AnyFailure> {
        Ok(pcie.memory_read(self.memory + u64::from(DATA) + u64::from(from), buffer)?)
    }
}
