//! Checks of open firmware: its control requests, and a flash write through the chip's registers. The write uses the
//! code that replaces the open firmware on a unit.

use std::time::Duration;

use asm2464::firmware::{FlashAddress, is_runtime_product};
use asm2464::flash::{PAGE_LEN, RegisterAccess, RegisterError, RegisterFlash};
use asm2464::scsi::{XDATA_READ_MAX, XdataAddress};

use super::{BootFault, BootedUnit, Failed, expect, same};
use crate::chip::core::RunEnd;
use crate::chip::usb::DATA_OUT;
use crate::mcu::SpiFlash as _;

/// Plain memory in the open firmware, to read back what E5 wrote.
const SCRATCH_AT: u16 = 0x5FF0;
/// The sector to erase and program: the last one of the first part.
const SECTOR: FlashAddress = FlashAddress(0x00_F000);
/// Instructions in a microsecond, derived from the firmware's waits: see `timers`.
const INSTRUCTIONS_PER_US: u64 = 50;

impl BootedUnit<'_> {
    pub(super) fn open_firmware(&mut self) -> Result<(), Failed> {
        let product = self.enumerated.product.clone();
        let named = is_runtime_product(&product);
        self.note("names itself as a GPU runtime expects", expect(named, || format!("product {product:?}")))?;
        let written = self.xdata_write(SCRATCH_AT, 0xA7);
        self.note("writes XDATA (E5)", written.map(|()| String::new()))?;
        let mut found = [0];
        let read = self.xdata_read(SCRATCH_AT, &mut found);
        self.note("reads XDATA (E4)", read.and_then(|()| same(&found, &[0xA7])))?;
        // Configuration read, type 0, of the first dword of bus 0, device 0: one TLP, then its completion.
        let asked = self.control([0x40, 0xF0, 0x04, 0x0F, 0, 0, 12, 0], &[0; 12]);
        self.note("sends a configuration read (F0)", asked.map(|_| String::new()))?;
        let answer = self.control([0xC0, 0xF0, 0, 0, 0, 0, 8, 0], &[]);
        let done = |answer: &Vec<u8>| answer.len() == 8 && answer[7] == 0;
        self.note(
            "gives its completion (F0)",
            answer.and_then(|answer| expect(done(&answer), || format!("completion {answer:02x?}"))),
        )?;
        let page: [u8; PAGE_LEN] = std::array::from_fn(|at| at as u8 ^ 0xA5);
        let outcome = self.rewrite_sector(&page).and_then(|()| {
            let mut found = [0; PAGE_LEN + 1];
            self.driver.chip.flash().read(SECTOR, &mut found);
            let mut expected = [0xFF; PAGE_LEN + 1];
            expected[..PAGE_LEN].copy_from_slice(&page);
            same(&found, &expected)
        });
        self.note("writes its flash through registers (E4, E5)", outcome)
    }

    /// Erases the sector and programs its first page, in the same way as a unit's open firmware is replaced. Does so
    /// twice, because an erase of a blank sector proves nothing.
    fn rewrite_sector(&mut self, page: &[u8; PAGE_LEN]) -> Result<(), BootFault> {
        let mut flash = RegisterFlash::new(Registers { unit: self, paused: Duration::ZERO })?;
        flash.unprotect()?;
        for page in [&[0; PAGE_LEN], page] {
            flash.erase(SECTOR)?;
            flash.program(SECTOR, page)?;
        }
        Ok(())
    }

    fn xdata_write(&mut self, at: u16, value: u8) -> Result<(), BootFault> {
        let [low, high] = at.to_le_bytes();
        self.control([0x40, 0xE5, low, high, value, 0, 0, 0], &[]).map(drop)
    }

    fn xdata_read(&mut self, from: u16, into: &mut [u8]) -> Result<(), BootFault> {
        for (at, piece) in (from..).step_by(XDATA_READ_MAX).zip(into.chunks_mut(XDATA_READ_MAX)) {
            let [low, high] = at.to_le_bytes();
            let found = self.control([0xC0, 0xE4, low, high, 0, 0, piece.len() as u8, 0], &[])?;
            if found.len() != piece.len() {
                return Err(BootFault::Wrong(format!("{} bytes, expected {}", found.len(), piece.len())));
            }
            piece.copy_from_slice(&found);
        }
        Ok(())
    }

    fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Result<Vec<u8>, BootFault> {
        self.driver.control(setup, data).map_err(|why| self.fault(why))
    }
}

/// The registers of a booted unit, with its simulated time.
struct Registers<'u, 'a> {
    unit: &'u mut BootedUnit<'a>,
    /// Pauses so far. The chip's own time stands still while its firmware waits for the host.
    paused: Duration,
}

impl RegisterAccess for Registers<'_, '_> {
    type Error = BootFault;

    fn exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        into: &mut [u8],
    ) -> Result<(), BootFault> {
        self.write(writes)?;
        self.unit.xdata_read(from.addr, into)
    }

    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), BootFault> {
        writes.iter().try_for_each(|(at, value)| self.unit.xdata_write(at.addr, *value))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), BootFault> {
        self.unit.driver.send(DATA_OUT, 0, bytes).map_err(|why| self.unit.fault(why))
    }

    fn is_gone(error: &BootFault) -> bool {
        // A firmware that waits answers the next request.
        matches!(error, BootFault::Hung { outcome, .. } if *outcome != RunEnd::Parked)
    }

    fn is_super_speed(&self) -> bool {
        true
    }

    fn now(&mut self) -> Duration {
        Duration::from_micros(self.unit.driver.chip.now() / INSTRUCTIONS_PER_US) + self.paused
    }

    fn pause(&mut self, time: Duration) {
        self.paused += time;
    }
}

impl From<RegisterError<Self>> for BootFault {
    fn from(error: RegisterError<Self>) -> Self {
        match error {
            RegisterError::Access(fault) => fault,
            other => Self::Wrong(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::chip::FlashDefects;
    use crate::chip::boot::{check, check_with};
    use crate::practice;

    #[test]
    fn the_flash_is_written_as_in_a_recovery_in_spite_of_its_known_defects() {
        for stale_first_byte in [None, Some(1), Some(2), Some(3)] {
            for status_in_buffer in [false, true] {
                let defects = FlashDefects { stale_first_byte, status_in_buffer, ..FlashDefects::default() };
                let report = check_with(&practice::open_image(), defects);
                assert_eq!(report.failure(), None, "{defects:?}");
            }
        }
    }

    #[test]
    fn writing_the_flash_costs_little_of_a_proofs_budget() {
        let report = check(&practice::open_image());
        let [.., before, written] = &report.checks[..] else { panic!("{report:#?}") };
        assert_eq!(written.what, "writes its flash through registers (E4, E5)");
        assert!(written.instructions - before.instructions < 2_000_000, "{report:#?}");
    }
}
