//! What an image must answer: the commands that a host sends to a bridge, and what each must end in.

use asm2464::firmware::{Image, known_routines};
use asm2464::scsi::runtime::INITIALISATION;
use asm2464::scsi::{Cdb, Command, Sense};
use derive_more::Display;

use super::boot::{BootFault, booted};
use super::core::Outcome;
use super::driver::{Answer, Data, Driver, Ending, Unanswered};
use crate::mcu::MemoryFlash;

/// The interface's alternates.
const BULK_ONLY: u8 = 0;
const UAS: u8 = 1;

/// Which patches' effects an image must show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// A write with no SSD behind the bridge is answered at once.
    pub status_patch: bool,
    /// E4 takes the high byte of its length from CDB byte 5.
    pub e4_length_16: bool,
    /// READ(16) returns the SRAM once a GPU runtime has initialised the bridge.
    pub read16_sram: bool,
}

/// What a command ended in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum EndedIn {
    /// GOOD, without data for the host.
    #[display("GOOD")]
    Good,
    /// GOOD, with data for the host.
    #[display("data")]
    Data,
    /// CHECK CONDITION.
    #[display("CHECK CONDITION {_0}")]
    Check(Sense),
    /// Another status, or CHECK CONDITION without sense.
    #[display("another status")]
    OtherStatus,
    /// GOOD, and then the CPU is reset.
    #[display("GOOD, then a reset")]
    Reset,
    /// GOOD, and then the unit leaves the bus.
    #[display("GOOD, then off the bus")]
    OffBus,
    /// No answer: the firmware waits.
    #[display("no answer")]
    Silent,
}

/// One command of the list, executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What is checked, in words.
    pub what: &'static str,
    /// The command.
    pub cdb: Cdb,
    /// What it must end in.
    pub expected: EndedIn,
    /// What it ended in; data that is wrong counts as a failure too.
    pub found: Result<EndedIn, BootFault>,
    /// Whether its data is what it must be.
    pub data_holds: bool,
    /// Instructions spent, interrupts and idling included.
    pub instructions: u64,
}

impl Checked {
    /// Whether the image answered as it must.
    pub fn holds(&self) -> bool {
        self.found.as_ref() == Ok(&self.expected) && self.data_holds
    }
}

const INVALID_FIELD: EndedIn = EndedIn::Check(Sense::INVALID_FIELD_IN_CDB);
const INVALID_OPCODE: EndedIn = EndedIn::Check(Sense::INVALID_OPCODE);

/// Boots an image and sends it the list; `None` where nobody knows what it must answer: a version whose routines are
/// not known. Of an image that does not boot, the list says no more than that.
pub fn run(image: &Image, expected: Expected) -> Option<Vec<Checked>> {
    known_routines(image.version()).next()?;
    let mut list = List { image, checked: Vec::new() };
    // A unit that does not boot ends the list, and is its last entry.
    let _ = list.all(expected);
    Some(list.checked)
}

struct List<'a> {
    image: &'a Image,
    checked: Vec<Checked>,
}

type CheckedUnit = Driver<MemoryFlash>;

impl List<'_> {
    /// Whether the image gave no answer at all. It ends the list: further ones would take as long.
    fn is_dead(&self) -> bool {
        self.checked.last().is_some_and(|checked| checked.found.as_ref().is_err_and(BootFault::is_dead))
    }

    /// The image, booted and asked INQUIRY; `None` where it isn't, which is on the list then.
    fn unit(&mut self, alternate: u8) -> Option<CheckedUnit> {
        if self.is_dead() {
            return None;
        }
        match booted(self.image, alternate) {
            Ok(unit) => Some(unit),
            Err(fault) => {
                let (what, cdb) = ("boots and enumerates", Command::TestUnitReady.cdb());
                let found = Err(fault);
                self.checked.push(Checked {
                    what,
                    cdb,
                    expected: EndedIn::Good,
                    found,
                    data_holds: true,
                    instructions: 0,
                });
                None
            }
        }
    }

    fn all(&mut self, expected: Expected) -> Option<()> {
        self.commands(expected.e4_length_16)?;
        self.flash()?;
        self.write(expected.status_patch)?;
        self.read(expected.read16_sram)
    }

    fn check(&mut self, unit: &mut CheckedUnit, what: &'static str, cdb: &[u8], expected: EndedIn, data: &[u8]) {
        let to_host = if data.is_empty() { Data::None } else { Data::In(data.len()) };
        self.check_with(unit, what, cdb, to_host, expected, data);
    }

    fn check_with(
        &mut self,
        unit: &mut CheckedUnit,
        what: &'static str,
        cdb: &[u8],
        moves: Data<'_>,
        expected: EndedIn,
        data: &[u8],
    ) {
        if self.is_dead() {
            return;
        }
        let before = unit.chip.instructions();
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let (found, found_data) = match unit.command(cdb, moves) {
            Ok(answer) => (Ok(reply(unit, &answer)), answer.data),
            Err(Unanswered::Silent(Outcome::Parked)) => (Ok(EndedIn::Silent), Vec::new()),
            // The reset may come before the status.
            Err(Unanswered::Silent(Outcome::Reset)) => (Ok(EndedIn::Reset), Vec::new()),
            Err(why) => (Err(BootFault::located(why, &mut unit.chip)), Vec::new()),
        };
        let instructions = unit.chip.instructions() - before;
        let data_holds = found_data == data;
        self.checked.push(Checked { what, cdb: Cdb::of(padded), expected, found, data_holds, instructions });
    }

    fn commands(&mut self, e4_length_16: bool) -> Option<()> {
        let unit = &mut self.unit(UAS)?;
        let pattern: Vec<u8> = (0..0x1000u32).map(|at| (at ^ (at >> 8) ^ 0xA5) as u8).collect();
        unit.chip.sram_mut()[..0x1000].copy_from_slice(&pattern);
        let e4 = |low, high| [0xE4, low, 0x50, 0xF0, 0x00, high];
        self.check(unit, "E4 reads 255 bytes", &e4(0xFF, 0), EndedIn::Data, &pattern[..0xFF]);
        self.check(unit, "E4 reads no bytes", &e4(0, 0), EndedIn::Good, &[]);
        if e4_length_16 {
            self.check(unit, "E4 reads 4,096 bytes", &e4(0x00, 0x10), EndedIn::Data, &pattern);
            self.check(unit, "E4 reads 257 bytes", &e4(0x01, 0x01), EndedIn::Data, &pattern[..0x101]);
            self.check(unit, "E4 of 4,097 bytes is refused", &e4(0x01, 0x10), INVALID_FIELD, &[]);
        } else {
            self.check(unit, "E4 ignores CDB byte 5", &e4(0x02, 0x10), EndedIn::Data, &pattern[..2]);
        }
        self.check(unit, "E5 writes a byte", &[0xE5, 0x3C, 0x50, 0xF0, 0x07, 0], EndedIn::Good, &[]);
        self.check(unit, "E4 reads what E5 wrote", &[0xE4, 1, 0x50, 0xF0, 0x07, 0], EndedIn::Data, &[0x3C]);
        self.check(unit, "E5 writes the other page", &[0xE5, 0xC3, 0x51, 0x12, 0x34, 0], EndedIn::Good, &[]);
        self.check(unit, "E4 reads the other page", &[0xE4, 1, 0x51, 0x12, 0x34, 0], EndedIn::Data, &[0xC3]);
        for (what, cdb, expected) in [
            ("E0 in a wrong mode", &[0xE0, 0x52, 0][..], INVALID_FIELD),
            ("E1 in a wrong mode", &[0xE1, 0x52, 0], INVALID_FIELD),
            ("E2 in a wrong mode", &[0xE2, 0x52, 0, 0, 0, 1], INVALID_FIELD),
            ("E2 of more than 64 KiB", &[0xE2, 0xD0, 0, 1, 0, 1], INVALID_FIELD),
            ("E3 in a wrong mode", &[0xE3, 0x52, 0, 0, 0, 1], INVALID_FIELD),
            ("E3 past part 1", &[0xE3, 0x50, 0, 0, 0xFF, 1], INVALID_FIELD),
            ("E3 past part 2", &[0xE3, 0xD0, 0, 1, 0, 1], INVALID_FIELD),
            ("E4 in a wrong mode", &[0xE4, 1, 0x52, 0, 0, 0], INVALID_FIELD),
            ("E5 in a wrong mode", &[0xE5, 1, 0x52, 0, 0, 0], INVALID_FIELD),
            ("E8 in a wrong mode", &[0xE8, 0x52], INVALID_OPCODE),
            ("an unknown operation code", &[0xC0], INVALID_OPCODE),
        ] {
            self.check(unit, what, cdb, expected, &[]);
        }
        self.check(unit, "E8 in mode 0x51", &[0xE8, 0x51], EndedIn::OffBus, &[]);
        Some(())
    }

    fn flash(&mut self) -> Option<()> {
        let unit = &mut self.unit(BULK_ONLY)?;
        let block: Vec<u8> = (0..0x80).map(|at| at ^ 0x33).collect();
        let part: Vec<u8> = (0..0x900u32).map(|at| (at % 251) as u8).collect();
        for (number, writes) in [(0, "E1 writes block 0"), (1, "E1 writes block 1")] {
            self.check_with(unit, writes, &[0xE1, 0x50, number], Data::Out(&block), EndedIn::Good, &[]);
        }
        for (mode, writes, reads) in
            [(0x50, "E3 writes part 1", "E2 reads part 1"), (0xD0, "E3 writes part 2", "E2 reads part 2")]
        {
            self.check_with(unit, writes, &[0xE3, mode, 0, 0, 9, 0], Data::Out(&part), EndedIn::Good, &[]);
            self.check(unit, reads, &[0xE2, mode, 0, 0, 9, 0], EndedIn::Data, &part);
        }
        self.check(unit, "E0 reads block 0", &[0xE0, 0x50, 0], EndedIn::Data, &block);
        self.check(unit, "E0 reads block 1", &[0xE0, 0x50, 1], EndedIn::Data, &block);
        self.check(unit, "E8 in mode 0x50", &[0xE8, 0x50], EndedIn::Reset, &[]);
        Some(())
    }

    /// A unit that a GPU runtime has initialised by the image's own E5: one entry, the first that fails.
    fn initialised(&mut self) -> Option<CheckedUnit> {
        let mut unit = self.unit(UAS)?;
        let mut last = None;
        for (at, value) in INITIALISATION {
            let [high, low] = at.to_be_bytes();
            let what = "E5 writes what a GPU runtime begins with";
            self.check(&mut unit, what, &[0xE5, value, 0x50, high, low, 0], EndedIn::Good, &[]);
            last = self.checked.pop();
            if !last.as_ref().is_some_and(Checked::holds) {
                break;
            }
        }
        self.checked.extend(last);
        Some(unit)
    }

    fn write(&mut self, status_patch: bool) -> Option<()> {
        let unit = &mut self.initialised()?;
        let data = [0x5A; 0x1000];
        let (what, expected) = if status_patch {
            ("WRITE(16) is answered at once", EndedIn::Good)
        } else {
            ("WRITE(16) waits for NVMe", EndedIn::Silent)
        };
        let cdb = Command::Write16 { lba: 0, blocks: 8 }.cdb();
        self.check_with(unit, what, cdb.as_slice(), Data::Out(&data), expected, &[]);
        Some(())
    }

    fn read(&mut self, read16_sram: bool) -> Option<()> {
        let unit = &mut self.initialised()?;
        let read = |blocks| Command::Read16 { lba: 0, blocks }.cdb();
        if read16_sram {
            let pattern: Vec<u8> = (0..0x1000u32).map(|at| (at ^ (at >> 8) ^ 0x5A) as u8).collect();
            unit.chip.sram_mut()[..0x1000].copy_from_slice(&pattern);
            self.check(unit, "READ(16) returns the SRAM", read(8).as_slice(), EndedIn::Data, &pattern);
            let what = "READ(16) of 65 sectors is refused";
            self.check(unit, what, read(65).as_slice(), INVALID_FIELD, &[]);
        } else {
            self.check(unit, "READ(16) waits for NVMe", read(8).as_slice(), EndedIn::Silent, &[]);
        }
        Some(())
    }
}

/// What an answer, and what the unit does after it, come to.
fn reply(unit: &mut CheckedUnit, answer: &Answer) -> EndedIn {
    match answer.ending {
        Ending::Good if unit.settle() == Outcome::Reset => EndedIn::Reset,
        Ending::Good if !unit.chip.is_on_bus() => EndedIn::OffBus,
        Ending::Good if answer.data.is_empty() => EndedIn::Good,
        Ending::Good => EndedIn::Data,
        Ending::Check(Some(sense)) => EndedIn::Check(sense),
        Ending::Check(None) | Ending::Other(_) => EndedIn::OtherStatus,
    }
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{CodeAddress, FirmwareVersion};

    use super::*;
    use crate::practice;

    #[test]
    fn the_practice_image_answers_as_an_unpatched_image_must() {
        let checked = run(&practice::image(), Expected::default()).unwrap();
        let failed: Vec<_> = checked.iter().filter(|check| !check.holds()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert!(checked.len() > 30);
    }

    #[test]
    fn a_patch_that_is_claimed_and_not_there_fails() {
        let expected = Expected { status_patch: true, e4_length_16: true, read16_sram: true };
        let failed: Vec<_> = run(&practice::image(), expected).unwrap();
        let failed: Vec<_> = failed.iter().filter(|check| !check.holds()).map(|check| check.what).collect();
        assert_eq!(
            failed,
            [
                "E4 reads 4,096 bytes",
                "E4 reads 257 bytes",
                "E4 of 4,097 bytes is refused",
                "WRITE(16) is answered at once",
                "READ(16) returns the SRAM",
                "READ(16) of 65 sectors is refused"
            ]
        );
    }

    #[test]
    fn an_image_that_does_not_boot_fails_before_the_first_command() {
        let mut image = practice::image();
        let reset: CodeAddress = "c:0x0000".parse().unwrap();
        // SJMP $
        assert!(image.replace(reset.body_offset(), &[0x80, 0xFE]));
        let checked = run(&image, Expected::default()).unwrap();
        assert!(matches!(&checked[..], [only] if !only.holds() && only.what == "boots and enumerates"), "{checked:#?}");
    }

    #[test]
    fn an_image_whose_version_is_not_known_has_no_list() {
        let mut body = practice::image().body().to_vec();
        let version = practice::image().version().0;
        let at = body.windows(6).position(|bytes| bytes == version).unwrap();
        body[at] ^= 0x40;
        let image = Image::from_body(body).unwrap();
        assert_ne!(image.version(), FirmwareVersion(version));
        assert_eq!(run(&image, Expected::default()), None);
    }
}
