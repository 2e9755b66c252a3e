//! The chip's behaviour at power-on: it boots the image in flash if its container is valid, and stays in ROM otherwise.

use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, FlashAddress, Image, Part};

use super::descriptors::Identity;
use super::nor::NorFlash;

/// The image in the first slot, if its container is valid.
pub(super) fn image(flash: &NorFlash) -> Option<Image> {
    let header = flash.get(Part::One.flash_address(), 4)?;
    let body_len = u32::from_le_bytes(header.try_into().ok()?);
    let file_len = usize::try_from(body_len).ok()?.checked_add(10)?;
    let first = file_len.min(Part::One.max_len());
    let mut file = flash.get(Part::One.flash_address(), first)?.to_vec();
    let second = file_len - first;
    if second > Part::Two.max_len() {
        return None;
    }
    file.extend_from_slice(flash.get(Part::Two.flash_address(), second)?);
    Image::parse(&file).ok()
}

/// The boot loader's identity: its product's own, if configuration block 0 is valid. Source: openpilot's flasher, which
/// finds it under that.
pub(super) fn boot_loader_identity(flash: &NorFlash) -> Identity {
    let block = flash.get(FlashAddress(0), CONFIG_BLOCK_LEN);
    let block = block.and_then(|bytes| ConfigBlock::parse(BlockIndex::Zero, bytes).ok());
    block.as_ref().map_or_else(Identity::boot_loader, Identity::configured)
}
