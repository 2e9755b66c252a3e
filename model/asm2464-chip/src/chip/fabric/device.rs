//! A PCIe device built from a description: header, BARs with memory, capabilities, link, and how it answers.
//! [`ConfigSpace`] is its configuration space. [`MemoryFunction`] is a function without a place in the tree, at a fixed
//! bus, device and function number.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;

use super::{HostMemory, Nowhere, TlpCompletion, merged};
use crate::chip::ssd::{self, DriveSpec, NvmeController};

/// Bytes of a BAR that hold what is written; the rest reads as zeros.
const MEMORY_MAX: u64 = 1 << 20;

/// Description of a device behind the root port, or of a switch's port. `E` is how the description names its engine: in
/// a file it is another type than [`Engine`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceSpec<E = Engine> {
    /// Path from the root port: `DEVICE` or `DEVICE.FUNCTION` on each bus, with `/` between. A device with others
    /// behind it is a switch's port.
    pub at: String,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code, 24 bits. A port ignores it and has 0x060400.
    #[serde(default)]
    pub class: u32,
    /// The BARs, from the first register on.
    #[serde(default, rename = "bar")]
    pub bars: Vec<BarSpec>,
    /// The device's engine, which brings BARs of its own.
    #[serde(default = "E::default", bound(deserialize = "E: Default + Deserialize<'de>"))]
    pub engine: E,
    /// The device's link.
    #[serde(default)]
    pub link: LinkSpec,
    /// How the device answers configuration requests.
    #[serde(default)]
    pub answers: Answers,
    /// Defect: the last capability points back to the first.
    #[serde(default)]
    pub capabilities_loop: bool,
}

/// The function inside a device.
#[derive(Debug, Clone, Copy, Default)]
pub enum Engine {
    /// No engine: the device's memory holds what is written.
    #[default]
    None,
    /// An NVMe controller with one namespace; its registers are behind BAR 0.
    Nvme(DriveSpec),
    /// A function that the caller brings.
    Brought {
        /// The BARs of a device with this engine.
        bars: &'static [BarSpec],
        /// Builds the engine in its state after power-on.
        build: fn() -> Box<dyn DeviceEngine>,
    },
}

/// A function inside a device, behind its BARs. Offsets are in bytes from the start of a BAR, and multiples of 4.
pub trait DeviceEngine: fmt::Debug + Send {
    /// Returns to the state after power-on.
    fn reset(&mut self);

    /// Reads a dword behind the BAR with this index, counted from 0 in the engine's list.
    fn read(&self, bar: usize, offset: u64) -> u32;

    /// Writes to a dword behind a BAR. Bit n of `enables` selects byte n. `host` receives what the engine sends as bus
    /// master; `None` if it must not send.
    fn write(&mut self, bar: usize, offset: u64, value: u32, enables: u8, host: Option<&mut dyn HostMemory>);

    /// Whether the engine waits for a command in host memory.
    fn awaits_command(&self) -> bool {
        false
    }

    /// Lets the engine check for the awaited command. `host` is the memory that it reads and writes; `None` if it must
    /// not.
    fn look(&mut self, host: Option<&mut dyn HostMemory>) {
        let _ = host;
    }
}

impl<E> DeviceSpec<E> {
    /// Converts the engine's name into the engine.
    pub fn with_engine(self) -> DeviceSpec
    where
        E: Into<Engine>,
    {
        let Self { at, vendor, device, class, bars, engine, link, answers, capabilities_loop } = self;
        DeviceSpec { at, vendor, device, class, bars, engine: engine.into(), link, answers, capabilities_loop }
    }
}

impl Engine {
    const NVME_BARS: [BarSpec; 1] = [BarSpec { bytes: ssd::REGISTERS_LEN, is_64: true, prefetchable: false }];
}

impl DeviceSpec {
    /// The device's BARs, or its engine's.
    pub(super) fn all_bars(&self) -> &[BarSpec] {
        match self.engine {
            Engine::None => &self.bars,
            Engine::Nvme(_) => &Engine::NVME_BARS,
            Engine::Brought { bars, .. } => bars,
        }
    }
}

/// A memory BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BarSpec {
    /// Size in bytes: a power of two of at least 16, or 0 for a register that holds nothing.
    pub bytes: u64,
    /// 64-bit: takes two registers.
    #[serde(default)]
    pub is_64: bool,
    /// Prefetchable.
    #[serde(default)]
    pub prefetchable: bool,
}

impl BarSpec {
    /// Number of registers that the BAR takes.
    pub(super) const fn registers(self) -> usize {
        if self.is_64 { 2 } else { 1 }
    }

    /// Whether a BAR register can describe this size.
    pub(super) const fn is_possible(self) -> bool {
        let most = if self.is_64 { 1 << 62 } else { 1 << 31 };
        self.bytes == 0 || (self.bytes.is_power_of_two() && self.bytes >= 16 && self.bytes <= most)
    }
}

/// The link above a device. Speeds are generations: 1 is 2.5 GT/s, 4 is 16 GT/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LinkSpec {
    /// Speed that the link trained to.
    pub speed: u8,
    /// Number of lanes that the link trained to.
    pub width: u8,
    /// Highest speed that the device supports.
    pub max_speed: u8,
    /// Number of lanes that the device has.
    pub max_width: u8,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self { speed: 4, width: 4, max_speed: 4, max_width: 4 }
    }
}

/// How a device answers configuration requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answers {
    /// Normally.
    #[default]
    Normally,
    /// Every read returns ones, and writes change nothing.
    Ones,
    /// Not at all.
    Never,
    /// First with this many configuration request retries, then normally.
    Retry(u32),
}

/// The role of a device in the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceRole {
    Endpoint,
    Root,
    Upstream,
    Downstream,
}

impl DeviceRole {
    /// Device/port type of the PCI Express capability.
    const fn code(self) -> u16 {
        match self {
            Self::Endpoint => 0,
            Self::Root => 4,
            Self::Upstream => 5,
            Self::Downstream => 6,
        }
    }

    pub(super) const fn is_port(self) -> bool {
        !matches!(self, Self::Endpoint)
    }

    /// Whether the bus below the device is a link, which has only device 0.
    pub(super) const fn has_link_below(self) -> bool {
        matches!(self, Self::Root | Self::Downstream)
    }
}

const POWER_MANAGEMENT: usize = 0x50;
const MSI: usize = 0x60;
const EXPRESS: usize = 0x80;
const ERROR_REPORTING: usize = 0x100;
const SERIAL_NUMBER: usize = 0x150;

#[derive(Debug)]
pub(super) struct PcieDevice {
    initial: ConfigSpace,
    config: ConfigSpace,
    answers: Answers,
    /// The BARs, each with its first register and memory.
    bars: Vec<(usize, BarSpec, Vec<u8>)>,
    /// What answers behind the BARs.
    works: Works,
}

/// What is behind a device's BARs.
#[derive(Debug)]
enum Works {
    Memory,
    Drive(Box<NvmeController>),
    Brought(Box<dyn DeviceEngine>),
}

impl PcieDevice {
    /// Builds a device in its state after power-on. `link` is the link that its PCI Express capability reports.
    pub(super) fn new(spec: &DeviceSpec, kind: DeviceRole, link: LinkSpec, is_multi_function: bool) -> Self {
        let mut config = ConfigSpace::new();
        config.put(0x00, &spec.vendor.to_le_bytes());
        config.put(0x02, &spec.device.to_le_bytes());
        config.allow(COMMAND, &0x0547_u16.to_le_bytes());
        // STATUS: the device has a capability list.
        config.put(0x06, &[0x10]);
        let class = if kind.is_port() { 0x06_04_00 } else { spec.class };
        config.put(0x09, &class.to_le_bytes()[..3]);
        config.allow(0x0C, &[0xFF]);
        config.put(0x0E, &[u8::from(kind.is_port()) | u8::from(is_multi_function) << 7]);
        config.allow(0x3C, &[0xFF]);
        config.put(0x3D, &[u8::from(!kind.is_port())]);
        let mut bars = Vec::new();
        let mut at = BAR0;
        for bar in spec.all_bars() {
            let flags = u32::from(bar.is_64) << 2 | u32::from(bar.prefetchable) << 3;
            if let Some(low) = bar.bytes.checked_sub(1) {
                config.put(at, &flags.to_le_bytes());
                config.allow(at, &(!low).to_le_bytes()[..4 * bar.registers()]);
                bars.push((at, *bar, Vec::new()));
            }
            at += 4 * bar.registers();
        }
        if kind.is_port() {
            config.allow(BUS_NUMBERS, &[0xFF; 3]);
            config.allow(MEMORY_WINDOW, &[0xF0, 0xFF, 0xF0, 0xFF]);
            config.put(PREFETCHABLE_WINDOW, &[0x01, 0, 0x01, 0]);
            config.allow(PREFETCHABLE_WINDOW, &[0xF0, 0xFF, 0xF0, 0xFF]);
            config.allow(PREFETCHABLE_WINDOW + 4, &[0xFF; 8]);
            config.allow(BRIDGE_CONTROL, &[0xFF, 0x0F]);
        }
        put_capabilities(&mut config, spec, kind, link);
        let works = match spec.engine {
            Engine::None => Works::Memory,
            Engine::Nvme(drive) => Works::Drive(Box::new(NvmeController::new(drive))),
            Engine::Brought { build, .. } => Works::Brought(build()),
        };
        Self { initial: config.clone(), config, answers: spec.answers, bars, works }
    }

    /// Resets the device: configuration and memory are as at power-on.
    pub(super) fn reset(&mut self) {
        self.config.clone_from(&self.initial);
        self.bars.iter_mut().for_each(|(.., memory)| memory.clear());
        match &mut self.works {
            Works::Memory => {}
            Works::Drive(drive) => drive.reset(),
            Works::Brought(engine) => engine.reset(),
        }
    }

    pub(super) fn drive(&mut self) -> Option<&mut NvmeController> {
        match &mut self.works {
            Works::Drive(drive) => Some(drive),
            _ => None,
        }
    }

    pub(super) const fn config(&self) -> &ConfigSpace {
        &self.config
    }

    pub(super) fn config_read(&mut self, at: usize) -> TlpCompletion {
        self.answer().unwrap_or_else(|| match self.answers {
            Answers::Ones => TlpCompletion::Data(u32::MAX),
            _ => TlpCompletion::Data(self.config.dword(at)),
        })
    }

    pub(super) fn config_write(&mut self, at: usize, value: u32, enables: u8) -> TlpCompletion {
        self.answer().unwrap_or_else(|| {
            if self.answers != Answers::Ones {
                self.config.write(at, value, enables);
            }
            TlpCompletion::Done
        })
    }

    /// The completion that replaces a normal answer, if there is one.
    fn answer(&mut self) -> Option<TlpCompletion> {
        match &mut self.answers {
            Answers::Never => Some(TlpCompletion::Never),
            Answers::Retry(left @ 1..) => {
                *left -= 1;
                Some(TlpCompletion::Retry)
            }
            _ => None,
        }
    }

    pub(super) fn answers_memory(&self) -> bool {
        self.config.word(COMMAND) & COMMAND_MEMORY != 0
    }

    /// Finds the BAR that decodes an address, and the offset in it.
    fn decode(&self, addr: u64) -> Option<(usize, u64)> {
        if !self.answers_memory() {
            return None;
        }
        self.bars.iter().enumerate().find_map(|(index, (at, bar, _))| {
            let high = if bar.is_64 { self.config.dword(*at + 4) } else { 0 };
            let base = u64::from(high) << 32 | u64::from(self.config.dword(*at) & !0x0F);
            let offset = addr.checked_sub(base).filter(|offset| *offset < bar.bytes)?;
            Some((index, offset & !3))
        })
    }

    pub(super) fn memory_read(&mut self, addr: u64) -> Option<u32> {
        let (index, offset) = self.decode(addr)?;
        match &self.works {
            Works::Drive(drive) => return Some(drive.register_read(offset)),
            Works::Brought(engine) => return Some(engine.read(index, offset)),
            Works::Memory => {}
        }
        let memory = &self.bars[index].2;
        let cells = usize::try_from(offset).ok().and_then(|at| memory.get(at..at + 4));
        Some(cells.map_or(0, |cells| u32::from_le_bytes([cells[0], cells[1], cells[2], cells[3]])))
    }

    /// Writes to the device's memory. Returns `false` if no BAR decodes the address. `host` receives what the device
    /// sends as bus master.
    pub(super) fn memory_write(&mut self, addr: u64, value: u32, enables: u8, host: &mut dyn HostMemory) -> bool {
        let Some((index, offset)) = self.decode(addr) else { return false };
        let is_master = self.config.word(COMMAND) & COMMAND_MASTER != 0;
        match &mut self.works {
            Works::Drive(drive) => {
                let value = merged(drive.register_read(offset), value, enables);
                let mut nowhere = Nowhere;
                drive.register_write(offset, value, if is_master { host } else { &mut nowhere });
            }
            Works::Brought(engine) => engine.write(index, offset, value, enables, is_master.then_some(host)),
            Works::Memory => self.memory_put(index, offset, value, enables),
        }
        true
    }

    fn memory_put(&mut self, index: usize, offset: u64, value: u32, enables: u8) {
        let (_, bar, memory) = &mut self.bars[index];
        if memory.is_empty() {
            memory.resize(bar.bytes.min(MEMORY_MAX) as usize, 0);
        }
        if let Some(cells) = usize::try_from(offset).ok().and_then(|at| memory.get_mut(at..at + 4)) {
            let old = u32::from_le_bytes([cells[0], cells[1], cells[2], cells[3]]);
            cells.copy_from_slice(&merged(old, value, enables).to_le_bytes());
        }
    }

    /// Whether the device's engine waits for a command.
    pub(super) fn awaits_command(&self) -> bool {
        matches!(&self.works, Works::Brought(engine) if engine.awaits_command())
    }

    /// Lets the device's engine check for the awaited command.
    pub(super) fn look(&mut self, host: &mut dyn HostMemory) {
        let is_master = self.config.word(COMMAND) & COMMAND_MASTER != 0;
        if let Works::Brought(engine) = &mut self.works {
            engine.look(is_master.then_some(host));
        }
    }
}

/// Adds power management, MSI and PCI Express, and in the extended space error reporting and a serial number.
fn put_capabilities(config: &mut ConfigSpace, spec: &DeviceSpec, kind: DeviceRole, link: LinkSpec) {
    config.put(CAPABILITIES, &[POWER_MANAGEMENT as u8]);
    // Version 3, PME from D0, D3hot and D3cold; state D0.
    config.put(POWER_MANAGEMENT, &[0x01, MSI as u8, 0x03, 0xC8]);
    config.allow(POWER_MANAGEMENT + 4, &[0x03, 0x01]);
    // One vector, 64 bits.
    config.put(MSI, &[0x05, EXPRESS as u8, 0x80, 0x00]);
    config.allow(MSI + 2, &[0x71]);
    config.allow(MSI + 4, &[0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
    let next = if spec.capabilities_loop { POWER_MANAGEMENT as u8 } else { 0 };
    config.put(EXPRESS, &[0x10, next]);
    config.put(EXPRESS + 2, &(0x0002 | kind.code() << 4).to_le_bytes());
    // Payloads of up to 256 bytes.
    config.put(EXPRESS + 4, &[0x01]);
    config.put(EXPRESS + 8, &[0x10, 0x28]);
    config.allow(EXPRESS + 8, &[0xFF, 0x7F]);
    let lanes = |speed: u8, width: u8| (u32::from(speed & 0x0F) | u32::from(width & 0x3F) << 4).to_le_bytes();
    config.put(EXPRESS + 0x0C, &lanes(link.max_speed, link.max_width)[..3]);
    config.allow(EXPRESS + 0x10, &[0xFB, 0x0F]);
    config.put(EXPRESS + 0x12, &lanes(link.speed, link.width)[..2]);
    // Advanced error reporting, version 2; device serial number, version 1.
    config.put(ERROR_REPORTING, &[0x01, 0x00, 0x02, (SERIAL_NUMBER >> 4) as u8]);
    config.put(SERIAL_NUMBER, &[0x03, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0xFF]);
}

pub(super) const LEN: usize = 0x1000;

pub(super) const COMMAND: usize = 0x04;
/// COMMAND: the function answers memory requests, or a port forwards them.
const COMMAND_MEMORY: u16 = 0x02;
/// COMMAND: the function may send requests itself; a port forwards those from below.
pub(super) const COMMAND_MASTER: u16 = 0x04;
const BAR0: usize = 0x10;
pub(super) const BUS_NUMBERS: usize = 0x18;
pub(super) const MEMORY_WINDOW: usize = 0x20;
pub(super) const PREFETCHABLE_WINDOW: usize = 0x24;
const CAPABILITIES: usize = 0x34;
pub(super) const BRIDGE_CONTROL: usize = 0x3E;
/// BRIDGE_CONTROL: resets everything behind the port while it is set.
pub(super) const SECONDARY_BUS_RESET: u16 = 0x40;

/// 4 KiB of configuration space. Source: PCI Express base specification 4.0, chapter 7.
#[derive(Debug, Clone)]
pub(super) struct ConfigSpace {
    bytes: Box<[u8; LEN]>,
    writable: Box<[u8; LEN]>,
}

impl ConfigSpace {
    /// Creates a space of zeros that is read-only.
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; LEN]), writable: Box::new([0; LEN]) }
    }

    /// Stores bytes that writes can't change.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes these bits writable.
    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    pub(super) fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    pub(super) fn dword(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }

    /// Writes a dword as a host does. Bit n of `enables` selects byte n. Read-only bits stay.
    pub(super) fn write(&mut self, at: usize, value: u32, enables: u8) {
        let writable = &self.writable[at..at + 4];
        let writable = u32::from_le_bytes([writable[0], writable[1], writable[2], writable[3]]);
        let old = self.dword(at);
        let new = (old & !writable) | (merged(old, value, enables) & writable);
        self.bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}

/// The upper half of BAR0's address.
const BAR1: usize = BAR0 + 4;
/// A BAR's lowest bits: 64 bits wide and prefetchable, like a GPU's memory. A GPU runtime puts such a BAR above 4 GiB.
const WIDE_PREFETCHABLE: u8 = 0x0C;
/// What is read-only besides BAR0: IDs, class, header type, and the BARs that the function does not have.
const READ_ONLY: [Range<usize>; 4] = [0x00..0x04, 0x08..0x0C, 0x0E..0x10, 0x18..0x28];

/// A function with a configuration space and one 64-bit, prefetchable memory BAR.
#[derive(Debug)]
pub struct MemoryFunction {
    config: ConfigSpace,
    initial: ConfigSpace,
    memory: Vec<u8>,
}

impl MemoryFunction {
    /// Creates a function with these IDs and class code. BAR0 has `len` bytes, rounded up to a power of two of at least
    /// 16; 0 means no BAR.
    pub fn new(vendor: u16, device: u16, class: u32, len: usize) -> Self {
        let len = if len == 0 { 0 } else { len.max(16).next_power_of_two() };
        let mut config = ConfigSpace::new();
        config.put(0, &vendor.to_le_bytes());
        config.put(2, &device.to_le_bytes());
        config.put(9, &class.to_le_bytes()[..3]);
        // A bridge has a header of type 1.
        config.put(14, &[u8::from(class >> 8 == 0x06_04)]);
        config.allow(0, &[0xFF; LEN]);
        for bytes in READ_ONLY {
            config.allow(bytes.start, &vec![0; bytes.len()]);
        }
        match (len as u32).checked_sub(1) {
            // The BAR's low bits encode its size, the lowest four its type.
            Some(low) => {
                config.put(BAR0, &[WIDE_PREFETCHABLE]);
                config.allow(BAR0, &(!low & !0x0F).to_le_bytes());
            }
            None => config.allow(BAR0, &[0; 8]),
        }
        Self { initial: config.clone(), config, memory: vec![0; len] }
    }

    fn decode(&self, addr: u64) -> Option<usize> {
        let base = u64::from(self.config.dword(BAR1)) << 32 | u64::from(self.config.dword(BAR0) & !0x0F);
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        (base != 0 && offset < self.memory.len()).then_some(offset & !3)
    }

    /// Reads a dword of configuration space.
    pub(super) fn config_read(&self, offset: u16) -> u32 {
        self.config.dword(usize::from(offset) & (LEN - 4))
    }

    /// Writes to a dword of configuration space. Bit n of `enables` selects byte n.
    pub(super) fn config_write(&mut self, offset: u16, value: u32, enables: u8) {
        self.config.write(usize::from(offset) & (LEN - 4), value, enables);
    }

    /// Reads a dword of memory; `None` if the BAR does not decode the address.
    pub(super) fn memory_read(&self, addr: u64) -> Option<u32> {
        let at = self.decode(addr)?;
        self.memory[at..].first_chunk().copied().map(u32::from_le_bytes)
    }

    /// Writes to a dword of memory; `enables` as above. Returns `false` if the BAR does not decode the address.
    pub(super) fn memory_write(&mut self, addr: u64, value: u32, enables: u8) -> bool {
        let Some(at) = self.decode(addr) else { return false };
        for byte in (0..4).filter(|byte| enables >> byte & 1 != 0) {
            self.memory[at + byte] = value.to_le_bytes()[byte];
        }
        true
    }

    /// Loses its power: configuration and memory are as at power-on.
    pub(super) fn lose_power(&mut self) {
        self.config.clone_from(&self.initial);
        self.memory.fill(0);
    }
}
