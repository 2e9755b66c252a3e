//! What the virtual bridge itself costs, below every engine: one command over UAS and over Bulk-Only, on the wire.
//!
//! It bounds what `asmpatch bench` can show on a virtual bridge, in this process or in a virtual machine.

use std::hint::black_box;

use asmpatch::bridge::Endpoint;
use asmpatch::scsi::bot::{CommandBlockWrapper, Direction};
use asmpatch::scsi::uas::{CommandIu, Tag};
use asmpatch::scsi::{Cdb, Command};
use asmpatch::virtual_bridge::{InReply, OutReply, STREAMS, Scenario, VirtualBridge};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const LEN: usize = 65536;
const BLOCKS: u32 = 128;
const SSD: &str = "behind = { ssd = { bytes = 1048576 } }";

fn unit(alternate: u8) -> VirtualBridge {
    let scenario = Scenario::parse(SSD).expect("a scenario");
    let mut unit = VirtualBridge::in_memory(scenario, b"bench", None).expect("a unit");
    unit.set_alternate(alternate).expect("running firmware has both alternates");
    unit
}

/// Command, data and status of one tag after another, all tags' commands first: the queue is full.
fn uas_round(unit: &mut VirtualBridge, cdb: Cdb, data: &mut [u8]) {
    for tag in 1..=STREAMS {
        let command = CommandIu { tag: Tag(tag), lun: 0, cdb }.to_bytes();
        assert_eq!(unit.bulk_out(Endpoint::Command, 0, &command), OutReply::Accepted(32));
    }
    let mut status = [0; 34];
    for tag in 1..=STREAMS {
        if cdb.opcode() == 0x8A {
            assert_eq!(unit.bulk_out(Endpoint::DataOut, tag, data), OutReply::Accepted(LEN));
        } else {
            assert_eq!(unit.bulk_in(Endpoint::DataIn, tag, data), InReply::Data(LEN));
        }
        assert_eq!(unit.bulk_in(Endpoint::Status, tag, &mut status), InReply::Data(16));
    }
}

fn bulk_only_read(unit: &mut VirtualBridge, cdb: Cdb, data: &mut [u8]) {
    let wrapper =
        CommandBlockWrapper { tag: 1, transfer_length: LEN as u32, direction: Direction::In, lun: 0, cdb }.to_bytes();
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &wrapper), OutReply::Accepted(31));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, data), InReply::Data(LEN));
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 13]), InReply::Data(13));
}

fn wire(criterion: &mut Criterion) {
    let mut data = vec![0x5A; LEN];
    let mut group = criterion.benchmark_group("virtual_bridge");
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

criterion_group!(benches, wire);
criterion_main!(benches);
