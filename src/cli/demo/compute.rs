//! The demo's last step, which no command does: multiplies matrices on the GPU behind the unit.

use std::path::Path;

use asm2464::Bdf;
use asm2464::sram::SRAM_ADDRESS;
use asm2464_dock::gpu_card::{DmaWrite, Job, TinyGpu};
use asm2464_dock::virtual_unit::{Counts, VirtualPort};
use asm2464_host::bridge::Bridge;
use asm2464_host::pcie::{NoTime, Pcie, Scope, VendorTlp};
use tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS, host_product};

use super::check_failed;
use crate::failure::AnyFailure;

/// The matrices, row by row.
pub const MATRICES: [[u8; 4]; 2] = [[1, 2, 3, 4], [5, 6, 7, 8]];

/// The result of computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Computed {
    /// Where the GPU was found.
    pub at: Bdf,
    /// The product, which the host has computed too.
    pub product: [u8; 4],
    /// GPU cycles that it took.
    pub cycles: u32,
    /// The firmware's work to move program and data in, and to let the GPU send the product.
    pub job: Counts,
    /// The firmware's work to read the product from the SRAM.
    pub by_sram: Counts,
    /// The firmware's work to read the product from the GPU's memory.
    pub by_reads: Counts,
}

/// Multiplies the matrices on the GPU of the unit in `folder`. They go in over USB and PCIe; the product comes back
/// once by the GPU's own write into the SRAM, and once by memory reads.
///
/// # Errors
/// The errors of the connection to the GPU, and a failed check if the product differs from the host's.
pub fn compute(folder: &Path) -> Result<Computed, AnyFailure> {
    let mut port = VirtualPort::open_dir(folder)?;
    let unit = port.unit().clone();
    // UAS, as the GPU runtime does: the status patch has an effect only there.
    let transport = port.uas()?.ok_or_else(|| check_failed("the unit has no UAS"))?;
    let mut bridge = Bridge::new(transport);
    let mut patience = NoTime;
    let mut engine = VendorTlp::new(&mut bridge);
    let mut pcie = Pcie::new(&mut engine, &mut patience);
    let mut survey = pcie.survey(Scope::USUAL)?;
    pcie.assign(&mut survey)?;
    let gpu = TinyGpu::open(&mut pcie, &survey)?;
    let gpu = gpu.ok_or_else(|| check_failed("the GPU behind the bridge was not found"))?;
    let [a, b] = MATRICES;
    let job = Job {
        program: &MATMUL,
        data: &[a, b].concat(),
        threads: PRODUCT_THREADS,
        caches: false,
        cycle_limit: 10_000,
        send: Some(DmaWrite { from: PRODUCT_AT as u8, len: 4, to: SRAM_ADDRESS, entry: None }),
    };
    let counts = || unit.lock().counts();
    let begun = counts();
    let cycles = gpu.run(&mut pcie, &job)?;
    let run = counts();
    let mut product = [0; 4];
    pcie.sram_read(0, &mut product)?;
    let read = counts();
    let mut again = [0; 4];
    gpu.read(&mut pcie, PRODUCT_AT as u8, &mut again)?;
    let marks = [begun, run, read, counts()];
    let host = host_product(a, b);
    if product != host || again != host {
        let found = format!("{product:?} in the SRAM and {again:?} in its memory, not {host:?}");
        return Err(check_failed(format!("the GPU's product is {found}")));
    }
    let [job, by_sram, by_reads] = [0, 1, 2].map(|at| Counts {
        commands: marks[at + 1].commands - marks[at].commands,
        instructions: marks[at + 1].instructions - marks[at].instructions,
    });
    Ok(Computed { at: gpu.at, product, cycles, job, by_sram, by_reads })
}
