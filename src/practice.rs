//! What identifies asmpatch's practice image. Its bytes are a part of the model of the chip, `asm2464_chip::practice`; who
//! only needs to recognise it needs no model.

use asm2464::digest::Sha256Digest;
use asm2464::firmware::FirmwareVersion;

/// Its ID, beside those of the known images.
pub const ID: &str = "practice";
/// Its version, which no image of the vendor's has.
pub const VERSION: FirmwareVersion = FirmwareVersion([0x26, 0x11, 0x21, 0x00, 0x00, 0x01]);
/// The SHA-256 of its file.
pub const SHA256: Sha256Digest = Sha256Digest([
    0x7B, 0x66, 0x7C, 0x69, 0x08, 0x95, 0xE2, 0xA4, 0xE0, 0x9A, 0x94, 0xE9, 0x35, 0x40, 0x89, 0x10, 0x1A, 0xC4, 0x03,
    0x4F, 0x8C, 0x78, 0x3B, 0xB3, 0x69, 0xC3, 0x76, 0x89, 0x11, 0x6F, 0x5D, 0x27,
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_image_that_the_model_has() {
        let image = asm2464_chip::practice::image();
        assert_eq!((image.sha256(), image.version()), (SHA256, VERSION));
    }
}
