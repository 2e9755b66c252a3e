//! Checks that an image works from power-on: it boots, enumerates, answers, takes new firmware and restarts.
//!
//! A unit whose image passes can be flashed again. The image's USB interface determines which commands it must answer:
//! SCSI for the vendor's interface, control requests for open firmware's.

mod effects;
mod fault;
mod open;

use asm2464::TransportKind;
use asm2464::firmware::{
    BULK_ONLY_CLASS, BlockIndex, BridgeState, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, FlashAddress, Image,
    InterfaceClass, Part, UsbId, interface_classes, kept_bytes, known_blocks,
};
use asm2464::interrupt::Interrupted;
use asm2464::scsi::{Cdb, Command, INQUIRY_LEN, ResetMode, XdataAddress};

pub use self::effects::Effects;
pub use self::fault::{BootFault, CodePlace};
use super::core::{Chip, RunEnd};
use super::driver::{Data, Driver, Ending, Unanswered};
use super::flash::FlashDefects;
use super::proof_budget::ProofBudget;
use super::reset::image_in;
use super::usb::Speed;
use crate::mcu::{CodeSpace, MemoryFlash, SpiFlash};

/// Length of the E2 reads in bytes: more than one packet, and not a whole number of packets.
const E2_LEN: u32 = 2_600;

/// One check and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Transport of the check.
    pub wire: TransportKind,
    /// What was checked.
    pub what: &'static str,
    /// What the image returned, or why the check failed.
    pub outcome: Result<String, BootFault>,
    /// Instructions executed from power-on to the end of the check.
    pub instructions: u64,
}

/// What an image enumerates as, by its descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumerated {
    /// The unit's state, by its interface.
    pub state: BridgeState,
    /// idVendor and idProduct.
    pub usb_id: UsbId,
    /// iProduct.
    pub product: String,
    /// The classes of its interface's alternates.
    pub classes: Vec<InterfaceClass>,
}

/// Result of booting an image and checking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootReport {
    /// What the image enumerated as; `None` if it did not enumerate.
    pub enumerated: Option<Enumerated>,
    /// The checks, in order. After a failed check on a transport, no more are made on that transport.
    pub checks: Vec<Check>,
}

impl BootReport {
    /// The unit's state, by its interface; `None` if the image did not enumerate.
    pub fn state(&self) -> Option<BridgeState> {
        self.enumerated.as_ref().map(|enumerated| enumerated.state)
    }

    /// Whether the image passed every required check.
    pub fn passes(&self) -> bool {
        self.state().is_some_and(|state| state != BridgeState::BootLoader)
            && self.checks.iter().all(|check| check.outcome.is_ok())
    }

    /// The first check that failed.
    pub fn failure(&self) -> Option<(&Check, &BootFault)> {
        self.checks.iter().find_map(|check| check.outcome.as_ref().err().map(|fault| (check, fault)))
    }
}

/// Boots `image` on a new chip and makes every check, within the default budget.
pub fn check(image: &Image) -> BootReport {
    check_with(image, FlashDefects::default())
}

/// Boots `image` on a new chip with these defects and makes every check, within the default budget.
pub fn check_with(image: &Image, defects: FlashDefects) -> BootReport {
    checked(image, defects, None, &ProofBudget::default())
}

/// Boots `image` on a new chip and makes every check.
///
/// # Errors
/// [`Interrupted`] after Ctrl-C.
pub fn check_within(image: &Image, budget: &ProofBudget) -> Result<BootReport, Interrupted> {
    let report = checked(image, FlashDefects::default(), None, budget);
    budget.check().map(|()| report)
}

/// As [`check_within`], for an image made from a known one: also checks that it answers a GPU runtime's commands, and
/// that its patches have these effects.
///
/// # Errors
/// [`Interrupted`] after Ctrl-C.
pub fn check_effects(image: &Image, effects: Effects, budget: &ProofBudget) -> Result<BootReport, Interrupted> {
    let report = checked(image, FlashDefects::default(), Some(effects), budget);
    budget.check().map(|()| report)
}

fn checked(image: &Image, defects: FlashDefects, effects: Option<Effects>, budget: &ProofBudget) -> BootReport {
    let mut report = BootReport { enumerated: None, checks: Vec::new() };
    let Some(mut unit) = BootedUnit::boot(image, TransportKind::BulkOnly, defects, budget, &mut report.checks) else {
        return report;
    };
    report.enumerated = Some(unit.enumerated.clone());
    // The checks on a transport end with the first that fails. The report then has the fault.
    match unit.enumerated.state {
        BridgeState::OpenFirmware => {
            let _ = unit.open_firmware();
        }
        BridgeState::Vendor | BridgeState::BootLoader => {
            let _ = unit.vendor_firmware(effects);
            let is_dead = report.failure().is_some_and(|(_, fault)| fault.is_dead());
            if !is_dead
                && let Some(mut unit) = BootedUnit::boot(image, TransportKind::Uas, defects, budget, &mut report.checks)
            {
                let _ = unit.vendor_firmware(effects);
            }
        }
    }
    report
}

/// Boots `image` and returns what it enumerates as, without further checks; `None` if it does not enumerate.
pub fn enumerated(image: &Image) -> Option<Enumerated> {
    let (defects, budget) = (FlashDefects::default(), ProofBudget::default());
    BootedUnit::boot(image, TransportKind::BulkOnly, defects, &budget, &mut Vec::new()).map(|unit| unit.enumerated)
}

/// A check failed. The report has the fault.
struct Failed;

struct BootedUnit<'a> {
    image: &'a Image,
    blocks: [ConfigBlock; 2],
    driver: Driver<MemoryFlash>,
    defects: FlashDefects,
    wire: TransportKind,
    enumerated: Enumerated,
    budget: &'a ProofBudget,
    checks: &'a mut Vec<Check>,
}

impl<'a> BootedUnit<'a> {
    /// Boots and enumerates a chip with the image and two configuration blocks in its flash.
    fn boot(
        image: &'a Image,
        wire: TransportKind,
        defects: FlashDefects,
        budget: &'a ProofBudget,
        checks: &'a mut Vec<Check>,
    ) -> Option<Self> {
        let blocks = known_blocks();
        let mut driver = limited(powered_on(image, Speed::Super), budget);
        driver.chip.set_flash_defects(defects);
        let nothing = Enumerated {
            state: BridgeState::Vendor,
            usb_id: UsbId::STOCK,
            product: String::new(),
            classes: Vec::new(),
        };
        let mut unit = Self { image, blocks, driver, defects, wire, enumerated: nothing, budget, checks };
        unit.enumerate().ok()?;
        Some(unit)
    }

    fn enumerate(&mut self) -> Result<(), Failed> {
        let found = self.described().and_then(|enumerated| {
            if self.wire == TransportKind::Uas {
                self.driver.set_alternate(1).map_err(|why| self.fault(why))?;
            }
            Ok(enumerated)
        });
        let words = |found: &Enumerated| format!("{}, product {:?}", found.state, found.product);
        self.note("boots and enumerates", found.as_ref().map(words).map_err(Clone::clone))?;
        if let Ok(enumerated) = found {
            if enumerated.state == BridgeState::OpenFirmware {
                self.wire = TransportKind::Control;
            }
            self.enumerated = enumerated;
        }
        Ok(())
    }

    fn described(&mut self) -> Result<Enumerated, BootFault> {
        let settled = self.driver.boot();
        if settled != RunEnd::Parked {
            return Err(self.fault(Unanswered::Silent(settled)));
        }
        self.driver.enumerate().map_err(|why| self.fault(why))?;
        let found = described(&mut self.driver).map_err(|why| self.fault(why))?;
        match found.state {
            BridgeState::BootLoader => {
                Err(BootFault::Wrong("it has no UAS alternate; only the boot loader has none".into()))
            }
            BridgeState::Vendor if !found.classes.contains(&BULK_ONLY_CLASS) => Err(BootFault::Wrong(format!(
                "its interface is neither mass storage nor vendor-specific: {:02x?}",
                found.classes
            ))),
            _ => Ok(found),
        }
    }

    fn vendor_firmware(&mut self, effects: Option<Effects>) -> Result<(), Failed> {
        let inquiry = self.data_in(Command::Inquiry { len: INQUIRY_LEN }.cdb(), INQUIRY_LEN.into());
        self.note(
            "answers INQUIRY",
            inquiry.and_then(|data| expect(data.len() == 36, || format!("{} bytes", data.len()))),
        )?;
        for index in BlockIndex::ALL {
            let expected = *self.blocks[usize::from(index.number())].bytes();
            let found = self.data_in(Command::ConfigRead(index).cdb(), expected.len());
            self.note("reads a configuration block (E0)", found.and_then(|found| same(&found, &expected)))?;
        }
        let file = self.image.to_file();
        for part in Part::ALL {
            let mut expected = vec![0; (E2_LEN as usize).min(part.max_len())];
            self.driver.chip.flash().read(part.flash_address(), &mut expected);
            let found = self.data_in(Command::FlashRead { part, len: E2_LEN }.cdb(), expected.len());
            self.note("reads its flash (E2)", found.and_then(|found| same(&found, &expected)))?;
        }
        let version = self.data_in(Command::XdataRead { from: XdataAddress::VERSION, len: 6 }.cdb(), 6);
        let expected = self.image.version();
        self.note(
            "reads XDATA (E4): the version",
            version.and_then(|found| same(&found, &expected.0)).map(|_| expected.to_string()),
        )?;
        self.rewrite(&file)?;
        self.restart()?;
        effects.map_or(Ok(()), |effects| self.effects(effects))
    }

    /// Writes both configuration blocks (block 0 changed) with E1 and the image with E3. Compares the flash with them.
    fn rewrite(&mut self, file: &[u8]) -> Result<(), Failed> {
        let mut blocks = self.blocks;
        // Use another serial number, so that the check sees whether the old bytes are gone.
        let _ = blocks[0].set_text(ConfigField::Serial, "BOOTCHECK");
        for block in &blocks {
            let written = self.data_out(Command::ConfigWrite(block.index()).cdb(), block.bytes());
            self.note("takes a configuration block (E1)", written)?;
        }
        for part in Part::ALL {
            let bytes = part.of(file);
            if !bytes.is_empty() {
                let written = self.data_out(Command::FlashWrite { part, len: bytes.len() as u32 }.cdb(), bytes);
                self.note("takes firmware (E3)", written)?;
            }
        }
        let expected = flash_with(&blocks, self.image);
        let found = &self.driver.chip.flash().cells;
        let (in_blocks, _) = found.as_chunks::<CONFIG_BLOCK_LEN>();
        let mut kept =
            blocks.iter().zip(in_blocks).map(|(block, found)| (kept_bytes(found), kept_bytes(block.bytes())));
        let rest = blocks.len() * CONFIG_BLOCK_LEN..FIRST_SLOT;
        let outcome = kept
            .try_for_each(|(found, expected)| same(found, expected).map(drop))
            .and_then(|()| same(&found[rest.clone()], &expected.cells[rest]));
        self.note("has in its flash what was written", outcome)?;
        self.blocks = blocks;
        Ok(())
    }

    /// Restarts with E8 in mode 0x50, and checks that the written image boots.
    fn restart(&mut self) -> Result<(), Failed> {
        let asked = self.command(Command::Reset(ResetMode::CpuReset).cdb(), Data::None).map(drop);
        let outcome = match asked {
            // The reset may arrive before the status.
            Ok(()) | Err(BootFault::Hung { outcome: RunEnd::Reset, .. }) => match self.driver.settle() {
                RunEnd::Reset => Ok("the CPU was reset".to_owned()),
                other => Err(self.fault(Unanswered::Silent(other))),
            },
            Err(fault) => Err(fault),
        };
        self.note("restarts (E8)", outcome)?;
        let loaded = image_in(self.driver.chip.flash());
        let Some(loaded) = loaded else {
            return self
                .note("boots again", Err(BootFault::Wrong("the flash holds no image that the ROM loads".into())));
        };
        let blocks = self.blocks;
        let chip = Chip::power_on(CodeSpace::new(&loaded), flash_with(&blocks, &loaded), Speed::Super);
        self.driver = limited(Driver::new(chip), self.budget);
        self.driver.chip.set_flash_defects(self.defects);
        self.enumerate()
    }

    fn data_in(&mut self, cdb: Cdb, len: usize) -> Result<Vec<u8>, BootFault> {
        self.command(cdb, Data::In(len))
    }

    fn data_out(&mut self, cdb: Cdb, data: &[u8]) -> Result<String, BootFault> {
        self.command(cdb, Data::Out(data)).map(|_| format!("{} bytes", data.len()))
    }

    /// Runs a command. Returns its data if it succeeded.
    fn command(&mut self, cdb: Cdb, data: Data<'_>) -> Result<Vec<u8>, BootFault> {
        let answer = self.driver.command(cdb.as_slice(), data).map_err(|why| self.fault(why))?;
        match answer.ending {
            Ending::Good => Ok(answer.data),
            ending => Err(BootFault::Wrong(ending.to_string())),
        }
    }

    fn fault(&mut self, why: Unanswered) -> BootFault {
        BootFault::located(why, &mut self.driver.chip)
    }

    fn note(&mut self, what: &'static str, outcome: Result<String, BootFault>) -> Result<(), Failed> {
        let failed = outcome.is_err();
        let instructions = self.driver.chip.instructions();
        self.checks.push(Check { wire: self.wire, what, outcome, instructions });
        if failed { Err(Failed) } else { Ok(()) }
    }
}

/// Bytes of the first slot: two 64 KiB blocks of the flash, which E1 of block 0 erases.
const FIRST_SLOT: usize = 0x2_0000;

/// Runs the driver's chip within this budget from now on.
fn limited(mut driver: Driver<MemoryFlash>, budget: &ProofBudget) -> Driver<MemoryFlash> {
    let budget = budget.clone();
    driver.set_runner(move |chip, most| budget.run(chip, most));
    driver
}

/// A unit that has just been powered on, with `image` and two configuration blocks in its flash.
pub fn powered_on(image: &Image, speed: Speed) -> Driver<MemoryFlash> {
    Driver::new(Chip::power_on(CodeSpace::new(image), flash_with(&known_blocks(), image), speed))
}

/// As [`powered_on`]; then boots and enumerates the unit, selects this alternate (in the vendor's firmware 0 is
/// Bulk-Only and 1 is UAS) and sends INQUIRY, as hosts do: 240417 brings up PCIe with its first command.
///
/// # Errors
/// [`BootFault`] if a step failed.
pub fn booted(image: &Image, alternate: u8) -> Result<Driver<MemoryFlash>, BootFault> {
    let mut unit = powered_on(image, Speed::Super);
    let inquiry = Command::Inquiry { len: INQUIRY_LEN }.cdb();
    let up = match unit.boot() {
        RunEnd::Parked => unit
            .enumerate()
            .and_then(|()| unit.set_alternate(alternate))
            .and_then(|()| unit.command(inquiry.as_slice(), Data::In(INQUIRY_LEN.into())).map(drop)),
        outcome => Err(Unanswered::Silent(outcome)),
    };
    match up {
        Ok(()) => Ok(unit),
        Err(why) => Err(BootFault::located(why, &mut unit.chip)),
    }
}

/// Reads the descriptors of an enumerated unit.
///
/// # Errors
/// [`Unanswered`].
pub fn described<F: SpiFlash + 'static>(unit: &mut Driver<F>) -> Result<Enumerated, Unanswered> {
    let classes = interface_classes(&unit.descriptor(2, 0, 255)?);
    let device = unit.descriptor(1, 0, 18)?;
    let id = |at: usize| device.get(at..at + 2).map_or(0, |pair| u16::from_le_bytes([pair[0], pair[1]]));
    let usb_id = UsbId { vendor: id(8), product: id(10) };
    let product = match device.get(15) {
        Some(index) if *index != 0 => unit.descriptor(3, *index, 255)?,
        _ => Vec::new(),
    };
    let units = product.get(2..).unwrap_or_default().chunks_exact(2);
    let units: Vec<u16> = units.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let product = String::from_utf16_lossy(&units);
    Ok(Enumerated { state: BridgeState::from_interface(&classes, &product), usb_id, product, classes })
}

/// Builds a flash with configuration blocks and an image in its first slot.
pub fn flash_with(blocks: &[ConfigBlock; 2], image: &Image) -> MemoryFlash {
    let mut flash = MemoryFlash::erased();
    let mut put = |at: FlashAddress, bytes: &[u8]| {
        let start = at.0 as usize;
        flash.cells[start..start + bytes.len()].copy_from_slice(bytes);
    };
    for block in blocks {
        put(FlashAddress(u32::from(block.index().number()) * block.bytes().len() as u32), block.bytes());
    }
    let file = image.to_file();
    for part in Part::ALL {
        put(part.flash_address(), part.of(&file));
    }
    flash
}

fn same(found: &[u8], expected: &[u8]) -> Result<String, BootFault> {
    if found == expected {
        return Ok(format!("{} bytes", found.len()));
    }
    let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
    Err(BootFault::Wrong(match first {
        _ if found.len() != expected.len() => format!("{} bytes, expected {}", found.len(), expected.len()),
        Some(at) => format!("byte {at:#x} is {:02x}, expected {:02x}", found[at], expected[at]),
        None => "other bytes".to_owned(),
    }))
}

fn expect(is_met: bool, otherwise: impl FnOnce() -> String) -> Result<String, BootFault> {
    if is_met { Ok(String::new()) } else { Err(BootFault::Wrong(otherwise())) }
}
