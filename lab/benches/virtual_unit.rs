//! Cost of virtual units in this process: the plain responder alone, and asmpatch's transfer engines with the plain
//! responder and with firmware.
//!
//! The responder runs no firmware, so its rows show the host's cost. The chip rows add the vendor's code on the chip
//! model: `ASMPATCH_VENDOR_IMAGE=FILE cargo bench --bench virtual_unit`. Without the image they are left out.

mod plain;

use std::hint::black_box;
use std::time::{Duration, Instant};

use asm2464::firmware::{BodyOffset, Image};
use asm2464::scsi::bot::{CommandBlockWrapper, Direction};
use asm2464::scsi::uas::{CommandIu, Tag};
use asm2464::scsi::{Cdb, Command};
use asm2464_dock::virtual_unit::{Reply, STREAMS, Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Endpoint, Port as _, TransportKind};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use plain::{Kind, Stream};

const LEN: usize = 65536;
const BLOCKS: u32 = 128;
const TIMEOUT: Duration = Duration::from_secs(20);
/// Name, whether over UAS, kind, bytes a command, commands in flight, and whether firmware supports it: WRITE(16) never
/// ends over Bulk-Only, and a runtime frees the SRAM after each one.
const ROWS: [(&str, bool, Kind, usize, usize, bool); 9] = [
    ("uas_e4_255_1_tag", true, Kind::E4, 255, 1, true),
    ("uas_e4_255_31_tags", true, Kind::E4, 255, 31, true),
    ("uas_write16_64k_and_freeing_1_tag", true, Kind::RuntimeWrite, LEN, 1, true),
    ("uas_write16_64k_1_tag", true, Kind::Write, LEN, 1, false),
    ("uas_write16_64k_8_tags", true, Kind::Write, LEN, 8, false),
    ("uas_write16_64k_31_tags", true, Kind::Write, LEN, 31, false),
    ("bulk_only_e4_255", false, Kind::E4, 255, 1, true),
    ("bulk_only_write16_64k", false, Kind::Write, LEN, 1, false),
    ("bulk_only_read16_64k", false, Kind::Read, LEN, 1, false),
];

fn unit(alternate: u8) -> VirtualUnit {
    let mut unit = plain::responder(0).expect("a responder");
    assert!(unit.set_alternate(alternate), "the responder has both alternates");
    unit
}

/// 240417 with the status patch, and a GPU behind it.
fn chip() -> Option<VirtualUnit> {
    let file = std::fs::read(std::env::var_os("ASMPATCH_VENDOR_IMAGE")?).expect("the variable names a readable file");
    let mut image = Image::parse(&file).expect("an image");
    assert!(image.replace(BodyOffset(0x2A0E), &[0x05]), "240417");
    Some(VirtualUnit::in_memory(Scenario::default(), b"bench", Some(&image.to_file())).expect("a unit"))
}

/// Moves command, data and status of each tag in turn. All tags' commands come first, so the queue is full.
fn uas_round(unit: &mut VirtualUnit, cdb: Cdb, data: &mut [u8]) {
    for tag in 1..=STREAMS {
        let command = CommandIu { tag: Tag(tag), lun: 0, cdb }.to_bytes();
        assert_eq!(unit.bulk_out(Endpoint::Command, 0, &command), Reply::Done(32));
    }
    let mut status = [0; 34];
    for tag in 1..=STREAMS {
        if cdb.opcode() == 0x8A {
            assert_eq!(unit.bulk_out(Endpoint::DataOut, tag, data), Reply::Done(LEN));
        } else {
            assert_eq!(unit.bulk_in(Endpoint::DataIn, tag, data), Reply::Done(LEN));
        }
        assert_eq!(unit.bulk_in(Endpoint::Status, tag, &mut status), Reply::Done(16));
    }
}

fn bulk_only_read(unit: &mut VirtualUnit, cdb: Cdb, data: &mut [u8]) {
    let wrapper =
        CommandBlockWrapper { tag: 1, transfer_length: LEN as u32, direction: Direction::In, lun: 0, cdb }.to_bytes();
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &wrapper), Reply::Done(31));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, data), Reply::Done(LEN));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 13]), Reply::Done(13));
}

fn wire(criterion: &mut Criterion) {
    let mut data = vec![0x5A; LEN];
    let mut group = criterion.benchmark_group("virtual_unit");
    group.throughput(Throughput::Bytes(u64::from(STREAMS) * LEN as u64));
    for (name, command) in [
        ("uas_write16_64k_32_tags", Command::Write16 { lba: 0, blocks: BLOCKS }),
        ("uas_read16_64k_32_tags", Command::Read16 { lba: 0, blocks: BLOCKS }),
    ] {
        let mut unit = unit(1);
        group.bench_function(name, |bencher| {
            bencher.iter(|| uas_round(&mut unit, command.cdb(), black_box(&mut data)));
        });
    }
    group.throughput(Throughput::Bytes(LEN as u64));
    let mut unit = unit(0);
    let read = Command::Read16 { lba: 0, blocks: BLOCKS }.cdb();
    group.bench_function("bulk_only_read16_64k", |bencher| {
        bencher.iter(|| bulk_only_read(&mut unit, read, black_box(&mut data)));
    });
    group.finish();
}

fn engines(criterion: &mut Criterion) {
    let responder = Some(plain::responder(0).expect("a responder"));
    for (who, unit, is_chip) in [("plain", responder, false), ("chip", chip(), true)] {
        let Some(unit) = unit else { continue };
        let mut port = VirtualPort::new(who, unit);
        let mut group = criterion.benchmark_group(format!("engines_{who}"));
        for (name, uas, kind, bytes, depth, firmware_takes_it) in ROWS {
            if is_chip && !firmware_takes_it {
                continue;
            }
            let wanted = if uas { TransportKind::UasStreams } else { TransportKind::BulkOnly };
            let mut bridge = port.open_over(Some(wanted)).expect("the unit is attached");
            if kind == Kind::RuntimeWrite {
                // Before an INQUIRY the vendor's code refuses the commands below.
                bridge.inquiry().expect("INQUIRY is answered");
                bridge.initialise().expect("E5 is answered");
            }
            let mut stream = Stream::new(kind, bytes, 0);
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|commands| {
                    stream.restart(commands);
                    let began = Instant::now();
                    bridge.transport_mut().run(&mut stream, depth, TIMEOUT).expect("every command is answered");
                    assert!(stream.failed.is_none(), "{:?}", stream.failed);
                    began.elapsed()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, wire, engines);
criterion_main!(benches);
