//! The SRAM for bulk data: lengths, and addresses on the PCIe side.

use crate::scsi::XdataAddress;

/// Bytes of SRAM. Source: tinygrad's hardware probing.
pub const SRAM_LEN: usize = 0x8_0000;
/// PCIe address of the SRAM, for a device's DMA. Source: open firmware; the GPU runtime.
pub const SRAM_ADDRESS: u64 = 0x0020_0000;
/// Bytes of a sector, in which F2 counts its data.
pub const SRAM_SECTOR_LEN: usize = 512;
/// Bytes of a slot. A transfer through the SRAM begins at a slot. Source: PRPs of queued reads, executed.
pub const SRAM_SLOT_LEN: usize = 0x4000;
/// Bytes of the SRAM that the CPU, and so E4 and E5, can reach without selecting another page, at
/// [`SRAM_WINDOW`](crate::scsi::XdataAddress::SRAM_WINDOW).
pub const SRAM_WINDOW_LEN: usize = 0x1000;

/// State of the SRAM's DMA: 0 when it can be armed again, 2 while it is busy. 0 does not mean that the last data is in
/// the SRAM. Source: owners' measurements.
pub const DMA_STATE: XdataAddress = XdataAddress::main(0xC450);
/// 0xB26E:0xB26F: PCIe address of the I/O completion queue, in pages of 4 KiB, big-endian. An entry written there lets
/// the SRAM's DMA send data to the host. Source: b0:0xD13E; real units, where a host that writes 0x28 to
/// 0xB26F uses 0x00828000.
pub const COMPLETIONS_PAGE: XdataAddress = XdataAddress::main(0xB26E);
/// The page after power-on, which open firmware keeps. Source: the open firmware's README and `test_sram_verify.py`.
pub const OPEN_COMPLETIONS_PAGE: u16 = 0x0822;
/// The page that the vendor's firmware sets. Source: b0:0xD13E; c:0x2465.
pub const VENDOR_COMPLETIONS_PAGE: u16 = 0x0828;

/// The fence: a dword in the I/O submission queue, which open firmware does not use. A device writes its progress there
/// for the host. Source: tinygrad's newer client.
pub const FENCE: XdataAddress = XdataAddress::main(0xA800);
/// PCIe address of the [`FENCE`].
pub const FENCE_ADDRESS: u64 = 0x0082_0800;

/// PCIe address of a page of 4 KiB, such as [`OPEN_COMPLETIONS_PAGE`].
pub const fn page_address(page: u16) -> u64 {
    (page as u64) << 12
}
