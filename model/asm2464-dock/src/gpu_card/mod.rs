//! tiny-gpu as a PCIe card: [`ENGINE`] puts it behind the chip model's bridge, and [`TinyGpu`] drives it.
//!
//! The GPU itself is the crate `tiny_gpu`. docs/lab/tiny-gpu.md describes the card.

mod card;
mod driver;
pub mod registers;

pub use card::ENGINE;
pub use driver::{DmaWrite, GpuJob, TinyGpu};
