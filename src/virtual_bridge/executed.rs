//! The flashed image itself answers the vendor commands: its code runs on the emulated 8051, with this unit's flash
//! behind the flash controller.

use std::fmt;

use super::chip::{Chip, DATA_BUFFER_WINDOW};
use super::firmware::{Firmware, Reply, TransferStatus};
use super::native::NativeFirmware;
use super::nor::{NorFlash, SECTOR_LEN};
use crate::firmware::{FlashAddress, Image};
use crate::mcu::{self, FirmwareCpu, FlashGone, SpiFlash, Wire};
use crate::scsi::bot::Direction;
use crate::scsi::{Cdb, ResetMode};

impl SpiFlash for NorFlash {
    fn read(&self, at: FlashAddress, into: &mut [u8]) {
        match self.get(at, into.len()) {
            Some(cells) => into.copy_from_slice(cells),
            None => into.fill(0xFF),
        }
    }

    fn program(&mut self, at: FlashAddress, bytes: &[u8]) -> Result<(), FlashGone> {
        Self::program(self, at, bytes).map_err(|_| FlashGone)
    }

    fn erase(&mut self, at: FlashAddress, len: u32) -> Result<(), FlashGone> {
        for sector in (at.0..at.0 + len).step_by(SECTOR_LEN) {
            self.erase_sector(FlashAddress(sector)).map_err(|_| FlashGone)?;
        }
        Ok(())
    }
}

/// An image that runs.
pub struct ExecutedFirmware {
    cpu: FirmwareCpu<NorFlash>,
    native: NativeFirmware,
    /// The CPU hangs: nothing is answered until the power comes back.
    hung: bool,
}

impl ExecutedFirmware {
    /// Starts `image` on this chip, whose memories then are as after its start-up code. `None` for an image whose
    /// routines are not known.
    pub fn start(image: &Image, chip: &mut Chip) -> Option<Self> {
        if !mcu::conventions::are_kept_by(image) {
            return None;
        }
        let mut cpu = FirmwareCpu::new(image, NorFlash::none());
        std::mem::swap(cpu.machine_mut().xdata_mut().memory_mut(), &mut chip.memory);
        Some(Self { cpu, native: NativeFirmware::new(image), hung: false })
    }

    /// Runs `work` with the chip's memories and flash in the machine's place.
    fn on<T>(&mut self, chip: &mut Chip, work: impl FnOnce(&mut FirmwareCpu<NorFlash>) -> T) -> T {
        let window = usize::from(DATA_BUFFER_WINDOW);
        let window_len = chip.memory.main().len() - window;
        chip.memory.main_mut()[window..].copy_from_slice(&chip.data_buffer[..window_len]);
        std::mem::swap(self.cpu.machine_mut().xdata_mut().memory_mut(), &mut chip.memory);
        std::mem::swap(self.cpu.flash_mut(), &mut chip.flash);
        let result = work(&mut self.cpu);
        std::mem::swap(self.cpu.flash_mut(), &mut chip.flash);
        std::mem::swap(self.cpu.machine_mut().xdata_mut().memory_mut(), &mut chip.memory);
        chip.data_buffer[..window_len].copy_from_slice(&chip.memory.main()[window..]);
        result
    }

    fn reply(&mut self, outcome: Result<mcu::Reply, mcu::RunError>) -> Reply {
        match outcome {
            Ok(mcu::Reply::DataIn) => Reply::DataIn,
            Ok(mcu::Reply::DataOut(len)) => Reply::DataOut(len),
            Ok(mcu::Reply::Good) => Reply::Good,
            Ok(mcu::Reply::Check(sense)) => Reply::Check(sense),
            // State 0x60 resets the CPU, 0x8A leaves the bus and resets nothing.
            Ok(mcu::Reply::Reset(0x60)) => Reply::Reset(ResetMode::CpuReset),
            Ok(mcu::Reply::Reset(_)) => Reply::Reset(ResetMode::Halt),
            Ok(mcu::Reply::Queued(_) | mcu::Reply::Silent(_)) => Reply::Silent,
            Err(_) => {
                self.hung = true;
                Reply::Silent
            }
        }
    }
}

impl Firmware for ExecutedFirmware {
    fn begin(&mut self, chip: &mut Chip, cdb: &[u8; 16], host_len: Option<u32>, data: &mut Vec<u8>) -> Reply {
        if self.hung {
            return Reply::Silent;
        }
        let direction = if matches!(cdb[0], 0xE1 | 0xE3) { Direction::Out } else { Direction::In };
        let wire = host_len.map_or(Wire::Uas, |host_len| Wire::BulkOnly { host_len, direction });
        let cdb = Cdb::of(*cdb);
        let outcome = self.on(chip, |cpu| cpu.begin(wire, &cdb, data));
        self.reply(outcome)
    }

    fn finish(&mut self, chip: &mut Chip, _cdb: &[u8; 16], data: &[u8]) -> Reply {
        if self.hung {
            return Reply::Silent;
        }
        let outcome = self.on(chip, |cpu| cpu.give(data));
        match self.reply(outcome) {
            // The host has no more to send than it announced.
            Reply::DataOut(_) => Reply::Silent,
            reply => reply,
        }
    }

    fn queue_transfer(&mut self, chip: &mut Chip, direction: Direction) -> TransferStatus {
        if self.hung {
            return TransferStatus::Queued;
        }
        let mut cdb = [0; 16];
        cdb[0] = if direction == Direction::In { 0x88 } else { 0x8A };
        cdb[13] = 1;
        let cdb = Cdb::of(cdb);
        let mut data = Vec::new();
        match self.on(chip, |cpu| cpu.begin(Wire::Uas, &cdb, &mut data)) {
            Ok(mcu::Reply::Queued(_)) => TransferStatus::Queued,
            Ok(mcu::Reply::Good) => TransferStatus::AnswerNow,
            // 240417 looks for its NVMe device first, whose registers this chip has not: the end of the routine tells.
            _ => self.native.queue_transfer(chip, direction),
        }
    }
}

impl fmt::Debug for ExecutedFirmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutedFirmware").field("hung", &self.hung).finish_non_exhaustive()
    }
}
