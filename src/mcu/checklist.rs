//! What an image must answer, executed: the commands that a host sends to a bridge, and what each must end in.

use super::conventions;
use super::error::RunError;
use super::firmware_cpu::{FirmwareCpu, Reply, Wire};
use super::spi_flash::MemoryFlash;
use crate::firmware::Image;
use crate::scsi::bot::Direction;
use crate::scsi::runtime::INITIALISATION;
use crate::scsi::{Cdb, Sense};

/// Which patches' effects an image must show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// A write with no SSD behind the bridge is answered at once.
    pub status_patch: bool,
    /// E4 takes the high byte of its length from CDB byte 5.
    pub e4_length_16: bool,
    /// READ(16) brings the SRAM once a GPU runtime has initialised the bridge.
    pub read16_sram: bool,
}

/// One command of the list, executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What is checked, in words.
    pub what: &'static str,
    /// The command.
    pub cdb: Cdb,
    /// What it must end in.
    pub expected: Reply,
    /// What it ended in; data that is wrong counts as a failure too.
    pub found: Result<Reply, RunError>,
    /// Whether its data is what it must be.
    pub data_holds: bool,
    /// Instructions spent.
    pub instructions: u64,
}

impl Checked {
    /// Whether the image answered as it must.
    pub fn holds(&self) -> bool {
        self.found.as_ref() == Ok(&self.expected) && self.data_holds
    }
}

const INVALID_FIELD: Reply = Reply::Check(Sense::INVALID_FIELD_IN_CDB);
const INVALID_OPCODE: Reply = Reply::Check(Sense::INVALID_OPCODE);

/// Executes the list on an image; `None` where its routines are not known.
pub fn run(image: &Image, expected: Expected) -> Option<Vec<Checked>> {
    if !conventions::are_kept_by(image) {
        return None;
    }
    let mut list = List { image, checked: Vec::new() };
    list.xdata(expected.e4_length_16);
    list.refusals();
    list.flash();
    list.resets();
    list.transfers(expected);
    Some(list.checked)
}

struct List<'a> {
    image: &'a Image,
    checked: Vec<Checked>,
}

type BareFirmware = FirmwareCpu<MemoryFlash>;

impl List<'_> {
    fn unit(&self) -> BareFirmware {
        FirmwareCpu::new(self.image, MemoryFlash::erased())
    }

    fn check(&mut self, unit: &mut BareFirmware, what: &'static str, cdb: &[u8], expected: Reply, data: &[u8]) {
        self.check_on(unit, Wire::Uas, what, cdb, expected, data);
    }

    fn check_on(
        &mut self,
        unit: &mut BareFirmware,
        wire: Wire,
        what: &'static str,
        cdb: &[u8],
        expected: Reply,
        data: &[u8],
    ) {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let cdb = Cdb::of(padded);
        let mut found_data = Vec::new();
        let found = unit.begin(wire, &cdb, &mut found_data);
        let data_holds = found_data == data;
        let instructions = unit.instructions();
        self.checked.push(Checked { what, cdb, expected, found, data_holds, instructions });
    }

    /// The data-out of the last command.
    fn give(&mut self, unit: &mut BareFirmware, what: &'static str, data: &[u8]) {
        let Some(cdb) = self.checked.last().map(|last| last.cdb) else { return };
        let found = unit.give(data);
        let instructions = unit.instructions();
        self.checked.push(Checked { what, cdb, expected: Reply::Good, found, data_holds: true, instructions });
    }

    fn xdata(&mut self, e4_length_16: bool) {
        let mut unit = self.unit();
        let pattern: Vec<u8> = (0..0x1000u32).map(|at| (at ^ (at >> 8) ^ 0xA5) as u8).collect();
        unit.machine_mut().xdata_mut().memory_mut().main_mut()[0xF000..].copy_from_slice(&pattern);
        let e4 = |low, high| [0xE4, low, 0x50, 0xF0, 0x00, high];
        self.check(&mut unit, "E4 reads 255 bytes", &e4(0xFF, 0), Reply::DataIn, &pattern[..0xFF]);
        self.check(&mut unit, "E4 reads no bytes", &e4(0, 0), Reply::DataIn, &[]);
        if e4_length_16 {
            self.check(&mut unit, "E4 reads 4,096 bytes", &e4(0x00, 0x10), Reply::DataIn, &pattern);
            self.check(&mut unit, "E4 reads 257 bytes", &e4(0x01, 0x01), Reply::DataIn, &pattern[..0x101]);
            self.check(&mut unit, "E4 of 4,097 bytes is refused", &e4(0x01, 0x10), INVALID_FIELD, &[]);
        } else {
            self.check(&mut unit, "E4 ignores CDB byte 5", &e4(0x02, 0x10), Reply::DataIn, &pattern[..2]);
        }
        self.check(&mut unit, "E5 writes a byte", &[0xE5, 0x3C, 0x50, 0xF0, 0x07, 0], Reply::Good, &[]);
        self.check(&mut unit, "E4 reads what E5 wrote", &[0xE4, 1, 0x50, 0xF0, 0x07, 0], Reply::DataIn, &[0x3C]);
        self.check(&mut unit, "E5 writes the other page", &[0xE5, 0xC3, 0x51, 0x12, 0x34, 0], Reply::Good, &[]);
        self.check(&mut unit, "E4 reads the other page", &[0xE4, 1, 0x51, 0x12, 0x34, 0], Reply::DataIn, &[0xC3]);
    }

    fn refusals(&mut self) {
        let mut unit = self.unit();
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
            self.check(&mut unit, what, cdb, expected, &[]);
        }
    }

    fn flash(&mut self) {
        let mut unit = self.unit();
        let out = |host_len| Wire::BulkOnly { host_len, direction: Direction::Out };
        let block: Vec<u8> = (0..0x80).map(|at| at ^ 0x33).collect();
        let part: Vec<u8> = (0..0x900u32).map(|at| (at % 251) as u8).collect();
        for (number, begins, ends) in
            [(0, "E1 asks for block 0", "E1 writes block 0"), (1, "E1 asks for block 1", "E1 writes block 1")]
        {
            self.check_on(&mut unit, out(0x80), begins, &[0xE1, 0x50, number], Reply::DataOut(0x80), &[]);
            self.give(&mut unit, ends, &block);
        }
        for (mode, begins, ends, reads) in [
            (0x50, "E3 asks for part 1", "E3 writes part 1", "E2 reads part 1"),
            (0xD0, "E3 asks for part 2", "E3 writes part 2", "E2 reads part 2"),
        ] {
            self.check_on(&mut unit, out(0x900), begins, &[0xE3, mode, 0, 0, 9, 0], Reply::DataOut(0x900), &[]);
            self.give(&mut unit, ends, &part);
            self.check(&mut unit, reads, &[0xE2, mode, 0, 0, 9, 0], Reply::DataIn, &part);
        }
        self.check(&mut unit, "E0 reads block 0", &[0xE0, 0x50, 0], Reply::DataIn, &block);
        self.check(&mut unit, "E0 reads block 1", &[0xE0, 0x50, 1], Reply::DataIn, &block);
    }

    fn resets(&mut self) {
        let wire = Wire::BulkOnly { host_len: 0, direction: Direction::In };
        for (what, mode, state) in [("E8 in mode 0x50", 0x50, 0x60), ("E8 in mode 0x51", 0x51, 0x8A)] {
            self.check_on(&mut self.unit(), wire, what, &[0xE8, mode], Reply::Reset(state), &[]);
        }
    }

    /// What a GPU runtime writes before its first WRITE(16), by the image's own E5: one entry, the first that fails.
    fn initialise(&mut self, unit: &mut BareFirmware) {
        let mut last = None;
        for (at, value) in INITIALISATION {
            let [high, low] = at.to_be_bytes();
            let what = "E5 writes what a GPU runtime begins with";
            self.check(unit, what, &[0xE5, value, 0x50, high, low, 0], Reply::Good, &[]);
            last = self.checked.pop();
            if !last.as_ref().is_some_and(Checked::holds) {
                break;
            }
        }
        self.checked.extend(last);
    }

    fn transfers(&mut self, Expected { status_patch, read16_sram, .. }: Expected) {
        let mut unit = self.unit();
        unit.bring_link_up();
        self.initialise(&mut unit);
        let mut cdb = [0; 16];
        cdb[13] = 8;
        let written = if status_patch { Reply::Good } else { Reply::Queued(Direction::Out) };
        cdb[0] = 0x8A;
        let what = if status_patch { "WRITE(16) is answered at once" } else { "WRITE(16) waits for NVMe" };
        self.check(&mut unit, what, &cdb, written, &[]);
        cdb[0] = 0x88;
        if read16_sram {
            let pattern: Vec<u8> = (0..0x1000u32).map(|at| (at ^ (at >> 8) ^ 0x5A) as u8).collect();
            unit.machine_mut().xdata_mut().memory_mut().main_mut()[0xF000..].copy_from_slice(&pattern);
            self.check(&mut unit, "READ(16) brings the SRAM", &cdb, Reply::DataIn, &pattern);
            cdb[13] = 65;
            self.check(&mut unit, "READ(16) of 65 sectors is refused", &cdb, INVALID_FIELD, &[]);
        } else {
            self.check(&mut unit, "READ(16) waits for NVMe", &cdb, Reply::Queued(Direction::In), &[]);
        }
    }
}

#[cfg(test)]
mod tests {
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
                "READ(16) brings the SRAM",
                "READ(16) of 65 sectors is refused"
            ]
        );
    }

    #[test]
    fn an_image_whose_routines_are_not_known_has_no_list() {
        let mut image = practice::image();
        assert!(image.replace(conventions::DISPATCH.body_offset(), &[0x22]));
        assert_eq!(run(&image, Expected::default()), None);
    }
}
