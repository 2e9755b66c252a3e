//! The commands of `run --cdb`: their data, and the transport that they go over.

use std::path::PathBuf;

use asm2464::digest::to_hex;
use asm2464::firmware::{BULK_ONLY_CLASS, BridgeState};
use asm2464::scsi::{Cdb, DataLength};
use asm2464_chip::chip::boot::Enumerated;
use asm2464_chip::chip::{Data, Driver, Unanswered};
use asm2464_chip::mcu::MemoryFlash;
use asmpatch_core::failure::AnyFailure;
use thiserror::Error;

use super::Args;
use crate::cli::exec::{ExecError, ExecTransport, MAX_DATA_OUT};
use crate::cli::input;

/// The image takes control requests only.
#[derive(Debug, Error)]
#[error("{}: the image is open firmware, which takes no SCSI commands", path.display())]
struct NoScsi {
    path: PathBuf,
}

asm2464::coded!(NoScsi => "asmpatch::run::no_scsi");

/// More files of data than commands that take some.
#[derive(Debug, Error)]
#[error("{files} --data-out for {taking} commands that take data")]
struct DataOutLeft {
    files: usize,
    taking: usize,
}

asm2464::coded!(DataOutLeft => "asmpatch::run::data_out_left");

/// One command, ready to be sent.
pub(super) struct PlannedCommand<'a> {
    pub(super) cdb: &'a [u8],
    data: Moves,
}

/// What a command moves.
enum Moves {
    In(usize),
    Out(Vec<u8>),
}

/// Determines what each command moves: what its CDB says, otherwise `--in` and `--data-out`.
///
/// # Errors
/// Fails if a command's data is missing, has another length than the CDB says, or can't be read.
pub(super) fn planned(args: &Args) -> Result<Vec<PlannedCommand<'_>>, AnyFailure> {
    let mut files = args.data_out.iter();
    let mut planned = Vec::new();
    for cdb in &args.cdb {
        let says = Cdb::new(cdb).ok().and_then(|cdb| DataLength::of(&cdb));
        let data = match says {
            Some(DataLength::Out(expected)) => {
                let path = files.next().ok_or(ExecError::NoDataOut { expected })?;
                let bytes = input::read(path, MAX_DATA_OUT)?;
                if bytes.len() != expected as usize {
                    let found = bytes.len();
                    return Err(ExecError::DataOutLength { path: path.clone(), expected, found }.into());
                }
                Moves::Out(bytes)
            }
            // A command of the firmware's own.
            None if let Some(path) = files.next() => Moves::Out(input::read(path, MAX_DATA_OUT)?),
            says => Moves::In(args.data_in.unwrap_or(says.map_or(0, DataLength::bytes)) as usize),
        };
        planned.push(PlannedCommand { cdb, data });
    }
    let left = files.count();
    if left > 0 {
        let files = args.data_out.len();
        return Err(DataOutLeft { files, taking: files - left }.into());
    }
    Ok(planned)
}

/// Returns the transport of `--transport`, otherwise the one that the unit speaks: Bulk-Only if it speaks both.
///
/// # Errors
/// Fails if the unit takes no SCSI commands.
pub(super) fn transport(args: &Args, unit: &Enumerated) -> Result<ExecTransport, AnyFailure> {
    if unit.state == BridgeState::OpenFirmware {
        return Err(NoScsi { path: args.file.clone() }.into());
    }
    let spoken = if unit.classes.contains(&BULK_ONLY_CLASS) { ExecTransport::Bot } else { ExecTransport::Uas };
    Ok(args.transport.unwrap_or(spoken))
}

/// Sends a command. Returns its status in words, and its data.
pub(super) fn send(
    transport: ExecTransport,
    driver: &mut Driver<MemoryFlash>,
    tag: u16,
    command: &PlannedCommand<'_>,
) -> Result<(String, Vec<u8>), Unanswered> {
    match transport {
        ExecTransport::Bot => {
            let data = match &command.data {
                Moves::In(0) => Data::None,
                Moves::In(len) => Data::In(*len),
                Moves::Out(bytes) => Data::Out(bytes),
            };
            let reply = driver.bulk_only(command.cdb, data)?;
            Ok((format!("CSW status {}, residue {}", reply.status, reply.residue), reply.data))
        }
        ExecTransport::Uas => {
            let out = match &command.data {
                Moves::In(_) => &[][..],
                Moves::Out(bytes) => bytes,
            };
            let reply = driver.uas(tag.clamp(1, 31), command.cdb, out)?;
            Ok((format!("unit {}", to_hex(&reply.status, " ")), reply.data))
        }
    }
}
