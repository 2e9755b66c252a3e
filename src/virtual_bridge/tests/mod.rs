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
use crate::bridge::{Bridge, BulkOnly, CommandError, Port};
use crate::firmware::Image;
use crate::practice;

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
