//! Pipes whose unit is a record.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asm2464::scsi::bot::CommandBlockWrapper;
use asm2464_host::bridge::{
    ControlPipes, Endpoint, PipeAction, PipeError, Pipes, Reaped, SETUP_LEN, TransferId, control_data_len,
};

use super::event::{Data, End, Event};
use super::{Opening, Record};

/// The most bytes of a request that an error shows.
const SHOWN: usize = 64;

/// A record that is replayed, and how far it has come. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Replay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    record: Record,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the record's openings that were used.
    used: usize,
    /// What was asked and is not in the record. From then on there are no answers.
    diverged: Option<String>,
}

impl Replay {
    pub(super) fn new(record: Record) -> Self {
        Self(Arc::new(Shared { record, state: Mutex::default() }))
    }

    pub(super) fn record(&self) -> &Record {
        &self.0.record
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next opening of the record.
    pub(super) fn next_opening(&self) -> Option<&Opening> {
        let used = self.state().used;
        self.0.record.openings.get(used)
    }

    /// What was asked and is not in the record.
    pub(super) fn diverged(&self) -> Option<String> {
        self.state().diverged.clone()
    }
}

/// A request as the host makes it.
#[derive(Debug, Clone, Copy)]
enum Asked<'a> {
    Bulk(Endpoint, usize, &'a [u8]),
    Control([u8; SETUP_LEN], &'a [u8]),
    Action(PipeAction),
}

impl Asked<'_> {
    /// Whether an event of the record is on the same pipe.
    fn shares_pipe_with(self, event: &Event) -> bool {
        match (self, event) {
            (Self::Bulk(asked, ..), Event::Bulk { endpoint, .. }) => asked == *endpoint,
            (Self::Control(..), Event::Control { .. }) | (Self::Action(_), Event::Done { .. }) => true,
            _ => false,
        }
    }

    /// Whether it is the record's.
    fn is(self, event: &Event, flash: &[u8]) -> bool {
        match (self, event) {
            (Self::Bulk(asked, len, sent), Event::Bulk { endpoint, len: recorded, data }) => {
                asked == *endpoint && len == *recorded && data.matches(sent, flash)
            }
            (Self::Control(setup, sent), Event::Control { setup: recorded, data }) => {
                setup == *recorded && data.matches(sent, flash)
            }
            (Self::Action(asked), Event::Done { action, .. }) => asked == *action,
            _ => false,
        }
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match *self {
            Self::Bulk(endpoint, len, sent) => {
                if let Some(wrapper) = CommandBlockWrapper::parse(sent) {
                    return write!(f, "the command {} [{}]", wrapper.cdb.name(), wrapper.cdb);
                }
                Event::Bulk { endpoint, len, data: Data::bytes(&sent[..sent.len().min(SHOWN)]) }
            }
            Self::Control(setup, sent) => Event::Control { setup, data: Data::bytes(&sent[..sent.len().min(SHOWN)]) },
            Self::Action(action) => {
                let text = Event::Done { action, end: End::Done }.to_string();
                return f.write_str(text.trim_end_matches(" done"));
            }
        };
        write!(f, "`{event}`")
    }
}

/// An event of the record, as an error shows it.
fn shown(event: &Event, flash: &[u8]) -> String {
    let bytes = |data: &Data| {
        let mut bytes = vec![0; data.len().min(SHOWN)];
        data.fill(&mut bytes, flash);
        bytes
    };
    match event {
        Event::Bulk { endpoint, len, data } => Asked::Bulk(*endpoint, *len, &bytes(data)).to_string(),
        Event::Control { setup, data } => Asked::Control(*setup, &bytes(data)).to_string(),
        Event::Done { action, .. } => Asked::Action(*action).to_string(),
        Event::Returned { .. } | Event::Refused { .. } => event.to_string(),
    }
}

#[derive(Debug, Default)]
struct Transfer {
    buffer: Vec<u8>,
    is_out: bool,
    is_cancelled: bool,
}

/// The pipes of one opening of a record.
///
/// Requests have to come in the record's order on each pipe. A transfer returns once everything has been asked that the
/// record has before its return.
#[derive(Debug)]
pub(super) struct ReplayPipes {
    replay: Replay,
    /// Which of the record's openings this is, from the first request on.
    opening: Option<usize>,
    /// The first event that was not used yet.
    at: usize,
    /// Which events were used.
    used: Vec<bool>,
    /// Where the opening's submissions are.
    submissions: Vec<usize>,
    /// The host's transfer of each of the record's submissions, by number.
    numbers: Vec<Option<TransferId>>,
    transfers: Vec<Transfer>,
}

impl ReplayPipes {
    pub(super) fn new(replay: &Replay) -> Self {
        Self {
            replay: replay.clone(),
            opening: None,
            at: 0,
            used: Vec::new(),
            submissions: Vec::new(),
            numbers: Vec::new(),
            transfers: Vec::new(),
        }
    }

    /// Says that a request is not in the record, from now on whatever is asked.
    fn diverge(&self, why: String) -> PipeError {
        PipeError::NotRecorded(self.replay.state().diverged.get_or_insert(why).clone())
    }

    fn stands(&self) -> Result<(), PipeError> {
        self.replay.diverged().map_or(Ok(()), |why| Err(PipeError::NotRecorded(why)))
    }

    /// Finds a request in the record and uses it. Returns the event's place.
    fn ask(&mut self, asked: Asked<'_>) -> Result<usize, PipeError> {
        self.stands()?;
        let number = *self.opening.get_or_insert_with(|| {
            let mut state = self.replay.state();
            state.used += 1;
            state.used - 1
        });
        let replay = self.replay.clone();
        let record = replay.record();
        let Some(opening) = record.openings.get(number) else {
            let count = record.openings.len();
            return Err(self.diverge(format!(
                "the record does not have {asked}: the unit is opened once more than in the record, which has {count}"
            )));
        };
        if self.used.is_empty() {
            self.used = vec![false; opening.events.len()];
            self.submissions = (0..opening.events.len()).filter(|at| is_submission(&opening.events[*at])).collect();
            self.numbers = vec![None; self.submissions.len()];
        }
        let mut unused = (self.at..opening.events.len()).filter(|at| !self.used[*at]);
        let next = unused.find(|at| asked.shares_pipe_with(&opening.events[*at]));
        let place = |at: usize| format!("event {} of opening {}", at + 1, number + 1);
        match next {
            Some(at) if asked.is(&opening.events[at], &record.flash) => {
                self.used[at] = true;
                Ok(at)
            }
            Some(at) => Err(self.diverge(format!(
                "the record does not have {asked}: its next request on that pipe is {} ({})",
                shown(&opening.events[at], &record.flash),
                place(at)
            ))),
            None => Err(self.diverge(format!(
                "the record does not have {asked}: it has no further request on that pipe ({} is its last)",
                place(opening.events.len().saturating_sub(1))
            ))),
        }
    }

    /// Puts a transfer in flight whose request is at this place in the record, unless it was refused.
    fn begun(&mut self, transfer: TransferId, at: usize) -> Result<(), PipeError> {
        let Ok(number) = self.submissions.binary_search(&at) else { return Ok(()) };
        let refusal = match self.events().get(at + 1) {
            Some(Event::Refused { transfer, end }) if *transfer == number => Some(*end),
            _ => None,
        };
        if let Some(end) = refusal {
            self.used[at + 1] = true;
            return end.outcome();
        }
        self.numbers[number] = Some(transfer);
        self.transfers[transfer.0].is_out = true;
        self.transfers[transfer.0].is_cancelled = false;
        Ok(())
    }

    fn events(&self) -> &[Event] {
        let opening = self.opening.and_then(|number| self.replay.record().openings.get(number));
        opening.map_or(&[], |opening| &opening.events)
    }

    fn act(&mut self, action: PipeAction) -> Result<(), PipeError> {
        let at = self.ask(Asked::Action(action))?;
        match &self.events()[at] {
            Event::Done { end, .. } => end.outcome(),
            _ => Ok(()),
        }
    }

    fn idle(&self, transfer: TransferId, len: usize) -> Result<Vec<u8>, PipeError> {
        let found = &self.transfers[transfer.0];
        let bytes = found.buffer.get(..len).filter(|_| !found.is_out);
        bytes
            .map(<[u8]>::to_vec)
            .ok_or_else(|| PipeError::Other("the transfer is in flight, or its buffer too short".to_owned()))
    }
}

const fn is_submission(event: &Event) -> bool {
    matches!(event, Event::Bulk { .. } | Event::Control { .. })
}

impl Pipes for ReplayPipes {
    fn streams(&self) -> u16 {
        let own = self.opening.and_then(|number| self.replay.record().openings.get(number));
        own.or_else(|| self.replay.next_opening()).map_or(0, |opening| opening.streams)
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.transfers.push(Transfer { buffer: vec![0; capacity], ..Transfer::default() });
        Ok(TransferId(self.transfers.len() - 1))
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        let buffer = &mut self.transfers[transfer.0].buffer;
        buffer.resize(buffer.len().max(capacity), 0);
        Ok(())
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        let transfer = &mut self.transfers[transfer.0];
        if transfer.is_out { &mut [] } else { &mut transfer.buffer }
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, _stream: u16, len: usize) -> Result<(), PipeError> {
        let bytes = self.idle(transfer, len)?;
        let sent = if endpoint.address() & 0x80 == 0 { &bytes[..] } else { &[] };
        let at = self.ask(Asked::Bulk(endpoint, len, sent))?;
        self.begun(transfer, at)
    }

    fn reap(&mut self, _timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        self.stands()?;
        while self.used.get(self.at) == Some(&true) {
            self.at += 1;
        }
        let replay = self.replay.clone();
        let opening = self.opening.and_then(|number| replay.record().openings.get(number));
        let Some(Event::Returned { transfer: number, end, moved, data }) =
            opening.and_then(|opening| opening.events.get(self.at))
        else {
            // In the record the host waited in vain here, and went on.
            return Err(PipeError::Timeout);
        };
        let Some(transfer) = self.numbers.get(*number).copied().flatten() else { return Err(PipeError::Timeout) };
        let found = &mut self.transfers[transfer.0];
        if *end == End::Cancelled && !found.is_cancelled {
            return Err(PipeError::Timeout);
        }
        self.used[self.at] = true;
        found.is_out = false;
        let request = self.submissions.get(*number).and_then(|at| opening.and_then(|opening| opening.events.get(*at)));
        let begins = if matches!(request, Some(Event::Control { .. })) { SETUP_LEN } else { 0 };
        if let Some(into) = found.buffer.get_mut(begins..begins + data.len()) {
            data.fill(into, &replay.record().flash);
        }
        Ok(Some(Reaped { transfer, moved: *moved, end: end.transfer() }))
    }

    fn cancel(&mut self, transfer: TransferId) {
        let transfer = &mut self.transfers[transfer.0];
        transfer.is_cancelled = transfer.is_out;
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        self.act(PipeAction::ClearHalt(endpoint))
    }

    fn mass_storage_reset(&mut self, _timeout: Duration) -> Result<(), PipeError> {
        self.act(PipeAction::MassStorageReset)
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        self.act(PipeAction::ResetPort)
    }
}

impl ControlPipes for ReplayPipes {
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError> {
        let len = control_data_len(self.buffer(transfer)).unwrap_or(usize::MAX - SETUP_LEN);
        let bytes = self.idle(transfer, SETUP_LEN + len)?;
        let (setup, data) = bytes.split_first_chunk().unwrap_or((&[0; SETUP_LEN], &[]));
        let sent = if setup[0] & 0x80 == 0 { data } else { &[] };
        let at = self.ask(Asked::Control(*setup, sent))?;
        self.begun(transfer, at)
    }
}
