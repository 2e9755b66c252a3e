//! What starts at power-on and what stays off: boots, resets, power losses.

use std::time::Duration;

use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigField, FlashAddress, Image, Part, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::bot::{CommandBlockWrapper, Direction};
use asm2464::scsi::{Cdb, Command, Lun, ResetMode, XdataAddress};
use asm2464_chip::practice;
use asm2464_host::bridge::{Bridge, BulkOnly, BusSpeed, DataPhase, Endpoint, Port, TransportKind};

use super::{TIMEOUT, UNITS, bulk_only, is_timeout, patched_image, port, returned, sense_of, unit};
use crate::virtual_unit::{ControlAnswer, Reply, Scenario, SharedUnit, VirtualPipes, VirtualPort, VirtualUnit};

#[test]
fn a_new_unit_boots_the_practice_image_under_the_chip_makers_identity() {
    let unit = unit("serial = \"0123456789AB\"");
    let descriptors = unit.descriptors();
    assert_eq!((descriptors.state, descriptors.identity.id), (BridgeState::Vendor, UsbId::STOCK));
    assert_eq!(descriptors.identity.serial, "0123456789AB");
    let version = bulk_only(unit).firmware_version().unwrap();
    assert_eq!(version, practice::image().version());
}

#[test]
fn two_new_units_have_different_serial_numbers() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let serials = folders
        .each_ref()
        .map(|dir| VirtualUnit::open(dir.path(), None).unwrap().descriptors().identity.serial.clone());
    assert_ne!(serials[0], serials[1]);
    assert_eq!(serials[0].len(), 12);
}

#[test]
fn an_image_that_fails_its_checks_leaves_the_boot_loader() {
    // The length, the version, the trailer.
    for broken in [0x100, 0x304, 0x1_7FDA] {
        let mut unit = unit("");
        unit.flash_mut().program(FlashAddress(broken), &[0; 4]).unwrap();
        unit.unplug();
        unit.plug_in();
        let descriptors = unit.descriptors();
        assert_eq!(descriptors.state, BridgeState::BootLoader, "flash {broken:#x}");
        assert!(!unit.set_alternate(1));
    }
}

#[test]
fn the_boot_loader_shows_the_identity_of_a_configuration_block_that_is_whole_else_its_own() {
    let mut unit = unit("factory = \"no-image\"\nserial = \"MINE\"");
    let identity = &unit.descriptors().identity;
    assert_eq!((identity.id, identity.serial.as_str()), (UsbId::STOCK, "MINE"));
    unit.flash_mut().program(FlashAddress(0x7F), &[0]).unwrap();
    unit.unplug();
    unit.plug_in();
    let identity = &unit.descriptors().identity;
    assert_eq!((identity.id, identity.product.as_str()), (UsbId::BOOT_LOADER, "AS2462"));
    assert_eq!(identity.serial, "000000000000");
    assert_eq!(unit.descriptors().state, BridgeState::BootLoader);
}

/// The unit's replies to the CBW of TEST UNIT READY, and to the host's request for its status.
fn replies(unit: &mut VirtualUnit) -> (Reply, Reply) {
    let wrapper = CommandBlockWrapper {
        tag: 1,
        transfer_length: 0,
        direction: Direction::In,
        lun: 0,
        cdb: Command::TestUnitReady.cdb(),
    };
    let out = unit.bulk_out(Endpoint::DataOut, 0, &wrapper.to_bytes());
    (out, unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 13]))
}

#[test]
fn the_boot_loader_moves_no_data_before_port_reset_configuration_and_both_halts_cleared() {
    let mut unit = unit("factory = \"erased\"");
    let silent = (Reply::Silent, Reply::Silent);
    assert_eq!(replies(&mut unit), silent);
    unit.set_configuration(1);
    unit.clear_halt(Endpoint::DataOut);
    unit.clear_halt(Endpoint::DataIn);
    assert_eq!(replies(&mut unit), silent, "the boot loader stays silent before the port reset");
    unit.bus_reset();
    assert_eq!(replies(&mut unit), silent);
    unit.set_configuration(1);
    assert_eq!(replies(&mut unit), (Reply::Stall, Reply::Stall));
    assert!(unit.is_halted(Endpoint::DataIn));
    unit.clear_halt(Endpoint::DataOut);
    assert!(!unit.is_halted(Endpoint::DataOut) && unit.is_halted(Endpoint::DataIn), "each halt is cleared separately");
    unit.clear_halt(Endpoint::DataIn);
    assert_eq!(replies(&mut unit), (Reply::Done(31), Reply::Stall), "a status may stall once");
    unit.clear_halt(Endpoint::DataIn);
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 13]), Reply::Done(13));
}

/// What GET_STATUS says of an endpoint's halt.
fn status(unit: &mut VirtualUnit, endpoint: Endpoint) -> ControlAnswer {
    unit.control([0x82, 0, 0, 0, endpoint.address(), 0, 2, 0], &[])
}

#[test]
fn set_interface_clears_the_boot_loaders_halts_as_tinygrads_flasher_needs_it() {
    let mut unit = unit("factory = \"erased\"");
    unit.bus_reset();
    unit.set_configuration(1);
    for endpoint in [Endpoint::DataIn, Endpoint::DataOut] {
        assert_eq!(status(&mut unit, endpoint), ControlAnswer::Done(vec![1, 0]));
    }
    assert!(unit.set_alternate(0));
    for endpoint in [Endpoint::DataIn, Endpoint::DataOut] {
        assert_eq!(status(&mut unit, endpoint), ControlAnswer::Done(vec![0, 0]));
    }
    // TEST UNIT READY, answered by its status at once.
    assert_eq!(replies(&mut unit), (Reply::Done(31), Reply::Done(13)));
}

#[test]
fn openpilots_order_opens_the_boot_loader_and_its_first_status_stalls_once() {
    let mut unit = unit("factory = \"erased\"");
    unit.bus_reset();
    unit.set_configuration(1);
    assert!(unit.set_alternate(0));
    unit.clear_halt(Endpoint::DataOut);
    unit.clear_halt(Endpoint::DataIn);
    assert_eq!(replies(&mut unit), (Reply::Done(31), Reply::Stall));
    assert_eq!(status(&mut unit, Endpoint::DataIn), ControlAnswer::Done(vec![1, 0]));
    unit.clear_halt(Endpoint::DataIn);
    assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, &mut [0; 13]), Reply::Done(13));
}

#[test]
fn the_reset_that_belongs_to_the_enumeration_does_not_open_the_boot_loader() {
    let mut unit = unit("factory = \"erased\"");
    unit.set_configuration(0);
    unit.bus_reset();
    unit.set_configuration(1);
    assert_eq!(replies(&mut unit), (Reply::Silent, Reply::Silent));
}

#[test]
fn the_boot_loader_answers_what_its_document_lists_and_refuses_the_rest() {
    let mut port = port(unit("factory = \"no-image\"\nbehind = { ssd = { bytes = 4096 } }"));
    let mut bridge = port.open().unwrap();
    assert!(bridge.inquiry().is_ok());
    assert!(!bridge.is_ready().unwrap());
    assert_eq!(sense_of(bridge.read_capacity(Lun::ZERO)), "5/20/00 (invalid command operation code)");
    assert_eq!(sense_of(bridge.read16(0, &mut [0; 512])), "5/20/00 (invalid command operation code)");
    assert_eq!(sense_of(bridge.read_config(BlockIndex::Zero)), "5/20/00 (invalid command operation code)");
    assert_eq!(sense_of(bridge.firmware_version()), "5/20/00 (invalid command operation code)");
    for opcode in [0x1A, 0x1B, 0x1E, 0x35, 0xA0, 0xE5, 0xE6] {
        let cdb = Cdb::new(&[opcode, 0, 0, 0, 0, 0]).unwrap();
        let end = bridge.transport_mut().execute(&cdb, DataPhase::None, TIMEOUT).unwrap();
        assert_eq!(
            end.sense.map(|sense| sense.to_string()).as_deref(),
            Some("5/20/00 (invalid command operation code)")
        );
    }
}

#[test]
fn without_a_configuration_block_the_identity_is_the_chips_own() {
    let mut unit = unit("");
    unit.flash_mut().program(FlashAddress(0x7F), &[0]).unwrap();
    unit.unplug();
    unit.plug_in();
    assert_eq!(unit.descriptors().identity.id, UsbId::STOCK);
    assert_eq!(unit.descriptors().identity.product, "ASM246X");
}

#[test]
fn flashing_over_bulk_only_halt_and_power_bring_the_unit_back_as_what_was_flashed() {
    let image = patched_image();
    let file = image.to_file();
    let mut port = port(unit("factory = \"no-image\""));
    assert_eq!(port.attached().unwrap().state, BridgeState::BootLoader);

    let mut bridge = port.open().unwrap();
    let [mut zero, one] = asm2464::firmware::known_blocks();
    zero.set_text(ConfigField::Serial, "MYDOCK").unwrap();
    bridge.write_config(BlockIndex::Zero, zero.bytes()).unwrap();
    bridge.write_config(BlockIndex::One, one.bytes()).unwrap();
    for part in Part::ALL {
        bridge.write_flash(part, part.of(&file)).unwrap();
    }
    assert!(bridge.read_config(BlockIndex::Zero).is_err(), "the boot loader does not read");
    bridge.reset(ResetMode::Halt).unwrap();
    assert!(bridge.is_ready().is_err(), "a bridge opened before the reset is gone");
    assert_eq!(port.wait_for_return(Duration::ZERO, Interrupt::never()).unwrap(), None, "it needs a power cycle");
    assert!(port.attached().is_err());
    port.unit().lock().replug();

    let attached = returned(&mut port);
    assert_eq!((attached.id, attached.state), (UsbId::PATCHED, BridgeState::Vendor));
    assert_eq!(attached.serial(), "MYDOCK");
    let mut bridge = port.open().unwrap();
    assert_eq!(bridge.firmware_version().unwrap(), image.version());
    let mut read = vec![0; file.len()];
    let (first, second) = read.split_at_mut(0xFF00);
    bridge.read_flash(Part::One, first).unwrap();
    bridge.read_flash(Part::Two, second).unwrap();
    assert_eq!(Image::parse(&read).unwrap(), image);
    let block = bridge.read_config(BlockIndex::One).unwrap();
    assert_eq!(ConfigBlock::parse(BlockIndex::One, &block).unwrap(), one);
}

#[test]
fn power_lost_while_part_2_is_written_ends_in_the_boot_loader_and_flashing_again_recovers() {
    let file = practice::image().to_file();
    let mut port = port(unit("power-loss-after = 80000\nback-after-ms = 1"));
    let mut bridge = port.open().unwrap();
    let blocks = BlockIndex::ALL.map(|index| bridge.read_config(index).unwrap());
    // Block 0 goes first: writing it makes the firmware erase the slot.
    for index in BlockIndex::ALL {
        bridge.write_config(index, &blocks[usize::from(index.number())]).unwrap();
    }
    bridge.write_flash(Part::One, Part::One.of(&file)).unwrap();
    assert!(bridge.write_flash(Part::Two, Part::Two.of(&file)).is_err());
    let attached = returned(&mut port);
    assert_eq!(attached.state, BridgeState::BootLoader);
    let mut bridge = port.open().unwrap();
    for part in Part::ALL {
        bridge.write_flash(part, part.of(&file)).unwrap();
    }
    bridge.reset(ResetMode::Halt).unwrap();
    port.unit().lock().replug();
    let attached = returned(&mut port);
    assert_eq!(attached.state, BridgeState::Vendor, "the configuration blocks are still the unit's own");
}

#[test]
fn the_state_that_the_scenario_names_comes_up() {
    let state = |toml: &str| port(unit(toml)).attached().unwrap().state;
    assert_eq!(state("state = \"boot-loader\""), BridgeState::BootLoader);
    let open = Scenario::parse("factory = \"open\"").unwrap();
    let open = VirtualUnit::in_memory(open, &[], None).unwrap();
    assert_eq!(port(open).attached().unwrap().state, BridgeState::OpenFirmware);
    assert!(port(unit("state = \"absent\"")).attached().is_err());
}

#[test]
fn a_unit_that_is_unplugged_is_gone_until_it_is_plugged_in_again() {
    let mut port = port(unit(""));
    let mut bridge = port.open().unwrap();
    port.unit().lock().unplug();
    assert!(bridge.is_ready().is_err());
    assert!(port.attached().is_err());
    assert_eq!(port.wait_for_return(Duration::ZERO, Interrupt::never()).unwrap(), None);
    port.unit().lock().plug_in();
    assert!(port.wait_for_return(TIMEOUT, Interrupt::never()).unwrap().is_some());
    assert!(bridge.is_ready().is_err());
    assert!(port.open().unwrap().inquiry().is_ok());
}

#[test]
fn a_unit_that_erases_is_busy_as_long_as_the_scenario_says() {
    let [block, _] = asm2464::firmware::known_blocks();
    for behind in UNITS {
        let an_hour = format!("{behind}[timing]\nerase-sector-ms = 3600000");
        let mut bridge = port(unit(&an_hour)).open().unwrap();
        let error = bridge.write_config(BlockIndex::Zero, block.bytes()).unwrap_err();
        assert!(is_timeout(&error), "{error}");
        let moments = format!("{behind}[timing]\nerase-sector-ms = 1\nprogram-page-us = 1\ncommand-us = 1");
        port(unit(&moments)).open().unwrap().write_config(BlockIndex::Zero, block.bytes()).unwrap();
    }
}

#[test]
fn a_flash_that_is_busy_again_and_again_keeps_a_command_waiting_and_loses_none() {
    let busy = "[timing]\nerase-sector-ms = 1\nprogram-page-us = 30\ncommand-us = 1000";
    let mut bridge = port(unit(busy)).open().unwrap();
    for index in BlockIndex::ALL {
        let block = &asm2464::firmware::known_blocks()[usize::from(index.number())];
        bridge.write_config(index, block.bytes()).unwrap();
    }
    let file = practice::image().to_file();
    for part in Part::ALL {
        bridge.write_flash(part, part.of(&file)).unwrap();
    }
    let mut found = vec![0; Part::One.max_len()];
    bridge.read_flash(Part::One, &mut found).unwrap();
    assert!(found == Part::One.of(&file));
}

#[test]
fn a_unit_that_is_unplugged_keeps_what_its_flash_had_finished() {
    for (never_done, state) in [
        ("[timing]\nerase-sector-ms = 3600000", BridgeState::Vendor),
        ("[timing]\nprogram-page-us = 3600000000", BridgeState::BootLoader),
    ] {
        let unit = SharedUnit::new(unit(never_done));
        let mut bridge =
            Bridge::new(Box::new(BulkOnly::new(VirtualPipes::open(&unit).unwrap()).unwrap()), BridgeState::Vendor);
        let block = bridge.read_config(BlockIndex::Zero).unwrap();
        bridge.write_config(BlockIndex::Zero, &block).unwrap_err();
        unit.lock().unplug();
        unit.lock().plug_in();
        assert_eq!(unit.lock().descriptors().state, state, "{never_done}");
    }
}

/// Writes `image` with the unit's own blocks, under the patched identity, and resets the CPU.
fn flash_and_reset(port: &mut VirtualPort, image: &Image) {
    let mut bridge = port.open().unwrap();
    let [zero, one] = BlockIndex::ALL.map(|index| bridge.read_config(index).unwrap());
    let mut zero = ConfigBlock::parse(BlockIndex::Zero, &zero).unwrap();
    zero.set_number(ConfigField::VendorId, 0xADD1).unwrap();
    zero.set_number(ConfigField::ProductId, 1).unwrap();
    bridge.write_config(BlockIndex::Zero, zero.bytes()).unwrap();
    bridge.write_config(BlockIndex::One, &one).unwrap();
    let file = image.to_file();
    for part in Part::ALL {
        bridge.write_flash(part, part.of(&file)).unwrap();
    }
    bridge.reset(ResetMode::CpuReset).unwrap();
}

/// Whether the running code has the status patch, which answers a write at once.
fn runs_patched_code(port: &mut VirtualPort) -> bool {
    let mut bridge = port.open_over(Some(TransportKind::UasStreams)).unwrap();
    bridge.initialise().unwrap();
    bridge.write16(0, &[0; 512]).is_ok()
}

#[test]
fn a_cpu_reset_loads_the_code_from_flash_or_keeps_it_as_the_scenario_says() {
    for (scenario, loads) in [("cpu-reset = \"loads-code\"", true), ("", false)] {
        let mut port = port(unit(scenario));
        flash_and_reset(&mut port, &patched_image());
        let attached = returned(&mut port);
        assert_eq!(attached.id, UsbId::PATCHED, "the start-up code reads the configuration: {scenario}");
        assert_eq!(runs_patched_code(&mut port), loads, "{scenario}");
        port.unit().lock().replug();
        returned(&mut port);
        assert!(runs_patched_code(&mut port), "after a power cycle it runs what its flash holds");
    }
}

#[test]
fn a_unit_that_keeps_its_code_survives_a_cpu_reset_with_its_flash_erased() {
    let mut port = port(unit(""));
    let mut bridge = port.open().unwrap();
    let zero = bridge.read_config(BlockIndex::Zero).unwrap();
    bridge.write_config(BlockIndex::Zero, &zero).unwrap();
    bridge.reset(ResetMode::CpuReset).unwrap();
    assert_eq!(returned(&mut port).state, BridgeState::Vendor);
    port.open().unwrap().reset(ResetMode::CpuReset).unwrap();
    assert_eq!(returned(&mut port).state, BridgeState::Vendor);
    port.unit().lock().replug();
    assert_eq!(returned(&mut port).state, BridgeState::BootLoader);
}

/// A byte of XDATA that the practice images never touch. A boot stub stores there what to do after the reset.
const KEPT: XdataAddress = XdataAddress::main(0x5FF8);

/// Restarts a unit with open firmware through 0xCC31. It does not answer the request.
fn restart_by_register(port: &mut VirtualPort) {
    port.open_control().unwrap().xdata_write(XdataAddress::main(0xCC31), 1).unwrap_err();
    returned(port);
}

#[test]
fn a_cpu_reset_through_its_register_keeps_xdata_and_code_or_neither() {
    for (scenario, keeps) in [("", true), ("cpu-reset = \"loads-code\"\n", false)] {
        let unit = Scenario::parse(&format!("{scenario}factory = \"open\"")).unwrap();
        let mut port = port(VirtualUnit::in_memory(unit, b"a unit", None).unwrap());
        port.open_control().unwrap().xdata_write(KEPT, 0x5A).unwrap();
        // The length at the start of the image: without it only the boot loader can start.
        port.unit().lock().flash_mut().program(FlashAddress(0x100), &[0; 4]).unwrap();
        restart_by_register(&mut port);
        if keeps {
            let mut kept = [0];
            port.open_control().unwrap().xdata_read(KEPT, &mut kept).unwrap();
            assert_eq!(kept, [0x5A]);
            restart_by_register(&mut port);
        }
        let state = if keeps { BridgeState::OpenFirmware } else { BridgeState::BootLoader };
        assert_eq!(port.attached().unwrap().state, state, "{scenario}");
        port.unit().lock().replug();
        assert_eq!(returned(&mut port).state, BridgeState::BootLoader, "{scenario}");
    }
}

#[test]
fn the_firmware_reads_the_revision_of_the_part_before_and_after_a_cpu_reset() {
    const REVISION: XdataAddress = XdataAddress::main(0xC8FF);
    for (scenario, revision) in
        [("", 0x04), ("part-revision = \"07\"\n", 0x07), ("part-revision = \"07\"\ncpu-reset = \"loads-code\"\n", 0x07)]
    {
        let unit = Scenario::parse(&format!("{scenario}factory = \"open\"")).unwrap();
        let mut port = port(VirtualUnit::in_memory(unit, b"a unit", None).unwrap());
        for _ in 0..2 {
            let mut read = [0];
            port.open_control().unwrap().xdata_read(REVISION, &mut read).unwrap();
            assert_eq!(read, [revision], "{scenario}");
            restart_by_register(&mut port);
        }
    }
}

#[test]
fn a_cpu_reset_trains_the_link_anew_and_power_trains_it_as_before() {
    let mut port = port(unit("speed = \"high\"\nspeed-after-reset = \"super\""));
    assert_eq!(port.attached().unwrap().speed, BusSpeed::High);
    port.open().unwrap().reset(ResetMode::CpuReset).unwrap();
    returned(&mut port);
    assert_eq!(port.attached().unwrap().speed, BusSpeed::Super);
    assert!(port.open_over(Some(TransportKind::UasStreams)).unwrap().inquiry().is_ok());
    port.unit().lock().replug();
    returned(&mut port);
    assert_eq!(port.attached().unwrap().speed, BusSpeed::High);
}

#[test]
fn firmware_that_gave_up_superspeed_comes_back_slow_from_a_cpu_reset_until_a_power_cycle() {
    const SUPER_SPEED: XdataAddress = XdataAddress::main(0xCC30);
    let unit = Scenario::parse("factory = \"open\"").unwrap();
    let mut port = port(VirtualUnit::in_memory(unit, b"a unit", None).unwrap());
    let speed = |port: &mut VirtualPort| port.attached().unwrap().speed;
    // Twice: what a reset finds is kept by it.
    for (written, found) in [(None, BusSpeed::Super), (Some(0), BusSpeed::High), (None, BusSpeed::High)] {
        if let Some(value) = written {
            port.open_control().unwrap().xdata_write(SUPER_SPEED, value).unwrap();
        }
        restart_by_register(&mut port);
        assert_eq!(speed(&mut port), found, "{written:?}");
    }
    port.open_control().unwrap().xdata_write(SUPER_SPEED, 1).unwrap();
    restart_by_register(&mut port);
    assert_eq!(speed(&mut port), BusSpeed::Super, "set again");
    port.open_control().unwrap().xdata_write(SUPER_SPEED, 0).unwrap();
    port.unit().lock().replug();
    returned(&mut port);
    assert_eq!(speed(&mut port), BusSpeed::Super, "powered on again");
}

#[test]
fn a_unit_can_begin_without_power_for_pcie_and_a_cpu_reset_takes_it_again() {
    const POWER: XdataAddress = XdataAddress::main(0xC656);
    let is_up = |port: &mut VirtualPort| port.open_control().unwrap().link().unwrap().is_up;
    for (scenario, begins_up) in [("", true), ("pcie-starts-off = true\n", false)] {
        let unit = Scenario::parse(&format!("{scenario}factory = \"open\"")).unwrap();
        let mut port = port(VirtualUnit::in_memory(unit, b"a unit", None).unwrap());
        for _ in 0..2 {
            assert_eq!(is_up(&mut port), begins_up, "{scenario}");
            port.open_control().unwrap().xdata_write(POWER, 0x20).unwrap();
            assert!(is_up(&mut port), "{scenario}");
            restart_by_register(&mut port);
        }
    }
}

#[test]
fn a_unit_is_unplugged_once_when_the_scenario_says_and_is_back_when_it_says() {
    let mut unit = unit("unplug-after-us = 0\nback-after-ms = 0");
    assert!(unit.is_attached());
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &[0; 31]), Reply::Gone);
    assert_eq!((unit.is_attached(), unit.attachments()), (false, 1));
    unit.poll();
    assert_eq!((unit.is_attached(), unit.attachments()), (true, 2));
    assert_ne!(unit.bulk_out(Endpoint::DataOut, 0, &[0; 31]), Reply::Gone);
}
