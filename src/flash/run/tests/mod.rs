//! Runs against a unit in memory, for behaviour that a virtual unit does not have: flash that loses what is written,
//! and a unit that comes back late, as another, or not at all.

mod backups;
mod phases;
mod registers;
mod restart;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use asm2464::firmware::{BlockIndex, CONFIG_BLOCK_LEN, ConfigBlock, ConfigField, Image, Part, UsbId, known_blocks};
use asm2464::flash::{BUDGET, Slot, image_file};
use asm2464::scsi::{Cdb, Lun, ScsiStatus, Sense};
use asm2464::{AnyFailure, Coded as _};
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::VirtualPort;
use asm2464_host::bridge::{Bridge, CommandEnd, DataPhase, OpenBridge, Transport, TransportKind, Workload};
use asm2464_host::bridge::{TransportError, TransportErrorKind};

use super::super::access::UnitBlocks;
use super::super::backup::tests::sample_image;
use super::super::observe::Observation;
use super::*;
use crate::image::samples;
use crate::tests::{unit, virtual_port};
use crate::unit::facts::Behaviour;

/// The units' port.
const PLACE: &str = "9-9";

/// The unit's behaviour on the n-th command of an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quirk {
    /// One written bit is lost.
    Corrupt,
    /// One bit is misread.
    Misread,
    /// The unit is gone.
    Vanish,
    /// ILLEGAL REQUEST.
    Illegal,
    /// The unit does not answer.
    Silent,
    /// Ctrl-C is pressed during the command.
    Interrupt,
    /// A bug in this process.
    Panic,
}

struct Unit {
    flash: [Vec<u8>; 2],
    blocks: [[u8; CONFIG_BLOCK_LEN]; 2],
    quirks: Vec<(u8, usize, Quirk)>,
    seen: Vec<u8>,
    /// The modes of the E8 commands.
    restarts: Vec<u8>,
    /// How the unit comes back after E8; `None` for never.
    returns: Option<Returns>,
    running: Option<Image>,
    /// Whether E8 with mode 0x50 loads the code from flash.
    loads_code: bool,
    /// Contents of the flash at boot, regardless of what was written.
    lies: Option<[Vec<u8>; 2]>,
    /// The unit was told to halt, and has had no power cycle since.
    halted: bool,
    interrupt: Arc<AtomicBool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    AsConfigured,
    /// Until its power is cycled.
    UntilPower,
    AsBefore,
    /// As it was, and as configured once it is looked at again.
    AsBeforeForAMoment,
    /// Only after a replug.
    AfterReplug,
    /// With the old code, until a replug.
    WithOldCode,
}

#[derive(Clone)]
struct FakePort {
    unit: Arc<Mutex<Unit>>,
    waits: usize,
    before: UnitInfo,
    /// Whether its hub switches its power.
    has_switch: bool,
    /// Number of times that it did, and whether the unit was held each time.
    cycles: usize,
    was_held: bool,
    /// How often the unit is still seen after it was told to halt.
    lingers: usize,
    /// The port at which it comes back.
    returns_at: &'static str,
    /// One more reference for each open connection.
    connections: Arc<()>,
}

impl FakePort {
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.connections) > 1
    }
}

fn own_block(id: UsbId) -> ConfigBlock {
    let [mut block, _] = known_blocks();
    block.set_text(ConfigField::Serial, "MINE0001").unwrap();
    block.set_number(ConfigField::VendorId, id.vendor).unwrap();
    block.set_number(ConfigField::ProductId, id.product).unwrap();
    block
}

fn attached(id: UsbId, state: BridgeState) -> UnitInfo {
    UnitInfo { id, state, ..unit(PLACE, "MINE0001") }
}

fn flash_of(image: &Image) -> [Vec<u8>; 2] {
    let slot = Slot::of([&[0xFF; CONFIG_BLOCK_LEN]; 2], &image.to_file());
    slot.parts().map(<[u8]>::to_vec)
}

impl Unit {
    fn image(&self) -> Option<Image> {
        Image::parse(&image_file(&self.flash)).ok()
    }

    /// Boots the unit at power-on.
    fn boot(&mut self) {
        if let Some(flash) = self.lies.take() {
            self.flash = flash;
        }
        self.running = self.image();
        self.halted = false;
    }

    fn identity(&self) -> UnitInfo {
        match &self.running {
            Some(_) => {
                let block = ConfigBlock::parse(BlockIndex::Zero, &self.blocks[0]).unwrap();
                attached(block.usb_id(), BridgeState::Vendor)
            }
            None => attached(UsbId::BOOT_LOADER, BridgeState::BootLoader),
        }
    }
}

struct Wire(Arc<Mutex<Unit>>, #[expect(dead_code, reason = "counted")] Arc<()>);

impl Transport for Wire {
    fn kind(&self) -> TransportKind {
        TransportKind::BulkOnly
    }

    fn max_depth(&self) -> usize {
        1
    }

    fn execute_on(
        &mut self,
        _: Lun,
        cdb: &Cdb,
        data: DataPhase<'_>,
        timeout: Duration,
    ) -> Result<CommandEnd, TransportError> {
        let mut unit = self.0.lock().unwrap();
        let opcode = cdb.opcode();
        unit.seen.push(opcode);
        let nth = unit.seen.iter().filter(|seen| **seen == opcode).count();
        let quirk = unit.quirks.iter().find(|(o, n, _)| *o == opcode && *n == nth).map(|(_, _, quirk)| *quirk);
        let refused = |sense| CommandEnd { transferred: 0, status: ScsiStatus::CheckCondition, sense: Some(sense) };
        match quirk {
            Some(Quirk::Vanish) => return Err(TransportErrorKind::Disconnected.during(cdb.name())),
            Some(Quirk::Silent) => return Err(TransportErrorKind::Timeout { deadline: timeout }.during(cdb.name())),
            Some(Quirk::Illegal) => return Ok(refused(Sense::INVALID_OPCODE)),
            Some(Quirk::Panic) => panic!("as asked for"),
            Some(Quirk::Interrupt) => unit.interrupt.store(true, Ordering::Relaxed),
            Some(Quirk::Corrupt | Quirk::Misread) | None => {}
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
                buffer[40] ^= u8::from(quirk == Some(Quirk::Misread));
                buffer.len()
            }
            (0xE1, DataPhase::Out(bytes)) => {
                // As in the vendor's handler, block 0 erases the slot, and everything else programs what is erased.
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
                buffer[40] ^= u8::from(quirk == Some(Quirk::Misread));
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
                let version = unit.running.as_ref().unwrap().version().0;
                buffer.copy_from_slice(&version[..buffer.len()]);
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
            // What is behind the bridge.
            (0x12 | 0x25 | 0xA0 | 0xE6, _) => return Ok(refused(Sense::INVALID_OPCODE)),
            other => panic!("{other:?}"),
        };
        Ok(CommandEnd { transferred: moved, status: ScsiStatus::Good, sense: None })
    }

    fn run(&mut self, _: &mut dyn Workload, _: usize, _: Duration) -> Result<(), TransportError> {
        unreachable!("flashing is one command at a time")
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

impl Port for FakePort {
    fn location(&self) -> Location {
        let place = if self.waits == 0 { PLACE } else { self.returns_at };
        place.parse().unwrap()
    }

    fn attached(&mut self) -> Result<UnitInfo, AnyFailure> {
        let unit = self.unit.lock().unwrap();
        if unit.halted && self.lingers == 0 {
            return Err(FlashError::not_back(Duration::ZERO).into());
        }
        self.lingers -= usize::from(unit.halted);
        Ok(unit.identity())
    }

    fn open_over(&mut self, _: Option<TransportKind>) -> Result<Bridge, AnyFailure> {
        // As on a real bus, one connection at a time.
        if self.is_held() {
            return Err(FlashError::not_back(Duration::ZERO).into());
        }
        Ok(Bridge::new(Box::new(Wire(self.unit.clone(), self.connections.clone())), BridgeState::Vendor))
    }

    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure> {
        Err(FlashError::not_back(Duration::ZERO).into())
    }

    fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
        self.was_held = self.is_held();
        let mut unit = self.unit.lock().unwrap();
        match unit.returns {
            Some(Returns::UntilPower) => unit.halted = true,
            Some(_) if self.has_switch => unit.boot(),
            _ => {}
        }
        self.cycles += usize::from(self.has_switch);
        Ok(self.has_switch)
    }

    fn wait_for_return(&mut self, _: Duration, _: Interrupt<'_>) -> Result<Option<UnitInfo>, AnyFailure> {
        self.waits += 1;
        let mut unit = self.unit.lock().unwrap();
        if unit.returns == Some(Returns::AfterReplug) && (self.waits > 1 || unit.halted) {
            unit.boot();
            return Ok(Some(unit.identity()));
        }
        if unit.returns == Some(Returns::WithOldCode) && self.waits > 1 {
            unit.boot();
        }
        if unit.returns == Some(Returns::AsBeforeForAMoment) && self.waits == 1 {
            return Ok(Some(self.before.clone()));
        }
        Ok(match unit.returns {
            Some(Returns::AsConfigured | Returns::AsBeforeForAMoment | Returns::UntilPower | Returns::WithOldCode)
                if !unit.halted =>
            {
                Some(unit.identity())
            }
            Some(Returns::AsBefore) => Some(self.before.clone()),
            _ => None,
        })
    }
}

struct Rig {
    port: FakePort,
    plan: FlashPlan,
    options: FlashOptions,
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
    let plan =
        FlashPlan::flash(before.clone(), blocks, None, None, &samples::proved(&sample_image(2)), |[block, _]| {
            block.set_number(ConfigField::VendorId, 0xADD1)?;
            block.set_number(ConfigField::ProductId, 1)
        })
        .unwrap();
    let home = tempfile::tempdir().unwrap();
    let options = FlashOptions {
        backup_into: (state == BridgeState::Vendor).then(|| home.path().join("backups")),
        backup_elsewhere: vec![home.path().join("elsewhere")],
        pointers_into: None,
        return_deadline: Duration::ZERO,
        replug_deadline: Duration::ZERO,
        rewrite: false,
        budget: BUDGET,
    };
    Rig {
        port: FakePort {
            unit: Arc::new(Mutex::new(unit)),
            waits: 0,
            before,
            has_switch: false,
            cycles: 0,
            was_held: false,
            lingers: 0,
            returns_at: PLACE,
            connections: Arc::default(),
        },
        plan,
        options,
        interrupt,
        home,
    }
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

    fn run(&mut self) -> Result<FlashReport, Box<Stopped>> {
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
fn what_differs_is_written_again_from_the_erase_on() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Corrupt)]);
    let report = rig.run().unwrap();
    assert_eq!((rig.count(0xE1), rig.count(0xE3)), (4, 4), "a part can't be erased alone");
    assert!(rig.port.unit.lock().unwrap().flash == flash_of(&sample_image(2)));
    let trouble: Vec<_> = report.steps.iter().filter(|step| !step.done).collect();
    assert_eq!(trouble.len(), 1);
    assert!(trouble[0].result.contains("attempt 1: 1 bytes, the first at part offset 0x321"), "{trouble:?}");
}

#[test]
fn a_flash_that_never_keeps_what_it_is_given_is_not_restarted() {
    let worn: Vec<_> = (1..=10).map(|nth| (0xE3, nth, Quirk::Corrupt)).collect();
    let mut rig = rig(Some(sample_image(1))).with(&worn);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::part_differs");
    let error = stopped.error.to_string();
    assert!(error.starts_with("firmware part 1 differs"), "{error}");
    assert!(error.ends_with("attempt 3: 1 bytes, the first at part offset 0x321"), "{error}");
    assert_eq!(stopped.left, StoppedState::Complete);
    assert_eq!(rig.count(0xE8), 0, "the old firmware still runs and answers");
}

#[test]
fn a_configuration_block_that_does_not_stay_is_written_again_and_then_given_up() {
    for block in [0, 1] {
        let first = block + 1;
        let mut once = rig(Some(sample_image(1))).with(&[(0xE1, first, Quirk::Corrupt)]);
        once.run().unwrap();
        assert_eq!(once.count(0xE1), 4);

        // Each attempt writes both.
        let worn: Vec<_> = (first..=10).step_by(2).map(|nth| (0xE1, nth, Quirk::Corrupt)).collect();
        let mut rig = rig(Some(sample_image(1))).with(&worn);
        let stopped = rig.stopped();
        assert_eq!(stopped.error.code(), "asmpatch::flash::block_differs");
        let expected = format!("configuration block {block} differs from what was written, attempt 3");
        assert_eq!(stopped.error.to_string(), expected);
        assert_eq!((stopped.left, rig.count(0xE8)), (StoppedState::Complete, 0));
    }
}

#[test]
fn a_refused_command_and_a_unit_that_is_gone_are_not_tried_again() {
    for quirk in [Quirk::Illegal, Quirk::Vanish] {
        let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 1, quirk)]);
        let stopped = rig.stopped();
        assert_eq!(stopped.left, StoppedState::Incomplete);
        assert_eq!(stopped.during, FlashStep::WritePart(Part::One));
        assert_eq!(rig.count(0xE3), 1);
        assert!(stopped.report.backup.is_some());
    }
}

#[test]
fn a_unit_that_changed_since_the_plan_is_not_written() {
    let mut rig = rig(Some(sample_image(1)));
    rig.port.unit.lock().unwrap().blocks[1][9] ^= 1;
    let stopped = rig.stopped();
    assert_eq!(stopped.error.to_string(), FlashError::changed("configuration").to_string());
    assert_eq!((stopped.left, rig.count(0xE1)), (StoppedState::Untouched, 0));
}

#[test]
fn a_block_that_the_unit_refuses_is_left_out_and_one_that_gets_no_answer_is_an_error() {
    let blocks = |quirk| {
        let mut rig = rig(Some(sample_image(1))).with(&[(0xE0, 1, quirk)]);
        Access::open(&mut rig.port).unwrap().blocks(BridgeState::Vendor)
    };
    assert!(matches!(blocks(Quirk::Illegal), Ok([None, Some(_)])));
    assert!(matches!(blocks(Quirk::Silent), Err(FlashError::Command(CommandError::Transport(_)))));
}

#[test]
fn what_a_unit_does_not_answer_is_unknown_and_a_unit_that_goes_is_an_error() {
    let port = |nth, quirk| rig(Some(sample_image(1))).with(&[(0xE4, nth, quirk)]).port;
    for (quirk, is_there) in [(Quirk::Illegal, true), (Quirk::Silent, true), (Quirk::Vanish, false)] {
        // The first seven E4 are for what is behind the bridge, then come those for the version and the extension.
        for nth in [8, 9] {
            let seen = Observation::of(&mut port(nth, quirk), Interrupt::never());
            assert_eq!(seen.is_ok(), is_there, "{nth} {quirk:?}: {seen:?}");
            if let Ok(Observation { running, .. }) = seen {
                let is_known = (running.runs.version.is_some(), running.runs.e4_extension.is_some());
                assert_eq!(is_known, (nth != 8, nth != 9), "{quirk:?}");
            }
        }
        // What runs is judged by its version, and by the extension if that is known.
        for (nth, is_judged) in [(1, false), (2, is_there)] {
            let mut port = port(nth, quirk);
            let attached = port.attached().unwrap();
            let behaves = Behaviour::of_unit(Access::open(&mut port).unwrap().bridge(), &attached);
            assert_eq!(behaves.is_ok(), is_judged, "{nth} {quirk:?}: {behaves:?}");
        }
    }
}

#[test]
fn a_backup_with_other_blocks_than_the_user_was_shown_is_not_kept_and_nothing_is_written() {
    // The first two readings are compared with the plan. Then the backup reads each block twice.
    for misread in [[3, 4], [5, 6]] {
        let misread = misread.map(|nth| (0xE0, nth, Quirk::Misread));
        let mut rig = rig(Some(sample_image(1))).with(&misread);
        let stopped = rig.stopped();
        assert_eq!(stopped.error.to_string(), FlashError::changed("configuration").to_string());
        assert_eq!((stopped.left, stopped.during), (StoppedState::Untouched, FlashStep::Backup));
        assert_eq!(rig.count(0xE1), 0);
        assert_eq!(std::fs::read_dir(rig.home.path()).unwrap().count(), 0, "nothing to rely on is there");
    }
}

#[test]
fn a_backup_that_could_not_be_restored_stops_before_the_first_write() {
    let mut rig = rig(Some(sample_image(1)));
    rig.port.unit.lock().unwrap().flash[1][77] ^= 1;
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::unusable_backup", "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE1)), (StoppedState::Untouched, 0));
}

fn run_on_vendor_unit(scenario: &str) -> (VirtualPort, Result<FlashReport, Box<Stopped>>) {
    let mut port = virtual_port(scenario);
    let attached = port.attached().unwrap();
    let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
    let plan = FlashPlan::flash(attached, blocks, None, None, &samples::proved(&practice::image()), |[block, _]| {
        block.set_text(ConfigField::Product, "Another")
    })
    .unwrap();
    let outcome = run(&mut port, &plan, &rig(Some(sample_image(1))).options, &mut (), Interrupt::never());
    (port, outcome)
}

#[test]
fn a_unit_that_reads_differently_each_time_is_said_to_do_so_and_is_not_written() {
    let mut codes = BTreeSet::new();
    for every in [2, 3, 5, 40] {
        let (port, outcome) = run_on_vendor_unit(&format!("[flash]\nunstable-reads = {every}\n"));
        let stopped = outcome.unwrap_err();
        codes.insert(stopped.error.code());
        assert_eq!(
            (stopped.error.kind(), stopped.left),
            (Kind::Device, StoppedState::Untouched),
            "{every}: {stopped:?}"
        );
        assert!(stopped.error.to_string().contains("reads differently each time"), "{every}: {stopped:?}");
        drop(port);
    }
    assert_eq!(codes, ["asmpatch::backup::unsteady_block", "asmpatch::backup::unsteady_part"].into());
}

#[test]
fn what_reads_back_differently_each_time_is_not_called_a_failed_write() {
    // Before the write, each block was read four times and each part once. After each attempt but the last, block 0 is
    // also compared with the backup.
    for (opcode, misread, code) in
        [(0xE0, [9, 12, 15], "asmpatch::backup::unsteady_block"), (0xE2, [3, 5, 7], "asmpatch::backup::unsteady_part")]
    {
        let misread: Vec<_> = misread.map(|nth| (opcode, nth, Quirk::Misread)).into();
        let mut rig = rig(Some(sample_image(1))).with(&misread);
        let stopped = rig.stopped();
        assert_eq!((stopped.error.code(), stopped.left), (code, StoppedState::Complete));
    }
}

#[test]
fn a_write_protection_that_stays_is_named_after_one_round_and_the_unit_is_as_it_was() {
    let (port, outcome) = run_on_vendor_unit("[flash]\nprotection = 'for-good'\n");
    let stopped = outcome.unwrap_err();
    assert_eq!((stopped.error.code(), stopped.left), ("asmpatch::flash::protected", StoppedState::Untouched));
    let writes = FlashStep::WriteBlock(BlockIndex::Zero).to_string();
    assert_eq!(stopped.report.steps.iter().filter(|step| step.step == writes).count(), 1, "{stopped:?}");
    assert!(port.unit().lock().flash().status() != 0);
}

#[test]
fn a_flash_that_differs_from_its_backup_in_part_2_alone_is_not_called_write_protected() {
    // What is written is what was there. Of the two E3 of each attempt, the second writes part 2.
    let worn = [2, 4, 6].map(|nth| (0xE3, nth, Quirk::Corrupt));
    let mut rig = rig(Some(sample_image(1))).with(&worn);
    let blocks = rig.port.unit.lock().unwrap().blocks.map(Some);
    let same = samples::proved(&sample_image(1));
    rig.plan = FlashPlan::flash(rig.port.before.clone(), blocks, None, None, &same, |_| Ok(())).unwrap();
    let stopped = rig.stopped();
    assert_eq!((stopped.error.code(), stopped.left), ("asmpatch::flash::part_differs", StoppedState::Complete));
}

#[test]
fn a_part_that_does_not_stay_beside_blocks_that_do_is_no_write_protection() {
    let worn: Vec<_> = (1..=10).map(|nth| (0xE3, nth, Quirk::Corrupt)).collect();
    let mut rig = rig(Some(sample_image(1))).with(&worn);
    let blocks = rig.port.unit.lock().unwrap().blocks.map(Some);
    rig.plan =
        FlashPlan::flash(rig.port.before.clone(), blocks, None, None, &samples::proved(&sample_image(2)), |_| Ok(()))
            .unwrap();
    let stopped = rig.stopped();
    assert_eq!((stopped.error.code(), stopped.left), ("asmpatch::flash::part_differs", StoppedState::Complete));
}
