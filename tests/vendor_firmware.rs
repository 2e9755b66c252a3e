//! What image 240417 does, executed: the facts of `docs/firmware.md`, each under the name that the page gives.
//!
//! `ASMPATCH_VENDOR_IMAGE=FILE cargo test --test vendor_firmware -- --include-ignored`

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

use asmpatch::firmware::{CodeAddress, FlashAddress, Image};
use asmpatch::mcu::{FirmwareCpu, Machine, MemoryFlash, Reg, Reply, RunError, SpiFlash, Wire, checklist, conventions};
use asmpatch::scsi::bot::Direction;
use asmpatch::scsi::{Cdb, Sense, SenseKey, XdataPage};

type Unit = FirmwareCpu<MemoryFlash>;

const BULK_ONLY_IN: Wire = Wire::BulkOnly { host_len: 0x1_0000, direction: Direction::In };
const SECOND_SLOT: usize = 0x2_0000;

fn vendor_image() -> Image {
    let path =
        std::env::var_os("ASMPATCH_VENDOR_IMAGE").expect("set ASMPATCH_VENDOR_IMAGE to the file of image 240417");
    Image::parse(&std::fs::read(path).expect("ASMPATCH_VENDOR_IMAGE names a readable file")).expect("an image")
}

/// A unit whose flash holds a pattern that tells every place from its neighbours and both slots apart.
fn unit() -> Unit {
    let mut flash = MemoryFlash::erased();
    for (at, cell) in flash.cells_mut().iter_mut().enumerate() {
        *cell = (at ^ (at >> 8) ^ (at >> 16)) as u8;
    }
    FirmwareCpu::new(&vendor_image(), flash)
}

fn run(unit: &mut Unit, wire: Wire, cdb: &[u8]) -> (Reply, Vec<u8>) {
    let mut data = Vec::new();
    let reply = unit.begin(wire, &Cdb::new(cdb).unwrap(), &mut data).unwrap();
    (reply, data)
}

fn sense(key: u8, asc: u8) -> Reply {
    Reply::Check(Sense::new(SenseKey(key), asc, 0))
}

fn bulk_only_out(host_len: u32) -> Wire {
    Wire::BulkOnly { host_len, direction: Direction::Out }
}

fn flash_length(mode: u8, opcode: u8, len: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, mode];
    cdb.extend(len.to_be_bytes());
    cdb
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e0_reads_configuration_blocks_of_either_slot() {
    let mut unit = unit();
    for (mode, slot) in [(0x50, 0), (0x51, SECOND_SLOT)] {
        for block in [0, 1] {
            let at = slot + usize::from(block) * 0x80;
            let expected = unit.flash_mut().cells()[at..at + 0x80].to_vec();
            assert_eq!(run(&mut unit, Wire::Uas, &[0xE0, mode, block, 0, 0, 0]), (Reply::DataIn, expected));
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e0_of_a_block_that_there_is_not_is_an_unrecovered_read_error() {
    assert_eq!(run(&mut unit(), Wire::Uas, &[0xE0, 0x50, 2, 0, 0, 0]).0, sense(3, 0x11));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e0_over_bulk_only_wants_a_host_length_of_exactly_128() {
    for (host_len, expected) in [(127, sense(5, 0x24)), (128, Reply::DataIn), (129, sense(5, 0x24))] {
        let wire = Wire::BulkOnly { host_len, direction: Direction::In };
        assert_eq!(run(&mut unit(), wire, &[0xE0, 0x50, 0, 0, 0, 0]).0, expected, "{host_len}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e1_of_block_0_erases_all_of_its_slot_and_e1_of_block_1_erases_nothing() {
    for (mode, slot) in [(0x50, 0), (0x51, SECOND_SLOT)] {
        let mut unit = unit();
        let before = unit.flash_mut().cells().to_vec();
        let block: Vec<u8> = (0..0x80).map(|at| at ^ 0x5A).collect();
        assert_eq!(run(&mut unit, bulk_only_out(128), &[0xE1, mode, 1]).0, Reply::DataOut(128));
        assert_eq!(unit.give(&block), Ok(Reply::Good));
        // Without an erase, programming only clears bits.
        let expected: Vec<u8> =
            before[slot + 0x80..slot + 0x100].iter().zip(&block).map(|(old, new)| old & new).collect();
        assert_eq!(unit.flash_mut().cells()[slot + 0x80..slot + 0x100], expected);
        assert_eq!(unit.flash_mut().cells()[slot..slot + 0x80], before[slot..slot + 0x80]);

        assert_eq!(run(&mut unit, bulk_only_out(128), &[0xE1, mode, 0]).0, Reply::DataOut(128));
        assert_eq!(unit.give(&block), Ok(Reply::Good));
        let cells = unit.flash_mut().cells();
        assert_eq!(cells[slot..slot + 0x80], block);
        assert!(cells[slot + 0x80..slot + SECOND_SLOT].iter().all(|cell| *cell == 0xFF), "both 64 KiB blocks");
        let other = SECOND_SLOT - slot;
        assert_eq!(cells[other..other + SECOND_SLOT], before[other..other + SECOND_SLOT], "the other slot stays");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e2_reads_both_parts_of_both_slots() {
    let mut unit = unit();
    for (mode, start) in [(0x50, 0x100), (0xD0, 0x1_0000), (0x51, 0x2_0100), (0xD1, 0x3_0000)] {
        for len in [1, 0x3FF, 0x400, 0x401, 0xFF00] {
            let expected = unit.flash_mut().cells()[start..start + len].to_vec();
            let (reply, data) = run(&mut unit, Wire::Uas, &flash_length(mode, 0xE2, len as u32));
            assert_eq!(reply, Reply::DataIn, "{mode:#04x} {len:#x}");
            assert!(data == expected, "{mode:#04x} {len:#x}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e2_moves_at_most_64_kib() {
    assert_eq!(run(&mut unit(), Wire::Uas, &flash_length(0xD0, 0xE2, 0x1_0000)).1.len(), 0x1_0000);
    assert_eq!(run(&mut unit(), Wire::Uas, &flash_length(0xD0, 0xE2, 0x1_0001)).0, sense(5, 0x24));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e2_over_bulk_only_moves_what_the_cbw_says_and_not_what_the_cdb_says() {
    let wire = Wire::BulkOnly { host_len: 255, direction: Direction::In };
    assert_eq!(run(&mut unit(), wire, &flash_length(0x50, 0xE2, 0x800)).1.len(), 255);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e3_programs_both_parts_of_both_slots_and_erases_nothing() {
    for (mode, start, len) in
        [(0x50, 0x100, 0xFF00), (0xD0, 0x1_0000, 0x7FE0), (0x51, 0x2_0100, 0x401), (0xD1, 0x3_0000, 0x1_0000)]
    {
        let mut unit = FirmwareCpu::new(&vendor_image(), MemoryFlash::erased());
        unit.flash_mut().program(FlashAddress(start as u32 + 5), &[0x0F]).unwrap();
        let mut expected: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        assert_eq!(
            run(&mut unit, bulk_only_out(len as u32), &flash_length(mode, 0xE3, len as u32)).0,
            Reply::DataOut(len as u32)
        );
        assert_eq!(unit.give(&expected), Ok(Reply::Good), "{mode:#04x}");
        expected[5] &= 0x0F;
        let cells = unit.flash_mut().cells();
        assert!(cells[start..start + len] == expected, "{mode:#04x}");
        assert!(cells[..start].iter().chain(&cells[start + len..]).all(|cell| *cell == 0xFF), "{mode:#04x}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e3_takes_at_most_0xff00_bytes_of_part_1_and_0x10000_of_part_2() {
    for (mode, most) in [(0x50, 0xFF00), (0x51, 0xFF00), (0xD0, 0x1_0000), (0xD1, 0x1_0000)] {
        assert_eq!(run(&mut unit(), Wire::Uas, &flash_length(mode, 0xE3, most)).0, Reply::DataOut(most));
        assert_eq!(run(&mut unit(), Wire::Uas, &flash_length(mode, 0xE3, most + 1)).0, sense(5, 0x24));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e4_reads_either_page_at_any_address() {
    let mut unit = unit();
    for page in [XdataPage::Main, XdataPage::Other] {
        let mode = if page == XdataPage::Main { 0x50 } else { 0x51 };
        for (addr, len) in [(0x1000u16, 0u8), (0x1000, 1), (0x2FFF, 255), (0xF000, 255), (0x5FF0, 64)] {
            let memory = unit.machine_mut().xdata_mut().memory_mut().page_mut(page);
            let expected: Vec<u8> = (0..len).map(|at| at.wrapping_mul(7) ^ mode).collect();
            memory[usize::from(addr)..usize::from(addr) + usize::from(len)].copy_from_slice(&expected);
            let [high, low] = addr.to_be_bytes();
            for wire in [Wire::Uas, BULK_ONLY_IN] {
                let (reply, data) = run(&mut unit, wire, &[0xE4, len, mode, high, low, 0]);
                assert_eq!((reply, data), (Reply::DataIn, expected.clone()), "{page:?} {addr:#06x} {len} {wire:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e4_takes_its_length_from_cdb_byte_1_alone() {
    assert_eq!(run(&mut unit(), Wire::Uas, &[0xE4, 3, 0x50, 0x10, 0x00, 0x10]).1.len(), 3);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e4_of_255_bytes_takes_11182_instructions_in_its_handler() {
    let mut unit = unit();
    run(&mut unit, BULK_ONLY_IN, &[0xE4, 255, 0x50, 0xF0, 0x00, 0]);
    // The CDB stands where the dispatcher left it: the handler alone can be called again.
    let outcome = unit.machine_mut().call("b1:0xC98D".parse().unwrap(), 20_000).unwrap();
    assert_eq!((outcome.r7, outcome.instructions), (1, 11_182));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e5_writes_one_byte_into_either_page() {
    let mut unit = unit();
    for (mode, page) in [(0x50, XdataPage::Main), (0x51, XdataPage::Other)] {
        assert_eq!(run(&mut unit, Wire::Uas, &[0xE5, mode ^ 0xFF, mode, 0x23, 0x45, 0]).0, Reply::Good);
        assert_eq!(unit.machine().xdata().memory().page(page)[0x2345], mode ^ 0xFF);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e8_asks_for_state_0x60_or_0x8a() {
    for wire in [Wire::Uas, Wire::BulkOnly { host_len: 0, direction: Direction::In }] {
        assert_eq!(run(&mut unit(), wire, &[0xE8, 0x50]).0, Reply::Reset(0x60));
        assert_eq!(run(&mut unit(), wire, &[0xE8, 0x51]).0, Reply::Reset(0x8A));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_wrong_mode_is_an_invalid_field_and_with_e8_an_invalid_opcode() {
    let e4 = [0xE4, 1, 0x52, 0, 0, 0];
    let e5 = [0xE5, 1, 0x4F, 0, 0, 0];
    for cdb in [&[0xE0, 0x52, 0][..], &[0xE1, 0x00, 0], &[0xE2, 0x52, 0, 0, 0, 1], &[0xE3, 0x4F, 0, 0, 0, 1], &e4, &e5]
    {
        assert_eq!(run(&mut unit(), Wire::Uas, cdb).0, sense(5, 0x24), "{cdb:02x?}");
    }
    assert_eq!(run(&mut unit(), Wire::Uas, &[0xE8, 0x52]).0, sense(5, 0x20));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_unknown_opcode_is_an_invalid_opcode() {
    assert_eq!(run(&mut unit(), Wire::Uas, &[0xC0, 0, 0, 0, 0, 0]).0, sense(5, 0x20));
}

/// What a GPU runtime writes before its first WRITE(16), so that the firmware believes in an NVMe device, and the two
/// registers that tell of a live PCIe link.
fn with_a_gpu_runtime(image: &Image) -> Unit {
    let mut unit = FirmwareCpu::new(image, MemoryFlash::erased());
    for (addr, value) in [
        (0x054Bu16, 0x20),
        (0x054E, 0x04),
        (0x05A8, 0x02),
        (0x05F8, 0x04),
        (0x07EC, 0x01),
        (0x07ED, 0x00),
        (0x07EE, 0x00),
        (0x07EF, 0x00),
        (0xC422, 0x02),
        (0x0000, 0x33),
    ] {
        let [high, low] = addr.to_be_bytes();
        assert_eq!(run(&mut unit, Wire::Uas, &[0xE5, value, 0x50, high, low, 0]).0, Reply::Good);
    }
    let registers = unit.machine_mut().xdata_mut().memory_mut().main_mut();
    registers[0xB480] |= 0x01;
    registers[0xC656] |= 0x20;
    unit
}

const WRITE16: [u8; 16] = [0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
const READ16: [u8; 16] = [0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_uas_a_write_is_queued_with_status_0x0a_and_a_read_with_9() {
    let mut unit = with_a_gpu_runtime(&vendor_image());
    assert_eq!(run(&mut unit, Wire::Uas, &WRITE16).0, Reply::Queued(Direction::Out));
    assert_eq!(unit.machine().idata()[usize::from(conventions::STATUS)], 0x0A);
    assert_eq!(run(&mut unit, Wire::Uas, &READ16).0, Reply::Queued(Direction::In));
    assert_eq!(unit.machine().idata()[usize::from(conventions::STATUS)], 9);
}

fn status_patched() -> Image {
    let mut image = vendor_image();
    let at: CodeAddress = "c:0x2A0E".parse().unwrap();
    assert_eq!(image.code(at), Some(0x0A));
    assert!(image.replace(at.body_offset(), &[0x05]));
    image
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn with_the_status_patch_a_write_over_uas_is_answered_at_once_and_a_read_still_waits() {
    let mut unit = with_a_gpu_runtime(&status_patched());
    assert_eq!(run(&mut unit, Wire::Uas, &WRITE16).0, Reply::Good);
    assert_eq!(run(&mut unit, Wire::Uas, &READ16).0, Reply::Queued(Direction::In));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_bulk_only_a_write_waits_with_status_4_patched_or_not() {
    for image in [vendor_image(), status_patched()] {
        let mut unit = with_a_gpu_runtime(&image);
        let (reply, _) = run(&mut unit, bulk_only_out(4096), &WRITE16);
        assert_eq!(reply, Reply::Queued(Direction::Out));
        assert_eq!(unit.machine().idata()[usize::from(conventions::STATUS)], 4);
        assert_eq!(run(&mut unit, BULK_ONLY_IN, &READ16).0, Reply::Queued(Direction::In));
        assert_eq!(unit.machine().idata()[usize::from(conventions::STATUS)], 3);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_queue_routine_s_r7_tells_reads_by_bit_1_and_ten_byte_cdbs_by_bit_0() {
    const WRITE10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    for (r7, cdb, expected) in [(0, &WRITE16[..], 0x0A), (1, &WRITE10, 0x0A), (2, &WRITE16, 9), (3, &WRITE10, 9)] {
        let mut unit = with_a_gpu_runtime(&vendor_image());
        run(&mut unit, Wire::Uas, cdb);
        let machine = unit.machine_mut();
        machine.set_reg(Reg::R(7), r7);
        assert_eq!(machine.call(conventions::QUEUE, 100_000).map(|outcome| outcome.r7), Ok(expected), "R7 = {r7}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_bank_switch_stub_returns_into_the_bank_that_called_it() {
    // E7: bank 1's E4 handler calls 0x04CB, which runs b0:0xE7C1 and comes back: the machine would leave the code
    // if IDATA 0x08 did not hold the caller's stub.
    let mut unit = unit();
    let machine: &mut Machine<_> = unit.machine_mut();
    machine.idata_mut()[8] = 0;
    let outcome = run(&mut unit, Wire::Uas, &[0xE4, 1, 0x50, 0, 0, 0]);
    assert_eq!((outcome.0, unit.machine().idata()[8]), (Reply::DataIn, 0x0A));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn without_the_start_up_s_program_length_e3_never_ends() {
    let mut unit = unit();
    unit.machine_mut().xdata_mut().memory_mut().main_mut()[usize::from(conventions::FLASH_PROGRAM_LEN)] = 0;
    assert_eq!(run(&mut unit, Wire::Uas, &flash_length(0x50, 0xE3, 0x400)).0, Reply::DataOut(0x400));
    unit.set_budget(100_000);
    assert!(matches!(unit.give(&[0; 0x400]), Err(RunError::Budget { .. })));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_checklist_holds_for_the_stock_image_and_for_the_status_patched_one() {
    for (image, status_patch) in [(vendor_image(), false), (status_patched(), true)] {
        let expected = checklist::Expected { status_patch, e4_length_16: false, read16_sram: false };
        let checked = checklist::run(&image, expected).unwrap();
        let failed: Vec<_> = checked.iter().filter(|check| !check.holds()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }
}
