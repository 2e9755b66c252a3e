//! Backs up, writes, reads back and restores a unit.
