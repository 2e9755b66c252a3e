//! Every direction between vendor firmware, open firmware and the boot loader, and every point at which a write through
//! registers can stop. The tests compare the flash file byte by byte.

mod faults;
#[path = "../../../../lab/openpilot.rs"]
mod openpilot;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asm2464::firmware::{BlockIndex, BridgeState, ConfigBlock, ConfigField, Image};
use asm2464::flash::{RegisterError, SLOT_LEN, Slot};
use asm2464::interrupt::Interrupt;
use asm2464_chip::practice;
use asm2464_host::bridge::{ControlError, Port};
use asmpatch::flash::access::Access;
use asmpatch::flash::backup_folder;
use asmpatch::flash::behaviour::StartedCode;
use asmpatch::flash::error::FlashError;
use asmpatch::flash::plan::FlashPlan;
use asmpatch::flash::progress::{FlashEvent, FlashStep, StoppedState};
use asmpatch::flash::recovery::{BackupFirst, FlashFailure, InvokedCommand, Writes, WrittenUnit};
use asmpatch::flash::run::{FlashReport, Stopped, run};
use asmpatch::patch::Patched;

use asmpatch::cli;
use asmpatch::cli::steps::{self, WordedStep};
use asmpatch::patch::ConfigEdits;

use crate::chip_images;
use crate::program::flash::rig::{Rig, patched, patched_of, plan, proved};
use crate::side_by_side;

#[cfg(unix)]
use crate::program::flash::rig::{asmpatch, flashing};

/// An image, and its changes to the configuration blocks.
struct Wanted {
    image: Image,
    edits: ConfigEdits,
}

fn unedited(image: Image) -> Wanted {
    Wanted { image, edits: ConfigEdits::default() }
}

fn edited(Patched { image, receipt }: Patched) -> Wanted {
    Wanted { image, edits: receipt.config }
}

fn stock() -> Wanted {
    unedited(practice::image())
}

fn with_patches() -> Wanted {
    edited(patched())
}

fn open() -> Wanted {
    unedited(practice::open_image())
}

/// An open image as long as tinygrad's.
fn long_open() -> Wanted {
    let mut body = practice::open_image().body().to_vec();
    body.resize(8_000, 0x22);
    unedited(Image::from_body(body).unwrap())
}

impl Wanted {
    /// The slot after flashing this image to a unit with the slot `before`.
    fn slot(&self, before: &[u8]) -> Vec<u8> {
        let block = |index, at: usize| ConfigBlock::parse(index, before[at..at + 128].try_into().unwrap()).unwrap();
        let mut blocks = [block(BlockIndex::Zero, 0), block(BlockIndex::One, 128)];
        self.edits.apply(&mut blocks).unwrap();
        let [zero, one] = blocks;
        Slot::of([zero.bytes(), one.bytes()], &self.image.to_file()).bytes().to_vec()
    }
}

/// Flashes with the configuration blocks of the backup in `config_from`, if any.
fn flash_with(rig: &Rig, wanted: &Wanted, config_from: Option<&Path>) -> Result<FlashReport, Box<Stopped>> {
    let mut port = rig.port();
    let attached = port.attached().unwrap();
    let is_readable = attached.state != BridgeState::BootLoader;
    let blocks = Access::open(&mut port).unwrap().blocks(attached.state).unwrap();
    let config = config_from.map(|folder| backup_folder::load(folder).unwrap());
    let plan = FlashPlan::flash(attached, blocks, config.as_ref(), None, &proved(&wanted.image), |blocks| {
        wanted.edits.apply(blocks)
    });
    let options = rig.options(is_readable && config_from.is_none());
    run(&mut port, &plan.unwrap(), &options, &mut (), Interrupt::never())
}

fn flash(rig: &Rig, wanted: &Wanted) -> Result<FlashReport, Box<Stopped>> {
    flash_with(rig, wanted, None)
}

fn state(rig: &Rig) -> BridgeState {
    rig.port().attached().unwrap().state
}

#[test]
fn every_direction_leaves_exactly_the_image_and_the_units_own_configuration() {
    every_direction(stock, with_patches, open);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE and ASMPATCH_OPEN_IMAGE"]
fn every_direction_between_the_vendors_image_and_tinygrads_is_as_exact() {
    let vendor = chip_images::vendor;
    let patched = || edited(patched_of(&vendor(), false));
    every_direction(|| unedited(vendor()), patched, || unedited(chip_images::open()));
}

fn every_direction(stock: impl Fn() -> Wanted, patched: impl Fn() -> Wanted, open: impl Fn() -> Wanted) {
    use BridgeState::{OpenFirmware, Vendor};
    let rig = Rig::new("port-power = true\n");
    let mut before = rig.cells();
    let steps =
        [(open(), OpenFirmware), (patched(), Vendor), (open(), OpenFirmware), (stock(), Vendor), (patched(), Vendor)];
    for (number, (wanted, becomes)) in steps.into_iter().enumerate() {
        let was = state(&rig);
        let report = flash(&rig, &wanted).unwrap_or_else(|stopped| panic!("{number}: {stopped:?}"));
        let after = rig.cells();
        assert!(after[..SLOT_LEN] == wanted.slot(&before), "{number}: the slot");
        assert!(after[SLOT_LEN..] == before[SLOT_LEN..], "{number}: behind it");
        assert_eq!(report.after.unwrap().state, becomes, "{number}");
        if was != becomes {
            assert_eq!((report.runs, report.needs_power), (Some(StartedCode::Written), false), "{number}");
        }
        assert_eq!(state(&rig), becomes, "{number}");
        before = after;
    }
    // From the boot loader to each firmware.
    side_by_side([(open(), OpenFirmware), (stock(), Vendor), (patched(), Vendor)], |(wanted, becomes)| {
        let rig = Rig::new("factory = 'no-image'\nport-power = true\n");
        let blocks = rig.cells();
        assert_eq!(state(&rig), BridgeState::BootLoader);
        let shown = rig.port().attached().unwrap().serial().to_owned();
        let report = flash(&rig, &wanted).unwrap();
        assert_eq!(report.runs, Some(StartedCode::Written));
        assert_eq!(report.after.unwrap().state, becomes);
        // The boot loader can't read the unit's blocks, so the known blocks are written, with the number that it shows.
        let [mut zero, one] = asm2464::firmware::known_blocks();
        zero.set_text(ConfigField::Serial, &shown).unwrap();
        let mut known = blocks.clone();
        known[..128].copy_from_slice(zero.bytes());
        known[128..256].copy_from_slice(one.bytes());
        assert!(rig.cells()[..SLOT_LEN] == wanted.slot(&known));
    });
}

#[test]
fn a_restore_brings_back_every_byte_from_either_firmware() {
    let rig = Rig::new("serial = 'DOCK7'\nport-power = true\n");
    let stock_cells = rig.cells();
    let saved = flash(&rig, &open()).unwrap().backup.unwrap();
    let open_cells = rig.cells();
    assert_eq!(state(&rig), BridgeState::OpenFirmware);
    // Open firmware is backed up through registers, vendor firmware by commands.
    let report = rig.restore(&saved, true).unwrap();
    assert!(rig.cells() == stock_cells);
    let saved_open = report.backup.unwrap();
    let backup = backup_folder::load(&saved_open).unwrap();
    assert_eq!(backup.firmware().unwrap(), practice::open_image());
    rig.restore(&saved_open, true).unwrap();
    assert!(rig.cells() == open_cells);
}

#[test]
fn open_firmware_is_restarted_through_its_register_and_power_cycled_only_if_it_answers_again() {
    let cases = [
        ("cpu-reset = 'loads-code'\nport-power = true\n", BridgeState::Vendor, StartedCode::Written, false),
        ("port-power = true\n", BridgeState::Vendor, StartedCode::Written, true),
        ("", BridgeState::OpenFirmware, StartedCode::Before, false),
    ];
    side_by_side(cases, |(scenario, becomes, runs, cycles)| {
        let rig = Rig::new(&format!("factory = 'open'\n{scenario}"));
        let report = flash(&rig, &stock()).unwrap();
        assert_eq!((report.after.unwrap().state, report.runs), (becomes, Some(runs)), "{scenario}");
        assert_eq!(report.needs_power, runs == StartedCode::Before, "{scenario}");
        let steps: Vec<_> = report.steps.iter().map(|step| step.step.as_str()).collect();
        assert!(steps.contains(&"restart"), "{scenario}: {steps:?}");
        assert_eq!(steps.contains(&"power-cycle"), cycles, "{scenario}: {steps:?}");
        assert_eq!(state(&rig), BridgeState::Vendor, "the next process finds it power-cycled");
    });
}

#[test]
#[cfg(unix)]
fn a_second_flasher_reports_that_the_unit_is_in_use_and_the_first_writes_every_byte() {
    // 24 sectors: the first flash takes 5 s.
    let rig = Rig::new("factory = 'open'\n[timing]\nerase-sector-ms = 200\n");
    let before = rig.cells();
    let goal = with_patches().slot(&before);
    let mut first = flashing(&rig);
    for words in [
        ["flash", "patched.bin", "--device", "virtual:unit"].as_slice(),
        &["config", "set", "serial=LAB-07", "--device", "virtual:unit"],
    ] {
        let second = asmpatch(rig.home.path(), words);
        assert!(first.try_wait().unwrap().is_none(), "the first flasher is still running");
        let printed = String::from_utf8_lossy(&second.stdout);
        assert_eq!(second.status.code(), Some(4), "{words:?}: {printed}");
        assert!(printed.contains("asmpatch::virtual_unit::busy"), "{words:?}: {printed}");
    }
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(rig.cells()[..SLOT_LEN] == goal);
}
