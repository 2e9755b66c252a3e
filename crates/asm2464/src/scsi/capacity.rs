//! READ CAPACITY's answers (SBC-3, 5.15 and 5.16).

/// The size of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Capacity {
    /// Logical blocks.
    pub blocks: u64,
    /// Block length in bytes.
    pub block_len: u32,
}

impl Capacity {
    /// Parses READ CAPACITY(10)'s 8 bytes; `None` if there are fewer. For a medium beyond its 32 bits,
    /// [`Capacity::blocks`] is 2^32, and only READ CAPACITY(16) tells the size.
    pub fn parse10(data: &[u8]) -> Option<Self> {
        let last = u32::from_be_bytes(*data.first_chunk()?);
        let block_len = u32::from_be_bytes(*data.get(4..)?.first_chunk()?);
        Some(Self { blocks: u64::from(last) + 1, block_len })
    }

    /// Parses READ CAPACITY(16)'s first 12 bytes; `None` if there are fewer.
    pub fn parse16(data: &[u8]) -> Option<Self> {
        let last = u64::from_be_bytes(*data.first_chunk()?);
        let block_len = u32::from_be_bytes(*data.get(8..)?.first_chunk()?);
        Some(Self { blocks: last.saturating_add(1), block_len })
    }

    /// Whether the medium is too large for READ CAPACITY(10).
    pub const fn is_past_32_bits(self) -> bool {
        self.blocks > u32::MAX as u64
    }

    /// Returns the size in bytes, saturating.
    pub const fn bytes(self) -> u64 {
        self.blocks.saturating_mul(self.block_len as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_is_one_less_than_the_count() {
        let capacity = Capacity::parse10(&[0, 0, 0x0F, 0xFF, 0, 0, 2, 0]).unwrap();
        assert_eq!(capacity.bytes(), 4096 * 512);
        assert!(Capacity::parse10(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0]).unwrap().is_past_32_bits());
    }

    proptest::proptest! {
        #[test]
        fn parsing_capacities_never_panics(data: Vec<u8>) {
            let _ = Capacity::parse10(&data).map(Capacity::bytes);
            let _ = Capacity::parse16(&data).map(Capacity::bytes);
        }
    }
}
