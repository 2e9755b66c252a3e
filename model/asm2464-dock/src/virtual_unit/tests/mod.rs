//! The unit as users see it. The modules follow the wire: power, Bulk-Only, UAS, faults, random input.

mod anything;
mod bulk_only;
mod fault;
mod folder;
mod power;
mod uas;

use std::time::Duration;

use asm2464::firmware::Image;
use asm2464::scsi::Command;
use asm2464::scsi::bot::{CommandBlockWrapper, Direction};
use asm2464_chip::practice;
use asm2464_host::bridge::{Bridge, BulkOnly, CommandError, Endpoint, Port, TransportError, TransportErrorKind};

use super::{Reply, Scenario, SharedUnit, VirtualPipes, VirtualPort, VirtualUnit};

/// A unit with an SSD, which its image drives.
const SSD: &str = "behind = { ssd = { bytes = 1048576 } }\n";
/// A unit in its boot loader, which is native code.
const BOOT_LOADER: &str = "state = \"boot-loader\"\n";
/// A unit whose image answers on the chip, and one in its boot loader.
const UNITS: [&str; 2] = ["", BOOT_LOADER];

const TIMEOUT: Duration = Duration::from_secs(5);

fn unit(scenario: &str) -> VirtualUnit {
    unit_with(scenario, &practice::image())
}

/// Creates a unit whose image answers writes at once.
fn patched_unit(scenario: &str) -> VirtualUnit {
    unit_with(scenario, &patched_image())
}

fn unit_with(scenario: &str, image: &Image) -> VirtualUnit {
    let scenario = Scenario::parse(scenario).unwrap();
    VirtualUnit::in_memory(scenario, b"a unit", Some(&image.to_file())).unwrap()
}

fn patched_image() -> Image {
    let mut image = practice::image();
    let status = [0x7F, 0x0A, 0x22];
    let at = [0x2A0D, 0x2A0E].into_iter().find(|at| image.body()[*at as usize..][..3] == status).unwrap();
    assert!(image.replace(asm2464::firmware::BodyOffset(at + 1), &[0x05]));
    image
}

/// Creates a unit whose Bulk-Only pipes move data. The boot loader's stall of its first status is already over.
fn ready_unit(scenario: &str) -> VirtualUnit {
    let mut unit = unit(scenario);
    assert!(unit.reset_by_host(0));
    let cdb = Command::TestUnitReady.cdb();
    let ready = CommandBlockWrapper { tag: 1, transfer_length: 0, direction: Direction::In, lun: 0, cdb };
    assert_eq!(unit.bulk_out(Endpoint::DataOut, 0, &ready.to_bytes()), Reply::Done(31));
    let mut csw = [0; 13];
    if unit.bulk_in(Endpoint::DataIn, 0, &mut csw) == Reply::Stall {
        unit.clear_halt(Endpoint::DataIn);
        assert_eq!(unit.bulk_in(Endpoint::DataIn, 0, &mut csw), Reply::Done(13));
    }
    unit
}

fn bulk_only(unit: VirtualUnit) -> Bridge {
    let state = unit.descriptors().state;
    Bridge::new(Box::new(BulkOnly::new(VirtualPipes::open(&SharedUnit::new(unit)).unwrap()).unwrap()), state)
}

fn port(unit: VirtualUnit) -> VirtualPort {
    VirtualPort::new("unit", unit)
}

fn is_timeout(error: &CommandError) -> bool {
    matches!(error, CommandError::Transport(TransportError { kind: TransportErrorKind::Timeout { .. }, .. }))
}

fn sense_of<T: std::fmt::Debug>(result: Result<T, CommandError>) -> String {
    result.unwrap_err().sense().unwrap().to_string()
}

fn returned(port: &mut VirtualPort) -> asm2464_host::bridge::UnitInfo {
    port.wait_for_return(TIMEOUT, asm2464::interrupt::Interrupt::never()).unwrap().unwrap()
}
