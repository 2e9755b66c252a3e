//! Images of open firmware, identified by their USB descriptors, because there is no list of their builds. Pure.

use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, Image, Part, UsbId};
use asm2464_chip::chip::boot;
use derive_more::Display;

/// Number of hex digits that name a build.
const BUILD_DIGITS: usize = 8;

/// Firmware driven by control requests instead of SCSI. Its image enumerates with a vendor-specific interface.
// `--json` prints it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Display, serde::Serialize, serde::Deserialize)]
#[display("open firmware {} (build {build})", product.shown())]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "OpenJson", description = "What identifies open firmware."))]
pub struct OpenImage {
    /// The product string that it enumerates with.
    pub product: String,
    /// The build that it reports.
    // The commit in the product string, or else the first digits of the image's SHA-256.
    pub build: String,
    /// The VID:PID that it enumerates with.
    // Whatever the configuration blocks say.
    pub usb_id: UsbId,
}

impl OpenImage {
    /// Boots the image on the chip model and reads its descriptors. `None` for any other firmware, and for an image
    /// longer than part 1, because open firmware is written to that part only. Source: openpilot's flasher.
    pub fn of(image: &Image) -> Option<Self> {
        if image.file_len() > Part::One.max_len() {
            return None;
        }
        let enumerated = boot::enumerated(image).filter(|enumerated| enumerated.state == BridgeState::OpenFirmware)?;
        let build = commit(&enumerated.product)
            .map_or_else(|| to_hex(&image.sha256(), "").chars().take(BUILD_DIGITS).collect(), ToOwned::to_owned);
        Some(Self { product: enumerated.product, usb_id: enumerated.usb_id, build })
    }
}

/// Extracts the commit of a product string such as `custom 1a2b3c4d-CLEAN`.
fn commit(product: &str) -> Option<&str> {
    let word = product.strip_prefix("custom ")?;
    let (commit, _) = word.split_once('-').unwrap_or((word, ""));
    (commit.len() == BUILD_DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(commit)
}

#[cfg(test)]
mod tests {
    use asm2464_chip::practice;

    use super::*;

    #[test]
    fn a_commit_in_the_product_string_names_the_build() {
        assert_eq!(commit("custom 1a2b3c4d-CLEAN"), Some("1a2b3c4d"));
        assert_eq!(commit("custom 1a2b3c4d"), Some("1a2b3c4d"));
        for none in ["custom v0.1", "custom", "AS2462", "custom 1a2b3c4-DIRTY", "custom 1a2b3c4x-CLEAN"] {
            assert_eq!(commit(none), None, "{none}");
        }
    }

    #[test]
    fn open_firmware_ends_where_part_1_does() {
        let open = practice::open_image();
        let mut body = open.body().to_vec();
        body.resize(body.len() + Part::One.max_len() - open.file_len(), 0);
        let of = |body: &[u8]| OpenImage::of(&Image::from_body(body.to_vec()).unwrap());
        assert!(of(open.body()).is_some() && of(&body).is_some());
        for more in [1, 2] {
            body.resize(body.len() + more, 0);
            assert_eq!(of(&body), None);
        }
    }

    #[test]
    fn other_firmware_is_not_taken_for_open_firmware() {
        assert_eq!(OpenImage::of(&practice::image()), None);
        // The image jumps to itself.
        assert_eq!(OpenImage::of(&Image::from_body([&[0x80, 0xFE][..], &[0; 600]].concat()).unwrap()), None);
    }
}
