//! Speed of verifying and patching images in memory, as CI and labs do it. Uses the vendor's image if
//! `ASMPATCH_VENDOR_IMAGE` names it, otherwise the practice image. And of the search for known images in archives that a
//! stranger made as large as they may be.

use std::hint::black_box;
use std::io::{Cursor, Write as _};

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::interrupt::Interrupt;
use asmpatch::fetch::images_in;
use asmpatch::patch::{Expectations, PatchSet, Selection, verify_file};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn image() -> Image {
    match std::env::var_os("ASMPATCH_VENDOR_IMAGE") {
        Some(path) => {
            let file = std::fs::read(&path).expect("ASMPATCH_VENDOR_IMAGE names a file that can be read");
            Image::parse(&file).expect("ASMPATCH_VENDOR_IMAGE is an image")
        }
        None => asm2464_chip::practice::image(),
    }
}

fn images(criterion: &mut Criterion) {
    let library = asmpatch::embedded::patches().expect("the embedded patches are valid");
    let stock = image();
    let digest = Sha256Digest::of(&stock.to_file());
    let selection = Selection::default();
    let set = PatchSet::resolve(&library, &selection, &stock, digest).expect("the default set fits a known image");
    let patched = set.apply().expect("the default set applies").image.to_file();

    let mut group = criterion.benchmark_group("images");
    group.throughput(Throughput::Elements(1000));
    group.sample_size(10);
    group.bench_function("verify 1000 patched images", |bencher| {
        bencher.iter(|| {
            for _ in 0..1000 {
                assert!(verify_file(&library, black_box(&patched), &Expectations::default()).is_valid());
            }
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("patch an image in memory", |bencher| {
        bencher.iter(|| {
            let set = PatchSet::resolve(&library, &selection, black_box(&stock), digest).expect("it fits");
            Sha256Digest::of(&set.apply().expect("it applies").image.to_file())
        });
    });
    group.finish();
}

fn zip_of(members: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(name, options).expect("the name fits");
        zip.write_all(&bytes).expect("memory suffices");
    }
    zip.finish().expect("memory suffices").into_inner()
}

fn archives(criterion: &mut Criterion) {
    let known = asmpatch::embedded::manifests(&[]).expect("the embedded manifests are valid");
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let path = folder.path().join("a.zip");
    let noise = |len: u32| (0..len).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect::<Vec<u8>>();
    let mut updater = noise(60_000_000);
    updater[..2].copy_from_slice(b"MZ");
    let mut group = criterion.benchmark_group("archives");
    group.sample_size(10);
    for (name, zip) in [
        ("65,000 empty members", zip_of((0..65_000).map(|at| (format!("{at}.txt"), Vec::new())))),
        ("one member of 60 MB", zip_of(std::iter::once(("a.bin".to_owned(), noise(60_000_000))))),
        ("a program of 60 MB", zip_of(std::iter::once(("setup.exe".to_owned(), updater)))),
    ] {
        std::fs::write(&path, zip).expect("the disk has room");
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert!(images_in(&path, &known, Interrupt::never()).known.is_empty()));
        });
    }
    group.finish();
}

criterion_group!(benches, images, archives);
criterion_main!(benches);
