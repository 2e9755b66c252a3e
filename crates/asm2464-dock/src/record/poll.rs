//! Polls: requests that a host repeats until an answer changes or a time is over.
//!
//! How often they come depends on the clock, which a replay does not share with its record.

use asm2464::scsi::bot::CommandBlockWrapper;
use asm2464::scsi::opcode;
use asm2464_host::bridge::SETUP_LEN;

use super::event::{Event, recorded_command};

/// bmRequestType of the open firmware's requests that bring data, and C0, which reads the supply.
const TO_HOST: u8 = 0xC0;
const SUPPLY_READ: u8 = 0xC0;

/// A request that only asks. Two are equal if they ask the same, whatever their commands' tags.
///
/// Between two requests that may change something, a replay answers a poll as often as it comes, from then on with the
/// record's last answer, and passes over polls that it does not get as often as the record has them.
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
