//! How long work on PCIe waits for a device: by the clock, until Ctrl-C.

use std::thread;
use std::time::Duration;

use crate::interrupt::Interrupt;
use crate::pcie::Patience;

impl Patience for Interrupt<'_> {
    fn wait(&mut self, milliseconds: u64) {
        thread::sleep(Duration::from_millis(milliseconds));
    }

    fn goes_on(&mut self) -> bool {
        !self.is_requested()
    }
}
