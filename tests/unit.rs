//! The library: virtual units, reached as a real unit is, and what once broke a parser.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod chip_images;
#[path = "../lab/read16.rs"]
mod read16;
mod wire_checks;

mod unit {
    mod agreement;
    mod fuzz_corpus;
    mod no_allocation;
    mod open_control;
    mod open_runtime;
    #[cfg(unix)]
    mod pcap;
    mod pcie_chip;
    mod rig;
    mod soak;
    mod tiny_gpu_chip;
    mod vendor_bench;
    mod vendor_sram_reads;
    mod vendor_unit;
}
