//! The four kinds of address, which never mix: in the file, in the body, in the SPI flash, in code space.

use std::fmt;
use std::str::FromStr;

use derive_more::Display;

use crate::ParseError;
use crate::serde_text::serde_as_text;

/// Bytes of code that every bank sees, at CPU addresses 0x0000 to 0x7FFF.
pub const COMMON_LEN: u32 = 0x8000;
/// Bytes in one bank, mapped at CPU address 0x8000. Source: read out of image 240417.
pub const BANK_LEN: u32 = 0x7F6B;
/// Offset of bank 1 in the body.
pub const BANK1_BODY_START: u32 = COMMON_LEN + BANK_LEN;
/// The container's header: the body's length as a little-endian `u32`.
const HEADER_LEN: u32 = 4;

/// A byte's place in an image file, counted from the container's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, serde::Serialize)]
#[display("file {_0:#07x}")]
pub struct FileOffset(pub u32);

/// A byte's place in the container's body, which is the code without header and trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyOffset(pub u32);

/// A byte's place in the unit's SPI flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, serde::Deserialize, serde::Serialize)]
#[display("flash {_0:#08x}")]
pub struct FlashAddress(pub u32);

/// The code that an address refers to. SFR 0x96 holds 0 for bank 0 and 1 for bank 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
pub enum Bank {
    /// Below 0x8000: the same in both banks.
    #[display("c")]
    Common,
    /// 0x8000 and up with SFR 0x96 = 0.
    #[display("b0")]
    Bank0,
    /// 0x8000 and up with SFR 0x96 = 1.
    #[display("b1")]
    Bank1,
}

/// An address in code space: a bank and the CPU's 16-bit address in it.
///
/// Written `c:0x2A0E`, `b0:0xE975` or `b1:0xC98D`. The constructor keeps bank and address consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{bank}:0x{addr:04X}")]
pub struct CodeAddress {
    bank: Bank,
    addr: u16,
}

impl CodeAddress {
    /// Makes an address; `None` if no image byte can be there: the common area ends at 0x7FFF, the banks at 0xFF6A.
    #[inline(always)]
    pub const fn new(bank: Bank, addr: u16) -> Option<Self> {
        let inside = match bank {
            Bank::Common => (addr as u32) < COMMON_LEN,
            Bank::Bank0 | Bank::Bank1 => addr as u32 >= COMMON_LEN && (addr as u32) < COMMON_LEN + BANK_LEN,
        };
        if inside { Some(Self { bank, addr }) } else { None }
    }

    /// Returns the address of the byte that the CPU fetches at `addr` while SFR 0x96 holds `selected`, of which only
    /// bit 0 counts; `None` past the end of a bank.
    #[inline(always)]
    pub const fn fetched(selected: u8, addr: u16) -> Option<Self> {
        if (addr as u32) < COMMON_LEN {
            Self::new(Bank::Common, addr)
        } else if selected & 1 == 0 {
            Self::new(Bank::Bank0, addr)
        } else {
            Self::new(Bank::Bank1, addr)
        }
    }

    /// Returns the bank.
    pub const fn bank(self) -> Bank {
        self.bank
    }

    /// Returns the CPU's 16-bit address.
    pub const fn addr(self) -> u16 {
        self.addr
    }

    /// Returns the byte's offset in the body.
    pub const fn body_offset(self) -> BodyOffset {
        match self.bank {
            Bank::Common | Bank::Bank0 => BodyOffset(self.addr as u32),
            Bank::Bank1 => BodyOffset(self.addr as u32 - COMMON_LEN + BANK1_BODY_START),
        }
    }

    /// Returns the byte's offset in the file.
    pub const fn file_offset(self) -> FileOffset {
        self.body_offset().file_offset()
    }
}

impl BodyOffset {
    /// Converts to an offset from the start of the file.
    pub const fn file_offset(self) -> FileOffset {
        FileOffset(self.0 + HEADER_LEN)
    }

    /// Converts to the address that the CPU sees; `None` past the end of bank 1.
    pub const fn code_address(self) -> Option<CodeAddress> {
        if self.0 < COMMON_LEN {
            CodeAddress::new(Bank::Common, self.0 as u16)
        } else if self.0 < BANK1_BODY_START {
            CodeAddress::new(Bank::Bank0, self.0 as u16)
        } else if self.0 < BANK1_BODY_START + BANK_LEN {
            CodeAddress::new(Bank::Bank1, (self.0 - BANK1_BODY_START + COMMON_LEN) as u16)
        } else {
            None
        }
    }
}

/// Formats both other views: `c:0x2A0E (file 0x02a12)`; past the end of bank 1 the offset in the file alone.
impl fmt::Display for BodyOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code_address() {
            Some(code) => write!(f, "{code} ({})", self.file_offset()),
            None => self.file_offset().fmt(f),
        }
    }
}

impl FileOffset {
    /// Converts to an offset from the start of the body; `None` in the header.
    pub fn body_offset(self) -> Option<BodyOffset> {
        self.0.checked_sub(HEADER_LEN).map(BodyOffset)
    }
}

serde_as_text!(CodeAddress);

impl FromStr for CodeAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let form = || ParseError(format!("{text:?} is not of the form c:0x2A0E, b0:0xE975 or b1:0xC98D"));
        let (bank, addr) = text.split_once(':').ok_or_else(form)?;
        let bank = match bank {
            "c" => Bank::Common,
            "b0" => Bank::Bank0,
            "b1" => Bank::Bank1,
            _ => return Err(form()),
        };
        let digits = addr.strip_prefix("0x").or_else(|| addr.strip_prefix("0X")).ok_or_else(form)?;
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(form());
        }
        let outside = || {
            let banks = "c: reaches from 0x0000 to 0x7FFF, b0: and b1: from 0x8000 to 0xFF6A";
            ParseError(format!("{text:?} is outside its bank: {banks}"))
        };
        let addr = u16::from_str_radix(digits, 16).map_err(|_| outside())?;
        Self::new(bank, addr).ok_or_else(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_addresses_of_the_reference_agree_in_every_view() {
        let status = CodeAddress::new(Bank::Common, 0x2A0E).unwrap();
        assert_eq!(status.file_offset(), FileOffset(0x2A12));
        let e4: CodeAddress = "b1:0xC98D".parse().unwrap();
        assert_eq!(e4.body_offset(), BodyOffset(0xFF6B + 0x498D));
        assert_eq!(e4.file_offset().body_offset().unwrap().code_address(), Some(e4));
        assert_eq!(e4.to_string(), "b1:0xC98D");
    }

    #[test]
    fn a_file_is_split_between_the_two_parts_of_the_flash() {
        assert_eq!(FileOffset(0).flash_address(), FlashAddress(0x100));
        assert_eq!(FileOffset(0xFEFF).flash_address(), FlashAddress(0xFFFF));
        assert_eq!(FileOffset(0xFF00).flash_address(), FlashAddress(0x1_0000));
        assert_eq!(FileOffset(0x17EDF).flash_address(), FlashAddress(0x17FDF));
    }

    #[test]
    fn an_address_outside_its_bank_is_refused() {
        let refused = |text: &str| text.parse::<CodeAddress>().unwrap_err().to_string();
        for text in ["c:0x8000", "b0:0x7FFF", "b1:0xFF6B", "b1:0x10000"] {
            assert!(refused(text).contains(" is outside its bank"), "{text}");
        }
        for text in ["", "b2:0x8000", "b1", "b1:C98D", "b1:0x", "b1:0x+1"] {
            assert!(refused(text).contains(" is not of the form"), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_body_offset_with_a_code_address_comes_back(offset in 0u32..0x18000) {
            if let Some(code) = BodyOffset(offset).code_address() {
                proptest::prop_assert_eq!(code.body_offset(), BodyOffset(offset));
                proptest::prop_assert_eq!(code.to_string().parse::<CodeAddress>(), Ok(code));
            }
        }
    }
}
