//! The vendor's container: length, body, magic, checksum, CRC-32.

use super::address::{BANK1_BODY_START, BodyOffset, COMMON_LEN, CodeAddress, FileOffset};
use super::part::Part;
use super::version::FirmwareVersion;
use crate::{Failure, Kind};

/// Bytes of magic, checksum and CRC-32 behind the body.
pub const TRAILER_LEN: usize = 6;
/// The longest body that the two parts in flash can hold: 0xFF00 + 0x10000 bytes, less header and trailer.
pub const MAX_BODY_LEN: usize = MAX_FILE_LEN - CONTAINER_EXTRA;
/// The longest image file: the two parts in flash hold 0xFF00 and 0x10000 bytes.
pub const MAX_FILE_LEN: usize = Part::One.max_len() + Part::Two.max_len();
const HEADER_LEN: usize = 4;
/// Bytes of header and trailer around the body.
const CONTAINER_EXTRA: usize = HEADER_LEN + TRAILER_LEN;
/// Marks an image for the ASM2464. Source: cyrozap's notes; image 240417.
const MAGIC: u8 = 0xA5;
/// The instruction with which the code of every known image begins.
const LJMP: u8 = 0x02;
/// The version's CPU address. Source: cyrozap's notes; image 240417.
const VERSION_AT: usize = 0x0200;

/// Length of an image file in bytes, from its first field; `None` if no memory is that large.
pub fn container_len(field: [u8; 4]) -> Option<usize> {
    usize::try_from(u64::from(u32::from_le_bytes(field)) + CONTAINER_EXTRA as u64).ok()
}

/// The version at its place in an image file, which may be damaged or cut off behind it; `None` if it is cut off before.
pub fn version_in(file: &[u8]) -> Option<FirmwareVersion> {
    file.get(HEADER_LEN + VERSION_AT..)?.first_chunk().copied().map(FirmwareVersion)
}

/// A firmware image whose container has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    body: Vec<u8>,
}

impl Image {
    /// Parses a file and checks its container.
    ///
    /// # Errors
    /// Each wrong field has its own code, which begins with `asm2464::image::`. Length is checked first, then magic,
    /// checksum and CRC.
    pub fn parse(file: &[u8]) -> Result<Self, Failure> {
        let len = file.len();
        if len == 0 {
            let message = format!("the image is empty: expected a container of at least {} bytes", CONTAINER_EXTRA + 1);
            return Err(Failure::new(Kind::BadInput.code("asm2464::image::empty"), message));
        }
        let field = file.first_chunk().map_or(0, |field| u32::from_le_bytes(*field));
        // At least CONTAINER_EXTRA, so a file of this length has a trailer.
        let expected = u64::from(field) + CONTAINER_EXTRA as u64;
        if len as u64 != expected {
            return Err(Failure::new(Kind::BadInput.code("asm2464::image::length"), wrong_length(file, field)));
        }
        let (container, trailer) = file.split_at(len - TRAILER_LEN);
        let body = &container[HEADER_LEN..];
        if body.len() > MAX_BODY_LEN {
            return Err(oversized(len));
        }
        let at = container.len();
        let (magic, checksum) = (trailer[0], trailer[1]);
        if magic != MAGIC {
            let message = format!("the magic at file offset {at:#x} is {magic:#04x}, expected {MAGIC:#04x}");
            return Err(Failure::new(Kind::BadInput.code("asm2464::image::magic"), message));
        }
        let computed = byte_sum(body);
        if checksum != computed {
            let at = at + 1;
            let message = format!(
                "the checksum at file offset {at:#x} is {checksum:#04x}, the body's bytes sum to {computed:#04x}"
            );
            return Err(Failure::new(Kind::BadInput.code("asm2464::image::checksum"), message));
        }
        let crc = u32::from_le_bytes([trailer[2], trailer[3], trailer[4], trailer[5]]);
        let computed = crc32fast::hash(body);
        if crc != computed {
            let at = at + 2;
            let message = format!("the CRC-32 at file offset {at:#x} is {crc:#010x}, the body's is {computed:#010x}");
            return Err(Failure::new(Kind::BadInput.code("asm2464::image::crc"), message));
        }
        Self::from_body(body.to_vec())
    }

    /// Makes an image with this body; [`Image::to_file`] adds the container.
    ///
    /// # Errors
    /// `asm2464::image::empty` and `asm2464::image::oversized`.
    pub fn from_body(body: Vec<u8>) -> Result<Self, Failure> {
        let len = body.len();
        if len == 0 {
            let message = "the container is valid, but there is no code in it";
            return Err(Failure::new(Kind::BadInput.code("asm2464::image::empty"), message));
        }
        if len > MAX_BODY_LEN {
            return Err(oversized(len + CONTAINER_EXTRA));
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
    pub fn sha256(&self) -> crate::digest::Sha256Digest {
        crate::digest::Sha256Digest::of(&self.to_file())
    }

    /// Returns the version at CPU address 0x0200; zeros, which are none, if the body ends before it.
    pub fn version(&self) -> FirmwareVersion {
        FirmwareVersion(std::array::from_fn(|at| self.body.get(VERSION_AT + at).copied().unwrap_or_default()))
    }

    /// Returns the image with another version, and otherwise the same code.
    #[must_use]
    pub fn with_version(mut self, version: FirmwareVersion) -> Self {
        let end = VERSION_AT + version.0.len();
        self.body.resize(self.body.len().max(end), 0);
        self.body[VERSION_AT..end].copy_from_slice(&version.0);
        self
    }

    /// Returns the byte at a code address; `None` past the body's end.
    pub fn code(&self, at: CodeAddress) -> Option<u8> {
        self.body.get(at.body_offset().0 as usize).copied()
    }

    /// Replaces the bytes at a body offset. Returns `false`, and changes nothing, if they do not fit in the body.
    #[must_use]
    pub fn replace(&mut self, at: BodyOffset, new: &[u8]) -> bool {
        let Some(rest) = self.body.get_mut(at.0 as usize..) else { return false };
        let Some(place) = rest.get_mut(..new.len()) else { return false };
        place.copy_from_slice(new);
        true
    }

    /// Returns the trailer's offset in the file.
    pub fn trailer_offset(&self) -> FileOffset {
        FileOffset((HEADER_LEN + self.body.len()) as u32)
    }
}

/// Describes a file whose length is not the one that its first field says.
fn wrong_length(file: &[u8], field: u32) -> String {
    let len = file.len();
    // Text is no length, nor is what no flash holds.
    if let Some(text) = file.first_chunk::<4>().filter(|first| first.iter().all(|c| matches!(c, b' '..=b'~'))) {
        let text = String::from_utf8_lossy(text);
        return format!("the file begins with {text:?}, where an image has the length of its body");
    }
    if field == 0 || field as usize > MAX_BODY_LEN {
        return format!(
            "the file begins with {field:#010x}, where an image has the length of its body, of which the flash holds at \
             most {MAX_BODY_LEN} bytes"
        );
    }
    let expected = field as usize + CONTAINER_EXTRA;
    if is_cut_off(file) {
        let message =
            format!("the image is cut off: by its length field it has {expected} bytes, and the file has {len}");
        let bank0 = HEADER_LEN + COMMON_LEN as usize + 1..=HEADER_LEN + BANK1_BODY_START as usize;
        let has_no_bank1 = bank0.contains(&len) && field > BANK1_BODY_START;
        return if has_no_bank1 { format!("{message}: bank 0's code without bank 1") } else { message };
    }
    format!(
        "the length field at file offset 0x0 says a body of {field} bytes, so a file of {expected} bytes; the file has \
         {len}"
    )
}

/// Whether a file is the beginning of an image: its first field says more bytes than it has, and no more than a flash
/// holds, and code follows.
pub fn is_cut_off(file: &[u8]) -> bool {
    let Some(len) = file.first_chunk().and_then(|field| container_len(*field)) else { return false };
    let is_code = file.get(HEADER_LEN) == Some(&LJMP);
    is_code && file.len() < len && len <= MAX_FILE_LEN
}

/// The error of an image file of this length.
fn oversized(len: usize) -> Failure {
    let message = format!("the file has {len} bytes; the two parts in flash hold at most {MAX_FILE_LEN}");
    Failure::new(Kind::BadInput.code("asm2464::image::oversized"), message)
}

fn byte_sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Coded as _;

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
        assert_eq!(broken(0).code(), "asm2464::image::length");
        assert_eq!(broken(end - 6).to_string(), "the magic at file offset 0x18004 is 0xa4, expected 0xa5");
        assert_eq!(broken(end - 5).code(), "asm2464::image::checksum");
        assert_eq!(broken(end - 1).code(), "asm2464::image::crc");
        // Two swapped bytes keep the sum, so only the CRC detects them.
        let mut swapped = good.clone();
        swapped.swap(100, 200);
        assert_ne!(swapped, good);
        assert_eq!(Image::parse(&swapped).unwrap_err().code(), "asm2464::image::crc");
        assert_eq!(Image::parse(&[]).unwrap_err().code(), "asm2464::image::empty");
        assert_eq!(Image::parse(&good[..end - 1]).unwrap_err().code(), "asm2464::image::length");
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
            proptest::prop_assert_eq!(Image::parse(&image.to_file()).unwrap(), image);
        }
    }
}
