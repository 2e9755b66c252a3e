//! The commands of `run --cdb`: their data, the transport that they go over, and their answers.

use asm2464::firmware::{BridgeState, UAS_CLASS};
use asm2464::scsi::bot::Direction;
use asm2464::scsi::{Cdb, DataLength};
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_chip::chip::boot::Enumerated;
use asm2464_chip::chip::{Driver, Ending, RunEnd, Unanswered};

use super::report::CommandReport;
use super::{Args, hex};
use crate::cli::given::arguments::TransportArg;
use crate::cli::given::user_files;

/// The longest data-out of any command, in bytes: E3 of part 2.
const MAX_DATA_OUT: usize = 0x1_0000;

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
                let path = files.next().ok_or_else(|| {
                    let label = Kind::Usage.code("asmpatch::run::no_data_out");
                    let message = format!("the command takes {expected} bytes of data-out, and there is no --data-out");
                    Failure::new(label, message)
                })?;
                let bytes = user_files::read(path, MAX_DATA_OUT)?;
                if bytes.len() != expected as usize {
                    let (shown, found) = (path.display(), bytes.len());
                    let label = Kind::BadInput.code("asmpatch::run::data_out_length");
                    let message = format!("{shown}: {found} bytes of data-out, expected exactly {expected}");
                    return Err(Failure::new(label, message).into());
                }
                Moves::Out(bytes)
            }
            // A command of the firmware's own, whose CDB doesn't say what it moves.
            None => match files.next() {
                Some(path) => Moves::Out(user_files::read(path, MAX_DATA_OUT)?),
                None => Moves::In(args.data_in.unwrap_or(0)),
            },
            Some(says) => Moves::In(args.data_in.unwrap_or(says.bytes())),
        };
        planned.push(PlannedCommand { cdb: *cdb, data });
    }
    let left = files.count();
    if left > 0 {
        let (files, taking) = (args.data_out.len(), args.data_out.len() - left);
        let label = Kind::Usage.code("asmpatch::run::data_out_left");
        return Err(Failure::new(label, format!("{files} --data-out for {taking} commands that take data")).into());
    }
    Ok(planned)
}

/// Whether the commands go over UAS.
///
/// # Errors
/// Fails if the unit takes no SCSI commands, or doesn't offer what the options require.
pub(super) fn is_over_uas(args: &Args, unit: &Enumerated) -> Result<bool, AnyFailure> {
    let path = args.file.display();
    if unit.state == BridgeState::OpenFirmware {
        let label = Kind::Usage.code("asmpatch::run::no_scsi");
        let message = format!("{path}: the image is open firmware, which takes no SCSI commands");
        return Err(Failure::new(label, message).into());
    }
    let is_uas = match (args.transport, unit.classes.contains(&UAS_CLASS)) {
        (TransportArg::Uas, false) => {
            let label = Kind::Usage.code("asmpatch::run::no_uas");
            return Err(Failure::new(label, format!("{path}: the image does not offer UAS")).into());
        }
        (TransportArg::Bot, _) => false,
        (_, offered) => offered,
    };
    if is_uas && args.data_in.is_some() {
        let label = Kind::Usage.code("asmpatch::run::in_over_uas");
        let message = "--in says what a Bulk-Only host asks for, and --cdb goes over UAS";
        return Err(Failure::new(label, message).into());
    }
    Ok(is_uas)
}

impl PlannedCommand {
    /// Sends the command, and lets the firmware do what it does after the status.
    pub(super) fn send(&self, driver: &mut Driver) -> Result<CommandReport, Unanswered> {
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
            Ending::Good if driver.settle() == RunEnd::Reset => ", then the CPU is reset",
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
