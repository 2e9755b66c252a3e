//! Runs through registers, on units in memory.

use asm2464::firmware::FlashAddress;
use asm2464::scsi::XdataAddress;
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{SharedUnit, VirtualPort};

use super::*;

/// A port at which another unit takes the first one's place.
struct Exchanged {
    units: [VirtualPort; 2],
    /// Whether the other one is there.
    is_other: Arc<AtomicBool>,
    /// Whether no unit is there until the run waits for one.
    has_gap: bool,
}

impl Exchanged {
    fn now(&mut self) -> &mut VirtualPort {
        &mut self.units[usize::from(self.is_other.load(Ordering::Relaxed))]
    }

    fn there(&mut self) -> Result<UnitInfo, AnyFailure> {
        let is_other = self.is_other.load(Ordering::Relaxed);
        let attached = self.now().attached()?;
        // Like the newer builds of open firmware, which take the serial number from the chip.
        Ok(UnitInfo { serial: Some(if is_other { "other chip" } else { "chip" }.to_owned()), ..attached })
    }
}

impl Port for Exchanged {
    fn location(&self) -> Location {
        "9-9".parse().unwrap()
    }

    fn attached(&mut self) -> Result<UnitInfo, AnyFailure> {
        if self.is_other.load(Ordering::Relaxed) && self.has_gap {
            return Err(FlashError::not_back(Duration::ZERO).into());
        }
        self.there()
    }

    fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge, AnyFailure> {
        self.now().open_over(wanted)
    }

    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure> {
        self.now().open_control()
    }

    fn wait_for_return(&mut self, _: Duration, _: Interrupt<'_>) -> Result<Option<UnitInfo>, AnyFailure> {
        self.there().map(Some)
    }
}

fn open_unit(scenario: &str) -> VirtualPort {
    virtual_port(&format!("factory = 'open'\n{scenario}"))
}

fn cells(unit: &SharedUnit) -> Vec<u8> {
    unit.lock().flash().get(FlashAddress(0), SLOT_LEN).unwrap().to_vec()
}

fn plan(port: &mut dyn Port, image: &Image) -> FlashPlan {
    let attached = port.attached().unwrap();
    let blocks = Access::open(port).unwrap().blocks(attached.state).unwrap();
    FlashPlan::flash(attached, blocks, None, None, &samples::proved(image), |_| Ok(())).unwrap()
}

/// Lets the unit fall back to USB 2, as ed4e39b does it.
fn fall_back(port: &mut VirtualPort) {
    let mut bridge = port.open_control().unwrap();
    bridge.xdata_write(XdataAddress::main(0xCC30), 0).unwrap();
    bridge.restart_cpu().unwrap();
    drop(bridge);
    assert!(port.wait_for_return(Duration::from_secs(1), Interrupt::never()).unwrap().unwrap().speed.is_slow());
}

#[test]
fn a_unit_that_has_fallen_back_to_usb_2_comes_back_at_superspeed_as_from_a_reset() {
    let mut port = open_unit("");
    fall_back(&mut port);
    let plan = plan(&mut port, &practice::image());
    let report = run(&mut port, &plan, &options(), &mut (), Interrupt::never()).unwrap();
    let restart = report.steps.iter().find(|step| step.step == "restart").unwrap();
    assert_eq!(restart.result, "CPU reset with SuperSpeed allowed again (F4) sent");
    assert!(!report.after.unwrap().speed.is_slow());
}

fn options() -> FlashOptions {
    FlashOptions { return_deadline: Duration::from_millis(200), ..rig(None).options }
}

#[test]
fn a_unit_that_takes_the_place_of_the_one_that_is_written_is_left_alone() {
    for has_gap in [false, true] {
        let is_other = Arc::new(AtomicBool::new(false));
        let mut port = Exchanged { units: [open_unit(""), open_unit("")], is_other: is_other.clone(), has_gap };
        let [first, other] = [0, 1].map(|at: usize| port.units[at].unit().clone());
        let before = cells(&other);
        let plan = plan(&mut port, &practice::image());
        let mut exchange = |event: FlashEvent<'_>| {
            if matches!(event, FlashEvent::Begin(FlashStep::WriteSectors)) {
                first.lock().unplug();
                is_other.store(true, Ordering::Relaxed);
            }
        };
        let stopped = run(&mut port, &plan, &options(), &mut exchange, Interrupt::never()).unwrap_err();
        assert!(matches!(stopped.error, FlashError::Registers(_)), "{has_gap}: {stopped:?}");
        assert_eq!((stopped.left, stopped.during), (StoppedState::Incomplete, FlashStep::WriteSectors), "{has_gap}");
        assert!(cells(&other) == before, "{has_gap}: the other unit was written");
    }
}

#[test]
fn a_flash_that_may_hold_no_firmware_stays_without_its_protection() {
    let mut port = open_unit("[flash]\nprotection = 'clearable'\nstuck-sector = 0x0\n");
    let plan = plan(&mut port, &practice::image());
    let stopped = run(&mut port, &plan, &options(), &mut (), Interrupt::never()).unwrap_err();
    assert_eq!(stopped.left, StoppedState::Incomplete, "{stopped:?}");
    assert_eq!(port.unit().lock().flash().status(), 0, "the boot loader may not clear it");
    let last = stopped.report.steps.last().unwrap();
    assert!(!last.done && last.result.contains("protection stays cleared"), "{last:?}");
}

#[test]
fn a_written_flash_gets_its_protection_back_and_counts_as_written_when_ctrl_c_follows() {
    let mut port = open_unit("[flash]\nprotection = 'clearable'\n");
    let unit = port.unit().clone();
    let protection = unit.lock().flash().status();
    let plan = plan(&mut port, &practice::image());
    let pressed = AtomicBool::new(false);
    let mut press = |event: FlashEvent<'_>| {
        if matches!(event, FlashEvent::Begin(FlashStep::Protect)) {
            pressed.store(true, Ordering::Relaxed);
        }
    };
    let stopped = run(&mut port, &plan, &options(), &mut press, Interrupt::watching(&pressed)).unwrap_err();
    assert_eq!(stopped.error.kind(), Kind::Interrupted, "{stopped:?}");
    assert_eq!((stopped.left, unit.lock().flash().status()), (StoppedState::Verified, protection));
}

#[test]
fn a_flash_that_has_everything_already_is_read_and_not_written() {
    let mut port = open_unit("[flash]\nprotection = 'clearable'\n");
    let before = cells(port.unit());
    let plan = plan(&mut port, &practice::open_image());
    let report = run(&mut port, &plan, &options(), &mut (), Interrupt::never()).unwrap();
    let compared = report.steps.iter().find(|step| step.step == FlashStep::Compare.to_string()).unwrap();
    assert_eq!(compared.result, "0 of 32 sectors differ");
    let unprotect = FlashStep::Unprotect.to_string();
    assert!(report.steps.iter().all(|step| step.step != unprotect), "its protection stays, too");
    assert!(cells(port.unit()) == before);
}

#[test]
fn what_reads_back_differently_is_written_again_and_given_up_the_third_time() {
    for times in [1, 3] {
        let mut port = open_unit("");
        let unit = port.unit().clone();
        let plan = plan(&mut port, &practice::image());
        let at = (0x1000..0xFF00).find(|at| plan.file[*at] != 0).unwrap();
        let (mut losses, mut compared) = (times, Vec::new());
        let mut wearing = |event: FlashEvent<'_>| match event {
            FlashEvent::Begin(FlashStep::ReadBack(Part::One)) if losses > 0 => {
                losses -= 1;
                unit.lock().flash_mut().program(FlashAddress(at as u32 + 0x100), &[0]).unwrap();
            }
            FlashEvent::End(FlashStep::Compare, text) => compared.push(text.to_owned()),
            _ => {}
        };
        let options = FlashOptions { rewrite: true, ..options() };
        let outcome = run(&mut port, &plan, &options, &mut wearing, Interrupt::never());
        // Only the first attempt writes everything.
        assert_eq!(compared[..2], ["32 of 32 sectors differ", "2 of 32 sectors differ"]);
        assert_eq!(compared.len(), times.max(2));
        match outcome {
            Ok(_) => assert_eq!(times, 1),
            Err(stopped) => {
                assert_eq!(stopped.error.code(), "asmpatch::flash::part_differs", "{stopped:?}");
                assert!(stopped.error.to_string().contains("attempt 3"), "{stopped:?}");
                assert_eq!((times, stopped.left), (3, StoppedState::Complete));
            }
        }
    }
}

#[test]
fn a_unit_that_goes_while_it_is_read_back_is_not_compared_again() {
    let mut port = open_unit("");
    let unit = port.unit().clone();
    let plan = plan(&mut port, &practice::image());
    let mut unplugging = |event: FlashEvent<'_>| {
        if matches!(event, FlashEvent::Begin(FlashStep::ReadBack(Part::Two))) {
            unit.lock().unplug();
        }
    };
    let stopped = run(&mut port, &plan, &options(), &mut unplugging, Interrupt::never()).unwrap_err();
    assert!(matches!(stopped.error, FlashError::Registers(_)), "{stopped:?}");
    assert_eq!((stopped.left, stopped.during), (StoppedState::Complete, FlashStep::ReadBack(Part::Two)));
    assert!(stopped.report.steps.iter().all(|step| step.done), "{stopped:?}");
}

#[test]
fn ctrl_c_and_a_lost_connection_stop_neither_a_write_nor_the_return_of_the_protection() {
    type Moment = fn(&FlashEvent<'_>) -> bool;
    let moments: [(Moment, StoppedState); 3] = [
        (|event| matches!(event, FlashEvent::Stands { left: StoppedState::Unprotected, .. }), StoppedState::Untouched),
        (|event| matches!(event, FlashEvent::Begin(FlashStep::Invalidate)), StoppedState::Verified),
        (|event| matches!(event, FlashEvent::Begin(FlashStep::Protect)), StoppedState::Verified),
    ];
    for (is_now, left) in moments {
        let mut port = open_unit("[flash]\nprotection = 'clearable'\n");
        let unit = port.unit().clone();
        let protection = unit.lock().flash().status();
        let image = practice::open_image();
        let plan = plan(&mut port, &image);
        let pressed = AtomicBool::new(false);
        let mut trouble = |event: FlashEvent<'_>| {
            if is_now(&event) && !pressed.swap(true, Ordering::Relaxed) {
                unit.lock().replug();
            }
        };
        let options = FlashOptions { rewrite: true, return_deadline: Duration::from_secs(10), ..options() };
        let stopped = run(&mut port, &plan, &options, &mut trouble, Interrupt::watching(&pressed)).unwrap_err();
        assert_eq!((stopped.error.kind(), stopped.left), (Kind::Interrupted, left), "{stopped:?}");
        assert_eq!(unit.lock().flash().status(), protection, "{stopped:?}");
    }
}

#[test]
fn whenever_the_flash_is_not_what_it_was_the_state_already_says_so() {
    let mut port = open_unit("[flash]\nprotection = 'clearable'\n");
    let unit = port.unit().clone();
    let before = cells(&unit);
    let plan = plan(&mut port, &practice::image());
    let (mut said, mut changed) = (StoppedState::Untouched, 0);
    let mut watch = |event: FlashEvent<'_>| {
        if let FlashEvent::Stands { left, .. } = event {
            said = left;
        }
        if cells(&unit) != before {
            changed += 1;
            let is_said = !matches!(said, StoppedState::Untouched | StoppedState::Unprotected);
            assert!(is_said, "{event:?}: the state says {said}");
        }
    };
    run(&mut port, &plan, &options(), &mut watch, Interrupt::never()).unwrap();
    assert!(changed > 3, "the steps after the first change: {changed}");
}

#[test]
fn a_link_that_is_lost_while_the_old_images_length_is_cleared_leaves_a_flash_that_may_hold_no_firmware() {
    let mut port = open_unit("");
    let unit = port.unit().clone();
    let plan = plan(&mut port, &practice::image());
    let mut unplugging = |event: FlashEvent<'_>| {
        if matches!(event, FlashEvent::Begin(FlashStep::Invalidate)) {
            unit.lock().unplug();
        }
    };
    let stopped = run(&mut port, &plan, &options(), &mut unplugging, Interrupt::never()).unwrap_err();
    assert_eq!((stopped.left, stopped.during), (StoppedState::Incomplete, FlashStep::Invalidate), "{stopped:?}");
}

#[test]
fn a_run_that_stops_before_its_first_change_leaves_the_unit_untouched_once_the_protection_is_set_again() {
    let mut port = open_unit("[flash]\nprotection = 'clearable'\n");
    let unit = port.unit().clone();
    let (before, protection) = (cells(&unit), unit.lock().flash().status());
    let plan = plan(&mut port, &practice::image());
    // The link is lost while the protection is cleared to write, and is there again when it is to be set.
    let mut losing = |event: FlashEvent<'_>| match event {
        FlashEvent::Begin(FlashStep::Unprotect) => unit.lock().unplug(),
        FlashEvent::Begin(FlashStep::Protect) => unit.lock().replug(),
        _ => {}
    };
    // A replug takes half a second.
    let options = FlashOptions { return_deadline: Duration::from_secs(2), ..options() };
    let stopped = run(&mut port, &plan, &options, &mut losing, Interrupt::never()).unwrap_err();
    assert!(matches!(stopped.error, FlashError::Registers(_)), "{stopped:?}");
    assert_eq!((stopped.left, stopped.during), (StoppedState::Untouched, FlashStep::Unprotect), "{stopped:?}");
    assert_eq!(unit.lock().flash().status(), protection);
    assert!(cells(&unit) == before);
}
