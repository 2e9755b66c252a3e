//! A model of the whole ASM2464PD, for firmware authors and their CI: firmware boots on it from the reset vector and runs
//! unmodified.
//!
//! [`chip`] is the model, [`mcu`] its 8051 with a disassembler. [`code`] makes images of what compilers write, [`symbols`]
//! reads their names, and [`profile`] records what firmware does. [`practice`] is an image of asmpatch's own, which stands
//! in for the vendor's.

pub mod chip;
pub mod code;
pub mod mcu;
pub mod practice;
pub mod profile;
pub mod symbols;

use asm2464::{digest, scsi};

/// The image's facts, with the code files of this crate.
mod firmware {
    pub(crate) use crate::code::*;
    pub(crate) use asm2464::firmware::*;
}
