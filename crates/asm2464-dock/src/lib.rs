#![doc = include_str!("../README.md")]

pub mod files;
pub mod pcap;
pub mod record;
pub mod tiny_gpu;
pub mod virtual_unit;
