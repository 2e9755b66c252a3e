//! Tests of the program `asmpatch`, run as its users run it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod chip_images;
#[cfg(unix)]
mod printed_lines;
#[cfg(unix)]
mod pty;
mod schemas;

mod program {
    mod baseline;
    mod builds;
    mod cli_transcripts;
    mod doctor_images;
    mod download;
    mod field_files;
    mod firmware_authors;
    #[cfg(unix)]
    mod fix;
    mod flash;
    #[cfg(unix)]
    mod follower;
    #[cfg(unix)]
    mod forged;
    #[cfg(unix)]
    mod hostile;
    #[cfg(unix)]
    mod journey;
    mod open_flash;
    mod places;
    mod process;
    #[cfg(unix)]
    mod readme;
    mod soak;
    #[cfg(unix)]
    mod terminal;
    mod unread;
    mod vendor_flash;
    mod whole_flash;
    mod wishes;
    mod xdata;
}

/// Checks each case on a thread of its own, so that their units wait at the same time.
fn side_by_side<C: Send>(cases: impl IntoIterator<Item = C>, check: impl Fn(C) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || check(case));
        }
    });
}
