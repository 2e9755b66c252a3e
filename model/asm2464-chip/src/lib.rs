#![doc = include_str!("../README.md")]

pub mod chip;
pub mod code;
pub mod disasm;
pub mod mcu;
pub mod practice;
pub mod profile;
pub mod spi_flash;
pub mod symbols;
