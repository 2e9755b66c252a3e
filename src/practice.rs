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
    0x81, 0xA2, 0xC6, 0xF8, 0xEB, 0x0A, 0xCE, 0x15, 0x42, 0xB3, 0xCB, 0xAF, 0x8D, 0x7A, 0x1A, 0xDA, 0xC6, 0xB8, 0x46,
    0xB3, 0xE6, 0x85, 0xA1, 0x48, 0xD0, 0x49, 0x2B, 0xE5, 0x8E, 0x2A, 0x18, 0x5F,
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
