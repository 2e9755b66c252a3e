//! The patch `read16-sram` on the vendor's image from reset: READ(16) from the SRAM by software, over the wire.
//! `ASMPATCH_VENDOR_IMAGE` names the image.

use asm2464::firmware::Image;
use asm2464_chip::chip::{Data, Speed};

use crate::chip_images::drive::{good, with_drive};
use crate::chip_images::{cdb16, patched, with};
use crate::firmware::chip_wire::{INQUIRY, Reply, SPEEDS, Unit, WIRES, Wire, everywhere, is_about};

const SECTOR: usize = 512;
/// The largest number of sectors in one command.
const MOST: usize = 64;

fn sram(len: usize) -> Vec<u8> {
    crate::firmware::chip_wire::sram(0, len)
}

fn read16(sectors: u32) -> [u8; 16] {
    cdb16(0x88, 7, sectors)
}

fn initialised(image: &Image, wire: Wire, speed: Speed) -> Unit {
    let mut unit = Unit::new(image, wire, speed);
    unit.initialise();
    unit
}

fn patched_unit(wire: Wire, speed: Speed) -> Unit {
    initialised(&with(&["read16-sram"]), wire, speed)
}

/// Helpers for these tests.
impl Unit {
    fn read(&mut self, sectors: usize) -> Reply {
        self.command(&read16(sectors as u32), sectors * SECTOR)
    }

    /// Checks that the unit answers and that its window is on page 0.
    fn works(&mut self, what: &str) {
        assert_eq!(self.command(&INQUIRY, 36).data.len(), 36, "{what}");
        assert_eq!(self.command(&[0xE4, 200, 0x50, 0xF0, 0, 0], 200).data, sram(200), "{what}");
    }

    /// Sends a READ(16) and takes only `packets` packets of its answer.
    fn begin_read(&mut self, sectors: usize, packets: usize) -> Vec<u8> {
        self.begin(&read16(sectors as u32), (sectors * SECTOR) as u32, packets)
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn every_length_comes_whole_over_both_wires_at_both_speeds() {
    for (wire, speed) in everywhere() {
        let mut unit = patched_unit(wire, speed);
        for sectors in [1, 2, 3, 4, 7, 8, 9, 16, 31, 33, 63, MOST] {
            let expected = Reply { data: sram(sectors * SECTOR), good: true, residue: 0 };
            let reply = unit.read(sectors);
            assert!(reply == expected, "{wire:?} {speed:?} {sectors}: {} bytes", reply.data.len());
        }
        for sectors in [0, MOST as u32 + 1, 128, 0x100, 0xFFFF] {
            let reply = unit.command(&read16(sectors), if wire == Wire::Uas { 0 } else { SECTOR });
            assert!(!reply.good && reply.data.is_empty(), "{wire:?} {speed:?} {sectors}");
            assert_eq!([0x0203, 0x020D, 0x020E].map(|at| unit.peek(at)), [5, 0x24, 0], "{wire:?} {speed:?} {sectors}");
        }
        unit.works("after the refusals");
    }
}

/// All other CDB bytes are arbitrary. The firmware uses the low 16 bits of the length.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn any_read16_brings_the_srams_first_bytes_or_is_refused() {
    for wire in WIRES {
        let mut unit = patched_unit(wire, Speed::Super);
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 24
        };
        for _ in 0..120 {
            let mut cdb = [0; 16];
            cdb[..8].copy_from_slice(&random().to_be_bytes());
            cdb[8..].copy_from_slice(&random().to_be_bytes());
            cdb[0] = 0x88;
            // The low half of the length is usually short, sometimes long.
            let sectors = random() as u16 & if random() % 4 == 0 { 0xFFFF } else { 0x3F };
            cdb[12..14].copy_from_slice(&sectors.to_be_bytes());
            let len = usize::from(sectors) * SECTOR;
            let reply = unit.command(&cdb, len.clamp(1, MOST * SECTOR));
            let is_served = (1..=MOST).contains(&usize::from(sectors));
            let expected = if is_served { sram(len) } else { Vec::new() };
            assert!(reply.good == is_served && reply.data == expected, "{wire:?} {cdb:02x?}: {}", reply.data.len());
        }
        unit.works("after all");
    }
}

/// The residue counts the bytes that the host doesn't get. A host that expects less gets what it expects.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_host_that_expects_another_length_gets_the_right_residue() {
    for speed in SPEEDS {
        let mut unit = patched_unit(Wire::BulkOnly, speed);
        for (host, sectors, came, residue) in [
            (8192, 8, 4096, 4096),
            (100_000, 64, 32_768, 67_232),
            (1000, 8, 1000, 0),
            (1, 64, 1, 0),
            (1025, 64, 1025, 0),
            (4095, 8, 4095, 0),
            (512, 2, 512, 0),
        ] {
            unit.leaves(&read16(sectors), host, came, residue);
            unit.works("after another length");
        }
        let reply = unit.command(&read16(8), 0);
        assert!(reply.data.is_empty() && !reply.good, "a host that expects no data gets a phase error");
    }
}

/// With any part of the condition missing, the image answers as without the patch.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn without_the_whole_initialisation_or_after_an_ssds_start_the_vendors_code_handles_read16() {
    let images = [patched(), with(&["read16-sram"])];
    // MODE SELECT's values of the write cache; another drive, or none; a started SSD.
    let changes = [(0x0000, 0), (0x0000, 1), (0x054B, 0x08), (0x05A8, 0), (0x05A8, 1), (0x05F8, 0), (0x0AFF, 0x20)];
    for wire in WIRES {
        for change in changes.map(Some).into_iter().chain([None]) {
            let outcomes = images.each_ref().map(|image| {
                let mut unit = Unit::new(image, wire, Speed::Super);
                if let Some((at, value)) = change {
                    unit.initialise();
                    unit.poke(at, value);
                }
                let reply = unit.attempt(&read16(8), 4096);
                // The DMA's setup.
                let setup = [0xC412, 0xC413, 0xC414, 0xC415, 0xC426, 0xC427, 0xC429].map(|at| unit.peek(at));
                (format!("{reply:?}"), setup)
            });
            assert_eq!(outcomes[0], outcomes[1], "{wire:?} {change:x?}");
            assert!(!outcomes[1].0.contains("good: true"), "{wire:?} {change:x?}: {}", outcomes[1].0);
        }
    }
}

/// With the variables that an SSD's start-up leaves, READ(16) uses the DMA and ends by a completion entry, as without
/// the patch.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn after_an_ssd_was_started_nvme_completes_read16_as_before() {
    let mut unit = patched_unit(Wire::Uas, Speed::Super);
    unit.poke(0x0AFF, 0x20);
    unit.begin_read(8, 0);
    unit.driver.settle();
    let mut entry = [0; 16];
    entry[12..14].copy_from_slice(&[unit.peek(0xC429), unit.peek(0xC413) & 0x3F]);
    entry[14] = 1;
    assert_eq!(unit.peek(0xC412) & 0x03, 0x02, "the DMA is set up");
    assert!(unit.driver.chip.pcie_write(0x0082_8000, &entry));
    let reply = unit.driver.finish_uas(unit.tag, &[]).unwrap();
    assert!(reply.data == sram(4096) && reply.status[6] == 0);
    unit.poke(0x0AFF, 0);
    assert!(unit.read(8).data == sram(4096), "and by software again");
}

/// No data may be lost: with a drive behind the bridge READ(16) returns its blocks, whichever part of the condition a
/// host writes.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_drives_blocks_are_never_shadowed() {
    for wire in WIRES {
        let mut driver = with_drive(&with(&["read16-sram"]), Speed::Super, good(1 << 21));
        if wire == Wire::Uas {
            driver.set_alternate(1).unwrap();
        }
        let mut unit = Unit { driver, wire, tag: 0 };
        // The first command may be answered with "becoming ready".
        let _ = unit.attempt(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
        assert!(unit.command(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).good, "{wire:?}");
        assert!(unit.peek(0x0AFF) != 0 && unit.peek(0x0000) != 0x33, "{wire:?}: what the start of a drive leaves");
        let blocks = |round: usize| (0..8 * SECTOR).map(|at| (at * 3 + round + at / SECTOR) as u8).collect::<Vec<u8>>();
        for (round, poke) in [None, Some((0x0000, 0x33)), Some((0x054B, 0x20))].into_iter().enumerate() {
            if let Some((at, value)) = poke {
                unit.poke(at, value);
            }
            let (lba, data) = (40 + 8 * round as u32, blocks(round));
            let wrote = match wire {
                Wire::BulkOnly => unit.driver.bulk_only(&cdb16(0x8A, lba, 8), Data::Out(&data)).unwrap().status,
                Wire::Uas => unit.driver.uas(150 + round as u16, &cdb16(0x8A, lba, 8), &data).unwrap().status[6],
            };
            assert_eq!(wrote, 0, "{wire:?} {poke:x?}");
            unit.driver.settle();
            unit.driver.chip.sram_mut().fill(0xEE);
            let came = unit.command(&cdb16(0x88, lba, 8), data.len());
            assert!(came.good && came.data == data, "{wire:?} {poke:x?}: {} bytes", came.data.len());
        }
        // The whole initialisation on top of a drive breaks the vendor's own path. READ(16) may fail, but must not
        // return the SRAM.
        unit.initialise();
        unit.driver.chip.sram_mut().fill(0xEE);
        if let Ok(came) = unit.attempt(&cdb16(0x88, 40, 8), 8 * SECTOR) {
            assert!(!came.data.chunks(SECTOR).any(|sector| sector.iter().all(|byte| *byte == 0xEE)), "{wire:?}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn read10_and_write16_stay_the_vendors() {
    for wire in WIRES {
        let outcomes = [patched(), with(&["read16-sram"])].map(|image| {
            let mut unit = initialised(&image, wire, Speed::Super);
            let read10 = unit.attempt(&[0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0], 4096);
            (format!("{read10:?}"), unit.peek(0xC412), unit.peek(0xC429))
        });
        assert_eq!(outcomes[0], outcomes[1], "{wire:?}");
    }
    let mut unit = patched_unit(Wire::Uas, Speed::Super);
    let data: Vec<u8> = (0..4096).map(|at| (at % 7) as u8).collect();
    unit.driver.send_command(209, &cdb16(0x8A, 0, 8)).unwrap();
    assert_eq!(unit.driver.finish_uas(209, &data).unwrap().status[6], 0);
    unit.driver.settle();
    assert_eq!(unit.read(8).data, data, "READ(16) returns what WRITE(16) wrote");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn commands_that_come_between_two_packets_wait_for_the_last_and_get_their_own_data() {
    for packets in 0..4 {
        let mut unit = patched_unit(Wire::Uas, Speed::Super);
        let others: [&[u8]; 4] = [&INQUIRY, &read16(64), &read16(3), &[0xE4, 255, 0x50, 0xF0, 0, 0]];
        let data = unit.between_packets(&read16(8), 4096, packets, &others);
        assert!(data == sram(4096), "{packets} packets, {} bytes", data.len());
        for (tag, len) in (200..).zip([36, 64 * SECTOR, 3 * SECTOR, 255]) {
            let reply = unit.driver.finish_uas(tag, &[]).unwrap();
            assert_eq!((reply.data.len(), reply.status[6]), (len, 0), "{packets} packets, tag {tag}");
            assert!(len == 36 || reply.data == sram(len), "{packets} packets, tag {tag}");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_write16_that_comes_between_two_packets_disturbs_neither() {
    for packets in 0..4 {
        let mut unit = patched_unit(Wire::Uas, Speed::Super);
        let data = unit.between_packets(&read16(8), 4096, packets, &[&cdb16(0x8A, 0, 1)]);
        assert!(data == sram(4096), "{packets} packets, {} bytes", data.len());
        assert_eq!(unit.driver.finish_uas(200, &[0x77; 512]).unwrap().status[6], 0, "{packets} packets");
        unit.driver.settle();
        assert_eq!(unit.read(1).data, [0x77; 512], "{packets} packets");
    }
}

/// The firmware's own long replies set the page to 0.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_leaves_the_window_on_the_page_that_the_host_chose_after_each_packet() {
    for (wire, speed) in everywhere() {
        let mut unit = patched_unit(wire, speed);
        unit.poke(0xC8D9, 5);
        for packets in 0..=MOST * SECTOR / speed.bulk_packet() {
            if packets == 0 {
                unit.begin_read(MOST, 0);
            } else {
                unit.packet().unwrap();
            }
            unit.driver.settle();
            assert_eq!(unit.peek(0xC8D9), 5, "{wire:?} {speed:?}: after {packets} packets");
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn read16_and_the_longer_e4_work_together() {
    for (wire, speed) in everywhere() {
        let mut unit = initialised(&with(&["read16-sram", "e4-length-16"]), wire, speed);
        for _ in 0..2 {
            assert_eq!(unit.command(&[0xE4, 0, 0x50, 0xF0, 0, 0x10], 4096).data, sram(4096), "{wire:?} {speed:?}");
            assert!(unit.read(MOST).data == sram(MOST * SECTOR), "{wire:?} {speed:?}");
        }
    }
}

/// The figures in docs/lab/performance.md.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_instructions_from_command_to_status_are_those_that_docs_performance_has() {
    let mut wrong = String::new();
    for (wire, speed, costs) in [
        (Wire::BulkOnly, Speed::Super, [(1, 5_120, 12_070), (8, 31_890, 71_630), (64, 247_700, 552_900)]),
        (Wire::Uas, Speed::Super, [(1, 5_200, 12_300), (8, 32_040, 72_060), (64, 248_590, 555_450)]),
        (Wire::BulkOnly, Speed::High, [(1, 5_120, 12_070), (8, 33_520, 76_350), (64, 260_950, 591_200)]),
        (Wire::Uas, Speed::High, [(1, 5_210, 12_310), (8, 33_800, 77_130), (64, 262_600, 595_950)]),
    ] {
        let mut unit = patched_unit(wire, speed);
        for (sectors, instructions, cycles) in costs {
            let (reply, work) = unit.work(&read16(sectors as u32), sectors * SECTOR);
            assert_eq!(reply.data.len(), sectors * SECTOR);
            if !is_about(work.instructions, instructions) || !is_about(work.cycles, cycles) {
                wrong += &format!("{wire:?} {speed:?} {sectors}: {work:?}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// All traces of a READ(16) in XDATA, IDATA and on the stack are declared.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_leaves_no_trace_but_its_reply() {
    for (wire, speed) in everywhere() {
        // The stack depth of a WRITE(16), E4 and INQUIRY.
        let mut stock = initialised(&patched(), wire, speed);
        stock.works("stock");
        if wire == Wire::Uas && speed == Speed::Super {
            stock.driver.send_command(209, &cdb16(0x8A, 0, 1)).unwrap();
            stock.driver.finish_uas(209, &[0; 512]).unwrap();
        }
        stock.driver.settle();
        let depth = stock.driver.chip.stack_high_water();

        let mut unit = patched_unit(wire, speed);
        unit.works("before");
        let declared = |at: usize| {
            // The firmware's copy of the CDB, sense data, and the variables of READ and of every reply in packets,
            // including those with which READ(16) selects a drive's slots and queue (c:0x3F4A).
            matches!(at, 0x0002 | 0x0216..=0x021B | 0x0A7D..=0x0A92 | 0x0AF9..=0x0AFE | 0x8000..=0x83FF | 0x9007..=0x9008)
                || matches!(at, 0x911B..=0x9139 | 0xD000..=0xD01F | 0xD800..=0xD80C)
        };
        // R0 to R7, the lengths, what c:0x1C9F reads from the CDB, the scratch, the host's length, the residue and,
        // from 0x73 on, the stack.
        let named = |at| matches!(at, 0x00..=0x07 | 0x09..=0x0C | 0x0E..=0x17 | 0x3B..=0x3F | 0x6B..);
        unit.changes_only(declared, named, &read16(MOST as u32), MOST * SECTOR);
        let found = unit.driver.chip.stack_high_water();
        assert!(found <= depth, "{wire:?} {speed:?}: the stack, {found:#x} and {depth:#x}");
    }
}
