//! Speed of the emulated 8051: instructions and vendor commands a second.
//!
//! `cargo bench --bench emulator`. Also measures image 240417 if `ASMPATCH_VENDOR_IMAGE` names it.

use std::hint::black_box;

use asm2464::firmware::Image;
use asm2464_chip::chip::{Chip, Data, RunEnd, Speed, boot};
use asm2464_chip::mcu::CodeSpace;
use asm2464_chip::practice;
use asm2464_chip::spi_flash::SpiFlash;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// 2$: MOV R7,#0; 1$: MOV DPTR,#1000h; MOVX A,@DPTR; ADD A,R7; INC A; MOVX @DPTR,A; DJNZ R7,1$; SJMP 2$
const LOOP: [u8; 13] = [0x7F, 0, 0x90, 0x10, 0x00, 0xE0, 0x2F, 0x04, 0xF0, 0xDF, 0xF7, 0x80, 0xF3];
/// Instructions in one iteration of the benchmark.
const ROUND: u64 = 400_000;

fn instructions(criterion: &mut Criterion) {
    let mut chip = Chip::power_on(CodeSpace::from_body(&LOOP), SpiFlash::erased(), Speed::Super);
    assert_eq!(chip.run(ROUND), RunEnd::Budget, "the loop does not end");
    let mut group = criterion.benchmark_group("instructions");
    group.throughput(Throughput::Elements(ROUND));
    group.bench_function("memory loop", |bencher| bencher.iter(|| chip.run(black_box(ROUND))));
    group.finish();
}

fn commands(criterion: &mut Criterion) {
    let vendor = std::env::var_os("ASMPATCH_VENDOR_IMAGE").map(|path| {
        let file = std::fs::read(path).expect("ASMPATCH_VENDOR_IMAGE names a readable file");
        ("240417", Image::parse(&file).expect("an image"))
    });
    let cdb = [0xE4, 0xFF, 0x50, 0xF0, 0x00, 0x00];
    for (name, image) in vendor.into_iter().chain([("practice", practice::image())]) {
        let mut unit = boot::booted(&image, 1).expect("it boots");
        unit.command(&cdb, Data::None).expect("E4 is answered");
        let before = unit.chip.instructions();
        unit.command(&cdb, Data::None).expect("E4 is answered");
        let mut group = criterion.benchmark_group(format!("E4 of 255 bytes on {name}"));
        group.throughput(Throughput::Elements(unit.chip.instructions() - before));
        group.bench_function("instructions", |bencher| bencher.iter(|| unit.command(black_box(&cdb), Data::None)));
        group.finish();
    }
}

criterion_group!(benches, instructions, commands);
criterion_main!(benches);
