//! What a script pays for each asmpatch process. Criterion measures the time, `/usr/bin/time -f %M` the peak memory.
//! See docs/lab/performance.md.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use criterion::{Criterion, criterion_group, criterion_main};

fn process(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let image = match std::env::var_os("ASMPATCH_VENDOR_IMAGE") {
        Some(path) => PathBuf::from(path),
        None => {
            let path = folder.path().join("practice.bin");
            std::fs::write(&path, asm2464_chip::practice::image().to_file())
                .expect("the temporary folder can be written");
            path
        }
    };
    let out = folder.path().join("patched.bin");
    let asmpatch = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asmpatch"));
        command.stdout(Stdio::null());
        command
    };

    let mut group = criterion.benchmark_group("process");
    group.bench_function("--version", |bencher| {
        bencher.iter(|| assert!(asmpatch().arg("--version").status().expect("it starts").success()));
    });
    group.bench_function("patch", |bencher| {
        bencher.iter(|| {
            let status = asmpatch().arg("patch").arg(&image).arg("-o").arg(&out).arg("--force").status();
            assert!(status.expect("it starts").success());
        });
    });
    group.finish();
}

criterion_group!(benches, process);
criterion_main!(benches);
