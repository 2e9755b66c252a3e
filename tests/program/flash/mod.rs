//! Backup, flash and restore on a virtual unit, with every fault that it supports.

mod config;
mod identity;
mod kept;
#[cfg(unix)]
mod log;
mod program;
mod registers;
pub mod rig;
mod self_test;
mod several;
#[cfg(unix)]
mod signals;

/// `TRYCMD=overwrite cargo test --test program flash::` rewrites the transcripts. Tests begin in the order of their names,
/// and this one takes the longest.
#[test]
fn asmpatch_prints_what_the_transcripts_show() {
    // The images are built from source, so git doesn't have the transcripts' copies.
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/flash");
    for (name, image) in [
        ("all.in/practice.bin", asm2464_chip::practice::image()),
        ("session.in/practice.bin", asm2464_chip::practice::image()),
        ("open.in/practice.bin", asm2464_chip::practice::image()),
        ("self-test.in/practice.bin", asm2464_chip::practice::image()),
        ("open.in/open.bin", asm2464_chip::practice::open_image()),
    ] {
        std::fs::write(folder.join(name), image.to_file()).unwrap();
    }
    let cases = trycmd::TestCases::new();
    cases.env("ASMPATCH_BACKUP_DIR", "backups").env("XDG_DATA_HOME", "/nowhere").env("NO_COLOR", "1");
    cases.case("tests/cli/flash/*.md");
}
