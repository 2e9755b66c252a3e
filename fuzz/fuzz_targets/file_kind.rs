//! Fuzzes the look at a file.

#![no_main]

// Each target uses only one of the checks.
#[allow(dead_code)]
#[path = "../../tests/wire_checks/mod.rs"]
mod wire_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire_checks::file_kind(data));
