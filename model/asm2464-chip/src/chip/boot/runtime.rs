//! Checks of what GPU runtimes need: of the vendor's firmware and images made from it, the commands that a runtime sends and
//! the effects of the patches; of open firmware, its control requests, and a flash write through the chip's registers. The
//! write uses the code that replaces the open firmware on a unit.

use std::time::Duration;

use asm2464::TransportKind;
use asm2464::firmware::{FlashAddress, is_runtime_product};
use asm2464::flash::{PAGE_LEN, RegisterAccess, RegisterError, RegisterFlash};
use asm2464::scsi::runtime::{INITIALISATION, Variables};
use asm2464::scsi::{Cdb, Command, INQUIRY_LEN, Sense, XDATA_READ_MAX, XdataAddress, XdataPage};

use super::{BootFault, BootedUnit, Failed, expect, same};
use crate::chip::core::RunEnd;
use crate::chip::driver::{Data, Ending};
use crate::chip::timers::simulated;
use crate::chip::usb::DATA_OUT;

/// Effects of an image's patches, which the checks must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects {
    /// Over UAS, a write is answered at once, although nothing behind the bridge completes it.
    pub answers_writes: bool,
    /// E4 takes the high byte of its length from CDB byte 5.
    pub e4_extension: bool,
    /// READ(16) returns the SRAM once a GPU runtime has initialised the bridge.
    pub read16_sram: bool,
}

/// The window to the SRAM.
const WINDOW: XdataAddress = XdataAddress::main(0xF000);
/// Plain memory on the other page.
const OTHER_PAGE: XdataAddress = XdataAddress { page: XdataPage::Other, addr: 0x1234 };

impl BootedUnit<'_, '_> {
    /// Checks the commands that a GPU runtime sends to a unit that has just been enumerated.
    pub(super) fn effects(&mut self, effects: Effects) -> Result<(), Failed> {
        // 240417 brings up PCIe with its first command.
        let inquiry = self.data_in(Command::Inquiry { len: INQUIRY_LEN }.cdb(), INQUIRY_LEN.into());
        self.note_for_runtime("answers INQUIRY after the restart", inquiry.map(|_| String::new()))?;
        for at in [WINDOW, OTHER_PAGE] {
            let outcome = self.writes_and_reads(at);
            self.note_for_runtime("writes XDATA and reads it (E5, E4)", outcome)?;
        }
        let pattern: Vec<u8> = (0..0x1000u32).map(|at| (at ^ (at >> 8) ^ 0xA5) as u8).collect();
        self.driver.chip.sram_mut()[..pattern.len()].copy_from_slice(&pattern);
        let outcome = self.reads(window(0xFF), &pattern[..0xFF]);
        self.note_for_runtime("reads 255 bytes of the SRAM (E4)", outcome)?;
        let outcome = self.refuses(Cdb::of([0xE4, 1, 0x52, 0, 0, 0]));
        self.note_for_runtime("refuses a wrong mode (E4)", outcome)?;
        let is_uas = self.rig.wire == TransportKind::Uas;
        // Over Bulk-Only the firmware takes the length from the CBW, not from the CDB.
        if is_uas {
            let outcome = self.refuses(Cdb::of([0xE3, 0x50, 0, 0, 0xFF, 1]));
            self.note_for_runtime("refuses firmware longer than its part (E3)", outcome)?;
        }
        if effects.e4_extension {
            for len in [0x101, 0x1000] {
                let outcome = self.reads(window(len), &pattern[..usize::from(len)]);
                self.note_for_runtime("reads more than 255 bytes of the SRAM (E4)", outcome)?;
            }
            let outcome = self.refuses(window(0x1001));
            self.note_for_runtime("refuses to read 4,097 bytes (E4)", outcome)?;
        }
        let answers_writes = effects.answers_writes && is_uas;
        if effects.read16_sram || answers_writes {
            // For an unknown version, a runtime uses 240417's addresses.
            let of_version = Variables::of(self.rig.image.version()).map_or(INITIALISATION, Variables::initialisation);
            let outcome = self.initialise(&of_version);
            self.note_for_runtime("takes what a GPU runtime begins with (E5)", outcome)?;
        }
        if effects.read16_sram {
            let read = |blocks| Command::Read16 { lba: 0, blocks }.cdb();
            let outcome = self.reads(read(8), &pattern);
            self.note_for_runtime("reads the SRAM with READ(16)", outcome)?;
            let outcome = self.refuses(read(65));
            self.note_for_runtime("refuses to read 65 sectors with READ(16)", outcome)?;
        }
        if answers_writes {
            let outcome = self.data_out(Command::Write16 { lba: 0, blocks: 8 }.cdb(), &[0x5A; 0x1000]);
            self.note_for_runtime("answers WRITE(16) without an SSD", outcome)?;
        }
        Ok(())
    }

    fn writes_and_reads(&mut self, at: XdataAddress) -> Result<String, BootFault> {
        let value = 0x3C;
        self.command(Command::XdataWrite { at, value }.cdb(), Data::None)?;
        self.reads(Command::XdataRead { from: at, len: 1 }.cdb(), &[value])
    }

    fn initialise(&mut self, writes: &[(u16, u8)]) -> Result<String, BootFault> {
        for &(at, value) in writes {
            self.command(Command::XdataWrite { at: XdataAddress::main(at), value }.cdb(), Data::None)?;
        }
        Ok(String::new())
    }

    fn reads(&mut self, cdb: Cdb, expected: &[u8]) -> Result<String, BootFault> {
        self.data_in(cdb, expected.len()).and_then(|found| same(&found, expected))
    }

    /// Sends a command that must be refused as an invalid field.
    fn refuses(&mut self, cdb: Cdb) -> Result<String, BootFault> {
        let refused = Ending::Check(Some(Sense::INVALID_FIELD_IN_CDB));
        let answer = self.driver.command(cdb.as_slice(), Data::None).map_err(|why| self.fault(why))?;
        if answer.ending != refused {
            return Err(BootFault::Wrong(format!("{}, expected {refused}", answer.ending)));
        }
        Ok(refused.to_string())
    }
}

/// Builds an E4 that reads this many bytes of the window to the SRAM.
fn window(len: u16) -> Cdb {
    Command::XdataRead { from: WINDOW, len }.cdb()
}

/// Plain memory in the open firmware, to read back what E5 wrote.
const SCRATCH_AT: u16 = 0x5FF0;
/// The sector to erase and program: the last one of the first part.
const SECTOR: FlashAddress = FlashAddress(0x00_F000);

impl BootedUnit<'_, '_> {
    pub(super) fn open_firmware(&mut self) -> Result<(), Failed> {
        self.xdata()?;
        let page: [u8; PAGE_LEN] = std::array::from_fn(|at| at as u8 ^ 0xA5);
        let outcome = self.rewrite_sector(&page).and_then(|()| {
            let mut found = [0; PAGE_LEN + 1];
            self.driver.chip.flash().read(SECTOR, &mut found);
            let mut expected = [0xFF; PAGE_LEN + 1];
            expected[..PAGE_LEN].copy_from_slice(&page);
            same(&found, &expected)
        });
        self.note("writes its flash through registers (E4, E5)", outcome)?;
        // The rest is for GPU runtimes: a unit without it can be written all the same.
        let product = self.enumerated.product.clone();
        let named = if is_runtime_product(&product) { Ok(String::new()) } else { Err(BootFault::OtherName(product)) };
        let named = self.note_for_runtime("names itself as a GPU runtime expects", named);
        self.completes_a_tlp().and(named)
    }

    /// Checks that the unit answers E5 and E4.
    pub(super) fn xdata(&mut self) -> Result<(), Failed> {
        let written = self.xdata_write(SCRATCH_AT, 0xA7);
        self.note("writes XDATA (E5)", written.map(|()| String::new()))?;
        let mut found = [0];
        let read = self.xdata_read(SCRATCH_AT, &mut found);
        self.note("reads XDATA (E4)", read.and_then(|()| same(&found, &[0xA7])))
    }

    /// Checks that F0 sends a request over PCIe and gives its completion: a configuration read, type 0, of the first
    /// dword of bus 0, device 0.
    fn completes_a_tlp(&mut self) -> Result<(), Failed> {
        let asked = self.control([0x40, 0xF0, 0x04, 0x0F, 0, 0, 12, 0], &[0; 12]);
        self.note_for_runtime("sends a configuration read (F0)", asked.map(|_| String::new()))?;
        let answer = self.control([0xC0, 0xF0, 0, 0, 0, 0, 8, 0], &[]);
        let done = |answer: &Vec<u8>| answer.len() == 8 && answer[7] == 0;
        self.note_for_runtime(
            "gives its completion (F0)",
            answer.and_then(|answer| expect(done(&answer), || format!("completion {answer:02x?}"))),
        )
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
        let (mut done, mut most) = (0, XDATA_READ_MAX);
        while done < into.len() {
            let len = (into.len() - done).min(most);
            let [low, high] = (from + done as u16).to_le_bytes();
            let found = self.control([0xC0, 0xE4, low, high, 0, 0, len as u8, 0], &[])?;
            if found.is_empty() || found.len() > len {
                return Err(BootFault::Wrong(format!("{} bytes, expected {len}", found.len())));
            }
            into[done..done + found.len()].copy_from_slice(&found);
            done += found.len();
            // Some builds give less than they are asked for.
            most = found.len();
        }
        Ok(())
    }

    fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Result<Vec<u8>, BootFault> {
        self.driver.control(setup, data).map_err(|why| self.fault(why))
    }
}

/// The registers of a booted unit, with its simulated time.
struct Registers<'u, 'i, 'c> {
    unit: &'u mut BootedUnit<'i, 'c>,
    /// Pauses so far. The chip's own time stands still while its firmware waits for the host.
    paused: Duration,
}

impl RegisterAccess for Registers<'_, '_, '_> {
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
        simulated(self.unit.driver.chip.now()) + self.paused
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
    use asm2464::firmware::{BodyOffset, Image};

    use super::*;
    use crate::chip::ProofBudget;
    use crate::chip::boot::{BootReport, Purpose, check, check_effects, check_with};
    use crate::practice;
    use crate::spi_flash::FlashFaults;

    fn checked(effects: Effects) -> BootReport {
        check_effects(&practice::image(), effects, &ProofBudget::default()).unwrap()
    }

    #[test]
    fn the_practice_image_answers_a_gpu_runtimes_commands_over_both_transports() {
        let report = checked(Effects::default());
        assert!(report.passes(), "{report:#?}");
        for wire in [TransportKind::BulkOnly, TransportKind::Uas] {
            let of_wire = report.checks.iter().filter(|check| check.wire == wire);
            assert!(of_wire.clone().any(|check| check.what == "reads 255 bytes of the SRAM (E4)"), "{report:#?}");
        }
    }

    #[test]
    fn a_claimed_effect_that_is_missing_fails() {
        let none = Effects::default();
        for (effects, what, wire) in [
            (
                Effects { e4_extension: true, ..none },
                "reads more than 255 bytes of the SRAM (E4)",
                TransportKind::BulkOnly,
            ),
            (Effects { read16_sram: true, ..none }, "reads the SRAM with READ(16)", TransportKind::BulkOnly),
            (Effects { answers_writes: true, ..none }, "answers WRITE(16) without an SSD", TransportKind::Uas),
        ] {
            let report = checked(effects);
            let (check, _) = report.failure().unwrap_or_else(|| panic!("{effects:?}"));
            assert_eq!((check.what, check.wire), (what, wire), "{report:#?}");
        }
    }

    #[test]
    fn the_flash_is_written_as_in_a_recovery_in_spite_of_its_known_defects() {
        for stale_first_byte in [None, Some(1), Some(2), Some(3)] {
            for status_in_buffer in [false, true] {
                let defects = FlashFaults { stale_first_byte, status_in_buffer, ..FlashFaults::default() };
                let report = check_with(&practice::open_image(), defects);
                assert_eq!(report.failure(), None, "{defects:?}");
            }
        }
    }

    /// The practice image whose control requests with this number stall: the number that it compares with is another.
    fn open_without(request: u8) -> Image {
        let mut image = practice::open_image();
        // CJNE R6,#request
        let found: Vec<usize> =
            image.body().windows(2).enumerate().filter(|(_, at)| *at == [0xBE, request]).map(|(at, _)| at).collect();
        assert!(!found.is_empty(), "{request:#x}");
        for at in found {
            assert!(image.replace(BodyOffset(at as u32 + 1), &[0x7F]));
        }
        image
    }

    #[test]
    fn a_way_back_needs_e4_and_e5_and_a_runtime_f0() {
        for (request, has_way_back) in [(0xF0, true), (0xE4, false), (0xE5, false)] {
            let report = check(&open_without(request));
            let (failed, _) = report.failure().unwrap_or_else(|| panic!("{request:#x}: {report:#?}"));
            assert_eq!(failed.purpose == Purpose::Runtime, has_way_back, "{report:#?}");
            assert_eq!(report.no_way_back().is_none(), has_way_back, "{report:#?}");
            assert!(!report.passes());
        }
    }

    #[test]
    fn writing_the_flash_costs_little_of_a_proofs_budget() {
        let report = check(&practice::open_image());
        let at = report.checks.iter().position(|check| check.what.starts_with("writes its flash")).unwrap();
        let [before, written] = &report.checks[at - 1..=at] else { panic!("{report:#?}") };
        assert!(written.instructions - before.instructions < 2_000_000, "{report:#?}");
    }
}
