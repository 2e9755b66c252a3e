#![doc = include_str!("../README.md")]

mod controller;
mod core;
pub mod isa;
pub mod kernels;
mod machine;
#[cfg(test)]
mod tests;

pub use machine::{DATA_LEN, Design, Machine, PROGRAM_LEN, RunFault};
