#![doc = include_str!("../README.md")]

pub mod bridge;
pub mod pcie;
pub mod usb;
