//! Tests of how units come back, and of what they then run.

use super::*;
use crate::image::OpenImage;

#[test]
fn a_unit_in_its_boot_loader_is_halted_and_read_back_once_it_has_had_its_power() {
    let mut rig = rig(None).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let report = rig.run().unwrap();
    assert_eq!(report.backup, None);
    assert_eq!((report.runs, report.needs_power), (Some(StartedCode::Written), false));
    assert_eq!(rig.port.unit.lock().unwrap().restarts, [0x51]);
    assert_eq!(rig.count(0xE1), 2);
    let steps: Vec<_> = report.steps.iter().map(|step| step.step.as_str()).collect();
    assert_eq!(steps[steps.len() - 5], "check what runs");
    assert_eq!(steps[steps.len() - 1], "read back firmware part 2");
    assert_eq!(rig.count(0xE0), 2, "and so are the configuration blocks");
}

#[test]
fn a_unit_that_was_in_its_boot_loader_and_has_left_it_runs_what_was_written() {
    let mut rig = rig(None);
    rig.port.has_switch = true;
    let report = rig.run().unwrap();
    assert_eq!((report.runs, report.needs_power, rig.port.cycles), (Some(StartedCode::Written), false, 1));
}

#[test]
fn a_unit_that_stays_away_although_its_hub_gave_it_its_power_back_is_no_success() {
    let mut rig = rig(None).returning(None);
    rig.port.has_switch = true;
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::not_back", "{stopped:?}");
    assert_eq!(stopped.left, StoppedState::Restarted);
}

#[test]
fn a_unit_that_was_told_to_halt_is_awaited_until_it_has_left_or_the_time_is_over() {
    for (lingers, deadline, left) in [(3, 600, 0_usize), (1_000_000, 0, 1_000_000)] {
        let mut rig = rig(None).returning(None);
        rig.options.return_deadline = Duration::from_secs(deadline);
        rig.port.lingers = lingers;
        let report = rig.run().unwrap();
        assert_eq!((report.after, report.needs_power), (None, true));
        // Whether it is there is also asked without a wait.
        assert!((left.saturating_sub(5)..=left).contains(&rig.port.lingers), "{}", rig.port.lingers);
    }
}

#[test]
fn a_unit_is_held_by_one_connection_while_its_hub_switches_its_power() {
    // One that has not left after the halt, and one that is back with its old identity.
    let mut staying = rig(None);
    staying.port.lingers = 100;
    for mut rig in [staying, rig(Some(sample_image(1))).returning(Some(Returns::AsBefore))] {
        rig.port.has_switch = true;
        let _ = rig.run();
        assert_eq!((rig.port.cycles, rig.port.was_held), (1, true));
    }
}

#[test]
fn a_unit_that_came_back_with_its_old_code_and_then_stays_away_after_its_power_is_no_success() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::UntilPower));
    rig.port.unit.lock().unwrap().loads_code = false;
    rig.port.has_switch = true;
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::not_back", "{stopped:?}");
    assert_eq!((stopped.left, rig.port.cycles), (StoppedState::Restarted, 1));
}

#[test]
fn what_runs_is_judged_by_what_differs_and_not_by_a_version_that_is_the_same() {
    let rig_of_same = || {
        let rig = rig(Some(sample_image(1)));
        rig.port.unit.lock().unwrap().running = Some(Image::parse(&rig.plan.file).unwrap());
        rig
    };
    // Another version before shows whether the new or the old code runs.
    for (loads_code, runs) in [(true, StartedCode::Written), (false, StartedCode::Before)] {
        let mut rig = rig(Some(sample_image(1)));
        rig.port.unit.lock().unwrap().loads_code = loads_code;
        let report = rig.run().unwrap();
        assert_eq!((report.runs, report.needs_power), (Some(runs), runs == StartedCode::Before));
    }
    // The same version before and after.
    let report = rig_of_same().run().unwrap();
    assert_eq!((report.runs, report.needs_power), (Some(StartedCode::Unknown), true));
    // After its power, the chip has loaded what was written.
    let mut rig = rig_of_same().returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let report = rig.run().unwrap();
    assert_eq!((report.runs, report.needs_power), (Some(StartedCode::Written), false));
}

#[test]
fn other_code_than_written_after_the_units_power_is_an_error() {
    let mut rig = rig(None).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    rig.plan.version = Some(sample_image(3).version());
    rig.plan.file = sample_image(3).to_file();
    let written = flash_of(&sample_image(2));
    // The unit starts something other than what its flash holds.
    rig.port.unit.lock().unwrap().lies = Some(written);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::version", "{stopped:?}");
    assert_eq!(stopped.left, StoppedState::Unproven);
}

#[test]
fn a_unit_that_does_not_come_back_is_named_with_what_to_do() {
    let mut rig = rig(Some(sample_image(1))).returning(None);
    (rig.options.return_deadline, rig.options.replug_deadline) = (Duration::from_secs(3), Duration::from_secs(1));
    let stopped = rig.stopped();
    assert_eq!(stopped.error.to_string(), FlashError::not_back(Duration::from_secs(4)).to_string());
    assert_eq!(stopped.left, StoppedState::Restarted);
}

#[test]
fn a_unit_that_has_not_left_yet_is_awaited_and_one_that_is_back_is_not() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AsBeforeForAMoment));
    rig.options.return_deadline = Duration::from_secs(3600);
    let report = rig.run().unwrap();
    assert_eq!((report.runs, rig.port.waits), (Some(StartedCode::Written), 2));
}

#[test]
fn the_user_is_asked_to_plug_the_unit_in_again_where_it_needs_that() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let mut asked = 0;
    let mut progress = |event: FlashEvent<'_>| asked += usize::from(matches!(event, FlashEvent::Replug));
    run(&mut rig.port, &rig.plan, &rig.options, &mut progress, Interrupt::never()).unwrap();
    assert_eq!(asked, 1);
}

#[test]
fn a_unit_that_comes_back_under_its_old_identity_needs_its_power() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AsBefore));
    let report = rig.run().unwrap();
    assert_eq!((report.runs, report.needs_power), (Some(StartedCode::Before), true));
    assert_eq!(report.after.unwrap().id, UsbId::STOCK);
}

#[test]
fn the_old_firmware_shows_its_old_id_or_the_configured_one_if_another_kind_was_written() {
    let open = OpenImage {
        product: "open".to_owned(),
        build: "1".to_owned(),
        usb_id: "3801:0001".parse().unwrap(),
        image: None,
        claims: None,
    };
    let other = UsbId::BOOT_LOADER;
    for (open, id, is_known) in [
        (None, UsbId::STOCK, true),
        (None, other, false),
        (Some(open.clone()), UsbId::STOCK, true),
        (Some(open.clone()), UsbId::PATCHED, true),
        (Some(open), other, false),
    ] {
        let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AsBefore));
        rig.port.before = attached(id, BridgeState::Vendor);
        if let Some(open) = &open {
            (rig.plan.usb_id, rig.plan.version) = (Some(open.usb_id), None);
        }
        rig.plan.open = open;
        match rig.run() {
            Ok(report) => {
                assert_eq!((report.runs, report.needs_power, is_known), (Some(StartedCode::Before), true, true))
            }
            Err(stopped) => {
                assert_eq!(stopped.error.code(), "asmpatch::flash::identity", "{stopped:?}");
                assert!(stopped.error.to_string().contains(&format!("came back as {id} ")), "{stopped:?}");
                assert!(!is_known, "{stopped:?}");
            }
        }
    }
}

#[test]
fn a_unit_that_has_its_old_identity_after_its_power_too_is_not_taken_for_done() {
    let mut rig = rig(Some(sample_image(1))).returning(Some(Returns::AsBefore));
    rig.options.replug_deadline = Duration::from_millis(1);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::identity", "{stopped:?}");
    let error = stopped.error.to_string();
    let (found, expected) = (UsbId::STOCK, UsbId::PATCHED);
    assert!(error.contains(&format!("came back as {found} ")), "{error}");
    assert!(error.contains(&format!("expected {expected} ")), "{error}");
    assert_eq!(stopped.left, StoppedState::OtherIdentity);
}

#[test]
fn a_unit_that_comes_back_in_its_boot_loader_is_said_to_be_there() {
    // In the boot loader nothing can be read back before the restart, so the bad bit shows afterwards.
    let mut rig = rig(None).with(&[(0xE3, 1, Quirk::Corrupt)]).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::boot_loader", "{stopped:?}");
    assert_eq!(stopped.left, StoppedState::BootLoader);
}

#[test]
fn a_reset_without_a_status_is_judged_by_the_return() {
    let mut rig = rig(Some(sample_image(1))).with(&[(0xE8, 1, Quirk::Silent)]).returning(None);
    let stopped = rig.stopped();
    assert_eq!(stopped.error.code(), "asmpatch::flash::not_back", "{stopped:?}");
    assert_eq!(stopped.left, StoppedState::Restarted);
}

#[test]
fn the_cable_follows_where_the_old_code_answers_and_no_hub_switches_the_power() {
    for (returns, asked) in [(Returns::AsConfigured, 0), (Returns::WithOldCode, 1)] {
        let mut rig = rig(Some(sample_image(1))).returning(Some(returns));
        rig.port.unit.lock().unwrap().loads_code = asked == 0;
        rig.options.replug_deadline = Duration::from_secs(1);
        let mut count = 0;
        let mut progress = |event: FlashEvent<'_>| count += usize::from(matches!(event, FlashEvent::Replug));
        let report = run(&mut rig.port, &rig.plan, &rig.options, &mut progress, Interrupt::never()).unwrap();
        assert_eq!((count, report.runs, report.needs_power), (asked, Some(StartedCode::Written), false));
    }
}

#[test]
fn what_is_said_of_a_unit_that_comes_back_at_another_port_names_that_port() {
    let mut rig = self::rig(Some(sample_image(1)));
    rig.port.returns_at = "10-9";
    assert_eq!(rig.run().unwrap().location.to_string(), "10-9");

    // The commands after a run that stops there name it, too.
    let mut rig = self::rig(None).with(&[(0xE3, 1, Quirk::Corrupt)]).returning(Some(Returns::AfterReplug));
    rig.options.replug_deadline = Duration::from_secs(1);
    rig.port.returns_at = "10-9";
    let stopped = rig.stopped();
    assert_eq!((stopped.left, stopped.report.location.to_string()), (StoppedState::BootLoader, "10-9".to_owned()));
}
