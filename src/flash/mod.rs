//! Backs up, writes, reads back and restores a unit.
//!
//! [`observe`] looks at a unit, [`plan`] works out what will be written, [`decide`] whether it is, [`run`] carries it out
//! and tells a [`FlashObserver`](progress::FlashObserver), [`left`] says where a stopped run leaves the unit.
//! A unit is behind a [`Port`](crate::bridge::Port), real or virtual: nothing here knows which. Its flash is reached by vendor
//! commands, or through [`registers`] where open firmware runs: [`access`] alone knows which.

pub mod access;
pub mod backup;
pub mod backup_folder;
pub mod decide;
pub mod error;
pub mod firmware_kind;
pub mod guard;
pub mod identity;
pub mod left;
pub mod observe;
pub mod open_image;
pub mod plan;
pub mod progress;
pub mod proof;
pub mod read;
pub mod registers;
pub mod run;
