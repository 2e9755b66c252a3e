//! The plain responder's commands: what asmpatch, the kernel's drivers and a GPU runtime send to a disk. Sources: SPC-4,
//! SBC-3.

use asm2464::scsi::bot::Direction;
use asm2464::scsi::{Sense, SenseKey, opcode};
use asm2464_dock::virtual_unit::Identity;

use super::BLOCK;

/// The disk's number of blocks: 32 MiB.
const BLOCKS: u64 = 0x1_0000;
/// The largest transfer that the Block Limits page allows: 1 MiB.
const MAX_TRANSFER_BLOCKS: u32 = 0x800;
const MODE_SENSE_10: u8 = 0x5A;
const LBA_OUT_OF_RANGE: Sense = Sense::new(SenseKey::ILLEGAL_REQUEST, 0x21, 0x00);
const LUN_NOT_SUPPORTED: Sense = Sense::new(SenseKey::ILLEGAL_REQUEST, 0x25, 0x00);

/// Data of a command.
#[derive(Debug)]
pub enum Data {
    None,
    /// To the host.
    Bytes(Vec<u8>),
    /// This many zeros to the host.
    Zeros(usize),
    /// This many bytes from the host, which are dropped.
    Dropped(usize),
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Zeros(len) | Self::Dropped(len) => *len,
        }
    }

    pub fn direction(&self) -> Option<Direction> {
        match self {
            Self::None => None,
            Self::Bytes(_) | Self::Zeros(_) => Some(Direction::In),
            Self::Dropped(_) => Some(Direction::Out),
        }
    }
}

/// The SCSI target.
#[derive(Debug)]
pub struct Target {
    identity: Identity,
    /// What the next REQUEST SENSE answers.
    pub sense: Sense,
}

impl Target {
    pub fn new(identity: Identity) -> Self {
        Self { identity, sense: Sense::NONE }
    }

    /// Executes a command. E4 reads zeros; E5 and E8 change nothing.
    pub fn command(&mut self, cdb: &[u8; 16], lun: u8) -> Result<Data, Sense> {
        let sense = std::mem::replace(&mut self.sense, Sense::NONE);
        let opcode = cdb[0];
        if lun != 0 && !matches!(opcode, opcode::REQUEST_SENSE | opcode::INQUIRY | opcode::REPORT_LUNS) {
            return Err(LUN_NOT_SUPPORTED);
        }
        let number =
            |at: std::ops::Range<usize>| cdb[at].iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let cut = |mut data: Vec<u8>, most: u64| {
            data.truncate(most as usize);
            Ok(Data::Bytes(data))
        };
        match opcode {
            opcode::REQUEST_SENSE => cut(sense.to_fixed().to_vec(), number(4..5)),
            opcode::INQUIRY => cut(self.inquiry(cdb, lun)?, number(3..5)),
            opcode::REPORT_LUNS => cut([&[0u8, 0, 0, 8][..], &[0; 12]].concat(), number(6..10)),
            opcode::MODE_SENSE_6 => {
                let page = mode_page(cdb[2])?;
                cut([&[page.len() as u8 + 3, 0, 0, 0][..], &page].concat(), number(4..5))
            }
            MODE_SENSE_10 => {
                let page = mode_page(cdb[2])?;
                cut([&[0, page.len() as u8 + 6, 0, 0, 0, 0, 0, 0][..], &page].concat(), number(7..9))
            }
            opcode::READ_CAPACITY_10 => cut([BLOCKS as u32 - 1, BLOCK as u32].map(u32::to_be_bytes).concat(), 8),
            opcode::SERVICE_ACTION_IN_16 if cdb[1] & 0x1F == 0x10 => {
                let mut data = [&(BLOCKS - 1).to_be_bytes()[..], &(BLOCK as u32).to_be_bytes()].concat();
                data.resize(32, 0);
                cut(data, number(10..14))
            }
            opcode::READ_10 => Ok(Data::Zeros(transfer(number(2..6), number(7..9))?)),
            opcode::READ_16 => Ok(Data::Zeros(transfer(number(2..10), number(10..14))?)),
            opcode::WRITE_10 => Ok(Data::Dropped(transfer(number(2..6), number(7..9))?)),
            opcode::WRITE_16 => Ok(Data::Dropped(transfer(number(2..10), number(10..14))?)),
            opcode::XDATA_READ => Ok(Data::Zeros(cdb[1].into())),
            opcode::TEST_UNIT_READY
            | opcode::START_STOP_UNIT
            | opcode::PREVENT_ALLOW_REMOVAL
            | opcode::SYNCHRONIZE_CACHE_10
            | opcode::SYNCHRONIZE_CACHE_16
            | opcode::XDATA_WRITE
            | opcode::RESET => Ok(Data::None),
            _ => Err(Sense::INVALID_OPCODE),
        }
    }

    /// Standard INQUIRY data, or a vital product data page.
    fn inquiry(&self, cdb: &[u8; 16], lun: u8) -> Result<Vec<u8>, Sense> {
        let Identity { t10_vendor, t10_product, release, serial, .. } = &self.identity;
        let name = [padded(t10_vendor, 8), padded(t10_product, 16)].concat();
        // Peripheral qualifier 3, type 0x1F: no such unit.
        let peripheral: u8 = if lun == 0 { 0x00 } else { 0x7F };
        let page = match (cdb[1] & 1, cdb[2]) {
            (0, 0) => {
                let head = [peripheral, 0x00, 0x06, 0x02, 31, 0x00, 0x00, 0x02];
                return Ok([&head[..], &name, &padded(&format!("{release:04X}"), 4)].concat());
            }
            (1, 0x00) => vec![0x00, 0x80, 0x83, 0xB0, 0xB1],
            (1, 0x80) => serial.clone().into_bytes(),
            // ASCII, T10 vendor ID based, of the logical unit.
            (1, 0x83) => {
                let len = (name.len() + serial.len()) as u8;
                [&[0x02, 0x01, 0x00, len][..], &name, serial.as_bytes()].concat()
            }
            (1, 0xB0) => {
                let mut page = vec![0; 60];
                page[2..4].copy_from_slice(&1u16.to_be_bytes());
                page[4..8].copy_from_slice(&MAX_TRANSFER_BLOCKS.to_be_bytes());
                page
            }
            // Medium rotation rate: does not rotate.
            (1, 0xB1) => [&[0u8, 1][..], &[0; 58]].concat(),
            _ => return Err(Sense::INVALID_FIELD_IN_CDB),
        };
        Ok([&[peripheral, cdb[2], 0, page.len() as u8][..], &page].concat())
    }
}

/// The caching page (write-through), or all pages.
fn mode_page(page: u8) -> Result<Vec<u8>, Sense> {
    match page & 0x3F {
        0x08 | 0x3F => Ok([&[0x08u8, 18][..], &[0; 18]].concat()),
        0x00 => Ok(Vec::new()),
        _ => Err(Sense::INVALID_FIELD_IN_CDB),
    }
}

/// Length in bytes of a READ or WRITE.
fn transfer(lba: u64, blocks: u64) -> Result<usize, Sense> {
    let end = lba.checked_add(blocks).filter(|end| *end <= BLOCKS).ok_or(LBA_OUT_OF_RANGE)?;
    Ok((end - lba) as usize * BLOCK)
}

fn padded(text: &str, len: usize) -> Vec<u8> {
    text.bytes().chain(std::iter::repeat(b' ')).take(len).collect()
}
