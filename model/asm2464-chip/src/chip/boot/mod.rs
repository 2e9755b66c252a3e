//! Checks that an image works from power-on: it boots, enumerates, answers, takes new firmware and restarts.
//!
//! A unit whose image passes can be flashed again. The image's USB interface determines which commands it must answer:
//! SCSI for the vendor's interface, control requests for open firmware's.
//!
//! [`check`] makes all checks, each a [`Check`] of the [`BootReport`]. One that fails has a [`BootFault`], with the
//! [`CodePlace`] of the firmware if it gave no answer: its loop is searched, because an address alone says little. A
//! [`ProofBudget`] limits all runs of a proof together, so that an image that loops costs a bounded time.

mod runtime;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use asm2464::TransportKind;
use asm2464::firmware::{
    BULK_ONLY_CLASS, BlockIndex, BridgeState, CodeAddress, ConfigBlock, ConfigField, Image, InterfaceClass, Part,
    UsbId, interface_classes, kept_bytes, known_blocks,
};
use asm2464::flash::{CONFIG_LEN, FIRST_SLOT, SLOT_LEN, Slot};
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::progress::Progress;
use asm2464::scsi::{
    Cdb, Command, INQUIRY_LEN, LONG_READ, LONG_READ_LEN, REPORT_LUNS_LEN, ResetMode, ScsiStatus, XdataAddress,
    has_long_read,
};
use derive_more::Display;
use serde::Serialize;
use tracing::debug;

use super::arrival::ARRIVES_WITHIN;
use super::core::{Chip, RunEnd};
use super::driver::{Data, Driver, Ending, Unanswered};
use super::fabric::{BarSpec, DeviceSpec, DriveSpec, Engine, Fabric};
use super::reset::image_in;
use super::timers::simulated;
use super::usb::Speed;
use crate::mcu::{CodeSpace, Observer, Step};
use crate::spi_flash::{FlashFaults, SpiFlash};

pub use runtime::Effects;

/// Length of the E2 reads in bytes: more than one packet, and not a whole number of packets.
const E2_LEN: u32 = 2_600;

/// What is behind the bridge during a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Behind {
    /// Nothing.
    #[display("nothing")]
    Nothing,
    /// A GPU on its card's switch.
    #[display("a card")]
    Card,
    /// An SSD.
    #[display("an SSD")]
    Ssd,
}

/// What a check shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// That the unit can be written again. If it fails, no command would.
    WayBack,
    /// That the unit comes up with nothing behind it. If it fails, the way back needs a card that has power.
    WithoutCard,
    /// That a GPU runtime can use the unit.
    Runtime,
}

/// One check and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Transport of the check.
    pub wire: TransportKind,
    /// What is behind the bridge.
    pub behind: Behind,
    /// What the check shows.
    pub purpose: Purpose,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootReport {
    /// What the image enumerated as; `None` if it did not enumerate.
    pub enumerated: Option<Enumerated>,
    /// The checks, in order. After a failed check on a transport, no more are made on that transport.
    pub checks: Vec<Check>,
    /// Whether E4 returns 256 bytes at once; `None` if the image was not asked, or refused the command.
    pub e4_extension: Option<bool>,
}

impl Behind {
    /// The devices, as at power-on. The card is as tinygrad finds one, and the SSD where 240417 looks for it.
    fn fabric(self) -> Fabric {
        let device =
            |at: &str, vendor, device| DeviceSpec { at: at.to_owned(), vendor, device, ..DeviceSpec::default() };
        let port = device("0", 0x1B21, 0x2461);
        let devices = match self {
            Self::Nothing => return Fabric::default(),
            Self::Card => {
                let memory = BarSpec { bytes: 1 << 20, is_64: true, prefetchable: true };
                let gpu = DeviceSpec { class: 0x03_00_00, bars: vec![memory], ..device("0/0/0/0", 0x1002, 0x744C) };
                vec![port, device("0/0", 0x1002, 0x1478), device("0/0/0", 0x1002, 0x1479), gpu]
            }
            Self::Ssd => {
                let engine = Engine::Nvme(DriveSpec::default());
                vec![port, DeviceSpec { class: 0x01_08_02, engine, ..device("0/0", 0x144D, 0xA80A) }]
            }
        };
        // The trees above are well-formed.
        Fabric::of_devices(&devices).unwrap_or_default()
    }
}

impl BootReport {
    /// The unit's state, by its interface; `None` if the image did not enumerate.
    pub fn state(&self) -> Option<BridgeState> {
        self.enumerated.as_ref().map(|enumerated| enumerated.state)
    }

    /// Whether a check got no answer.
    fn is_dead(&self) -> bool {
        self.failures().any(|(_, fault)| fault.is_dead())
    }

    /// Whether the image passed every required check.
    pub fn passes(&self) -> bool {
        self.state().is_some_and(|state| state != BridgeState::BootLoader)
            && self.checks.iter().all(|check| check.outcome.is_ok())
    }

    /// The first check that failed.
    pub fn failure(&self) -> Option<(&Check, &BootFault)> {
        self.failures().next()
    }

    /// The checks that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Check, &BootFault)> {
        self.checks.iter().filter_map(|check| check.outcome.as_ref().err().map(|fault| (check, fault)))
    }

    /// The check that failed of those that show that the unit can be written again.
    pub fn no_way_back(&self) -> Option<(&Check, &BootFault)> {
        self.failures().find(|(check, _)| check.purpose == Purpose::WayBack)
    }
}

/// Boots `image` on a new chip and makes every check, within the default budget.
pub fn check(image: &Image) -> BootReport {
    check_with(image, FlashFaults::default())
}

/// Boots `image` on a new chip with these defects of its flash and makes every check, within the default budget.
pub fn check_with(image: &Image, faults: FlashFaults) -> BootReport {
    checked(image, faults, None, &ProofBudget::default())
}

/// Boots `image` on a new chip and makes every check.
///
/// # Errors
/// [`Interrupted`] after Ctrl-C.
pub fn check_within(image: &Image, budget: &ProofBudget) -> Result<BootReport, Interrupted> {
    let report = checked(image, FlashFaults::default(), None, budget);
    budget.check().map(|()| report)
}

/// As [`check_within`], for an image made from a known one: also checks that it answers a GPU runtime's commands, and
/// that its patches have these effects.
///
/// # Errors
/// [`Interrupted`] after Ctrl-C.
pub fn check_effects(image: &Image, effects: Effects, budget: &ProofBudget) -> Result<BootReport, Interrupted> {
    let report = checked(image, FlashFaults::default(), Some(effects), budget);
    budget.check().map(|()| report)
}

fn checked(image: &Image, faults: FlashFaults, effects: Option<Effects>, budget: &ProofBudget) -> BootReport {
    let mut report = BootReport::default();
    let rig = Rig { image, faults, wire: TransportKind::BulkOnly, behind: Behind::Nothing, budget: budget.clone() };
    let Some(mut unit) = BootedUnit::first(rig, &mut report.checks) else { return report };
    report.enumerated = Some(unit.enumerated.clone());
    let (rig, state) = (unit.rig.clone(), unit.enumerated.state);
    // The checks of a boot end with the first that fails. The report then has the fault.
    let checked = match state {
        BridgeState::OpenFirmware => unit.open_firmware(),
        BridgeState::Vendor | BridgeState::BootLoader => unit.vendor_firmware(effects),
    };
    let e4_extension = if checked.is_ok() && state != BridgeState::OpenFirmware { unit.e4_extension() } else { None };
    drop(unit);
    report.e4_extension = e4_extension;
    let over_uas = Rig { wire: TransportKind::Uas, ..rig.clone() };
    if state != BridgeState::OpenFirmware
        && !report.is_dead()
        && let Some(mut unit) = BootedUnit::boot(over_uas, &mut report.checks)
    {
        let _ = unit.vendor_firmware(effects);
    }
    // What is behind the bridge changes what firmware does once it is asked.
    for behind in [Behind::Card, Behind::Ssd] {
        if rig.behind == Behind::Nothing && report.no_way_back().is_none() {
            let rig = Rig { behind, budget: budget.afresh(), ..rig.clone() };
            if let Some(mut unit) = BootedUnit::boot(rig, &mut report.checks) {
                let _ = unit.answers(state);
            }
        }
    }
    report
}

/// Boots `image` and returns what it enumerates as, without further checks; `None` if it does not enumerate.
pub fn enumerated(image: &Image) -> Option<Enumerated> {
    let (faults, budget) = (FlashFaults::default(), ProofBudget::default());
    let rig = Rig { image, faults, wire: TransportKind::BulkOnly, behind: Behind::Nothing, budget };
    BootedUnit::first(rig, &mut Vec::new()).map(|unit| unit.enumerated)
}

/// A check failed. The report has the fault.
struct Failed;

/// A unit that is to be booted.
#[derive(Clone)]
struct Rig<'a> {
    image: &'a Image,
    faults: FlashFaults,
    wire: TransportKind,
    behind: Behind,
    budget: ProofBudget,
}

struct BootedUnit<'i, 'c> {
    rig: Rig<'i>,
    blocks: [ConfigBlock; 2],
    driver: Driver,
    enumerated: Enumerated,
    checks: &'c mut Vec<Check>,
}

impl<'i, 'c> BootedUnit<'i, 'c> {
    /// Boots and enumerates a chip with the image and two configuration blocks in its flash.
    fn boot(rig: Rig<'i>, checks: &'c mut Vec<Check>) -> Option<Self> {
        let mut unit = Self::powered(rig, checks);
        unit.enumerate().ok()?;
        Some(unit)
    }

    /// As [`BootedUnit::boot`], for the first boot of an image. Firmware that asks for the PCIe link may wait for it:
    /// unless it enumerates with nothing behind it, it gets a card.
    fn first(rig: Rig<'i>, checks: &'c mut Vec<Check>) -> Option<Self> {
        let mut unit = BootedUnit::powered(rig.clone(), &mut *checks);
        let is_up = unit.enumerate().is_ok();
        let BootedUnit { rig, blocks, mut driver, enumerated, .. } = unit;
        if is_up {
            return Some(Self { rig, blocks, driver, enumerated, checks });
        }
        if !driver.chip.has_asked_for_link() {
            return None;
        }
        let (tried, budget) = (checks.len(), rig.budget.afresh());
        let mut unit = Self::powered(Rig { behind: Behind::Card, budget, ..rig }, checks);
        if unit.enumerate().is_err() {
            // The card makes no difference.
            unit.checks.truncate(tried);
            return None;
        }
        if let Some(check) = unit.checks[..tried].last_mut() {
            (check.purpose, check.what) = (Purpose::WithoutCard, "boots and enumerates with nothing behind it");
        }
        Some(unit)
    }

    fn powered(rig: Rig<'i>, checks: &'c mut Vec<Check>) -> Self {
        debug!("powers on the chip model for {} with the image {}", rig.wire, rig.image.sha256());
        let blocks = known_blocks();
        let mut driver = limited(powered_on(rig.image, Speed::Super), &rig.budget);
        driver.chip.flash_mut().set_faults(rig.faults);
        *driver.chip.fabric_mut() = rig.behind.fabric();
        let nothing = Enumerated {
            state: BridgeState::Vendor,
            usb_id: UsbId::STOCK,
            product: String::new(),
            classes: Vec::new(),
        };
        Self { rig, blocks, driver, enumerated: nothing, checks }
    }

    fn enumerate(&mut self) -> Result<(), Failed> {
        let found = self.described().and_then(|enumerated| {
            if self.rig.wire == TransportKind::Uas {
                self.driver.set_alternate(1).map_err(|why| self.fault(why))?;
            }
            Ok(enumerated)
        });
        let words = |found: &Enumerated| format!("{}, product {:?}", found.state, found.product);
        self.note("boots and enumerates", found.as_ref().map(words).map_err(Clone::clone))?;
        if let Ok(enumerated) = found {
            if enumerated.state == BridgeState::OpenFirmware {
                self.rig.wire = TransportKind::Control;
            }
            self.enumerated = enumerated;
        }
        Ok(())
    }

    fn described(&mut self) -> Result<Enumerated, BootFault> {
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
        self.host_begins()?;
        self.reads_blocks()?;
        let file = self.rig.image.to_file();
        for part in Part::ALL {
            let mut expected = vec![0; (E2_LEN as usize).min(part.max_len())];
            self.driver.chip.flash().read(part.flash_address(), &mut expected);
            let found = self.data_in(Command::FlashRead { part, len: E2_LEN }.cdb(), expected.len());
            self.note("reads its flash (E2)", found.and_then(|found| same(&found, &expected)))?;
        }
        self.reads_version()?;
        self.rewrite(&file)?;
        self.restart()?;
        effects.map_or(Ok(()), |effects| self.effects(effects))
    }

    /// Checks that the unit answers the first commands of a way back, whatever is behind it: after a host has begun with
    /// it as with any other.
    fn answers(&mut self, state: BridgeState) -> Result<(), Failed> {
        if state == BridgeState::OpenFirmware {
            return self.xdata();
        }
        let inquiry = self.data_in(Command::Inquiry { len: INQUIRY_LEN }.cdb(), INQUIRY_LEN.into());
        self.note("answers INQUIRY", inquiry.map(|_| String::new()))?;
        self.host_begins()?;
        self.reads_blocks()?;
        self.reads_version()
    }

    /// Sends what Linux sends to a disk after its first INQUIRY, and leaves the firmware time after each command, as a
    /// host does: 240417 brings up PCIe with its first command. Each may fail, but none may go without an answer.
    /// Source: Linux, drivers/scsi/scsi_scan.c (INQUIRY, REPORT LUNS) and drivers/scsi/sd.c (sd_spinup_disk,
    /// sd_read_capacity, sd_read_write_protect_flag, sd_read_cache_type).
    fn host_begins(&mut self) -> Result<(), Failed> {
        const MODE_SENSE_LEN: u8 = 192;
        let mode_sense = |page| Cdb::of([0x1A, 0, page, 0, MODE_SENSE_LEN, 0]);
        let asked = [
            (Command::ReportLuns.cdb(), REPORT_LUNS_LEN as usize),
            (Command::TestUnitReady.cdb(), 0),
            (Command::ReadCapacity16.cdb(), 32),
            (Command::ReadCapacity10.cdb(), 8),
            (mode_sense(0x3F), MODE_SENSE_LEN.into()),
            (mode_sense(0x08), MODE_SENSE_LEN.into()),
        ];
        self.driver.settle();
        let mut outcome = Ok(String::new());
        for (cdb, len) in asked {
            let data = if len == 0 { Data::None } else { Data::In(len) };
            if let Err(why) = self.driver.command(cdb.as_slice(), data) {
                outcome = Err(self.fault(why));
                break;
            }
            self.driver.settle();
        }
        self.note("answers what a host asks first", outcome)
    }

    fn reads_blocks(&mut self) -> Result<(), Failed> {
        for index in BlockIndex::ALL {
            let expected = *index.of(&self.blocks).bytes();
            let found = self.data_in(Command::ConfigRead(index).cdb(), expected.len());
            self.note("reads a configuration block (E0)", found.and_then(|found| same(&found, &expected)))?;
        }
        Ok(())
    }

    fn reads_version(&mut self) -> Result<(), Failed> {
        let version = self.data_in(Command::XdataRead { from: XdataAddress::VERSION, len: 6 }.cdb(), 6);
        let expected = self.rig.image.version();
        self.note(
            "reads XDATA (E4): the version",
            version.and_then(|found| same(&found, &expected.0)).map(|_| expected.to_string()),
        )
    }

    /// Whether E4 returns 256 bytes at once; `None` if the unit refuses the command.
    fn e4_extension(&mut self) -> Option<bool> {
        // 240417 brings up PCIe with its first command after a restart.
        let _ = self.data_in(Command::Inquiry { len: INQUIRY_LEN }.cdb(), INQUIRY_LEN.into());
        let answer = self.driver.command(LONG_READ.cdb().as_slice(), Data::In(LONG_READ_LEN)).ok()?;
        let status = if answer.ending == Ending::Good { ScsiStatus::Good } else { ScsiStatus::CheckCondition };
        has_long_read(status, answer.data.len())
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
        let expected = flash_with(&blocks, self.rig.image);
        let outcome = same_flash(&self.driver.chip.flash().cells, &expected.cells, &blocks);
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
        self.driver = limited(Driver::new(chip), &self.rig.budget);
        self.driver.chip.flash_mut().set_faults(self.rig.faults);
        *self.driver.chip.fabric_mut() = self.rig.behind.fabric();
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

    /// Notes a check of what only GPU runtimes need. The checks go on.
    fn note_for_runtime(&mut self, what: &'static str, outcome: Result<String, BootFault>) -> Result<(), Failed> {
        let noted = self.note(what, outcome);
        if let Some(check) = self.checks.last_mut() {
            check.purpose = Purpose::Runtime;
        }
        noted
    }

    fn note(&mut self, what: &'static str, outcome: Result<String, BootFault>) -> Result<(), Failed> {
        let failed = outcome.is_err();
        let instructions = self.driver.chip.instructions();
        let Rig { wire, behind, .. } = self.rig;
        self.checks.push(Check { wire, behind, purpose: Purpose::WayBack, what, outcome, instructions });
        if failed { Err(Failed) } else { Ok(()) }
    }
}

/// Runs the driver's chip within this budget from now on.
fn limited(mut driver: Driver, budget: &ProofBudget) -> Driver {
    let budget = budget.clone();
    driver.set_runner(move |chip, most| budget.run(chip, most));
    driver
}

/// A unit that has just been powered on, with `image` and two configuration blocks in its flash.
pub fn powered_on(image: &Image, speed: Speed) -> Driver {
    Driver::new(Chip::power_on(CodeSpace::new(image), flash_with(&known_blocks(), image), speed))
}

/// As [`powered_on`]; then boots and enumerates the unit, selects this alternate (in the vendor's firmware 0 is
/// Bulk-Only and 1 is UAS) and sends INQUIRY, as hosts do: 240417 brings up PCIe with its first command.
///
/// # Errors
/// [`BootFault`] if a step failed.
pub fn booted(image: &Image, alternate: u8) -> Result<Driver, BootFault> {
    let mut unit = powered_on(image, Speed::Super);
    let inquiry = Command::Inquiry { len: INQUIRY_LEN }.cdb();
    let up = unit
        .enumerate()
        .and_then(|()| unit.set_alternate(alternate))
        .and_then(|()| unit.command(inquiry.as_slice(), Data::In(INQUIRY_LEN.into())).map(drop));
    match up {
        Ok(()) => Ok(unit),
        Err(why) => Err(BootFault::located(why, &mut unit.chip)),
    }
}

/// Reads the descriptors of an enumerated unit.
///
/// # Errors
/// [`Unanswered`].
pub fn described(unit: &mut Driver) -> Result<Enumerated, Unanswered> {
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
pub fn flash_with(blocks: &[ConfigBlock; 2], image: &Image) -> SpiFlash {
    let mut flash = SpiFlash::erased();
    let slot = Slot::of(blocks.each_ref().map(ConfigBlock::bytes), &image.to_file());
    flash.cells[..SLOT_LEN].copy_from_slice(slot.bytes());
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

/// Compares a flash with the expected one: the blocks' bytes that the firmware keeps, and what follows the blocks.
fn same_flash(found: &[u8], expected: &[u8], blocks: &[ConfigBlock; 2]) -> Result<String, BootFault> {
    let in_blocks = Slot::at(FIRST_SLOT, found).blocks();
    for (block, found) in blocks.iter().zip(&in_blocks) {
        same(kept_bytes(found), kept_bytes(block.bytes()))?;
    }
    let rest = CONFIG_LEN..SLOT_LEN;
    same(&found[rest.clone()], &expected[rest])
}

fn expect(is_met: bool, otherwise: impl FnOnce() -> String) -> Result<String, BootFault> {
    if is_met { Ok(String::new()) } else { Err(BootFault::Wrong(otherwise())) }
}

/// Reasons a check failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootFault {
    /// The image did not answer.
    Hung {
        /// How the run ended.
        outcome: RunEnd,
        /// Where the CPU is: an instruction, or the loop that it does not leave.
        at: Option<CodePlace>,
        /// The last line that the firmware sent on its serial port; empty if it sent none.
        last_line: String,
    },
    /// The image halted an endpoint again and again.
    Halted {
        /// The endpoint's address.
        endpoint: u8,
        /// Where the CPU is.
        at: Option<CodePlace>,
        /// The last line that the firmware sent on its serial port; empty if it sent none.
        last_line: String,
    },
    /// The image gave a wrong answer.
    Wrong(String),
    /// The image does all that was asked, under a product string that GPU runtimes refuse.
    OtherName(String),
}

impl BootFault {
    /// The fault of a chip that did not answer. Continues the run of firmware that loops, to find the loop.
    fn located(why: Unanswered, chip: &mut Chip) -> Self {
        let last_line = last_line(chip);
        match why {
            Unanswered::Stall => Self::Wrong("the request was stalled".into()),
            Unanswered::Halted(endpoint) => Self::Halted { endpoint, at: CodePlace::looping(chip), last_line },
            Unanswered::Silent(outcome @ RunEnd::Budget) => {
                Self::Hung { outcome, at: CodePlace::looping(chip), last_line }
            }
            Unanswered::Silent(outcome) => Self::Hung { outcome, at: CodePlace::of(chip), last_line },
        }
    }

    /// Whether the image gave no answer. Further requests would take as long and show nothing new.
    const fn is_dead(&self) -> bool {
        matches!(self, Self::Hung { .. } | Self::Halted { .. })
    }
}

impl fmt::Display for BootFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, last_line) = match self {
            Self::Hung { outcome, at, last_line } => {
                f.write_str(match outcome {
                    RunEnd::Parked | RunEnd::Attention => "no answer: the firmware waits",
                    RunEnd::Budget => "no answer: the firmware goes on without one, in a loop",
                    RunEnd::Reset => "no answer: the firmware reset the chip",
                    RunEnd::Halted => "no answer: the firmware stopped",
                    RunEnd::FlashGone => "no answer: the flash lost its power",
                })?;
                (at, last_line)
            }
            Self::Halted { endpoint, at, last_line } => {
                write!(f, "no answer: endpoint {endpoint:#04x} stays halted, and the firmware is")?;
                (at, last_line)
            }
            Self::Wrong(what) => return f.write_str(what),
            Self::OtherName(product) => return write!(f, "product {product:?}"),
        };
        match at {
            Some(at) => write!(f, " at {at}")?,
            None => f.write_str(" outside its code")?,
        }
        if last_line.is_empty() {
            return Ok(());
        }
        write!(f, "; last on its serial port: {last_line:?}")
    }
}

impl std::error::Error for BootFault {}

/// The most bytes of a line from the serial port that a report has: its end.
const LAST_LINE_LEN: usize = 80;

/// Takes the last line that the firmware sent on its serial port; empty if it sent none, or more than the chip keeps.
fn last_line(chip: &mut Chip) -> String {
    let sent = chip.take_uart();
    if chip.uart_lost() > 0 {
        return String::new();
    }
    let line = sent.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[line.len().saturating_sub(LAST_LINE_LEN)..]).into_owned()
}

/// Number of instructions to watch while searching for the loop: more than one round of any loop worth reporting.
const WATCHED: u64 = 100_000;

/// A range of code: the instruction at which the CPU is, or the loop that it does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePlace {
    /// Address of the first instruction.
    pub first: CodeAddress,
    /// Address of the last instruction.
    pub last: CodeAddress,
}

impl CodePlace {
    /// The instruction at which the CPU is; `None` outside code.
    pub(super) fn of(chip: &Chip) -> Option<Self> {
        chip.at().map(|at| Self { first: at, last: at })
    }

    /// Continues the run and finds the loop that the firmware does not leave; `None` if it executes no code.
    fn looping(chip: &mut Chip) -> Option<Self> {
        let mut outermost = Outermost { sp: u8::MAX, place: None };
        chip.run_observed(WATCHED, &mut outermost);
        outermost.place.or_else(|| Self::of(chip))
    }
}

impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last {
            return first.fmt(f);
        }
        if first.bank() == last.bank() {
            return write!(f, "{first}..0x{:04X}", last.addr());
        }
        write!(f, "{first}..{last}")
    }
}

/// The range of instructions executed with the lowest SP: the loop itself, without its calls and without interrupts.
struct Outermost {
    sp: u8,
    place: Option<CodePlace>,
}

impl Observer for Outermost {
    fn before(&mut self, step: &Step<'_>) {
        let (sp, at) = (step.cpu.sp(), step.at);
        match &mut self.place {
            Some(place) if sp == self.sp => {
                *place = CodePlace { first: place.first.min(at), last: place.last.max(at) };
            }
            Some(_) if sp > self.sp => {}
            place => (self.sp, *place) = (sp, Some(CodePlace { first: at, last: at })),
        }
    }
}

/// Instructions between two checks for Ctrl-C.
const SLICE: u64 = 1_000_000;

/// Limits of a proof: the time that the chip computes, and Ctrl-C. Clones share one budget.
#[derive(Clone)]
pub struct ProofBudget {
    /// Time so far, in instructions: those executed, and what transfers take.
    spent: Rc<Cell<u64>>,
    interrupt: Interrupt<'static>,
    progress: Rc<RefCell<dyn Progress<Duration>>>,
}

impl fmt::Debug for ProofBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofBudget").field("spent", &self.spent).finish_non_exhaustive()
    }
}

impl ProofBudget {
    /// Maximum time that the chip computes in a whole proof, without the time in which its firmware waits. A unit may
    /// spend all of it until it is on the bus. 240417 takes 0.03 s.
    pub const LIMIT: Duration = simulated(ARRIVES_WITHIN);

    /// Creates a budget. `progress` receives the time that the chip has computed so far, about every 20 ms of it.
    pub fn new(interrupt: Interrupt<'static>, progress: impl Progress<Duration> + 'static) -> Self {
        Self { spent: Rc::default(), interrupt, progress: Rc::new(RefCell::new(progress)) }
    }

    /// The same budget with all its time.
    fn afresh(&self) -> Self {
        Self { spent: Rc::default(), interrupt: self.interrupt, progress: Rc::clone(&self.progress) }
    }

    /// Runs the chip as [`Chip::run`] does, until the budget is spent or Ctrl-C.
    pub(super) fn run(&self, chip: &mut Chip, most: u64) -> RunEnd {
        let begin = chip.instructions();
        loop {
            let (before, transfers) = (chip.instructions(), chip.transfers());
            let left = (begin.saturating_add(most) - before).min(ARRIVES_WITHIN.saturating_sub(self.spent.get()));
            if left == 0 || self.interrupt.is_requested() {
                return RunEnd::Budget;
            }
            let outcome = chip.run(left.min(SLICE));
            let ran = chip.instructions() - before;
            // An image that does nothing but transfers would cost minutes without their time.
            self.spent.set(self.spent.get() + ran + chip.transfers().saturating_sub(transfers));
            if ran >= SLICE {
                self.progress.borrow_mut().event(simulated(self.spent.get().min(ARRIVES_WITHIN)));
            }
            // If no instruction ran, another round would change nothing.
            if outcome != RunEnd::Budget || ran == 0 {
                return outcome;
            }
        }
    }

    /// Returns an error if Ctrl-C has cut the proof short.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub(super) fn check(&self) -> Result<(), Interrupted> {
        self.interrupt.check()
    }
}

/// A budget without Ctrl-C, which reports no progress.
impl Default for ProofBudget {
    fn default() -> Self {
        Self::new(Interrupt::never(), ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use asm2464::firmware::Image;

    use super::*;

    /// An image that counts in 24 bits of IDATA. No two rounds are the same, so it never idles, and it never answers.
    fn counts() -> Image {
        let code = [0x05, 0x30, 0xE5, 0x30, 0x70, 0xFA, 0x05, 0x31, 0xE5, 0x31, 0x70, 0xF4, 0x05, 0x32, 0x80, 0xF0];
        Image::from_body([&code[..], &[0; 600]].concat()).unwrap()
    }

    #[test]
    fn an_image_that_loops_gets_one_check_and_the_report_says_where_it_loops() {
        let report = check(&counts());
        let (check, fault) = report.failure().unwrap();
        assert_eq!(report.checks.len(), 1, "{report:#?}");
        // The unit gets all its time to arrive. Then the loop is searched.
        let computed = simulated(check.instructions);
        assert!(computed >= ProofBudget::LIMIT && computed < ProofBudget::LIMIT + simulated(SLICE), "{report:#?}");
        assert_eq!(fault.to_string(), "no answer: the firmware goes on without one, in a loop at c:0x0000..0x000E");
    }

    /// An image that does nothing but erase 64 KiB of its flash.
    fn erases() -> Image {
        // MOV DPTR,#C8AA; MOV A,#command; MOVX @DPTR,A; MOV DPTR,#C8A9; MOV A,#1; MOVX @DPTR,A
        let send = |command| [0x90, 0xC8, 0xAA, 0x74, command, 0xF0, 0x90, 0xC8, 0xA9, 0x74, 0x01, 0xF0];
        let code = [&send(0x06)[..], &send(0xD8), &[0x80, 0xE6]].concat();
        Image::from_body([&code[..], &[0; 600]].concat()).unwrap()
    }

    #[test]
    fn an_image_that_loops_over_the_flash_spends_the_time_that_the_flash_takes() {
        let report = check(&erases());
        let (check, fault) = report.failure().unwrap();
        assert!(check.instructions < ARRIVES_WITHIN / 100, "{report:#?}");
        assert!(fault.to_string().starts_with("no answer"), "{fault}");
    }

    /// An image that sends `text` on its serial port as the open boot stub does, and then stops.
    fn sends(text: &[u8]) -> Image {
        // MOV DPTR,#C006; MOVX A,@DPTR; JZ to the read; MOV DPTR,#C001; MOV A,#byte; MOVX @DPTR,A
        let send = |byte: &u8| [0x90, 0xC0, 0x06, 0xE0, 0x60, 0xFD, 0x90, 0xC0, 0x01, 0x74, *byte, 0xF0];
        let mut code: Vec<u8> = text.iter().flat_map(send).collect();
        code.extend([0x80, 0xFE]);
        code.resize(code.len().max(600), 0);
        Image::from_body(code).unwrap()
    }

    #[test]
    fn a_stopped_boot_names_the_last_line_of_the_serial_port() {
        let fault = |text: &[u8]| check(&sends(text)).failure().unwrap().1.to_string();
        assert_eq!(fault(b""), "no answer: the firmware stopped at c:0x0000");
        let expected = "no answer: the firmware stopped at c:0x00E4; last on its serial port: \"no \\u{1b}[1mcard\"";
        assert_eq!(fault(b"boot\r\nno \x1B[1mcard\r\n"), expected);
        let long = fault(&[&[b'a'; 80][..], &[b'b'; 79]].concat());
        assert!(long.ends_with(&format!(": \"a{}\"", "b".repeat(79))), "{long}");
    }

    #[test]
    fn a_serial_port_that_never_pauses_is_not_quoted() {
        // MOV DPTR,#C001; MOV A,#'x'; MOVX @DPTR,A; SJMP to the write
        let code = [0x90, 0xC0, 0x01, 0x74, b'x', 0xF0, 0x80, 0xFD];
        let mut unit = powered_on(&Image::from_body([&code[..], &[0; 600]].concat()).unwrap(), Speed::Super);
        unit.chip.run(1_000);
        assert_eq!(last_line(&mut unit.chip), "x".repeat(LAST_LINE_LEN));
        unit.chip.run(200_000);
        assert_eq!(last_line(&mut unit.chip), "");
    }

    /// The practice image of open firmware behind code that trains the PCIe link and waits until it is up.
    fn waits_for_a_card() -> Image {
        let mut image = crate::practice::open_image();
        let body = image.body();
        let [0x02, high, low] = body[..3] else { panic!("it begins with a jump") };
        let end = body.len() as u16;
        // MOV DPTR,#E764; MOV A,#1C; MOVX @DPTR,A; MOV DPTR,#C659; MOV A,#01; MOVX @DPTR,A
        let trains = [0x90, 0xE7, 0x64, 0x74, 0x1C, 0xF0, 0x90, 0xC6, 0x59, 0x74, 0x01, 0xF0];
        // MOV DPTR,#B450; MOVX A,@DPTR; CJNE A,#78 to the read; LJMP to its start
        let waits = [&trains[..], &[0x90, 0xB4, 0x50, 0xE0, 0xB4, 0x78, 0xF9, 0x02, high, low]].concat();
        let [at_high, at_low] = end.to_be_bytes();
        assert!(image.replace(asm2464::firmware::BodyOffset(0), &[0x02, at_high, at_low]));
        Image::from_body([image.body(), &waits[..]].concat()).unwrap()
    }

    #[test]
    fn firmware_that_waits_for_a_card_is_booted_with_one_before_it_is_said_never_to_answer() {
        let report = check(&waits_for_a_card());
        let (failed, _) = report.failure().unwrap();
        assert_eq!((failed.purpose, failed.behind), (Purpose::WithoutCard, Behind::Nothing), "{report:#?}");
        assert!(report.no_way_back().is_none() && !report.passes(), "{report:#?}");
        assert_eq!(report.state(), Some(BridgeState::OpenFirmware));
        assert!(report.checks[1..].iter().all(|check| check.outcome.is_ok() && check.behind == Behind::Card));
        assert_eq!(enumerated(&waits_for_a_card()), report.enumerated);
    }

    /// The practice image whose E0 begins with this code.
    fn with_e0(begins: &[u8]) -> Image {
        use asm2464::firmware::{Bank, BodyOffset, CodeAddress};
        let mut image = crate::practice::image();
        // The end of bank 1 is free. E0's handler goes there first.
        let e0 = CodeAddress::new(Bank::Bank1, 0xDA30).unwrap().body_offset().0 as usize;
        let [0x12, high, low] = image.body()[e0..e0 + 3] else { panic!("E0's handler begins with a call") };
        let free = CodeAddress::new(Bank::Bank1, 0xFE00).unwrap().body_offset().0 as usize;
        let mut body = image.body().to_vec();
        body.resize(body.len().max(free + 64), 0);
        let code = [begins, &[0x12, high, low, 0x02, 0xDA, 0x33]].concat();
        body[free..free + code.len()].copy_from_slice(&code);
        image = Image::from_body(body).unwrap();
        assert!(image.replace(BodyOffset(e0 as u32), &[0x02, 0xFE, 0x00]));
        image
    }

    #[test]
    fn vendor_firmware_must_answer_whatever_is_behind_it() {
        // MOV DPTR,#E765; MOVX A,@DPTR; JNB ACC.1 past; SJMP to itself
        let report = check(&with_e0(&[0x90, 0xE7, 0x65, 0xE0, 0x30, 0xE1, 0x02, 0x80, 0xFE]));
        let (failed, _) = report.no_way_back().unwrap_or_else(|| panic!("{report:#?}"));
        assert_eq!((failed.behind, failed.what), (Behind::Card, "reads a configuration block (E0)"), "{report:#?}");
        let report = check(&with_e0(&[]));
        assert!(report.passes(), "{report:#?}");
    }

    #[test]
    fn ctrl_c_ends_a_proof_within_a_slice() {
        static FLAG: AtomicBool = AtomicBool::new(false);
        let mut reported = Vec::new();
        let (sender, receiver) = std::sync::mpsc::channel();
        let budget = ProofBudget::new(Interrupt::watching(&FLAG), move |spent| {
            FLAG.store(spent >= simulated(2 * SLICE), Ordering::Relaxed);
            sender.send(spent).unwrap();
        });
        assert_eq!(check_within(&counts(), &budget), Err(Interrupted));
        drop(budget);
        reported.extend(receiver);
        assert_eq!(reported, [simulated(SLICE), simulated(2 * SLICE)]);
    }

    #[test]
    fn all_runs_of_a_proof_share_its_time() {
        let budget = ProofBudget::default();
        budget.spent.set(ARRIVES_WITHIN - 1_000);
        let report = check_within(&counts(), &budget).unwrap();
        assert!(report.checks[0].instructions < 200_000, "{report:#?}");
        assert_eq!(budget.spent.get(), ARRIVES_WITHIN);
    }
}
