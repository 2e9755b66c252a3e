//! Endpoint halts: the firmware sets them, for an error or for SET_FEATURE, and clears them for CLEAR_FEATURE.

use super::register::Register;
use super::usb::{COMMAND_OUT, DATA_IN, DATA_OUT, STATUS_IN};
use crate::mcu::XdataMemory;

/// 0x9006: .0 halts 0x81, .7 halts 0x02. Source: GET_STATUS (b0:0xB3CF), SET_FEATURE (b0:0x9DD1) and CLEAR_FEATURE
/// (b0:0xA98D, 0xA9AB) of these endpoints; errors: c:0x014D, 0x0185, 0x3130, 0x4D78.
const DATA: u16 = 0x9006;
/// 0x905D.0 halts 0x83. Source: b0:0xB3ED, 0x9DE9, 0xA9D3.
const STATUS: u16 = 0x905D;
/// 0x905F.0 halts 0x04. Source: b0:0xB3E5, 0x9DE3, 0xA9BF.
const COMMAND: u16 = 0x905F;

pub(super) const REGISTERS: &[Register] =
    &[Register::one(DATA, "BULK_HALTS"), Register::one(STATUS, "STATUS_HALT"), Register::one(COMMAND, "COMMAND_HALT")];

/// Whether the firmware has halted an endpoint.
pub(super) fn is_halted(endpoint: u8, memory: &XdataMemory) -> bool {
    let (register, bit) = match endpoint {
        DATA_IN => (DATA, 0x01),
        DATA_OUT => (DATA, 0x80),
        STATUS_IN => (STATUS, 0x01),
        COMMAND_OUT => (COMMAND, 0x01),
        _ => return false,
    };
    memory.main()[usize::from(register)] & bit != 0
}
