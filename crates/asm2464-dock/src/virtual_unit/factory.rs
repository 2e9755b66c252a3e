//! The factory state of a unit: its configuration blocks with their own serial number, and its first image.

use std::error::Error;

use asm2464::firmware::{ConfigBlock, ConfigBlockError, ConfigField, FlashAddress, Part, known_blocks};
use asm2464_chip::practice;
use sha2::{Digest, Sha256};

use super::nor::NorFlash;
use super::scenario::{Factory, Scenario};

/// Makes a new unit's flash as the scenario says. `seed` determines the unit's serial number.
pub(super) fn flash(scenario: &Scenario, seed: &[u8], image: Option<&[u8]>) -> Result<NorFlash, Box<dyn Error>> {
    let mut flash = NorFlash::erased();
    if scenario.factory == Factory::Erased {
        return Ok(flash);
    }
    let serial = scenario.serial.clone().unwrap_or_else(|| serial(seed));
    let mut at = 0;
    for block in blocks(&serial)? {
        flash.program(FlashAddress(at), block.bytes())?;
        at += block.bytes().len() as u32;
    }
    let made = match scenario.factory {
        Factory::Stock => Some(practice::image()),
        Factory::Open => Some(practice::open_image()),
        Factory::NoImage | Factory::Erased => None,
    };
    if let Some(made) = made {
        let file = image.map_or_else(|| made.to_file(), <[u8]>::to_vec);
        for part in Part::ALL {
            flash.program(part.flash_address(), part.of(&file))?;
        }
    }
    Ok(flash)
}

/// Makes a serial number of twelve hexadecimal digits, like the maker's own.
fn serial(seed: &[u8]) -> String {
    Sha256::digest(seed).iter().take(6).map(|byte| format!("{byte:02X}")).collect()
}

/// Builds configuration blocks with the frame and flags of the known blocks and the chip maker's names and IDs.
fn blocks(serial: &str) -> Result<[ConfigBlock; 2], ConfigBlockError> {
    let [mut zero, one] = known_blocks();
    zero.set_text(ConfigField::Serial, serial)?;
    zero.set_stock_identity()?;
    zero.set_number(ConfigField::DeviceRelease, 0x0100)?;
    Ok([zero, one])
}
