//! A small host for a chip: enumerates it and sends it commands, packet by packet, as fast as it answers.
//!
//! Tests, benchmarks and the checks before a flash use it. It is as tolerant as a host's drivers: it recognises a CSW
//! that arrives instead of data.

use std::fmt;

use asm2464::digest::to_hex;
use asm2464::scsi::bot::{CBW_LEN, CBW_SIGNATURE, CSW_LEN, CSW_SIGNATURE, Direction};
use asm2464::scsi::uas::{COMMAND_IU_LEN, ID_COMMAND, ID_READ_READY, ID_WRITE_READY, StatusIu};
use asm2464::scsi::{Command, SENSE_LEN, ScsiStatus, Sense};

use super::core::{Chip, RunEnd};
use super::ep0::ControlReply;
use super::usb::{COMMAND_OUT, DATA_IN, DATA_OUT, PacketIn, PacketOut, STATUS_IN};

/// Maximum number of instructions for an answer, unless [`Driver::set_budget`] changes it: 0.4 s.
const BUDGET: u64 = 20_000_000;
/// Maximum number of bytes that a command may return, to end an endless stream. No firmware's command returns as many.
const DATA_MAX: usize = 16 << 20;
/// Tags that [`Driver::command`] uses over UAS, one after the other, from 1.
const TAGS: u32 = 30;

/// Reasons an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// A control request was stalled.
    Stall,
    /// An endpoint is halted.
    Halted(u8),
    /// The chip did not answer; holds how the run ended.
    Silent(RunEnd),
}

/// The data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// None.
    None,
    /// To the host: this many bytes at most.
    In(usize),
    /// From the host.
    Out(&'a [u8]),
}

impl<'a> Data<'a> {
    /// Length and direction for the CBW, and the bytes that the host sends.
    fn parts(self) -> (u32, Direction, &'a [u8]) {
        match self {
            Self::None => (0, Direction::Out, &[]),
            Self::In(len) => (len as u32, Direction::In, &[]),
            Self::Out(out) => (out.len() as u32, Direction::Out, out),
        }
    }
}

/// Answer to a Bulk-Only command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkOnlyReply {
    /// Received data.
    pub data: Vec<u8>,
    /// bCSWStatus.
    pub status: u8,
    /// dCSWDataResidue.
    pub residue: u32,
}

/// Answer to a UAS command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UasReply {
    /// Data received on the command's stream.
    pub data: Vec<u8>,
    /// The information unit that ended the command: sense or response.
    pub status: Vec<u8>,
}

/// How a SCSI command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// GOOD.
    Good,
    /// CHECK CONDITION with its sense. A CSW has no sense: `None` until REQUEST SENSE has read it.
    Check(Option<Sense>),
    /// Any other ending: the CSW's status byte, or the information unit.
    Other(Vec<u8>),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("GOOD"),
            Self::Check(Some(sense)) => write!(f, "CHECK CONDITION {sense}"),
            Self::Check(None) => f.write_str("CHECK CONDITION without sense"),
            // bCSWStatus.
            Self::Other(status) if *status == [2] => f.write_str("phase error"),
            Self::Other(status) => write!(f, "status {}", to_hex(status, " ")),
        }
    }
}

/// The answer to a SCSI command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Received data.
    pub data: Vec<u8>,
    /// How the command ended.
    pub ending: Ending,
    /// dCSWDataResidue; 0 over UAS, which has none.
    pub residue: u32,
}

/// Runs a chip for at most this many instructions, as [`Chip::run`] does.
pub type Runner = Box<dyn FnMut(&mut Chip, u64) -> RunEnd>;

/// A chip with a host.
pub struct Driver {
    /// The chip.
    pub chip: Chip,
    runner: Runner,
    budget: u64,
    tag: u32,
    is_uas: bool,
}

impl Driver {
    /// Connects a host to this chip.
    pub fn new(chip: Chip) -> Self {
        Self { chip, runner: Box::new(Chip::run), budget: BUDGET, tag: 0, is_uas: false }
    }

    /// Sets the maximum number of instructions for an answer.
    pub fn set_budget(&mut self, instructions: u64) {
        self.budget = instructions;
    }

    /// Runs the chip through `runner` from now on. A runner can observe the instructions, or stop the run with
    /// [`RunEnd::Budget`].
    pub fn set_runner(&mut self, runner: impl FnMut(&mut Chip, u64) -> RunEnd + 'static) {
        self.runner = Box::new(runner);
    }

    /// Runs the chip until `look` returns a value.
    ///
    /// # Errors
    /// How the run ended, if `look` had not returned a value by then.
    pub fn until<T>(&mut self, mut look: impl FnMut(&mut Chip) -> Option<T>) -> Result<T, RunEnd> {
        let ends = self.chip.instructions().saturating_add(self.budget);
        loop {
            if let Some(found) = look(&mut self.chip) {
                return Ok(found);
            }
            let left = ends.saturating_sub(self.chip.instructions());
            match (self.runner)(&mut self.chip, left) {
                RunEnd::Attention => {}
                outcome => return look(&mut self.chip).ok_or(outcome),
            }
        }
    }

    /// Runs until the firmware waits for the host, or stops.
    pub fn settle(&mut self) -> RunEnd {
        match self.until(|_| None::<()>) {
            Ok(()) => RunEnd::Parked,
            Err(outcome) => outcome,
        }
    }

    /// Lets the firmware boot until a host would enumerate the unit: see [`Chip::arrive`].
    ///
    /// # Errors
    /// How the run ended, if the unit is not on the bus.
    pub fn boot(&mut self) -> Result<(), RunEnd> {
        self.chip.arrive(&mut self.runner)
    }

    /// Makes a control transfer. `data` is the data of a write.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn control(&mut self, setup: [u8; 8], data: &[u8]) -> Result<Vec<u8>, Unanswered> {
        self.chip.begin_control(setup, data);
        match self.until(Chip::take_control_reply) {
            Ok(ControlReply::Done(data)) => Ok(data),
            Ok(ControlReply::Stall) => Err(Unanswered::Stall),
            Err(outcome) => Err(Unanswered::Silent(outcome)),
        }
    }

    /// Reads `len` bytes of a descriptor with GET_DESCRIPTOR.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn descriptor(&mut self, kind: u8, index: u8, len: u16) -> Result<Vec<u8>, Unanswered> {
        let [low, high] = len.to_le_bytes();
        let language = if kind == 3 && index != 0 { [0x09, 0x04] } else { [0, 0] };
        self.control([0x80, 6, index, kind, language[0], language[1], low, high], &[])
    }

    /// Lets the firmware boot, and configures the unit as a host does.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn enumerate(&mut self) -> Result<(), Unanswered> {
        self.boot().map_err(Unanswered::Silent)?;
        self.descriptor(1, 0, 18)?;
        self.control([0x00, 5, 7, 0, 0, 0, 0, 0], &[])?;
        self.descriptor(2, 0, 255)?;
        self.control([0x00, 9, 1, 0, 0, 0, 0, 0], &[])?;
        self.is_uas = false;
        Ok(())
    }

    /// Selects an alternate setting with SET_INTERFACE: in the vendor's firmware 0 is Bulk-Only and 1 is UAS.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn set_alternate(&mut self, alternate: u8) -> Result<(), Unanswered> {
        self.control([0x01, 0x0B, alternate, 0, 0, 0, 0, 0], &[])?;
        self.is_uas = alternate == 1;
        Ok(())
    }

    /// Sends all of `data` to an endpoint, packet by packet.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn send(&mut self, endpoint: u8, stream: u16, data: &[u8]) -> Result<(), Unanswered> {
        let most = self.chip.speed().bulk_packet();
        for packet in data.chunks(most) {
            let reply = self.until(|chip| {
                let reply = chip.bulk_out(endpoint, stream, packet);
                (reply != PacketOut::Nak).then_some(reply)
            });
            match reply {
                Ok(PacketOut::Stall) => return Err(Unanswered::Halted(endpoint)),
                Ok(_) => {}
                Err(outcome) => return Err(Unanswered::Silent(outcome)),
            }
        }
        Ok(())
    }

    /// Receives the next packet of an endpoint.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn receive(&mut self, endpoint: u8, stream: u16) -> Result<Vec<u8>, Unanswered> {
        let reply = self.until(|chip| match chip.bulk_in(endpoint, stream) {
            PacketIn::Nak => None,
            reply => Some(reply),
        });
        match reply {
            Ok(PacketIn::Packet(packet)) => Ok(packet),
            Ok(_) => Err(Unanswered::Halted(endpoint)),
            Err(outcome) => Err(Unanswered::Silent(outcome)),
        }
    }

    /// Clears a halt with CLEAR_FEATURE(ENDPOINT_HALT).
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn clear_halt(&mut self, endpoint: u8) -> Result<(), Unanswered> {
        self.control([0x02, 1, 0, 0, endpoint, 0, 0, 0], &[]).map(drop)
    }

    /// Runs a command over the selected transport. After CHECK CONDITION, also reads the sense.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn command(&mut self, cdb: &[u8], data: Data<'_>) -> Result<Answer, Unanswered> {
        let (len, direction, out) = data.parts();
        self.begin(cdb, len, direction)?;
        let mut answer = self.finish(out)?;
        if answer.ending == Ending::Check(None) {
            answer.ending = Ending::Check(self.request_sense()?);
        }
        Ok(answer)
    }

    /// Sends a command over the selected transport, without moving its data. Over Bulk-Only, `len` (in bytes) and
    /// `direction` go into the CBW; UAS does not use them.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn begin(&mut self, cdb: &[u8], len: u32, direction: Direction) -> Result<(), Unanswered> {
        if self.is_uas {
            self.tag = self.tag % TAGS + 1;
            return self.send_command(self.tag as u16, cdb);
        }
        self.send_cbw(cdb, len, direction)
    }

    fn send_cbw(&mut self, cdb: &[u8], len: u32, direction: Direction) -> Result<(), Unanswered> {
        self.tag += 1;
        let mut cbw = CBW_SIGNATURE.to_vec();
        cbw.extend(self.tag.to_le_bytes());
        cbw.extend(len.to_le_bytes());
        cbw.extend([if direction == Direction::In { 0x80 } else { 0x00 }, 0, cdb.len() as u8]);
        cbw.extend(cdb);
        cbw.resize(CBW_LEN, 0);
        self.send(DATA_OUT, 0, &cbw)
    }

    /// Moves the data of the command sent by [`Driver::begin`], until its status arrives. `out` is the host's data.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn finish(&mut self, out: &[u8]) -> Result<Answer, Unanswered> {
        if !self.is_uas {
            let BulkOnlyReply { data, status, residue } = self.finish_bulk_only(out)?;
            let ending = match status {
                0 => Ending::Good,
                1 => Ending::Check(None),
                other => Ending::Other(vec![other]),
            };
            return Ok(Answer { data, ending, residue });
        }
        let UasReply { data, status } = self.finish_uas(self.tag as u16, out)?;
        let ending = match StatusIu::parse(&status) {
            Ok(StatusIu::Sense { status: ScsiStatus::Good, .. }) => Ending::Good,
            Ok(StatusIu::Sense { status: ScsiStatus::CheckCondition, sense, .. }) => {
                Ending::Check(Sense::parse(&sense))
            }
            _ => Ending::Other(status),
        };
        Ok(Answer { data, ending, residue: 0 })
    }

    /// Sends REQUEST SENSE. Returns `None` if the sense data cannot be parsed.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn request_sense(&mut self) -> Result<Option<Sense>, Unanswered> {
        self.begin(Command::RequestSense { len: SENSE_LEN }.cdb().as_slice(), SENSE_LEN.into(), Direction::In)?;
        Ok(Sense::parse(&self.finish(&[])?.data))
    }

    /// Runs a command over Bulk-Only.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn bulk_only(&mut self, cdb: &[u8], data: Data<'_>) -> Result<BulkOnlyReply, Unanswered> {
        let (len, direction, out) = data.parts();
        self.send_cbw(cdb, len, direction)?;
        self.finish_bulk_only(out)
    }

    fn finish_bulk_only(&mut self, out: &[u8]) -> Result<BulkOnlyReply, Unanswered> {
        let mut came = Vec::new();
        match self.send(DATA_OUT, 0, out) {
            Err(Unanswered::Halted(endpoint)) => self.clear_halt(endpoint)?,
            // The firmware may end the command before it has taken all data. The CSW follows.
            Ok(()) | Err(Unanswered::Silent(RunEnd::Parked)) => {}
            Err(error) => return Err(error),
        }
        let mut was_halted = false;
        let tag = self.tag.to_le_bytes();
        loop {
            match self.receive(DATA_IN, 0) {
                Ok(packet) if packet.len() == CSW_LEN && packet.starts_with(&CSW_SIGNATURE) && packet[4..8] == tag => {
                    let residue = u32::from_le_bytes([packet[8], packet[9], packet[10], packet[11]]);
                    return Ok(BulkOnlyReply { data: came, status: packet[12], residue });
                }
                Ok(_) if came.len() >= DATA_MAX => return Err(Unanswered::Silent(RunEnd::Budget)),
                Ok(packet) => {
                    was_halted = false;
                    came.extend(packet);
                }
                // A host clears one halt in the data and one before the CSW, and then resets the unit (BOT 6.3).
                Err(Unanswered::Halted(endpoint)) if !was_halted => {
                    was_halted = true;
                    self.clear_halt(endpoint)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a command over UAS. `out` is its data from the host.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn uas(&mut self, tag: u16, cdb: &[u8], out: &[u8]) -> Result<UasReply, Unanswered> {
        self.send_command(tag, cdb)?;
        self.finish_uas(tag, out)
    }

    /// Sends a command unit without waiting for its answer.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn send_command(&mut self, tag: u16, cdb: &[u8]) -> Result<(), Unanswered> {
        let mut unit = vec![ID_COMMAND, 0];
        unit.extend(tag.to_be_bytes());
        unit.resize(16, 0);
        unit.extend(cdb);
        unit.resize(COMMAND_IU_LEN, 0);
        self.send(COMMAND_OUT, 0, &unit)
    }

    /// Moves a command's data on its stream until its status arrives. `out` is the host's data.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn finish_uas(&mut self, tag: u16, out: &[u8]) -> Result<UasReply, Unanswered> {
        let most = self.chip.speed().bulk_packet();
        let stream = if most == 1024 { tag } else { 0 };
        let mut packets = out.chunks(most);
        let mut next = packets.next();
        let mut data = Vec::new();
        let ended = self.until(|chip| {
            loop {
                let mut moved = false;
                if let Some(packet) = next
                    && chip.bulk_out(DATA_OUT, stream, packet) == PacketOut::Accepted
                {
                    next = packets.next();
                    moved = true;
                }
                if data.len() < DATA_MAX
                    && let PacketIn::Packet(packet) = chip.bulk_in(DATA_IN, stream)
                {
                    data.extend(packet);
                    moved = true;
                }
                match chip.bulk_in(STATUS_IN, stream) {
                    PacketIn::Packet(status) if matches!(status.first(), Some(&ID_READ_READY | &ID_WRITE_READY)) => {
                        moved = true
                    }
                    PacketIn::Packet(status) => return Some(Ok(status)),
                    PacketIn::Stall => return Some(Err(Unanswered::Halted(STATUS_IN))),
                    PacketIn::Nak => {}
                }
                if !moved {
                    return None;
                }
            }
        });
        match ended {
            Ok(Ok(status)) => Ok(UasReply { data, status }),
            Ok(Err(halted)) => Err(halted),
            Err(outcome) => Err(Unanswered::Silent(outcome)),
        }
    }
}
