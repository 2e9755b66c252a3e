//! A unit, real or virtual: finds it, opens it, asks it. Callers treat both alike.
//!
//! # The trip
//!
//! ```text
//!  --device ─► Selector ─► choose ─► Unit ─► open ─► Live ─► ask ─► Asked answers ─► Facts
//!                                     │               │
//!                                     │               └ vendor: Bridge, or open: OpenBridge
//!                                     └ its Port, for work during which it leaves the bus
//! ```
//!
//! - A [`Selector`] names a unit: a port path, a serial number, or the folder of a virtual unit. [`choose`] finds it.
//!   Without a selector it takes the only unit that is connected, and never guesses among several.
//! - A [`Unit`] has what it reports about itself and its port. [`Unit::open`] opens it by the firmware that it runs, as a
//!   [`Live`], the one place that decides between vendor firmware and open firmware.
//! - [`ask`] has a function for each question, [`facts`] the answers. A fact that was not asked for, or got no answer,
//!   says so ([`facts::Asked`]).
//!
//! # Why it is so
//!
//! - **A unit is known by its port.** While it restarts or changes its identity, its port stays. A serial number is no
//!   identity: the vendor's template number is on more than one dock. So [`Unit::find_again`] looks at the same port,
//!   and takes no other unit that is there for it.
//! - **A `Live` is its own.** It does not borrow the port: a flash uses the port while it holds the unit.
//! - **One guard of an SSD.** [`spare_ssd`] refuses a unit with an SSD, or with what could be one, for each [`Purpose`]
//!   that could harm it. What it can't tell it does not assume.
//! - **Every command asks by the same functions.** When each asked in its own way, `list` saw an SSD where `doctor` saw a
//!   runtime's unit.
//!
//! Tried and dropped: a unit that stands for a recording, which every later version of asmpatch answered differently; a
//! description of the unit for each command that lists, plans, backs up or restarts it.
//!
//! Not known: what a system other than Linux does with the unit meanwhile. There [`facts::HostState`] is empty.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use asmpatch::devices::Devices;
//! use asmpatch::unit::{self, Live, Purpose, Selector};
//!
//! let folder = tempfile::tempdir()?;
//! let selector = Selector::Virtual(Some(folder.path().join("unit")));
//! let mut unit = unit::choose(&Arc::new(Devices::shipped()), Some(&selector), None)?;
//! let Live::Vendor(mut bridge) = unit.open(Purpose::Xdata, None)? else { panic!("a new unit runs the practice image") };
//! assert_eq!(bridge.inquiry()?.device_type, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod ask;
pub mod facts;
mod live;
mod selection;

pub use live::{Live, Purpose, spare_ssd};
pub use selection::{
    NoUnit, SEVERAL, Selector, Unit, again, choose, list, named, new_virtual, port, ports, set_faults, set_keys,
    virtual_folder,
};
