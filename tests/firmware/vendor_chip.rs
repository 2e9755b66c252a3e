//! The vendor's image on the whole chip model, from the reset vector. `ASMPATCH_VENDOR_IMAGE` names the image.
use asm2464::firmware::{Image, known_blocks};
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{
    COMMAND_OUT, DATA_IN, DATA_OUT, Data, Driver, Outcome, PacketIn, PacketOut, STATUS_IN, Speed, Unanswered,
};
use asm2464_chip::mcu::{AccessKind, MemoryFlash};

use crate::chip_images::{patched, powered_on, vendor};

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];
const VERSION: [u8; 4] = [0x24, 0x04, 0x17, 0x85];
/// E4 that reads the running version.
const READ_VERSION: [u8; 6] = [0xE4, 4, 0x50, 0x07, 0xF0, 0];
/// Response codes of UAS.
const COMPLETE: u8 = 0x00;
const INVALID_UNIT: u8 = 0x02;
const NOT_SUPPORTED: u8 = 0x04;
const SUCCEEDED: u8 = 0x08;

fn on_bulk_only(image: &Image, speed: Speed) -> Driver<MemoryFlash> {
    let mut unit = powered_on(image, speed);
    unit.enumerate().unwrap();
    unit
}

fn on_uas(image: &Image, speed: Speed) -> Driver<MemoryFlash> {
    let mut unit = on_bulk_only(image, speed);
    unit.set_alternate(1).unwrap();
    unit
}

/// Whether this is the answer to INQUIRY, with the configuration block's names.
fn is_inquiry(data: &[u8]) -> bool {
    data.len() == 36 && data.starts_with(&[0x00, 0x80]) && data[8..].starts_with(b"tiny    TinyEnclosure")
}

/// Whether this is a sense unit with good status.
fn is_good(status: &[u8], tag: u8) -> bool {
    status.starts_with(&[0x03, 0, 0, tag, 0, 0, 0])
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_boots_to_its_main_loop_and_waits_there() {
    for image in [vendor(), patched()] {
        let mut unit = powered_on(&image, Speed::Super);
        assert_eq!(unit.settle(), Outcome::Parked);
        let instructions = unit.chip.instructions();
        assert!((60_000..300_000).contains(&instructions), "{instructions}");
        assert_eq!(unit.settle(), Outcome::Parked);
        assert_eq!(unit.chip.instructions(), instructions, "a parked chip costs nothing");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_register_that_nobody_models_is_listed_once_with_its_place() {
    let mut unit = on_bulk_only(&vendor(), Speed::Super);
    let list = unit.chip.unknown_registers();
    let reads: Vec<_> =
        list.iter().filter(|access| access.at.addr == 0x92E1 && access.kind == AccessKind::Read).collect();
    assert_eq!(reads.iter().map(|access| access.pc).collect::<Vec<_>>(), [0xBBA8]);
    assert!(!list.iter().any(|access| access.at.addr == 0x9091), "a modelled one is not listed");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_describes_itself_by_its_configuration_block() {
    let mut unit = powered_on(&vendor(), Speed::Super);
    unit.settle();
    let device = unit.descriptor(1, 0, 18).unwrap();
    assert_eq!(device[..12], [0x12, 1, 0x20, 3, 0, 0, 0, 9, 0xD1, 0xAD, 0x01, 0x00], "SuperSpeed, ADD1:0001");
    let first = unit.descriptor(1, 0, 8).unwrap();
    assert_eq!(first, device[..8], "a short read is cut");
    let bos = unit.descriptor(15, 0, 255).unwrap();
    assert_eq!((bos[1], usize::from(bos[2])), (15, bos.len()));
    let configuration = unit.descriptor(2, 0, 255).unwrap();
    assert_eq!((configuration.len(), configuration[2]), (0x79, 0x79));
    let interfaces: Vec<_> =
        configuration.windows(9).filter(|at| at[..3] == [9, 4, 0]).map(|at| (at[3], at[4], at[7])).collect();
    assert_eq!(interfaces, [(0, 2, 0x50), (1, 4, 0x62)], "Bulk-Only and UAS");
    let product = unit.descriptor(3, device[15], 255).unwrap();
    let text: Vec<u8> = product[2..].iter().copied().step_by(2).collect();
    assert_eq!(String::from_utf8_lossy(&text), "USB 3.2 PCIe TinyEnclosure");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_answers_the_standard_requests_of_a_host() {
    let mut unit = on_bulk_only(&vendor(), Speed::Super);
    assert_eq!(unit.control([0x80, 8, 0, 0, 0, 0, 1, 0], &[]), Ok(vec![1]), "GET_CONFIGURATION");
    assert_eq!(unit.control([0x81, 10, 0, 0, 0, 0, 1, 0], &[]), Ok(vec![0]), "GET_INTERFACE");
    assert_eq!(unit.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[]).map(|data| data.len()), Ok(2), "GET_STATUS");
    assert_eq!(unit.control([0x00, 0x30, 0, 0, 0, 0, 6, 0], &[1, 2, 3, 4, 5, 6]), Ok(vec![]), "SET_SEL");
    assert_eq!(unit.control([0x00, 0x31, 40, 0, 0, 0, 0, 0], &[]), Ok(vec![]), "SET_ISOCH_DELAY");
    assert_eq!(unit.control([0xA1, 0xFE, 0, 0, 0, 0, 1, 0], &[]), Ok(vec![0]), "GET_MAX_LUN");
    assert_eq!(unit.control([0x21, 0xFF, 0, 0, 0, 0, 0, 0], &[]), Ok(vec![]), "Bulk-Only reset");
    assert_eq!(unit.clear_halt(0x81), Ok(()));
    assert_eq!(unit.control([0x80, 0xAA, 0, 0, 0, 0, 1, 0], &[]), Err(Unanswered::Stall), "no such request");
    assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn bulk_only_commands_end_in_the_firmwares_own_status() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_bulk_only(&vendor(), speed);
        let reply = unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
        assert!(is_inquiry(&reply.data) && (reply.status, reply.residue) == (0, 0), "{reply:02X?}");
        assert_eq!(unit.bulk_only(&[0; 6], Data::None).unwrap().status, 1, "no medium");
        let sense = unit.bulk_only(&[3, 0, 0, 0, 18, 0], Data::In(18)).unwrap();
        assert_eq!((sense.data[2], sense.data[12]), (0x02, 0x3A));
        assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(4)).unwrap().data, VERSION);
        let longer = unit.bulk_only(&[0x12, 0, 0, 0, 255, 0], Data::In(255)).unwrap();
        assert_eq!((longer.data.len(), longer.residue), (76, 255 - 76));
        let wrong = unit.bulk_only(&[0xE4, 4, 0x52, 0, 0, 0], Data::In(4)).unwrap();
        assert_eq!((wrong.data.len(), wrong.status), (0, 1));
        let too_short = unit.bulk_only(&[0xE4, 16, 0x50, 0x07, 0xF0, 0], Data::In(4)).unwrap();
        assert_eq!((too_short.data.len(), too_short.status), (0, 2), "a phase error");
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e5_writes_what_e4_reads_on_both_pages() {
    let mut unit = on_bulk_only(&vendor(), Speed::Super);
    for (page, addr) in [(0x50, [0xF0, 0x07]), (0x50, [0x30, 0x10]), (0x51, [0x12, 0x34])] {
        assert_eq!(unit.bulk_only(&[0xE5, 0xA7, page, addr[0], addr[1], 0], Data::None).unwrap().status, 0);
        let reply = unit.bulk_only(&[0xE4, 1, page, addr[0], addr[1], 0], Data::In(1)).unwrap();
        assert_eq!(reply.data, [0xA7], "page {page:02X} address {addr:02X?}");
    }
    assert_eq!(unit.chip.sram()[7], 0xA7, "the window is the SRAM");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn its_flash_is_read_as_it_is_on_both_transports() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_bulk_only(&vendor(), speed);
        let block = unit.bulk_only(&[0xE0, 0x50, 0], Data::In(128)).unwrap().data;
        assert_eq!(block, known_blocks()[0].bytes());
        let part = unit.bulk_only(&[0xE2, 0x50, 0, 0, 0xFF, 0], Data::In(0xFF00)).unwrap();
        assert!(part.data == unit.chip.flash().cells[0x100..0x1_0000] && part.status == 0);
        unit.set_alternate(1).unwrap();
        let part = unit.uas(1, &[0xE2, 0xD0, 0, 0, 0x7F, 0], &[]).unwrap();
        assert!(part.data == unit.chip.flash().cells[0x1_0000..0x1_7F00] && is_good(&part.status, 1));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn an_image_is_flashed_and_runs_after_the_reset() {
    let mut unit = on_bulk_only(&vendor(), Speed::Super);
    unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
    let image = patched();
    let file = image.to_file();
    let [zero, one] = known_blocks();
    for (number, block) in [(0, &zero), (1, &one)] {
        let mut cdb = [0; 15];
        cdb[..3].copy_from_slice(&[0xE1, 0x50, number]);
        let reply = unit.bulk_only(&cdb, Data::Out(block.bytes())).unwrap();
        assert_eq!((reply.status, reply.residue), (0, 0));
    }
    assert!(unit.chip.flash().cells[0x100..0x8000].iter().all(|cell| *cell == 0xFF), "E1 of block 0 erases the slot");
    let (first, second) = file.split_at(0xFF00);
    for (mode, part) in [(0x50, first), (0xD0, second)] {
        let len = (part.len() as u32).to_be_bytes();
        let reply = unit.bulk_only(&[0xE3, mode, len[0], len[1], len[2], len[3]], Data::Out(part)).unwrap();
        assert_eq!((reply.status, reply.residue), (0, 0));
    }
    let cells = &unit.chip.flash().cells;
    assert!(cells[..128] == *zero.bytes() && cells[128..256] == *one.bytes());
    assert!(cells[0x100..0x1_0000] == *first && cells[0x1_0000..0x1_0000 + second.len()] == *second);
    let mut reset = [0; 15];
    reset[..2].copy_from_slice(&[0xE8, 0x50]);
    assert_eq!(unit.bulk_only(&reset, Data::None).unwrap().status, 0);
    assert_eq!(unit.settle(), Outcome::Reset);
    assert!(!unit.chip.is_on_bus());
    let chip = unit.chip.restart(asm2464_chip::mcu::CodeSpace::new(&image));
    let mut unit = Driver::new(chip);
    unit.enumerate().unwrap();
    assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(4)).unwrap().data, VERSION);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn e8_in_mode_0x51_takes_the_unit_off_the_bus_for_good() {
    let mut unit = on_bulk_only(&vendor(), Speed::Super);
    unit.bulk_only(&INQUIRY, Data::In(36)).unwrap();
    let mut halt = [0; 15];
    halt[..2].copy_from_slice(&[0xE8, 0x51]);
    assert_eq!(unit.bulk_only(&halt, Data::None).unwrap().status, 0);
    assert_eq!(unit.settle(), Outcome::Parked, "the CPU goes on");
    assert!(!unit.chip.is_on_bus());
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn uas_commands_end_in_the_firmwares_own_units() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_uas(&vendor(), speed);
        let reply = unit.uas(1, &INQUIRY, &[]).unwrap();
        assert!(is_inquiry(&reply.data) && is_good(&reply.status, 1), "{reply:02X?}");
        let refused = unit.uas(2, &[0; 6], &[]).unwrap().status;
        assert_eq!((refused[3], refused[6], refused[18], refused[28]), (2, 2, 0x02, 0x3A), "no medium");
        assert_eq!(unit.uas(3, &READ_VERSION, &[]).unwrap().data, VERSION);
        assert!(is_good(&unit.uas(4, &[0xE5, 0x5A, 0x50, 0xF0, 0x01, 0], &[]).unwrap().status, 4));
        assert_eq!(unit.uas(5, &[0xE4, 4, 0x50, 0xF0, 0x00, 0], &[]).unwrap().data, [0, 0x5A, 0, 0]);
        unit.set_alternate(0).unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn two_uas_commands_at_once_are_each_answered_on_their_stream() {
    let mut unit = on_uas(&vendor(), Speed::Super);
    for len in [7, 8] {
        unit.send_command(len, &[0xE4, len as u8, 0x50, 0x07, 0xF0, 0]).unwrap();
    }
    for len in [7, 8] {
        let reply = unit.finish_uas(len, &[]).unwrap();
        assert_eq!(reply.data.len(), usize::from(len));
        assert!(is_good(&reply.status, len as u8));
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn task_management_is_answered_with_response_units() {
    let mut unit = on_uas(&vendor(), Speed::Super);
    let mut ask = |id: u8, function: u8| {
        let mut task = [0; 16];
        task[..8].copy_from_slice(&[id, 0, 0, 9, function, 0, 0, 2]);
        unit.send(COMMAND_OUT, 0, &task).unwrap();
        let status = unit.finish_uas(9, &[]).unwrap().status;
        assert_eq!((status.len(), &status[..4]), (8, &[0x04, 0, 0, 9][..]));
        status[7]
    };
    for function in [0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80] {
        assert_eq!(ask(5, function), COMPLETE, "{function:02X}");
    }
    assert_eq!(ask(5, 0x20), NOT_SUPPORTED);
    assert_eq!(ask(5, 0x81), SUCCEEDED);
    assert_eq!(ask(7, 0), INVALID_UNIT, "an invalid unit");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_reset_of_the_port_brings_it_back_to_its_address_state() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_uas(&vendor(), Speed::Super);
        unit.uas(1, &INQUIRY, &[]).unwrap();
        unit.chip.bus_reset(speed);
        assert_eq!(unit.settle(), Outcome::Parked);
        unit.enumerate().unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn it_notes_a_suspend_and_a_resume_by_its_own_interrupts() {
    /// Where 240417 stores that it is suspended (b0:0xC9F4, b0:0xCB2E), and whether its clock runs (b0:0xCB05).
    const SUSPENDED: u16 = 0x0B2F;
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_bulk_only(&vendor(), speed);
        let mut seen = Vec::new();
        unit.chip.suspend();
        assert_eq!(unit.settle(), Outcome::Parked);
        seen.push(unit.chip.peek(XdataAddress::main(SUSPENDED)));
        assert_eq!(unit.chip.peek(XdataAddress::main(0x9101)), 0, "every event is acknowledged");
        unit.chip.resume();
        assert_eq!(unit.settle(), Outcome::Parked);
        seen.push(unit.chip.peek(XdataAddress::main(SUSPENDED)));
        assert_eq!(seen, [1, 0], "{speed:?}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_suspended_unit_keeps_its_memory_and_finishes_what_was_pending_over_bulk_only() {
    for image in [vendor(), patched()] {
        for speed in [Speed::Super, Speed::High] {
            let mut unit = on_bulk_only(&image, speed);
            unit.bulk_only(&[0xE5, 0x5A, 0x50, 0x30, 0x10, 0], Data::None).unwrap();
            let mut cbw = b"USBC\x09\0\0\0\x04\0\0\0\x80\0\x06".to_vec();
            cbw.extend([0xE4, 4, 0x50, 0x30, 0x10, 0]);
            cbw.resize(31, 0);
            unit.send(DATA_OUT, 0, &cbw).unwrap();
            nothing_moves_until_it_is_resumed(&mut unit, DATA_IN, 0);
            assert_eq!(unit.receive(DATA_IN, 0).unwrap(), [0x5A, 0, 0, 0], "{speed:?}");
            let status = unit.receive(DATA_IN, 0).unwrap();
            assert_eq!((&status[..8], status[12]), (&b"USBS\x09\0\0\0"[..], 0));
            assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_suspended_unit_finishes_every_pending_tag_over_uas() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_uas(&vendor(), speed);
        for tag in 1..=3 {
            unit.send_command(tag, &READ_VERSION).unwrap();
        }
        nothing_moves_until_it_is_resumed(&mut unit, STATUS_IN, u16::from(speed == Speed::Super));
        for tag in 1..=3 {
            let reply = unit.finish_uas(tag, &[]).unwrap();
            assert_eq!(reply.data, VERSION, "{speed:?}");
            assert!(is_good(&reply.status, tag as u8));
        }
        assert!(is_inquiry(&unit.uas(4, &INQUIRY, &[]).unwrap().data), "{speed:?}");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_reset_of_the_port_ends_a_suspend() {
    for speed in [Speed::Super, Speed::High] {
        let mut unit = on_bulk_only(&vendor(), speed);
        unit.chip.suspend();
        unit.settle();
        unit.chip.bus_reset(speed);
        unit.enumerate().unwrap();
        assert!(is_inquiry(&unit.bulk_only(&INQUIRY, Data::In(36)).unwrap().data), "{speed:?}");
    }
}

fn nothing_moves_until_it_is_resumed(unit: &mut Driver<MemoryFlash>, endpoint: u8, stream: u16) {
    unit.settle();
    unit.chip.suspend();
    for _ in 0..3 {
        assert_eq!(unit.settle(), Outcome::Parked);
        assert_eq!(unit.chip.bulk_in(endpoint, stream), PacketIn::Nak);
        assert_eq!(unit.chip.bulk_out(DATA_OUT, 0, b"no host sends this"), PacketOut::Nak);
        assert_eq!(unit.chip.control([0x80, 0, 0, 0, 0, 0, 2, 0], &[], 1_000_000), None);
    }
    unit.chip.resume();
}
