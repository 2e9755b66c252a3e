//! State of a unit after signals and bugs.

use super::*;

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
