//! Backs up, writes, reads back and restores a unit.
//!
//! A unit that is written wrongly comes up in its ROM's boot loader, or not at all, so this is where asmpatch is most
//! careful: everything that can fail happens before the first erase, and whatever stops a write afterwards leaves a state
//! that has a name and a command that leads out of it. Nothing here prints.
//!
//! # The trip
//!
//! ```text
//!  Port ─► Observation ─┐                        Allowed, Decision          FlashReport
//!                       ├─► FlashPlan ─► Examined ─► decide ─► Terms ─► prepare ─► confirm ─► write ─► StartedCode
//!  Proof ───────────────┘      ▲                                          │                   │
//!  Backup, FlashCopy ──────────┘                                          └─► backup_folder   └─► StoppedState ─► NextStep
//! ```
//!
//! - [`observe`] reads a unit, and [`access`] how: by vendor commands, or with open firmware through the
//!   [registers](asm2464::flash) of the flash controller. A unit is behind a [`Port`](asm2464_host::bridge::Port), real
//!   or virtual.
//! - [`wanted`] is what a command wants in its units' flash. From that and what was seen, [`plan`] computes every byte that will be written, from a proved image ([`Proof`](crate::image::Proof)) and the
//!   blocks of the unit, of a [`backup`], of a [copy of a flash](crate::file_kind::flash_copy), or
//!   [neutral](identity::neutral_blocks) ones.
//! - [`needs`] collects what keeps a write from being carried out, and what it takes from a unit; [`decide`] holds that
//!   against what the user permits ([`consent`]). Both are pure.
//! - [`run`] carries a plan out, in three phases that are types: only a unit that was prepared and then seen to be the
//!   same has a function that writes. It reports to a [`FlashProgress`](progress::FlashProgress). [`changes`] is the order
//!   in which the flash's contents change, and [`behaviour`] tells what runs afterwards.
//! - [`recovery`] turns the state that a stopped run left into steps, as data; [`fitting`] finds the backups that lead
//!   back, and [`offers`] the steps that do.
//! - [`job`] takes the units of one command through all of this. A front end shows and asks in between.
//!
//! # Why it is so
//!
//! - **A unit is known by its port.** While it is written, its ID, its serial number and its firmware change. A serial
//!   number at another port may be another unit: docks of one batch share the vendor's template.
//! - **The first sector goes last.** It has the image's length and magic, without which the ROM starts its boot loader. So
//!   a write that stops leaves the old image, the new one, or the boot loader, and never half an image that starts.
//! - **No signal stops a write that has begun.** Ctrl-C is looked at before the first erase and after the readback; a
//!   second one prints the unit's state and the commands, and ends.
//! - **A restart proves nothing.** A CPU reset keeps the code that is in the chip's memory, as far as owners could see, so
//!   only behaviour that differs between old and new code says what runs.
//! - **A backup is never overwritten and never assumed.** Which backup is a unit's own is a question unless its identity
//!   proves it.
//!
//! Tried and dropped: finding a unit that left by its serial number at another port, which could have written to its
//! twin; errors told apart by variants that nobody matched on; a second flash in place of the readback that the boot
//! loader can't give, which `verify --device` replaced.
//!
//! Not known: all of it on silicon. It has run against the vendor's and the open firmware on the model of the chip, and
//! against virtual units that lose their power at any byte (docs/lab/reliability.md).
//!
//! The [crate's page](crate) has an example that flashes a virtual unit.

pub mod access;
pub mod backup;
pub mod backup_folder;
pub mod behaviour;
pub mod changes;
pub mod consent;
pub mod decide;
pub mod error;
pub mod examined;
pub mod fitting;
pub mod identity;
pub mod job;
pub mod needs;
pub mod observe;
pub mod offers;
pub mod plan;
pub mod progress;
pub mod recovery;
pub mod run;
pub mod serials;
pub mod wanted;
pub mod whole_flash;
