//! The code that drives a unit, against a unit in software.

mod pcie;
mod uas;

use asm2464::{firmware, scsi};
use asm2464_chip::chip;
use asm2464_dock::{tiny_gpu, virtual_bridge};
use asm2464_host::bridge;
