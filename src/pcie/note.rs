//! What a survey tells beside the tree: what was written, and what is not as it should be.

use std::fmt;

use serde::Serialize;

use super::capability::{CapabilityFault, LinkRate};
use super::function::{Buses, Window};
use super::place::Bdf;
use super::survey::FUNCTIONS_MAX;

/// Something that was written and stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Change {
    /// A bridge's bus numbers.
    Buses {
        /// The bridge.
        at: Bdf,
        /// What they are now.
        buses: Buses,
    },
    /// A bridge's windows; it forwards memory requests now, and what is behind it may send some.
    Windows {
        /// The bridge.
        at: Bdf,
        /// Below 4 GiB.
        memory: Option<Window>,
        /// For prefetchable memory.
        prefetchable: Option<Window>,
    },
    /// A BAR; the function answers memory requests now.
    Bar {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
        /// What stands in it now.
        address: u64,
    },
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Note {
    /// A function that never became ready.
    NotReady {
        /// The function.
        at: Bdf,
        /// How often it was asked.
        attempts: u32,
    },
    /// A function that did not answer with a completion, so the rest of its bus was left alone.
    NoAnswer {
        /// The function.
        at: Bdf,
        /// What came in its place.
        answer: String,
    },
    /// A function that answered first, and then did not.
    Lost {
        /// The function.
        at: Bdf,
    },
    /// A bridge without bus numbers: what is behind it was not looked at.
    NotNumbered {
        /// The bridge.
        at: Bdf,
    },
    /// A bridge whose bus numbers make no sense: what is behind it was not looked at.
    OddBuses {
        /// The bridge.
        at: Bdf,
        /// Its numbers.
        buses: Buses,
    },
    /// No bus number is left for a bridge: what is behind it was not looked at.
    NoBusLeft {
        /// The bridge.
        at: Bdf,
    },
    /// A bridge that does not keep the bus numbers that it is given.
    BusesNotKept {
        /// The bridge.
        at: Bdf,
    },
    /// More functions than asmpatch looks at.
    TooMany,
    /// A list of capabilities that does not end as it should.
    Capabilities {
        /// The function.
        at: Bdf,
        /// What is wrong with it.
        fault: CapabilityFault,
    },
    /// A BAR whose answer to the question for its size makes no sense.
    OddBar {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
    },
    /// A bridge that is closed to memory requests, while BARs in the tree have addresses.
    Closed {
        /// The bridge.
        at: Bdf,
    },
    /// A BAR for which there is no room.
    NoRoom {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
        /// Its size.
        size: u64,
    },
    /// A link below what both ends can.
    Slow {
        /// The function at its lower end.
        at: Bdf,
        /// What it trained to.
        link: LinkRate,
        /// What both ends can.
        can: LinkRate,
    },
    /// The link went down during the survey.
    LinkWentDown,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady { at, attempts } => write!(f, "{at} is still not ready after {attempts} attempts"),
            Self::NoAnswer { at, answer } => write!(f, "{at}: {answer}; the rest of its bus was not looked at"),
            Self::Lost { at } => write!(f, "{at} answered first, and then did not"),
            Self::NotNumbered { at } => {
                write!(f, "{at} has no bus number to go on with: what is behind it was not looked at")
            }
            Self::OddBuses { at, buses: Buses { primary, secondary, subordinate } } => write!(
                f,
                "{at} has bus numbers that make no sense ({primary:02x}, {secondary:02x}-{subordinate:02x}): what is behind \
                 it was not looked at; `asmpatch pcie reset` clears them"
            ),
            Self::NoBusLeft { at } => {
                write!(
                    f,
                    "no bus number is left for {at}: what is behind it was not looked at; `asmpatch pcie reset` frees them"
                )
            }
            Self::BusesNotKept { at } => {
                write!(f, "{at} does not keep its bus numbers: what is behind it was not looked at")
            }
            Self::TooMany => write!(f, "more than {FUNCTIONS_MAX} functions: the rest was not looked at"),
            Self::Capabilities { at, fault } => write!(f, "{at}: {fault}"),
            Self::OddBar { at, index } => write!(f, "{at}: BAR {index} has no size that makes sense"),
            Self::Closed { at } => {
                write!(f, "{at} forwards no memory requests: `asmpatch pcie --assign` lays windows and BARs out anew")
            }
            Self::NoRoom { at, index, size } => write!(f, "{at}: no room for the {size:#x} bytes of BAR {index}"),
            Self::Slow { at, link, can } => write!(
                f,
                "{at}: the link runs at {link}, both ends can {can}: check the card's seat and its cable; an idle GPU may \
                 lower the speed by itself"
            ),
            Self::LinkWentDown => f.write_str("the link went down meanwhile"),
        }
    }
}
