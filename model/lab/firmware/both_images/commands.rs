//! The vendor commands over both transports.

use super::*;

on_both_images! {
    e5_writes_what_e4_reads_on_both_pages
    both_transports_read_the_flash_byte_for_byte
    it_is_flashed_and_restarts_over_both_transports_at_both_speeds
    e8_in_mode_0x51_takes_the_unit_off_the_bus_for_good
}

fn e5_writes_what_e4_reads_on_both_pages(image: &Image) {
    let mut unit = on_bulk_only(image, Speed::Super);
    for (page, addr) in [(0x50, [0xF0, 0x07]), (0x50, [0x30, 0x10]), (0x51, [0x12, 0x34])] {
        assert_eq!(unit.bulk_only(&[0xE5, 0xA7, page, addr[0], addr[1], 0], Data::None).unwrap().status, 0);
        let reply = unit.bulk_only(&[0xE4, 1, page, addr[0], addr[1], 0], Data::In(1)).unwrap();
        assert_eq!(reply.data, [0xA7], "page {page:02X} address {addr:02X?}");
    }
    assert_eq!(unit.chip.sram()[7], 0xA7, "the window is the SRAM");
}

/// Sends a command without data, or with data from the host, over either transport. Returns whether it succeeded.
fn sends(unit: &mut Driver, is_uas: bool, cdb: &[u8], out: &[u8]) -> bool {
    if is_uas {
        return is_good(&unit.uas(3, cdb, out).unwrap(), 3);
    }
    let data = if out.is_empty() { Data::None } else { Data::Out(out) };
    let reply = unit.bulk_only(cdb, data).unwrap();
    (reply.status, reply.residue) == (0, 0)
}

fn it_is_flashed_and_restarts_over_both_transports_at_both_speeds(stock: &Image) {
    let image = patched(stock);
    let file = image.to_file();
    let [zero, one] = known_blocks();
    for (speed, is_uas) in SPEEDS.into_iter().flat_map(|speed| [(speed, false), (speed, true)]) {
        let mut unit = if is_uas { on_uas(stock, speed) } else { on_bulk_only(stock, speed) };
        for (number, block) in [(0, &zero), (1, &one)] {
            let mut cdb = [0; 15];
            cdb[..3].copy_from_slice(&[0xE1, 0x50, number]);
            assert!(sends(&mut unit, is_uas, &cdb, block.bytes()));
        }
        assert!(unit.chip.flash().cells[0x100..0x2_0000].iter().all(|cell| *cell == 0xFF));
        let (first, second) = file.split_at(0xFF00);
        for (mode, part) in [(0x50, first), (0xD0, second)] {
            let len = (part.len() as u32).to_be_bytes();
            assert!(sends(&mut unit, is_uas, &[0xE3, mode, len[0], len[1], len[2], len[3]], part));
        }
        let cells = &unit.chip.flash().cells;
        assert!(cells[..128] == *zero.bytes() && cells[128..256] == *one.bytes());
        assert!(cells[0x100..0x1_0000] == *first && cells[0x1_0000..0x1_0000 + second.len()] == *second);
        let mut reset = [0; 15];
        reset[..2].copy_from_slice(&[0xE8, 0x50]);
        assert!(sends(&mut unit, is_uas, &reset, &[]), "E8 is answered first");
        assert_eq!(unit.settle(), RunEnd::Reset);
        let mut unit = Driver::new(unit.chip.restart(CodeSpace::new(&image)));
        unit.enumerate().unwrap();
        assert_eq!(unit.bulk_only(&READ_VERSION, Data::In(6)).unwrap().data, image.version().0);
    }
}

fn both_transports_read_the_flash_byte_for_byte(image: &Image) {
    for speed in SPEEDS {
        let mut unit = on_bulk_only(image, speed);
        let block = unit.bulk_only(&[0xE0, 0x50, 0], Data::In(128)).unwrap().data;
        assert_eq!(block, known_blocks()[0].bytes());
        let part = unit.bulk_only(&[0xE2, 0x50, 0, 0, 0xFF, 0], Data::In(0xFF00)).unwrap();
        assert!(part.data == unit.chip.flash().cells[0x100..0x1_0000] && part.status == 0);
        let other = unit.bulk_only(&[0xE2, 0xD0, 0, 1, 0, 0], Data::In(0x1_0000)).unwrap();
        assert!(other.data == unit.chip.flash().cells[0x1_0000..0x2_0000] && other.residue == 0);
        unit.set_alternate(1).unwrap();
        let part = unit.uas(1, &[0xE2, 0xD0, 0, 0, 0x7F, 1], &[]).unwrap();
        assert!(part.data == unit.chip.flash().cells[0x1_0000..0x1_7F01] && is_good(&part, 1));
    }
}

fn e8_in_mode_0x51_takes_the_unit_off_the_bus_for_good(image: &Image) {
    for is_uas in [false, true] {
        let mut unit = if is_uas { on_uas(image, Speed::Super) } else { on_bulk_only(image, Speed::Super) };
        assert!(sends(&mut unit, is_uas, &[0xE8, 0x51, 0, 0, 0, 0], &[]));
        assert_eq!(unit.settle(), RunEnd::Parked);
        assert!(!unit.chip.is_on_bus());
    }
}
