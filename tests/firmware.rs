//! Firmware executed: routines on the 8051, and whole images on the chip model, from reset.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod chip_images;
mod schemas;
mod wire_checks;

mod firmware {
    mod any_code;
    mod chip_flash;
    mod chip_wire;
    mod document;
    mod e4;
    mod fuzz_corpus;
    mod machine;
    mod open_chip;
    mod practice_chip;
    mod practice_e4;
    mod registers;
    mod vendor_boot;
    mod vendor_chip;
    mod vendor_chip_dma;
    mod vendor_chip_errors;
    mod vendor_drive;
    mod vendor_e4;
    mod vendor_e4_chip;
    mod vendor_early_ends;
    mod vendor_firmware;
    mod vendor_patch;
    mod vendor_read16;
}
