//! What a unit sees in the SETUP packet of a request.

/// Whether a request is a vendor's: bmRequestType's bits 6 and 5 (USB 3.2, 9.3).
pub(super) const fn is_vendors(setup: [u8; 8]) -> bool {
    setup[0] & 0x60 == 0x40
}

/// Whether this is the open firmware's E5 that ends a strobe of the DMA engine: it clears bit 0 of 0xC42A.
pub(super) const fn ends_dma_strobe(setup: [u8; 8]) -> bool {
    matches!(setup, [0x40, 0xE5, 0x2A, 0xC4, value, 0, _, _] if value & 1 == 0)
}

/// Length in bytes of the stream that a request of the open firmware begins: F0 with a mode other than 0, whose data
/// ends with the number of dwords.
pub(super) fn stream_len(setup: [u8; 8], data: &[u8]) -> Option<u64> {
    match (setup, data.last_chunk()) {
        ([0x40, 0xF0, _, _, mode, ..], Some(dwords)) if mode & 3 != 0 => {
            Some(4 * u64::from(u32::from_le_bytes(*dwords)))
        }
        _ => None,
    }
}
