//! Writes an image as an ELF file, for `readelf`, `objdump` and disassemblers.
//!
//! The two banks share their CPU addresses, and ELF has no banks. The file follows SDCC's convention for banked code:
//! bits 16 to 23 of the address hold the bank's number, so bank 1 begins at 0x18000. The common area and bank 0 keep
//! their CPU addresses.

use object::Endianness;
use object::elf::{
    self, FileFlags, PF_R, PF_X, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHN_UNDEF, SHT_PROGBITS, STB_GLOBAL,
};
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};

use asm2464::firmware::{Area, AreaKind, Bank, CodeAddress, Image, known_routines};

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
            p_type: PT_LOAD,
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
        writer.write_section_header(&SectionHeader {
            sh_name,
            sh_type: SHT_PROGBITS,
            sh_flags: SHF_ALLOC | SHF_EXECINSTR,
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
