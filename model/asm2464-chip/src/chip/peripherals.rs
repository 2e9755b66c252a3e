//! All blocks, the dispatch of the CPU's accesses to the block that owns the address, and what watches them. Devices
//! behind the bridge reach the blocks as bus masters: the SRAM and the NVMe queues.

use asm2464::scsi::XdataAddress;
use asm2464::sram::{SRAM_ADDRESS, SRAM_LEN};

use super::engine;
use super::ep0::Ep0;
use super::fabric::{Fabric, HostMemory};
use super::flash::FlashController;
use super::link::{self, LinkBlock};
use super::map::{self, Block, UnknownRegisters};
use super::msc::{self, Msc, WriteEffect};
use super::nvme::{Came, Nvme};
use super::pcie::{self, PcieLink, TlpBlock};
use super::reset::Board;
use super::serial::{I2c, Uart};
use super::sram::{self, Dma, Sram};
use super::timers::{InterruptLines, Timers};
use super::uas::{self, UasBlock};
use super::usb::{BulkBlock, Speed, UsbEvent};
use crate::mcu::{AccessKind, XdataMemory};
use crate::spi_flash::SpiFlash;

/// Observes the chip. Without a watch the chip spends no time on these calls. To see each instruction, use
/// [`crate::mcu::Observer`].
pub trait Watch: Send {
    /// The CPU read or wrote a register. `pc` is the instruction's address, with the code bank in bit 16.
    fn register(&mut self, kind: AccessKind, at: XdataAddress, value: u8, pc: u32) {
        let _ = (kind, at, value, pc);
    }

    /// Something crossed the wire at a simulated time, in instructions.
    fn usb(&mut self, now: u64, event: UsbEvent<'_>) {
        let _ = (now, event);
    }

    /// The firmware sent a byte on its serial port.
    fn uart(&mut self, byte: u8) {
        let _ = byte;
    }
}

/// The blocks, and their shared state: time, interrupt lines, the host's attention.
pub(super) struct Peripherals {
    /// Simulated time, in instructions.
    pub(super) now: u64,
    /// Time at which the run loop has to stop executing: at an event, at its end, or at once.
    pub(super) stop_at: u64,
    /// Time at which the current run ends.
    pub(super) run_ends: u64,
    pub(super) lines: InterruptLines,
    /// There is something new for the host.
    pub(super) attention: bool,
    /// Number of changes of the blocks' state.
    pub(super) changes: u64,
    /// Time of the last change.
    pub(super) changed_at: u64,
    pub(super) unknown: UnknownRegisters,
    pub(super) watch: Option<Box<dyn Watch>>,
    pub(super) flash: FlashController,
    pub(super) timers: Timers,
    pub(super) uart: Uart,
    pub(super) ep0: Ep0,
    pub(super) bulk: BulkBlock,
    pub(super) msc: Msc,
    pub(super) uas: UasBlock,
    pub(super) sram: Sram,
    pub(super) dma: Dma,
    pub(super) nvme: Nvme,
    pub(super) tlp: TlpBlock,
    pub(super) fabric: Fabric,
    pub(super) link: LinkBlock,
    pub(super) pcie_link: PcieLink,
    /// The firmware has read the state of the PCIe link since power-on.
    pub(super) has_asked_for_link: bool,
    pub(super) i2c: I2c,
}

impl Peripherals {
    pub(super) fn new(flash: SpiFlash, speed: Speed) -> Self {
        Self {
            now: 0,
            stop_at: 0,
            run_ends: 0,
            lines: InterruptLines::default(),
            attention: false,
            changes: 0,
            changed_at: 0,
            unknown: UnknownRegisters::default(),
            watch: None,
            flash: FlashController::new(flash),
            timers: Timers::default(),
            uart: Uart::default(),
            ep0: Ep0::new(),
            bulk: BulkBlock::default(),
            msc: Msc::default(),
            uas: UasBlock::default(),
            sram: Sram::new(),
            dma: Dma::default(),
            nvme: Nvme::new(),
            tlp: TlpBlock::default(),
            fabric: Fabric::default(),
            link: LinkBlock::new(speed),
            pcie_link: PcieLink::new(Board::default().early_lanes),
            has_asked_for_link: false,
            i2c: I2c::new(None),
        }
    }

    /// Resets the blocks. Everything outside the chip stays, and so does the SRAM (chosen).
    pub(super) fn reset(&mut self) {
        self.lines = InterruptLines::default();
        self.attention = false;
        self.timers = Timers::default();
        self.ep0 = Ep0::new();
        self.bulk = BulkBlock::default();
        self.msc = Msc::default();
        self.uas = UasBlock::default();
        self.dma = Dma::default();
        self.nvme = Nvme::new();
        self.tlp = TlpBlock::default();
        self.link.reset();
        self.pcie_link = PcieLink::new(self.pcie_link.early_lanes);
        self.fabric.chip_is_reset();
        self.i2c = I2c::new(self.i2c.sensor);
    }

    /// Value of 0x9101.
    fn usb_events(&self) -> u8 {
        self.link.summary()
            | u8::from(self.ep0.events() != 0) << 1
            | u8::from(self.bulk.events() != 0) << 2
            | u8::from(self.msc.has_sent()) << 5
            | u8::from(self.msc.came() != 0) << 6
    }

    /// Updates the interrupt lines and the next time to stop, after a change.
    pub(super) fn refresh(&mut self) {
        let command = self.msc.is_uas() && self.uas.waits();
        self.lines = InterruptLines {
            enables: self.lines.enables,
            usb: self.usb_events() != 0,
            command_or_dma: command || self.dma.has_event(),
            completion: self.nvme.entry_came(),
            timer: self.timers.interrupts(),
        };
        let next = self.next_event().unwrap_or(u64::MAX);
        self.stop_at = if self.attention { 0 } else { self.run_ends.min(next) };
    }

    /// Records a change that the firmware may react to.
    pub(super) fn changed(&mut self) {
        self.changes += 1;
        self.changed_at = self.now;
    }

    /// Time of the next event that happens without an access by the CPU.
    pub(super) fn next_event(&self) -> Option<u64> {
        let Self { timers, bulk, uas, dma, nvme, link, pcie_link, .. } = self;
        let links = link.next().into_iter().chain(pcie_link.next());
        let others = [timers.next(), bulk.next(), uas.next(), dma.next(), nvme.seen_at()];
        others.into_iter().flatten().chain(links).min()
    }

    /// Carries out the events that are due.
    pub(super) fn advance(&mut self, memory: &mut XdataMemory) {
        if self.next_event().is_some_and(|at| at <= self.now) {
            self.timers.advance(self.now);
            self.bulk.advance(self.now);
            self.dma.advance(self.now);
            self.link.advance(self.now);
            self.pcie_link.advance(self.now);
            if let Some(iu) = self.uas.came(self.now)
                && !self.uas.take(&iu, memory)
            {
                self.msc.take(&iu, memory);
            }
            if self.nvme.is_seen(self.now) {
                self.devices_look();
            }
            self.changed();
        }
        self.refresh();
    }

    /// Reads an address that is not plain memory for the CPU. `pc` is the instruction's address.
    #[cold]
    pub(super) fn read(&mut self, block: Block, index: usize, pc: u32, memory: &XdataMemory) -> u8 {
        let addr = index as u16;
        let page = memory.main();
        let stored = memory.at(index);
        let value = match block {
            Block::Ram | Block::Alias | Block::Halts => stored,
            Block::Unknown => {
                self.unknown.record(AccessKind::Read, index, pc);
                stored
            }
            Block::Interrupts => self.lines.read(addr),
            Block::Timers => self.timers.read(addr, stored),
            Block::Uart => Uart::read(addr, stored),
            Block::Flash => FlashController::read(addr, stored),
            Block::Ep0 => self.ep0.read(addr, stored),
            Block::Bulk => self.bulk.read(addr, stored),
            Block::Msc => self.msc.read(addr, stored),
            Block::Uas => self.uas.read(addr, stored, memory),
            Block::Sram => self.sram.read(addr, page[usize::from(sram::WINDOW_PAGE)], stored),
            Block::Dma => self.dma.read(addr, stored, memory),
            Block::Engine => engine::read(addr, stored, memory, self.msc.is_uas(), &self.dma),
            Block::Nvme => self.nvme.read(addr, stored, memory),
            Block::Tlp => self.tlp.read(addr, stored),
            Block::Link if addr == link::USB_EVENTS => self.usb_events(),
            Block::Link => self.link.read(addr, stored),
            Block::PcieLink => {
                self.has_asked_for_link = true;
                self.pcie_link.read(addr, stored, self.fabric.has_devices())
            }
            Block::I2c => stored,
        };
        if let Some(watch) = &mut self.watch {
            watch.register(AccessKind::Read, XdataMemory::address(index), value, pc);
        }
        value
    }

    /// Writes an address that is not plain memory for the CPU.
    #[cold]
    pub(super) fn write(&mut self, block: Block, index: usize, value: u8, pc: u32, memory: &mut XdataMemory) {
        let addr = index as u16;
        let before = memory.at(index);
        memory.set(index, value);
        if let Some(watch) = &mut self.watch {
            watch.register(AccessKind::Write, XdataMemory::address(index), value, pc);
        }
        let speed = self.link.speed();
        let did = match block {
            Block::Ram | Block::Alias => false,
            Block::Unknown => {
                self.unknown.record(AccessKind::Write, index, pc);
                memory.set(index, map::settled(index, value));
                false
            }
            Block::Interrupts => self.lines.write(addr, value),
            Block::Timers => {
                let did = self.timers.write(addr, value, self.now, memory);
                self.refresh();
                did
            }
            Block::Uart => self.uart_out(addr, value),
            Block::Flash => self.flash.write(addr, value, memory),
            Block::Ep0 => {
                let did = self.ep0.write(addr, value, speed, memory);
                self.attention |= self.ep0.has_reply();
                did
            }
            Block::Bulk => {
                let did = self.bulk.write(addr, value, speed, memory);
                self.attention |= did && addr != super::usb::BULK_EVENTS;
                did
            }
            Block::Halts => {
                self.attention |= value != before;
                value != before
            }
            Block::Msc => self.msc_write(addr, value, memory),
            Block::Uas => self.uas_write(addr, value, memory),
            Block::Sram => self.sram.write(addr, memory.main()[usize::from(sram::WINDOW_PAGE)], value),
            Block::Dma => self.dma_write(addr, value, memory),
            Block::Engine => {
                let Self { msc, uas, dma, nvme, .. } = self;
                let did = engine::write(addr, value, memory, msc.is_uas(), uas, dma, nvme);
                self.attention |= did;
                did
            }
            Block::Nvme => {
                let did = self.nvme.write(addr, value, memory);
                did || Nvme::is_command(addr) && self.command_is_due()
            }
            Block::Tlp => self.tlp_write(addr, value, memory),
            Block::Link => {
                let was_off_bus = self.link.is_off_bus();
                let did = self.link.write(addr, value, self.now);
                self.attention |= self.link.is_reset() || self.link.is_off_bus() && !was_off_bus;
                did
            }
            Block::PcieLink => {
                if addr == pcie::POWER && (before ^ value) & pcie::POWERED != 0 {
                    self.fabric.switch_power(value & pcie::POWERED != 0);
                }
                self.pcie_link.write(addr, value, self.now)
            }
            Block::I2c => self.i2c.write(addr, value, memory),
        };
        if did {
            self.changed();
            self.attention |= self.flash.is_gone();
            // No interrupt line and no event depends on the TLP engine's state.
            if block != Block::Tlp || self.attention {
                self.refresh();
            }
        }
    }

    fn uart_out(&mut self, addr: u16, value: u8) -> bool {
        let Some(byte) = self.uart.write(addr, value) else { return false };
        if let Some(watch) = &mut self.watch {
            watch.uart(byte);
        }
        true
    }

    fn msc_write(&mut self, addr: u16, value: u8, memory: &XdataMemory) -> bool {
        let effect = self.msc.write(addr, value, |slot| self.uas.tag(slot), memory);
        if let msc::SENT..=0x909D = addr {
            let first = 8 * usize::from(addr - msc::SENT);
            (0..8).filter(|bit| value >> bit & 1 != 0).for_each(|bit| self.uas.free(first + bit));
        }
        if effect == WriteEffect::StartOver {
            self.uas.start_over();
            self.dma.start_over();
        }
        // A status and room for a CBW are news for the host. An acknowledgement is not.
        let acknowledges = matches!(addr, msc::SENT..=0x909E | msc::CBW_CAME);
        self.attention |= effect == WriteEffect::Changed && !acknowledges;
        effect != WriteEffect::None
    }

    fn uas_write(&mut self, addr: u16, value: u8, memory: &XdataMemory) -> bool {
        if addr == uas::READY {
            return self.send_ready(value, memory);
        }
        let did = self.uas.write(addr);
        self.attention |= did;
        did
    }

    /// Sends READ READY and WRITE READY: without streams, they tell the host which command's data follows.
    fn send_ready(&mut self, value: u8, memory: &XdataMemory) -> bool {
        let page = memory.main();
        let mut did = false;
        for (bit, id, tag_at) in [(uas::READ_READY, 0x06, 0x900C), (uas::WRITE_READY, 0x07, 0x900E)] {
            if value & bit != 0 {
                let [high, low] = [page[tag_at], page[tag_at + 1]];
                self.msc.send(None, u16::from_be_bytes([high, low]), &[id, 0, high, low]);
                did = true;
            }
        }
        self.attention |= did;
        did
    }

    fn tlp_write(&mut self, addr: u16, value: u8, memory: &mut XdataMemory) -> bool {
        self.fabric.set_trained(self.pcie_link.is_trained());
        let Self { tlp, fabric, sram, nvme, dma, attention, .. } = self;
        let did = tlp.write(addr, value, memory, |request| {
            let mut targets = Targets { sram, nvme, dma, is_written: false };
            let completion = fabric.carry(request, &mut targets);
            // Data that waited for a completion entry may be sent now.
            *attention |= targets.is_written;
            completion
        });
        self.command_is_due();
        did
    }

    /// Schedules a check by the devices that wait for a command. The command may be anywhere in the memory that they
    /// reach. Returns `false` if no device waits.
    pub(super) fn command_is_due(&mut self) -> bool {
        let awaits = self.fabric.awaits_command();
        if awaits {
            self.nvme.will_be_seen(self.now);
        }
        awaits
    }

    /// Lets the devices that wait for a command check for it.
    fn devices_look(&mut self) {
        self.fabric.set_trained(self.pcie_link.is_trained());
        let Self { fabric, sram, nvme, dma, attention, .. } = self;
        let mut targets = Targets { sram, nvme, dma, is_written: false };
        fabric.look(&mut targets);
        *attention |= targets.is_written;
    }

    fn dma_write(&mut self, addr: u16, value: u8, memory: &XdataMemory) -> bool {
        if addr == sram::SEND_GOOD {
            let slot = usize::from(value & 0x1F);
            let tag = self.uas.tag(slot);
            let [high, low] = tag.to_be_bytes();
            let mut status = [0; 16];
            status[..4].copy_from_slice(&[0x03, 0, high, low]);
            self.msc.send(Some(slot), tag, &status);
            self.attention = true;
            return true;
        }
        let did = self.dma.write(addr, value, memory, self.now);
        self.attention |= did;
        did
    }

    /// Shows the watch an event on the wire.
    pub(super) fn show(&mut self, event: UsbEvent<'_>) {
        let now = self.now;
        if let Some(watch) = &mut self.watch {
            watch.usb(now, event);
        }
    }
}

/// The blocks that answer requests from the PCIe side.
pub(super) struct Targets<'a> {
    pub(super) sram: &'a mut Sram,
    pub(super) nvme: &'a mut Nvme,
    pub(super) dma: &'a mut Dma,
    /// A write has arrived.
    pub(super) is_written: bool,
}

/// Offset of an address in the SRAM.
fn in_sram(address: u64, len: usize) -> Option<usize> {
    let at = usize::try_from(address.checked_sub(SRAM_ADDRESS)?).ok()?;
    let end = at.checked_add(len)?;
    if end <= SRAM_LEN { Some(at) } else { None }
}

impl HostMemory for Targets<'_> {
    fn read(&mut self, address: u64, data: &mut [u8]) -> bool {
        let Some(at) = in_sram(address, data.len()) else { return self.nvme.pcie_read(address, data) };
        data.copy_from_slice(&self.sram.bytes()[at..at + data.len()]);
        true
    }

    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        if let Some(at) = in_sram(address, data.len()) {
            self.sram.load(at, data);
        } else {
            match self.nvme.pcie_write(address, data) {
                None => return false,
                Some(Came::Entry(released)) => self.dma.release(released),
                Some(Came::Bytes) => {}
            }
        }
        self.is_written = true;
        true
    }
}
