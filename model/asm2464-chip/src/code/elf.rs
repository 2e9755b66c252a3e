//! ELF files of 8051 code: writes an image as one, for `readelf`, `objdump` and disassemblers, and reads what a compiler's
//! file loads.
//!
//! The two banks share their CPU addresses, and ELF has no banks. Both ways follow SDCC's convention for banked code: bits
//! 16 to 23 of the address hold the bank's number, so bank 1 begins at 0x18000. The common area and bank 0 keep their CPU
//! addresses.
//!
//! SDCC's linker for the 8051 writes Intel HEX. `objcopy` turns it into an ELF file with sections and no segments. Files of
//! both kinds are read.

use asm2464::firmware::{Area, AreaKind, Bank, CodeAddress, Image, known_routines};
use asm2464::{Failure, Kind};
use goblin::elf::header::{ELFCLASS32, EM_8051, ET_REL, Header, machine_to_str};
use goblin::elf::program_header::PT_LOAD;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_REL, SHT_RELA};
use goblin::elf::sym::STT_NOTYPE;
use goblin::elf::{Elf, SectionHeader};
use object::Endianness;
use object::elf::{self, FileFlags, PF_R, PF_X, SHN_UNDEF, SHT_PROGBITS, STB_GLOBAL};
use object::write::elf::{FileHeader, ProgramHeader, Sym, Writer};

/// Returns the ELF address: the CPU's, with 1 in bits 16 to 23 for bank 1.
pub fn elf_address(code: CodeAddress) -> u32 {
    match code.bank() {
        Bank::Common | Bank::Bank0 => u32::from(code.addr()),
        Bank::Bank1 => 0x1_0000 | u32::from(code.addr()),
    }
}

/// Returns the code address of an ELF address; `None` outside the banks. Addresses from 0x8000 to 0xFFFF belong to
/// `bank`, or to bank 0 if that is [`Bank::Common`].
pub fn from_elf_address(address: u64, bank: Bank) -> Option<CodeAddress> {
    let addr = (address & 0xFFFF) as u16;
    match address >> 16 {
        0 if addr < 0x8000 => CodeAddress::new(Bank::Common, addr),
        0 if bank == Bank::Common => CodeAddress::new(Bank::Bank0, addr),
        0 => CodeAddress::new(bank, addr),
        1 => CodeAddress::new(Bank::Bank1, addr),
        _ => None,
    }
}

/// Formats an image as an ELF32 executable for EM_8051, little-endian. The common area and both banks become sections
/// and segments, the known routines become symbols.
pub fn elf_of_image(image: &Image) -> Vec<u8> {
    write(image).expect("three sections and a few dozen symbols are far below ELF's limits")
}

fn section_name(kind: AreaKind) -> Option<&'static [u8]> {
    match kind {
        AreaKind::Code(Bank::Common) => Some(b".common"),
        AreaKind::Code(Bank::Bank0) => Some(b".bank0"),
        AreaKind::Code(Bank::Bank1) => Some(b".bank1"),
        AreaKind::Header | AreaKind::Unmapped | AreaKind::Trailer => None,
    }
}

fn write(image: &Image) -> object::write::Result<Vec<u8>> {
    let map = image.map(u32::MAX);
    let sections: Vec<(&[u8], &Area, CodeAddress)> =
        map.iter().filter_map(|area| Some((section_name(area.kind)?, area, area.first?))).collect();
    let routines: Vec<_> = known_routines(image.version()).filter(|routine| image.code(routine.at).is_some()).collect();

    let mut file = Vec::new();
    let mut writer = Writer::new(Endianness::Little, false, &mut file);
    writer.reserve_file_header();
    writer.reserve_program_headers(sections.len() as u32);
    let placed: Vec<_> = sections
        .iter()
        .map(|(name, area, _)| {
            let name = writer.add_section_name(name);
            (name, writer.reserve_section_index(), writer.reserve(area.size.into(), 1))
        })
        .collect();
    writer.reserve_null_symbol_index();
    let names: Vec<_> = routines
        .iter()
        .map(|routine| {
            writer.reserve_symbol_index(None);
            writer.add_string(routine.name.as_bytes())
        })
        .collect();
    writer.reserve_symtab_section_index();
    writer.reserve_symtab();
    writer.reserve_strtab_section_index();
    writer.reserve_strtab()?;
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab()?;
    writer.reserve_section_headers();

    writer.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_EXEC,
        e_machine: elf::EM_8051,
        e_entry: 0,
        e_flags: FileFlags::default(),
    })?;
    writer.write_align_program_headers();
    for ((_, area, start), (_, _, offset)) in sections.iter().zip(&placed) {
        let address = u64::from(elf_address(*start));
        writer.write_program_header(&ProgramHeader {
            p_type: elf::PT_LOAD,
            p_flags: PF_R | PF_X,
            p_offset: *offset,
            p_vaddr: address,
            p_paddr: address,
            p_filesz: area.size.into(),
            p_memsz: area.size.into(),
            p_align: 1,
        });
    }
    for ((_, area, start), (_, _, offset)) in sections.iter().zip(&placed) {
        writer.pad_until(*offset);
        let body = start.body_offset().0 as usize;
        writer.write(&image.body()[body..body + area.size as usize]);
    }
    writer.write_null_symbol();
    for (routine, name) in routines.iter().zip(&names) {
        let section = sections.iter().position(|(_, area, _)| area.kind == AreaKind::Code(routine.at.bank()));
        let st_name = writer.string_offset(Some(*name));
        writer.write_symbol(&Sym {
            section: section.map(|index| placed[index].1.0),
            st_name,
            st_info: STB_GLOBAL | elf::STT_FUNC,
            st_other: elf::SymbolOther::default(),
            st_shndx: SHN_UNDEF,
            st_value: elf_address(routine.at).into(),
            st_size: 0,
        });
    }
    writer.write_strtab();
    writer.write_shstrtab();
    writer.write_null_section_header();
    for ((_, area, start), (name, _, offset)) in sections.iter().zip(&placed) {
        let sh_name = writer.section_name_offset(Some(*name));
        writer.write_section_header(&object::write::elf::SectionHeader {
            sh_name,
            sh_type: SHT_PROGBITS,
            sh_flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            sh_addr: elf_address(*start).into(),
            sh_offset: *offset,
            sh_size: area.size.into(),
            sh_link: 0,
            sh_info: 0,
            sh_addralign: 1,
            sh_entsize: 0,
        });
    }
    // Only the null symbol is local.
    writer.write_symtab_section_header(1);
    writer.write_strtab_section_header();
    writer.write_shstrtab_section_header();
    Ok(file)
}

/// Returns what an ELF file loads: address and bytes, in the file's order, without empty pieces.
///
/// # Errors
/// The file is no linked 8051 code, with codes that begin with `asm2464::elf::`.
pub fn loaded_pieces(file: &[u8]) -> Result<Vec<(u64, &[u8])>, Failure> {
    let elf = parsed(file)?;
    // The address, the file offset and the length of each piece.
    let loaded: Vec<(u64, u64, u64)> = if elf.program_headers.is_empty() {
        let sections = elf.section_headers.iter();
        let relocates = |header: &SectionHeader| matches!(header.sh_type, SHT_REL | SHT_RELA) && header.sh_size > 0;
        if elf.header.e_type == ET_REL
            && let Some(section) = sections.clone().position(relocates)
        {
            let message = format!("section {section} has relocations");
            return Err(Failure::new(Kind::BadInput.code("asm2464::elf::relocations"), message));
        }
        let is_loaded =
            |header: &&SectionHeader| header.sh_flags & u64::from(SHF_ALLOC) != 0 && header.sh_type != SHT_NOBITS;
        sections.filter(is_loaded).map(|header| (header.sh_addr, header.sh_offset, header.sh_size)).collect()
    } else {
        let segments = elf.program_headers.iter().filter(|header| header.p_type == PT_LOAD);
        segments.map(|header| (header.p_paddr, header.p_offset, header.p_filesz)).collect()
    };
    let mut pieces = Vec::new();
    for (address, offset, len) in loaded {
        if len == 0 {
            continue;
        }
        let end = offset.saturating_add(len);
        let range = usize::try_from(offset).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        let Some(bytes) = file.get(range) else {
            let message = format!(
                "the bytes for address {address:#x} are at file offsets {offset:#x} to {end:#x}, the file has {} bytes",
                file.len()
            );
            return Err(Failure::new(Kind::BadInput.code("asm2464::elf::truncated"), message));
        };
        pieces.push((address, bytes));
    }
    if pieces.is_empty() {
        return Err(Failure::new(Kind::BadInput.code("asm2464::elf::empty"), "there is nothing to load in it"));
    }
    Ok(pieces)
}

fn parsed(file: &[u8]) -> Result<Elf<'_>, Failure> {
    let malformed = |error: goblin::error::Error| {
        let label = Kind::BadInput.code("asm2464::elf::malformed");
        Failure::new(label, format!("this is not a readable ELF file: {error}"))
    };
    // Parse the header first, so that a file for another machine gets that error, whatever else goblin finds wrong.
    let header = Elf::parse_header(file).map_err(malformed)?;
    if let Some(machine) = foreign_machine_in(&header) {
        let message =
            format!("this is ELF for {machine}, expected e_machine {EM_8051} (EM_8051), 32-bit little-endian");
        return Err(Failure::new(Kind::BadInput.code("asm2464::elf::machine"), message));
    }
    Elf::parse(file).map_err(malformed)
}

/// Returns the processor that an ELF file is for, in words, if it is another one than the 8051. `None` also for a file
/// without a readable header.
pub fn foreign_machine(file: &[u8]) -> Option<String> {
    foreign_machine_in(&Elf::parse_header(file).ok()?)
}

fn foreign_machine_in(header: &Header) -> Option<String> {
    let is_little = header.endianness().is_ok_and(|endianness| endianness.is_little());
    let is_32 = header.e_ident[4] == ELFCLASS32;
    if header.e_machine == EM_8051 && is_32 && is_little {
        return None;
    }
    let (bits, order) = (if is_32 { 32 } else { 64 }, if is_little { "little" } else { "big" });
    let machine = header.e_machine;
    Some(format!("another processor (e_machine {machine}, {}, {bits}-bit {order}-endian)", machine_to_str(machine)))
}

/// A function in an ELF file's symbol table: address, length in bytes (0 if it isn't given), name.
pub type ElfFunction<'a> = (u64, u64, &'a str);

/// Returns the functions in an ELF file of 8051 code, and other named symbols in its code sections.
///
/// # Errors
/// `asm2464::elf::malformed` and `asm2464::elf::machine`.
pub fn elf_functions(file: &[u8]) -> Result<Vec<ElfFunction<'_>>, Failure> {
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

#[cfg(test)]
mod tests {
    use goblin::elf::Elf;

    use super::*;
    use crate::practice;

    #[test]
    fn the_sections_hold_the_banks_and_the_symbols_stand_at_the_routines() {
        let image = practice::image();
        let file = elf_of_image(&image);
        let elf = Elf::parse(&file).unwrap();
        assert_eq!(elf.header.e_machine, 165);
        assert_eq!(elf.program_headers.len(), 3);
        let bank1 = &elf.section_headers[3];
        assert_eq!(elf.shdr_strtab.get_at(bank1.sh_name), Some(".bank1"));
        assert_eq!(bank1.sh_addr, 0x1_8000);
        let e4: CodeAddress = "b1:0xC98D".parse().unwrap();
        let at = (bank1.sh_offset + 0x498D) as usize;
        assert_eq!(Some(file[at]), image.code(e4));
        let symbol = elf.syms.iter().find(|symbol| elf.strtab.get_at(symbol.st_name) == Some("e4_xdata_read")).unwrap();
        assert_eq!(symbol.st_value, 0x1_C98D);
        assert_eq!(symbol.st_shndx, 3);
    }

    #[test]
    #[ignore = "needs readelf and objdump"]
    fn binutils_open_it_without_complaint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("practice.elf");
        std::fs::write(&path, elf_of_image(&practice::image())).unwrap();
        for (program, option) in [("readelf", "-aW"), ("objdump", "-h")] {
            let output = std::process::Command::new(program).arg(option).arg(&path).output();
            let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
            assert!(output.status.success() && output.stderr.is_empty(), "{program}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains(".bank1"), "{program}");
        }
    }

    #[test]
    fn addresses_go_to_elf_and_back() {
        for text in ["c:0x0000", "c:0x7FFF", "b0:0x8000", "b1:0x8000", "b1:0xFF6A"] {
            let code: CodeAddress = text.parse().unwrap();
            assert_eq!(from_elf_address(elf_address(code).into(), Bank::Bank0), Some(code));
        }
        let e4: CodeAddress = "b1:0xC98D".parse().unwrap();
        assert_eq!(from_elf_address(0xC98D, Bank::Bank1), Some(e4));
        assert_eq!(from_elf_address(0xFF6B, Bank::Bank0), None);
        assert_eq!(from_elf_address(0x1_7FFF, Bank::Bank0), None);
        assert_eq!(from_elf_address(0x2_8000, Bank::Bank0), None);
    }

    #[test]
    fn an_image_of_any_length_can_be_exported() {
        for len in [0x206, 0x8000, 0x8001, 0xFF6B, 0x17ED6, 0x18000] {
            let file = elf_of_image(&Image::from_body(vec![0x22; len]).unwrap());
            assert!(Elf::parse(&file).is_ok(), "{len:#x}");
        }
    }
}
