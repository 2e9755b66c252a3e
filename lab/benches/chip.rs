//! Speed of firmware on the whole chip model, from the reset vector.
//!
//! `ASMPATCH_VENDOR_IMAGE=FILE ASMPATCH_OPEN_IMAGE=FILE cargo bench --bench chip`. Rows of a missing image are left
//! out.
//! "E3" counts the instructions executed while E3 takes 65,280 bytes, without those of idle firmware, which are
//! skipped. "reset to configured" is the wall time from the reset vector to the end of SET_CONFIGURATION.

use std::hint::black_box;

use asm2464::firmware::Image;
use asm2464_chip::chip::boot::powered_on;
use asm2464_chip::chip::{Data, Driver, Speed};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const LEN: usize = 0xFF00;

fn image(variable: &str) -> Option<Image> {
    let file = std::fs::read(std::env::var_os(variable)?).expect("the variable names a readable file");
    Some(Image::parse(&file).expect("an image"))
}

fn boot(image: &Image) -> Driver {
    let mut unit = powered_on(image, Speed::Super);
    unit.enumerate().expect("it enumerates");
    unit
}

fn write_part(unit: &mut Driver, data: &[u8]) {
    let len = (data.len() as u32).to_be_bytes();
    let reply = unit.bulk_only(&[0xE3, 0x50, len[0], len[1], len[2], len[3]], Data::Out(data));
    assert_eq!(reply.expect("E3 is answered").status, 0);
}

fn vendor(criterion: &mut Criterion) {
    let Some(image) = image("ASMPATCH_VENDOR_IMAGE") else { return };
    let data: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let mut unit = boot(&image);
    // E3 programs in units of a length that only E1 sets (b0:0xE3A6). E1 of block 1 erases nothing.
    let mut block = [0; 15];
    block[..3].copy_from_slice(&[0xE1, 0x50, 1]);
    unit.bulk_only(&block, Data::Out(&[0xFF; 128])).expect("E1 is answered");
    write_part(&mut unit, &data);
    let before = unit.chip.instructions();
    write_part(&mut unit, &data);
    let spent = unit.chip.instructions() - before;
    let mut group = criterion.benchmark_group("240417 on the chip");
    group.throughput(Throughput::Elements(spent));
    group.bench_function("E3 of 65,280 bytes", |bencher| bencher.iter(|| write_part(&mut unit, black_box(&data))));
    group.finish();
    reset(criterion, "240417 on the chip", &image);
}

fn open(criterion: &mut Criterion) {
    let Some(image) = image("ASMPATCH_OPEN_IMAGE") else { return };
    reset(criterion, "open firmware on the chip", &image);
}

fn reset(criterion: &mut Criterion, name: &str, image: &Image) {
    let mut group = criterion.benchmark_group(name);
    group.bench_function("reset to configured", |bencher| {
        bencher.iter_batched(|| (), |()| boot(image), BatchSize::LargeInput);
    });
    group.finish();
}

criterion_group!(benches, vendor, open);
criterion_main!(benches);
