//! Checks that hold for every parser on any input: nothing panics, and parsed data serialises to the same bytes.
//!
//! Each function checks one parser and has the name of its fuzz target in `fuzz/`. `tests/unit/fuzz_corpus.rs` runs
//! the corpus through the same functions.

use asm2464::firmware::{BlockIndex, ConfigBlock, ConfigField, Image};
use asm2464::scsi::bot::{CommandBlockWrapper, CommandStatusWrapper};
use asm2464::scsi::uas::{HostIu, StatusIu};
use asm2464::scsi::{Capacity, Inquiry, Sense};
use asm2464_chip::symbols::Symbols;
#[cfg(unix)]
use asm2464_dock::virtual_unit::usbredir::Parser;
use asmpatch::file_kind::FileKind;
use asmpatch::flash::backup::Backup;

/// Checks Bulk-Only's wrappers, in both directions.
///
/// # Panics
/// If a parsed wrapper serialises to other bytes.
pub fn csw(data: &[u8]) {
    if let Ok(wrapper) = CommandStatusWrapper::parse(data) {
        assert_eq!(wrapper.to_bytes(), data);
    }
    if let Some(wrapper) = CommandBlockWrapper::parse(data) {
        assert_eq!(CommandBlockWrapper::parse(&wrapper.to_bytes()), Some(wrapper));
    }
}

/// Checks UAS's information units, in both directions.
///
/// # Panics
/// If a parsed IU serialises to another one, or carries sense data that did not arrive.
pub fn information_unit(data: &[u8]) {
    if let Ok(iu) = StatusIu::parse(data) {
        if let StatusIu::Sense { sense, .. } = &iu {
            assert!(sense.len() <= data.len());
        }
        assert_eq!(StatusIu::parse(&iu.to_bytes()), Ok(iu));
    }
    let _ = HostIu::parse(data);
}

/// Checks sense data.
///
/// # Panics
/// If parsed sense data differs after a conversion to its fixed format.
pub fn sense(data: &[u8]) {
    if let Some(sense) = Sense::parse(data) {
        assert_eq!(Sense::parse(&sense.to_fixed()), Some(sense));
        let _ = sense.to_string();
    }
}

/// Checks INQUIRY and READ CAPACITY data.
///
/// # Panics
/// If a unit's text could reach a terminal unescaped.
pub fn inquiry(data: &[u8]) {
    if let Ok(inquiry) = Inquiry::parse(data) {
        assert!(inquiry.to_string().bytes().all(|byte| (0x20..0x7F).contains(&byte)));
    }
    let _ = Capacity::parse10(data).map(Capacity::bytes);
    let _ = Capacity::parse16(data).map(Capacity::bytes);
}

/// Checks a configuration block.
///
/// # Panics
/// If a parsed block serialises to other bytes.
pub fn config_block(data: &[u8]) {
    for index in BlockIndex::ALL {
        if let Ok(block) = ConfigBlock::parse(index, data) {
            assert_eq!(block.bytes(), data);
            for field in ConfigField::of(index) {
                let _ = block.text(field);
            }
            let _ = block.unnamed();
        }
    }
}

/// Checks an image's container.
///
/// # Panics
/// If a parsed image serialises to other bytes.
pub fn image(data: &[u8]) {
    if let Ok(image) = Image::parse(data) {
        assert_eq!(image.to_file(), data);
    }
}

/// Checks firmware symbols: a linker's map, a `.cdb`, an ELF.
///
/// # Panics
/// If a name is unfit for a folded stack or a terminal, or is not found at its own address.
pub fn symbols(data: &[u8]) {
    let Ok((_, symbols)) = Symbols::parse(data) else { return };
    for (at, name) in symbols.entries() {
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';'), "{name:?}");
        assert_eq!(symbols.label(at).as_deref(), Some(name));
    }
    for line in symbols.lines() {
        assert!(line.line > 0 && !line.file.contains('/'), "{line:?}");
    }
}

/// Checks a sequence of usbredir packets from a guest.
///
/// # Panics
/// If a packet consumes no bytes or more than arrived, is accepted before its end, or depends on what follows it.
#[cfg(unix)]
pub fn usbredir(data: &[u8]) {
    let (mut whole, mut pieces) = (Parser::default(), Parser::default());
    let mut rest = data;
    loop {
        match whole.next(rest) {
            Ok(Some((request, used))) => {
                assert_eq!(pieces.next(&rest[..used - 1]).unwrap(), None);
                assert_eq!(pieces.next(&rest[..used]).unwrap(), Some((request, used)));
                assert_eq!(pieces.agreed, whole.agreed);
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

/// Runs arbitrary code on the whole chip model under an arbitrary host. The first half of `data` is code from the reset
/// vector on; the second half says what the host does between stretches of it.
///
/// # Panics
/// If the chip stores more than its limits allow, or runs longer than its budget.
pub fn chip(data: &[u8]) {
    use asm2464::Bdf;
    use asm2464_chip::chip::{Chip, MemoryFunction, RunEnd, Speed};
    use asm2464_chip::mcu::CodeSpace;
    use asm2464_chip::spi_flash::SpiFlash;

    const STRETCH: u64 = 5_000;
    let (code, host) = data.split_at(data.len() / 2);
    let code = CodeSpace::from_body(code);
    let mut host = host.iter().copied();
    let mut chip = Chip::power_on(code.clone(), SpiFlash::erased(), Speed::Super);
    let place = Bdf::new(1, 0, 0);
    chip.fabric_mut().attach(place, MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x100));
    for _ in 0..200 {
        let before = chip.instructions();
        if chip.run(STRETCH) == RunEnd::Reset {
            chip = chip.restart(code.clone());
        } else {
            assert!(chip.instructions() - before <= STRETCH + 1);
        }
        let Some(event) = host.next() else { break };
        let mut byte = || host.next().unwrap_or(0);
        let (first, second) = (byte(), byte());
        let packet = vec![second; usize::from(first) * 5];
        let speed = [Speed::High, Speed::Super][usize::from(first % 2)];
        match event % 12 {
            0 => chip.begin_control([first, second, byte(), byte(), 0, 0, byte(), byte() & 0x0F], &packet),
            1 => drop(chip.take_control_reply()),
            2 => {
                let _ = chip.bulk_out(0x02, u16::from(second), &packet);
            }
            3 => {
                let _ = chip.bulk_out(0x04, 0, &packet);
            }
            4 => drop(chip.bulk_in(0x81, u16::from(first))),
            5 => drop(chip.bulk_in(0x83, u16::from(first))),
            6 => chip.bus_reset(speed),
            7 => chip.suspend(),
            8 => chip.resume(),
            9 => {
                chip.pcie_write(0x0082_8000 + u64::from(first), &packet);
            }
            10 => {
                let _ = chip.bulk_out(second, 0, &packet);
            }
            _ => {
                let mut cbw = b"USBC\0\0\0\0".to_vec();
                cbw.resize(31, first);
                let _ = chip.bulk_out(0x02, 0, &cbw);
            }
        }
    }
    assert!(chip.take_uart().len() <= 0x1_0000);
    assert!(chip.unknown_registers().len() <= 4 * 0x1_0000);
}

/// Checks the look at a file: it is something, and a copy of a flash gives a backup.
///
/// # Panics
/// If a backup of a copy has other blocks than the copy.
pub fn file_kind(data: &[u8]) {
    let kind = FileKind::of(data);
    let _ = kind.to_string();
    if let FileKind::Flash(copy) = kind {
        let _ = (copy.image(), copy.image_in(asm2464::flash::SECOND_SLOT), copy.rest());
        if let Some(backup) = Backup::of_copy(&copy) {
            assert!(data.starts_with(backup.blocks.as_flattened()));
        }
    }
}
