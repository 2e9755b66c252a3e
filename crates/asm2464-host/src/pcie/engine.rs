//! Engines that carry PCIe requests through a bridge, and the errors of such requests. [`VendorTlp`] is the one of the
//! vendor's firmware: through the registers of the chip's engine with E4 and E5. It is ready once the firmware has had its
//! first SCSI command, which brings up the link.

use asm2464::Bdf;
use asm2464::scsi::{XDATA_READ_MAX, XdataAddress};
use asm2464::tlp::engine::{
    ADDRESS, ADDRESS_HIGH, BYTE_ENABLES, COMPLETED, COMPLETION, DATA, FIRE, FORMAT, NO_COMPLETION, SEND, SENT, STATUS,
};
use asm2464::tlp::{Completion, CompletionStatus, Tlp, TlpKind, ltssm_name};
use thiserror::Error;

use crate::bridge::{Bridge, CommandError, ControlError, OpenBridge, XdataStep};

/// Reasons a request to the PCIe side failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PcieError {
    /// The bridge did not carry the request: a command of the vendor's firmware failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The bridge did not carry the request: a request of the open firmware failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The completion has an error status.
    #[error("{request} ended with: {status}")]
    Completion {
        /// The request, in words.
        request: String,
        /// The completion's status.
        status: CompletionStatus,
    },
    /// The function never became ready.
    #[error("{at} still answers that it is not ready, after {attempts} attempts")]
    NotReady {
        /// The function.
        at: Bdf,
        /// Number of attempts.
        attempts: u32,
    },
    /// The caller's [`Patience`](super::Patience) stopped the survey.
    #[error("the survey was stopped at {at}")]
    Stopped {
        /// The next function that would have been examined.
        at: Bdf,
    },
    /// The link is down, so nothing behind the bridge can be reached.
    #[error("the PCIe link is down: XDATA 0xB450 reads {ltssm:#04x} ({}), expected 0x78", ltssm_name(*ltssm))]
    LinkDown {
        /// Value of 0xB450.
        ltssm: u8,
    },
    /// The request is impossible. Nothing was sent.
    #[error("{what}")]
    Impossible {
        /// What is wrong with it.
        what: String,
    },
}

asm2464::coded!(PcieError {
    Command(cause) => cause,
    Control(cause) => cause,
    Completion { status, .. } => status,
    NotReady => Device "asm2464::pcie::not_ready",
    Stopped => Device "asm2464::pcie::stopped",
    LinkDown => Device "asm2464::pcie::link_down",
    Impossible => Usage "asm2464::pcie::request",
});

/// Sends TLPs through a bridge, and accesses its XDATA.
pub trait TlpEngine {
    /// Sends these TLPs in order. Returns their completions in the same order; a memory write has none.
    ///
    /// If the completion of a configuration request is late, the configuration requests beside it may be sent again, in
    /// the same order. Send a request that must not be repeated in a call of its own.
    ///
    /// # Errors
    /// [`PcieError::Command`] or [`PcieError::Control`]; some TLPs may have been sent. A completion with an error status is
    /// not an error here.
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, PcieError>;

    /// Reads XDATA.
    ///
    /// # Errors
    /// [`PcieError::Command`] or [`PcieError::Control`].
    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), PcieError>;

    /// Writes bytes of XDATA in this order.
    ///
    /// # Errors
    /// [`PcieError::Command`] or [`PcieError::Control`]; some bytes may have been written.
    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), PcieError>;
}

impl<E: TlpEngine + ?Sized> TlpEngine for &mut E {
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, PcieError> {
        (**self).tlps(tlps)
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), PcieError> {
        (**self).xdata_read(from, buffer)
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), PcieError> {
        (**self).xdata_write(writes)
    }
}

impl TlpEngine for OpenBridge {
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, PcieError> {
        Ok(Self::tlps(self, tlps)?)
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), PcieError> {
        Ok(Self::xdata_read(self, from, buffer)?)
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), PcieError> {
        Ok(self.xdata_write_all(writes)?)
    }
}

/// Bytes from DATA to the completion's status. One E4 reads them.
const RESULT_LEN: usize = (COMPLETION + 1 - DATA) as usize;
/// Maximum number of status reads. Each is a command to the unit. The engine gives up earlier, with [`NO_COMPLETION`].
const POLLS: u32 = 1000;
/// Maximum number of checks whether a posted request was sent. It is sent within one command's time. The firmware rings
/// NVMe doorbells through the same engine, and may have cleared the bit (b0:0xE65B).
const POSTED_POLLS: u32 = 4;
/// Number of memory writes to send without a status check. The runtime sends as many.
const MEMORY_WRITES_AT_ONCE: usize = 16;
/// Number of configuration requests to send before the first is checked.
const CONFIG_AT_ONCE: usize = 32;

/// The TLP engine of a unit that runs the vendor's firmware, patched or not.
pub struct VendorTlp<'a> {
    bridge: &'a mut Bridge,
    held: Held,
}

/// Values of the registers from FORMAT up to DATA, so that only changes are written. The GPU runtime does the same as
/// long as it runs. No SCSI command that makes the firmware use the engine can come in between: [`VendorTlp`] borrows
/// the bridge.
type Held = [Option<u8>; (DATA - FORMAT) as usize];
const UNKNOWN: Held = [None; (DATA - FORMAT) as usize];

/// The values read for one request.
#[derive(Default, Clone, Copy)]
struct RequestRegisters {
    status: [u8; 1],
    result: [u8; RESULT_LEN],
}

impl RequestRegisters {
    /// The request's completion; `None` if it has not ended.
    fn completion(&self) -> Option<Completion> {
        let [a, b, c, d, .., completion] = self.result;
        let data = u32::from_be_bytes([a, b, c, d]);
        let status = match (self.status[0], completion >> 5) {
            (status, _) if status & NO_COMPLETION != 0 => CompletionStatus::TimedOut,
            (status, _) if status & COMPLETED == 0 => return None,
            (_, 0) => CompletionStatus::Success,
            (_, 1) => CompletionStatus::UnsupportedRequest,
            (_, 2) => CompletionStatus::ConfigRetry,
            (_, 4) => CompletionStatus::CompleterAbort,
            (_, status) => CompletionStatus::Reserved(status),
        };
        Some(Completion { status, data })
    }

    /// The steps that read the answer. The status comes first: a result read after it belongs to this request.
    fn steps(&mut self, tlp: &Tlp) -> impl Iterator<Item = XdataStep<'_>> {
        let all = [
            XdataStep::Read(XdataAddress::main(STATUS), &mut self.status),
            XdataStep::Read(XdataAddress::main(DATA), &mut self.result),
        ];
        all.into_iter().take(if tlp.kind.is_posted() { 1 } else { 2 })
    }
}

impl<'a> VendorTlp<'a> {
    /// Creates the engine of this bridge. Use it only if there is no SSD behind the bridge: the firmware uses the same
    /// engine for one.
    pub const fn new(bridge: &'a mut Bridge) -> Self {
        Self { bridge, held: UNKNOWN }
    }

    /// Sends requests in sequence, and returns the values read for each.
    fn send(&mut self, tlps: &[Tlp]) -> Result<Vec<RequestRegisters>, PcieError> {
        let mut answers = vec![RequestRegisters::default(); tlps.len()];
        let mut steps = Vec::with_capacity(tlps.len() * 16);
        // If a step fails, it is not known how much was written.
        let mut held = std::mem::replace(&mut self.held, UNKNOWN);
        for (tlp, answer) in tlps.iter().zip(&mut answers) {
            let mut write = |at: u16, bytes: &[u8]| {
                for (at, byte) in (at..).zip(bytes) {
                    let held = held.get_mut(usize::from(at - FORMAT));
                    if held.is_none_or(|held| held.replace(*byte) != Some(*byte)) {
                        steps.push(XdataStep::Write(XdataAddress::main(at), *byte));
                    }
                }
            };
            if matches!(tlp.kind, TlpKind::ConfigWrite0 | TlpKind::ConfigWrite1 | TlpKind::MemoryWrite) {
                write(DATA, &tlp.value.to_be_bytes());
            }
            write(ADDRESS, &(tlp.address as u32).to_be_bytes());
            // The header of a configuration request ends before it.
            if matches!(tlp.kind, TlpKind::MemoryRead | TlpKind::MemoryWrite) {
                write(ADDRESS_HIGH, &((tlp.address >> 32) as u32).to_be_bytes());
            }
            write(BYTE_ENABLES, &[tlp.enables]);
            write(FORMAT, &[tlp.kind as u8]);
            write(STATUS, &[SENT | COMPLETED | NO_COMPLETION]);
            write(FIRE, &[SEND]);
            steps.extend(answer.steps(tlp));
        }
        self.bridge.xdata_steps(&mut steps)?;
        drop(steps);
        self.held = held;
        Ok(answers)
    }

    /// Polls until the request has ended.
    fn ended(&mut self, tlp: &Tlp, mut answer: RequestRegisters) -> Result<Option<Completion>, PcieError> {
        let is_posted = tlp.kind.is_posted();
        for _ in 0..if is_posted { POSTED_POLLS } else { POLLS } {
            if is_posted && answer.status[0] & SENT != 0 {
                return Ok(None);
            }
            if let Some(completion) = answer.completion() {
                return Ok(Some(completion));
            }
            let mut steps: Vec<_> = answer.steps(tlp).collect();
            self.bridge.xdata_steps(&mut steps)?;
        }
        let timed_out = Completion { status: CompletionStatus::TimedOut, data: 0 };
        Ok(if is_posted { None } else { Some(timed_out) })
    }
}

/// Number of requests at the front to send without checks in between: memory writes, which are posted; and
/// configuration requests, which [`TlpEngine::tlps`] allows to be repeated.
fn at_once(tlps: &[Tlp]) -> usize {
    let is_config = |tlp: &&Tlp| !matches!(tlp.kind, TlpKind::MemoryRead | TlpKind::MemoryWrite);
    match tlps[0].kind {
        TlpKind::MemoryWrite => {
            let writes = tlps.iter().take(MEMORY_WRITES_AT_ONCE);
            writes.take_while(|tlp| tlp.kind == TlpKind::MemoryWrite).count()
        }
        TlpKind::MemoryRead => 1,
        _ => tlps.iter().take(CONFIG_AT_ONCE).take_while(is_config).count(),
    }
}

impl TlpEngine for VendorTlp<'_> {
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, PcieError> {
        let mut completions = Vec::with_capacity(tlps.len());
        let mut rest = tlps;
        while !rest.is_empty() {
            let (group, behind) = rest.split_at(at_once(rest));
            let answers = self.send(group)?;
            let ended = |answer: &RequestRegisters| group[0].kind.is_posted() || answer.completion().is_some();
            if group.len() == 1 || answers.iter().all(ended) {
                for (tlp, answer) in group.iter().zip(answers) {
                    completions.push(self.ended(tlp, answer)?);
                }
            } else {
                // One was late, and the next was sent while it was pending. Send all again, one at a time.
                for tlp in group {
                    let answer = self.send(std::slice::from_ref(tlp))?[0];
                    completions.push(self.ended(tlp, answer)?);
                }
            }
            rest = behind;
        }
        Ok(completions)
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), PcieError> {
        for (index, piece) in buffer.chunks_mut(XDATA_READ_MAX).enumerate() {
            self.bridge.xdata_read(from.plus((index * XDATA_READ_MAX) as u16), piece)?;
        }
        Ok(())
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), PcieError> {
        self.held = UNKNOWN;
        Ok(self.bridge.xdata_write_all(writes.iter().copied())?)
    }
}
