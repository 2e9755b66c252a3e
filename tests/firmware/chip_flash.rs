//! The flash controller and the bulk buffer, as firmware sees them through their registers.

use asm2464::firmware::FlashAddress;
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{Chip, DATA_OUT, PacketOut, Speed};
use asm2464_chip::mcu::{CodeSpace, FlashGone, MemoryFlash, SpiFlash};

const READ: u8 = 0x03;
const PROGRAM: u8 = 0x02;
const ERASE_SECTOR: u8 = 0x20;
const WRITE_ENABLE: u8 = 0x06;
const READ_STATUS: u8 = 0x05;
const WRITE_ENABLED: u8 = 0x02;

/// A flash that can be made busy.
struct Part {
    cells: MemoryFlash,
    is_busy: bool,
}

impl SpiFlash for Part {
    fn read(&self, at: FlashAddress, into: &mut [u8]) {
        self.cells.read(at, into);
    }

    fn program(&mut self, at: FlashAddress, bytes: &[u8]) -> Result<(), FlashGone> {
        self.cells.program(at, bytes)
    }

    fn erase(&mut self, at: FlashAddress, len: u32) -> Result<(), FlashGone> {
        self.cells.erase(at, len)
    }

    fn status(&self) -> u8 {
        u8::from(self.is_busy)
    }

    fn set_status(&mut self, _value: u8) {}
}

/// A chip whose CPU waits, and whose flash holds zeros.
fn chip() -> Chip<Part> {
    let mut cells = MemoryFlash::erased();
    cells.cells.fill(0);
    let part = Part { cells, is_busy: false };
    let mut chip = Chip::power_on(CodeSpace::from_body(&[0x80, 0xFE]), part, Speed::Super);
    set(&mut chip, 0x92C2, &[0x07]);
    chip
}

fn set(chip: &mut Chip<Part>, addr: u16, bytes: &[u8]) {
    chip.poke(XdataAddress::main(addr), bytes);
}

fn get(chip: &Chip<Part>, addr: u16) -> u8 {
    chip.peek(XdataAddress::main(addr))
}

fn command(chip: &mut Chip<Part>, command: u8, address: u32, length: u16) {
    let [_, high, middle, low] = address.to_be_bytes();
    set(chip, 0xC8AB, &[high]);
    set(chip, 0xC8A1, &[low, middle]);
    set(chip, 0xC8A3, &length.to_be_bytes());
    set(chip, 0xC8AA, &[command]);
    set(chip, 0xC8A9, &[1]);
}

fn status(chip: &mut Chip<Part>) -> u8 {
    command(chip, READ_STATUS, 0, 1);
    get(chip, 0x7000)
}

fn cells(chip: &mut Chip<Part>) -> &[u8] {
    &chip.flash().cells.cells
}

#[test]
fn a_sectors_erase_clears_its_4_kib_and_nothing_else() {
    let mut chip = chip();
    command(&mut chip, WRITE_ENABLE, 0, 0);
    command(&mut chip, ERASE_SECTOR, 0x1_1234, 0);
    let erased = |cells: &[u8]| cells.iter().enumerate().filter(|(_, cell)| **cell == 0xFF).map(|(at, _)| at).collect();
    let erased: Vec<usize> = erased(cells(&mut chip));
    assert_eq!(erased, (0x1_1000..0x1_2000).collect::<Vec<_>>());
}

#[test]
fn a_program_and_an_erase_end_the_write_enable() {
    for (write, address) in [(PROGRAM, 0x100), (ERASE_SECTOR, 0x1000)] {
        let mut chip = chip();
        command(&mut chip, WRITE_ENABLE, 0, 0);
        assert_eq!(status(&mut chip) & WRITE_ENABLED, WRITE_ENABLED);
        command(&mut chip, write, address, 1);
        assert_eq!(status(&mut chip) & WRITE_ENABLED, 0, "after {write:02X}");
        command(&mut chip, ERASE_SECTOR, 0x2000, 0);
        assert_eq!(cells(&mut chip)[0x2000], 0, "the next one needs its own");
    }
}

#[test]
fn a_busy_flash_takes_no_command_but_the_status_read() {
    let mut chip = chip();
    command(&mut chip, WRITE_ENABLE, 0, 0);
    chip.flash_mut().is_busy = true;
    command(&mut chip, ERASE_SECTOR, 0x1000, 0);
    assert_eq!(cells(&mut chip)[0x1000], 0);
    set(&mut chip, 0x7000, &[0x5A, 0x5A]);
    command(&mut chip, READ, 0, 2);
    assert_eq!(get(&chip, 0x7001), 0x5A, "a read brings nothing");
    assert_eq!(status(&mut chip) & 0x01, 1);
    chip.flash_mut().is_busy = false;
    command(&mut chip, ERASE_SECTOR, 0x1000, 0);
    assert_eq!(cells(&mut chip)[0x1000], 0xFF, "the write enable is still there");
}

#[test]
fn a_program_longer_than_a_page_writes_its_last_256_bytes() {
    let mut chip = chip();
    command(&mut chip, WRITE_ENABLE, 0, 0);
    command(&mut chip, ERASE_SECTOR, 0x3000, 0);
    let sent: Vec<u8> = (0..300u16).map(|at| if at < 44 { 0x0F } else { 0x80 | (at % 113) as u8 }).collect();
    set(&mut chip, 0x7000, &sent);
    command(&mut chip, WRITE_ENABLE, 0, 0);
    command(&mut chip, PROGRAM, 0x3010, 300);
    // Byte n goes to (0x10 + n) within the page, and a later byte replaces an earlier one.
    let expected: Vec<u8> = (0..256).map(|at| sent[44 + (at + 256 - (0x10 + 44)) % 256]).collect();
    assert_eq!(cells(&mut chip)[0x3000..0x3100], expected);
    assert!(cells(&mut chip)[0x3100..0x3200].iter().all(|cell| *cell == 0xFF));
}

#[test]
fn out_data_land_at_7000_and_leave_what_waits_at_8000() {
    let mut chip = chip();
    set(&mut chip, 0x8000, &[0xA5; 64]);
    set(&mut chip, 0x9094, &[0x10]);
    assert_eq!(chip.bulk_out(DATA_OUT, 0, &[0x3C; 64]), PacketOut::Accepted);
    assert_eq!(
        (get(&chip, 0x7000), get(&chip, 0x703F), get(&chip, 0x8000), get(&chip, 0x803F)),
        (0x3C, 0x3C, 0xA5, 0xA5)
    );
}
