//! The blocks of a pcapng file, little-endian.
//!
//! Source: IETF draft "PCAP Now Generic (pcapng) Capture File Format" (draft-ietf-opsawg-pcapng), sections 3 and 4.

use std::time::Duration;

/// LINKTYPE_USB_LINUX_MMAPPED: each packet begins with usbmon's header of 64 bytes.
pub const USB_LINUX_MMAPPED: u16 = 220;
/// The most bytes of a packet in the file, including its header. Wireshark rejects longer packets of this link type.
pub const SNAP_LEN: usize = 262_144;
/// The first four bytes of every pcapng file: the type of its section header block.
pub const MAGIC: [u8; 4] = SECTION_HEADER.to_le_bytes();

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const END_OF_OPTIONS: u16 = 0;
/// The number of the only interface.
const INTERFACE: u32 = 0;

/// Appends a section header block of unknown length.
pub fn section_header(out: &mut Vec<u8>, application: &str) {
    const BYTE_ORDER: u32 = 0x1A2B_3C4D;
    const VERSION: [u16; 2] = [1, 0];
    const UNKNOWN_LENGTH: u64 = u64::MAX;
    const USER_APPLICATION: u16 = 4;
    block(out, SECTION_HEADER, |out| {
        out.extend(BYTE_ORDER.to_le_bytes());
        out.extend(VERSION.map(u16::to_le_bytes).as_flattened());
        out.extend(UNKNOWN_LENGTH.to_le_bytes());
        option(out, USER_APPLICATION, application.as_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Appends the description of the section's only interface. Its timestamps are in nanoseconds.
pub fn interface_description(out: &mut Vec<u8>, link_type: u16) {
    const TIME_RESOLUTION: u16 = 9;
    const NANOSECONDS: u8 = 9;
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend(link_type.to_le_bytes());
        out.extend([0; 2]);
        out.extend((SNAP_LEN as u32).to_le_bytes());
        option(out, TIME_RESOLUTION, &[NANOSECONDS]);
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Appends a packet: a header and data, of which up to [`SNAP_LEN`] bytes are kept. `time` counts from 1970;
/// `original_len` is the whole packet's length.
pub fn enhanced_packet(out: &mut Vec<u8>, time: Duration, original_len: usize, header: &[u8], data: &[u8]) {
    let data = &data[..data.len().min(SNAP_LEN.saturating_sub(header.len()))];
    block(out, ENHANCED_PACKET, |out| {
        out.extend(INTERFACE.to_le_bytes());
        timestamp(out, time);
        out.extend(((header.len() + data.len()) as u32).to_le_bytes());
        out.extend(u32::try_from(original_len).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(header);
        out.extend(data);
        pad(out, header.len() + data.len());
    });
}

/// Appends the interface's counters: packets received, and how many of them are missing in the file.
pub fn interface_statistics(out: &mut Vec<u8>, time: Duration, received: u64, dropped: u64) {
    const RECEIVED: u16 = 4;
    const DROPPED: u16 = 5;
    block(out, INTERFACE_STATISTICS, |out| {
        out.extend(INTERFACE.to_le_bytes());
        timestamp(out, time);
        option(out, RECEIVED, &received.to_le_bytes());
        option(out, DROPPED, &dropped.to_le_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Appends a block: its type, its length, its body, its length again.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = ((out.len() + 4 - start) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&length);
    out.extend(length);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend(value);
    pad(out, value.len());
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(&[0; 3][..len.next_multiple_of(4) - len]);
}

/// Appends a time in nanoseconds, the upper word first. 64 bits last until the year 2554.
fn timestamp(out: &mut Vec<u8>, time: Duration) {
    let nanos = time.as_nanos() as u64;
    out.extend(((nanos >> 32) as u32).to_le_bytes());
    out.extend((nanos as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word(bytes: &[u8], at: usize) -> usize {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    }

    #[test]
    fn a_file_begins_with_a_section_and_its_interface() {
        let mut out = Vec::new();
        section_header(&mut out, "asmpatch");
        interface_description(&mut out, USB_LINUX_MMAPPED);
        #[rustfmt::skip]
        let expected = [
            0x0A, 0x0D, 0x0D, 0x0A, 44, 0, 0, 0, 0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0,
            0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
            4, 0, 8, 0, b'a', b's', b'm', b'p', b'a', b't', b'c', b'h', 0, 0, 0, 0, 44, 0, 0, 0,
            1, 0, 0, 0, 32, 0, 0, 0, 220, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0,
        ];
        assert_eq!(out, expected);
        assert!(out.starts_with(&MAGIC));
    }

    #[test]
    fn a_packet_has_its_time_in_nanoseconds_and_is_padded_to_words() {
        let mut out = Vec::new();
        enhanced_packet(&mut out, Duration::new(4, 294_967_297), 9, &[1, 2], &[3, 4, 5]);
        #[rustfmt::skip]
        let expected = [
            6, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0,
            1, 2, 3, 4, 5, 0, 0, 0, 40, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_packet_longer_than_wireshark_reads_is_cut_and_keeps_its_length() {
        let mut out = Vec::new();
        enhanced_packet(&mut out, Duration::ZERO, 64 + (1 << 20), &[0; 64], &vec![7; 1 << 20]);
        assert_eq!((word(&out, 20), word(&out, 24)), (SNAP_LEN, 64 + (1 << 20)));
        assert_eq!(out.len(), SNAP_LEN + 32);
    }

    #[test]
    fn the_statistics_tell_what_was_lost() {
        let mut out = Vec::new();
        interface_statistics(&mut out, Duration::ZERO, 0x1234, 3);
        assert_eq!(word(&out, 4), out.len());
        assert_eq!(out[20..44], [4, 0, 8, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 5, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn blocks_of_any_length_follow_each_other(packets: Vec<(Vec<u8>, Vec<u8>)>, application in ".{0,40}") {
            let mut out = Vec::new();
            section_header(&mut out, &application);
            interface_description(&mut out, USB_LINUX_MMAPPED);
            for (header, data) in &packets {
                enhanced_packet(&mut out, Duration::from_nanos(1), header.len() + data.len(), header, data);
            }
            let mut found = Vec::new();
            let mut rest = &out[..];
            while !rest.is_empty() {
                let len = word(rest, 4);
                prop_assert!(len.is_multiple_of(4) && len >= 12);
                prop_assert_eq!(word(rest, len - 4), len);
                if word(rest, 0) == ENHANCED_PACKET as usize {
                    found.push(rest[28..28 + word(rest, 20)].to_vec());
                }
                rest = &rest[len..];
            }
            let expected: Vec<Vec<u8>> = packets.iter().map(|(header, data)| [&header[..], data].concat()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
