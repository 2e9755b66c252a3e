//! The vendor's container: length, body, magic, checksum, CRC-32.

use thiserror::Error;

use super::address::{BodyOffset, CodeAddress, FileOffset};
use super::version::FirmwareVersion;
use crate::flash::slot::Part;

/// Bytes of magic, checksum and CRC-32 behind the body.
pub const TRAILER_LEN: usize = 6;
/// The longest body that the two parts in flash can hold: 0xFF00 + 0x10000 bytes, less header and trailer.
pub const MAX_BODY_LEN: usize = MAX_FILE_LEN - CONTAINER_EXTRA;
/// The longest image file: the two parts in flash hold 0xFF00 and 0x10000 bytes.
pub const MAX_FILE_LEN: usize = Part::One.max_len() + Part::Two.max_len();
const HEADER_LEN: usize = 4;
/// Bytes of header and trailer around the body.
pub const CONTAINER_EXTRA: usize = HEADER_LEN + TRAILER_LEN;
/// The shortest body that is accepted: long enough to hold the version.
pub const MIN_BODY_LEN: usize = VERSION_AT + 6;
/// Marks an image for the ASM2464. Source: cyrozap's notes; image 240417.
const MAGIC: u8 = 0xA5;
/// The version's CPU address. Source: cyrozap's notes; image 240417.
const VERSION_AT: usize = 0x0200;

/// Length of an image file in bytes, from its first field; `None` if no memory is that large.
pub fn container_len(field: [u8; 4]) -> Option<usize> {
    usize::try_from(u64::from(u32::from_le_bytes(field)) + CONTAINER_EXTRA as u64).ok()
}

/// A firmware image whose container has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    body: Vec<u8>,
}

/// Reasons why bytes are not an image. Offsets are in the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The file is empty.
    #[error("the image is empty: expected a container of at least {} bytes", CONTAINER_EXTRA + 1)]
    Empty,
    /// The length field disagrees with the file's length.
    #[error(
        "the length field at file offset 0x0 says a body of {field} bytes, so a file of {expected} bytes; the file has {found}"
    )]
    Length {
        /// The body's length according to the header.
        field: u32,
        /// The file's length according to the header.
        expected: u64,
        /// The file's actual length.
        found: usize,
    },
    /// The file, of this length, is longer than the flash has room for.
    #[error("the file has {0} bytes; the two parts in flash hold at most {MAX_FILE_LEN}")]
    Oversized(usize),
    /// The magic is not the ASM2464's.
    #[error("the magic at file offset {offset:#x} is {found:#04x}, expected {MAGIC:#04x}")]
    Magic {
        /// Where the magic is.
        offset: u32,
        /// The byte there.
        found: u8,
    },
    /// The byte sum does not match.
    #[error("the checksum at file offset {offset:#x} is {found:#04x}, the body's bytes sum to {computed:#04x}")]
    Checksum {
        /// Where the checksum is.
        offset: u32,
        /// The checksum in the file.
        found: u8,
        /// The checksum of the body.
        computed: u8,
    },
    /// The CRC does not match.
    #[error("the CRC-32 at file offset {offset:#x} is {found:#010x}, the body's is {computed:#010x}")]
    Crc {
        /// Where the CRC is.
        offset: u32,
        /// The CRC in the file.
        found: u32,
        /// The CRC of the body.
        computed: u32,
    },
    /// The body, of this length, is too short to hold a version.
    #[error("the body has {0} bytes, too few for a version at CPU address {VERSION_AT:#06x}")]
    ShortBody(usize),
}

crate::coded!(ImageError {
    Empty => BadInput "asm2464::image::empty",
    Length => BadInput "asm2464::image::length",
    Oversized => BadInput "asm2464::image::oversized",
    Magic => BadInput "asm2464::image::magic",
    Checksum => BadInput "asm2464::image::checksum",
    Crc => BadInput "asm2464::image::crc",
    ShortBody => BadInput "asm2464::image::short_body",
});

impl Image {
    /// Parses a file and checks its container.
    ///
    /// # Errors
    /// Each wrong field has its own [`ImageError`]. Length is checked first, then magic, checksum and CRC.
    pub fn parse(file: &[u8]) -> Result<Self, ImageError> {
        if file.is_empty() {
            return Err(ImageError::Empty);
        }
        let field = file.first_chunk().map_or(0, |field| u32::from_le_bytes(*field));
        let expected = u64::from(field) + CONTAINER_EXTRA as u64;
        if file.len() as u64 != expected {
            return Err(ImageError::Length { field, expected, found: file.len() });
        }
        let body = &file[HEADER_LEN..file.len() - TRAILER_LEN];
        if body.len() > MAX_BODY_LEN {
            return Err(ImageError::Oversized(file.len()));
        }
        let trailer_at = (HEADER_LEN + body.len()) as u32;
        let [magic, checksum, crc @ ..]: &[u8; TRAILER_LEN] = file.last_chunk().ok_or(ImageError::Empty)?;
        if *magic != MAGIC {
            return Err(ImageError::Magic { offset: trailer_at, found: *magic });
        }
        let computed = byte_sum(body);
        if *checksum != computed {
            return Err(ImageError::Checksum { offset: trailer_at + 1, found: *checksum, computed });
        }
        let crc = u32::from_le_bytes(*crc);
        let computed = crc32fast::hash(body);
        if crc != computed {
            return Err(ImageError::Crc { offset: trailer_at + 2, found: crc, computed });
        }
        Self::from_body(body.to_vec())
    }

    /// Makes an image with this body; [`Image::to_file`] adds the container.
    ///
    /// # Errors
    /// [`ImageError::ShortBody`] and [`ImageError::Oversized`].
    pub fn from_body(body: Vec<u8>) -> Result<Self, ImageError> {
        if body.len() < MIN_BODY_LEN {
            return Err(ImageError::ShortBody(body.len()));
        }
        if body.len() > MAX_BODY_LEN {
            return Err(ImageError::Oversized(body.len() + CONTAINER_EXTRA));
        }
        Ok(Self { body })
    }

    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Formats the file: header, body, and a trailer with checksum and CRC of the present body.
    pub fn to_file(&self) -> Vec<u8> {
        // from_body bounds the length far below u32::MAX.
        let header = (self.body.len() as u32).to_le_bytes();
        let crc = crc32fast::hash(&self.body).to_le_bytes();
        [&header[..], &self.body, &[MAGIC, byte_sum(&self.body)], &crc].concat()
    }

    /// Returns the file's length in bytes.
    pub fn file_len(&self) -> usize {
        self.body.len() + CONTAINER_EXTRA
    }

    /// Returns the file's SHA-256.
    #[cfg(feature = "digests")]
    pub fn sha256(&self) -> [u8; 32] {
        crate::digest::Sha256Digest::of(&self.to_file()).0
    }

    /// Returns the version at CPU address 0x0200.
    pub fn version(&self) -> FirmwareVersion {
        FirmwareVersion(std::array::from_fn(|at| self.body[VERSION_AT + at]))
    }

    /// Returns the image with another version, and otherwise the same code.
    #[must_use]
    pub fn with_version(mut self, version: FirmwareVersion) -> Self {
        self.body[VERSION_AT..][..version.0.len()].copy_from_slice(&version.0);
        self
    }

    /// Returns the byte at a code address; `None` past the body's end.
    pub fn code(&self, at: CodeAddress) -> Option<u8> {
        self.body.get(at.body_offset().0 as usize).copied()
    }

    /// Replaces the bytes at a body offset. Returns `false`, and changes nothing, if they do not fit in the body.
    #[must_use]
    pub fn replace(&mut self, at: BodyOffset, new: &[u8]) -> bool {
        let start = at.0 as usize;
        let place = start.checked_add(new.len()).and_then(|end| self.body.get_mut(start..end));
        place.map(|place| place.copy_from_slice(new)).is_some()
    }

    /// Returns the trailer's offset in the file.
    pub fn trailer_offset(&self) -> FileOffset {
        FileOffset((HEADER_LEN + self.body.len()) as u32)
    }
}

fn byte_sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        Image::from_body((0..0x1_8000u32).map(|i| ((i * 7) >> 3) as u8).collect()).unwrap().to_file()
    }

    #[test]
    fn each_field_that_is_wrong_is_named_alone() {
        let good = sample();
        let end = good.len();
        let broken = |at: usize| {
            let mut file = good.clone();
            file[at] ^= 0x01;
            Image::parse(&file).unwrap_err()
        };
        assert!(Image::parse(&good).is_ok());
        assert!(matches!(broken(0), ImageError::Length { .. }));
        assert!(matches!(broken(end - 6), ImageError::Magic { found: 0xA4, .. }));
        assert!(matches!(broken(end - 5), ImageError::Checksum { .. }));
        assert!(matches!(broken(end - 1), ImageError::Crc { .. }));
        // Two swapped bytes keep the sum, so only the CRC detects them.
        let mut swapped = good.clone();
        swapped.swap(100, 200);
        assert_ne!(swapped, good);
        assert!(matches!(Image::parse(&swapped), Err(ImageError::Crc { .. })));
        assert_eq!(Image::parse(&[]), Err(ImageError::Empty));
        assert!(matches!(Image::parse(&good[..end - 1]), Err(ImageError::Length { .. })));
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics_and_what_parses_prints_the_same_bytes(bytes: Vec<u8>) {
            if let Ok(image) = Image::parse(&bytes) {
                proptest::prop_assert_eq!(image.to_file(), bytes);
            }
        }

        #[test]
        fn a_body_survives_its_container(body in proptest::collection::vec(proptest::num::u8::ANY, 0x206..0x400)) {
            let image = Image::from_body(body).unwrap();
            proptest::prop_assert_eq!(Image::parse(&image.to_file()), Ok(image));
        }
    }
}
