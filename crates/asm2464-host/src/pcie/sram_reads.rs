//! Reads of the bridge's SRAM by its DMA, which a device behind the bridge completes: with F2 on open firmware.
//!
//! The data goes to the host once a PCIe device writes an NVMe completion entry to the I/O completion queue. Source: the
//! open firmware's README and `test_sram_verify.py`. This project has not run it on silicon: expect it to work, but don't
//! rely on it.

use asm2464::AnyFailure;
use asm2464::sram::page_address;

use crate::bridge::OpenBridge;
use crate::bridge::open::{SramTransfer, sectors};

/// A completion entry: 16 bytes that a device writes after the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// PCIe address of the entry in a completion queue.
    pub to: u64,
    /// Contents of the entry.
    pub bytes: [u8; 16],
    /// PCIe address of the command in a submission queue that the entry completes. The device waits for the command and
    /// puts its ID into the entry. With `None` the entry is written at once.
    pub command_at: Option<u64>,
}

impl OpenBridge {
    /// Reads the SRAM with F2 from a slot of 16 KiB on: arms the DMA, calls `set_up` for the device, and receives the
    /// data. `set_up` gets the entry that the device has to write, in the unit's
    /// [completions page](OpenBridge::completions_page), once the data is in the SRAM.
    ///
    /// Read from slot 0: on silicon an entry releases the data from there on, so a runtime whose data begins at a later
    /// slot has to discard what comes first. Source: tinygrad's pull request 17369; both runtimes arm only slot 0.
    ///
    /// # Errors
    /// [`ControlError`](crate::bridge::ControlError); any error of `set_up`. Without a device that completes the read,
    /// `asm2464::control::bulk_timeout`; the DMA stays armed then.
    pub fn sram_read<E: Into<AnyFailure>>(
        &mut self,
        first_slot: u8,
        buffer: &mut [u8],
        set_up: impl FnOnce(&mut Self, Entry) -> Result<(), E>,
    ) -> Result<(), AnyFailure> {
        let sectors = sectors(buffer.len())?;
        let to = page_address(self.completions_page()?);
        self.arm_sram(SramTransfer { to_host: true, first_slot, sectors })?;
        let mut bytes = [0; 16];
        bytes[14] = 1;
        set_up(self, Entry { to, bytes, command_at: None }).map_err(Into::into)?;
        Ok(self.bulk_in(buffer)?)
    }
}
