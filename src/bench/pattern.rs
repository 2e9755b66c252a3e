//! The bytes of the integrity check. No two blocks are equal, so that a misplaced one is found.

/// Length of the pattern in bytes: the most that a WRITE(16) moves.
pub(super) const PATTERN_LEN: usize = 0x1_0000;
/// Bytes of the data buffer that XDATA shows at 0xF000.
pub(super) const WINDOW_LEN: usize = 4096;

/// The bytes to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// Creates the pattern of this seed. Two seeds differ in every block, so leftovers of an earlier run never match.
    pub fn new(seed: u64) -> Self {
        let words = (0..PATTERN_LEN as u64 / 8).flat_map(|word| mix(seed ^ mix(word)).to_le_bytes());
        Self(words.collect())
    }

    /// The whole pattern.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every input bit affects every output bit.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blocks_of_a_pattern_or_of_two_seeds_are_alike() {
        let (one, two) = (Pattern::new(1), Pattern::new(2));
        let mut blocks: Vec<&[u8]> = one.bytes().chunks(512).chain(two.bytes().chunks(512)).collect();
        let count = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!((blocks.len(), one.bytes().len()), (count, PATTERN_LEN));
    }
}
