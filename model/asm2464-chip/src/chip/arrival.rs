//! Waits for a unit that starts, as a host does: until it is on the bus.
//!
//! A host sees nothing of a firmware's start-up. It asks for descriptors once the unit has connected, whatever the
//! firmware does besides: some builds of the open firmware never idle, and go on with USB-C and PCIe while they answer. So
//! a firmware that waits is not what ends the start; a unit on the bus is.

use super::core::{Chip, RunEnd};
use super::timers::SECOND;

/// Time from power-on, in [`Chip::now`], within which a unit must be on the bus. asmpatch waits as long for a unit that
/// restarts before it asks the user to plug it in again.
pub const ARRIVES_WITHIN: u64 = 15 * SECOND;
/// Time that a unit must have been on the bus before a host asks it: TATTDB of USB 2.0, 7.1.7.3.
const DEBOUNCE: u64 = SECOND / 10;
/// Maximum number of resets by the firmware before it is on the bus. Open firmware with USB4 resets once, to come up over
/// USB 3.
const RESETS: usize = 4;
/// Instructions between two looks at the bus: at most a fifth of the debounce interval.
const SLICE: u64 = 1_000_000;

impl Chip {
    /// Lets the firmware start until a host would enumerate the unit: it is on the bus, and either waits for the host or
    /// has been there for 100 ms. A firmware that resets the chip starts again, with its XDATA kept. `run` runs the chip,
    /// as [`Chip::run`] does.
    ///
    /// # Errors
    /// How the last run ended, if the unit is not on the bus within `ARRIVES_WITHIN`, or never will be.
    pub fn arrive(&mut self, mut run: impl FnMut(&mut Self, u64) -> RunEnd) -> Result<(), RunEnd> {
        let until = self.now().saturating_add(ARRIVES_WITHIN);
        let mut resets = 0;
        let mut on_bus_since = None;
        loop {
            let (before, executed) = (self.now(), self.instructions());
            let end = run(self, SLICE);
            let (now, executed) = (self.now(), self.instructions() - executed);
            if !self.is_on_bus() {
                on_bus_since = None;
            } else if end == RunEnd::Parked || now - *on_bus_since.get_or_insert(now) >= DEBOUNCE {
                return Ok(());
            }
            match end {
                RunEnd::Reset if resets < RESETS => {
                    resets += 1;
                    self.reset();
                }
                RunEnd::Reset | RunEnd::Halted | RunEnd::FlashGone => return Err(end),
                // No timer is left that could wake the firmware.
                RunEnd::Parked if now == before => return Err(end),
                // The runner has ended the wait: its own budget is used up.
                RunEnd::Budget if executed < SLICE => return Err(end),
                RunEnd::Parked | RunEnd::Budget | RunEnd::Attention if now >= until => return Err(end),
                RunEnd::Parked | RunEnd::Budget | RunEnd::Attention => {}
            }
        }
    }
}
