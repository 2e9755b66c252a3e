//! Sequences of E4 and E5: many in flight to drive an engine in the chip, and those of a GPU runtime around WRITE(16).

use std::time::Duration;

use asm2464::scsi::runtime::{Variables, freeing};
use asm2464::scsi::{Command, ScsiStatus, XdataAddress};

use super::client::Bridge;
use super::command_error::CommandError;
use super::transport::Transport;
use super::workload::{CommandEnd, Job, JobData, Workload};

/// One step of a sequence.
#[derive(Debug)]
pub enum XdataStep<'a> {
    /// E5: writes one byte.
    Write(XdataAddress, u8),
    /// E4: reads at most 255 bytes.
    Read(XdataAddress, &'a mut [u8]),
}

impl<T: Transport> Bridge<T> {
    /// Carries out these steps in order, with as many in flight as the transport allows. The firmware executes commands
    /// in the order of arrival; the GPU runtime relies on this for the same sequences.
    ///
    /// # Errors
    /// [`CommandError`] of the first step that failed. Later steps may have been carried out.
    pub fn xdata_steps(&mut self, steps: &mut [XdataStep<'_>]) -> Result<(), CommandError> {
        let timeout = self.timeouts().short;
        let depth = self.transport_mut().max_depth();
        let mut script = Script { steps, next: 0, failure: None };
        self.transport_mut().run(&mut script, depth, timeout)?;
        script.failure.map_or(Ok(()), Err)
    }

    /// E5: writes these bytes in order, with as many commands in flight as the transport allows.
    ///
    /// # Errors
    /// As for [`Bridge::xdata_steps`].
    pub fn xdata_write_all(
        &mut self,
        writes: impl IntoIterator<Item = (XdataAddress, u8)>,
    ) -> Result<(), CommandError> {
        let mut steps: Vec<_> = writes.into_iter().map(|(at, value)| XdataStep::Write(at, value)).collect();
        self.xdata_steps(&mut steps)
    }

    /// Returns where the running firmware keeps the variables of the initialisation. Reads its version by E4, unless it
    /// was read before.
    ///
    /// # Errors
    /// [`CommandError::UnknownVariables`] for a version whose variables are not known.
    pub fn variables(&mut self) -> Result<Variables, CommandError> {
        let version = self.running_version()?;
        Variables::of(version).ok_or(CommandError::UnknownVariables(version))
    }

    /// Initialises the bridge for WRITE(16) as a GPU runtime does, at the addresses of its firmware's version. Call it
    /// only if [`Bridge::has_no_medium`] returns `true`.
    ///
    /// # Errors
    /// [`CommandError`]; [`CommandError::UnknownVariables`] as for [`Bridge::variables`].
    pub fn initialise(&mut self) -> Result<(), CommandError> {
        let all = self.variables()?.initialisation();
        all.iter().try_for_each(|&(at, value)| self.xdata_write(XdataAddress::main(at), value))
    }

    /// Frees the SRAM after a WRITE(16) of `written` bytes, and clears the counters that the command leaves.
    /// Only an [initialised](Self::initialise) unit takes a WRITE(16).
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn free_slots(&mut self, written: usize) -> Result<(), CommandError> {
        // `initialise` refuses an unknown version. The default is for a unit that another program has initialised.
        let variables = self.known_version().and_then(Variables::of).unwrap_or(Variables::As240417);
        let mut all = freeing(written).chain(variables.counters());
        all.try_for_each(|(at, value)| self.xdata_write(XdataAddress::main(at), value))
    }
}

struct Script<'a, 'b> {
    steps: &'a mut [XdataStep<'b>],
    next: usize,
    failure: Option<CommandError>,
}

impl Workload for Script<'_, '_> {
    fn buffer_len(&self) -> usize {
        let lens = self.steps.iter().map(|step| match step {
            XdataStep::Write(..) => 0,
            XdataStep::Read(_, buffer) => buffer.len(),
        });
        lens.max().unwrap_or(0)
    }

    fn next(&mut self, _: &mut [u8]) -> Option<Job> {
        let step = self.steps.get(self.next)?;
        let (command, data) = match step {
            XdataStep::Write(at, value) => (Command::XdataWrite { at: *at, value: *value }, JobData::None),
            XdataStep::Read(from, buffer) => {
                (Command::XdataRead { from: *from, len: buffer.len() as u16 }, JobData::In(buffer.len()))
            }
        };
        let id = self.next as u64;
        self.next += 1;
        Some(Job { cdb: command.cdb(), data, id })
    }

    fn complete(&mut self, job: &Job, completion: &CommandEnd, data: &[u8], _: Duration) -> bool {
        if completion.status != ScsiStatus::Good {
            self.failure = Some(CommandError::of_status(&job.cdb, completion.status, completion.sense));
        } else if let Some(XdataStep::Read(_, buffer)) =
            usize::try_from(job.id).ok().and_then(|at| self.steps.get_mut(at))
        {
            match data.get(..buffer.len()) {
                Some(data) => buffer.copy_from_slice(data),
                None => self.failure = Some(CommandError::ShortXdata { expected: buffer.len(), found: data.len() }),
            }
        }
        self.failure.is_none()
    }
}
