//! Pipes whose unit is a record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asm2464::scsi::bot::{CSW_LEN, CSW_SIGNATURE};
use asm2464_host::bridge::{
    ControlPipes, Endpoint, PipeAction, PipeError, Pipes, Reaped, SETUP_LEN, TransferId, control_data_len,
};

use super::asked::{Asked, Poll, TAG, shown};
use super::event::{End, Event, recorded_command};
use super::{Opening, Record};

/// The most events from a poll's first to its last: more than asmpatch's hosts have in flight.
const POLL_EVENTS_MAX: usize = 128;

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
    /// Why the replay has ended: a request that is not in the record. Later requests get no answer.
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

    /// Why the replay has ended, if it has: the request that is not in the record.
    pub(super) fn diverged(&self) -> Option<String> {
        self.state().diverged.clone()
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
/// Requests have to come in the record's order on each pipe. A transfer returns once all requests have come that the
/// record has before its return. A poll may come more or less often: see [`Poll`].
#[derive(Debug)]
pub(super) struct ReplayPipes {
    replay: Replay,
    /// Which of the record's openings this is, from the first request on.
    opening: Option<usize>,
    /// The first event that was not used yet.
    at: usize,
    /// Which events were used.
    used: Vec<bool>,
    /// Indices of the opening's submissions among its events.
    submissions: Vec<usize>,
    /// The host's transfer of each of the record's submissions, by number.
    numbers: Vec<Option<TransferId>>,
    transfers: Vec<Transfer>,
    /// The polls since the last request that may have changed their answers, each with the index of its latest request.
    polls: Vec<(Poll, usize)>,
    /// How much greater the tag of the last command is than the recorded one.
    tag_shift: u32,
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
            polls: Vec::new(),
            tag_shift: 0,
        }
    }

    /// Ends the replay, because a request is not in the record. Returns the error that every later request gets, too.
    fn diverge(&self, why: String) -> PipeError {
        PipeError::NotRecorded(self.replay.state().diverged.get_or_insert(why).clone())
    }

    fn check_not_diverged(&self) -> Result<(), PipeError> {
        self.replay.diverged().map_or(Ok(()), |why| Err(PipeError::NotRecorded(why)))
    }

    /// Finds a request in the record and uses it. Returns the event's index.
    fn ask(&mut self, asked: Asked<'_>) -> Result<usize, PipeError> {
        self.check_not_diverged()?;
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
        let is_next = next.filter(|at| asked.is(&opening.events[*at], &record.flash));
        if let Some(at) = is_next.or_else(|| self.poll(asked, opening, &record.flash)) {
            self.answer(asked, at, &opening.events[at], &record.flash);
            return Ok(at);
        }
        match next {
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

    /// Uses the event at this index for a request.
    fn answer(&mut self, asked: Asked<'_>, at: usize, event: &Event, flash: &[u8]) {
        self.used[at] = true;
        if let Some((asked, recorded)) = asked.command().zip(recorded_command(event, flash)) {
            self.tag_shift = asked.tag.wrapping_sub(recorded.tag);
        }
        match asked.poll() {
            Some(poll) => {
                self.polls.retain(|(known, _)| *known != poll);
                self.polls.push((poll, at));
            }
            // Reading data or status belongs to the command before, which may be a poll.
            None if matches!(asked, Asked::Bulk(Endpoint::DataIn, ..)) => {}
            None => self.polls.clear(),
        }
    }

    /// Finds the event for a request that is not the record's next one, because the host polls more or less often than
    /// recorded. A host waits for each poll's answer, so nothing else may be in flight.
    fn poll(&mut self, asked: Asked<'_>, opening: &Opening, flash: &[u8]) -> Option<usize> {
        if self.transfers.iter().any(|transfer| transfer.is_out) {
            return None;
        }
        // Less often: between here and the request, the record only repeats polls.
        let mut skipped = Vec::new();
        let mut next = self.at;
        while let Some(at) = (next..opening.events.len()).find(|at| !self.used[*at]) {
            if asked.is(&opening.events[at], flash) {
                return Some(at);
            }
            let poll = Poll::of(&opening.events[at], flash);
            let is_known = self.polls.iter().any(|(known, _)| Some(known) == poll.as_ref());
            let Some(exchange) = self.exchange(at, opening).filter(|_| is_known) else { break };
            exchange.iter().for_each(|at| self.used[*at] = true);
            skipped.extend(exchange);
            next = at;
        }
        skipped.into_iter().for_each(|at| self.used[at] = false);
        // More often: the record's last answer to this poll is used again.
        let poll = asked.poll()?;
        let (_, at) = *self.polls.iter().find(|(known, _)| *known == poll)?;
        self.exchange(at, opening)?.into_iter().for_each(|at| self.used[at] = false);
        self.at = at;
        Some(at)
    }

    /// The events of the poll at this index: its transfers and their returns. `None` if others came in between.
    fn exchange(&self, at: usize, opening: &Opening) -> Option<Vec<usize>> {
        let first = self.submissions.binary_search(&at).ok()?;
        let events = opening.events.iter().enumerate().skip(at);
        if matches!(opening.events[at], Event::Control { .. }) {
            let back = |event: &Event| match event {
                Event::Returned { transfer, end: End::Done | End::Stall, .. } => *transfer == first,
                _ => false,
            };
            return Some(vec![at, events.take(POLL_EVENTS_MAX).find(|(_, event)| back(event))?.0]);
        }
        // A command ends where the next one begins.
        let is_more = |(place, event): &(usize, &Event)| *place == at || !is_end(event);
        let all: Vec<(usize, &Event)> = events.take(POLL_EVENTS_MAX).take_while(is_more).collect();
        let is_part = |event: &Event| match event {
            Event::Bulk { .. } => true,
            Event::Returned { transfer, end: End::Done, .. } => *transfer >= first,
            _ => false,
        };
        let sent = all.iter().filter(|(_, event)| is_submission(event)).count();
        (all.iter().all(|(_, event)| is_part(event)) && all.len() == 2 * sent)
            .then(|| all.into_iter().map(|(at, _)| at).collect())
    }

    /// Puts a transfer in flight whose request is the event at this index, unless the record has it refused.
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

/// Whether this event belongs to no command that began before it.
const fn is_end(event: &Event) -> bool {
    matches!(event, Event::Bulk { endpoint: Endpoint::DataOut, .. } | Event::Control { .. } | Event::Done { .. })
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
        self.check_not_diverged()?;
        while self.used.get(self.at) == Some(&true) {
            self.at += 1;
        }
        let replay = self.replay.clone();
        let opening = self.opening.and_then(|number| replay.record().openings.get(number));
        let Some(Event::Returned { transfer: number, end, moved, data }) =
            opening.and_then(|opening| opening.events.get(self.at))
        else {
            // In the record, no transfer returns before the host's next request.
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
            if let Some(status) = into.last_chunk_mut::<CSW_LEN>().filter(|it| it.starts_with(&CSW_SIGNATURE)) {
                let tag = status[TAG].try_into().map_or(0, u32::from_le_bytes).wrapping_add(self.tag_shift);
                status[TAG].copy_from_slice(&tag.to_le_bytes());
            }
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
