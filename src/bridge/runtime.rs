//! Initialisation of a unit for WRITE(16) as a GPU runtime does it, if there is no SSD behind the bridge.

use super::client::Bridge;
use super::command_error::CommandError;
use super::survey::INITIALISED_AT;
use super::transport::Transport;
use super::workload::DataPhase;
use crate::scsi::runtime::{COUNTERS, INITIALISATION, freeing};
use crate::scsi::{Command, ScsiStatus, Sense, SenseKey, XdataAddress};

impl<T: Transport> Bridge<T> {
    /// Initialises the bridge for WRITE(16) as a GPU runtime does. Call it only if [`Bridge::has_no_medium`] returns
    /// `true`.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn initialise(&mut self) -> Result<(), CommandError> {
        INITIALISATION.iter().try_for_each(|&(at, value)| self.xdata_write(XdataAddress::main(at), value))
    }

    /// Frees the SRAM after a WRITE(16) of `written` bytes, and clears the counters that it leaves.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn free_slots(&mut self, written: usize) -> Result<(), CommandError> {
        let mut all = freeing(written).chain(COUNTERS);
        all.try_for_each(|(at, value)| self.xdata_write(XdataAddress::main(at), value))
    }

    /// Whether READ CAPACITY and E6 both answer 2/3A (medium not present) on a unit that is not initialised. WRITE(16)
    /// can't reach an SSD then.
    ///
    /// # Errors
    /// [`CommandError`] if the unit left the bus, or does not recover after a command that it did not answer.
    pub fn has_no_medium(&mut self) -> Result<bool, CommandError> {
        for at in INITIALISED_AT {
            if self.xdata_byte(at)? != 0 {
                return Ok(false);
            }
        }
        let capacity = self.answers_no_medium(Command::ReadCapacity10, &mut [0; 8])?;
        Ok(capacity && self.answers_no_medium(Command::NvmeIdentifyController, &mut [0; 4096])?)
    }

    fn answers_no_medium(&mut self, command: Command, buffer: &mut [u8]) -> Result<bool, CommandError> {
        let timeout = self.timeouts().short;
        match self.execute(command, DataPhase::In(buffer), timeout) {
            Ok(completion) => Ok(completion.status == ScsiStatus::CheckCondition
                && completion.sense.is_some_and(|Sense { key, asc, .. }| {
                    key == SenseKey::NOT_READY && asc == Sense::MEDIUM_NOT_PRESENT.asc
                })),
            Err(error) if error.is_timeout() => self.recover().map(|()| false),
            Err(error) => Err(error.into()),
        }
    }
}
