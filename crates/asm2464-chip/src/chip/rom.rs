//! Loading of code memory by the ROM at power-on.

use asm2464::firmware::{CONTAINER_EXTRA, FlashAddress, Image, Part};

use crate::mcu::SpiFlash;

/// Returns the image in the first slot of the flash, if its container is valid: length, magic, checksum and CRC-32.
/// Without a valid image the boot loader starts.
pub fn image_in(flash: &impl SpiFlash) -> Option<Image> {
    let read = |at: FlashAddress, len: usize| {
        let mut bytes = vec![0; len];
        flash.read(at, &mut bytes);
        bytes
    };
    let header: [u8; 4] = read(Part::One.flash_address(), 4).try_into().ok()?;
    let len = usize::try_from(u32::from_le_bytes(header)).ok()?.checked_add(CONTAINER_EXTRA)?;
    let first = len.min(Part::One.max_len());
    let second = len - first;
    if second > Part::Two.max_len() {
        return None;
    }
    let mut file = read(Part::One.flash_address(), first);
    file.extend(read(Part::Two.flash_address(), second));
    Image::parse(&file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcu::MemoryFlash;

    fn flash_with(file: &[u8]) -> MemoryFlash {
        let mut flash = MemoryFlash::erased();
        for part in Part::ALL {
            let start = part.flash_address().0 as usize;
            let bytes = part.of(file);
            flash.cells[start..start + bytes.len()].copy_from_slice(bytes);
        }
        flash
    }

    #[test]
    fn an_image_in_one_part_or_in_two_is_loaded_as_it_was_written() {
        for len in [1_000, 0x1_7ED6] {
            let image = Image::from_body((0..len).map(|at: u32| (at * 7) as u8).collect()).unwrap();
            assert_eq!(image_in(&flash_with(&image.to_file())), Some(image));
        }
    }

    #[test]
    fn an_erased_flash_and_one_wrong_bit_load_nothing() {
        assert_eq!(image_in(&MemoryFlash::erased()), None);
        let mut file = Image::from_body(vec![0x11; 70_000]).unwrap().to_file();
        file[66_000] ^= 1;
        assert_eq!(image_in(&flash_with(&file)), None);
    }
}
