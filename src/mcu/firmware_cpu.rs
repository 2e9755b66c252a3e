//! An image's own firmware, executing SCSI commands.

use super::chip_registers::ChipRegisters;
use super::code_space::CodeSpace;
use super::conventions::{self as at, CommandStatus};
use super::error::RunError;
use super::machine::Machine;
use super::observer::Observer;
use super::spi_flash::SpiFlash;
use crate::firmware::Image;
use crate::scsi::bot::Direction;
use crate::scsi::{Cdb, Sense, SenseKey};

/// Instructions that a command may take unless told otherwise: E2 of 64 KiB takes about 100,000.
pub const DEFAULT_BUDGET: u64 = 4_000_000;

/// Packets of one reply: the data buffer's, as small as full speed has them.
const MOST_PACKETS: usize = at::DATA_BUFFER_LEN / 0x40;

/// Which transport a command came over: the firmware treats them differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// UAS: no length from the host; READ and WRITE go through 0x2814.
    Uas,
    /// Bulk-Only, whose CBW carries the bytes that the host expects and their direction.
    BulkOnly {
        /// dCBWDataTransferLength.
        host_len: u32,
        /// bmCBWFlags.
        direction: Direction,
    },
}

/// How the firmware went on with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It has data for the host, which is in the buffer given; then GOOD.
    DataIn,
    /// It waits for so many bytes; [`FirmwareCpu::give`] them.
    DataOut(u32),
    /// GOOD, without more data.
    Good,
    /// CHECK CONDITION.
    Check(Sense),
    /// GOOD, and then the chip starts over: the flags at XDATA 0x0003.
    Reset(u8),
    /// READ or WRITE is queued as NVMe I/O: nothing answers the host before its completion.
    Queued(Direction),
    /// Nothing answers the host: the status byte, where it is none of the above, or the flash is gone.
    Silent(u8),
}

/// The CPU with an image's code, its chip, and where a command keeps what.
pub struct FirmwareCpu<F> {
    machine: Machine<ChipRegisters<F>>,
    budget: u64,
    instructions: u64,
    stack_high_water: u8,
    wire: Wire,
}

impl<F: SpiFlash> FirmwareCpu<F> {
    /// Memories zero, as after power-on, and the version where running firmware keeps it. The start-up code, which
    /// brings up the link and PCIe, is not run.
    pub fn new(image: &Image, flash: F) -> Self {
        let mut machine = Machine::new(CodeSpace::new(image), ChipRegisters::new(flash));
        let page = machine.xdata_mut().memory_mut().main_mut();
        page[0x07F0..0x07F6].copy_from_slice(&image.version().0);
        page[usize::from(at::LINK_SPEED)] = 2;
        // Left by the start-up's look at the flash's ID (b0:0xE396): without it E3 waits for ever.
        page[usize::from(at::FLASH_PROGRAM_LEN)] = 0x80;
        page[usize::from(at::FLASH_ERASE_COMMAND)] = 0xD8;
        page[usize::from(at::FLASH_ERASE_COMMAND) + 1] = 0x20;
        Self { machine, budget: DEFAULT_BUDGET, instructions: 0, stack_high_water: 0, wire: Wire::Uas }
    }

    /// The machine.
    pub fn machine(&self) -> &Machine<ChipRegisters<F>> {
        &self.machine
    }

    /// The machine, to preset memory or to record accesses.
    pub fn machine_mut(&mut self) -> &mut Machine<ChipRegisters<F>> {
        &mut self.machine
    }

    /// The flash.
    pub fn flash_mut(&mut self) -> &mut F {
        self.machine.xdata_mut().registers_mut().flash_mut()
    }

    /// Sets the two registers that tell of a PCIe link that is up, which the start-up code would do. Without it 240417
    /// answers READ and WRITE with status 0x0B, whatever a GPU runtime has initialised.
    pub fn bring_link_up(&mut self) {
        let page = self.machine.xdata_mut().memory_mut().main_mut();
        page[0xB480] = 0x01;
        page[0xC656] = 0x20;
    }

    /// Instructions that each call of [`FirmwareCpu::begin`], and each packet of [`FirmwareCpu::give`], may take.
    pub fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Instructions spent on the last command.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// The highest SP of the last command.
    pub fn stack_high_water(&self) -> u8 {
        self.stack_high_water
    }

    /// Starts a command. Data for the host goes into `data`, which is cleared.
    ///
    /// # Errors
    /// [`RunError`] where the firmware hangs, leaves its code or breaks its stack.
    pub fn begin(&mut self, wire: Wire, cdb: &Cdb, data: &mut Vec<u8>) -> Result<Reply, RunError> {
        self.begin_observed(wire, cdb, data, &mut ())
    }

    /// [`FirmwareCpu::begin`], with each instruction shown to an observer first.
    ///
    /// # Errors
    /// As [`FirmwareCpu::begin`].
    pub fn begin_observed<O: Observer>(
        &mut self,
        wire: Wire,
        cdb: &Cdb,
        data: &mut Vec<u8>,
        observer: &mut O,
    ) -> Result<Reply, RunError> {
        self.wire = wire;
        self.instructions = 0;
        self.stack_high_water = 0;
        data.clear();
        self.place_command(cdb);
        let entry = match wire {
            Wire::Uas => at::DISPATCH_UAS,
            Wire::BulkOnly { .. } => at::DISPATCH,
        };
        if let Err(error) = self.call(entry, observer) {
            // Over UAS the firmware answers E8 first and then starts over inside the same call: it ends in a jump to
            // itself, or in a wait for the link to go down.
            let state = self.machine.xdata().memory().main()[usize::from(at::RESET_STATE)];
            return if state != 0 && self.registers().answer().is_some() {
                Ok(Reply::Reset(state))
            } else {
                Err(error)
            };
        }
        let status = self.machine.idata()[usize::from(at::STATUS)];
        if CommandStatus::of(status) == CommandStatus::PacketsIn {
            self.send_packets(observer)?;
        }
        data.extend_from_slice(self.registers().data_in());
        if CommandStatus::of(status) == CommandStatus::DataIn && data.is_empty() {
            let page = self.machine.xdata().memory().main();
            let length = usize::from(word(page, at::IN_LENGTH)).min(at::DATA_BUFFER_LEN);
            let start = usize::from(at::DATA_BUFFER);
            data.extend_from_slice(&page[start..start + length]);
        }
        Ok(match CommandStatus::of(status) {
            CommandStatus::DataIn | CommandStatus::PacketsIn => Reply::DataIn,
            CommandStatus::DataOut => Reply::DataOut(self.dword(at::LENGTH)),
            CommandStatus::Answer => match self.ending(status) {
                Reply::Good if !data.is_empty() => Reply::DataIn,
                other => other,
            },
            CommandStatus::ReadQueued => Reply::Queued(Direction::In),
            CommandStatus::WriteQueued => Reply::Queued(Direction::Out),
            CommandStatus::Other(byte) => Reply::Silent(byte),
        })
    }

    /// Gives the data that [`Reply::DataOut`] asked for, in packets, and tells how the command ended. Data past what
    /// the firmware takes stays where it is.
    ///
    /// # Errors
    /// As [`FirmwareCpu::begin`].
    pub fn give(&mut self, data: &[u8]) -> Result<Reply, RunError> {
        self.give_observed(data, &mut ())
    }

    /// [`FirmwareCpu::give`], with each instruction shown to an observer first.
    ///
    /// # Errors
    /// As [`FirmwareCpu::begin`].
    pub fn give_observed<O: Observer>(&mut self, data: &[u8], observer: &mut O) -> Result<Reply, RunError> {
        let mut status = self.machine.idata()[usize::from(at::STATUS)];
        for packet in data.chunks(at::OUT_PACKET) {
            if CommandStatus::of(status) != CommandStatus::DataOut {
                break;
            }
            let page = self.machine.xdata_mut().memory_mut().main_mut();
            for buffer in [at::FLASH_BUFFER, at::DATA_BUFFER] {
                page[usize::from(buffer)..usize::from(buffer) + packet.len()].copy_from_slice(packet);
            }
            set_word(page, at::OUT_LENGTH, packet.len() as u16);
            self.machine.xdata_mut().registers_mut().data_out_came(packet);
            self.call(at::DATA_OUT_CAME, observer)?;
            status = self.machine.idata()[usize::from(at::STATUS)];
        }
        Ok(match CommandStatus::of(status) {
            CommandStatus::Answer => self.ending(status),
            CommandStatus::DataOut => Reply::DataOut(self.dword(at::HOST_LENGTH)),
            _ => Reply::Silent(status),
        })
    }

    /// The rest of a reply that goes packet by packet: the host takes each at once.
    fn send_packets<O: Observer>(&mut self, observer: &mut O) -> Result<(), RunError> {
        if self.wire != Wire::Uas {
            self.call(at::SEND_PACKET, observer)?;
        }
        for _ in 0..MOST_PACKETS {
            if CommandStatus::of(self.machine.idata()[usize::from(at::STATUS)]) != CommandStatus::PacketsIn {
                break;
            }
            self.call(at::DATA_IN_OUT, observer)?;
        }
        Ok(())
    }

    fn call<O: Observer>(&mut self, entry: crate::firmware::CodeAddress, observer: &mut O) -> Result<(), RunError> {
        let outcome = self.machine.call_observed(entry, self.budget, observer)?;
        self.instructions += outcome.instructions;
        self.stack_high_water = self.stack_high_water.max(outcome.stack_high_water);
        Ok(())
    }

    fn registers(&mut self) -> &mut ChipRegisters<F> {
        self.machine.xdata_mut().registers_mut()
    }

    fn place_command(&mut self, cdb: &Cdb) {
        self.machine.select_bank0();
        self.registers().begin_command();
        let (mode, host_len, direction) = match self.wire {
            Wire::Uas => (1, 0, 0),
            Wire::BulkOnly { host_len, direction } => {
                (0, host_len, if direction == Direction::In { 0x80 } else { 0x00 })
            }
        };
        let page = self.machine.xdata_mut().memory_mut().main_mut();
        let mut set = |place: u16, bytes: &[u8]| {
            page[usize::from(place)..usize::from(place) + bytes.len()].copy_from_slice(bytes);
        };
        set(at::USB_MODE, &[mode]);
        set(at::CBW, b"USBC\x01\x00\x00\x00");
        set(at::CBW + 8, &host_len.to_le_bytes());
        set(at::CBW + 12, &[direction, 0, cdb.as_slice().len() as u8]);
        set(at::CBW + at::CDB_AT, cdb.padded());
        let [high, low] = at::CBW.to_be_bytes();
        set(at::POINTER, &[1, high, low]);
        set(at::CASE_OF_THIRTEEN, &[0, cdb.opcode(), 0]);
        set(at::DIRECTION, &[direction, 0]);
        set(at::SENSE_SET, &[0]);
        set(at::SENSE, &Sense::NONE.to_fixed());
        set(at::STATUS_BUFFER, b"USBS\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00");
        let idata = self.machine.idata_mut();
        idata[usize::from(at::SLOT)] = 0;
        idata[usize::from(at::STATUS)] = 5;
        idata[usize::from(at::LENGTH)..usize::from(at::LENGTH) + 4].fill(0);
        idata[usize::from(at::HOST_LENGTH)..usize::from(at::HOST_LENGTH) + 4].copy_from_slice(&host_len.to_be_bytes());
        idata[usize::from(at::RESIDUE)..usize::from(at::RESIDUE) + 4].fill(0);
    }

    fn ending(&mut self, status: u8) -> Reply {
        if self.registers().flash_is_gone() {
            return Reply::Silent(status);
        }
        // The UAS answer takes the flag away when it builds the sense IU, whose status then tells.
        let uas_check = self.wire == Wire::Uas && self.registers().answer().is_some_and(|unit| unit[6] == 0x02);
        let page = self.machine.xdata().memory().main();
        let byte = |place: u16| page[usize::from(place)];
        if byte(at::SENSE_SET) == 1 || uas_check {
            let key = SenseKey(byte(at::SENSE + 2) & 0x0F);
            return Reply::Check(Sense::new(key, byte(at::SENSE + 12), byte(at::SENSE + 13)));
        }
        match byte(at::RESET_STATE) {
            0 => Reply::Good,
            state => Reply::Reset(state),
        }
    }

    fn dword(&self, place: u8) -> u32 {
        let start = usize::from(place);
        let idata = self.machine.idata();
        u32::from_be_bytes([idata[start], idata[start + 1], idata[start + 2], idata[start + 3]])
    }
}

fn word(page: &[u8], place: u16) -> u16 {
    u16::from_be_bytes([page[usize::from(place)], page[usize::from(place) + 1]])
}

fn set_word(page: &mut [u8], place: u16, value: u16) {
    page[usize::from(place)..usize::from(place) + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcu::MemoryFlash;
    use crate::practice;
    use crate::scsi::runtime::INITIALISATION;

    const UAS: Wire = Wire::Uas;

    fn unit() -> FirmwareCpu<MemoryFlash> {
        FirmwareCpu::new(&practice::image(), MemoryFlash::erased())
    }

    fn run(unit: &mut FirmwareCpu<MemoryFlash>, wire: Wire, cdb: &[u8]) -> (Reply, Vec<u8>) {
        let mut data = Vec::new();
        let reply = unit.begin(wire, &Cdb::new(cdb).unwrap(), &mut data).unwrap();
        (reply, data)
    }

    #[test]
    fn the_practice_image_writes_and_reads_xdata() {
        let mut unit = unit();
        assert_eq!(run(&mut unit, UAS, &[0xE5, 0xA7, 0x50, 0xF0, 0x01, 0]).0, Reply::Good);
        assert_eq!(run(&mut unit, UAS, &[0xE4, 3, 0x50, 0xF0, 0x00, 0]), (Reply::DataIn, vec![0, 0xA7, 0]));
        let sense = Reply::Check(Sense::INVALID_FIELD_IN_CDB);
        assert_eq!(run(&mut unit, UAS, &[0xE4, 3, 0x52, 0xF0, 0x00, 0]).0, sense);
        assert_eq!(run(&mut unit, UAS, &[0xE4, 1, 0x50, 0xF0, 0x01, 0]).0, Reply::DataIn, "the sense is gone");
    }

    #[test]
    fn the_practice_image_flashes_itself_through_the_flash_controller() {
        let mut unit = unit();
        let block: Vec<u8> = (0..128).collect();
        let out = |host_len| Wire::BulkOnly { host_len, direction: Direction::Out };
        assert_eq!(run(&mut unit, out(128), &[0xE1, 0x50, 0]).0, Reply::DataOut(128));
        assert_eq!(unit.give(&block), Ok(Reply::Good));
        let part: Vec<u8> = (0..5000).map(|at| (at % 253) as u8).collect();
        assert_eq!(run(&mut unit, out(5000), &[0xE3, 0x50, 0, 0, 0x13, 0x88]).0, Reply::DataOut(5000));
        assert_eq!(unit.give(&part), Ok(Reply::Good));
        let (reply, data) = run(&mut unit, UAS, &[0xE2, 0x50, 0, 0, 0x13, 0x88]);
        assert!(reply == Reply::DataIn && data == part);
        assert_eq!(run(&mut unit, UAS, &[0xE0, 0x50, 0, 0, 0, 0]), (Reply::DataIn, block));
    }

    #[test]
    fn the_practice_image_queues_transfers_and_resets() {
        let mut unit = unit();
        let mut transfer = [0; 16];
        transfer[13] = 8;
        transfer[0] = 0x8A;
        assert_eq!(run(&mut unit, UAS, &transfer).0, Reply::Check(Sense::MEDIUM_NOT_PRESENT));
        for (at, value) in INITIALISATION {
            let [high, low] = at.to_be_bytes();
            assert_eq!(run(&mut unit, UAS, &[0xE5, value, 0x50, high, low, 0]).0, Reply::Good);
        }
        assert_eq!(run(&mut unit, UAS, &transfer).0, Reply::Queued(Direction::Out));
        transfer[0] = 0x88;
        assert_eq!(run(&mut unit, UAS, &transfer).0, Reply::Queued(Direction::In));
        assert_eq!(run(&mut unit, UAS, &[0xE8, 0x51]).0, Reply::Reset(0x8A));
        assert_eq!(run(&mut unit, UAS, &[0xE8, 0x00]).0, Reply::Check(Sense::INVALID_OPCODE));
    }
}
