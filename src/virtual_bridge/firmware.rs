//! The seam between the chip and what runs on it: who answers the vendor commands.

use super::chip::Chip;
use crate::scsi::bot::Direction;
use crate::scsi::{ResetMode, Sense};

/// What firmware makes of a vendor command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Data for the host, which stands in the buffer that was passed in; then GOOD.
    DataIn,
    /// So many bytes are wanted from the host; then [`Firmware::finish`].
    DataOut(u32),
    /// GOOD, without data.
    Good,
    /// CHECK CONDITION, without data.
    Check(Sense),
    /// GOOD, without data, and then the unit leaves the bus.
    Reset(ResetMode),
    /// The host never gets an answer.
    Silent,
}

/// What the routine that queues READ(16) and WRITE(16) returns to the dispatcher (IDATA 0x6A).
/// Source: the routine at 0x2814 of image 240417.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferStatus {
    /// 0x09 and 0x0A: queued; the host is answered when the NVMe completion comes.
    Queued,
    /// 0x05: the host is answered at once.
    AnswerNow,
}

impl TransferStatus {
    /// What the dispatcher makes of the routine's return value.
    pub const fn from_status_byte(byte: u8) -> Self {
        if byte == 0x05 { Self::AnswerNow } else { Self::Queued }
    }
}

/// What runs on the chip.
pub trait Firmware: Send + std::fmt::Debug {
    /// Starts a vendor command (E0 and up). `cdb` is padded with zeros. `host_len` is what the host said it expects to
    /// move (Bulk-Only's dCBWDataTransferLength), where the transport carries that. Data in goes into `data`,
    /// which is empty.
    fn begin(&mut self, chip: &mut Chip, cdb: &[u8; 16], host_len: Option<u32>, data: &mut Vec<u8>) -> Reply;

    /// Ends a vendor command whose data from the host is there: [`Reply::Good`], [`Reply::Check`] or
    /// [`Reply::Silent`].
    fn finish(&mut self, chip: &mut Chip, cdb: &[u8; 16], data: &[u8]) -> Reply;

    /// READ(16) or WRITE(16) is queued: what the dispatcher is told.
    fn queue_transfer(&mut self, chip: &mut Chip, direction: Direction) -> TransferStatus;
}
