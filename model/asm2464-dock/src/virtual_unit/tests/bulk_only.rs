//! Bulk-Only on a virtual unit: commands, lengths, halts.

use asm2464::firmware::{BlockIndex, BodyOffset, Part};
use asm2464::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper, CswStatus, Direction};
use asm2464::scsi::{Cdb, Command, Lun, XdataAddress};
use asm2464_host::bridge::{CommandError, Endpoint, Port as _, TransportKind};

use super::{
    BOOT_LOADER, SSD, UNITS, bulk_only, is_timeout, patched_image, patched_unit, port, ready_unit, sense_of, unit,
    unit_with,
};
use crate::virtual_unit::{Reply, VirtualUnit};

const IN: Endpoint = Endpoint::DataIn;
const OUT: Endpoint = Endpoint::DataOut;

/// Results of one command for the host, pipe by pipe.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    moved: usize,
    stalled: bool,
    status: Option<(CswStatus, u32)>,
}

fn wrapper(cdb: &[u8], len: u32, direction: Direction) -> [u8; 31] {
    CommandBlockWrapper { tag: 7, transfer_length: len, direction, lun: 0, cdb: Cdb::new(cdb).unwrap() }.to_bytes()
}

fn exchange(unit: &mut VirtualUnit, cdb: &[u8], len: u32, direction: Direction) -> Seen {
    assert_eq!(unit.bulk_out(OUT, 0, &wrapper(cdb, len, direction)), Reply::Done(31));
    let mut seen = Seen { moved: 0, stalled: false, status: None };
    let mut buffer = vec![0xA5; len as usize];
    if len > 0 {
        match direction {
            Direction::In => match unit.bulk_in(IN, 0, &mut buffer) {
                Reply::Done(count) => seen.moved = count,
                Reply::Stall => seen.stalled = true,
                other => panic!("{other:?}"),
            },
            Direction::Out => loop {
                match unit.bulk_out(OUT, 0, &buffer[seen.moved..]) {
                    Reply::Done(count) | Reply::Part(count) => seen.moved += count,
                    Reply::Stall => seen.stalled = true,
                    Reply::Silent => return seen,
                    other => panic!("{other:?}"),
                }
                if seen.stalled || seen.moved == buffer.len() {
                    break;
                }
            },
        }
    }
    if seen.stalled {
        unit.clear_halt(if direction == Direction::In { IN } else { OUT });
    }
    let mut csw = [0; 13];
    let mut reply = unit.bulk_in(IN, 0, &mut csw);
    if reply == Reply::Stall {
        seen.stalled = true;
        unit.clear_halt(IN);
        reply = unit.bulk_in(IN, 0, &mut csw);
    }
    if reply == Reply::Done(13) {
        let csw = CommandStatusWrapper::parse(&csw).unwrap();
        assert_eq!(csw.tag, 7);
        seen.status = Some((csw.status, csw.residue));
    }
    seen
}

/// Section 6.7 of the specification: Hn, Hi, Ho are the host's expectations, Dn, Di, Do the device's intentions.
#[test]
fn the_thirteen_cases_end_as_the_specification_says_in_the_boot_loader() {
    let (ready, inquiry, e1) = ([0; 6], [0x12, 0, 0, 0, 36, 0], [0xE1, 0x50, 0, 0, 0, 0]);
    use CswStatus::{Failed, Passed, PhaseError};
    use Direction::{In, Out};
    type Case<'a> = (u8, &'a [u8], u32, Direction, usize, bool, CswStatus, u32);
    // The boot loader fails every command without data, except E8.
    let cases: [Case<'_>; 14] = [
        (1, &ready, 0, In, 0, false, Failed, 0),
        (2, &inquiry, 0, In, 0, false, PhaseError, 0),
        (3, &e1, 0, In, 0, false, PhaseError, 0),
        (4, &ready, 64, In, 0, true, Failed, 64),
        (5, &inquiry, 200, In, 36, true, Passed, 164),
        (6, &inquiry, 36, In, 36, false, Passed, 0),
        (7, &inquiry, 20, In, 20, false, PhaseError, 0),
        (8, &e1, 128, In, 0, true, PhaseError, 128),
        (9, &ready, 64, Out, 0, true, Failed, 64),
        (10, &inquiry, 128, Out, 0, true, PhaseError, 128),
        // Packets are taken as a whole: 200 bytes are one packet; of 2000 bytes, the second packet meets the halt.
        (11, &e1, 200, Out, 200, false, Passed, 72),
        (11, &e1, 2000, Out, 1024, true, Passed, 1872),
        (12, &e1, 128, Out, 128, false, Passed, 0),
        (13, &e1, 100, Out, 0, true, PhaseError, 100),
    ];
    for (case, cdb, len, direction, moved, stalled, status, residue) in cases {
        let seen = exchange(&mut ready_unit(BOOT_LOADER), cdb, len, direction);
        assert_eq!(seen, Seen { moved, stalled, status: Some((status, residue)) }, "case {case}");
    }
}

#[test]
fn an_invalid_command_wrapper_halts_both_pipes_until_reset_recovery() {
    for behind in UNITS {
        let mut unit = ready_unit(behind);
        for bad in [&[0; 31][..], &[1, 2, 3], &wrapper(&[0; 6], 0, Direction::In)[..30]] {
            // The chip takes a packet before its firmware can reject it.
            let taken = if behind.is_empty() { Reply::Done(bad.len()) } else { Reply::Stall };
            assert_eq!(unit.bulk_out(OUT, 0, bad), taken);
            assert_eq!(unit.bulk_out(OUT, 0, &[0; 31]), Reply::Stall);
            unit.clear_halt(IN);
            unit.clear_halt(OUT);
            assert_eq!(unit.bulk_in(IN, 0, &mut [0; 13]), Reply::Stall, "a cleared halt comes back before the reset");
            assert!(unit.mass_storage_reset());
            assert_eq!(unit.bulk_in(IN, 0, &mut [0; 13]), Reply::Stall, "and stays after it until it is cleared");
            unit.clear_halt(IN);
            unit.clear_halt(OUT);
            let seen = exchange(&mut unit, &[0x12, 0, 0, 0, 36, 0], 36, Direction::In);
            assert_eq!((seen.moved, seen.status), (36, Some((CswStatus::Passed, 0))));
        }
    }
}

#[test]
fn the_boot_loader_takes_data_in_whatever_pieces_the_host_makes() {
    let mut unit = ready_unit(BOOT_LOADER);
    let data: Vec<u8> = (0..4096u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let write = Command::FlashWrite { part: Part::Two, len: 4096 }.cdb();
    assert_eq!(unit.bulk_out(OUT, 0, &wrapper(write.as_slice(), 4096, Direction::Out)), Reply::Done(31));
    for piece in data.chunks(1000) {
        assert_eq!(unit.bulk_in(IN, 0, &mut [0; 13]), Reply::Silent, "its data is not there yet");
        assert_eq!(unit.bulk_out(OUT, 0, piece), Reply::Done(piece.len()));
    }
    assert_eq!(unit.bulk_in(IN, 0, &mut [0; 13]), Reply::Done(13));
    assert!(unit.flash().get(Part::Two.flash_address(), 4096).unwrap() == data);
}

#[test]
fn a_wrong_mode_byte_is_refused_with_the_sense_that_the_vendors_code_gives() {
    let both: &[(&[u8], &str)] = &[
        (&[0xE1, 0x00, 0, 0, 0, 0], "5/24/00"),
        (&[0xE3, 0x50, 0, 0, 0xFF, 1], "5/24/00"),
        (&[0xE3, 0xD0, 0, 1, 0, 1], "5/24/00"),
        (&[0xE8, 0x52, 0, 0, 0, 0], "5/20/00"),
        (&[0xC7, 0, 0, 0, 0, 0], "5/20/00"),
    ];
    let image: &[(&[u8], &str)] = &[
        (&[0xE0, 0x52, 0, 0, 0, 0], "5/24/00"),
        (&[0xE0, 0x50, 2, 0, 0, 0], "5/24/00"),
        (&[0xE2, 0x50, 0, 1, 0, 1], "5/24/00"),
        (&[0xE4, 1, 0x4F, 0, 0, 0], "5/24/00"),
        (&[0xE5, 1, 0x52, 0, 0, 0], "5/24/00"),
    ];
    let boot_loader: &[(&[u8], &str)] = &[
        (&[0x12, 1, 0x80, 0, 255, 0], "5/24/00"),
        (&[0x12, 0, 0x80, 0, 36, 0], "5/24/00"),
        (&[0xE1, 0x50, 2, 0, 0, 0], "5/24/00"),
    ];
    for (behind, own) in UNITS.into_iter().zip([image, boot_loader]) {
        let mut unit = ready_unit(behind);
        for (cdb, sense) in both.iter().chain(own) {
            let seen = exchange(&mut unit, cdb, 0, Direction::In);
            assert_eq!(seen.status, Some((CswStatus::Failed, 0)), "{cdb:02x?}");
            unit.bulk_out(OUT, 0, &wrapper(&[0x03, 0, 0, 0, 18, 0], 18, Direction::In));
            let mut data = [0; 18];
            assert_eq!(unit.bulk_in(IN, 0, &mut data), Reply::Done(18));
            unit.bulk_in(IN, 0, &mut [0; 13]);
            let found = asm2464::scsi::Sense::parse(&data).unwrap().to_string();
            assert!(found.starts_with(sense), "{cdb:02x?}: {found}");
        }
    }
}

#[test]
fn with_an_ssd_behind_it_the_unit_is_a_disk() {
    let mut bridge = bulk_only(unit(SSD));
    assert!(bridge.is_ready().unwrap());
    let capacity = bridge.read_capacity(Lun::ZERO).unwrap().unwrap();
    assert_eq!((capacity.blocks, capacity.block_len), (2048, 512));
    let data: Vec<u8> = (0..=255).cycle().take(65536).collect();
    bridge.write16(1920, &data).unwrap();
    let mut back = vec![0; 65536];
    bridge.read16(1920, &mut back).unwrap();
    assert!(back == data);
    assert!(sense_of(bridge.write16(2048, &data[..512])).starts_with("5/21/00"));
    assert!(sense_of(bridge.read16(u64::MAX, &mut back[..512])).starts_with("5/21/00"));
    assert_eq!(&bridge.identify().unwrap()[24..44], b"asmpatch virtual dri");
}

#[test]
fn with_a_gpu_an_initialised_patched_unit_answers_writes_over_uas_and_never_a_read() {
    for behind in ["behind = \"gpu\"", "behind = \"nothing\""] {
        let mut bridge = port(patched_unit(behind)).open_over(Some(TransportKind::UasStreams)).unwrap();
        assert!(!bridge.is_ready().unwrap());
        assert_eq!(bridge.read_capacity(Lun::ZERO).unwrap(), None);
        assert!(bridge.identify().is_err());
        let data: Vec<u8> = (0..4096u32).map(|i| (i ^ (i >> 4)) as u8).collect();
        assert!(sense_of(bridge.write16(0, &data)).starts_with("2/3A/00"));
        assert!(sense_of(bridge.read16(0, &mut [0; 512])).starts_with("2/3A/00"));
        bridge.initialise().unwrap();
        bridge.write16(0, &data).unwrap();
        let mut window = [0; 255];
        bridge.xdata_read(XdataAddress::main(0xF000 + 1000), &mut window).unwrap();
        assert_eq!(window[..], data[1000..1255]);
        bridge.write16(1 << 40, &data).unwrap();
        assert!(is_timeout(&bridge.read16(0, &mut [0; 512]).unwrap_err()));
        assert!(bridge.inquiry().is_ok(), "the unit answers again after recovery");
    }
}

#[test]
fn firmware_of_an_unknown_version_is_not_initialised_at_addresses_of_another() {
    let mut image = patched_image();
    assert!(image.replace(BodyOffset(0x0200), &[0x25, 0x07, 0x17]));
    let mut bridge = bulk_only(unit_with("behind = \"gpu\"", &image));
    let before = bridge.xdata_byte(XdataAddress::main(0x05A8)).unwrap();
    assert!(matches!(bridge.initialise(), Err(CommandError::UnknownVariables(version)) if version == image.version()));
    assert_eq!(bridge.xdata_byte(XdataAddress::main(0x05A8)).unwrap(), before);
}

#[test]
fn with_a_gpu_behind_it_a_write_over_bulk_only_or_without_the_status_patch_is_never_answered() {
    const GPU: &str = "behind = \"gpu\"";
    let over_uas = |unit| port(unit).open_over(Some(TransportKind::UasStreams)).unwrap();
    let over_bulk_only = |unit| port(unit).open().unwrap();
    for mut bridge in [over_bulk_only(unit(GPU)), over_bulk_only(patched_unit(GPU)), over_uas(unit(GPU))] {
        bridge.initialise().unwrap();
        assert!(is_timeout(&bridge.write16(0, &[0xC3; 512]).unwrap_err()));
        let mut window = [0; 4];
        bridge.xdata_read(XdataAddress::main(0xF000), &mut window).unwrap();
        assert_eq!(window, [0xC3; 4], "the data has still arrived");
    }
}

#[test]
fn inquiry_carries_the_names_in_the_configuration_block() {
    for behind in UNITS {
        let mut bridge = port(unit(behind)).open().unwrap();
        let inquiry = bridge.inquiry().unwrap();
        assert_eq!((inquiry.vendor.as_str(), inquiry.product.as_str()), ("ASMedia", "ASM246X"));
    }
}

#[test]
fn a_whole_part_of_64_kib_is_read_in_one_command_and_no_more() {
    let mut bridge = bulk_only(unit(""));
    let mut whole = vec![0; 0x1_0000];
    bridge.read_flash(Part::Two, &mut whole).unwrap();
    let file = asm2464_chip::practice::image().to_file();
    assert!(whole.starts_with(Part::Two.of(&file)));
    assert_eq!(bridge.read_config(BlockIndex::Zero).unwrap()[0x7E], 0x5A);
}

#[test]
fn a_host_whose_buffer_ends_inside_a_packet_is_sent_more_than_it_asked_for() {
    let mut unit = unit(SSD);
    let read = Command::Read16 { lba: 0, blocks: 8 }.cdb();
    assert_eq!(unit.bulk_out(OUT, 0, &wrapper(read.as_slice(), 4096, Direction::In)), Reply::Done(31));
    assert_eq!(unit.bulk_in(IN, 0, &mut [0; 1500]), Reply::Babble(1500));
    assert_eq!(unit.bulk_in(IN, 0, &mut [0; 2048]), Reply::Done(2048), "the packet's rest is lost");
    assert_eq!(unit.bulk_in(IN, 0, &mut [0; 12]), Reply::Babble(12));

    let mut unit = ready_unit(BOOT_LOADER);
    unit.bulk_out(OUT, 0, &wrapper(&[0x12, 0, 0, 0, 36, 0], 36, Direction::In));
    assert_eq!(unit.bulk_in(IN, 0, &mut [0; 20]), Reply::Babble(20));
    assert_eq!(unit.bulk_in(IN, 0, &mut [0; 12]), Reply::Babble(12));
}
