//! The commands that asmpatch sends, and their wire forms.
//!
//! Vendor commands come from image 240417's code (docs/lab/firmware.md, "Vendor commands"), and were confirmed by
//! executing it. Standard commands come from SPC-4 and SBC-3.

use super::bot::Direction;
use super::cdb::{Cdb, opcode_name};
use super::lun::REPORT_LUNS_LEN;
use super::{ScsiStatus, opcode};
use crate::firmware::{BlockIndex, Part};

/// One of the two 64 KiB pages of XDATA, selected by the top byte of E4's and E5's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum XdataPage {
    /// 0x50: what MOVX reaches.
    Main = 0x50,
    /// 0x51: the other page.
    Other = 0x51,
}

/// An address in XDATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display)]
#[display("XDATA {}0x{addr:04X}", if *page == XdataPage::Main { "" } else { "page 0x51 " })]
pub struct XdataAddress {
    /// The page.
    pub page: XdataPage,
    /// The 16-bit address in it.
    pub addr: u16,
}

/// Bytes of a page of XDATA.
pub const XDATA_PAGE_LEN: usize = 0x1_0000;
/// Maximum number of bytes that one E4 returns at SuperSpeed, without the patch for longer ones. Source: openpilot's
/// flasher; stock firmware has one byte for the length.
pub const XDATA_READ_MAX: usize = 255;

impl XdataAddress {
    /// The running firmware's version, 6 bytes. Source: cyrozap's notes.
    pub const VERSION: Self = Self::main(0x07F0);
    /// Where XDATA shows the first 4 KiB of the SRAM, which PCIe devices can reach too.
    pub const SRAM_WINDOW: Self = Self::main(0xF000);

    /// An address in the page that MOVX reaches.
    pub const fn main(addr: u16) -> Self {
        Self { page: XdataPage::Main, addr }
    }

    /// Returns the address `offset` bytes later in the same page. Wraps past the page's end.
    pub const fn plus(self, offset: u16) -> Self {
        Self { page: self.page, addr: self.addr.wrapping_add(offset) }
    }

    const fn wire(self) -> [u8; 3] {
        let [high, low] = self.addr.to_be_bytes();
        [self.page as u8, high, low]
    }
}

/// What E8 does to the unit. Source: owners' measurements on an OWC Express 1M2, and executing image 240417.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResetMode {
    /// 0x50 (state 0x60): resets the CPU. The unit leaves the bus and returns by itself after about 3 s.
    CpuReset = 0x50,
    /// 0x51 (state 0x8A): the unit leaves the bus and stays away until it loses power.
    Halt = 0x51,
}

/// A command that asmpatch sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// 0x00.
    TestUnitReady,
    /// 0x03.
    RequestSense {
        /// Allocation length in bytes.
        len: u8,
    },
    /// 0x12: standard data.
    Inquiry {
        /// Allocation length in bytes.
        len: u8,
    },
    /// 0x25.
    ReadCapacity10,
    /// 0x9E/0x10.
    ReadCapacity16,
    /// 0xA0: the logical units, [`REPORT_LUNS_LEN`] bytes at most.
    ReportLuns,
    /// 0x88: block n begins at byte n * 512 of the SSD. Without an SSD, the block address has no effect.
    Read16 {
        /// First logical block.
        lba: u64,
        /// Blocks of 512 bytes.
        blocks: u32,
    },
    /// 0x8A: the same, with data from the host.
    Write16 {
        /// First logical block.
        lba: u64,
        /// Blocks of 512 bytes.
        blocks: u32,
    },
    /// 0xE0: a configuration block of the first slot.
    ConfigRead(BlockIndex),
    /// 0xE1.
    ConfigWrite(BlockIndex),
    /// 0xE2: the first bytes of a part of the flash.
    FlashRead {
        /// Which part.
        part: Part,
        /// Bytes, at most 0x10000.
        len: u32,
    },
    /// 0xE3: erases and writes a part of the flash.
    FlashWrite {
        /// Which part.
        part: Part,
        /// Bytes, at most [`Part::max_len`].
        len: u32,
    },
    /// 0xE4. Stock firmware uses only the low byte of the length; the length extension reads up to 4,096 bytes.
    XdataRead {
        /// The first address.
        from: XdataAddress,
        /// Bytes. The high byte goes into CDB byte 5, which every known host leaves 0.
        len: u16,
    },
    /// 0xE5: writes one byte of XDATA.
    XdataWrite {
        /// The address.
        at: XdataAddress,
        /// The byte.
        value: u8,
    },
    /// 0xE6 with opcode 6 and CNS 1: NVMe Identify Controller, 4,096 bytes. The CDB's layout is the one that
    /// smartmontools' `sntasmedia` device sends.
    NvmeIdentifyController,
    /// 0xE8.
    Reset(ResetMode),
}

/// Bytes of a logical block of the bridge's data buffer and, for asmpatch, of an SSD.
pub const BLOCK_LEN: usize = 512;

/// How many bytes of data a command moves, and in which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataLength {
    /// No data.
    None,
    /// Device to host.
    In(u32),
    /// Host to device.
    Out(u32),
}

impl DataLength {
    /// Returns the data length of a CDB's command; `None` for a command that this function does not know.
    pub fn of(cdb: &Cdb) -> Option<Self> {
        let byte = cdb.padded();
        let double = |at: usize| u32::from(u16::from_be_bytes([byte[at], byte[at + 1]]));
        let long = |at: usize| u32::from_be_bytes([byte[at], byte[at + 1], byte[at + 2], byte[at + 3]]);
        let blocks = |count: u32| count.saturating_mul(BLOCK_LEN as u32);
        Some(match cdb.opcode() {
            opcode::TEST_UNIT_READY
            | opcode::START_STOP_UNIT
            | opcode::PREVENT_ALLOW_REMOVAL
            | opcode::SYNCHRONIZE_CACHE_10
            | opcode::SYNCHRONIZE_CACHE_16
            | opcode::XDATA_WRITE
            | opcode::RESET => Self::None,
            opcode::REQUEST_SENSE | opcode::INQUIRY | opcode::MODE_SENSE_6 => Self::In(byte[4].into()),
            opcode::READ_CAPACITY_10 => Self::In(8),
            opcode::READ_10 => Self::In(blocks(double(7))),
            opcode::WRITE_10 => Self::Out(blocks(double(7))),
            opcode::READ_16 => Self::In(blocks(long(10))),
            opcode::WRITE_16 => Self::Out(blocks(long(10))),
            opcode::CONFIG_READ => Self::In(128),
            opcode::CONFIG_WRITE => Self::Out(128),
            opcode::FLASH_READ => Self::In(long(2)),
            opcode::FLASH_WRITE => Self::Out(long(2)),
            opcode::XDATA_READ => Self::In(u16::from_be_bytes([byte[5], byte[1]]).into()),
            _ => return None,
        })
    }

    /// Returns the number of bytes; 0 if there is no data.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::In(len) | Self::Out(len) => len,
        }
    }

    /// Returns the CBW's direction; In if there is no data, as tinygrad's tools and Linux send it.
    pub const fn direction(self) -> Direction {
        match self {
            Self::None | Self::In(_) => Direction::In,
            Self::Out(_) => Direction::Out,
        }
    }
}

impl Command {
    /// Encodes the command. E1, E3 and E8 have the lengths that tinygrad's tools send: 15, 6 and 15 bytes.
    pub fn cdb(&self) -> Cdb {
        match *self {
            Self::TestUnitReady => Cdb::of([opcode::TEST_UNIT_READY, 0, 0, 0, 0, 0]),
            Self::RequestSense { len } => Cdb::of([opcode::REQUEST_SENSE, 0, 0, 0, len, 0]),
            Self::Inquiry { len } => Cdb::of([opcode::INQUIRY, 0, 0, 0, len, 0]),
            Self::ReadCapacity10 => Cdb::of([opcode::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Self::ReadCapacity16 => {
                Cdb::of([opcode::SERVICE_ACTION_IN_16, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0])
            }
            Self::ReportLuns => {
                let [a, b, c, d] = REPORT_LUNS_LEN.to_be_bytes();
                Cdb::of([opcode::REPORT_LUNS, 0, 0, 0, 0, 0, a, b, c, d, 0, 0])
            }
            Self::Read16 { lba, blocks } => Cdb::of(transfer16(opcode::READ_16, lba, blocks)),
            Self::Write16 { lba, blocks } => Cdb::of(transfer16(opcode::WRITE_16, lba, blocks)),
            Self::ConfigRead(block) => Cdb::of([opcode::CONFIG_READ, 0x50, block.number(), 0, 0, 0]),
            Self::ConfigWrite(block) => {
                let mut cdb = [0; 15];
                cdb[..3].copy_from_slice(&[opcode::CONFIG_WRITE, 0x50, block.number()]);
                Cdb::of(cdb)
            }
            Self::FlashRead { part, len } => Cdb::of(flash(opcode::FLASH_READ, part, len)),
            Self::FlashWrite { part, len } => Cdb::of(flash(opcode::FLASH_WRITE, part, len)),
            Self::XdataRead { from, len } => {
                let [page, high, low] = from.wire();
                let [len_high, len_low] = len.to_be_bytes();
                Cdb::of([opcode::XDATA_READ, len_low, page, high, low, len_high])
            }
            Self::XdataWrite { at, value } => {
                let [page, high, low] = at.wire();
                Cdb::of([opcode::XDATA_WRITE, value, page, high, low, 0])
            }
            Self::NvmeIdentifyController => {
                Cdb::of([opcode::NVME_ADMIN, 0x06, 0, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            }
            Self::Reset(mode) => {
                let mut cdb = [0; 15];
                cdb[..2].copy_from_slice(&[opcode::RESET, mode as u8]);
                Cdb::of(cdb)
            }
        }
    }

    /// Returns the command's name, as in errors.
    pub fn name(&self) -> &'static str {
        opcode_name(self.cdb().opcode()).unwrap_or("a command without a name")
    }
}

const fn transfer16(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = lba.to_be_bytes();
    let [i, j, k, l] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, e, f, g, h, i, j, k, l, 0, 0]
}

const fn flash(opcode: u8, part: Part, len: u32) -> [u8; 6] {
    let [a, b, c, d] = len.to_be_bytes();
    [opcode, part.mode(), a, b, c, d]
}

/// Bytes that [`LONG_READ`] asks for.
pub const LONG_READ_LEN: usize = 256;
/// E4 of 256 bytes, of RAM that reading does not change.
///
/// Stock firmware uses only CDB byte 1 as the length. That byte is 0 here, so it moves no data. With the extension all
/// 256 bytes arrive. See docs/lab/e4-length-16.md.
pub const LONG_READ: Command = Command::XdataRead { from: XdataAddress::main(0x0700), len: LONG_READ_LEN as u16 };

/// Whether the firmware has the extension, by the status of [`LONG_READ`] and the number of bytes moved; `None` if the
/// firmware refused it.
pub fn has_long_read(status: ScsiStatus, moved: usize) -> Option<bool> {
    if status == ScsiStatus::Good { Some(moved == LONG_READ_LEN) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_forms_are_those_of_the_reference() {
        let wire = |command: Command| command.cdb().to_string();
        assert_eq!(wire(Command::ConfigWrite(BlockIndex::One)), "e1 50 01 00 00 00 00 00 00 00 00 00 00 00 00");
        assert_eq!(wire(Command::FlashWrite { part: Part::One, len: 0xFF00 }), "e3 50 00 00 ff 00");
        assert_eq!(wire(Command::FlashWrite { part: Part::Two, len: 0x7FE0 }), "e3 d0 00 00 7f e0");
        let from = XdataAddress::main(0x3000);
        assert_eq!(wire(Command::XdataRead { from, len: 0xFF }), "e4 ff 50 30 00 00");
        assert_eq!(wire(Command::XdataRead { from, len: 0x1000 }), "e4 00 50 30 00 10");
        assert_eq!(wire(Command::XdataWrite { at: from, value: 7 }), "e5 07 50 30 00 00");
        assert_eq!(wire(Command::Reset(ResetMode::Halt)).len(), 15 * 3 - 1);
        assert_eq!(wire(Command::ReportLuns), "a0 00 00 00 00 00 00 00 00 88 00 00");
        assert_eq!(Command::NvmeIdentifyController.name(), "E6 (NVMe Identify)");
        assert_eq!(wire(Command::Write16 { lba: 256, blocks: 128 }), "8a 00 00 00 00 00 00 00 01 00 00 00 00 80 00 00");
    }
}
