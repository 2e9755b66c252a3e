//! Results of a survey besides the tree: what was written, and what is wrong.

use derive_more::Display;
use serde::{Deserialize, Serialize};

use super::capability::{CapabilityFault, LinkRate};
use super::function::{Buses, Window};
use asm2464::Bdf;

/// Maximum number of functions. No tree behind a dock has more.
pub(super) const FUNCTIONS_MAX: usize = 256;

/// A lasting change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Change {
    /// A bridge got bus numbers.
    Buses {
        /// The bridge.
        at: Bdf,
        /// The new numbers.
        buses: Buses,
    },
    /// A bridge got windows. It now forwards memory requests, and devices behind it may send some.
    Windows {
        /// The bridge.
        at: Bdf,
        /// The window below 4 GiB.
        memory: Option<Window>,
        /// The window for prefetchable memory.
        prefetchable: Option<Window>,
    },
    /// A BAR got an address. The function now answers memory requests.
    Bar {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
        /// The new address.
        address: u64,
    },
}

/// A problem that the survey found.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Note {
    /// A function never became ready.
    #[display("{at} is still not ready after {attempts} attempts")]
    NotReady {
        /// The function.
        at: Bdf,
        /// Number of attempts.
        attempts: u32,
    },
    /// A function sent no completion, so the rest of its bus was left alone.
    #[display("{at}: {answer}; the rest of its bus was not scanned")]
    NoAnswer {
        /// The function.
        at: Bdf,
        /// The answer instead of a completion.
        answer: String,
    },
    /// A function stopped answering.
    #[display("{at} stopped answering")]
    Lost {
        /// The function.
        at: Bdf,
    },
    /// A bridge has no bus numbers. What is behind it was not examined.
    #[display("{at} has no bus numbers assigned: what is behind it was not scanned")]
    NotNumbered {
        /// The bridge.
        at: Bdf,
    },
    /// A bridge's bus numbers are invalid. What is behind it was not examined.
    #[display(
        "{at} has bus numbers that make no sense ({:02x}, {:02x}-{:02x}): what is behind it was not scanned",
        buses.primary,
        buses.secondary,
        buses.subordinate
    )]
    OddBuses {
        /// The bridge.
        at: Bdf,
        /// Its numbers.
        buses: Buses,
    },
    /// No bus number is left for a bridge. What is behind it was not examined.
    #[display("no bus number is left for {at}: what is behind it was not scanned")]
    NoBusLeft {
        /// The bridge.
        at: Bdf,
    },
    /// A bridge does not keep the bus numbers that were written.
    #[display("{at} does not keep its bus numbers: what is behind it was not scanned")]
    BusesNotKept {
        /// The bridge.
        at: Bdf,
    },
    /// There are more functions than asmpatch examines.
    #[display("more than {FUNCTIONS_MAX} functions: the rest was not scanned")]
    TooMany,
    /// A list of capabilities is malformed.
    #[display("{at}: {fault}")]
    Capabilities {
        /// The function.
        at: Bdf,
        /// What is wrong with it.
        fault: CapabilityFault,
    },
    /// A BAR returned an invalid size.
    #[display("{at}: BAR {index} has an invalid size")]
    OddBar {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
    },
    /// A bridge forwards no memory requests although BARs in the tree have addresses.
    #[display("{at} forwards no memory requests")]
    Closed {
        /// The bridge.
        at: Bdf,
    },
    /// There is no room for a BAR.
    #[display("{at}: no room for the {size:#x} bytes of BAR {index}")]
    NoRoom {
        /// The function.
        at: Bdf,
        /// The BAR's number.
        index: u8,
        /// Its size.
        size: u64,
    },
    /// A link is slower or narrower than both its ends support.
    #[display(
        "{at}: the link runs at {link}, both ends support {can}: check the card's seat and its cable; an idle GPU may lower \
         the speed by itself"
    )]
    Slow {
        /// The function at its lower end.
        at: Bdf,
        /// Rate that the link trained to.
        link: LinkRate,
        /// Rate that both ends support.
        can: LinkRate,
    },
    /// The link went down during the survey.
    #[display("the link went down meanwhile")]
    LinkWentDown,
}
