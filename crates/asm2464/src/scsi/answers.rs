//! The bridge's answers to standard commands: INQUIRY's data (SPC-4, 6.6.2), READ CAPACITY's (SBC-3, 5.15 and 5.16).

use crate::ParseError;

/// How many bytes of standard data asmpatch requests: enough for every field that it reads.
pub const INQUIRY_LEN: u8 = 36;

/// A unit's identity over SCSI.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display, serde::Serialize)]
#[display("{vendor} {product} {revision}")]
pub struct Inquiry {
    /// Peripheral device type: 0 is a disk.
    pub device_type: u8,
    /// T10 vendor, without padding.
    pub vendor: String,
    /// T10 product, without padding.
    pub product: String,
    /// Product revision, without padding.
    pub revision: String,
}

impl Inquiry {
    /// Parses standard data. Bytes outside printable ASCII become a dot.
    ///
    /// # Errors
    /// The unit sent too few bytes.
    pub fn parse(data: &[u8]) -> Result<Self, ParseError> {
        let Some(bytes) = data.first_chunk::<{ INQUIRY_LEN as usize }>() else {
            let found = data.len();
            let wrong = format!("standard INQUIRY data have at least {INQUIRY_LEN} bytes; the unit sent {found}");
            return Err(ParseError(wrong));
        };
        Ok(Self {
            device_type: bytes[0] & 0x1F,
            vendor: text(&bytes[8..16]),
            product: text(&bytes[16..32]),
            revision: text(&bytes[32..36]),
        })
    }
}

fn text(field: &[u8]) -> String {
    let shown: String =
        field.iter().map(|&byte| if matches!(byte, 0x20..0x7F) { char::from(byte) } else { '.' }).collect();
    shown.trim_end_matches([' ', '.']).to_owned()
}

/// The size of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Capacity {
    /// Logical blocks.
    pub blocks: u64,
    /// Block length in bytes.
    pub block_len: u32,
}

impl Capacity {
    /// Parses READ CAPACITY(10)'s 8 bytes; `None` if there are fewer. If the medium has more blocks than its 32 bits
    /// count, [`Capacity::blocks`] is 2^32, and only READ CAPACITY(16) returns the size.
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
    fn the_fields_lose_their_padding() {
        let mut data = [b' '; 36];
        data[0] = 0;
        data[8..12].copy_from_slice(b"tiny");
        data[16..29].copy_from_slice(b"TinyEnclosure");
        data[32..36].copy_from_slice(b"0   ");
        let inquiry = Inquiry::parse(&data).unwrap();
        assert_eq!(inquiry.to_string(), "tiny TinyEnclosure 0");
    }

    #[test]
    fn an_inquiry_of_one_byte_is_an_error_that_counts_it() {
        let error = Inquiry::parse(&[0]).unwrap_err().to_string();
        assert_eq!(error, "standard INQUIRY data have at least 36 bytes; the unit sent 1");
    }

    proptest::proptest! {
        #[test]
        fn parsing_inquiry_data_never_panics_and_prints_ascii(data: Vec<u8>) {
            if let Ok(inquiry) = Inquiry::parse(&data) {
                proptest::prop_assert!(inquiry.to_string().bytes().all(|byte| (0x20..0x7F).contains(&byte)));
            }
        }
    }

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
