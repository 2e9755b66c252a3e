//! A unit's SPI flash: its layout, and access to it through the registers of the chip's flash controller.
//!
//! A flash has two slots, each with two configuration blocks and an image: [`Slot`] builds and reads one.
//!
//! Open firmware has no command for its flash, but reads and writes XDATA (E4, E5), where the controller is. It runs
//! from RAM, so the flash can be erased meanwhile. [`RegisterFlash`] performs and checks one flash operation at a time,
//! over a [`RegisterAccess`]: a unit's control requests, or a model of the chip. Source: openpilot's flasher, which
//! does the same.

pub(crate) mod slot;
mod spi;

use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::ParseError;
use crate::digest::parse_hex;
use crate::firmware::FlashAddress;
use crate::scsi::XdataAddress;
use crate::serde_text::{serde_as_text, text_schema};

pub use slot::{BlockBytes, CONFIG_LEN, DUMP_LEN, FIRST_SLOT, SECOND_SLOT, SLOT_LEN, Slot, image_file};
pub use spi::{ARM_OUT, BUDGET, BUFFER, BULK_ARM, DROP_OUT, FlashSession, PROTECTION, RegisterFlash};

/// Bytes that one erase (command 20) sets to FF. Source: openpilot's flasher; every SPI NOR part.
pub const SECTOR_LEN: usize = 0x1000;
/// Bytes that one program writes. Source: openpilot's flasher; E3's handler in 240417.
pub const PAGE_LEN: usize = 0x80;

/// Accesses of a host to XDATA and to the buffer of bulk data, and the host's clock.
pub trait RegisterAccess {
    /// Reasons an access failed.
    type Error: Error + 'static;

    /// Writes these bytes in this order, then reads from `from` on.
    ///
    /// # Errors
    /// The access's own; some bytes may have been written.
    fn exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        into: &mut [u8],
    ) -> Result<(), Self::Error>;

    /// Writes these bytes in this order.
    ///
    /// # Errors
    /// The access's own; some bytes may have been written.
    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), Self::Error>;

    /// Sends these bytes on the bulk pipe.
    ///
    /// # Errors
    /// The access's own.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Whether this error means that the unit is gone: no later access can succeed.
    fn is_gone(error: &Self::Error) -> bool;

    /// Whether the unit's link runs at 5 Gbit/s or more.
    fn is_super_speed(&self) -> bool;

    /// Time since a moment that is the same for all connections to the unit.
    fn now(&mut self) -> Duration;

    /// Lets this much time pass.
    fn pause(&mut self, time: Duration);
}

/// Access through a borrowed unit, which stays the caller's.
impl<R: RegisterAccess> RegisterAccess for &mut R {
    type Error = R::Error;

    fn exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        into: &mut [u8],
    ) -> Result<(), Self::Error> {
        (**self).exchange(writes, from, into)
    }

    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), Self::Error> {
        (**self).write(writes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
        (**self).send(bytes)
    }

    fn is_gone(error: &Self::Error) -> bool {
        R::is_gone(error)
    }

    fn is_super_speed(&self) -> bool {
        (**self).is_super_speed()
    }

    fn now(&mut self) -> Duration {
        (**self).now()
    }

    fn pause(&mut self, time: Duration) {
        (**self).pause(time);
    }
}

/// A flash's answer to command 9F: its maker, type and capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("{:02X} {:02X} {:02X}", _0[0], _0[1], _0[2])]
pub struct JedecId(pub [u8; 3]);

impl FromStr for JedecId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match parse_hex(&text.replace(' ', "")).as_deref() {
            Ok(&[maker, kind, capacity]) => Ok(Self([maker, kind, capacity])),
            _ => Err(ParseError(format!("{text:?} is not a JEDEC ID of three bytes, as in EF 30 13"))),
        }
    }
}

serde_as_text!(JedecId);
text_schema!(JedecId, "^[0-9A-F]{2}( [0-9A-F]{2}){2}$", "Maker, type and capacity of a flash, in hexadecimal.");

impl JedecId {
    /// Returns the maker's name; `None` for a maker whose parts are not common on such boards. Source: JEP106 and the
    /// makers' data sheets; flashrom's `flashchips.h` and, for Puya, Boya and Zbit, the tables of other drivers.
    pub const fn maker(self) -> Option<&'static str> {
        Some(match self.0[0] {
            0x0B => "XTX",
            0x1C => "EON",
            // XMC's number without its continuation codes, which is also STMicroelectronics', and so Micron's.
            0x20 => "XMC or Micron",
            0x5E => "Zbit",
            0x68 => "Boya",
            0x85 => "Puya",
            0x9D => "ISSI",
            0xA1 => "Fudan",
            0xBA => "Zetta",
            0xC2 => "Macronix",
            0xC8 => "GigaDevice",
            0xEF => "Winbond",
            _ => return None,
        })
    }

    /// Returns how many bytes the flash has; `None` if that is not known. In the IDs of the makers above, the third byte
    /// is the logarithm of it, up to 16 MiB, which a 24-bit address reaches. (From 64 MiB on, some count on in decimal:
    /// 20 follows 19.) Other makers' IDs mostly say the same, but between them small numbers have other meanings, so a
    /// logarithm is taken from 512 KiB on, which boards with this chip have, too (Puya's P25D40SH on an OSCOO XT6). A part
    /// that is smaller than its ID says shows it by repeating its contents.
    /// Source: the makers' data sheets; the sizes in flashrom's `flashchips` and in Linux's `spi-nor`.
    pub const fn capacity(self) -> Option<usize> {
        let [maker, kind, exponent] = self.0;
        let is_logarithm = match self.maker() {
            Some(_) => matches!(exponent, 0x11..=0x18),
            // Spansion's S25FL032A, 01 02 15, has 4 MiB, and its kind all twice what the byte says. 7F is JEP106's
            // continuation code: the maker and the kind follow it, and no capacity.
            None => matches!(exponent, 0x13..=0x18) && !matches!((maker, kind), (0x01, 0x02) | (0x7F, _)),
        };
        if is_logarithm { Some(1 << exponent) } else { None }
    }
}

/// Reasons an access to the flash through registers failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError<E: Error + 'static> {
    /// An access to a register, or to the buffer of bulk data, failed.
    #[error(transparent)]
    Access(#[from] E),
    /// No flash answers. Holds the answer to command 9F.
    #[error("no SPI flash answers: its ID reads {0}")]
    NoFlash(JedecId),
    /// The controller does not complete a command.
    #[error("the flash controller has not ended command {command:02X} within {deadline:?}")]
    Controller {
        /// The flash's command.
        command: u8,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The flash stays busy.
    #[error("the flash is still busy with {what} at {at} after {deadline:?}")]
    Busy {
        /// The operation, in words.
        what: &'static str,
        /// Its address.
        at: FlashAddress,
        /// The deadline that passed.
        deadline: Duration,
    },
    /// The block protection can't be cleared.
    #[error("the flash stays write-protected: its status reads {status:#04x} after {tries} tries to clear it")]
    Protected {
        /// The status register.
        status: u8,
        /// Number of attempts to clear it.
        tries: u32,
    },
    /// The block protection can't be set again.
    #[error("the flash's block protection reads {status:#04x} and not {protection:#04x}, as it was before")]
    Unprotected {
        /// The status register.
        status: u8,
        /// The protection bits that it should have.
        protection: u8,
    },
    /// The whole access took longer than this.
    #[error("reading and writing the flash has taken more than {0:?}")]
    OutOfTime(Duration),
    /// For this long, no sector was read or written.
    #[error("no sector of the flash was read or written for {0:?}")]
    NoProgress(Duration),
    /// Repeated reads of this register of the flash differ.
    #[error("the flash's {0} reads differently each time")]
    Disagrees(&'static str),
    /// Repeated reads of this sector differ.
    #[error("the flash reads differently each time at {0}")]
    Unstable(FlashAddress),
    /// A sector is not FF after its erase.
    #[error("the sector at {at} does not erase: {count} of its bytes are not FF")]
    NotErased {
        /// The sector.
        at: FlashAddress,
        /// Number of bytes that are not FF.
        count: usize,
    },
    /// Programmed bytes read back differently.
    #[error("{count} bytes at {at} differ from what was written")]
    Differs {
        /// The page or sector.
        at: FlashAddress,
        /// Number of bytes that differ.
        count: usize,
    },
}

crate::coded!(RegisterError<E> {
    Access(cause) => cause,
    NoFlash => Device "asm2464::registers::no_flash",
    Controller => Device "asm2464::registers::controller",
    Busy => Device "asm2464::registers::busy",
    Protected => Device "asm2464::registers::protected",
    Unprotected => Device "asm2464::registers::unprotected",
    OutOfTime => Device "asm2464::registers::out_of_time",
    NoProgress => Device "asm2464::registers::no_progress",
    Disagrees => Device "asm2464::registers::disagrees",
    Unstable => Device "asm2464::registers::unstable",
    NotErased => Device "asm2464::registers::not_erased",
    Differs => Device "asm2464::registers::differs",
});

impl<E: Error + 'static> RegisterError<E> {
    /// Whether the time limit of all operations has passed.
    pub const fn is_out_of_time(&self) -> bool {
        matches!(self, Self::OutOfTime(_) | Self::NoProgress(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_how_many_bytes_a_flash_has_if_three_address_bytes_reach_them() {
        let capacity = |id: &str| id.parse::<JedecId>().unwrap().capacity();
        for (id, bytes) in [
            ("C2 28 15", DUMP_LEN),
            ("EF 30 13", 0x8_0000),
            ("C8 40 18", 0x100_0000),
            // XT25F64B, EN25QH16, XM25QH128A, XM25QH32A, ZB25VQ128, B.25D16A, FM25Q08.
            ("0B 40 17", 0x80_0000),
            ("1C 70 15", 0x20_0000),
            ("20 70 18", 0x100_0000),
            ("20 70 16", 0x40_0000),
            ("5E 40 18", 0x100_0000),
            ("68 40 15", 0x20_0000),
            ("A1 40 14", 0x10_0000),
            // ZD25WQ16, and makers that nobody has listed.
            ("BA 60 15", DUMP_LEN),
            ("12 34 14", 0x10_0000),
            ("37 30 15", DUMP_LEN),
            ("01 40 15", DUMP_LEN),
            ("12 34 18", 0x100_0000),
            // GT25Q40, P25D40SH, FM25F04, and makers that nobody has listed.
            ("C4 60 13", 0x8_0000),
            ("85 60 13", 0x8_0000),
            ("A1 31 13", 0x8_0000),
            ("12 34 13", 0x8_0000),
        ] {
            assert_eq!(capacity(id), Some(bytes), "{id}");
        }
        // The last five are IS25LQ016, XM25QH512C, S25FL008A, S25FL032A and Pm25LQ040, whose third byte is no logarithm.
        let unknown = ["12 34 12", "12 34 19", "C2 28 19", "EF 30 10", "9D 7B FF", "9D 14 45", "20 40 20"];
        for id in unknown.into_iter().chain(["01 02 13", "01 02 15", "7F 9D 14"]) {
            assert_eq!(capacity(id), None, "{id}");
        }
    }
}
