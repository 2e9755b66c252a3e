//! A model of the whole ASM2464PD, for firmware authors and their CI: firmware boots on it from the reset vector and runs
//! unmodified.
//!
//! [`chip`] is the model, [`mcu`] its 8051. [`code`] makes images of what compilers write, [`symbols`] reads their names,
//! [`disasm`] lists code with them, and [`profile`] records what firmware does. [`practice`] is an image of asmpatch's own,
//! which stands in for the vendor's.
//!
//! ```
//! use asm2464_chip::chip::boot;
//! use asm2464_chip::practice;
//!
//! // Boots the image, and checks that it does what its host needs.
//! let report = boot::check(&practice::image());
//! assert_eq!(report.failure(), None);
//! ```

pub mod chip;
pub mod code;
pub mod disasm;
pub mod mcu;
pub mod practice;
pub mod profile;
pub mod symbols;
