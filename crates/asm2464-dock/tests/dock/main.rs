//! The code that drives a unit, against a unit in software.

mod pcie;
mod uas;
