//! openpilot's flasher (`openpilot/system/hardware/chestnut/flash.py`, August 2026), request by request, in its order,
//! compared with the result of `flash`. Its second and third readings, its retries and its waits are omitted.

use asm2464::firmware::Part;
use asm2464::flash::SECTOR_LEN;
use asm2464_dock::virtual_unit::{ControlAnswer, Reply, VirtualUnit};
use asm2464_host::bridge::Endpoint;

use super::*;

const PAGE: usize = 128;
/// Number of bytes in one E4 at SuperSpeed.
const READ_MAX: usize = 255;
const CONFIG_LEN: usize = 0x100;
const IMAGE_AT: usize = 0x100;

/// The flasher, on the wire of a unit.
struct Openpilot(VirtualUnit);

impl Openpilot {
    fn of(rig: &Rig) -> Self {
        Self(VirtualUnit::open(&rig.dir(), None).unwrap())
    }

    fn control(&mut self, setup: [u8; 8]) -> Vec<u8> {
        match self.0.control(setup, &[]) {
            ControlAnswer::Done(data) => data,
            other => panic!("{setup:02x?}: {other:?}"),
        }
    }

    fn write(&mut self, at: u16, value: u8) {
        let [low, high] = at.to_le_bytes();
        self.control([0x40, 0xE5, low, high, value, 0, 0, 0]);
    }

    fn read(&mut self, at: u16, len: usize) -> Vec<u8> {
        let [low, high] = at.to_le_bytes();
        let data = self.control([0xC0, 0xE4, low, high, 0, 0, len as u8, 0]);
        assert_eq!(data.len(), len);
        data
    }

    fn wait(&mut self) {
        let ends = (0..1000).any(|_| self.read(0xC8A9, 1)[0] & 1 == 0);
        assert!(ends, "flash controller timeout");
    }

    fn transaction(&mut self, command: u8, at: usize, len: usize, address_len: u8, mode: u8) {
        let [a0, a1, a2, _] = (at as u32).to_le_bytes();
        let [l0, l1] = (len as u16).to_le_bytes();
        for (register, value) in [
            (0xC8AD, mode),
            (0xC8AE, 0),
            (0xC8AF, 0),
            (0xC8AA, command),
            (0xC8AC, address_len),
            (0xC8A1, a0),
            (0xC8A2, a1),
            (0xC8AB, a2),
            (0xC8A3, l1),
            (0xC8A4, l0),
            (0xC8A9, 1),
        ] {
            self.write(register, value);
        }
        self.wait();
        for _ in 0..4 {
            self.write(0xC8AD, 0);
        }
    }

    fn write_enable(&mut self) {
        for (register, value) in [(0xC8AD, 0), (0xC8AA, 0x06), (0xC8AC, 0x04), (0xC8A3, 0), (0xC8A4, 0), (0xC8A9, 1)] {
            self.write(register, value);
        }
        self.wait();
    }

    fn status(&mut self) -> u8 {
        self.transaction(0x05, 0, 1, 0x04, 0);
        self.read(0x7000, 1)[0]
    }

    fn wait_write_done(&mut self) {
        assert!((0..1000).any(|_| self.status() & 1 == 0), "SPI flash WIP timeout");
    }

    fn fill(&mut self, bytes: &[u8]) {
        for (at, byte) in (0x7000..).zip(bytes) {
            self.write(at, *byte);
        }
    }

    fn init(&mut self) {
        self.write(0xCC33, 0x04);
        let clock = self.read(0xCA81, 1)[0];
        self.write(0xCA81, clock | 1);
        self.write(0xC805, 0x02);
        self.write(0xC8A6, 0x04);
        let clears = (0..5).any(|_| {
            self.write_enable();
            self.fill(&[0; 4]);
            self.transaction(0x01, 0, 1, 0x04, 1);
            self.status() & 0x1C == 0
        });
        assert!(clears, "could not clear SPI block protection");
    }

    fn flash_read(&mut self, at: usize, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            let count = (len - out.len()).min(SECTOR_LEN);
            self.transaction(0x03, at + out.len(), SECTOR_LEN, 0x07, 0);
            for offset in (0..count).step_by(READ_MAX) {
                out.extend(self.read(0x7000 + offset as u16, (count - offset).min(READ_MAX)));
            }
        }
        out
    }

    fn program_sector(&mut self, at: usize, wanted: &[u8]) {
        self.write_enable();
        self.transaction(0x20, at, 0, 0x07, 0);
        self.wait_write_done();
        assert!(self.flash_read(at, SECTOR_LEN).iter().all(|byte| *byte == 0xFF), "sector erase verification failed");
        for (offset, page) in (0..).step_by(PAGE).zip(wanted.chunks(PAGE)) {
            if page.iter().any(|byte| *byte != 0xFF) {
                self.fill(page);
                self.write_enable();
                self.transaction(0x02, at + offset, page.len(), 0x07, 1);
                self.wait_write_done();
                assert_eq!(self.flash_read(at + offset, page.len()), page, "page verify failed");
            }
        }
        assert_eq!(self.flash_read(at, SECTOR_LEN), wanted, "sector verification failed");
    }

    /// `write_image`: writes the sectors that differ, through registers.
    fn write_image(&mut self, image: &[u8]) {
        self.init();
        let config = self.flash_read(0, CONFIG_LEN);
        let end = IMAGE_AT + image.len();
        let span = end.next_multiple_of(SECTOR_LEN);
        let current = self.flash_read(0, span);
        let mut target = current.clone();
        target[..CONFIG_LEN].copy_from_slice(&config);
        target[IMAGE_AT..end].copy_from_slice(image);
        for at in (0..span).step_by(SECTOR_LEN) {
            let wanted = &target[at..at + SECTOR_LEN];
            if &current[at..at + SECTOR_LEN] != wanted {
                self.program_sector(at, wanted);
            }
        }
        assert_eq!(self.flash_read(0, span), target, "final full-image verification failed");
    }

    /// Moves a whole bulk transfer. Asks again while the firmware is busy.
    fn moved(&mut self, endpoint: Endpoint, buffer: &mut [u8]) -> Result<(), ()> {
        let mut done = 0;
        for _ in 0..10_000 {
            let rest = &mut buffer[done..];
            let reply = match endpoint {
                Endpoint::DataOut => self.0.bulk_out(endpoint, 0, rest),
                _ => self.0.bulk_in(endpoint, 0, rest),
            };
            match reply {
                Reply::Done(count) => {
                    assert_eq!(done + count, buffer.len());
                    return Ok(());
                }
                Reply::Part(count) => done += count,
                Reply::Silent => self.0.poll(),
                Reply::Stall => return Err(()),
                Reply::Babble(_) | Reply::Gone => panic!("{endpoint:?}: {reply:?}"),
            }
        }
        panic!("{endpoint:?}: timeout")
    }

    fn command(&mut self, tag: u8, cdb: &[u8], data: &[u8]) {
        let mut cbw = [0; 31];
        cbw[..4].copy_from_slice(b"USBC");
        cbw[4] = tag;
        cbw[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
        cbw[14] = cdb.len() as u8;
        cbw[15..15 + cdb.len()].copy_from_slice(cdb);
        self.moved(Endpoint::DataOut, &mut cbw).unwrap();
        if !data.is_empty() {
            self.moved(Endpoint::DataOut, &mut data.to_vec()).unwrap();
        }
        let mut csw = [0; 13];
        if self.moved(Endpoint::DataIn, &mut csw).is_err() {
            self.0.clear_halt(Endpoint::DataIn);
            self.moved(Endpoint::DataIn, &mut csw).unwrap();
        }
        assert_eq!((&csw[..4], csw[12]), (&b"USBS"[..], 0), "{cdb:02x?}");
    }

    /// `rom_write`: what it sends to the boot loader, and to any unit with the patched firmware's product string.
    fn rom_write(&mut self, image: &[u8], config: &[u8]) {
        self.0.bus_reset();
        assert!(self.0.set_configuration(1));
        assert!(self.0.set_alternate(0));
        for endpoint in [Endpoint::DataOut, Endpoint::DataIn] {
            self.0.clear_halt(endpoint);
        }
        let block = |index| [&[0xE1, 0x50, index], &[0; 12][..]].concat();
        self.command(1, &block(0), &config[..0x80]);
        self.command(2, &block(1), &config[0x80..CONFIG_LEN]);
        for (tag, mode, part) in [(3, 0x50, Part::One.of(image)), (4, 0xD0, Part::Two.of(image))] {
            if !part.is_empty() {
                self.command(tag, &[&[0xE3, mode], &(part.len() as u32).to_be_bytes()[..]].concat(), part);
            }
        }
        self.command(5, &[&[0xE8, 0x51], &[0; 13][..]].concat(), &[]);
    }
}

/// Two equal units.
fn twins(scenario: &str) -> [Rig; 2] {
    [(); 2].map(|()| Rig::new(&format!("serial = 'DOCK7'\n{scenario}")))
}

fn assert_same(found: &Rig, expected: &Rig) {
    let (found, expected) = (found.cells(), expected.cells());
    let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert!(found == expected, "the first different byte is at {first:x?}");
}

#[test]
fn on_open_firmware_it_leaves_the_flash_that_asmpatch_leaves() {
    let [theirs, ours] = twins("factory = 'open'\n");
    theirs.cells();
    Openpilot::of(&theirs).write_image(&long_open().image.to_file());
    flash(&ours, &long_open()).unwrap();
    assert_same(&theirs, &ours);
    assert_eq!(state(&theirs), BridgeState::OpenFirmware);
}

#[test]
fn it_leaves_the_end_of_a_longer_open_image_and_asmpatch_erases_it() {
    let [theirs, ours] = twins("factory = 'open'\n");
    for rig in [&theirs, &ours] {
        flash(rig, &long_open()).unwrap();
    }
    let file = open().image.to_file();
    Openpilot::of(&theirs).write_image(&file);
    flash(&ours, &open()).unwrap();
    let (theirs, ours, end) = (theirs.cells(), ours.cells(), IMAGE_AT + file.len());
    assert!(theirs[..end] == ours[..end]);
    assert!(ours[end..SLOT_LEN].iter().all(|byte| *byte == 0xFF));
    assert!(theirs[end..SLOT_LEN].iter().any(|byte| *byte != 0xFF));
}

#[test]
fn on_patched_firmware_it_leaves_the_flash_that_asmpatch_leaves() {
    let [theirs, ours] = twins("");
    for rig in [&theirs, &ours] {
        flash(rig, &with_patches()).unwrap();
    }
    let config = theirs.cells();
    let mut unit = Openpilot::of(&theirs);
    assert_eq!(unit.0.descriptors().identity.product, "USB 3.2 PCIe TinyEnclosure", "it is taken for the boot loader");
    unit.rom_write(&long_open().image.to_file(), &config);
    drop(unit);
    flash(&ours, &long_open()).unwrap();
    assert_same(&theirs, &ours);
    assert_eq!(state(&theirs), BridgeState::OpenFirmware);
}

#[test]
fn in_the_boot_loader_it_leaves_the_flash_that_asmpatch_leaves() {
    let [theirs, ours] = twins("factory = 'no-image'\n");
    let config = theirs.cells();
    Openpilot::of(&theirs).rom_write(&long_open().image.to_file(), &config);
    // asmpatch takes the blocks from a backup, too, because the boot loader can't read them.
    let whole = Rig::new("serial = 'DOCK7'\n");
    let saved = flash(&whole, &open()).unwrap().backup.unwrap();
    flash_with(&ours, &long_open(), Some(&saved)).unwrap();
    assert_same(&theirs, &ours);
    assert_eq!(state(&theirs), BridgeState::OpenFirmware);
}
