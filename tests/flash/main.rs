//! The whole of backup, flash, restore on a virtual bridge, with every fault that it can be told.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod cases;
mod config;
mod registers;

/// `TRYCMD=overwrite cargo test --test flash` writes what the commands print now.
#[test]
fn the_commands_print_what_the_transcripts_show() {
    // Built from its source, so the transcripts' copy is made here and not kept in git.
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/flash/session.in/practice.bin");
    std::fs::write(path, asmpatch::practice::image().to_file()).unwrap();
    trycmd::TestCases::new().env("NO_COLOR", "1").env("ASMPATCH_BACKUP_DIR", "backups").case("tests/cli/flash/*.md");
}
