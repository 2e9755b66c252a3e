//! The patch's code and the vendor's code around it, called or read without a wire.
use asm2464::firmware::{BodyOffset, CodeAddress, Image};
use asm2464_chip::disasm::listing;
use asm2464_chip::mcu::AccessKind;
use asm2464_chip::symbols::Symbols;

use crate::chip_images::{patched, vendor, with};
use crate::firmware::chip_wire::pattern;
use crate::firmware::machine::{Machine, PlainMemory};

/// Runs the routine for the next packet with other commands' replies. Compares all accesses in order, memory, IDATA and
/// stack.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_packets_of_all_other_replies_are_copied_as_before() {
    let next_packet: CodeAddress = "c:0x4013".parse().unwrap();
    for (opcode, kind) in [(0x12, 0), (0x12, 1), (0x12, 2), (0xE6, 1), (0x88, 0), (0x88, 2), (0x8A, 1), (0x28, 1)] {
        for (packet, offset, left) in
            [(0x400u16, 0u16, 4096u16), (0x200, 0xE00, 1025), (0x40, 0x40, 96), (0x400, 0xC00, 1024)]
        {
            let ends = [patched(), with(&["read16-sram"])].map(|image| {
                let mut machine = Machine::new(&image, PlainMemory);
                let page = machine.memory().main_mut();
                page.iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
                page[0x0002] = opcode;
                page[0x0AF9] = kind;
                page[0x0AFA..0x0AFC].copy_from_slice(&packet.to_be_bytes());
                page[0x0AFC..0x0AFE].copy_from_slice(&offset.to_be_bytes());
                page[0x0AFE] = 2;
                machine.idata()[0x09..0x0D].copy_from_slice(&u32::from(left).to_be_bytes());
                let outcome = machine.call(next_packet, 100_000);
                let accesses: Vec<_> = machine
                    .take_accesses()
                    .into_iter()
                    // The patch's only additional access checks whether the reply is its own.
                    .filter(|access| access.kind == AccessKind::Write || access.at.addr != 0x0AFE)
                    .map(|access| format!("{access:?}"))
                    .collect();
                let idata = machine.idata()[..0x6A].to_vec();
                (outcome.r7, outcome.stack_high_water, idata, machine.memory().main().to_vec(), accesses)
            });
            assert!(ends[0] == ends[1], "{opcode:#04x} {kind} {packet:#x} {offset:#x} {left}");
        }
    }
}

fn places_of(image: &Image, bytes: &[u8]) -> Vec<String> {
    let at = |(offset, _)| BodyOffset(offset as u32).code_address().unwrap().to_string();
    image.body().windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes).map(at).collect()
}

fn texts(image: &Image, at: &str, count: usize) -> Vec<String> {
    listing(image, &Symbols::default(), at.parse().unwrap(), count).into_iter().map(|line| line.text).collect()
}

/// Only the runtime writes 0x33 to XDATA 0x0000: the firmware writes 0 and 1. The start-up of an SSD writes 0x0AFF; other
/// code only reads it.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn no_firmware_code_makes_the_condition_true() {
    let image = vendor();
    assert_eq!(
        places_of(&image, &[0x90, 0x00, 0x00]),
        ["c:0x39E9", "b0:0xA0DF", "b1:0xBDB5", "b1:0xBE20", "b1:0xDE1B", "b1:0xDE37"]
    );
    // The uses of 0x0000 in this order: a write of 0, a constant, two reads, writes of 1 and of 0.
    assert_eq!(texts(&image, "c:0x39E4", 4), ["clr a", "mov dptr, #0x044B", "movx @dptr, a", "mov dptr, #0x0000"]);
    assert_eq!(texts(&image, "b0:0xA0E2", 3)[2], "mov a, dph");
    for read in ["b1:0xBDB8", "b1:0xBE23"] {
        assert_eq!(texts(&image, read, 1), ["movx a, @dptr"], "{read}");
    }
    assert_eq!(texts(&image, "b1:0xDE1B", 3), ["mov dptr, #0x0000", "mov a, #0x01", "movx @dptr, a"]);
    assert_eq!(texts(&image, "b1:0xDE36", 3), ["clr a", "mov dptr, #0x0000", "movx @dptr, a"]);
    assert_eq!(places_of(&image, &[0x90, 0x0A, 0xFF]), ["c:0x2CFE", "c:0x348D", "b1:0x8AC2", "b1:0x8C5E"]);
}

/// Each hook is on a single path, and no jump leads into the instructions that it replaces.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn nothing_jumps_into_what_the_hooks_replace() {
    let image = vendor();
    assert_eq!(places_of(&image, &[0x12, 0x2B, 0xEA]), ["c:0x3908"]);
    assert_eq!(texts(&image, "c:0x3CEE", 3), ["cjne a, #0x88, 0x3CF5", "mov r7, #0x02", "sjmp 0x3CFE"]);
    assert_eq!(texts(&image, "c:0x4013", 2), ["lcall 0x3298", "movx @dptr, a"]);
    let inside = ["0x3CF2", "0x3CF3", "0x3CF4", "0x3909", "0x390A", "0x4014", "0x4015"];
    for line in listing(&image, &Symbols::default(), "c:0x0000".parse().unwrap(), usize::MAX) {
        assert!(!inside.iter().any(|at| line.text.ends_with(at)), "{line}");
    }
}
