//! Checks of an image made from a known one: the commands that a GPU runtime sends, and the effects of the patches.

use asm2464::TransportKind;
use asm2464::scsi::runtime::{INITIALISATION, Variables};
use asm2464::scsi::{Cdb, Command, INQUIRY_LEN, Sense, XdataAddress, XdataPage};

use super::{BootFault, BootedUnit, Failed, same};
use crate::chip::driver::{Data, Ending};

/// Effects of an image's patches, which the checks must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects {
    /// Over UAS, a write is answered at once, although nothing behind the bridge completes it.
    pub answers_writes: bool,
    /// E4 takes the high byte of its length from CDB byte 5.
    pub e4_length_16: bool,
    /// READ(16) returns the SRAM once a GPU runtime has initialised the bridge.
    pub read16_sram: bool,
}

/// The window to the SRAM.
const WINDOW: XdataAddress = XdataAddress::main(0xF000);
/// Plain memory on the other page.
const OTHER_PAGE: XdataAddress = XdataAddress { page: XdataPage::Other, addr: 0x1234 };

impl BootedUnit<'_> {
    /// Checks the commands that a GPU runtime sends to a unit that has just been enumerated.
    pub(super) fn effects(&mut self, effects: Effects) -> Result<(), Failed> {
        // 240417 brings up PCIe with its first command.
        let inquiry = self.data_in(Command::Inquiry { len: INQUIRY_LEN }.cdb(), INQUIRY_LEN.into());
        self.note("answers INQUIRY after the restart", inquiry.map(|_| String::new()))?;
        for at in [WINDOW, OTHER_PAGE] {
            let outcome = self.writes_and_reads(at);
            self.note("writes XDATA and reads it (E5, E4)", outcome)?;
        }
        let pattern: Vec<u8> = (0..0x1000u32).map(|at| (at ^ (at >> 8) ^ 0xA5) as u8).collect();
        self.driver.chip.sram_mut()[..pattern.len()].copy_from_slice(&pattern);
        let outcome = self.reads(window(0xFF), &pattern[..0xFF]);
        self.note("reads 255 bytes of the SRAM (E4)", outcome)?;
        let outcome = self.refuses(Cdb::of([0xE4, 1, 0x52, 0, 0, 0]));
        self.note("refuses a wrong mode (E4)", outcome)?;
        let is_uas = self.wire == TransportKind::Uas;
        // Over Bulk-Only the firmware takes the length from the CBW, not from the CDB.
        if is_uas {
            let outcome = self.refuses(Cdb::of([0xE3, 0x50, 0, 0, 0xFF, 1]));
            self.note("refuses firmware longer than its part (E3)", outcome)?;
        }
        if effects.e4_length_16 {
            for len in [0x101, 0x1000] {
                let outcome = self.reads(window(len), &pattern[..usize::from(len)]);
                self.note("reads more than 255 bytes of the SRAM (E4)", outcome)?;
            }
            let outcome = self.refuses(window(0x1001));
            self.note("refuses to read 4,097 bytes (E4)", outcome)?;
        }
        let answers_writes = effects.answers_writes && is_uas;
        if effects.read16_sram || answers_writes {
            // For an unknown version, a runtime uses 240417's addresses.
            let of_version = Variables::of(self.image.version()).map_or(INITIALISATION, Variables::initialisation);
            let outcome = self.initialise(&of_version);
            self.note("takes what a GPU runtime begins with (E5)", outcome)?;
        }
        if effects.read16_sram {
            let read = |blocks| Command::Read16 { lba: 0, blocks }.cdb();
            let outcome = self.reads(read(8), &pattern);
            self.note("reads the SRAM with READ(16)", outcome)?;
            let outcome = self.refuses(read(65));
            self.note("refuses to read 65 sectors with READ(16)", outcome)?;
        }
        if answers_writes {
            let outcome = self.data_out(Command::Write16 { lba: 0, blocks: 8 }.cdb(), &[0x5A; 0x1000]);
            self.note("answers WRITE(16) without an SSD", outcome)?;
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

#[cfg(test)]
mod tests {
    use super::super::{BootReport, check_effects};
    use super::*;
    use crate::chip::ProofBudget;
    use crate::practice;

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
                Effects { e4_length_16: true, ..none },
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
}
