//! A queued command, the status it may end with, and the location of its data; answers to Identify.

use asm2464::scsi::BLOCK_LEN;

use super::{EVENT_REQUESTS, HostMemory, MDTS, PAGE_LEN, VERSION};

/// A submission queue entry.
pub(super) struct SubmissionEntry(pub(super) [u8; 64]);

impl SubmissionEntry {
    pub(super) fn opcode(&self) -> u8 {
        self.0[0]
    }

    pub(super) fn id(&self) -> u16 {
        (self.dword(0) >> 16) as u16
    }

    pub(super) fn namespace(&self) -> u32 {
        self.dword(1)
    }

    pub(super) fn prp1(&self) -> u64 {
        u64::from(self.dword(7)) << 32 | u64::from(self.dword(6))
    }

    pub(super) fn prp2(&self) -> u64 {
        u64::from(self.dword(9)) << 32 | u64::from(self.dword(8))
    }

    /// Command dword `number`, 0 to 15.
    pub(super) fn dword(&self, number: usize) -> u32 {
        let at = 4 * number;
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}

/// Status of a failed command: status code type and status code, as in the completion entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NvmeStatus(pub(super) u16);

impl NvmeStatus {
    pub(super) const INVALID_OPCODE: Self = Self(0x001);
    pub(super) const INVALID_FIELD: Self = Self(0x002);
    pub(super) const TRANSFER_ERROR: Self = Self(0x004);
    pub(super) const INVALID_NAMESPACE: Self = Self(0x00B);
    pub(super) const INVALID_OFFSET: Self = Self(0x013);
    pub(super) const OUT_OF_RANGE: Self = Self(0x080);
    pub(super) const INVALID_COMPLETION_QUEUE: Self = Self(0x100);
    pub(super) const INVALID_QUEUE: Self = Self(0x101);
    pub(super) const INVALID_QUEUE_SIZE: Self = Self(0x102);
    pub(super) const EVENT_LIMIT: Self = Self(0x105);
    pub(super) const INVALID_LOG_PAGE: Self = Self(0x109);
    pub(super) const INVALID_QUEUE_DELETION: Self = Self(0x10C);
    pub(super) const WRITE_FAULT: Self = Self(0x280);
    pub(super) const READ_ERROR: Self = Self(0x281);
}

/// Location of a command's data in host memory.
pub(super) struct PrpRanges(Vec<(u64, usize)>);

impl PrpRanges {
    /// Collects the ranges that PRP 1 and PRP 2 name for `len` bytes.
    pub(super) fn of(command: &SubmissionEntry, len: u64, host: &mut dyn HostMemory) -> Result<Self, NvmeStatus> {
        let len = len.min(PAGE_LEN << MDTS);
        let piece = |at: u64, left: u64| (PAGE_LEN - at % PAGE_LEN).min(left);
        let first = command.prp1();
        if !first.is_multiple_of(4) {
            return Err(NvmeStatus::INVALID_OFFSET);
        }
        let mut pieces = vec![(first, piece(first, len) as usize)];
        let mut left = len - piece(first, len);
        if left > PAGE_LEN {
            let mut at = command.prp2();
            if !at.is_multiple_of(8) {
                return Err(NvmeStatus::INVALID_OFFSET);
            }
            while left > 0 {
                // If a list does not end in its page, the last entry there points to the list's next page.
                let in_page = (PAGE_LEN - at % PAGE_LEN) / 8;
                let wanted = left.div_ceil(PAGE_LEN);
                let goes_on = wanted > in_page;
                let count = if goes_on { in_page } else { wanted };
                let mut list = vec![0; 8 * count as usize];
                if !host.read(at, &mut list) {
                    return Err(NvmeStatus::TRANSFER_ERROR);
                }
                let mut entries: Vec<u64> = list.chunks_exact(8).map(entry).collect();
                if goes_on {
                    at = entries.pop().unwrap_or_default();
                    // One full page of a list is enough for any command, so this ends.
                    if !at.is_multiple_of(PAGE_LEN) {
                        return Err(NvmeStatus::INVALID_OFFSET);
                    }
                }
                for page in entries {
                    Self::add(&mut pieces, page, &mut left)?;
                }
            }
        } else if left > 0 {
            Self::add(&mut pieces, command.prp2(), &mut left)?;
        }
        Ok(Self(pieces))
    }

    fn add(pieces: &mut Vec<(u64, usize)>, page: u64, left: &mut u64) -> Result<(), NvmeStatus> {
        if !page.is_multiple_of(PAGE_LEN) {
            return Err(NvmeStatus::INVALID_OFFSET);
        }
        let len = PAGE_LEN.min(*left);
        pieces.push((page, len as usize));
        *left -= len;
        Ok(())
    }

    /// Writes data to the host.
    pub(super) fn deliver(&self, data: &[u8], host: &mut dyn HostMemory) -> Result<u32, NvmeStatus> {
        let mut rest = data;
        for (at, len) in &self.0 {
            let (piece, others) = rest.split_at((*len).min(rest.len()));
            if !host.write(*at, piece) {
                return Err(NvmeStatus::TRANSFER_ERROR);
            }
            rest = others;
        }
        Ok(0)
    }

    /// Reads data from the host.
    pub(super) fn fetch(&self, data: &mut [u8], host: &mut dyn HostMemory) -> Result<(), NvmeStatus> {
        let mut done = 0;
        for (at, len) in &self.0 {
            let end = (done + len).min(data.len());
            if !host.read(*at, &mut data[done..end]) {
                return Err(NvmeStatus::TRANSFER_ERROR);
            }
            done = end;
        }
        Ok(())
    }
}

fn entry(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |entry, byte| entry << 8 | u64::from(*byte))
}

/// Builds the data of Identify. `what` is CNS.
pub(super) fn identify_page(what: u8, namespace: u32, blocks: u64) -> Result<[u8; PAGE_LEN as usize], NvmeStatus> {
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
            // VID and SSVID: those of this project's simulated devices.
            put(0, &[0x34, 0x12, 0x34, 0x12]);
            put(4, &padded::<20>("1"));
            put(24, &padded::<40>("asmpatch virtual drive"));
            put(64, &padded::<8>("1"));
            put(77, &[MDTS]);
            put(80, &VERSION.to_le_bytes());
            // ACL; AERL; FRMW: one firmware slot, read-only.
            put(258, &[3, EVENT_REQUESTS as u8 - 1, 0x03]);
            // SQES, CQES: 64 and 16 bytes, nothing else.
            put(512, &[0x66, 0x44]);
            put(516, &1_u32.to_le_bytes());
            // VWC: there is a write cache, so that hosts send Flush.
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
