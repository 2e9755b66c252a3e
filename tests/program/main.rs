//! Tests of the program `asmpatch`, run as its users run it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

#[path = "../chip_images/mod.rs"]
mod chip_images;
#[path = "../schemas/mod.rs"]
mod schemas;

mod doctor_images;
mod download;
mod firmware_authors;
mod flash;
#[cfg(unix)]
mod hostile;
mod open_flash;
mod other_versions;
mod readme;
mod soak;
mod transcripts;
mod vendor_flash;
mod vm;
mod xdata;
