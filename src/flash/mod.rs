//! Backs up, writes, reads back and restores a unit.
//!
//! [`observe`] examines a unit, [`plan`] computes what to write, [`decide`] decides whether to write, [`run`] carries
//! out the plan and reports to a [`FlashProgress`](progress::FlashProgress), and [`recovery`] names the state after a
//! stopped run with the steps that lead out of it. [`session`] takes several units through all of this, and asks a front end. A unit is behind a [`Port`](asm2464_host::bridge::Port), real or virtual; nothing here knows which. Its flash
//! is reached by vendor commands, or with open firmware through [registers](asm2464::flash); only [`access`] knows which.
//! [`slot`] is the contents of the flash, and determines the order in which they change there.

pub mod access;
pub mod backup;
pub mod backup_folder;
pub mod decide;
pub mod error;
pub mod firmware_kind;
pub mod fitting;
pub mod identity;
pub mod observe;
pub mod offers;
pub mod open_image;
pub mod plan;
pub mod progress;
pub mod proof;
pub mod recovery;
pub mod run;
pub mod session;
pub mod slot;
