//! tiny-gpu: a GPU of two cores that run blocks of four threads, modelled cycle by cycle.
//!
//! It serves as the GPU behind a bridge: [`ENGINE`] puts it on the chip model's PCIe, and [`TinyGpu`] drives it. The
//! machine is adam-maj/tiny-gpu's, and with caches dsandall/tiny-gpu's. What it does in each cycle comes from their
//! hardware descriptions, which the modules cite. docs/tiny-gpu.md compares its cycle counts with those that a course's
//! web page publishes ("the course page").

mod card;
mod controller;
mod core;
mod driver;
mod isa;
pub mod kernels;
mod machine;
pub mod registers;
#[cfg(test)]
mod tests;

pub use card::ENGINE;
pub use driver::{DmaWrite, Job, TinyGpu, TinyGpuError};
pub use machine::{Design, TinyGpuMachine};
