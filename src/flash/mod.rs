//! Backs up, writes, reads back and restores a unit.

pub mod backup;
pub mod backup_folder;
pub mod plan;
