//! The plain responder: a unit without firmware that answers every command at a fixed cost, to measure a host's engine
//! alone.
//!
//! It is a virtual unit on whose wire native code answers (`responder.rs`, `target.rs`), under the identity that the
//! GPU runtime looks for: a disk of 32 MiB that discards writes and reads as zeros. The benchmarks run it in their own
//! process, and `lab/vm/programs/responder.rs` serves it over usbredir. No asmpatch command uses it.

#![allow(dead_code, reason = "each program uses a part of it")]

mod responder;
mod target;

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use asm2464::firmware::{ConfigField, FlashAddress, Part, known_blocks};
use asm2464::scsi::runtime::freeing;
use asm2464::scsi::{Command, Lun, ScsiStatus, XdataAddress};
use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{Factory, Identity, Scenario, VirtualUnit};
use asm2464_host::bridge::{CommandEnd, Job, JobData, Workload};
use responder::PlainResponder;
use target::Target;

/// The serial number of units whose content may be overwritten.
pub const EXPENDABLE: &str = "EXPENDABLE";
/// READ(16) and WRITE(16) cycle through the first 16 MiB.
pub const SPAN: usize = 16 << 20;
/// Bytes of a block.
pub const BLOCK: usize = 512;
/// The address that E4 reads.
const E4_AT: u16 = 0xF000;
/// The id of commands that free slots. They move none of the stream's data.
const FREEING: u64 = u64::MAX;

/// Makes a responder that sends each status at least `command_us` microseconds after the command.
///
/// # Errors
/// None with these constants.
pub fn responder(command_us: u64) -> Result<VirtualUnit, Box<dyn Error>> {
    let [mut block, _] = known_blocks();
    block.set_text(ConfigField::Serial, EXPENDABLE)?;
    let target = Target::new(Identity::configured(&block));
    let responder = PlainResponder::new(target, Duration::from_micros(command_us));
    // The practice image enumerates under the block's identity, with both transports.
    let scenario = Scenario { factory: Factory::Erased, ..Scenario::default() };
    let mut firmware = VirtualUnit::in_memory(scenario, &[], None)?;
    firmware.flash_mut().program(FlashAddress(0), block.bytes())?;
    let file = practice::image().to_file();
    for part in Part::ALL {
        firmware.flash_mut().program(part.flash_address(), part.of(&file))?;
    }
    firmware.unplug();
    firmware.plug_in();
    Ok(VirtualUnit::of_responder(Box::new(responder), firmware.descriptors().clone()))
}

/// Kind of commands in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// E4.
    E4,
    /// READ(16).
    Read,
    /// WRITE(16).
    Write,
    /// WRITE(16) of LBA 0, each followed by the E5 that free its slots, as a GPU runtime sends them. Counts only the
    /// WRITE(16).
    RuntimeWrite,
}

/// A number of commands of one kind.
pub struct Stream {
    kind: Kind,
    bytes: usize,
    remaining: u64,
    next: usize,
    freeing: VecDeque<(u16, u8)>,
    /// The first command that failed.
    pub failed: Option<CommandEnd>,
}

impl Stream {
    /// Makes a stream of commands of `bytes` each.
    pub fn new(kind: Kind, bytes: usize, commands: u64) -> Self {
        Self { kind, bytes, remaining: commands, next: 0, freeing: VecDeque::new(), failed: None }
    }

    /// Starts the stream again with another number of commands.
    pub fn restart(&mut self, commands: u64) {
        self.remaining = commands;
    }
}

impl Workload for Stream {
    fn buffer_len(&self) -> usize {
        self.bytes
    }

    fn next(&mut self, _buffer: &mut [u8]) -> Option<Job> {
        if let Some((at, value)) = self.freeing.pop_front() {
            let command = Command::XdataWrite { at: XdataAddress::main(at), value };
            return Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data: JobData::None, id: FREEING });
        }
        self.remaining = self.remaining.checked_sub(1)?;
        let (lba, blocks) = ((self.next / BLOCK) as u64, (self.bytes / BLOCK) as u32);
        let (command, data) = match self.kind {
            Kind::E4 => {
                let from = XdataAddress::main(E4_AT);
                (Command::XdataRead { from, len: self.bytes as u16 }, JobData::In(self.bytes))
            }
            Kind::Read => (Command::Read16 { lba, blocks }, JobData::In(self.bytes)),
            Kind::Write => (Command::Write16 { lba, blocks }, JobData::Out(self.bytes)),
            Kind::RuntimeWrite => {
                self.freeing.extend(freeing(self.bytes));
                (Command::Write16 { lba: 0, blocks }, JobData::Out(self.bytes))
            }
        };
        if self.bytes.is_multiple_of(BLOCK) {
            self.next = (self.next + self.bytes) % SPAN;
        }
        Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data, id: lba })
    }

    fn complete(&mut self, job: &Job, completion: &CommandEnd, _data: &[u8], _elapsed: Duration) -> bool {
        let expected = if job.id == FREEING { 0 } else { self.bytes };
        if completion.status != ScsiStatus::Good || completion.transferred != expected {
            self.failed.get_or_insert(*completion);
            return false;
        }
        true
    }
}
