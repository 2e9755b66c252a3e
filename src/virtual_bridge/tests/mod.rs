//! The unit as its users meet it. The modules follow the wire: power, Bulk-Only, UAS, faults, anything at all.

/// Runs each of these tests on each engine.
macro_rules! on_both_engines {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            use crate::virtual_bridge::Engine;

            #[test]
            fn on_the_chip() {
                super::$name(Engine::Chip);
            }

            #[test]
            fn on_the_hybrid() {
                super::$name(Engine::Hybrid);
            }
        }
    )+ };
}

mod anything;
mod bulk_only;
mod fault;
mod power;
mod uas;

use std::time::Duration;

use super::{Engine, Scenario, SharedBridge, VirtualBridge, VirtualPipes, VirtualPort};
use crate::bridge::{AnyTransport, Bridge, BulkOnly, CommandError, Port, Transport};
use crate::firmware::Image;
use crate::practice;
use crate::scsi::XdataAddress;

const TIMEOUT: Duration = Duration::from_secs(5);

fn unit(engine: Engine, scenario: &str) -> VirtualBridge {
    unit_with(engine, scenario, &practice::image())
}

/// A unit whose image answers writes at once.
fn patched_unit(engine: Engine, scenario: &str) -> VirtualBridge {
    unit_with(engine, scenario, &patched_image())
}

fn unit_with(engine: Engine, scenario: &str, image: &Image) -> VirtualBridge {
    let scenario = Scenario { engine, ..Scenario::parse(scenario).unwrap() };
    VirtualBridge::in_memory(scenario, b"a unit", Some(&image.to_file())).unwrap()
}

/// Tells the unit as a GPU runtime does that it takes writes: without that the practice image has no medium, as the
/// vendor's has none. SET_INTERFACE undoes it.
fn initialise<T: Transport>(bridge: &mut Bridge<T>) {
    for (addr, value) in [(0x054B, 0x20), (0x054E, 0x04), (0x05A8, 0x02), (0x05F8, 0x04), (0x07EF, 0x00)] {
        bridge.xdata_write(XdataAddress::main(addr), value).unwrap();
    }
}

/// The bridge over UAS, initialised.
fn initialised(port: &mut VirtualPort) -> Bridge<AnyTransport> {
    let mut bridge = Bridge::new(port.uas().unwrap().unwrap());
    initialise(&mut bridge);
    bridge
}

fn patched_image() -> Image {
    let mut image = practice::image();
    let status = [0x7F, 0x0A, 0x22];
    let at = [0x2A0D, 0x2A0E].into_iter().find(|at| image.body()[*at as usize..][..3] == status).unwrap();
    assert!(image.replace(crate::firmware::BodyOffset(at + 1), &[0x05]));
    image
}

fn bulk_only(unit: VirtualBridge) -> Bridge<BulkOnly<VirtualPipes>> {
    Bridge::new(BulkOnly::new(VirtualPipes::open(&SharedBridge::new(unit)).unwrap()).unwrap())
}

fn port(unit: VirtualBridge) -> VirtualPort {
    VirtualPort::new("virtual".to_owned(), unit)
}

fn sense_of<T: std::fmt::Debug>(result: Result<T, CommandError>) -> String {
    result.unwrap_err().sense().unwrap().to_string()
}

fn returned(port: &mut VirtualPort) -> crate::bridge::Attached {
    port.wait_for_return(TIMEOUT, crate::interrupt::Interrupt::never()).unwrap().unwrap()
}
