//! Reads ELF files of 8051 code: what they load, and where.
//!
//! SDCC's linker for the 8051 writes Intel HEX. `objcopy` turns it into an ELF file with sections and no segments. This
//! module reads ELF files of both kinds.

use goblin::elf::header::{ELFCLASS32, EM_8051, ET_REL};
use goblin::elf::program_header::PT_LOAD;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_REL, SHT_RELA};
use goblin::elf::sym::STT_NOTYPE;
use goblin::elf::{Elf, SectionHeader};
use thiserror::Error;

/// Reasons why no code can be loaded from an ELF file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ElfFileError {
    /// The file is not ELF, or damaged. Holds goblin's error.
    #[error("this is not a readable ELF file: {0}")]
    Malformed(String),
    /// The file is for another machine.
    #[error(
        "the ELF header's e_machine is {found}, expected {EM_8051} (EM_8051); class {class}, expected 32-bit little-endian"
    )]
    Machine {
        /// e_machine.
        found: u16,
        /// Class and byte order, as text.
        class: String,
    },
    /// The file is not linked. Holds the index of a section with relocations.
    #[error("section {0} has relocations")]
    Relocations(usize),
    /// A segment or section lies past the end of the file.
    #[error("the bytes for address {address:#x} are at file offsets {offset:#x} to {end:#x}, the file has {len} bytes")]
    Truncated {
        /// The address.
        address: u64,
        /// The file offset where it should begin.
        offset: u64,
        /// The file offset where it should end.
        end: u64,
        /// The file's length.
        len: usize,
    },
    /// The file has nothing to load.
    #[error("there is nothing to load in it")]
    Empty,
}

asm2464::coded!(ElfFileError {
    Malformed => BadInput "asm2464::elf::malformed",
    Machine => BadInput "asm2464::elf::machine",
    Relocations => BadInput "asm2464::elf::relocations",
    Truncated => BadInput "asm2464::elf::truncated",
    Empty => BadInput "asm2464::elf::empty",
});

/// Returns what an ELF file loads: address and bytes, in the file's order, without empty pieces.
///
/// # Errors
/// [`ElfFileError`].
pub fn loaded_pieces(file: &[u8]) -> Result<Vec<(u64, &[u8])>, ElfFileError> {
    let elf = parsed(file)?;
    // The address, the file offset and the length of each piece.
    let loaded: Vec<(u64, u64, u64)> = if elf.program_headers.is_empty() {
        let sections = elf.section_headers.iter();
        let relocates = |header: &SectionHeader| matches!(header.sh_type, SHT_REL | SHT_RELA) && header.sh_size > 0;
        if elf.header.e_type == ET_REL
            && let Some(section) = sections.clone().position(relocates)
        {
            return Err(ElfFileError::Relocations(section));
        }
        let is_loaded =
            |header: &&SectionHeader| header.sh_flags & u64::from(SHF_ALLOC) != 0 && header.sh_type != SHT_NOBITS;
        sections.filter(is_loaded).map(|header| (header.sh_addr, header.sh_offset, header.sh_size)).collect()
    } else {
        let segments = elf.program_headers.iter().filter(|header| header.p_type == PT_LOAD);
        segments.map(|header| (header.p_paddr, header.p_offset, header.p_filesz)).collect()
    };
    let slice = |(address, offset, len): (u64, u64, u64)| {
        let end = offset.saturating_add(len);
        let range = usize::try_from(offset).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        let bytes = file.get(range).ok_or(ElfFileError::Truncated { address, offset, end, len: file.len() })?;
        Ok((address, bytes))
    };
    let pieces: Vec<_> = loaded.into_iter().filter(|(.., len)| *len > 0).map(slice).collect::<Result<_, _>>()?;
    if pieces.is_empty() { Err(ElfFileError::Empty) } else { Ok(pieces) }
}

fn parsed(file: &[u8]) -> Result<Elf<'_>, ElfFileError> {
    let malformed = |error: goblin::error::Error| ElfFileError::Malformed(error.to_string());
    // Parse the header first, so that a file for another machine gets that error, whatever else goblin finds wrong.
    let header = Elf::parse_header(file).map_err(malformed)?;
    let little_endian = header.endianness().is_ok_and(|endianness| endianness.is_little());
    if header.e_machine != EM_8051 || header.e_ident[4] != ELFCLASS32 || !little_endian {
        let bits = if header.e_ident[4] == ELFCLASS32 { 32 } else { 64 };
        let order = if little_endian { "little" } else { "big" };
        return Err(ElfFileError::Machine { found: header.e_machine, class: format!("{bits}-bit {order}-endian") });
    }
    Elf::parse(file).map_err(malformed)
}

/// A function in an ELF file's symbol table: address, length in bytes (0 if it isn't given), name.
pub type ElfFunction<'a> = (u64, u64, &'a str);

/// Returns the functions in an ELF file of 8051 code, and other named symbols in its code sections.
///
/// # Errors
/// [`ElfFileError::Malformed`] and [`ElfFileError::Machine`].
pub fn elf_functions(file: &[u8]) -> Result<Vec<ElfFunction<'_>>, ElfFileError> {
    let elf = parsed(file)?;
    let is_code = |section: usize| {
        let header = elf.section_headers.get(section);
        header.is_some_and(|header| header.sh_flags & u64::from(SHF_EXECINSTR) != 0)
    };
    let named = elf.syms.iter().filter(|symbol| {
        symbol.is_function() || (symbol.st_type() == STT_NOTYPE && is_code(symbol.st_shndx) && symbol.st_name != 0)
    });
    Ok(named.filter_map(|symbol| Some((symbol.st_value, symbol.st_size, elf.strtab.get_at(symbol.st_name)?))).collect())
}
