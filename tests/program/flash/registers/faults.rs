//! Faults of a flash through registers: power, requests, flash cells, protection.

use asmpatch::flash::recovery::LaterCommands;

use super::*;

#[test]
fn every_bad_flash_gets_its_own_error_and_leaves_a_unit_that_starts() {
    type IsExpected = fn(&RegisterError<ControlError>) -> bool;
    let cases: [(&str, IsExpected, StoppedState); 4] = [
        ("protection = 'for-good'", |error| matches!(error, RegisterError::Protected { .. }), StoppedState::Untouched),
        ("unstable-reads = 1", |error| matches!(error, RegisterError::Unstable { .. }), StoppedState::Untouched),
        ("stuck-sector = 0x0", |error| matches!(error, RegisterError::NotErased { .. }), StoppedState::Incomplete),
        ("stuck-sector = 0x1000", |error| matches!(error, RegisterError::NotErased { .. }), StoppedState::Incomplete),
    ];
    side_by_side(cases, |(trouble, is_expected, left)| {
        let rig = Rig::new("factory = 'open'\n");
        rig.cells();
        flash(&rig, &long_open()).unwrap();
        let before = rig.cells();
        let plan = plan(&mut rig.port(), &practice::image());
        rig.tell(&format!("[flash]\n{trouble}\n"));
        let mut port = rig.port();
        let stopped = run(&mut port, &plan, &rig.options(false), &mut (), Interrupt::never()).unwrap_err();
        drop(port);
        let FlashError::Registers(error) = &stopped.error else { panic!("{trouble}: {stopped:?}") };
        assert!(is_expected(error), "{trouble}: {error:?}");
        assert_eq!(stopped.left, left, "{trouble}");
        let again = stopped.report.steps.iter().filter(|step| step.result.contains("again, over a new")).count();
        assert_eq!(again, if left == StoppedState::Incomplete { 7 } else { 0 }, "{trouble}");
        rig.tell("");
        let found = state(&rig);
        let expected =
            if left == StoppedState::Untouched { BridgeState::OpenFirmware } else { BridgeState::BootLoader };
        assert_eq!(found, expected, "{trouble}");
        if left == StoppedState::Untouched {
            assert!(rig.cells() == before, "{trouble}");
        }
    });
}

/// A sector that won't erase still holds the old firmware's bytes, so the way back doesn't need to write it.
#[test]
fn a_restore_works_although_a_sector_does_not_erase() {
    let rig = Rig::new("factory = 'open'\n");
    flash(&rig, &long_open()).unwrap();
    let before = rig.cells();
    rig.tell("[flash]\nstuck-sector = 0x1000\n");
    for keeps_power in [true, false] {
        let mut port = rig.port();
        let attached = port.attached().unwrap();
        let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
        let plan =
            FlashPlan::flash(attached.clone(), blocks, None, None, &proved(&practice::image()), |_| Ok(())).unwrap();
        let stopped = run(&mut port, &plan, &rig.options(true), &mut (), Interrupt::never()).unwrap_err();
        assert_eq!(stopped.left, StoppedState::Incomplete);
        let saved = stopped.report.backup.clone().unwrap();

        let invoked =
            Arc::new(InvokedCommand { writes: Writes::Backup, image: None, names_blocks: false, backs_up: true });
        let unit = WrittenUnit {
            location: attached.location.clone(),
            during: stopped.during,
            left: stopped.left,
            backup: stopped.report.backup,
            restoring: Some(Vec::new()),
            invoked,
            later: LaterCommands::default(),
            offers: Vec::new(),
            set_faults: Vec::new(),
        };
        let failure = FlashFailure::new(stopped.error, unit, BackupFirst::AsGiven);
        let command = cli::parse(["asmpatch", "restore", "other"]).unwrap();
        let command = command.at(&failure.unit.location);
        let help = steps::help(&failure, &command);
        assert!(help[0].purpose.contains("That sector is unchanged"), "{help:?}");
        let steps = WordedStep::each(&failure.steps, &command);
        let [back, on] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((&*back.purpose, &*on.purpose), ("go back to what it was", "or go on"));
        assert!(back.line().unwrap().contains(saved.to_str().unwrap()), "{back:?}");

        if keeps_power {
            // The same port: the unit keeps its power, and its old firmware still runs.
            let backup = backup_folder::load(&saved).unwrap();
            let plan = FlashPlan::restore(attached, blocks, &backup, &proved(&backup.firmware().unwrap()));
            run(&mut port, &plan, &rig.options(false), &mut (), Interrupt::never()).unwrap();
            drop(port);
        } else {
            drop(port);
            assert_eq!(state(&rig), BridgeState::BootLoader);
            rig.restore(&saved, false).unwrap();
        }
        assert!(rig.cells() == before, "keeps its power: {keeps_power}");
        assert_eq!(state(&rig), BridgeState::OpenFirmware);
    }
}

/// Sleeps before sectors are written, until the run's time is over.
fn lingers(time: Duration) -> impl FnMut(FlashEvent<'_>) {
    move |event: FlashEvent<'_>| {
        if matches!(event, FlashEvent::Begin(FlashStep::WriteSectors)) {
            std::thread::sleep(time);
        }
    }
}

#[test]
fn the_clock_ends_a_run_before_the_first_change_and_not_after_it() {
    let rig = Rig::new("factory = 'open'\n");
    let before = rig.cells();
    let tried = |budget: Duration| {
        let mut port = rig.port();
        let plan = plan(&mut port, &practice::image());
        let options = asmpatch::flash::run::FlashOptions { budget, ..rig.options(true) };
        run(&mut port, &plan, &options, &mut lingers(budget), Interrupt::never())
    };
    let stopped = tried(Duration::ZERO).unwrap_err();
    assert_eq!(stopped.left, StoppedState::Untouched);
    assert!(matches!(stopped.error, FlashError::Registers(RegisterError::OutOfTime { .. })), "{stopped:?}");
    assert!(rig.cells() == before);

    // Long enough for the steps before it, even if the machine is busy with other tests.
    tried(Duration::from_secs(8)).unwrap();
    assert!(rig.cells()[..SLOT_LEN] == stock().slot(&before));
}

/// Both known defects at high speed at once (docs/virtual-unit.md): half of each page is lost, and a status can be an
/// old byte.
#[test]
fn at_high_speed_a_unit_with_both_of_its_defects_is_flashed_back_and_forth() {
    side_by_side([("high", 64, 1), ("high", 64, 3), ("high", 17, 2), ("super", 64, 2)], |(speed, lands, stale)| {
        let rig = Rig::new("factory = 'open'\n");
        let before = rig.cells();
        rig.tell(&format!(
            "factory = 'open'\nspeed = '{speed}'\n[flash]\nbulk-out-lands = {lands}\nstale-first-byte = {stale}\n\
             protection = 'clearable'\n"
        ));
        for wanted in [long_open(), open()] {
            let report = flash(&rig, &wanted).unwrap_or_else(|stopped| panic!("{speed} {lands} {stale}: {stopped:?}"));
            let trouble: Vec<_> = report.steps.iter().filter(|step| !step.done).collect();
            assert!(trouble.is_empty(), "{speed} {lands} {stale}: {trouble:?}");
            assert!(rig.cells()[..SLOT_LEN] == wanted.slot(&before), "{speed} {lands} {stale}");
        }
    });
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn at_high_speed_tinygrads_firmware_is_flashed_although_both_defects_are_there() {
    let tinygrads = unedited(chip_images::open());
    let rig = Rig::new("factory = 'open'\n");
    let before = rig.cells();
    flash(&rig, &tinygrads).unwrap();
    rig.tell("speed = 'high'\n[flash]\nbulk-out-lands = 64\nstale-first-byte = 1\nprotection = 'clearable'\n");
    for wanted in [stock(), open()] {
        let mut port = rig.port();
        let attached = port.attached().unwrap();
        let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
        // The unit keeps its power, and with it tinygrad's firmware.
        for image in [&wanted.image, &tinygrads.image] {
            let plan = FlashPlan::flash(attached.clone(), blocks, None, None, &proved(image), |_| Ok(())).unwrap();
            let report = run(&mut port, &plan, &rig.options(false), &mut (), Interrupt::never()).unwrap();
            let trouble: Vec<_> = report.steps.iter().filter(|step| !step.done).collect();
            assert!(trouble.is_empty(), "{trouble:?}");
            let found = port.unit().lock().flash().get(asm2464::firmware::FlashAddress(0), SLOT_LEN).unwrap().to_vec();
            assert!(found == Slot::of([&blocks[0].unwrap(), &blocks[1].unwrap()], &image.to_file()).bytes());
        }
    }
    assert!(rig.cells()[..SLOT_LEN] == tinygrads.slot(&before));
}

/// About five faults in a sector: no attempt gets through all of it, but each keeps what the earlier ones wrote.
#[test]
fn a_sector_whose_every_attempt_gets_further_than_the_last_one_is_written_in_the_end() {
    let rig = Rig::new("factory = 'open'\n");
    let before = rig.cells();
    let fault = |nth| format!("[[fault]]\nkind = 'stall'\nopcode = 0xE5\nnth = {nth}\n");
    rig.tell(&(3_000..20_000).step_by(500).map(fault).collect::<String>());
    let report = flash(&rig, &stock()).unwrap();
    let trouble = report.steps.iter().filter(|step| !step.done && step.step == "write sectors").count();
    assert!(trouble > 12, "{trouble}");
    assert!(rig.cells()[..SLOT_LEN] == stock().slot(&before));
}

#[test]
fn a_run_that_stops_with_the_protection_cleared_says_so() {
    let rig = Rig::new("factory = 'open'\n[flash]\nprotection = 'clearable'\n");
    let mut port = rig.port();
    let plan = plan(&mut port, &long_open().image);
    let unit = port.unit().clone();
    let mut cable = |event: FlashEvent<'_>| {
        if matches!(event, FlashEvent::Begin(FlashStep::Unprotect)) {
            unit.lock().unplug();
        }
    };
    let mut options = rig.options(false);
    options.return_deadline = Duration::from_millis(200);
    let stopped = run(&mut port, &plan, &options, &mut cable, Interrupt::never()).unwrap_err();
    assert_eq!((stopped.left, stopped.during), (StoppedState::Unprotected, FlashStep::Unprotect));
    assert!(matches!(stopped.error, FlashError::Registers(RegisterError::Access(ControlError::Disconnected { .. }))));
}

/// Before the first change a fault costs only a reading: two agreeing readings of three are enough.
#[test]
fn a_read_before_the_first_change_is_repeated_if_it_fails_and_nothing_changes_if_all_do() {
    side_by_side(["stall", "short-data"], |fault| {
        for (times, is_written) in [(1, true), (100_000, false)] {
            let rig = Rig::new("factory = 'open'\n");
            let before = rig.cells();
            // In the middle of the backup, which takes about 1,200 E4.
            rig.tell(&format!("[[fault]]\nkind = '{fault}'\nopcode = 0xE4\nnth = 600\ntimes = {times}\n"));
            let outcome = flash(&rig, &stock());
            rig.tell("");
            assert_eq!(outcome.is_ok(), is_written, "{fault}: {outcome:?}");
            match outcome {
                Ok(_) => assert!(rig.cells()[..SLOT_LEN] == stock().slot(&before), "{fault}"),
                Err(stopped) => {
                    assert_eq!(
                        (stopped.left, stopped.during),
                        (StoppedState::Untouched, FlashStep::Backup),
                        "{stopped:?}"
                    );
                    let FlashError::Registers(RegisterError::Access(error)) = &stopped.error else {
                        panic!("{stopped:?}")
                    };
                    let is_named = match fault {
                        "stall" => matches!(error, ControlError::Stalled { .. }),
                        _ => matches!(error, ControlError::Short { .. }),
                    };
                    assert!(is_named, "{error:?}");
                    assert!(rig.cells() == before);
                    assert_eq!(state(&rig), BridgeState::OpenFirmware);
                }
            }
        }
    });
}
