//! Speed of verifying and patching images in memory, as CI and labs do it. Uses the vendor's image if
//! `ASMPATCH_VENDOR_IMAGE` names it, otherwise the practice image.

use std::hint::black_box;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
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

criterion_group!(benches, images);
criterion_main!(benches);
