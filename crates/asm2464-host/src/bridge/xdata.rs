//! Sequences of E4 and E5, many in flight, to drive an engine in the chip.

use std::time::Duration;

use asm2464::scsi::{Command, Lun, ScsiStatus, XdataAddress};

use super::client::Bridge;
use super::error::CommandError;
use super::transport::{CommandEnd, Job, JobData, Workload};

/// One step of a sequence.
#[derive(Debug)]
pub(crate) enum XdataStep<'a> {
    /// E5: writes one byte.
    Write(XdataAddress, u8),
    /// E4: reads at most 255 bytes.
    Read(XdataAddress, &'a mut [u8]),
}

impl Bridge {
    /// Carries out these steps in order, with as many in flight as the transport allows. The firmware executes commands
    /// in the order of arrival; the GPU runtime relies on this for the same sequences.
    ///
    /// # Errors
    /// [`CommandError`] of the first step that failed. Later steps may have been carried out.
    pub(crate) fn xdata_steps(&mut self, steps: &mut [XdataStep<'_>]) -> Result<(), CommandError> {
        let timeout = self.timeout();
        let depth = self.transport_mut().max_depth();
        let mut script = Script { steps, next: 0, failure: None };
        self.transport_mut().run(&mut script, depth, timeout)?;
        script.failure.map_or(Ok(()), Err)
    }

    /// E5: writes these bytes in order, with as many commands in flight as the transport allows.
    ///
    /// # Errors
    /// [`CommandError`] of the first write that failed. Later ones may have been carried out.
    pub fn xdata_write_all(
        &mut self,
        writes: impl IntoIterator<Item = (XdataAddress, u8)>,
    ) -> Result<(), CommandError> {
        let mut steps: Vec<_> = writes.into_iter().map(|(at, value)| XdataStep::Write(at, value)).collect();
        self.xdata_steps(&mut steps)
    }
}

/// A sequence as a workload. A job's ID is its step's number.
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
        Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data, id })
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
