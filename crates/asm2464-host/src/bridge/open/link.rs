//! The PCIe link behind a unit that runs open firmware.

use std::thread;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::tlp::{LINK_UP, LTSSM};
use tracing::info;

use super::command::OpenCommand;
use super::work::Requests;
use super::{ControlError, OpenBridge};

/// Time limit of F3, which answers after up to 2 s. Source: tinygrad's runtime, which waits as long.
const PCIE_POWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between reads of the link's state.
const TICK: Duration = Duration::from_millis(20);

impl OpenBridge {
    /// F3: switches the power of PCIe, within 10 s. This clears bus numbers and BARs.
    ///
    /// # Errors
    /// [`ControlError`]; older builds refuse it.
    pub fn pcie_power(&mut self, on: bool) -> Result<(), ControlError> {
        self.pcie_power_within(on, self.timeout.max(PCIE_POWER_TIMEOUT))
    }

    fn pcie_power_within(&mut self, on: bool, deadline: Duration) -> Result<(), ControlError> {
        self.queue.run(&mut Requests::new([OpenCommand::PciePower(on)], &mut []), 1, deadline)
    }

    /// Reads XDATA 0xB450, the LTSSM's state. Also returns whether the PCIe link is up.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn link_state(&mut self) -> Result<(u8, bool), ControlError> {
        let mut state = [0];
        self.xdata_read(LTSSM, &mut state)?;
        Ok((state[0], state[0] == LINK_UP))
    }

    /// Brings the PCIe link up, within a deadline: switches PCIe's power on with F3 unless the link is up already, and
    /// waits for it. Builds without F3 train the link at boot; this waits for that.
    ///
    /// # Errors
    /// [`ControlError::LinkDown`] with the LTSSM's state; [`ControlError::Interrupted`]; any other [`ControlError`].
    pub fn bring_link_up(&mut self, deadline: Duration, interrupt: Interrupt<'_>) -> Result<(), ControlError> {
        let begun = Instant::now();
        let (mut ltssm, mut is_up) = self.link_state()?;
        if !is_up {
            info!("the PCIe link is down ({ltssm:#04x}): PCIe power on");
            match self.pcie_power_within(true, deadline) {
                Ok(()) | Err(ControlError::Stalled { .. }) => (ltssm, is_up) = self.link_state()?,
                Err(error) => return Err(error),
            }
        }
        while !is_up {
            interrupt.check()?;
            let rest = deadline.saturating_sub(begun.elapsed());
            if rest.is_zero() {
                // Without 12 V PCIe never leaves reset. An error of C0 must not replace this one.
                let supply = self.supply().ok().flatten().and_then(|supply| supply.measured);
                return Err(ControlError::LinkDown { waited: deadline, ltssm, supply });
            }
            thread::sleep(rest.min(TICK));
            (ltssm, is_up) = self.link_state()?;
        }
        Ok(())
    }
}
