//! The PCIe TLP engine: sends one request at a time to the devices behind the bridge.

use asm2464::tlp::TlpKind;
use asm2464::tlp::engine::{
    ADDRESS, ADDRESS_HIGH, BYTE_ENABLES, COMPLETED, COMPLETION, DATA, FIRE, FORMAT, GONE, NO_COMPLETION, SEND, STATUS,
};

use super::fabric::{ConfigAddress, TlpCompletion, TlpRequest};
use super::nvme::Nvme;
use super::register::Register;
use crate::mcu::XdataMemory;

// The registers that hosts use, too, are those of `asm2464::tlp::engine`. 0xB213, 0xB216: length and other fields of
// the header's first dwords, no effect here. 0xB22C, 0xB22D: 0 in a completion for the requester itself. Source:
// b0:0x9A53, 0xAE25; b0:0xAE57-0xAE66, 0x9A60.

/// 0xB250:0xB251: a doorbell's value. Source: b0:0x99A8; b0:0xC45F-0xC471, 0xE617-0xE676.
const DOORBELL: u16 = 0xB250;
/// 0xB284.0: the completion carries data. Source: b0:0xAE6E-0xAE7D expects it set for reads and clear for writes.
const HAS_DATA: u16 = 0xB284;
/// Byte count of every completion except a memory read's (PCIe base specification, section 2.2.9).
const BYTE_COUNT: u8 = 4;

pub(super) const REGISTERS: &[Register] = &[
    Register::range(FORMAT, BYTE_ENABLES, "TLP_HEADER").plain(),
    Register::range(ADDRESS, ADDRESS + 3, "TLP_ADDRESS").plain(),
    Register::range(ADDRESS_HIGH, ADDRESS_HIGH + 3, "TLP_ADDRESS_HIGH").plain(),
    Register::range(DATA, DATA + 3, "TLP_DATA").plain(),
    Register::range(COMPLETION, COMPLETION + 3, "TLP_COMPLETION").plain(),
    Register::range(DOORBELL, DOORBELL + 1, "NVME_DOORBELL"),
    Register::one(FIRE, "TLP_FIRE"),
    Register::one(HAS_DATA, "TLP_HAS_DATA").plain(),
    Register::one(STATUS, "TLP_STATUS"),
];

#[derive(Debug, Default)]
pub(super) struct TlpBlock {
    status: u8,
}

impl TlpBlock {
    pub(super) fn read(&self, addr: u16, stored: u8) -> u8 {
        if addr == STATUS { self.status } else { stored }
    }

    /// Handles a write by the CPU. Returns `true` if it did something. `carry` carries out a request.
    pub(super) fn write(
        &mut self,
        addr: u16,
        value: u8,
        memory: &mut XdataMemory,
        carry: impl FnOnce(TlpRequest) -> Option<TlpCompletion>,
    ) -> bool {
        match addr {
            STATUS => {
                let cleared = self.status & value;
                self.status &= !value;
                cleared != 0
            }
            FIRE if value == SEND => {
                self.send(memory, carry);
                true
            }
            FIRE => {
                self.status |= GONE;
                if let Some(doorbell) = Nvme::doorbell(value) {
                    let at = usize::from(DOORBELL);
                    let rung = u32::from(u16::from_be_bytes([memory.main()[at], memory.main()[at + 1]]));
                    carry(TlpRequest::MemoryWrite(doorbell, rung, 0x0F));
                }
                true
            }
            _ => false,
        }
    }

    fn send(&mut self, memory: &mut XdataMemory, carry: impl FnOnce(TlpRequest) -> Option<TlpCompletion>) {
        let page = memory.main();
        let dword = |at: u16| {
            let at = usize::from(at);
            u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
        };
        let low = dword(ADDRESS);
        let enables = page[usize::from(BYTE_ENABLES)] & 0x0F;
        let value = dword(DATA);
        let format = page[usize::from(FORMAT)];
        let high = if format & TlpKind::FOUR_DWORDS == 0 { 0 } else { dword(ADDRESS_HIGH) };
        let address = u64::from(high) << 32 | u64::from(low & !3);
        let request = match TlpKind::of_header(format) {
            Some(TlpKind::ConfigRead0 | TlpKind::ConfigRead1) => TlpRequest::ConfigRead(ConfigAddress::of_request(low)),
            Some(TlpKind::ConfigWrite0 | TlpKind::ConfigWrite1) => {
                TlpRequest::ConfigWrite(ConfigAddress::of_request(low), value, enables)
            }
            Some(TlpKind::MemoryRead) => TlpRequest::MemoryRead(address),
            Some(TlpKind::MemoryWrite) => TlpRequest::MemoryWrite(address, value, enables),
            // A message, or a type that no device answers: sent, and never completed.
            None => {
                self.status |= GONE | NO_COMPLETION;
                return;
            }
        };
        self.status |= GONE;
        let Some(completion) = carry(request) else { return };
        let page = memory.main_mut();
        let (status, data) = match completion {
            TlpCompletion::Data(value) => (0, Some(value)),
            TlpCompletion::Done => (0, None),
            TlpCompletion::UnsupportedRequest => (1, None),
            TlpCompletion::Retry => (2, None),
            TlpCompletion::Never => {
                self.status |= NO_COMPLETION;
                return;
            }
        };
        let is_read = matches!(request, TlpRequest::ConfigRead(_) | TlpRequest::MemoryRead(_));
        if is_read {
            let at = usize::from(DATA);
            page[at..at + 4].copy_from_slice(&data.unwrap_or(u32::MAX).to_be_bytes());
        }
        let at = usize::from(COMPLETION);
        let count = if matches!(request, TlpRequest::MemoryRead(_)) { byte_count(enables) } else { BYTE_COUNT };
        page[at..at + 4].copy_from_slice(&[status << 5, count, 0, 0]);
        page[usize::from(HAS_DATA)] = u8::from(data.is_some());
        self.status |= COMPLETED;
    }
}

/// Byte count in the completion of a read of one dword: from the first enabled byte to the last, or 1 if none is
/// enabled. Source: PCIe base specification, table 2-38; the runtime expects it.
fn byte_count(enables: u8) -> u8 {
    match enables {
        0 => 1,
        _ => (u8::BITS - enables.leading_zeros() - enables.trailing_zeros()) as u8,
    }
}

#[cfg(test)]
mod tests {
    use asm2464::Bdf;

    use super::super::fabric::{Fabric, MemoryFunction};
    use super::*;

    fn request(
        tlp: &mut TlpBlock,
        fabric: &mut Fabric,
        memory: &mut XdataMemory,
        format: u8,
        addr: u32,
        value: u32,
    ) -> u8 {
        tlp.write(STATUS, 0x07, memory, |_| None);
        let page = memory.main_mut();
        page[usize::from(FORMAT)] = format;
        page[usize::from(BYTE_ENABLES)] = 0x0F;
        page[usize::from(ADDRESS)..][..4].copy_from_slice(&addr.to_be_bytes());
        page[usize::from(DATA)..][..4].copy_from_slice(&value.to_be_bytes());
        tlp.write(FIRE, SEND, memory, |request| fabric.request(request));
        tlp.read(STATUS, 0)
    }

    #[test]
    fn the_completion_of_a_memory_read_counts_the_requested_bytes() {
        let counts = [0b1111, 0b0001, 0b0100, 0b0110, 0b1100, 0b1001, 0b1000, 0b0000].map(byte_count);
        assert_eq!(counts, [4, 1, 1, 2, 2, 4, 1, 1]);
    }

    #[test]
    fn each_kind_of_request_ends_as_the_runtime_expects() {
        let (mut tlp, mut fabric, mut memory) = (TlpBlock::default(), Fabric::default(), XdataMemory::new());
        let place = Bdf::new(1, 0, 0);
        fabric.attach(place, MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x100));
        let completion = |memory: &XdataMemory| {
            let page = memory.main();
            (page[0xB22A] >> 5, page[0xB22B], page[0xB284], page[0xB223])
        };
        let (tlp, fabric, memory) = (&mut tlp, &mut fabric, &mut memory);
        assert_eq!(request(tlp, fabric, memory, 0x05, 1 << 24, 0), GONE | COMPLETED);
        assert_eq!(completion(memory), (0, 4, 1, 0x02), "its vendor ID");
        assert_eq!(request(tlp, fabric, memory, 0x05, 2 << 24, 0), GONE | COMPLETED);
        assert_eq!(completion(memory), (1, 4, 0, 0xFF), "unsupported request");
        assert_eq!(request(tlp, fabric, memory, 0x45, 1 << 24 | 0x10, 0x1000), GONE | COMPLETED);
        assert_eq!(completion(memory), (0, 4, 0, 0), "a write has no data");
        assert_eq!(request(tlp, fabric, memory, 0x60, 0x1004, 0xAB), GONE, "posted");
        assert_eq!(request(tlp, fabric, memory, 0x20, 0x1004, 0), GONE | COMPLETED);
        assert_eq!(completion(memory), (0, 4, 1, 0xAB));
        assert_eq!(request(tlp, fabric, memory, 0x34, 0, 0), GONE | NO_COMPLETION, "a message");
    }
}
