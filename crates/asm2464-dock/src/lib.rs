//! An ASM2464PD unit in software, for those who test without a dock: it powers on like the chip, runs the firmware in its
//! flash on the model of `asm2464-chip`, and is driven by the code of `asm2464-host` or by a kernel over usbredir.
//!
//! [`virtual_bridge`] is the unit, [`tiny_gpu`] a GPU that it can have behind it, with a driver, and [`pcap`] records what
//! goes over its wire.

pub mod pcap;
pub mod tiny_gpu;
pub mod virtual_bridge;

#[cfg(test)]
use asm2464::digest;
use asm2464::{firmware, interrupt, progress, scsi};
use asm2464_chip::{chip, mcu, practice};
use asm2464_host::bridge;
use asmpatch_files::{atomic, file, toml_file};
