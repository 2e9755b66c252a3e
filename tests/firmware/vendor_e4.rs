//! The E4 length extension on the vendor's image, which the repository doesn't contain. `ASMPATCH_VENDOR_IMAGE` names
//! the image.
use asm2464::firmware::{Bank, BodyOffset, COMMON_LEN, CodeAddress, Image};
use asm2464_chip::disasm::{LineKind, listing};
use asm2464_chip::symbols::Symbols;

use crate::firmware::e4::Pair;

fn vendor_file() -> Vec<u8> {
    let path = std::env::var_os("ASMPATCH_VENDOR_IMAGE")
        .expect("set ASMPATCH_VENDOR_IMAGE to AS_USB4_240417_85_00_00.bin, which `asmpatch download` fetches");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pair() -> Pair {
    Pair::new(&vendor_file())
}

fn texts(image: &Image, at: &str, count: usize) -> Vec<String> {
    listing(image, &Symbols::default(), at.parse().unwrap(), count).into_iter().map(|line| line.text).collect()
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn every_length_of_one_byte_at_each_regions_edges_is_as_before() {
    pair().every_short_length_is_as_before();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn at_each_regions_edges_it_is_as_before_over_both_transports() {
    pair().the_regions_edges_are_as_before();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_wrong_mode_byte_is_refused_as_before() {
    pair().a_wrong_mode_is_refused_as_before();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn up_to_4096_bytes_come_right_in_one_command_packet_by_packet() {
    pair().long_reads_give_the_right_bytes();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_long_read_for_a_host_that_expects_no_data_reads_none() {
    pair().a_long_read_for_a_host_that_expects_no_data_reads_none();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn more_than_4096_bytes_are_refused_and_no_register_is_touched() {
    pair().more_than_the_buffer_holds_is_refused_with_no_register_touched();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn any_cdb_returns_and_writes_nothing_outside_the_declared_set() {
    pair().any_cdb_returns_and_writes_nothing_outside_the_declared_set();
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_handlers_instructions_at_each_length_are_known() {
    let mut pair = pair();
    pair.at_most_eight_instructions_a_byte();
    assert_eq!(
        pair.instructions(&[0, 1, 64, 255, 256, 1024]),
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

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_scratch_is_what_stock_overwrites_too() {
    pair().stock_overwrites_the_scratch_too();
}

/// Both handlers save what the copy uses. A nested interrupt could not, but none nests, because both enabled interrupts
/// have the same priority.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn interrupts_save_every_register_and_do_not_nest() {
    let image = Image::parse(&vendor_file()).unwrap();
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
    let file = vendor_file();
    let image = Image::parse(&file).unwrap();
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
        // Take every byte in every bank for the start of an instruction, even if it is not.
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

fn places_of(image: &Image, bytes: [u8; 3]) -> Vec<String> {
    let at = |(offset, _)| BodyOffset(offset as u32).code_address().unwrap().to_string();
    image.body().windows(3).enumerate().filter(|(_, window)| *window == bytes).map(at).collect()
}

/// Between packets a long E4 stores its state in 0x0AF9 to 0x0AFD, the variables of a reply with status 8. Code that
/// names them begins such a reply (0x425F), continues one (0x4013, which E4's replies don't reach), or reads the packet
/// length (0x31A5, and E2 at b1:0xBD50). Any other code that reached them would break the firmware's own replies.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_state_of_a_long_read_is_kept_where_only_replies_in_packets_keep_theirs() {
    let image = Image::parse(&vendor_file()).unwrap();
    let named: Vec<Vec<String>> = (0xF9..=0xFE).map(|low| places_of(&image, [0x90, 0x0A, low])).collect();
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

/// Only one call of the routine for the next packet exists. The same bytes at b1:0xBCEA are the ends of two
/// instructions.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_next_packet_of_a_reply_is_asked_for_at_one_place() {
    let image = Image::parse(&vendor_file()).unwrap();
    assert_eq!(places_of(&image, [0x12, 0x40, 0x13]), ["c:0x4D4E"]);
    assert_eq!(places_of(&image, [0x02, 0x40, 0x13]), ["b1:0xBCEA"]);
    assert_eq!(texts(&image, "b1:0xBCE9", 2), ["subb a, #0x02", "jc 0xBD00"]);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn the_practice_image_shares_no_run_of_sixteen_bytes_with_the_vendors() {
    let vendor = Image::parse(&vendor_file()).unwrap();
    let known: std::collections::HashSet<&[u8]> = vendor.body().windows(16).collect();
    let practice = asm2464_chip::practice::image();
    for (at, run) in practice.body().windows(16).enumerate() {
        let filler = run.iter().filter(|byte| **byte == 0).count() > 8;
        assert!(filler || !known.contains(run), "body {at:#x}");
    }
}
