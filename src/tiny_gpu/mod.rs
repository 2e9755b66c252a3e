//! tiny-gpu: a GPU of two cores that run blocks of four threads, modelled by the clock cycle.
//!
//! It stands for the GPU behind a bridge: [`chip`](crate::chip) puts it on PCIe. The machine is that of
//! adam-maj/tiny-gpu, and with caches that of dsandall/tiny-gpu; what it does each cycle was read off their hardware
//! descriptions, which the modules name. docs/tiny-gpu.md compares its cycles with published ones.

mod controller;
mod core;
mod isa;
pub mod kernels;
mod machine;
mod memory;
pub mod registers;
#[cfg(test)]
pub(crate) mod tests;

pub use self::core::THREADS_A_BLOCK;
pub use isa::{Arithmetic, BLOCK_DIM, BLOCK_INDEX, Condition, Instruction, Register, THREAD_INDEX};
pub use machine::{DATA_LEN, Design, Fault, PROGRAM_LEN, TinyGpuMachine, TooLong};
