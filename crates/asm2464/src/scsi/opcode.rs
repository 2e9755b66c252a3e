//! Operation codes: those of SPC-4 and SBC-3 that the bridge or its hosts use, and the vendor's.

/// SPC-4.
pub const TEST_UNIT_READY: u8 = 0x00;
/// SPC-4.
pub const REQUEST_SENSE: u8 = 0x03;
/// SPC-4.
pub const INQUIRY: u8 = 0x12;
/// SPC-4.
pub const MODE_SENSE_6: u8 = 0x1A;
/// SBC-3.
pub const START_STOP_UNIT: u8 = 0x1B;
/// SPC-4: PREVENT ALLOW MEDIUM REMOVAL.
pub const PREVENT_ALLOW_REMOVAL: u8 = 0x1E;
/// SBC-3.
pub const READ_CAPACITY_10: u8 = 0x25;
/// SBC-3.
pub const READ_10: u8 = 0x28;
/// SBC-3.
pub const WRITE_10: u8 = 0x2A;
/// SBC-3.
pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
/// SBC-3.
pub const READ_16: u8 = 0x88;
/// SBC-3.
pub const WRITE_16: u8 = 0x8A;
/// SBC-3.
pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
/// SBC-3: SERVICE ACTION IN(16). Service action 0x10 is READ CAPACITY(16).
pub const SERVICE_ACTION_IN_16: u8 = 0x9E;
/// SPC-4.
pub const REPORT_LUNS: u8 = 0xA0;
/// E0: reads a configuration block.
pub const CONFIG_READ: u8 = 0xE0;
/// E1: writes a configuration block. For block 0, it erases the whole slot first.
pub const CONFIG_WRITE: u8 = 0xE1;
/// E2: reads the flash.
pub const FLASH_READ: u8 = 0xE2;
/// E3: writes one part of the firmware.
pub const FLASH_WRITE: u8 = 0xE3;
/// E4: reads XDATA.
pub const XDATA_READ: u8 = 0xE4;
/// E5: writes one byte of XDATA.
pub const XDATA_WRITE: u8 = 0xE5;
/// E6: passes an admin command to the NVMe drive.
pub const NVME_ADMIN: u8 = 0xE6;
/// E8: resets the CPU, or halts it.
pub const RESET: u8 = 0xE8;
