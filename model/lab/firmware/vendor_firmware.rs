//! Executes the facts about image 240417 in `docs/lab/firmware.md`. The page names each test.
//!
//! `ASMPATCH_VENDOR_IMAGE=FILE cargo test --test firmware vendor_firmware:: -- --include-ignored`
use std::cell::RefCell;
use std::rc::Rc;

use asm2464::firmware::{CodeAddress, FlashAddress, Image};
use asm2464::flash::SLOT_LEN;
use asm2464::scsi::runtime::INITIALISATION;
use asm2464::scsi::{Sense, SenseKey, XdataAddress, XdataPage};
use asm2464_chip::chip::{Answer, Chip, Data, Driver, Ending, RunEnd, Unanswered, boot};
use asm2464_chip::mcu::{Observer, Step};
use asm2464_chip::spi_flash::SpiFlash;

use crate::chip_images::{patched, vendor};

/// Alternate settings of the interface.
const BULK_ONLY: u8 = 0;
const UAS: u8 = 1;
/// IDATA address of a command's status.
const STATUS: usize = 0x6A;
/// IDATA address of the low byte of the running bank's return stub.
const RETURN_STUB: usize = 0x08;

/// A unit from reset, with a flash pattern that differs at every place and in both slots.
fn unit(alternate: u8) -> Driver {
    let mut unit = booted(&vendor(), alternate);
    for (at, cell) in unit.chip.flash_mut().cells.iter_mut().enumerate() {
        *cell = (at ^ (at >> 8) ^ (at >> 16)) as u8;
    }
    unit
}

fn booted(image: &Image, alternate: u8) -> Driver {
    boot::booted(image, alternate).unwrap()
}

/// A unit after an E1 that changed nothing, with an erased flash.
fn with_e1(alternate: u8) -> Driver {
    let mut unit = unit(alternate);
    assert_eq!(run(&mut unit, &[0xE1, 0x50, 1], Data::Out(&[0xFF; 128])).0, Ending::Good);
    *unit.chip.flash_mut() = SpiFlash::erased();
    unit
}

fn run(unit: &mut Driver, cdb: &[u8], data: Data<'_>) -> (Ending, Vec<u8>) {
    let Answer { data, ending, .. } = unit.command(cdb, data).unwrap();
    (ending, data)
}

/// Returns how a command without data ends.
fn ending(unit: &mut Driver, cdb: &[u8]) -> Ending {
    run(unit, cdb, Data::None).0
}

fn sense(key: u8, asc: u8) -> Ending {
    Ending::Check(Some(Sense::new(SenseKey(key), asc, 0)))
}

fn flash_length(mode: u8, opcode: u8, len: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, mode];
    cdb.extend(len.to_be_bytes());
    cdb
}

/// One call of a routine.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Call {
    sp: u8,
    begun: u64,
    /// R7 at the call, and at the return.
    r7: [u8; 2],
    /// IDATA 0x08 at the call.
    stub: u8,
    /// Number of instructions until the return; 0 before.
    instructions: u64,
}

/// Records the calls of the routine at an address.
struct Calls {
    of: CodeAddress,
    seen: Vec<Call>,
}

impl Observer for Calls {
    fn before(&mut self, step: &Step<'_>) {
        let (sp, r7) = (step.cpu.sp(), step.cpu.r(7));
        if let Some(call) = self.seen.last_mut().filter(|call| call.instructions == 0 && sp < call.sp) {
            (call.instructions, call.r7[1]) = (step.number - call.begun, r7);
        }
        if step.at == self.of {
            let stub = step.cpu.internal_ram[RETURN_STUB];
            self.seen.push(Call { sp, begun: step.number, r7: [r7, 0], stub, instructions: 0 });
        }
    }
}

/// Sends a command. Returns its answer, and the calls of a routine during it.
fn calls(unit: &mut Driver, of: &str, cdb: &[u8], data: Data<'_>) -> (Result<Answer, Unanswered>, Vec<Call>) {
    let calls = Rc::new(RefCell::new(Calls { of: of.parse().unwrap(), seen: Vec::new() }));
    let eyes = Rc::clone(&calls);
    unit.set_runner(move |chip, budget| chip.run_observed(budget, &mut *eyes.borrow_mut()));
    let answer = unit.command(cdb, data);
    unit.set_runner(Chip::run);
    let seen = calls.borrow().seen.clone();
    (answer, seen)
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e0_reads_configuration_blocks_of_either_slot() {
    let mut unit = unit(UAS);
    for (mode, slot) in [(0x50, 0), (0x51, SLOT_LEN)] {
        for block in [0, 1] {
            let at = slot + usize::from(block) * 0x80;
            let expected = unit.chip.flash().cells[at..at + 0x80].to_vec();
            assert_eq!(run(&mut unit, &[0xE0, mode, block, 0, 0, 0], Data::None), (Ending::Good, expected));
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e0_of_a_missing_block_is_an_unrecovered_read_error() {
    assert_eq!(ending(&mut unit(UAS), &[0xE0, 0x50, 2, 0, 0, 0]), sense(3, 0x11));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e0_over_bulk_only_wants_a_host_length_of_exactly_128() {
    for (host_len, expected) in [(127, sense(5, 0x24)), (128, Ending::Good), (129, sense(5, 0x24))] {
        let found = run(&mut unit(BULK_ONLY), &[0xE0, 0x50, 0, 0, 0, 0], Data::In(host_len)).0;
        assert_eq!(found, expected, "{host_len}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e1_of_block_0_erases_all_of_its_slot_and_e1_of_block_1_erases_nothing() {
    for (mode, slot) in [(0x50, 0), (0x51, SLOT_LEN)] {
        let mut unit = unit(BULK_ONLY);
        let before = unit.chip.flash().cells.to_vec();
        let block: Vec<u8> = (0..0x80).map(|at| at ^ 0x5A).collect();
        assert_eq!(run(&mut unit, &[0xE1, mode, 0], Data::Out(&block)).0, Ending::Good);
        let cells = &unit.chip.flash().cells;
        assert_eq!(cells[slot..slot + 0x80], block);
        assert!(cells[slot + 0x80..slot + SLOT_LEN].iter().all(|cell| *cell == 0xFF), "both 64 KiB blocks");
        let other = SLOT_LEN - slot;
        assert_eq!(cells[other..other + SLOT_LEN], before[other..other + SLOT_LEN], "other slot unchanged");

        // Without an erase, a program only clears bits.
        for (data, left) in [(0xF5, 0xF5), (0x5F, 0x55)] {
            assert_eq!(run(&mut unit, &[0xE1, mode, 1], Data::Out(&[data; 0x80])).0, Ending::Good);
            let cells = &unit.chip.flash().cells;
            assert_eq!(cells[slot + 0x80..slot + 0x100], [left; 0x80]);
            assert_eq!(cells[slot..slot + 0x80], block);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_start_up_protects_the_flash_and_e1_of_block_0_takes_the_protection_away() {
    const PROTECTION: u8 = 0x1C;
    let mut unit = unit(BULK_ONLY);
    assert_eq!(unit.chip.flash().status() & PROTECTION, PROTECTION);
    let before = unit.chip.flash().cells.to_vec();
    assert_eq!(run(&mut unit, &[0xE1, 0x50, 1], Data::Out(&[0; 0x80])).0, Ending::Good);
    assert!(unit.chip.flash().cells == before);
    assert_eq!(run(&mut unit, &[0xE1, 0x50, 0], Data::Out(&[0; 0x80])).0, Ending::Good);
    assert_eq!(unit.chip.flash().status() & PROTECTION, 0);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e2_reads_both_parts_of_both_slots() {
    let mut unit = unit(UAS);
    for (mode, start) in [(0x50, 0x100), (0xD0, 0x1_0000), (0x51, 0x2_0100), (0xD1, 0x3_0000)] {
        for len in [1, 0x3FF, 0x400, 0x401, 0xFF00] {
            let expected = unit.chip.flash().cells[start..start + len].to_vec();
            let (ending, data) = run(&mut unit, &flash_length(mode, 0xE2, len as u32), Data::None);
            assert_eq!(ending, Ending::Good, "{mode:#04x} {len:#x}");
            assert!(data == expected, "{mode:#04x} {len:#x}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e2_moves_at_most_64_kib() {
    assert_eq!(run(&mut unit(UAS), &flash_length(0xD0, 0xE2, 0x1_0000), Data::None).1.len(), 0x1_0000);
    assert_eq!(ending(&mut unit(UAS), &flash_length(0xD0, 0xE2, 0x1_0001)), sense(5, 0x24));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e2_over_bulk_only_moves_what_the_cbw_says_and_not_what_the_cdb_says() {
    assert_eq!(run(&mut unit(BULK_ONLY), &flash_length(0x50, 0xE2, 0x800), Data::In(255)).1.len(), 255);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e3_programs_both_parts_of_both_slots_and_erases_nothing() {
    for (mode, start, len) in
        [(0x50, 0x100, 0xFF00), (0xD0, 0x1_0000, 0x7FE0), (0x51, 0x2_0100, 0x401), (0xD1, 0x3_0000, 0x1_0000)]
    {
        let mut unit = with_e1(BULK_ONLY);
        unit.chip.flash_mut().program(FlashAddress(start as u32 + 5), &[0x0F]).unwrap();
        let mut expected: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let cdb = flash_length(mode, 0xE3, len as u32);
        assert_eq!(run(&mut unit, &cdb, Data::Out(&expected)).0, Ending::Good, "{mode:#04x}");
        expected[5] &= 0x0F;
        let cells = &unit.chip.flash().cells;
        assert!(cells[start..start + len] == expected, "{mode:#04x}");
        assert!(cells[..start].iter().chain(&cells[start + len..]).all(|cell| *cell == 0xFF), "{mode:#04x}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e3_takes_at_most_0xff00_bytes_of_part_1_and_0x10000_of_part_2() {
    for (mode, most) in [(0x50, 0xFF00), (0x51, 0xFF00), (0xD0, 0x1_0000), (0xD1, 0x1_0000)] {
        let data = vec![0xFF; most as usize];
        let taken = run(&mut with_e1(UAS), &flash_length(mode, 0xE3, most), Data::Out(&data)).0;
        assert_eq!(taken, Ending::Good, "{mode:#04x}");
        assert_eq!(ending(&mut unit(UAS), &flash_length(mode, 0xE3, most + 1)), sense(5, 0x24));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e4_reads_either_page_at_any_address() {
    for wire in [UAS, BULK_ONLY] {
        let mut unit = unit(wire);
        for page in [XdataPage::Main, XdataPage::Other] {
            let mode = if page == XdataPage::Main { 0x50 } else { 0x51 };
            for (addr, len) in [(0x1000u16, 0u8), (0x1000, 1), (0x2FFF, 255), (0xF000, 255), (0x5FF0, 64)] {
                let expected: Vec<u8> = (0..len).map(|at| at.wrapping_mul(7) ^ mode).collect();
                unit.chip.poke(XdataAddress { page, addr }, &expected);
                let [high, low] = addr.to_be_bytes();
                let found = run(&mut unit, &[0xE4, len, mode, high, low, 0], Data::In(0x1_0000));
                assert_eq!(found, (Ending::Good, expected), "{page:?} {addr:#06x} {len} {wire:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e4_takes_its_length_from_cdb_byte_1_alone() {
    assert_eq!(run(&mut unit(UAS), &[0xE4, 3, 0x50, 0x10, 0x00, 0x10], Data::None).1.len(), 3);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e4_of_255_bytes_takes_11182_instructions_in_its_handler() {
    let cdb = [0xE4, 255, 0x50, 0xF0, 0x00, 0];
    let (answer, calls) = calls(&mut unit(BULK_ONLY), "b1:0xC98D", &cdb, Data::In(255));
    assert_eq!(answer.unwrap().data.len(), 255);
    assert!(matches!(calls[..], [Call { r7: [_, 1], instructions: 11_182, .. }]), "{calls:?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e5_writes_one_byte_into_either_page() {
    let mut unit = unit(UAS);
    for (mode, page) in [(0x50, XdataPage::Main), (0x51, XdataPage::Other)] {
        assert_eq!(ending(&mut unit, &[0xE5, mode ^ 0xFF, mode, 0x23, 0x45, 0]), Ending::Good);
        assert_eq!(unit.chip.memory().page(page)[0x2345], mode ^ 0xFF);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e8_asks_for_state_0x60_or_0x8a() {
    for wire in [UAS, BULK_ONLY] {
        for (mode, state, outcome) in [(0x50, 0x60, RunEnd::Reset), (0x51, 0x8A, RunEnd::Parked)] {
            let mut unit = unit(wire);
            assert_eq!(ending(&mut unit, &[0xE8, mode]), Ending::Good);
            assert_eq!(unit.chip.memory().main()[0x0003], state);
            assert_eq!(unit.settle(), outcome);
            assert!(!unit.chip.is_on_bus());
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_wrong_mode_is_an_invalid_field_and_with_e8_an_invalid_opcode() {
    let e4 = [0xE4, 1, 0x52, 0, 0, 0];
    let e5 = [0xE5, 1, 0x4F, 0, 0, 0];
    let mut unit = unit(UAS);
    for cdb in [&[0xE0, 0x52, 0][..], &[0xE1, 0x00, 0], &[0xE2, 0x52, 0, 0, 0, 1], &[0xE3, 0x4F, 0, 0, 0, 1], &e4, &e5]
    {
        assert_eq!(ending(&mut unit, cdb), sense(5, 0x24), "{cdb:02x?}");
    }
    assert_eq!(ending(&mut unit, &[0xE8, 0x52]), sense(5, 0x20));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_unknown_opcode_is_an_invalid_opcode() {
    assert_eq!(ending(&mut unit(UAS), &[0xC0, 0, 0, 0, 0, 0]), sense(5, 0x20));
}

/// A unit that a GPU runtime has initialised: the firmware assumes an NVMe device.
fn with_a_gpu_runtime(image: &Image, alternate: u8) -> Driver {
    let mut unit = booted(image, alternate);
    for (addr, value) in INITIALISATION {
        let [high, low] = addr.to_be_bytes();
        assert_eq!(ending(&mut unit, &[0xE5, value, 0x50, high, low, 0]), Ending::Good);
    }
    unit
}

/// Sends a command that is never answered. Returns IDATA 0x6A.
fn waits(unit: &mut Driver, cdb: &[u8], data: Data<'_>) -> u8 {
    assert_eq!(unit.command(cdb, data), Err(Unanswered::Silent(RunEnd::Parked)));
    unit.chip.cpu().internal_ram[STATUS]
}

const WRITE16: [u8; 16] = [0x8A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
const SECTORS: Data<'_> = Data::Out(&[0x5A; 4096]);
const READ16: [u8; 16] = [0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_uas_a_write_is_queued_with_status_0x0a_and_a_read_with_9() {
    assert_eq!(waits(&mut with_a_gpu_runtime(&vendor(), UAS), &WRITE16, SECTORS), 0x0A);
    assert_eq!(waits(&mut with_a_gpu_runtime(&vendor(), UAS), &READ16, Data::None), 9);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn with_the_status_patch_a_write_over_uas_is_answered_at_once_and_a_read_still_waits() {
    let mut unit = with_a_gpu_runtime(&patched(), UAS);
    assert_eq!(run(&mut unit, &WRITE16, SECTORS).0, Ending::Good);
    assert_eq!(waits(&mut unit, &READ16, Data::None), 9);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn over_bulk_only_a_write_waits_with_status_4_patched_or_not() {
    for image in [vendor(), patched()] {
        assert_eq!(waits(&mut with_a_gpu_runtime(&image, BULK_ONLY), &WRITE16, SECTORS), 4);
        assert_eq!(waits(&mut with_a_gpu_runtime(&image, BULK_ONLY), &READ16, Data::In(4096)), 3);
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_queue_routine_s_r7_tells_reads_by_bit_1_and_ten_byte_cdbs_by_bit_0() {
    const WRITE10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    const READ10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
    let commands: [(u8, &[u8], _, _); 4] = [
        (0, &WRITE16, SECTORS, 0x0A),
        (1, &WRITE10, SECTORS, 0x0A),
        (2, &READ16, Data::None, 9),
        (3, &READ10, Data::None, 9),
    ];
    for (r7, cdb, data, status) in commands {
        let (_, calls) = calls(&mut with_a_gpu_runtime(&vendor(), UAS), "c:0x2814", cdb, data);
        assert_eq!(calls.iter().map(|call| call.r7).collect::<Vec<_>>(), [[r7, status]], "{cdb:02x?}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_bank_switch_stub_returns_into_the_bank_that_called_it() {
    // Bank 1's E4 handler calls 0x04CB, which runs b0:0xE7C1 and returns. If IDATA 0x08 did not hold the caller's stub,
    // the firmware would continue in bank 0.
    let cdb = [0xE4, 1, 0x50, 0, 0, 0];
    for (routine, stub) in [("b1:0xC98D", 0x1B), ("b0:0xE7C1", 0x0A)] {
        let mut unit = unit(UAS);
        let (answer, calls) = calls(&mut unit, routine, &cdb, Data::None);
        assert_eq!(answer.unwrap().ending, Ending::Good);
        assert_eq!(calls.iter().map(|call| call.stub).collect::<Vec<_>>(), [stub], "{routine}");
        assert_eq!(unit.chip.cpu().internal_ram[RETURN_STUB], 0x0A, "the main loop's");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn before_any_e1_has_set_its_program_length_e3_never_ends() {
    let mut unit = unit(BULK_ONLY);
    assert_eq!(unit.chip.memory().main()[0x0B21], 0);
    unit.set_budget(1_000_000);
    let cdb = flash_length(0x50, 0xE3, 0x400);
    assert!(matches!(unit.command(&cdb, Data::Out(&[0; 0x400])), Err(Unanswered::Silent(RunEnd::Budget))));
}
