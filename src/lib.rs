//! Turns an ASM2464PD USB4 enclosure into a USB-to-PCIe bridge for GPUs.
//!
//! The modules follow the data's trip: an image comes in ([`fetch`]), is understood ([`firmware`]), changed
//! ([`patch`]), proven ([`mcu`], [`chip`]), written ([`flash`]) through a [`bridge`] with [`usb`] or a [`virtual_bridge`]
//! under it, measured ([`mod@bench`]) and diagnosed ([`doctor`]). What moves over a virtual bridge's wire can be recorded ([`pcap`]). [`cli`]
//! only turns arguments into calls and results into text.

pub mod atomic;
pub mod bench;
pub mod bridge;
pub mod chip;
pub mod cli;
pub mod demo;
pub mod devices;
pub mod digest;
pub mod doctor;
pub mod escape;
pub mod failure;
pub mod fetch;
pub mod file;
pub mod firmware;
pub mod flash;
pub mod interrupt;
pub mod mcu;
pub mod patch;
pub mod pcap;
pub mod pcie;
pub mod practice;
pub mod profile;
pub mod prometheus;
pub mod scsi;
pub mod shell;
pub mod symbols;
pub mod tiny_gpu;
pub mod toml_file;
pub mod unit;
pub mod usb;
pub mod virtual_bridge;
