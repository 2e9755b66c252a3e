//! Windows of data that a device behind the bridge takes from the SRAM.

use std::num::NonZeroU32;
use std::time::Instant;

use asm2464::sram::{FENCE, SECTOR_LEN};

use super::{ControlError, OpenBridge, SramTransfer, sectors};

impl OpenBridge {
    /// F2: writes a window to the SRAM, and waits until a device has taken it. Behind the data, a whole number of sectors,
    /// follows one sector that repeats `sentinel`.
    ///
    /// The device waits until it reads `sentinel` in that sector, takes the data, and writes `sentinel` to
    /// [`FENCE_ADDRESS`](asm2464::sram::FENCE_ADDRESS). Give each window another one, so that the device never takes an
    /// old sector for the new one.
    ///
    /// # Errors
    /// As for [`OpenBridge::sram_write`]; [`ControlError::NotTaken`] if the device has not written the fence within the
    /// [time limit](OpenBridge::set_timeout).
    pub fn sram_write_taken(&mut self, first_slot: u8, data: &[u8], sentinel: NonZeroU32) -> Result<(), ControlError> {
        let sectors = sectors(data.len())?.saturating_add(1);
        self.xdata_write_all(&[0, 1, 2, 3].map(|at| (FENCE.plus(at), 0)))?;
        self.arm_sram(SramTransfer { to_host: false, first_slot, sectors })?;
        self.bulk_out(data)?;
        self.bulk_out(&sentinel.get().to_le_bytes().repeat(SECTOR_LEN / 4))?;
        let until = Instant::now() + self.timeout;
        loop {
            let mut fence = [0; 4];
            self.xdata_read(FENCE, &mut fence)?;
            match u32::from_le_bytes(fence) {
                found if found == sentinel.get() => return Ok(()),
                found if Instant::now() >= until => {
                    return Err(ControlError::NotTaken { deadline: self.timeout, sentinel: sentinel.get(), found });
                }
                _ => {}
            }
        }
    }
}
