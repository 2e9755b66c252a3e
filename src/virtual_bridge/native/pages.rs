//! The data of INQUIRY and MODE SENSE. Sources: SPC-4, SBC-3.

use crate::virtual_bridge::descriptors::Identity;

/// The largest transfer that the Block Limits page admits: 1 MiB.
const MAX_TRANSFER_BLOCKS: u32 = 0x800;

/// INQUIRY's data, uncut. `false` where the CDB asks for what there is not.
pub(super) fn inquiry(cdb: &[u8; 16], lun: u8, identity: &Identity, data: &mut Vec<u8>) -> bool {
    let vital = cdb[1] & 0x01 != 0;
    if !vital && cdb[2] != 0 {
        return false;
    }
    // Peripheral qualifier 3, type 0x1F: no such unit.
    let peripheral = if lun == 0 { 0x00 } else { 0x7F };
    if !vital {
        let release = format!("{:04X}", identity.release);
        data.extend([peripheral, 0x00, 0x06, 0x02, 31, 0x00, 0x00, 0x02]);
        padded(&identity.t10_vendor, 8, data);
        padded(&identity.t10_product, 16, data);
        padded(&release, 4, data);
        return true;
    }
    let mut page = Vec::new();
    match cdb[2] {
        0x00 => page.extend([0x00, 0x80, 0x83, 0xB0, 0xB1]),
        0x80 => page.extend(identity.serial.bytes()),
        0x83 => {
            let mut designator = Vec::new();
            padded(&identity.t10_vendor, 8, &mut designator);
            padded(&identity.t10_product, 16, &mut designator);
            designator.extend(identity.serial.bytes());
            // ASCII, T10 vendor ID based, of the logical unit.
            page.extend([0x02, 0x01, 0x00, designator.len() as u8]);
            page.extend(designator);
        }
        0xB0 => {
            page.resize(60, 0);
            page[2..4].copy_from_slice(&1u16.to_be_bytes());
            page[4..8].copy_from_slice(&MAX_TRANSFER_BLOCKS.to_be_bytes());
        }
        0xB1 => {
            page.resize(60, 0);
            // Medium rotation rate: does not rotate.
            page[0..2].copy_from_slice(&1u16.to_be_bytes());
        }
        _ => return false,
    }
    data.extend([peripheral, cdb[2]]);
    data.extend((page.len() as u16).to_be_bytes());
    data.extend(page);
    true
}

/// MODE SENSE's data, uncut: the caching page (write-through), or all there is. `false` for a page there is not.
pub(super) fn mode(page: u8, data: &mut Vec<u8>, ten_bytes: bool) -> bool {
    let mut body = Vec::new();
    match page & 0x3F {
        0x08 | 0x3F => {
            body.extend([0x08, 18]);
            body.resize(20, 0);
        }
        0x00 => {}
        _ => return false,
    }
    if ten_bytes {
        data.extend((body.len() as u16 + 6).to_be_bytes());
        data.extend([0; 6]);
    } else {
        data.extend([body.len() as u8 + 3, 0, 0, 0]);
    }
    data.extend(body);
    true
}

fn padded(text: &str, len: usize, data: &mut Vec<u8>) {
    let bytes = text.bytes().map(|byte| if matches!(byte, 0x20..=0x7E) { byte } else { b' ' });
    data.extend(bytes.chain(std::iter::repeat(b' ')).take(len));
}
