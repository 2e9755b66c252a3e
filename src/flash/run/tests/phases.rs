//! What each phase does, what it leaves for the next, and the state of a unit after signals and bugs.

use asm2464_chip::practice;

use super::*;

/// Prepares the rig's unit, lets `meanwhile` happen to it, and confirms it.
fn confirmed(rig: &mut Rig, meanwhile: impl FnOnce(&mut Unit)) -> Result<(), Box<Stopped>> {
    let unit = rig.port.unit.clone();
    let mut nobody = ();
    let interrupt = Interrupt::watching(&rig.interrupt);
    let prepared = prepare(&mut rig.port, &rig.plan, &rig.options, &mut nobody, interrupt)?;
    assert_eq!(prepared.location().to_string(), "9-9");
    meanwhile(&mut unit.lock().unwrap());
    let confirmed = prepared.confirm()?;
    assert!(confirmed.release().backup.is_some());
    Ok(())
}

fn writes(rig: &Rig) -> usize {
    rig.count(0xE1) + rig.count(0xE3) + rig.count(0xE8)
}

#[test]
fn a_unit_that_is_prepared_and_confirmed_is_backed_up_and_not_written() {
    let mut rig = rig(Some(sample_image(1)));
    confirmed(&mut rig, |_| ()).unwrap();
    assert_eq!((rig.count(0xE2), writes(&rig)), (2, 0));
    assert_eq!(std::fs::read_dir(rig.home.path()).unwrap().count(), 1);
}

#[test]
fn a_unit_that_changes_after_it_was_prepared_is_not_written() {
    type Change = fn(&mut Unit);
    let changes: [(Change, &str); 2] = [
        (|unit| unit.blocks[1][9] ^= 1, "configuration"),
        (|unit| unit.blocks[0] = *own_block(UsbId::PATCHED).bytes(), "identity"),
    ];
    for (change, what) in changes {
        let mut rig = rig(Some(sample_image(1)));
        let stopped = *confirmed(&mut rig, change).unwrap_err();
        assert_eq!(stopped.error.to_string(), FlashError::changed(what).to_string());
        assert_eq!(
            (stopped.left, stopped.during, writes(&rig)),
            (StoppedState::Untouched, FlashStep::Confirm, 0),
            "{what}"
        );
        assert!(stopped.report.backup.is_some());
    }
}

#[test]
fn a_signal_while_a_unit_waits_for_others_stops_it_before_the_write() {
    let mut rig = rig(Some(sample_image(1)));
    let interrupt = rig.interrupt.clone();
    let stopped = *confirmed(&mut rig, |_| interrupt.store(true, Ordering::Relaxed)).unwrap_err();
    assert_eq!(stopped.error.kind(), Kind::Interrupted, "{stopped:?}");
    assert_eq!((stopped.left, writes(&rig)), (StoppedState::Untouched, 0));
}

#[test]
fn block_protection_is_as_it_was_until_the_write() {
    let mut port = virtual_port("factory = \"open\"\n[flash]\nprotection = \"clearable\"\n");
    let attached = port.attached().unwrap();
    let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
    let plan =
        FlashPlan::flash(attached, blocks, None, None, &samples::proved(&practice::image()), |_| Ok(())).unwrap();
    let (options, mut nobody) = (rig(None).options, ());
    let prepared = prepare(&mut port, &plan, &options, &mut nobody, Interrupt::never()).unwrap();
    prepared.confirm().unwrap().release();
    let Access::Registers(mut flash) = Access::open(&mut port).unwrap() else { panic!("open firmware") };
    assert_eq!(flash.protection().unwrap(), 0x1C);
}

#[test]
fn ctrl_c_does_not_stop_before_what_differs_is_written_again() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Corrupt), (0xE3, 1, Quirk::Interrupt)]);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.kind(), Kind::Interrupted, "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE3), rig.count(0xE8)), (StoppedState::Verified, 4, 0));
    assert!(rig.port.unit.lock().unwrap().flash == flash_of(&sample_image(2)));
}

#[test]
fn ctrl_c_lets_a_boot_loader_take_everything_and_stops_before_the_halt() {
    let mut rig = rig(None).with(&[(0xE1, 1, Quirk::Interrupt)]);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.kind(), Kind::Interrupted, "{stopped:?}");
    assert_eq!((stopped.left, rig.count(0xE3), rig.count(0xE8)), (StoppedState::Complete, 2, 0));
}

#[test]
fn a_panic_fails_its_unit_alone_and_says_how_it_is_left() {
    let units = [rig(Some(sample_image(1))).with(&[(0xE3, 2, Quirk::Panic)]), rig(Some(sample_image(1)))];
    let [panicked, sound] = std::thread::scope(|scope| {
        let running = units.map(|mut rig| scope.spawn(move || (rig.run(), rig.port.unit)));
        running.map(|unit| unit.join().unwrap())
    });
    let stopped = *panicked.0.unwrap_err();
    assert_eq!(stopped.error.code(), "asmpatch::bug");
    assert!(stopped.error.to_string().contains("as asked for"), "{stopped:?}");
    assert_eq!((stopped.left, stopped.during), (StoppedState::Incomplete, FlashStep::WritePart(Part::Two)));
    assert!(stopped.report.backup.is_some());
    assert_eq!(sound.0.unwrap().after.unwrap().id, UsbId::PATCHED);
    assert!(sound.1.lock().unwrap().flash == flash_of(&sample_image(2)));
}

#[test]
fn ctrl_c_before_the_first_write_leaves_the_unit_untouched() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE2, 1, Quirk::Interrupt)]);
    let stopped = rig.stopped();
    assert_eq!(stopped.left, StoppedState::Untouched);
    assert_eq!((rig.count(0xE1), rig.count(0xE3)), (0, 0));
    assert_eq!(std::fs::read_dir(rig.home.path()).unwrap().count(), 0, "no partial backup is left");
}
