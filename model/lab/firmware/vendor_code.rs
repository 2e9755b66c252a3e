//! The vendor's code that the patches rely on, disassembled and called without a host. `ASMPATCH_VENDOR_IMAGE` names
//! the image.

use asm2464::firmware::{Bank, BodyOffset, COMMON_LEN, CodeAddress, Image};
use asm2464_chip::disasm::{LineKind, listing};
use asm2464_chip::mcu::AccessKind;
use asm2464_chip::symbols::Symbols;

use crate::chip_images::{patched, vendor, with};
use crate::firmware::chip_wire::pattern;
use crate::firmware::machine::{Machine, PlainMemory};

fn places_of(image: &Image, bytes: &[u8]) -> Vec<String> {
    let at = |(offset, _)| BodyOffset(offset as u32).code_address().unwrap().to_string();
    image.body().windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes).map(at).collect()
}

fn texts(image: &Image, at: &str, count: usize) -> Vec<String> {
    listing(image, &Symbols::default(), at.parse().unwrap(), count).into_iter().map(|line| line.text).collect()
}

/// Both handlers save every register that the patch's copy uses. They don't nest, because both enabled interrupts have
/// the same priority.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn interrupts_save_every_register_and_do_not_nest() {
    let image = vendor();
    assert_eq!(texts(&image, "c:0x0003", 1), ["ljmp 0x0E5B"]);
    assert_eq!(texts(&image, "c:0x0013", 1), ["ljmp 0x4486"]);
    for handler in ["c:0x0E5B", "c:0x4486"] {
        let saved = texts(&image, handler, 14);
        for what in ["acc", "b", "dph", "dpl", "psw", "0x00", "0x01", "0x02", "0x03", "0x04", "0x05", "0x06", "0x07"] {
            assert!(saved.contains(&format!("push {what}")), "{handler}: {what}");
        }
    }
    // The code clears IP.0 and IP.2, and sets IE.0, IE.2 and IE.7: two interrupts with one priority.
    let enabling = texts(&image, "c:0x2FB4", 5);
    assert_eq!(enabling, ["clr 0xB8", "clr 0xBA", "setb 0xA8", "setb 0xAA", "setb 0xAF"]);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_cave_is_zeros_and_nothing_in_the_image_reaches_it() {
    for patch in ["e4-length-16", "read16-sram"] {
        the_cave_of_is_free(patch);
    }
}

fn the_cave_of_is_free(patch: &str) {
    let image = vendor();
    let library = asmpatch::embedded::patches().unwrap();
    let patch = library.get(patch).unwrap();
    let hunks = patch.images.iter().find(|images| images.name == "240417").unwrap().hunks.as_slice();
    let cave = hunks.iter().max_by_key(|hunk| hunk.new.len()).unwrap();
    let start = cave.at.code_address().unwrap();
    assert_eq!(start.bank(), Bank::Common);
    let body = image.body();
    let offset = start.body_offset().0 as usize;
    assert!(body[offset - 0x100..offset + cave.new.len()].iter().all(|byte| *byte == 0), "zeros, also before it");
    let inside = usize::from(start.addr())..usize::from(start.addr()) + cave.new.len();
    // A table for MOVC or JMP @A+DPTR may begin up to 255 bytes before the bytes that it reaches.
    let indexed = inside.start - 255..inside.end;
    let word = |at: usize| usize::from(body[at]) << 8 | usize::from(body[at + 1]);
    for at in (0..body.len() - 2).filter(|at| !(offset..offset + cave.new.len()).contains(at)) {
        // Treat every byte in every bank as the start of an instruction, even if it is not.
        match body[at] {
            0x02 | 0x12 => assert!(!inside.contains(&word(at + 1)), "LJMP or LCALL at body {at:#x}"),
            0x90 => assert!(!indexed.contains(&word(at + 1)), "MOV DPTR at body {at:#x}"),
            _ => {}
        }
        let place = BodyOffset(at as u32).code_address().unwrap();
        if body[at] & 0x0F == 0x01 {
            let next = usize::from(place.addr()) + 2;
            let target = next & 0xF800 | usize::from(body[at] >> 5) << 8 | usize::from(body[at + 1]);
            assert!(!inside.contains(&target), "AJMP or ACALL at {place}");
        }
    }
    // No short jump crosses the zeros before the cave, and no case table has an entry into it.
    for bank in [Bank::Common, Bank::Bank0, Bank::Bank1] {
        let first = if bank == Bank::Common { 0 } else { COMMON_LEN as u16 };
        let lines = listing(&image, &Symbols::default(), CodeAddress::new(bank, first).unwrap(), usize::MAX);
        for line in lines.iter().filter(|line| line.kind == LineKind::Case) {
            let target = line.bytes[line.bytes.len() - 2..].to_vec();
            let entry = if line.bytes.len() == 4 { target } else { line.bytes[..2].to_vec() };
            assert!(!inside.contains(&(usize::from(entry[0]) << 8 | usize::from(entry[1]))), "{line}");
        }
    }
}

/// Between packets a long E4 stores its state in 0x0AF9 to 0x0AFD, the variables of a reply with status 8. Code that
/// names them begins such a reply (0x425F), continues one (0x4013, which E4's replies don't reach), or reads the packet
/// length (0x31A5, and E2 at b1:0xBD50). Any other code that reached them would break the firmware's own replies.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_state_of_a_long_read_is_kept_where_only_replies_in_packets_keep_theirs() {
    let image = vendor();
    let named: Vec<Vec<String>> = (0xF9..=0xFE).map(|low| places_of(&image, &[0x90, 0x0A, low])).collect();
    let expected: [&[&str]; 6] = [
        &["c:0x4071", "c:0x4264"],
        &["c:0x31A5", "c:0x40B8", "c:0x427C", "c:0x4287", "c:0x428E", "b1:0xBD50"],
        &["c:0x40B3"],
        &["c:0x4055", "c:0x4064", "c:0x4092", "c:0x4269"],
        &[],
        &["c:0x405D", "c:0x40A3"],
    ];
    assert_eq!(named, expected);
}

/// Only one call of the routine for the next packet exists. The bytes at b1:0xBCEA look like a jump to it, but belong
/// to two other instructions.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_next_packet_of_a_reply_is_asked_for_at_one_place() {
    let image = vendor();
    assert_eq!(places_of(&image, &[0x12, 0x40, 0x13]), ["c:0x4D4E"]);
    assert_eq!(places_of(&image, &[0x02, 0x40, 0x13]), ["b1:0xBCEA"]);
    assert_eq!(texts(&image, "b1:0xBCE9", 2), ["subb a, #0x02", "jc 0xBD00"]);
}

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

/// The condition of `read16-sram`. Only the runtime writes 0x33 to XDATA 0x0000: the firmware writes 0 and 1. The
/// start-up of an SSD writes 0x0AFF; other code only reads it.
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
