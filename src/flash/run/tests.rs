//! Runs against a unit in memory, for what a virtual bridge can't be told: flash that does not keep what it is given,
//! a unit that comes back late, as another, or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::super::backup::tests::sample_image;
use super::super::plan::UnitBlocks;
use super::super::progress::Observer;
use super::*;
use crate::bridge::{Completion, DataPhase, Speed, Transport, TransportKind, Workload};
use crate::failure::AnyFailure;
use crate::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, Image, Part, UsbId, known_blocks};
use crate::scsi::{Cdb, ScsiStatus, Sense};

/// What the unit does with the n-th command of an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quirk {
    /// One bit of what was written does not stay.
    Corrupt,
    /// The unit is gone.
    Vanish,
    /// MEDIUM ERROR.
    Medium,
    /// ILLEGAL REQUEST.
    Illegal,
    /// Nothing comes.
    Silent,
    /// Ctrl-C is pressed meanwhile.
    Interrupt,
    /// A bug in this process.
    Panic,
}

struct Unit {
    flash: [Vec<u8>; 2],
    blocks: [[u8; CONFIG_BLOCK_LEN]; 2],
    quirks: Vec<(u8, usize, Quirk)>,
    seen: Vec<u8>,
    /// The modes of E8.
    restarts: Vec<u8>,
    /// What it comes back as after E8; `None` for never.
    returns: Option<Returns>,
    running: Option<Image>,
    /// What E8 does with mode 0x50: whether the code is loaded from flash.
    loads_code: bool,
    /// What stands in the flash when it boots, whatever was written.
    lies: Option<[Vec<u8>; 2]>,
    /// The unit was told to halt, and has not had its power since.
    halted: bool,
    interrupt: Arc<AtomicBool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    AsConfigured,
    AsBefore,
    /// Only when somebody plugs it in again.
    AfterReplug,
}

#[derive(Clone)]
struct FakePort {
    unit: Arc<Mutex<Unit>>,
    waits: usize,
    before: Attached,
}

fn own_block(id: UsbId) -> ConfigBlock {
    let [mut block, _] = known_blocks();
    block.set_text(ConfigField::Serial, "MINE0001").unwrap();
    block.set_number(ConfigField::VendorId, id.vendor).unwrap();
    block.set_number(ConfigField::ProductId, id.product).unwrap();
    block
}

fn attached(id: UsbId, state: BridgeState) -> Attached {
    Attached { usb_id: id, state, serial: "MINE0001".into(), manufacturer: String::new(), product: String::new() }
}

fn flash_of(image: &Image) -> [Vec<u8>; 2] {
    let file = image.to_file();
    Part::ALL.map(|part| {
        let mut bytes = part.of(&file).to_vec();
        bytes.resize(part.max_len(), 0xFF);
        bytes
    })
}

impl Unit {
    fn image(&self) -> Option<Image> {
        Image::parse(&super::super::backup::firmware_file(&self.flash)).ok()
    }

    /// What its power does.
    fn boot(&mut self) {
        if let Some(flash) = self.lies.take() {
            self.flash = flash;
        }
        self.running = self.image();
        self.halted = false;
    }

    fn identity(&self) -> Attached {
        match &self.running {
            Some(_) => {
                let block = ConfigBlock::parse(BlockIndex::Zero, &self.blocks[0]).unwrap();
                attached(block.usb_id(), BridgeState::Vendor)
            }
            None => attached(UsbId::BOOT_LOADER, BridgeState::BootLoader),
        }
    }
}

struct Wire(Arc<Mutex<Unit>>);

impl Transport for Wire {
    fn kind(&self) -> TransportKind {
        TransportKind::BulkOnly
    }

    fn max_depth(&self) -> usize {
        1
    }

    fn execute(&mut self, cdb: &Cdb, data: DataPhase<'_>, timeout: Duration) -> Result<Completion, TransportError> {
        let mut unit = self.0.lock().unwrap();
        let opcode = cdb.opcode();
        unit.seen.push(opcode);
        let nth = unit.seen.iter().filter(|seen| **seen == opcode).count();
        let quirk = unit.quirks.iter().find(|(o, n, _)| *o == opcode && *n == nth).map(|(_, _, quirk)| *quirk);
        let refused = |sense| Completion { transferred: 0, status: ScsiStatus::CheckCondition, sense: Some(sense) };
        let command = format!("{opcode:02X}");
        match quirk {
            Some(Quirk::Vanish) => return Err(TransportError::Disconnected { command }),
            Some(Quirk::Silent) => return Err(TransportError::Timeout { command, deadline: timeout }),
            Some(Quirk::Medium) => return Ok(refused(Sense::UNRECOVERED_READ_ERROR)),
            Some(Quirk::Illegal) => return Ok(refused(Sense::INVALID_OPCODE)),
            Some(Quirk::Panic) => panic!("as asked for"),
            Some(Quirk::Interrupt) => unit.interrupt.store(true, Ordering::Relaxed),
            Some(Quirk::Corrupt) | None => {}
        }
        let wire = cdb.as_slice();
        let part = usize::from(wire.get(1).is_some_and(|mode| mode & 0x80 != 0));
        let block = usize::from(wire.get(2).copied().unwrap_or(0) & 1);
        let moved = match (opcode, data) {
            (0xE0..=0xE2, DataPhase::In(_)) | (0xE4, _) if unit.running.is_none() => {
                return Ok(refused(Sense::INVALID_OPCODE));
            }
            (0xE0, DataPhase::In(buffer)) => {
                buffer.copy_from_slice(&unit.blocks[block]);
                buffer.len()
            }
            (0xE1, DataPhase::Out(bytes)) => {
                // As the vendor's handler does: block 0's erases the slot, everything else programs what is erased.
                if block == 0 {
                    unit.blocks = [[0xFF; CONFIG_BLOCK_LEN]; 2];
                    unit.flash.iter_mut().for_each(|part| part.fill(0xFF));
                }
                unit.blocks[block].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
                if quirk == Some(Quirk::Corrupt) {
                    unit.blocks[block][40] ^= 4;
                }
                bytes.len()
            }
            (0xE2, DataPhase::In(buffer)) => {
                let len = buffer.len();
                buffer.copy_from_slice(&unit.flash[part][..len]);
                len
            }
            (0xE3, DataPhase::Out(bytes)) => {
                unit.flash[part].iter_mut().zip(bytes).for_each(|(cell, byte)| *cell &= byte);
                if quirk == Some(Quirk::Corrupt) {
                    unit.flash[part][0x321] ^= 4;
                }
                bytes.len()
            }
            // Without the extension.
            (0xE4, DataPhase::In(buffer)) if buffer.len() > 255 => 0,
            (0xE4, DataPhase::In(buffer)) => {
                buffer.copy_from_slice(&unit.running.as_ref().unwrap().version().0);
                buffer.len()
            }
            (0xE8, _) => {
                unit.restarts.push(wire[1]);
                match wire[1] {
                    0x50 if unit.loads_code => unit.boot(),
                    0x50 => {}
                    _ => unit.halted = true,
                }
                0
            }
            other => panic!("{other:?}"),
        };
        Ok(Completion { transferred: moved, status: ScsiStatus::Good, sense: None })
    }

    fn run(&mut self, _: &mut dyn Workload, _: usize, _: Duration) -> Result<(), TransportError> {
        unreachable!("flashing is one command at a time")
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

impl Port for FakePort {
    fn device(&self) -> String {
        "9-9".into()
    }

    fn attached(&mut self) -> Result<Attached, AnyFailure> {
        let unit = self.unit.lock().unwrap();
        if unit.halted { Err(FlashError::NotBack { deadline: Duration::ZERO }.into()) } else { Ok(unit.identity()) }
    }

    fn speed(&mut self) -> Result<Speed, AnyFailure> {
        Ok(Speed::Super)
    }

    fn open(&mut self) -> Result<Bridge<AnyTransport>, AnyFailure> {
        Ok(Bridge::new(Box::new(Wire(self.unit.clone()))))
    }

    fn wait_for_return(&mut self, _: Duration, _: Interrupt<'_>) -> Result<Option<Attached>, AnyFailure> {
        self.waits += 1;
        let mut unit = self.unit.lock().unwrap();
        if unit.returns == Some(Returns::AfterReplug) && (self.waits > 1 || unit.halted) {
            unit.boot();
            return Ok(Some(unit.identity()));
        }
        Ok(match unit.returns {
            Some(Returns::AsConfigured) if !unit.halted => Some(unit.identity()),
            Some(Returns::AsBefore) => Some(self.before.clone()),
            _ => None,
        })
    }
}

struct Rig {
    port: FakePort,
    plan: Plan,
    options: Options,
    interrupt: Arc<AtomicBool>,
    home: tempfile::TempDir,
}

fn rig(running: Option<Image>) -> Rig {
    let interrupt = Arc::new(AtomicBool::new(false));
    let old = sample_image(1);
    let state = if running.is_some() { BridgeState::Vendor } else { BridgeState::BootLoader };
    let unit = Unit {
        flash: flash_of(&old),
        blocks: [*own_block(UsbId::STOCK).bytes(), *known_blocks()[1].bytes()],
        quirks: Vec::new(),
        seen: Vec::new(),
        restarts: Vec::new(),
        loads_code: true,
        lies: None,
        halted: false,
        returns: Some(Returns::AsConfigured),
        running,
        interrupt: interrupt.clone(),
    };
    let before = unit.identity();
    let blocks: UnitBlocks = if unit.running.is_some() { unit.blocks.map(Some) } else { [None, None] };
    let plan = Plan::flash(before.clone(), blocks, None, &sample_image(2), |block| {
        block.set_number(ConfigField::VendorId, 0xADD1)?;
        block.set_number(ConfigField::ProductId, 1)
    })
    .unwrap();
    let home = tempfile::tempdir().unwrap();
    let options = Options {
        backup_into: (state == BridgeState::Vendor).then(|| home.path().to_owned()),
        return_deadline: Duration::ZERO,
        replug_deadline: Duration::ZERO,
    };
    Rig { port: FakePort { unit: Arc::new(Mutex::new(unit)), waits: 0, before }, plan, options, interrupt, home }
}

impl Rig {
    fn with(self, quirks: &[(u8, usize, Quirk)]) -> Self {
        self.port.unit.lock().unwrap().quirks = quirks.to_vec();
        self
    }

    fn returning(self, returns: Option<Returns>) -> Self {
        self.port.unit.lock().unwrap().returns = returns;
        self
    }

    fn run(&mut self) -> Result<Report, Box<Stopped>> {
        run(&mut self.port, &self.plan, &self.options, &mut (), Interrupt::watching(&self.interrupt))
    }

    fn stopped(&mut self) -> Stopped {
        *self.run().unwrap_err()
    }

    fn count(&self, opcode: u8) -> usize {
        self.port.unit.lock().unwrap().seen.iter().filter(|seen| **seen == opcode).count()
    }
}

#[test]
fn a_stock_unit_is_backed_up_written_read_back_and_comes_back_as_planned() {
    let mut rig = rig(Some(sample_image(1)));
    let report = rig.run().unwrap();
    assert_eq!(report.after.unwrap().usb_id, UsbId::PATCHED);
    assert_eq!(report.version, Some(sample_image(2).version()));
    let backup = backup_folder::load(&report.backup.unwrap()).unwrap();
    assert_eq!(backup.firmware().unwrap(), sample_image(1));
    assert_eq!(backup.blocks[0], *own_block(UsbId::STOCK).bytes());
    assert!(rig.port.unit.lock().unwrap().flash == flash_of(&sample_image(2)));
    assert_eq!(rig.count(0xE1), 2, "block 1 too: block 0's erase took it");
    let steps: Vec<_> = report.steps.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(
        steps,
        [
            "open",
            "back up",
            "erase, write configuration block 0",
            "write configuration block 1",
            "write firmware part 1",
            "write firmware part 2",
            "read back configuration block 0",
            "read back configuration block 1",
            "read back firmware part 1",
            "read back firmware part 2",
            "restart",
            "come back",
            "check what runs",
        ]
    );
    assert_eq!(rig.port.unit.lock().unwrap().restarts, [0x50]);
}

#[test]
fn a_unit_in_its_boot_loader_is_halted_and_read_back_once_it_has_had_its_power() {
    let mut rig = rig(None).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let report = rig.run().unwrap();
    assert_eq!(report.backup, None);
    assert_eq!((report.runs, report.needs_power), (Some(Runs::Written), false));
    assert_eq!(rig.port.unit.lock().unwrap().restarts, [0x51]);
    assert_eq!(rig.count(0xE1), 2);
    let steps: Vec<_> = report.steps.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(steps[steps.len() - 5], "check what runs");
    assert_eq!(steps[steps.len() - 1], "read back firmware part 2");
    assert_eq!(rig.count(0xE0), 2, "and so are the configuration blocks");
}

#[test]
fn a_unit_in_its_boot_loader_is_done_but_for_its_power_where_nobody_pulls_the_cable() {
    let mut rig = rig(None);
    let report = rig.run().unwrap();
    assert_eq!((report.after, report.runs, report.needs_power), (None, None, true));
    assert_eq!((rig.port.waits, rig.count(0xE0)), (0, 0), "nobody waits");
    assert!(rig.port.unit.lock().unwrap().flash == flash_of(&sample_image(2)));
}

#[test]
fn what_runs_is_told_by_what_differs_and_not_by_a_version_that_is_the_same() {
    let same = |rig: &mut Rig| {
        let image = Image::parse(&rig.plan.file).unwrap();
        rig.port.unit.lock().unwrap().running = Some(image);
    };
    // Another version before: it shows that the new code runs, or that the old one still does.
    for (loads_code, runs) in [(true, Runs::Written), (false, Runs::Before)] {
        let mut rig = rig(Some(sample_image(1)));
        rig.port.unit.lock().unwrap().loads_code = loads_code;
        let report = rig.run().unwrap();
        assert_eq!((report.runs, report.needs_power), (Some(runs), runs == Runs::Before));
    }
    // The same version before and after.
    let mut rig = rig(Some(sample_image(1)));
    same(&mut rig);
    let report = rig.run().unwrap();
    assert_eq!((report.runs, report.needs_power), (Some(Runs::Unknown), true));
}

#[test]
fn other_code_than_written_after_the_units_power_is_an_error() {
    let mut rig = rig(None).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    rig.plan.version = sample_image(3).version();
    rig.plan.file = sample_image(3).to_file();
    let written = flash_of(&sample_image(2));
    // Its flash says one thing, and what comes up is another.
    rig.port.unit.lock().unwrap().lies = Some(written);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::Version { .. }), "{stopped:?}");
    assert_eq!(stopped.left, Left::Unproven);
}

#[test]
fn what_differs_is_written_again_from_the_erase_on() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Corrupt)]);
    let report = rig.run().unwrap();
    assert_eq!((rig.count(0xE1), rig.count(0xE3)), (4, 4), "a part can't be erased alone");
    assert!(rig.port.unit.lock().unwrap().flash == flash_of(&sample_image(2)));
    let trouble: Vec<_> = report.steps.iter().filter(|step| !step.done).collect();
    assert_eq!(trouble.len(), 1);
    assert!(trouble[0].result.contains("1 bytes differ, the first at part offset 0x321"), "{trouble:?}");
}

#[test]
fn a_flash_that_never_keeps_what_it_is_given_is_not_restarted() {
    let worn: Vec<_> = (1..=10).map(|nth| (0xE3, nth, Quirk::Corrupt)).collect();
    let mut rig = rig(Some(sample_image(1))).with(&worn);
    let stopped = rig.stopped();
    assert!(
        matches!(stopped.error, FlashError::PartDiffers { part: Part::One, attempts: 3, count: 1, first: 0x321 }),
        "{stopped:?}"
    );
    assert_eq!(stopped.left, Left::Complete);
    assert_eq!(rig.count(0xE8), 0, "the old firmware still runs and can still be talked to");
}

#[test]
fn a_configuration_block_that_does_not_stay_is_written_again_and_then_given_up() {
    let mut once = rig(Some(sample_image(1))).with(&[(0xE1, 1, Quirk::Corrupt)]);
    once.run().unwrap();
    assert_eq!(once.count(0xE1), 4);

    let worn: Vec<_> = (1..=10).map(|nth| (0xE1, nth, Quirk::Corrupt)).collect();
    let mut rig = rig(Some(sample_image(1))).with(&worn);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::BlockDiffers { index: BlockIndex::Zero, attempts: 3 }));
    assert_eq!((stopped.left, rig.count(0xE8)), (Left::Complete, 0));
}

#[test]
fn a_command_that_times_out_or_fails_in_the_flash_is_tried_again() {
    for quirk in [Quirk::Silent, Quirk::Medium] {
        for opcode in [0xE1, 0xE3, 0xE2] {
            // E2's first two are the backup.
            let nth = if opcode == 0xE2 { 3 } else { 1 };
            let mut rig = rig(Some(sample_image(1))).with(&[(opcode, nth, quirk)]);
            rig.run().unwrap_or_else(|stopped| panic!("{opcode:02X} {quirk:?}: {stopped:?}"));
        }
    }
}

#[test]
fn a_refused_command_and_a_unit_that_is_gone_are_not_tried_again() {
    for quirk in [Quirk::Illegal, Quirk::Vanish] {
        let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 1, quirk)]);
        let stopped = rig.stopped();
        assert_eq!(stopped.left, Left::Incomplete);
        assert_eq!(stopped.during, Step::WritePart(Part::One));
        assert_eq!(rig.count(0xE3), 1);
        assert!(stopped.report.backup.is_some());
    }
}

#[test]
fn ctrl_c_after_the_erase_lets_the_write_and_its_readback_finish_and_stops_before_the_restart() {
    for (opcode, nth) in [(0xE1, 1), (0xE1, 2), (0xE3, 1), (0xE3, 2), (0xE0, 5), (0xE2, 3), (0xE2, 4)] {
        let mut rig = rig(Some(sample_image(1))).with(&[(opcode, nth, Quirk::Interrupt)]);
        let stopped = rig.stopped();
        assert!(matches!(stopped.error, FlashError::Interrupted), "{opcode:02X} {nth}: {stopped:?}");
        assert_eq!((stopped.left, stopped.during), (Left::Verified, Step::ReadBack(Part::Two)), "{opcode:02X} {nth}");
        assert_eq!((rig.count(0xE3), rig.count(0xE8)), (2, 0), "{opcode:02X} {nth}");
        let unit = rig.port.unit.lock().unwrap();
        assert!(unit.flash == flash_of(&sample_image(2)), "{opcode:02X} {nth}");
    }
}

#[test]
fn ctrl_c_does_not_stop_before_what_differs_is_written_again() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Corrupt), (0xE3, 1, Quirk::Interrupt)]);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::Interrupted), "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE3), rig.count(0xE8)), (Left::Verified, 4, 0));
    assert!(rig.port.unit.lock().unwrap().flash == flash_of(&sample_image(2)));
}

#[test]
fn ctrl_c_lets_a_boot_loader_take_everything_and_stops_before_the_halt() {
    let mut rig = rig(None).with(&[(0xE1, 1, Quirk::Interrupt)]);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::Interrupted), "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE3), rig.count(0xE8)), (Left::Complete, 2, 0));
}

#[test]
fn a_panic_fails_its_unit_alone_and_says_how_it_is_left() {
    let units = [rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Panic)]), rig(Some(sample_image(1)))];
    let [panicked, sound] = std::thread::scope(|scope| {
        let running = units.map(|mut rig| scope.spawn(move || (rig.run(), rig.port.unit)));
        running.map(|unit| unit.join().unwrap())
    });
    let stopped = *panicked.0.unwrap_err();
    assert!(matches!(&stopped.error, FlashError::Panicked(panic) if panic.to_string().contains("as asked for")));
    assert_eq!((stopped.left, stopped.during), (Left::Incomplete, Step::WritePart(Part::Two)));
    assert!(stopped.report.backup.is_some());
    assert_eq!(sound.0.unwrap().after.unwrap().usb_id, UsbId::PATCHED);
    assert!(sound.1.lock().unwrap().flash == flash_of(&sample_image(2)));
}

#[test]
fn ctrl_c_before_the_first_write_leaves_the_unit_untouched() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE2, 1, Quirk::Interrupt)]);
    let stopped = rig.stopped();
    assert_eq!(stopped.left, Left::Untouched);
    assert_eq!((rig.count(0xE1), rig.count(0xE3)), (0, 0));
    assert_eq!(std::fs::read_dir(rig.home.path()).unwrap().count(), 0, "no half of a backup stays");
}

#[test]
fn a_unit_that_changed_since_the_plan_is_not_written() {
    let mut rig = rig(Some(sample_image(1)));
    rig.port.unit.lock().unwrap().blocks[1][9] ^= 1;
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::Changed { what: "configuration" }));
    assert_eq!((stopped.left, rig.count(0xE1)), (Left::Untouched, 0));
}

#[test]
fn a_backup_that_could_not_be_restored_stops_before_the_first_write() {
    let mut rig = rig(Some(sample_image(1)));
    rig.port.unit.lock().unwrap().flash[1][77] ^= 1;
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::Unusable { .. }), "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE1)), (Left::Untouched, 0));
}

#[test]
fn a_unit_that_does_not_come_back_is_named_with_what_to_do() {
    let mut rig = rig(Some(sample_image(1))).returning(None);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::NotBack { .. }));
    assert_eq!(stopped.left, Left::Restarted);
}

#[test]
fn the_user_is_asked_to_plug_the_unit_in_again_where_it_needs_that() {
    struct Asked(usize);
    impl Observer for Asked {
        fn event(&mut self, event: Event<'_>) {
            self.0 += usize::from(matches!(event, Event::Replug));
        }
    }
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let mut asked = Asked(0);
    run(&mut rig.port, &rig.plan, &rig.options, &mut asked, Interrupt::never()).unwrap();
    assert_eq!(asked.0, 1);
}

#[test]
fn a_unit_that_comes_back_under_its_old_identity_needs_its_power() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AsBefore));
    let report = rig.run().unwrap();
    assert_eq!((report.runs, report.needs_power), (Some(Runs::Before), true));
    assert_eq!(report.after.unwrap().usb_id, UsbId::STOCK);
}

#[test]
fn a_unit_that_has_its_old_identity_after_its_power_too_is_not_taken_for_done() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AsBefore));
    rig.options.replug_deadline = Duration::from_millis(1);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::Identity { expected: UsbId::PATCHED, found: UsbId::STOCK, .. }));
    assert_eq!(stopped.left, Left::OtherIdentity);
}

#[test]
fn a_unit_that_comes_back_in_its_boot_loader_is_said_to_be_there() {
    // In the boot loader nothing can be read back before the restart, so the bad bit shows there.
    let mut rig = rig(None).with(&[(0xE3, 1, Quirk::Corrupt)]).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::BootLoader { .. }), "{stopped:?}");
    assert_eq!(stopped.left, Left::BootLoader);
}

#[test]
fn a_reset_without_a_status_is_judged_by_the_return() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE8, 1, Quirk::Silent)]).returning(None);
    let stopped = rig.stopped();
    assert!(matches!(stopped.error, FlashError::NotBack { .. }));
    assert_eq!(stopped.left, Left::Restarted);
}
