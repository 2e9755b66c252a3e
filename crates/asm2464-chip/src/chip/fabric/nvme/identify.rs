//! Answers to Identify.

use asm2464::scsi::BLOCK_LEN;

use super::command::NvmeStatus;
use super::{EVENT_REQUESTS, MDTS, PAGE_LEN, VERSION};

/// Builds the data of Identify. `what` is CNS.
pub(super) fn page(what: u8, namespace: u32, blocks: u64) -> Result<[u8; PAGE_LEN as usize], NvmeStatus> {
    const NAMESPACE: u8 = 0;
    const CONTROLLER: u8 = 1;
    const ACTIVE_NAMESPACES: u8 = 2;
    const COMMON: u32 = u32::MAX;
    let mut page = [0; PAGE_LEN as usize];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    match what {
        NAMESPACE if namespace == 1 || namespace == COMMON => {
            for at in [0, 8, 16] {
                put(at, &blocks.to_le_bytes());
            }
            // LBAF 0: no metadata, 2^9 bytes.
            put(128, &[0, 0, BLOCK_LEN.trailing_zeros() as u8, 0]);
        }
        NAMESPACE => return Err(NvmeStatus::INVALID_NAMESPACE),
        CONTROLLER => {
            // VID and SSVID: those of the devices that this project makes up.
            put(0, &[0x34, 0x12, 0x34, 0x12]);
            put(4, &padded::<20>("1"));
            put(24, &padded::<40>("asmpatch virtual drive"));
            put(64, &padded::<8>("1"));
            put(77, &[MDTS]);
            put(80, &VERSION.to_le_bytes());
            // ACL; AERL; ...; firmware updates: one slot, read-only.
            put(258, &[3, EVENT_REQUESTS as u8 - 1, 0x03]);
            // SQES, CQES: 64 and 16 bytes, nothing else.
            put(512, &[0x66, 0x44]);
            put(516, &1_u32.to_le_bytes());
            // A write cache, which Flush empties.
            put(525, &[1]);
        }
        ACTIVE_NAMESPACES if namespace == 0 => put(0, &1_u32.to_le_bytes()),
        ACTIVE_NAMESPACES => {}
        _ => return Err(NvmeStatus::INVALID_FIELD),
    }
    Ok(page)
}

fn padded<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut padded = [b' '; LEN];
    for (place, byte) in padded.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    padded
}
