//! Backs up, writes, reads back and restores a unit.
//!
//! [`observe`] examines a unit, [`plan`] computes what to write, [`decide`] decides whether to write, [`run`] carries
//! out the plan and reports to a [`FlashProgress`](progress::FlashProgress), and [`recovery`] lists the steps that
//! recover a unit after a stopped run. [`session`] takes several units through all of this, and asks the user through a
//! front end. [`changes`] is the order in which the flash's contents change.
//!
//! A unit is behind a [`Port`](asm2464_host::bridge::Port), real or virtual. Its flash is reached by vendor commands,
//! or with open firmware through [registers](asm2464::flash): [`access`] opens either.

pub mod access;
pub mod backup;
pub mod backup_folder;
pub mod behaviour;
pub mod changes;
pub mod decide;
pub mod error;
pub mod fitting;
pub mod flash_copy;
pub mod identity;
pub mod neutral;
pub mod observe;
pub mod offers;
pub mod plan;
pub mod progress;
pub mod recovery;
pub mod run;
pub mod serials;
pub mod session;
pub mod whole_flash;
