//! A virtual unit whose flash takes time for each page.

use asm2464::firmware::{BlockIndex, Part};
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{Scenario, Timing, VirtualPort, VirtualUnit};
use asm2464_host::bridge::Port as _;

#[test]
fn a_flash_that_is_busy_again_and_again_keeps_a_command_waiting_and_loses_none() {
    let timing = Timing { erase_sector_ms: 1, program_page_us: 30, command_us: 1000, ..Timing::default() };
    let scenario = Scenario { timing, ..Scenario::default() };
    let unit = VirtualUnit::in_memory(scenario, b"busy", None).unwrap();
    let mut port = VirtualPort::new("busy", unit);
    let mut bridge = port.open().unwrap();
    let blocks = BlockIndex::ALL.map(|index| bridge.read_config(index).unwrap());
    let file = practice::image().to_file();
    for (index, block) in BlockIndex::ALL.into_iter().zip(&blocks) {
        bridge.write_config(index, block).unwrap();
    }
    for part in Part::ALL {
        bridge.write_flash(part, part.of(&file)).unwrap();
    }
    let mut found = vec![0; Part::One.max_len()];
    bridge.read_flash(Part::One, &mut found).unwrap();
    assert!(found == Part::One.of(&file));
}
