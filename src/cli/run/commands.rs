//! The commands of `run --cdb`: their data, the transport that they go over, and their answers.

use std::path::PathBuf;

use crate::failure::AnyFailure;
use asm2464::firmware::{BridgeState, UAS_CLASS};
use asm2464::scsi::bot::Direction;
use asm2464::scsi::{Cdb, DataLength};
use asm2464_chip::chip::boot::Enumerated;
use asm2464_chip::chip::{Driver, Ending, Outcome, Unanswered};
use asm2464_chip::mcu::MemoryFlash;
use thiserror::Error;

use super::report::CommandReport;
use super::{Args, hex};
use crate::cli::device::TransportArg;
use crate::cli::input;

/// The longest data-out of any command: E3 of part 2.
const MAX_DATA_OUT: usize = 0x1_0000;

/// Reasons a command can't be sent.
#[derive(Debug, Error)]
enum CommandError {
    #[error("{}: the image is open firmware, which takes no SCSI commands", path.display())]
    NoScsi { path: PathBuf },
    #[error("{}: the image does not offer UAS", path.display())]
    NoUas { path: PathBuf },
    #[error("--in says what a Bulk-Only host asks for, and --cdb goes over UAS")]
    InOverUas,
    #[error("the command takes {expected} bytes of data-out, and there is no --data-out")]
    NoDataOut { expected: u32 },
    #[error("{}: {found} bytes of data-out, expected exactly {expected}", path.display())]
    DataOutLength { path: PathBuf, expected: u32, found: usize },
    /// More files of data than commands that take some.
    #[error("{files} --data-out for {taking} commands that take data")]
    DataOutLeft { files: usize, taking: usize },
}

asm2464::coded!(CommandError {
    NoScsi => Usage "asmpatch::run::no_scsi",
    NoUas => Usage "asmpatch::run::no_uas",
    InOverUas => Usage "asmpatch::run::in_over_uas",
    NoDataOut => Usage "asmpatch::run::no_data_out",
    DataOutLength => BadInput "asmpatch::run::data_out_length",
    DataOutLeft => Usage "asmpatch::run::data_out_left",
});

/// One command, ready to be sent.
pub(super) struct PlannedCommand {
    cdb: Cdb,
    data: Moves,
}

/// What a command moves.
enum Moves {
    /// How many bytes a Bulk-Only host asks for.
    In(u32),
    Out(Vec<u8>),
}

/// Determines what each command moves: what its CDB says, otherwise `--in` and `--data-out`.
///
/// # Errors
/// Fails if a command's data is missing, has another length than the CDB says, or can't be read.
pub(super) fn planned(args: &Args) -> Result<Vec<PlannedCommand>, AnyFailure> {
    let mut files = args.data_out.iter();
    let mut planned = Vec::new();
    for cdb in &args.cdb {
        let data = match DataLength::of(cdb) {
            Some(DataLength::Out(expected)) => {
                let path = files.next().ok_or(CommandError::NoDataOut { expected })?;
                let bytes = input::read(path, MAX_DATA_OUT)?;
                if bytes.len() != expected as usize {
                    let found = bytes.len();
                    return Err(CommandError::DataOutLength { path: path.clone(), expected, found }.into());
                }
                Moves::Out(bytes)
            }
            // A command of the firmware's own.
            None => match files.next() {
                Some(path) => Moves::Out(input::read(path, MAX_DATA_OUT)?),
                None => Moves::In(args.data_in.unwrap_or(0)),
            },
            Some(says) => Moves::In(args.data_in.unwrap_or(says.bytes())),
        };
        planned.push(PlannedCommand { cdb: *cdb, data });
    }
    let left = files.count();
    if left > 0 {
        let files = args.data_out.len();
        return Err(CommandError::DataOutLeft { files, taking: files - left }.into());
    }
    Ok(planned)
}

/// Whether the commands go over UAS.
///
/// # Errors
/// Fails if the unit takes no SCSI commands, or none as the options want.
pub(super) fn is_over_uas(args: &Args, unit: &Enumerated) -> Result<bool, AnyFailure> {
    let path = || args.file.clone();
    if unit.state == BridgeState::OpenFirmware {
        return Err(CommandError::NoScsi { path: path() }.into());
    }
    let is_uas = match (args.transport, unit.classes.contains(&UAS_CLASS)) {
        (TransportArg::Uas, false) => return Err(CommandError::NoUas { path: path() }.into()),
        (TransportArg::Bot, _) => false,
        (_, offered) => offered,
    };
    if is_uas && args.data_in.is_some() {
        return Err(CommandError::InOverUas.into());
    }
    Ok(is_uas)
}

impl PlannedCommand {
    /// Sends the command, and lets the firmware do what it does after the status.
    pub(super) fn send(&self, driver: &mut Driver<MemoryFlash>) -> Result<CommandReport, Unanswered> {
        let begun = driver.chip.instructions();
        let (len, direction, out) = match &self.data {
            Moves::In(len) => (*len, Direction::In, &[][..]),
            Moves::Out(bytes) => (bytes.len() as u32, Direction::Out, bytes.as_slice()),
        };
        driver.begin(self.cdb.as_slice(), len, direction)?;
        let mut answer = driver.finish(out)?;
        let instructions = driver.chip.instructions() - begun;
        if answer.ending == Ending::Check(None) {
            answer.ending = Ending::Check(driver.request_sense()?);
        }
        let after = match answer.ending {
            Ending::Good if driver.settle() == Outcome::Reset => ", then the CPU is reset",
            Ending::Good if !driver.chip.is_on_bus() => ", then the unit leaves the bus",
            _ => "",
        };
        Ok(CommandReport {
            cdb: self.cdb.to_string(),
            status: format!("{}{after}", answer.ending),
            sense: match answer.ending {
                Ending::Check(Some(sense)) => Some(format!("{:X}/{:02X}/{:02X}", sense.key.0, sense.asc, sense.ascq)),
                _ => None,
            },
            residue: answer.residue,
            data: hex(&answer.data),
            instructions,
        })
    }
}
