//! What must hold of every parser for whatever bytes come: nothing panics, and what parses prints the same bytes.
//!
//! One function a parser, each named as its fuzz target in `fuzz/`; `tests/fuzz_corpus.rs` replays the corpus through
//! the same functions.

use asmpatch::firmware::{BlockIndex, ConfigBlock, ConfigField, Image};
use asmpatch::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper};
use asmpatch::scsi::uas::{HostIu, StatusIu};
use asmpatch::scsi::{Capacity, Inquiry, Sense};
#[cfg(unix)]
use asmpatch::virtual_bridge::usbredir::Parser;

/// Bulk-Only's wrappers, from either side.
///
/// # Panics
/// Where a wrapper that parses prints other bytes.
pub fn csw(data: &[u8]) {
    if let Ok(wrapper) = CommandStatusWrapper::parse(data) {
        assert_eq!(wrapper.to_bytes(), data);
    }
    if let Ok(wrapper) = CommandBlockWrapper::parse(data) {
        assert_eq!(CommandBlockWrapper::parse(&wrapper.to_bytes()), Ok(wrapper));
    }
}

/// UAS's information units, from either side.
///
/// # Panics
/// Where a unit that parses does not survive the wire, or carries sense data that did not arrive.
pub fn information_unit(data: &[u8]) {
    if let Ok(unit) = StatusIu::parse(data) {
        if let StatusIu::Sense { sense, .. } = &unit {
            assert!(sense.len() <= data.len());
        }
        assert_eq!(StatusIu::parse(&unit.to_bytes()), Ok(unit));
    }
    let _ = HostIu::parse(data);
}

/// Sense data.
///
/// # Panics
/// Where sense that parses does not survive its fixed format.
pub fn sense(data: &[u8]) {
    if let Some(sense) = Sense::parse(data) {
        assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
        let _ = sense.to_string();
    }
}

/// INQUIRY and READ CAPACITY data.
///
/// # Panics
/// Where text from a unit could reach a terminal unescaped.
pub fn inquiry(data: &[u8]) {
    if let Ok(inquiry) = Inquiry::parse(data) {
        assert!(inquiry.to_string().bytes().all(|byte| (0x20..0x7F).contains(&byte)));
    }
    let _ = Capacity::parse10(data).map(Capacity::bytes);
    let _ = Capacity::parse16(data).map(Capacity::bytes);
}

/// A configuration block.
///
/// # Panics
/// Where a block that parses prints other bytes.
pub fn config_block(data: &[u8]) {
    for index in BlockIndex::ALL {
        if let Ok(block) = ConfigBlock::parse(index, data) {
            assert_eq!(block.bytes(), data);
            for field in ConfigField::ALL {
                let _ = block.text(*field);
            }
        }
    }
}

/// An image's container.
///
/// # Panics
/// Where an image that parses prints other bytes.
pub fn image(data: &[u8]) {
    if let Ok(image) = Image::parse(data) {
        assert_eq!(image.to_file(), data);
    }
}

/// Packets of usbredir, one after the other, as a guest sends them.
///
/// # Panics
/// Where a packet takes no bytes or more than came, is taken before its end came, or depends on what follows it.
#[cfg(unix)]
pub fn usbredir(data: &[u8]) {
    let (mut whole, mut pieces) = (Parser::default(), Parser::default());
    let mut rest = data;
    loop {
        match whole.next(rest) {
            Ok(Some((request, used))) => {
                assert_eq!(pieces.next(&rest[..used - 1]), Ok(None));
                assert_eq!(pieces.next(&rest[..used]), Ok(Some((request, used))));
                assert_eq!(pieces.agreed(), whole.agreed());
                rest = &rest[used..];
            }
            Ok(None) => return,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}
