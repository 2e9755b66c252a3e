//! A virtual unit neither panics nor hangs, whatever a host sends.

use asm2464::firmware::FlashAddress;
use asm2464::scsi::Cdb;
use asm2464::scsi::bot::{CommandBlockWrapper, Direction};
use asm2464::scsi::uas::{CommandIu, Tag};
use asm2464_chip::spi_flash::FLASH_LEN;
use asm2464_host::bridge::Endpoint;
use proptest::prelude::*;

use super::unit;
use crate::virtual_unit::Reply;

#[derive(Debug, Clone)]
enum Host {
    Out(Endpoint, u16, Vec<u8>),
    In(Endpoint, u16, usize),
    ClearHalt(Endpoint),
    Reset,
    BusReset,
    Configure(u8),
    Recover,
    Alternate(u8),
    Poll,
    Unplug,
    PlugIn,
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    prop::sample::select(vec![Endpoint::DataIn, Endpoint::DataOut, Endpoint::Status, Endpoint::Command])
}

fn cdb() -> impl Strategy<Value = Cdb> {
    let opcodes = vec![
        0x00, 0x03, 0x12, 0x1A, 0x25, 0x28, 0x2A, 0x5A, 0x88, 0x8A, 0x9E, 0xA0, 0xE0, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5,
        0xE6, 0xE8, 0xFF,
    ];
    (prop::sample::select(opcodes), prop::sample::select(vec![0x00, 0x50, 0x51, 0xD0]), any::<[u8; 14]>(), 2usize..=16)
        .prop_map(|(opcode, mode, rest, len)| {
            let mut bytes = vec![opcode, mode];
            bytes.extend(rest);
            Cdb::new(&bytes[..len]).unwrap()
        })
}

fn out() -> impl Strategy<Value = Host> {
    let wrapper = (cdb(), prop_oneof![0u32..600, any::<u32>()], any::<bool>(), 0u8..3).prop_map(
        |(cdb, transfer_length, is_in, lun)| {
            let direction = if is_in { Direction::In } else { Direction::Out };
            let bytes = CommandBlockWrapper { tag: 1, transfer_length, direction, lun, cdb }.to_bytes();
            Host::Out(Endpoint::DataOut, 0, bytes.to_vec())
        },
    );
    let command = (cdb(), 0u16..40, 0u8..2).prop_map(|(cdb, tag, lun)| {
        Host::Out(Endpoint::Command, 0, CommandIu { tag: Tag(tag), lun, cdb }.to_bytes().to_vec())
    });
    let bytes = (endpoint(), 0u16..40, prop::collection::vec(any::<u8>(), 0..1500))
        .prop_map(|(endpoint, stream, data)| Host::Out(endpoint, stream, data));
    prop_oneof![3 => wrapper, 3 => command, 2 => bytes]
}

fn host() -> impl Strategy<Value = Host> {
    prop_oneof![
        8 => out(),
        8 => (endpoint(), 0u16..40, 0usize..2000).prop_map(|(endpoint, stream, len)| Host::In(endpoint, stream, len)),
        2 => endpoint().prop_map(Host::ClearHalt),
        1 => (0u8..2).prop_map(Host::Configure),
        2 => Just(Host::Recover),
        1 => Just(Host::Reset),
        1 => Just(Host::BusReset),
        2 => (0u8..3).prop_map(Host::Alternate),
        1 => Just(Host::Poll),
        1 => Just(Host::Unplug),
        1 => Just(Host::PlugIn),
    ]
}

proptest! {
    #[test]
    fn whatever_a_host_does_the_unit_neither_panics_nor_answers_more_than_was_asked(
        steps in prop::collection::vec(host(), 0..120),
        scenario in prop::sample::select(vec![
            "",
            "behind = { ssd = { bytes = 4096 } }",
            "state = \"boot-loader\"",
            "state = \"boot-loader\"\n[[fault]]\nkind = \"short-data\"\nnth = 2\ntimes = 9\n[[fault]]\nkind = \"stall\"\nnth = 12",
            "speed = \"high\"\nbehind = \"nothing\"",
            "timing = { erase-sector-ms = 1, program-page-us = 100, command-us = 10 }",
            "power-loss-after = 700\n[[fault]]\nkind = \"short-data\"\nnth = 2\ntimes = 9",
            "[[fault]]\nkind = \"stall\"\nnth = 2\ntimes = 9\n[[fault]]\nkind = \"bad-tag\"\nnth = 12",
        ]),
    ) {
        let mut unit = unit(scenario);
        for step in steps {
            match step {
                Host::Out(endpoint, stream, data) => {
                    if let Reply::Done(count) | Reply::Part(count) = unit.bulk_out(endpoint, stream, &data) {
                        prop_assert!(count <= data.len());
                    }
                }
                Host::In(endpoint, stream, len) => {
                    if let Reply::Done(count) | Reply::Part(count) = unit.bulk_in(endpoint, stream, &mut vec![0; len]) {
                        prop_assert!(count <= len);
                    }
                }
                Host::ClearHalt(endpoint) => unit.clear_halt(endpoint),
                Host::Reset => { let _ = unit.mass_storage_reset(); }
                Host::BusReset => unit.bus_reset(),
                Host::Configure(value) => { let _ = unit.set_configuration(value); }
                Host::Recover => { unit.reset_by_host(0); }
                Host::Alternate(alternate) => { unit.set_alternate(alternate); }
                Host::Poll => unit.poll(),
                Host::Unplug => unit.unplug(),
                Host::PlugIn => unit.plug_in(),
            }
        }
        prop_assert!(unit.flash().get(FlashAddress(0), FLASH_LEN).is_some());
    }
}
