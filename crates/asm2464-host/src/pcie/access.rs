//! Access to configuration space, memory, the link and the bridge's SRAM, over any engine.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use asm2464::Bdf;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464::sram::SRAM_WINDOW_LEN;
use asm2464::tlp::{Completion, CompletionStatus, LAST_OF_DETECT, LINK_UP, LTSSM, Tlp};
use serde::{Deserialize, Serialize};

use super::engine::PcieError;
use super::engine::TlpEngine;

/// The dword with the bridge control register in its upper half, the reset bit, and the byte enables.
const BRIDGE_CONTROL: u16 = 0x3C;
const SECONDARY_BUS_RESET: u32 = 0x40 << 16;
const BRIDGE_CONTROL_BYTES: u8 = 0x0C;
/// Time that a reset is held, and time that a device is left alone after it. Source: PCI Express base specification
/// 4.0, 6.6.1.
const RESET_MS: u64 = 100;
/// Number of dwords that one call of the engine reads or writes.
const DWORDS_AT_ONCE: usize = 64;

/// Number of attempts at a device that is not ready, and the time between them. PCIe gives a device a second after a
/// reset.
const ATTEMPTS: u32 = 100;
const RETRY_MS: u64 = 10;

/// The most looks at a link that trains, and the time between them.
const TRAINING_STEPS: u32 = 250;
const TRAINING_MS: u64 = 20;

/// Stands for a completion that did not come.
const TIMED_OUT: Completion = Completion { status: CompletionStatus::TimedOut, data: 0 };

/// Waits, and says when to stop: this module has neither a clock nor Ctrl-C.
pub trait Patience {
    /// Waits for this many milliseconds.
    fn wait(&mut self, milliseconds: u64);

    /// Whether to continue. Called before each function is examined, and each time a function is not ready.
    fn goes_on(&mut self) -> bool {
        true
    }
}

/// Waits by the clock, until Ctrl-C.
impl Patience for Interrupt<'_> {
    fn wait(&mut self, milliseconds: u64) {
        thread::sleep(Duration::from_millis(milliseconds));
    }

    fn goes_on(&mut self) -> bool {
        !self.is_requested()
    }
}

/// No waiting: for virtual units, which need no time.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTime;

impl Patience for NoTime {
    fn wait(&mut self, _: u64) {}
}

/// The link between the bridge and the devices behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Link {
    /// XDATA 0xB450: the LTSSM's state.
    pub ltssm: u8,
    /// Whether the link is up.
    pub is_up: bool,
}

impl Link {
    /// Decodes the LTSSM's state.
    pub(crate) const fn of(ltssm: u8) -> Self {
        Self { ltssm, is_up: ltssm == LINK_UP }
    }

    /// Whether the link is in training, or in recovery: it may come up by itself.
    pub const fn is_training(self) -> bool {
        !self.is_up && !self.is_in_detect()
    }

    /// Whether no device is linked. A link that is not up may still be in training or in recovery.
    pub const fn is_in_detect(self) -> bool {
        self.ltssm <= LAST_OF_DETECT
    }
}

/// The PCIe side of a bridge.
pub struct Pcie<'a> {
    pub(super) engine: &'a mut dyn TlpEngine,
    pub(super) patience: &'a mut dyn Patience,
}

impl<'a> Pcie<'a> {
    /// Creates access through this engine.
    pub const fn new(engine: &'a mut dyn TlpEngine, patience: &'a mut dyn Patience) -> Self {
        Self { engine, patience }
    }

    /// Reads the state of the link.
    ///
    /// # Errors
    /// [`PcieError::Command`] or [`PcieError::Control`].
    pub fn link(&mut self) -> Result<Link, PcieError> {
        let mut state = [0];
        self.engine.xdata_read(LTSSM, &mut state)?;
        Ok(Link::of(state[0]))
    }

    /// Reads the state of the link once it is up or down: a link that trains gets up to five seconds. Some builds of the
    /// open firmware of July 2026 train it for seconds after power-on.
    ///
    /// # Errors
    /// [`PcieError::Command`] or [`PcieError::Control`].
    pub fn trained_link(&mut self) -> Result<Link, PcieError> {
        self.link_once(|link| !link.is_training(), TRAINING_STEPS, TRAINING_MS)
    }

    /// Resets everything behind the root port through the root port's own register. This clears the bus numbers,
    /// windows and BARs there.
    ///
    /// # Errors
    /// [`PcieError`].
    pub fn hot_reset(&mut self) -> Result<(), PcieError> {
        let control = self.config_read(Bdf::ROOT, BRIDGE_CONTROL)?;
        for value in [control | SECONDARY_BUS_RESET, control & !SECONDARY_BUS_RESET] {
            self.config_write(Bdf::ROOT, BRIDGE_CONTROL, value, BRIDGE_CONTROL_BYTES)?;
            self.patience.wait(RESET_MS);
        }
        Ok(())
    }

    /// Waits until the link is up: at most `steps` times `milliseconds`.
    ///
    /// # Errors
    /// [`PcieError::LinkDown`] if it is still down.
    pub fn wait_for_link(&mut self, steps: u32, milliseconds: u64) -> Result<(), PcieError> {
        let link = self.link_once(|link| link.is_up, steps, milliseconds)?;
        if link.is_up { Ok(()) } else { Err(PcieError::LinkDown { ltssm: link.ltssm }) }
    }

    /// Reads the state of the link until it has `settled`, but not longer than `steps` times `milliseconds`.
    fn link_once(&mut self, settled: fn(Link) -> bool, steps: u32, milliseconds: u64) -> Result<Link, PcieError> {
        let mut link = self.link()?;
        for _ in 0..steps {
            if settled(link) || !self.patience.goes_on() {
                break;
            }
            self.patience.wait(milliseconds);
            link = self.link()?;
        }
        Ok(link)
    }

    /// Reads a dword of configuration space; `offset` is a multiple of 4 up to 0xFFC. Retries for a second if the
    /// function is not ready.
    ///
    /// # Errors
    /// [`PcieError`]; [`PcieError::Completion`] with an unsupported request if there is no such function.
    pub fn config_read(&mut self, at: Bdf, offset: u16) -> Result<u32, PcieError> {
        let tlp = Tlp::config_read(at, offset);
        answer(&tlp, Some(self.settled(at, &tlp)?))
    }

    /// Reads consecutive dwords of configuration space, from `offset` on.
    ///
    /// # Errors
    /// As for [`Pcie::config_read`].
    pub fn config_dwords(&mut self, at: Bdf, offset: u16, count: u16) -> Result<Vec<u32>, PcieError> {
        let tlps: Vec<Tlp> = (0..count).map(|index| Tlp::config_read(at, offset + 4 * index)).collect();
        self.config_all(at, &tlps)
    }

    /// Sends configuration requests to one function in order, and returns their values. If the function is not ready,
    /// the rest is sent again, so each request must be repeatable.
    ///
    /// # Errors
    /// As for [`Pcie::config_read`], of the first refused request. Later ones may have been carried out.
    pub(super) fn config_all(&mut self, at: Bdf, tlps: &[Tlp]) -> Result<Vec<u32>, PcieError> {
        let mut completions = self.engine.tlps(tlps)?.into_iter();
        let mut is_one_by_one = false;
        let mut data = Vec::with_capacity(tlps.len());
        for tlp in tlps {
            let completion = match completions.next().flatten() {
                Some(completion) if !is_one_by_one && completion.status != CompletionStatus::ConfigRetry => completion,
                _ => {
                    is_one_by_one = true;
                    self.settled(at, tlp)?
                }
            };
            data.push(answer(tlp, Some(completion))?);
        }
        Ok(data)
    }

    /// Writes the bytes of a dword of configuration space that `enables` selects: bit n for byte n.
    ///
    /// # Errors
    /// As for [`Pcie::config_read`].
    pub fn config_write(&mut self, at: Bdf, offset: u16, value: u32, enables: u8) -> Result<(), PcieError> {
        let tlp = Tlp::config_write(at, offset, value).with_enables(enables);
        answer(&tlp, Some(self.settled(at, &tlp)?)).map(drop)
    }

    /// Sends a configuration request again while its completion is "not ready". Returns the first other completion.
    pub(super) fn settled(&mut self, at: Bdf, tlp: &Tlp) -> Result<Completion, PcieError> {
        let mut attempts = 0;
        loop {
            let completion = self.engine.tlps(std::slice::from_ref(tlp))?.pop().flatten();
            let completion = completion.unwrap_or(TIMED_OUT);
            if completion.status != CompletionStatus::ConfigRetry {
                return Ok(completion);
            }
            attempts += 1;
            self.another_attempt(at, attempts)?;
        }
    }

    /// Waits until a function that was not ready may be asked again.
    pub(super) fn another_attempt(&mut self, at: Bdf, attempts: u32) -> Result<(), PcieError> {
        if attempts >= ATTEMPTS || !self.patience.goes_on() {
            return Err(PcieError::NotReady { at, attempts });
        }
        self.patience.wait(RETRY_MS);
        Ok(())
    }

    /// Reads memory behind BARs. Of the dwords at the ends, only the requested bytes are enabled.
    ///
    /// # Errors
    /// [`PcieError`]; [`PcieError::Completion`] of the first dword that no device answers.
    pub fn memory_read(&mut self, address: u64, buffer: &mut [u8]) -> Result<(), PcieError> {
        let dwords = dwords(address, buffer.len())?;
        let mut rest = buffer;
        for group in dwords.chunks(DWORDS_AT_ONCE) {
            let read = |(at, bytes): &(u64, Range<usize>)| Tlp::memory_read(*at).with_enables(enables(bytes));
            let tlps: Vec<Tlp> = group.iter().map(read).collect();
            let mut completions = self.engine.tlps(&tlps)?.into_iter();
            for (tlp, (_, bytes)) in tlps.iter().zip(group) {
                let dword = answer(tlp, completions.next().flatten())?.to_le_bytes();
                let (place, behind) = rest.split_at_mut(bytes.len());
                place.copy_from_slice(&dword[bytes.clone()]);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Writes memory behind BARs. Of the dwords at the ends, only these bytes are written. Writes are posted: an
    /// address that no device decodes causes no error.
    ///
    /// # Errors
    /// [`PcieError`].
    pub fn memory_write(&mut self, address: u64, data: &[u8]) -> Result<(), PcieError> {
        let mut rest = data;
        for group in dwords(address, data.len())?.chunks(DWORDS_AT_ONCE) {
            let write = |(at, bytes): &(u64, Range<usize>)| {
                let mut dword = [0; 4];
                let (data, behind) = rest.split_at(bytes.len());
                dword[bytes.clone()].copy_from_slice(data);
                rest = behind;
                Tlp::memory_write(*at, u32::from_le_bytes(dword)).with_enables(enables(bytes))
            };
            let tlps: Vec<Tlp> = group.iter().map(write).collect();
            self.engine.tlps(&tlps)?;
        }
        Ok(())
    }

    /// Reads from the first [`SRAM_WINDOW_LEN`] bytes of the SRAM. A device reaches them from
    /// [`SRAM_ADDRESS`](asm2464::sram::SRAM_ADDRESS) on.
    ///
    /// # Errors
    /// [`PcieError`]; [`PcieError::Impossible`] past these bytes.
    pub fn sram_read(&mut self, offset: usize, buffer: &mut [u8]) -> Result<(), PcieError> {
        let from = sram(offset, buffer.len())?;
        self.engine.xdata_read(from, buffer)
    }

    /// Writes to the same bytes of the SRAM, one by one: for small amounts, such as a command's packet.
    ///
    /// # Errors
    /// As for [`Pcie::sram_read`].
    pub fn sram_write(&mut self, offset: usize, data: &[u8]) -> Result<(), PcieError> {
        let from = sram(offset, data.len())?;
        let writes: Vec<_> = (from.addr..=u16::MAX).map(XdataAddress::main).zip(data.iter().copied()).collect();
        self.engine.xdata_write(&writes)
    }
}

/// The value in a request's completion, which is 0 for a write.
pub(super) fn answer(tlp: &Tlp, completion: Option<Completion>) -> Result<u32, PcieError> {
    let Completion { status, data } = completion.unwrap_or(TIMED_OUT);
    match status {
        CompletionStatus::Success => Ok(data),
        status => Err(PcieError::Completion { request: tlp.to_string(), status }),
    }
}

fn sram(offset: usize, len: usize) -> Result<XdataAddress, PcieError> {
    match offset.checked_add(len).filter(|end| *end <= SRAM_WINDOW_LEN) {
        Some(_) => Ok(XdataAddress::SRAM_WINDOW.plus(offset as u16)),
        None => Err(PcieError::Impossible {
            what: format!("{len} bytes at {offset:#x} of the SRAM, of which {SRAM_WINDOW_LEN:#x} can be seen"),
        }),
    }
}

/// The dwords of a transfer: the address of each, and its bytes that belong to the transfer.
fn dwords(address: u64, len: usize) -> Result<Vec<(u64, Range<usize>)>, PcieError> {
    let Some(end) = address.checked_add(len as u64) else {
        return Err(PcieError::Impossible { what: format!("{len} bytes at {address:#x} go past the last address") });
    };
    let bytes = |at: u64| (at, address.saturating_sub(at) as usize..(end - at).min(4) as usize);
    Ok((address & !3..end).step_by(4).map(bytes).filter(|(_, bytes)| !bytes.is_empty()).collect())
}

const fn enables(bytes: &Range<usize>) -> u8 {
    ((1 << bytes.end) - (1 << bytes.start)) as u8
}
