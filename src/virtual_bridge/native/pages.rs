//! The data of INQUIRY, MODE SENSE and the NVMe pass-through. Sources: SPC-4, SBC-3, NVMe 1.4.

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

/// NVMe Identify Namespace: size, capacity and use in blocks, one format of 512 bytes.
pub(super) fn identify_namespace(blocks: u64, data: &mut Vec<u8>) {
    data.resize(4096, 0);
    for at in [0, 8, 16] {
        data[at..at + 8].copy_from_slice(&blocks.to_le_bytes());
    }
    data[130] = 9;
}

/// NVMe Identify Controller: serial, model and firmware in space-padded ASCII, one namespace.
pub(super) fn identify_controller(identity: &Identity, data: &mut Vec<u8>) {
    data.extend([0x4C, 0x17, 0x4C, 0x17]);
    padded(&identity.serial, 20, data);
    padded("asmpatch virtual SSD", 40, data);
    padded("1.0", 8, data);
    data.resize(4096, 0);
    data[516..520].copy_from_slice(&1u32.to_le_bytes());
}

/// NVMe SMART log: 300 K, all of the spare left.
pub(super) fn smart_log(data: &mut Vec<u8>) {
    data.resize(512, 0);
    data[1..3].copy_from_slice(&300u16.to_le_bytes());
    data[3] = 100;
    data[4] = 10;
}

fn padded(text: &str, len: usize, data: &mut Vec<u8>) {
    let bytes = text.bytes().map(|byte| if matches!(byte, 0x20..=0x7E) { byte } else { b' ' });
    data.extend(bytes.chain(std::iter::repeat(b' ')).take(len));
}
