#![doc = include_str!("../README.md")]

pub mod gpu_card;
pub mod pcap;
pub mod virtual_unit;
