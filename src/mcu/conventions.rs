//! How the firmware keeps a SCSI command: where its CDB, its data, its status and its sense stand, and which routines
//! carry it. Read out of, and executed from, image 240417; the practice image keeps to the same places.
//!
//! A command over UAS begins at [`DISPATCH_UAS`], which takes the CDB through the generic pointer at [`POINTER`],
//! queues READ and WRITE with the routine at 0x2814, sends everything else to [`DISPATCH`], and then goes on at
//! 0x40D9 as the status at [`STATUS`] says: it hands data to the USB controller, or answers the host. A command over
//! Bulk-Only reaches [`DISPATCH`] from 0x4D92, which points [`POINTER`] at the CBW in the USB controller's registers
//! at [`CBW`] (that is why a CDB begins 15 bytes behind the pointer). There READ and WRITE go to 0x2BEA, which never
//! comes to the status byte that the status patch changes: the patch acts on UAS alone.
//!
//! A reply with status 8 goes packet by packet: for each packet that is out the interrupt at 0x0FE4 calls
//! [`DATA_IN_OUT`], which copies the next one into the data buffer and hands it to the USB controller.
//!
//! A command with data-out returns before there is data. For each packet the interrupt at 0x0FC6 calls
//! [`DATA_OUT_CAME`], which programs the flash.

use crate::firmware::{Bank, CodeAddress, FirmwareVersion, Image};

/// The versions whose routines stand at the places given here: 240417, and the practice image.
pub const KNOWN_VERSIONS: [FirmwareVersion; 2] =
    [FirmwareVersion([0x24, 0x04, 0x17, 0x85, 0x00, 0x00]), FirmwareVersion([0x26, 0x11, 0x21, 0x00, 0x00, 0x01])];

/// Whether an image's dispatcher is where this module says: its version is known, and its code begins as it should.
/// A patched image keeps both.
pub fn are_kept_by(image: &Image) -> bool {
    // MOV DPTR,#0002h; MOVX A,@DPTR: the dispatcher reads the operation code.
    let begins = [0x90, 0x00, 0x02, 0xE0];
    let start = DISPATCH.body_offset().0 as usize;
    KNOWN_VERSIONS.contains(&image.version()) && image.body().get(start..start + begins.len()) == Some(&begins)
}

const fn common(addr: u16) -> CodeAddress {
    match CodeAddress::new(Bank::Common, addr) {
        Some(at) => at,
        None => panic!("an entry point outside the common area"),
    }
}

/// Runs the command at [`OPCODE`] and leaves how it goes on at [`STATUS`].
pub const DISPATCH: CodeAddress = common(0x38D4);
/// Runs a command that came over UAS.
pub const DISPATCH_UAS: CodeAddress = common(0x3CB8);
/// A packet of data-out has come.
pub const DATA_OUT_CAME: CodeAddress = common(0x32A5);
/// Hands the next packet of a reply with status 8 to the USB controller. Bulk-Only calls it at 0x01C5, behind its
/// judgement of the lengths; over UAS [`DISPATCH_UAS`] comes to it by itself.
pub const SEND_PACKET: CodeAddress = common(0x5216);
/// Data-in is out: hands over the next packet of a reply with status 8, or answers. The interrupt at 0x0FE4 calls it.
pub const DATA_IN_OUT: CodeAddress = common(0x4D44);
/// The queue routine for READ and WRITE over UAS. R7 bit 1 tells a read, bit 0 a ten-byte CDB; it returns 9 for a read
/// that is queued, 0x0A for a write, 5 where there is nothing to move or an error to report.
pub const QUEUE: CodeAddress = common(0x2814);

/// XDATA: how Bulk-Only's thirteen cases judge the lengths; 0 while they agree.
pub const CASE_OF_THIRTEEN: u16 = 0x0001;
/// XDATA: the operation code.
pub const OPCODE: u16 = 0x0002;
/// XDATA: what E8 asks for, a set of flags; 0 for nothing.
pub const RESET_STATE: u16 = 0x0003;
/// XDATA: generic pointer (type, high, low) to what carries the CDB, 15 bytes before it.
pub const POINTER: u16 = 0x0007;
/// XDATA: 18 bytes of fixed-format sense: key at +2, ASC at +12, ASCQ at +13.
pub const SENSE: u16 = 0x0201;
/// XDATA: 1 while there is sense to report.
pub const SENSE_SET: u16 = 0x07E5;
/// XDATA: the CBW's direction bit.
pub const DIRECTION: u16 = 0x0AF3;
/// XDATA: the logical unit.
pub const LUN: u16 = 0x0AF4;

/// XDATA: bytes that one page program moves.
pub const FLASH_PROGRAM_LEN: u16 = 0x0B21;
/// XDATA: the SPI commands that erase 64 KiB and 4 KiB.
pub const FLASH_ERASE_COMMAND: u16 = 0x0B24;

/// IDATA: 0 the slot that the command came in.
pub const SLOT: u8 = 0x0D;
/// IDATA: dword, big-endian: bytes that the handler means to move.
pub const LENGTH: u8 = 0x09;
/// IDATA: how the command goes on; see [`CommandStatus`].
pub const STATUS: u8 = 0x6A;
/// IDATA: dword, big-endian: bytes that the host means to move. Bulk-Only takes it from the CBW, over UAS the handler
/// takes it from the CDB.
pub const HOST_LENGTH: u8 = 0x6B;
/// IDATA: dword, big-endian: Bulk-Only's residue; while E3 runs, the bytes that have come.
pub const RESIDUE: u8 = 0x6F;

/// USB controller: bit 0 is set while the host speaks UAS.
pub const USB_MODE: u16 = 0x9000;
/// USB controller: length of the data-in, big-endian word.
pub const IN_LENGTH: u16 = 0x9007;
/// USB controller: transfers that are done, cleared by writing ones: bit 3 data-in, bit 1 data-out.
pub const TRANSFER_DONE: u16 = 0x9093;
/// USB controller: starts a transfer: 0x02 data-in from the data buffer, 0x10 takes data-out.
pub const TRANSFER_START: u16 = 0x9094;
/// USB controller: bits 1 and 0: 2 at SuperSpeed (packets of 1,024 bytes), 1 at high speed (512).
pub const LINK_SPEED: u16 = 0x9100;
/// USB controller: length of the data-out that came, big-endian word.
pub const OUT_LENGTH: u16 = 0x910D;
/// USB controller: the last CBW.
pub const CBW: u16 = 0x911B;
/// Status IU under UAS (status at +6), CSW under Bulk-Only (status at +12).
pub const STATUS_BUFFER: u16 = 0xD800;
/// Where data-in is sent from.
pub const DATA_BUFFER: u16 = 0x8000;
/// Bytes in the data buffer.
pub const DATA_BUFFER_LEN: usize = 0x1000;
/// Where the SPI flash controller works.
pub const FLASH_BUFFER: u16 = 0x7000;
/// The bytes of one data-out packet at SuperSpeed.
pub const OUT_PACKET: usize = 0x400;
/// Where a CDB begins behind the pointer.
pub const CDB_AT: u16 = 0x0F;

/// How a command goes on: the byte at [`STATUS`]. Source: the two readers at 0x0016 (Bulk-Only) and 0x40D9 (UAS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandStatus {
    /// 1: data-in stands at [`DATA_BUFFER`].
    DataIn,
    /// 8: data-in's first packet stands at [`DATA_BUFFER`].
    PacketsIn,
    /// 2: data-out is waited for.
    DataOut,
    /// 5: the host is answered now, with or without sense.
    Answer,
    /// 3 and 9: a read is queued as NVMe I/O.
    ReadQueued,
    /// 4 and 0x0A: a write is queued as NVMe I/O.
    WriteQueued,
    /// Anything else.
    Other(u8),
}

impl CommandStatus {
    /// The status of a byte.
    pub const fn of(byte: u8) -> Self {
        match byte {
            1 => Self::DataIn,
            8 => Self::PacketsIn,
            2 => Self::DataOut,
            5 => Self::Answer,
            3 | 9 => Self::ReadQueued,
            4 | 0x0A => Self::WriteQueued,
            other => Self::Other(other),
        }
    }
}
