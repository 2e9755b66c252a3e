//! Known routines: names for disassembly and for an ELF file's symbols.

use super::address::{Bank, CodeAddress};
use super::version::FirmwareVersion;

/// A routine's entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routine {
    /// Its first address.
    pub at: CodeAddress,
    /// A name that assemblers and ELF tools accept.
    pub name: &'static str,
    /// What it does, in a few words.
    pub what: &'static str,
}

const fn routine(bank: Bank, addr: u16, name: &'static str, what: &'static str) -> Routine {
    match CodeAddress::new(bank, addr) {
        Some(at) => Routine { at, name, what },
        None => panic!("a routine outside its bank"),
    }
}

/// Routines of 240417 (read out of its code) and, at the same addresses, of the practice image (its `map.inc`),
/// sorted by address.
const ROUTINES: &[Routine] = &[
    routine(Bank::Common, 0x0000, "reset_vector", "start-up"),
    routine(Bank::Common, 0x0003, "external0_vector", "external interrupt 0"),
    routine(Bank::Common, 0x0013, "external1_vector", "external interrupt 1"),
    routine(Bank::Common, 0x0300, "call_bank0", "calls DPTR in bank 0"),
    routine(Bank::Common, 0x030A, "return_bank0", "returns into bank 0"),
    routine(Bank::Common, 0x0311, "call_bank1", "calls DPTR in bank 1"),
    routine(Bank::Common, 0x031B, "return_bank1", "returns into bank 1"),
    routine(Bank::Common, 0x0BC8, "load_generic", "A = byte at generic pointer R3:R2:R1"),
    routine(Bank::Common, 0x0BE6, "store_generic", "byte at generic pointer R3:R2:R1 = A"),
    routine(Bank::Common, 0x0D78, "load_dword", "R4..R7 = dword at IDATA @R0"),
    routine(Bank::Common, 0x0DB9, "store_dword", "dword at IDATA @R0 = R4..R7"),
    routine(Bank::Common, 0x0DDD, "load_pointer", "R3:R2:R1 = generic pointer at XDATA @DPTR"),
    routine(Bank::Common, 0x0DEF, "case", "jumps by A through the table behind the call"),
    routine(Bank::Common, 0x2814, "queue_transfer", "READ and WRITE to the NVMe queue; R7 = status"),
    routine(Bank::Common, 0x2BEA, "queue_transfer_bulk", "the same over Bulk-Only"),
    routine(Bank::Common, 0x32A5, "data_out_arrived", "continues E1 and E3"),
    routine(Bank::Common, 0x38D4, "dispatch", "runs the SCSI command at XDATA 0x0002"),
    routine(Bank::Common, 0x3CB8, "dispatch_uas", "a command over UAS"),
    routine(Bank::Common, 0x4013, "next_packet", "copies and arms the next packet of a long reply"),
    routine(Bank::Common, 0x40D9, "finish", "continues as the status at IDATA 0x6A says"),
    routine(Bank::Common, 0x425F, "begin_reply", "begins a reply in packets; R7 = status 8"),
    routine(Bank::Common, 0x4D44, "data_in_out", "a data-in packet was sent: the next packet, or the answer"),
    routine(Bank::Common, 0x5216, "send_data_in", "hands data-in to the USB controller"),
    routine(Bank::Common, 0x523C, "set_sense", "sense key R7, ASC R5, ASCQ R3"),
    routine(Bank::Bank0, 0xB104, "flash_program", "programs the flash in pages"),
    routine(Bank::Bank0, 0xBD14, "leave_idle", "clears 0xCC3A.1 and 0xCC38.1"),
    routine(Bank::Bank0, 0xBE02, "flash_command", "runs flash command R7"),
    routine(Bank::Bank0, 0xC73C, "flash_erase_slot", "erases a slot's two 64 KiB blocks"),
    routine(Bank::Bank1, 0xBC5E, "e2_flash_read", "E2"),
    routine(Bank::Bank1, 0xC98D, "e4_xdata_read", "E4"),
    routine(Bank::Bank1, 0xDA30, "e0_config_read", "E0"),
    routine(Bank::Bank1, 0xDBE7, "e3_firmware_write", "E3"),
    routine(Bank::Bank1, 0xDD1A, "e5_xdata_write", "E5"),
    routine(Bank::Bank1, 0xDD7E, "e8_reset", "E8"),
    routine(Bank::Bank1, 0xE89B, "e1_config_write", "E1"),
    routine(Bank::Bank1, 0xEC9B, "e6_nvme_admin", "E6"),
];

/// Returns the known routines of an image of this version. Other versions have these routines too, but at other
/// addresses.
pub fn known_routines(version: FirmwareVersion) -> impl Iterator<Item = Routine> {
    let known: &[Routine] = match version.0 {
        [0x24, 0x04, 0x17, 0x85, 0x00, 0x00] | [0x26, 0x11, 0x21, 0x00, 0x00, _] => ROUTINES,
        _ => &[],
    };
    known.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_routine_has_its_own_name_and_place() {
        for (at, one) in ROUTINES.iter().enumerate() {
            assert!(one.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
            assert!(ROUTINES[..at].iter().all(|other| other.name != one.name && other.at < one.at), "{}", one.name);
        }
    }

    #[test]
    fn an_unknown_version_has_no_known_routines() {
        assert_eq!(known_routines(FirmwareVersion([0x23, 0x12, 0x04, 0x85, 0, 0])).count(), 0);
    }
}
