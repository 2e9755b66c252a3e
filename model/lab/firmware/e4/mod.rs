//! Stock and extended E4 side by side on the emulated CPU: the same proofs for every image that the patch supports.

mod unit;

use std::collections::BTreeSet;

use asm2464::firmware::Image;
use asm2464::scsi::XdataPage;
use asmpatch::patch::Selection;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use unit::{After, E4, Unit};

use crate::chip_images::{patched_by, vendor};
use crate::firmware::machine::STACK_START;

/// XDATA that the handler writes, apart from the data buffer, before it answers "data in".
const IN_WRITES: [u16; 5] = [0x0215, 0x9007, 0x9008, 0xCC38, 0xCC3A];
/// The firmware's variables for a reply in packets: those that 0x425F writes, and where E4 keeps its position.
const REPLY_WRITES: [u16; 7] = [0x0A8E, 0x0AF9, 0x0AFA, 0x0AFB, 0x0AFC, 0x0AFD, 0x0AFE];
/// IDATA that the extension declares as scratch: R0 to R7 and the five bytes that E4 uses.
const SCRATCH: [std::ops::RangeInclusive<usize>; 2] = [0x00..=0x07, 0x3B..=0x3F];

/// The first and last address of each region, and addresses around the data buffer, which a source may overlap.
const EDGES: [u16; 32] = [
    0x0000, 0x5FFF, 0x6000, 0x6FFF, 0x7000, 0x8000, 0x8001, 0x8FFF, 0x9000, 0x9006, 0x9007, 0x93FF, 0x9400, 0x9DFF,
    0x9E00, 0x9FFF, 0xA000, 0xB1FF, 0xB200, 0xB4FF, 0xB500, 0xBFFF, 0xC000, 0xCFFF, 0xD000, 0xEFFF, 0xF000, 0xFF00,
    0xFF01, 0xFF02, 0xFFFE, 0xFFFF,
];

/// Unoptimised, a fifth of the lengths and edges is checked. 5 has no divisor in common with the 8 bytes of the copy's
/// blocks, so every remainder has its turn. `.ci/nightly` checks all of them.
const ONE_IN: usize = if cfg!(debug_assertions) { 5 } else { 1 };

fn edges() -> impl Iterator<Item = u16> {
    EDGES.into_iter().chain(0x7FF0..=0x7FFF)
}

/// Stock and extended firmware of one image.
struct Pair {
    stock: Unit,
    extended: Unit,
}

impl Pair {
    fn new(image: &Image) -> Self {
        Self { stock: Unit::new(image), extended: Unit::new(&extended(image)) }
    }

    fn same_effects(&mut self, command: E4) {
        let stock = self.stock.run(command);
        let extended = self.extended.run(command);
        assert_eq!(extended.outcome.r7, stock.outcome.r7, "{command:?}: how the command goes on");
        assert!(extended.main == stock.main, "{command:?}: {}", first_difference(&extended.main, &stock.main));
        assert!(extended.other == stock.other, "{command:?}: the other page");
        assert_eq!(extended.sfrs, stock.sfrs, "{command:?}: SFRs 0x93 and 0x96");
        for at in 0..=usize::from(STACK_START) {
            if !SCRATCH.iter().any(|scratch| scratch.contains(&at)) {
                assert_eq!(extended.idata[at], stock.idata[at], "{command:?}: IDATA {at:#04x}");
            }
        }
        assert_eq!(extended.writes, stock.writes, "{command:?}: writes, in order");
        assert!(registers_read(&extended) == registers_read(&stock), "{command:?}: register reads, in order");
        assert!(extended.outcome.stack_high_water <= stock.outcome.stack_high_water, "{command:?}: the stack");
    }

    fn long_read(&mut self, command: E4) {
        let packet = self.extended.packet;
        let sent = self.extended.run_long(command);
        let expected = self.extended.byte_by_byte(command);
        let data = sent.packets.concat();
        assert_eq!(data.len(), expected.len(), "{command:?}");
        // The model doesn't have the firmware's variables.
        let variable = |i: usize| (0x0A8E..=0x0AFE).contains(&command.addr.wrapping_add(i as u16));
        let wrong = (0..data.len()).find(|i| data[*i] != expected[*i] && !variable(*i));
        assert_eq!(wrong, None, "{command:?}: the data");
        assert!(sent.packets.iter().rev().skip(1).all(|data| data.len() == usize::from(packet)), "{command:?}");
        let begun = &sent.after[0];
        let [high, low] = command.len.to_be_bytes();
        assert_eq!(begun.idata[0x09..0x0D], [0, 0, high, low], "{command:?}: the length at IDATA 0x09");
        if command.uas {
            assert_eq!(begun.idata[0x6B..0x6F], [0, 0, high, low], "{command:?}: and the host's");
            assert_eq!(begun.idata[0x6F..0x73], [0; 4], "{command:?}: the residue");
        }
        let page = if command.mode == 0x50 { XdataPage::Main } else { XdataPage::Other };
        let mut at = command.addr;
        for (index, (data, after)) in sent.packets.iter().zip(&sent.after).enumerate() {
            let wraps = usize::from(at) + data.len() > 0x1_0000 || at < command.addr;
            let is_next = |reads: &[(XdataPage, u16, u8)]| {
                reads.iter().zip(0..).all(|(read, i): (_, u16)| {
                    read.1 == at.wrapping_add(i) && (read.0 == page || page == XdataPage::Other && wraps)
                })
            };
            let copies = after.reads.windows(data.len()).filter(|reads| is_next(reads)).count();
            assert_eq!(copies, 1, "{command:?}: packet {index}, each address once and ascending");
            at = at.wrapping_add(data.len() as u16);
        }
        for after in &sent.after[1..] {
            let before = &sent.after[0];
            assert_eq!(after.idata[0x3B..=0x3F], before.idata[0x3B..=0x3F], "{command:?}: an interrupt keeps IDATA");
            assert_eq!(after.sfrs[0], 0, "{command:?}: the page that MOVX reaches");
        }
    }
}

on_both_images! {
    every_length_up_to_255_at_each_regions_edges_is_as_before
    a_wrong_mode_byte_is_refused_as_before
    up_to_4096_bytes_come_right_in_one_command_packet_by_packet
    a_long_read_for_a_host_that_expects_no_data_reads_none
    more_than_4096_bytes_are_refused_and_no_register_is_touched
    any_cdb_returns_and_writes_nothing_outside_the_declared_set
}

/// Checks every length that fits one byte, in both modes, at the edges: one edge in [`ONE_IN`] a length.
fn every_length_up_to_255_at_each_regions_edges_is_as_before(image: &Image) {
    let mut pair = Pair::new(image);
    for len in 0..=255 {
        for mode in [0x50, 0x51] {
            for (i, addr) in edges().enumerate() {
                let turn = usize::from(len) + i;
                if turn % ONE_IN == 0 {
                    pair.same_effects(E4 { len, mode, addr, uas: turn % 2 == 0 });
                }
            }
        }
    }
}

fn a_wrong_mode_byte_is_refused_as_before(image: &Image) {
    let mut pair = Pair::new(image);
    for mode in (0..=255).filter(|mode| ![0x50, 0x51].contains(mode)) {
        pair.same_effects(E4 { len: 16, mode, addr: 0x3000, uas: mode & 1 == 0 });
        assert_eq!(pair.extended.run(E4 { len: 0x1001, mode, addr: 0, uas: true }).sense(), [5, 0x24, 0]);
    }
}

/// Checks lengths at each region's edges at both speeds, and one length in [`ONE_IN`] at one address.
fn up_to_4096_bytes_come_right_in_one_command_packet_by_packet(image: &Image) {
    let mut pair = Pair::new(image);
    let lens = [256, 257, 263, 264, 511, 512, 513, 1000, 1024, 1025, 2047, 2048, 2049, 4087, 4088, 4095, 4096];
    let addrs = [
        0x0B00, 0x3000, 0x5FFF, 0x7000, 0x7800, 0x7FF8, 0x7FF9, 0x7FFF, 0x8000, 0x8008, 0x8400, 0x8FF0, 0x9000, 0xB200,
        0xF000, 0xFC01, 0xFFFF,
    ];
    let at_edges: Vec<(u16, u16)> = addrs.into_iter().flat_map(|addr| lens.map(|len| (addr, len))).collect();
    for packet in [0x200, 0x400] {
        pair.extended.link_of(packet);
        for (addr, len) in &at_edges {
            for mode in [0x50, 0x51] {
                pair.long_read(E4 { len: *len, mode, addr: *addr, uas: len % 2 == 0 });
            }
        }
    }
    for len in (256..=4096).step_by(ONE_IN) {
        for mode in [0x50, 0x51] {
            pair.long_read(E4 { len, mode, addr: 0x3000, uas: len % 2 == 1 });
        }
    }
}

/// Checks that a host that expects no data gets the phase error of a short read, and that no byte is read.
fn a_long_read_for_a_host_that_expects_no_data_reads_none(image: &Image) {
    let mut pair = Pair::new(image);
    let unit = &mut pair.extended;
    unit.host_length = Some(0);
    let after = unit.run(E4 { len: 0x1000, mode: 0x50, addr: 0xB200, uas: false });
    unit.host_length = None;
    assert_eq!(after.outcome.r7, 1);
    assert_eq!(after.idata[0x09..0x0D], [0, 0, 0x10, 0], "what Bulk-Only's thirteen cases compare");
    assert!(after.reads.iter().all(|read| !(0xB200..0xC200).contains(&read.1)));
}

fn more_than_4096_bytes_are_refused_and_no_register_is_touched(image: &Image) {
    let mut pair = Pair::new(image);
    for uas in [false, true] {
        let reference = pair.stock.run(E4 { len: 1, mode: 0x52, addr: 0x3000, uas });
        let edges = [0x1001, 0x10FF, 0x1100, 0x1FFF, 0x2000, 0x8000, 0xF000, 0xFF00, 0xFFFF];
        // With a prime step, both CDB bytes take every value.
        for len in edges.into_iter().chain((0x1002..=0xFFFF).step_by(31)) {
            for mode in [0x50, 0x51] {
                let after = pair.extended.run(E4 { len, mode, addr: 0x9000, uas });
                assert_eq!(after.outcome.r7, 5);
                assert_eq!(after.sense(), [5, 0x24, 0]);
                assert_eq!(after.writes, reference.writes, "{len:#x}: what the vendor writes for a wrong mode byte");
                assert!(registers_read(&after) == registers_read(&reference), "{len:#x}: and what it reads");
                assert!(after.outcome.stack_high_water <= reference.outcome.stack_high_water);
            }
        }
    }
}

fn any_cdb_returns_and_writes_nothing_outside_the_declared_set(image: &Image) {
    let mut pair = Pair::new(image);
    let refusal = pair.stock.run(E4 { len: 1, mode: 0x52, addr: 0, uas: false });
    let declared: BTreeSet<u16> = refusal
        .writes
        .iter()
        .map(|write| write.0)
        .chain(IN_WRITES)
        .chain(REPLY_WRITES)
        .chain(0x8000..=0x83FF)
        .collect();
    let mode = prop_oneof![4 => Just(0x50u8), 4 => Just(0x51u8), 1 => any::<u8>()];
    let cdbs = (any::<[u8; 16]>(), mode, any::<bool>(), prop_oneof![0u8..=0x11, any::<u8>()]);
    let mut runner = TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    let extended = std::cell::RefCell::new(&mut pair.extended);
    runner
        .run(&cdbs, |(mut cdb, mode, uas, len_high)| {
            (cdb[0], cdb[2], cdb[5]) = (0xE4, mode, len_high);
            let mut unit = extended.borrow_mut();
            // `run_cdb` panics if the handler doesn't return within its budget.
            let after = unit.run_cdb(&cdb, uas);
            prop_assert!(after.writes.iter().all(|write| declared.contains(&write.0)));
            let len = usize::from(u16::from_be_bytes([cdb[5], cdb[1]]));
            let read = [0x50, 0x51].contains(&mode) && len <= 0x1000;
            let long = read && len > 255;
            prop_assert_eq!(
                after.outcome.r7,
                if long {
                    8
                } else if read {
                    1
                } else {
                    5
                }
            );
            let buffer = unit.pristine.main()[0x8000..0x9000].to_vec();
            let kept = if read { len.min(0x400) } else { 0 };
            prop_assert!(after.main[0x8000 + kept..0x9000] == buffer[kept..]);
            for at in (0..=usize::from(STACK_START)).filter(|at| !SCRATCH.iter().any(|scratch| scratch.contains(at))) {
                let filled = (at as u8).wrapping_mul(0x35) ^ 0xC3;
                // A read leaves the lengths; a refusal leaves what the vendor's sense routine writes.
                let named = if read {
                    (0x09..=0x0C).contains(&at) || (0x6B..=0x6E).contains(&at) || long && (0x6F..=0x72).contains(&at)
                } else {
                    refusal.idata[at] != filled
                };
                prop_assert!(named || at == 0x08 || after.idata[at] == filled, "IDATA {:#x}", at);
            }
            Ok(())
        })
        .unwrap();
}

/// Stock's own E4 overwrites all of the declared scratch, so that no caller can rely on it.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_scratch_is_what_stock_overwrites_too() {
    let mut pair = Pair::new(&vendor());
    let mut kept: BTreeSet<usize> = SCRATCH.into_iter().flatten().collect();
    for command in
        [E4 { len: 3, mode: 0x50, addr: 0x1234, uas: true }, E4 { len: 200, mode: 0x51, addr: 0x5678, uas: false }]
    {
        let after = pair.stock.run(command);
        kept.retain(|at| after.idata[*at] == (*at as u8).wrapping_mul(0x35) ^ 0xC3);
    }
    assert!(kept.is_empty(), "{kept:x?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_handlers_instructions_at_each_length_are_known() {
    let Pair { mut stock, mut extended } = Pair::new(&vendor());
    let count = |unit: &mut Unit, len| unit.run(E4 { len, mode: 0x50, addr: 0x3000, uas: true }).outcome.instructions;
    assert_eq!(
        [0, 1, 64, 255, 256, 1024].map(|len| (
            len,
            (len < 256).then(|| count(&mut stock, len)),
            count(&mut extended, len)
        )),
        [
            (0, Some(260), 145),
            (1, Some(303), 160),
            (64, Some(3012), 617),
            (255, Some(11_225), 2079),
            (256, None, 2205),
            (1024, None, 7867),
        ]
    );
}

/// The image with the extension, as `asmpatch patch --no-defaults --patch e4-length-16` makes it.
pub fn extended(image: &Image) -> Image {
    let selection = Selection { no_defaults: true, add: vec!["e4-length-16".to_owned()] };
    patched_by(image, &selection)
}

/// Reads outside RAM. The CDB and the handler's own flag are in RAM, where a read has no effect.
fn registers_read(after: &After) -> Vec<(XdataPage, u16, u8)> {
    after.reads.iter().copied().filter(|read| read.0 == XdataPage::Other || read.1 >= 0x6000).collect()
}

fn first_difference(one: &[u8], other: &[u8]) -> String {
    one.iter()
        .zip(other)
        .position(|(one, other)| one != other)
        .map_or_else(String::new, |at| format!("XDATA {at:#06x} {:#04x} {:#04x}", one[at], other[at]))
}
