#![doc = include_str!("../README.md")]

pub mod gpu_card;
pub mod virtual_unit;
