//! Firmware as bytes: the vendor's container, its banks, the configuration blocks, the identities.
//!
//! Everything here is pure: bytes in, values or a typed error out.

mod address;
mod config_block;
mod identity;
mod image;
mod map;
mod part;
mod routines;
mod version;

pub use address::{BANK_LEN, BANK1_BODY_START, Bank, BodyOffset, COMMON_LEN, CodeAddress, FileOffset, FlashAddress};
pub use config_block::{
    BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, FieldKind, USB4_IDENTITY, kept_bytes, known_blocks,
};
pub use identity::{
    BULK_ONLY_CLASS, BridgeState, InterfaceClass, UAS_CLASS, UsbId, VENDOR_CLASS, descriptors, interface_classes,
    is_runtime_product, open_build, restarts_by_f4,
};
pub use image::{Image, MAX_BODY_LEN, MAX_FILE_LEN, TRAILER_LEN, container_len, is_cut_off, version_in};
pub use map::{Area, AreaKind, ZeroRun};
pub use part::Part;
pub use routines::{Routine, known_routines};
pub use version::FirmwareVersion;
