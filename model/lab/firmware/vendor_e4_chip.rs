//! The E4 length extension on the vendor's image from reset, packet by packet over the wire. `ASMPATCH_VENDOR_IMAGE`
//! names the image.
use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464_chip::chip::{Speed, Work};

use crate::chip_images::{cdb16, vendor, with};
use crate::firmware::chip_wire::{INQUIRY, Reply, SPEEDS, Unit, WIRES, Wire, everywhere, is_about, sram};

fn unit(is_extended: bool, wire: Wire, speed: Speed) -> Unit {
    Unit::new(&if is_extended { crate::firmware::e4::extended(&vendor()) } else { vendor() }, wire, speed)
}

fn extended(wire: Wire, speed: Speed) -> Unit {
    unit(true, wire, speed)
}

/// Helpers for these tests.
impl Unit {
    fn read_e4(&mut self, mode: u8, addr: u16, len: u16) -> Reply {
        self.command(&read(mode, addr, len), len.into())
    }

    /// The work from a read's command to its status.
    fn cost(&mut self, mode: u8, len: u16) -> Work {
        let (reply, work) = self.work(&read(mode, 0xF000, len), len.into());
        assert!(reply.good && reply.data.len() == usize::from(len));
        work
    }
}

fn read(mode: u8, addr: u16, len: u16) -> [u8; 6] {
    let ([len_high, len_low], [high, low]) = (len.to_be_bytes(), addr.to_be_bytes());
    [0xE4, len_low, mode, high, low, len_high]
}

on_both_images! {
    every_length_comes_whole_over_both_wires_at_both_speeds
    a_host_that_expects_another_length_gets_the_right_residue
}

fn every_length_comes_whole_over_both_wires_at_both_speeds(image: &Image) {
    for (wire, speed) in everywhere() {
        let mut unit = Unit::new(&crate::firmware::e4::extended(image), wire, speed);
        let edges = [1, 4, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024, 1025, 2048, 3000, 4088, 4089, 4095, 4096];
        for len in edges.into_iter().chain((300..4096).step_by(171)) {
            let reply = unit.read_e4(0x50, 0xF000, len);
            let expected = Reply { data: sram(0, len.into()), good: true, residue: 0 };
            assert!(reply == expected, "{wire:?} {speed:?} {len}: {} bytes", reply.data.len());
        }
        assert!(!unit.read_e4(0x50, 0xF000, 4097).good, "{wire:?} {speed:?}");
        assert_eq!(unit.read_e4(0x50, 0xF000, 4096).data, sram(0, 4096), "after the refusal");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_other_page_and_a_wrapping_address_come_whole() {
    for (wire, speed) in everywhere() {
        let mut unit = extended(wire, speed);
        for (at, value) in [(0x1234u16, 0xA5u8), (0x1A33, 0x5A), (0x2233, 0x77)] {
            let [high, low] = at.to_be_bytes();
            assert!(unit.command(&[0xE5, value, 0x51, high, low, 0], 0).good);
        }
        let whole = unit.read_e4(0x51, 0x1234, 4096).data;
        assert_eq!([whole[0], whole[0x7FF], whole[0xFFF]], [0xA5, 0x5A, 0x77], "{wire:?} {speed:?}");
        let pieces = (0..16).flat_map(|piece| unit.read_e4(0x51, 0x1234 + 0x80 * piece, 0x80).data);
        assert!(pieces.eq(whole[..0x800].iter().copied()), "{wire:?} {speed:?}: as 128 bytes at a time");
        let whole = unit.read_e4(0x50, 0xFA01, 4096);
        assert_eq!(whole.data.len(), 4096);
        assert_eq!(whole.data[..0x5FF], sram(0xA01, 0x5FF));
        assert_eq!(whole.data[0x5FF + 0x07F0..0x5FF + 0x07F6], vendor().version().0, "past 0xFFFF comes 0x0000");
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_instructions_from_command_to_status_are_those_that_docs_performance_has() {
    let mut wrong = String::new();
    type Costs = &'static [(u16, u64, u64)];
    const SUPER_BULK: Costs = &[(255, 3100, 7700), (256, 3350, 8150), (1024, 9000, 20_750), (4096, 32_950, 74_900)];
    const SUPER_UAS: Costs = &[(255, 3150, 7850), (256, 3400, 8350), (1024, 9050, 20_850), (4096, 33_050, 75_200)];
    const HIGH_BULK: Costs = &[(255, 3100, 7700), (256, 3350, 8150), (1024, 9450, 22_050), (4096, 34_700, 79_950)];
    const HIGH_UAS: Costs = &[(255, 3150, 7850), (256, 3400, 8350), (1024, 9500, 22_200), (4096, 34_950, 80_650)];
    for (wire, speed, is_extended, costs) in [
        (Wire::BulkOnly, Speed::Super, false, &[(255, 12_200, 27_450)][..]),
        (Wire::Uas, Speed::Super, false, &[(255, 12_300, 27_700)]),
        (Wire::BulkOnly, Speed::Super, true, SUPER_BULK),
        (Wire::Uas, Speed::Super, true, SUPER_UAS),
        (Wire::BulkOnly, Speed::High, true, HIGH_BULK),
        (Wire::Uas, Speed::High, true, HIGH_UAS),
    ] {
        let mut unit = unit(is_extended, wire, speed);
        for (len, instructions, cycles) in costs {
            let found = unit.cost(0x50, *len);
            if !is_about(found.instructions, *instructions) || !is_about(found.cycles, *cycles) {
                wrong += &format!("{wire:?} {speed:?} {is_extended} {len}: {found:?}\n");
            }
        }
    }
    // What a host without the extension has to send for 4,096 bytes.
    for (wire, expected) in [(Wire::BulkOnly, (197_500, 445_200)), (Wire::Uas, (199_200, 449_200))] {
        let mut unit = unit(false, wire, Speed::Super);
        let pieces = std::iter::repeat_n(255, 16).chain([16]);
        let found = pieces.fold(Work::default(), |sum, len| sum + unit.cost(0x50, len));
        if !is_about(found.instructions, expected.0) || !is_about(found.cycles, expected.1) {
            wrong += &format!("{wire:?}, 17 commands: {found:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The residue counts the bytes that the host doesn't get. A host that expects less gets what it expects.
fn a_host_that_expects_another_length_gets_the_right_residue(image: &Image) {
    for speed in SPEEDS {
        let mut unit = Unit::new(&crate::firmware::e4::extended(image), Wire::BulkOnly, speed);
        for (host, len, came, residue) in [
            (8192, 4096, 4096, 4096),
            (100_000, 4096, 4096, 95_904),
            (4096, 300, 300, 3796),
            (4096, 1024, 1024, 3072),
            (1500, 4096, 1500, 0),
            (1024, 4096, 1024, 0),
            (512, 1000, 512, 0),
            (1, 4096, 1, 0),
        ] {
            unit.leaves(&read(0x50, 0xF000, len), host, came, residue);
            assert_eq!(unit.command(&INQUIRY, 36).data.len(), 36, "{speed:?}: after {host} for {len}");
        }
        let reply = unit.command(&read(0x50, 0xF000, 4096), 0);
        assert!(reply.data.is_empty() && !reply.good, "a host that expects no data gets a phase error");
    }
}

/// Up to 255 bytes the wire looks exactly as with stock, whatever the host expects.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn short_reads_look_like_stocks_on_the_wire() {
    for wire in WIRES {
        let [mut stock, mut extended] = [false, true].map(|is_extended| unit(is_extended, wire, Speed::Super));
        for (host, len) in [(255, 255), (0, 0), (1, 1), (16, 4), (4, 16), (4096, 255), (64, 0), (100, 100), (7, 7)] {
            for mode in [0x50, 0x51, 0x52] {
                let cdb = read(mode, 0xF010, len);
                let replies = [&mut stock, &mut extended].map(|unit| unit.command(&cdb, host));
                assert_eq!(replies[0], replies[1], "{wire:?} {mode:#x} {host} for {len}");
                let lengths = [&stock, &extended]
                    .map(|unit| [0x9007, 0x9008].map(|at| unit.driver.chip.peek(XdataAddress::main(at))));
                assert_eq!(lengths[0], lengths[1], "{wire:?} {mode:#x} {host} for {len}");
            }
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_command_that_comes_between_two_packets_waits_for_the_last() {
    for packets in 0..4 {
        let mut unit = extended(Wire::Uas, Speed::Super);
        let others: [&[u8]; 3] = [&INQUIRY, &read(0x51, 0x0000, 4096), &[0; 6]];
        let data = unit.between_packets(&read(0x50, 0xF000, 4096), 4096, packets, &others);
        assert!(data == sram(0, 4096), "{packets} packets, {} bytes", data.len());
        for (tag, (len, status)) in (200..).zip([(36, 0), (4096, 0), (0, 2)]) {
            let reply = unit.driver.finish_uas(tag, &[]).unwrap();
            assert_eq!((reply.data.len(), reply.status[6]), (len, status), "{packets} packets, tag {tag}");
        }
    }
}

/// After a GPU runtime's initialisation, with the status patch, and with commands as the runtime sends them.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_write16_that_comes_between_two_packets_disturbs_neither() {
    let image = with(&["e4-length-16"]);
    for packets in 0..4 {
        let mut unit = Unit::new(&image, Wire::Uas, Speed::Super);
        unit.initialise();
        let write: Vec<u8> = (0..512).map(|at| (at % 7) as u8).collect();
        let data = unit.between_packets(&read(0x50, 0xF000, 4096), 4096, packets, &[&cdb16(0x8A, 0, 1)]);
        assert!(data == sram(0, 4096), "{packets} packets, {} bytes", data.len());
        assert_eq!(unit.driver.finish_uas(200, &write).unwrap().status[6], 0, "{packets} packets");
        assert_eq!(unit.read_e4(0x50, 0xF000, 512).data, write, "{packets} packets");
    }
}

/// The firmware's own long replies set the page in 0xC8D9 to 0 (c:0x4013). E4 keeps the host's page.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_long_read_of_the_window_stays_on_the_page_that_the_host_chose() {
    for wire in WIRES {
        let mut unit = extended(wire, Speed::Super);
        assert!(unit.command(&[0xE5, 5, 0x50, 0xC8, 0xD9, 0], 0).good);
        assert_eq!(unit.read_e4(0x50, 0xF000, 4096).data, sram(0x5000, 4096), "{wire:?}");
        assert_eq!(unit.read_e4(0x50, 0xC8D9, 1).data, [5], "{wire:?}");
    }
}

/// What a long read leaves in XDATA, IDATA and on the stack differs from a short read's only in the reply.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_long_read_leaves_no_trace_but_its_reply() {
    for (wire, speed) in everywhere() {
        let mut unit = extended(wire, speed);
        unit.read_e4(0x50, 0xF000, 255);
        unit.driver.settle();
        let depth = unit.driver.chip.stack_high_water();
        let declared = |at: usize| {
            matches!(at, 0x0A8E | 0x0AF9..=0x0AFE | 0x8000..=0x83FF | 0x9007..=0x9008)
                // The CBW or the command IU, and the CSW.
                || matches!(at, 0x911B..=0x9139 | 0xD000..=0xD01F | 0xD800..=0xD80C)
        };
        // R0 to R7 as the idle loop leaves them, the lengths, the scratch that stock's E4 uses too, the host's length,
        // the residue and, from 0x73 on, the stack.
        let named = |at| matches!(at, 0x00..=0x07 | 0x09..=0x0C | 0x3B..=0x3F | 0x6B..);
        unit.changes_only(declared, named, &read(0x50, 0xF000, 4096), 4096);
        assert!(unit.driver.chip.stack_high_water() <= depth, "{wire:?} {speed:?}: the stack");
    }
}
