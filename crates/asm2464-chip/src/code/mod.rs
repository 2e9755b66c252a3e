//! Code as compilers and assemblers write it: ELF, Intel HEX, raw bytes; images as ELF for disassemblers.

mod code_file;
mod elf;
mod elf_file;
mod text;

pub use code_file::{CodeFileError, CodeFormat, image_of_code};
pub use elf::{elf_address, elf_of_image, from_elf_address};
pub use elf_file::{ElfFileError, ElfFunction, elf_functions, loaded_pieces};
pub use text::TextKind;
