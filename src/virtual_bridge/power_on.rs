//! The chip's behaviour at power-on: it boots the image in flash if its container is valid, and stays in ROM otherwise.

use super::descriptors::{Descriptors, Identity, LinkSpeed};
use super::nor::NorFlash;
use super::scenario::PowerOnState;
use crate::firmware::{BlockIndex, BridgeState, CONFIG_BLOCK_LEN, ConfigBlock, FlashAddress, Image, Part};

/// Result of a power-on.
#[derive(Debug)]
pub(super) struct PowerOn {
    /// The image that runs; `None` in the boot loader.
    pub(super) image: Option<Image>,
    pub(super) descriptors: Descriptors,
}

pub(super) fn power_on(flash: &NorFlash, state: PowerOnState, speed: LinkSpeed) -> PowerOn {
    let block = config_block(flash, BlockIndex::Zero);
    let image = match state {
        PowerOnState::Auto | PowerOnState::Absent => image(flash),
        PowerOnState::BootLoader => None,
    };
    let (identity, runs) = match &image {
        Some(_) => (running_identity(flash), BridgeState::Vendor),
        // Source: openpilot's flasher, which finds the boot loader under its product's own identity.
        None => (block.as_ref().map_or_else(Identity::boot_loader, Identity::configured), BridgeState::BootLoader),
    };
    PowerOn { image, descriptors: Descriptors::new(identity, runs, speed) }
}

/// Restarts the CPU with `image` still in the code memory. Its start-up code reads the configuration again.
pub(super) fn restart(flash: &NorFlash, image: Image, speed: LinkSpeed) -> PowerOn {
    let descriptors = Descriptors::new(running_identity(flash), BridgeState::Vendor, speed);
    PowerOn { image: Some(image), descriptors }
}

fn running_identity(flash: &NorFlash) -> Identity {
    let block = config_block(flash, BlockIndex::Zero);
    block.as_ref().map_or_else(Identity::without_configuration, Identity::configured)
}

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

/// A configuration block of the first slot, if it is valid.
pub(super) fn config_block(flash: &NorFlash, index: BlockIndex) -> Option<ConfigBlock> {
    let at = FlashAddress(u32::from(index.number()) * CONFIG_BLOCK_LEN as u32);
    ConfigBlock::parse(index, flash.get(at, CONFIG_BLOCK_LEN)?).ok()
}
