//! The cost of a command on the whole chip.

use super::core::Chip;
use super::driver::{Data, Driver};
use super::usb::Speed;
use crate::firmware::Image;
use crate::mcu::{CodeSpace, MemoryFlash, Wire};
use crate::scsi::{Cdb, Command, INQUIRY_LEN};

/// Counts the instructions of a command that returns data or none, from its arrival to its status at SuperSpeed. All
/// interrupts and the wait for packets are included. The image boots from reset with an erased flash, is enumerated,
/// and first answers an INQUIRY, because 240417 brings up PCIe with its first command.
///
/// Returns `None` if the image does not get that far, or gives no status within `budget` instructions.
pub fn instructions(image: &Image, wire: Wire, cdb: &Cdb, budget: u64) -> Option<u64> {
    let mut host = Driver::new(Chip::power_on(CodeSpace::new(image), MemoryFlash::erased(), Speed::Super));
    host.enumerate().ok()?;
    if wire == Wire::Uas {
        host.set_alternate(1).ok()?;
    }
    let mut run = |cdb: &Cdb, len: u32, budget| {
        host.settle();
        host.set_budget(budget);
        let before = host.chip.instructions();
        match wire {
            Wire::Uas => host.uas(1, cdb.as_slice(), &[]).map(drop),
            Wire::BulkOnly { .. } if len == 0 => host.bulk_only(cdb.as_slice(), Data::None).map(drop),
            Wire::BulkOnly { .. } => host.bulk_only(cdb.as_slice(), Data::In(len as usize)).map(drop),
        }
        .ok()?;
        Some(host.chip.instructions() - before)
    };
    run(&Command::Inquiry { len: INQUIRY_LEN }.cdb(), INQUIRY_LEN.into(), crate::mcu::DEFAULT_BUDGET)?;
    let len = if let Wire::BulkOnly { host_len, .. } = wire { host_len } else { 0 };
    run(cdb, len, budget)
}
