//! Compares a host's request with those of a record, and recognizes polls: requests that a host repeats until an answer
//! changes or a time limit ends. How often they come depends on timing, so a replay may get more or fewer of them.

use std::fmt;

use asm2464::scsi::bot::CommandBlockWrapper;
use asm2464::scsi::opcode;
use asm2464_host::bridge::{Endpoint, PipeAction, SETUP_LEN};

use super::event::{Data, End, Event, recorded_command};

/// The most bytes of a request that an error shows.
const SHOWN: usize = 64;

/// A request as the host makes it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked<'a> {
    Bulk(Endpoint, usize, &'a [u8]),
    Control([u8; SETUP_LEN], &'a [u8]),
    Action(PipeAction),
}

impl Asked<'_> {
    /// Whether an event of the record is on the same pipe.
    pub(super) fn shares_pipe_with(self, event: &Event) -> bool {
        match (self, event) {
            (Self::Bulk(asked, ..), Event::Bulk { endpoint, .. }) => asked == *endpoint,
            (Self::Control(..), Event::Control { .. }) | (Self::Action(_), Event::Done { .. }) => true,
            _ => false,
        }
    }

    /// The request as a poll, if it is one.
    pub(super) fn poll(self) -> Option<Poll> {
        match self {
            Self::Control(setup, _) => Poll::by_control(setup),
            Self::Bulk(..) | Self::Action(_) => Poll::by_command(self.command()?),
        }
    }

    /// The command wrapper that the request sends, if it sends one.
    pub(super) fn command(self) -> Option<CommandBlockWrapper> {
        match self {
            Self::Bulk(Endpoint::DataOut, _, sent) => CommandBlockWrapper::parse(sent),
            _ => None,
        }
    }

    /// Whether it is the request of this event, apart from a command's tag.
    pub(super) fn is(self, event: &Event, flash: &[u8]) -> bool {
        match (self, event) {
            (Self::Bulk(asked, len, sent), Event::Bulk { endpoint, len: recorded, data }) => {
                // The host numbers its commands by their tags: one more poll changes the tags of all later commands.
                let same = match self.command().zip(recorded_command(event, flash)) {
                    Some((wrapper, CommandBlockWrapper { tag, .. })) => {
                        data.matches(&CommandBlockWrapper { tag, ..wrapper }.to_bytes(), flash)
                    }
                    None => data.matches(sent, flash),
                };
                asked == *endpoint && len == *recorded && same
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
                if let Some(wrapper) = self.command() {
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

/// Place of the tag in a command wrapper and in a status wrapper.
pub(super) const TAG: std::ops::Range<usize> = 4..8;

/// An event of the record, as an error shows it.
pub(super) fn shown(event: &Event, flash: &[u8]) -> String {
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

/// bmRequestType of the open firmware's requests that read data, and bRequest of the one that reads the power supply.
const TO_HOST: u8 = 0xC0;
const SUPPLY_READ: u8 = 0xC0;

/// A request that only reads, and so may be repeated. Equal polls read the same; a command's tag does not count.
///
/// Until the next request that may change something, a poll may come more or less often than recorded. If it comes more
/// often, the replay repeats the record's last answer. If it comes less often, the replay skips recorded repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Poll {
    /// A command of the vendor's firmware over Bulk-Only.
    Command(CommandBlockWrapper),
    /// A control request of the open firmware.
    Control([u8; SETUP_LEN]),
}

impl Poll {
    /// The poll that begins with this event of a record.
    pub(super) fn of(event: &Event, flash: &[u8]) -> Option<Self> {
        match event {
            Event::Control { setup, .. } => Self::by_control(*setup),
            _ => Self::by_command(recorded_command(event, flash)?),
        }
    }

    /// The poll that this command wrapper begins.
    pub(super) fn by_command(wrapper: CommandBlockWrapper) -> Option<Self> {
        let is_poll = matches!(
            wrapper.cdb.opcode(),
            opcode::TEST_UNIT_READY
                | opcode::REQUEST_SENSE
                | opcode::INQUIRY
                | opcode::READ_CAPACITY_10
                | opcode::XDATA_READ
        );
        is_poll.then_some(Self::Command(CommandBlockWrapper { tag: 0, ..wrapper }))
    }

    /// The poll that this setup packet is.
    pub(super) fn by_control(setup: [u8; SETUP_LEN]) -> Option<Self> {
        let is_poll = setup[0] == TO_HOST && matches!(setup[1], opcode::XDATA_READ | SUPPLY_READ);
        is_poll.then_some(Self::Control(setup))
    }
}
