//! A record of what a unit was asked and answered, and a unit that answers from it.
//!
//! A [`Recorder`] makes a [`Record`] at a unit's pipes, real or virtual. A [`ReplayPort`] is a unit that compares each
//! request with the record's next one on the same pipe, and gives the record's answer. Requests that only read may come
//! more or less often than recorded. Any other request that is not in the record is an error.

mod asked;
mod event;
mod port;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;

use asm2464_host::bridge::UnitInfo;
use thiserror::Error;

pub use event::{Data, DataPart, End, Event};
pub use port::{ReplayError, ReplayPort};
pub use recorder::Recorder;

/// The most events of a record.
pub const MAX_EVENTS: usize = 1 << 20;
/// The most bytes of one transfer: more than any that asmpatch submits.
pub const MAX_TRANSFER: usize = 16 << 20;
/// The most bytes that the data of a record may have in memory.
pub const MAX_BYTES: usize = 256 << 20;
/// The most bytes of descriptors, and of each string.
const MAX_DESCRIPTORS: usize = 4096;
const MAX_STRING: usize = 256;

/// Reasons a record can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It has more than a record may have.
    #[error("it has more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// An event contradicts those before it.
    #[error("event {event} of opening {opening}: {why}")]
    Event {
        /// Number of the opening, from 1.
        opening: usize,
        /// Number of the event in it, from 1.
        event: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A line can't be parsed as an event.
    #[error("{0:?} is no event")]
    Syntax(String),
}

asm2464::coded!(RecordError {
    TooLarge => BadInput "asm2464::replay::too_large",
    Event => BadInput "asm2464::replay::event",
    Syntax => BadInput "asm2464::replay::event",
});

/// The events from one opening of the unit on, until its next opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    /// The alternate setting.
    pub alternate: u8,
    /// Number of bulk streams on each pipe that has them.
    pub streams: u16,
    /// The events, in the order in which the host saw them.
    pub events: Vec<Event>,
}

/// A record of a unit, with events that [`Record::checked`] has checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    unit: UnitInfo,
    descriptors: Vec<u8>,
    openings: Vec<Opening>,
    /// Contents of the unit's flash for [`DataPart::Flash`], from address 0 on. Flash behind them is erased.
    flash: Vec<u8>,
    /// The code of the error with which the last opening failed. It is not among `openings`.
    unopened: Option<String>,
}

impl Record {
    /// Checks a record. `unit` is the recorded unit, with the record as its location; `descriptors` are its raw ones:
    /// device, configuration, BOS, or empty if the system did not provide them.
    ///
    /// # Errors
    /// [`RecordError::TooLarge`]; [`RecordError::Event`] if an event contradicts those before it: its data have another
    /// length, or a transfer returns or is refused that is not in flight, or returns more data than it has room for.
    pub fn checked(unit: UnitInfo, descriptors: Vec<u8>, openings: Vec<Opening>) -> Result<Self, RecordError> {
        let too_large = |what, found: usize, limit| match found > limit {
            true => Err(RecordError::TooLarge { what, limit }),
            false => Ok(()),
        };
        too_large("bytes of descriptors", descriptors.len(), MAX_DESCRIPTORS)?;
        let strings = [Some(&unit.manufacturer), Some(&unit.product), unit.serial.as_ref(), unit.driver.as_ref()];
        for text in strings.into_iter().flatten() {
            too_large("bytes in a string", text.len(), MAX_STRING)?;
        }
        too_large("openings", openings.len(), MAX_EVENTS)?;
        too_large("events", openings.iter().map(|opening| opening.events.len()).sum(), MAX_EVENTS)?;
        let mut bytes = 0usize;
        for (number, opening) in (1..).zip(&openings) {
            bytes = bytes.saturating_add(opening.bytes(number)?);
            too_large("bytes of data", bytes, MAX_BYTES)?;
        }
        Ok(Self { unit, descriptors, openings, flash: Vec::new(), unopened: None })
    }

    /// Adds the contents of the unit's flash, from address 0 on, to which the record's data refer.
    #[must_use]
    pub fn with_flash(self, flash: Vec<u8>) -> Self {
        Self { flash, ..self }
    }

    /// Adds the code of the error with which the unit's last opening failed.
    #[must_use]
    pub fn with_unopened(self, code: Option<String>) -> Self {
        Self { unopened: code, ..self }
    }

    /// The unit, with the record as its location.
    pub const fn unit(&self) -> &UnitInfo {
        &self.unit
    }

    /// The unit's raw descriptors: device, configuration, BOS; empty if the system did not provide them.
    pub fn descriptors(&self) -> &[u8] {
        &self.descriptors
    }

    /// The openings, in order.
    pub fn openings(&self) -> &[Opening] {
        &self.openings
    }
}

impl Opening {
    /// Checks the events. Returns how many bytes their data have.
    fn bytes(&self, opening: usize) -> Result<usize, RecordError> {
        // Each transfer's direction and how many bytes it has room for; `None` once it has returned.
        let mut room: Vec<Option<(bool, usize)>> = Vec::new();
        let mut bytes = 0usize;
        for (event, found) in (1..).zip(&self.events) {
            let wrong = |why| RecordError::Event { opening, event, why };
            match found {
                Event::Bulk { endpoint, len, data } => {
                    let is_in = endpoint.address() & 0x80 != 0;
                    if *len > MAX_TRANSFER || data.len() != if is_in { 0 } else { *len } {
                        return Err(wrong("its data have another length"));
                    }
                    bytes = bytes.saturating_add(*len);
                    room.push(Some((is_in, *len)));
                }
                Event::Control { setup, data } => {
                    let (is_in, len) = (setup[0] & 0x80 != 0, usize::from(u16::from_le_bytes([setup[6], setup[7]])));
                    if data.len() != if is_in { 0 } else { len } {
                        return Err(wrong("its data have another length"));
                    }
                    bytes = bytes.saturating_add(len);
                    room.push(Some((is_in, len)));
                }
                Event::Returned { transfer, moved, data, .. } => {
                    let Some((is_in, len)) = room.get_mut(*transfer).and_then(Option::take) else {
                        return Err(wrong("no such transfer is in flight"));
                    };
                    if *moved > len || data.len() != if is_in { *moved } else { 0 } {
                        return Err(wrong("it brings more than it has room for"));
                    }
                }
                Event::Refused { transfer, end } => {
                    let last = room.len().checked_sub(1);
                    if last != Some(*transfer) || *end == End::Done || room[*transfer].take().is_none() {
                        return Err(wrong("the last transfer is not in flight, or was not refused"));
                    }
                }
                Event::Done { .. } => {}
            }
        }
        Ok(bytes)
    }
}
