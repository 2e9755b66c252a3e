#![doc = include_str!("../README.md")]

pub mod atomic;
pub mod file;
pub mod gpu_card;
pub mod pcap;
pub mod queue;
pub mod staged;
pub mod toml_file;
pub mod user;
pub mod virtual_unit;
