//! What a guest sees of a unit, packet by packet.

mod guest;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use self::guest::{Guest, bulk, bulk_parts, hello, kind, packet};
use asm2464::Coded as _;
use asm2464::firmware::{BridgeState, Image, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::scsi::bot::CommandBlockWrapper;
use asm2464::scsi::uas::{CommandIu, Tag};
use asm2464::scsi::{Cdb, Command, DataLength, ResetMode};
use asm2464_chip::practice;

use super::guest::GuestSession;
use super::packets::{Bulk, MAX_DATA, OUTBOX_LIMIT, Outbox, RedirStatus, slot};
use super::*;
use crate::virtual_unit::{Downstream, Factory, Scenario, VirtualUnit, replug};

fn unit(behind: Downstream) -> VirtualUnit {
    let scenario = Scenario { behind, ..Scenario::default() };
    VirtualUnit::in_memory(scenario, b"usbredir", Some(&practice::image().to_file())).unwrap()
}

fn cbw(tag: u32, command: &Command) -> Vec<u8> {
    let data = DataLength::of(&command.cdb()).unwrap();
    let wrapper = CommandBlockWrapper {
        tag,
        transfer_length: data.bytes(),
        direction: data.direction(),
        lun: 0,
        cdb: command.cdb(),
    };
    wrapper.to_bytes().to_vec()
}

#[test]
fn a_guest_that_says_hello_gets_the_endpoints_before_the_device() {
    let mut unit = unit(Downstream::Nothing);
    let (guest, answers) = Guest::connect(&mut unit);
    let kinds: Vec<u32> = answers.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [kind::INTERFACE_INFO, kind::EP_INFO, kind::DEVICE_CONNECT]);
    assert_eq!(answers[2].2, [3, 0, 0, 0, 0x4C, 0x17, 0x64, 0x24, 0x00, 0x01]);
    assert_eq!(guest.events, [GuestEvent::Plugged { id: UsbId::STOCK, state: BridgeState::Vendor }]);
}

#[test]
fn endpoints_are_described_again_before_an_alternate_setting_is_confirmed() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.configure();
    let answers = guest.send(&packet(kind::SET_ALT_SETTING, 7, &[0, 1]));
    let kinds: Vec<u32> = answers.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds, [kind::INTERFACE_INFO, kind::EP_INFO, kind::ALT_SETTING_STATUS]);
    let streams = |slot: usize| answers[1].2[160 + 4 * slot];
    assert_eq!([0x83, 0x81, 0x02, 0x04].map(|address| streams(slot(address))), [32, 32, 32, 0]);
    let refused = guest.send(&packet(kind::SET_ALT_SETTING, 8, &[0, 2]));
    assert_eq!(refused, [(kind::ALT_SETTING_STATUS, 8, vec![RedirStatus::Stall as u8, 0, 1])]);
}

#[test]
fn a_request_for_data_waits_until_there_is_some() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    assert_eq!(guest.send(&bulk(1, 0x81, 0, 36, &[])), []);
    let inquiry = cbw(9, &Command::Inquiry { len: 36 });
    let answers = guest.send(&bulk(2, 0x02, 0, 31, &inquiry));
    assert_eq!(bulk_parts(&answers[0]), (0, 31, &[][..]));
    let (status, length, data) = bulk_parts(&answers[1]);
    assert_eq!((answers[1].1, status, length, &data[8..15]), (1, 0, 36, &b"ASMedia"[..]));
    let csw = guest.send(&bulk(3, 0x81, 0, 13, &[]));
    assert_eq!(bulk_parts(&csw[0]).2, b"USBS\x09\0\0\0\0\0\0\0\0");
}

#[test]
fn a_cancelled_request_is_answered_once_and_takes_no_data_with_it() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.send(&bulk(1, 0x81, 0, 36, &[]));
    let cancelled = guest.send(&packet(kind::CANCEL, 1, &[]));
    assert_eq!(bulk_parts(&cancelled[0]), (RedirStatus::Cancelled as u8, 0, &[][..]));
    assert_eq!(guest.send(&packet(kind::CANCEL, 1, &[])), []);
    guest.send(&bulk(2, 0x02, 0, 31, &cbw(1, &Command::Inquiry { len: 36 })));
    let answers = guest.send(&bulk(3, 0x81, 0, 36, &[]));
    assert_eq!(bulk_parts(&answers[0]).1, 36);
}

#[test]
fn data_that_comes_before_its_uas_command_waits_for_it() {
    let mut unit = unit(Downstream::Ssd { bytes: 1 << 20 });
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.use_uas();
    let data: Vec<u8> = (0..1024u32).map(|at| at as u8).collect();
    // Linux's uas driver submits them in this order: status, data, command.
    assert_eq!(guest.send(&bulk(1, 0x83, 5, 96, &[])), []);
    assert_eq!(guest.send(&bulk(2, 0x02, 5, 1024, &data)), []);
    let cdb = Command::Write16 { lba: 3, blocks: 2 }.cdb();
    let iu = CommandIu { tag: Tag(5), lun: 0, cdb };
    let answers = guest.send(&bulk(3, 0x04, 0, 32, &iu.to_bytes()));
    let ended: Vec<(u64, u8, u32)> =
        answers.iter().map(|answer| (answer.1, bulk_parts(answer).0, bulk_parts(answer).1)).collect();
    assert!(ended.contains(&(2, 0, 1024)), "{ended:?}");
    let sense = answers.iter().find(|answer| answer.1 == 1).unwrap();
    assert_eq!(bulk_parts(sense).2[..4], [0x03, 0, 0, 5]);
}

#[test]
fn a_control_request_is_answered_from_the_descriptors_and_cut_to_its_length() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    let answers = guest.send(&packet(kind::CONTROL, 4, &[0x80, 6, 0x80, 0, 0, 1, 0, 0, 8, 0]));
    assert_eq!(answers[0].2[..10], [0x80, 6, 0x80, 0, 0, 1, 0, 0, 8, 0]);
    assert_eq!(answers[0].2[10..], [18, 1, 0x20, 3, 0, 0, 0, 9]);
    let stalled = guest.send(&packet(kind::CONTROL, 5, &[0x80, 6, 0x80, 0, 0, 6, 0, 0, 10, 0]));
    assert_eq!(stalled[0].2[3], RedirStatus::Stall as u8);
}

/// The practice image that stands in for open firmware, which answers E5 only after 80 million instructions.
fn slow_open_image() -> Image {
    let mut body = practice::open_image().body().to_vec();
    // cjne r6, #0xE5, ..; ljmp xdata_write
    let at = body.windows(4).position(|code| code == [0xBE, 0xE5, 0x03, 0x02]).unwrap() + 4;
    let [high, low] = [body[at], body[at + 1]];
    let delay = body.len() as u16;
    body[at..at + 2].copy_from_slice(&delay.to_be_bytes());
    // r5 to r7 count down from 0 in three nested loops, and are restored.
    body.extend([0xC0, 0x05, 0xC0, 0x06, 0xC0, 0x07, 0x7D, 0, 0x7E, 0, 0x7F, 0]);
    body.extend([
        0x00, 0x00, 0x00, 0x00, 0xDF, 0xFA, 0xDE, 0xF8, 0xDD, 0xF6, 0xD0, 0x07, 0xD0, 0x06, 0xD0, 0x05, 0x02, high, low,
    ]);
    Image::from_body(body).unwrap()
}

/// A control packet that writes 0x5A to XDATA 0x5FF8 with E5, and one that reads it with E4.
const WRITE: [u8; 10] = [0, 0xE5, 0x40, 0, 0xF8, 0x5F, 0x5A, 0, 0, 0];
const READ: [u8; 10] = [0x80, 0xE4, 0xC0, 0, 0xF8, 0x5F, 0, 0, 1, 0];

#[test]
fn a_control_request_that_the_firmware_answers_late_reaches_the_guest() {
    let image = slow_open_image().to_file();
    let mut unit = VirtualUnit::in_memory(Scenario::default(), b"usbredir", Some(&image)).unwrap();
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.configure();
    let mut answers = guest.send(&packet(kind::CONTROL, 4, &WRITE));
    assert_eq!(answers, [], "the firmware still works on it");
    for _ in 0..20 {
        answers.extend(guest.send(&[]));
    }
    let [(kind::CONTROL, 4, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((answer[3], &answer[8..]), (RedirStatus::Success as u8, &[0, 0][..]));
    let read = guest.send(&packet(kind::CONTROL, 5, &READ));
    assert_eq!(read[0].2[10..], [0x5A]);
    assert_eq!(guest.send(&packet(kind::CANCEL, 4, &[])), [], "it is answered once");
}

#[test]
fn a_late_control_request_is_cancelled_and_its_answer_goes_to_no_other() {
    let image = slow_open_image().to_file();
    let mut unit = VirtualUnit::in_memory(Scenario::default(), b"usbredir", Some(&image)).unwrap();
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.configure();
    assert_eq!(guest.send(&packet(kind::CONTROL, 4, &WRITE)), []);
    let cancelled = guest.send(&packet(kind::CANCEL, 4, &[]));
    assert_eq!((cancelled.len(), cancelled[0].1, cancelled[0].2[3]), (1, 4, RedirStatus::Cancelled as u8));
    for _ in 0..20 {
        assert_eq!(guest.send(&[]), []);
    }
    let mut read = guest.send(&packet(kind::CONTROL, 5, &READ));
    for _ in 0..20 {
        read.extend(guest.send(&[]));
    }
    assert_eq!((read.len(), read[0].1, read[0].2[3]), (1, 5, RedirStatus::Success as u8));
}

#[test]
fn a_unit_that_starts_over_leaves_and_comes_back_once_the_guest_has_seen_it_go() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.send(&bulk(1, 0x02, 0, 31, &cbw(1, &Command::Reset(ResetMode::CpuReset))));
    let answers = guest.send(&bulk(2, 0x81, 0, 13, &[]));
    assert_eq!(answers.last().map(|answer| answer.0), Some(kind::DEVICE_DISCONNECT));
    assert_eq!(guest.send(&bulk(3, 0x81, 0, 13, &[])), [], "pending requests are dropped");
    let answers = guest.send(&packet(kind::DISCONNECT_ACK, 0, &[]));
    assert_eq!(answers.last().map(|answer| answer.0), Some(kind::DEVICE_CONNECT));
}

#[test]
fn a_halted_unit_stays_off_the_guests_bus_until_it_is_replugged() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.send(&bulk(1, 0x02, 0, 31, &cbw(1, &Command::Reset(ResetMode::Halt))));
    let answers = guest.send(&bulk(2, 0x81, 0, 13, &[]));
    assert_eq!(answers.last().map(|answer| answer.0), Some(kind::DEVICE_DISCONNECT));
    assert_eq!(guest.send(&packet(kind::DISCONNECT_ACK, 0, &[])), []);
    assert_eq!(guest.session.wake_in(), None, "it does not come back by itself");
}

#[test]
fn a_guest_opens_the_boot_loader_with_a_port_reset_after_the_enumeration() {
    let scenario = Scenario { factory: Factory::Erased, ..Scenario::default() };
    let mut unit = VirtualUnit::in_memory(scenario, b"usbredir", None).unwrap();
    let (mut guest, _) = Guest::connect(&mut unit);
    let ready = cbw(1, &Command::TestUnitReady);
    let configure = packet(kind::SET_CONFIGURATION, 1, &[1]);
    let enumerate = [packet(kind::RESET, 0, &[]), configure].concat();
    guest.send(&enumerate);
    assert_eq!(guest.send(&bulk(2, 0x02, 0, 31, &ready)), [], "silent");
    guest.send(&enumerate);
    let answers = guest.send(&bulk(3, 0x02, 0, 31, &ready));
    assert_eq!(bulk_parts(&answers[0]).0, RedirStatus::Stall as u8);
    for endpoint in [0x81, 0x02] {
        guest.send(&packet(kind::CONTROL, 4, &[0, 1, 0x02, 0, 0, 0, endpoint, 0, 0, 0]));
    }
    let answers = guest.send(&bulk(5, 0x02, 0, 31, &ready));
    assert_eq!(bulk_parts(&answers[0]), (RedirStatus::Success as u8, 31, &[][..]));
}

/// Serves a unit. `work` gets the socket, and a wait for what the server reports.
fn served(unit: &mut VirtualUnit, work: impl FnOnce(&Path, &dyn Fn(fn(&ServerEvent) -> bool))) {
    let dir = tempfile::tempdir().unwrap();
    let address: Address = format!("unix:{}", dir.path().join("socket").display()).parse().unwrap();
    let listener = Listener::bind(&address).unwrap();
    let stop = AtomicBool::new(false);
    let (reports, reported) = mpsc::channel();
    let interrupt = Interrupt::watching(&stop);
    thread::scope(|scope| {
        scope.spawn(|| {
            serve(unit, &listener, false, interrupt, &mut |report: ServerEvent| reports.send(report).unwrap())
        });
        work(address.path(), &|wanted| assert!(reported.iter().any(|report| wanted(&report))));
        stop.store(true, Ordering::Relaxed);
    });
}

fn is_plugged(report: &ServerEvent) -> bool {
    matches!(report, ServerEvent::Unit(GuestEvent::Plugged { .. }))
}

#[test]
fn a_served_unit_is_replugged_when_another_process_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut unit = VirtualUnit::open(folder.path(), None).unwrap();
    served(&mut unit, |socket, wait_for| {
        let mut guest = UnixStream::connect(socket).unwrap();
        guest.write_all(&hello()).unwrap();
        wait_for(is_plugged);
        replug(folder.path(), Interrupt::never()).unwrap();
        wait_for(|report| matches!(report, ServerEvent::Unit(GuestEvent::Unplugged)));
        guest.write_all(&packet(kind::DISCONNECT_ACK, 0, &[])).unwrap();
        wait_for(is_plugged);
    });
}

#[test]
fn endpoints_and_streams_that_do_not_exist_are_refused() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    for (endpoint, stream) in [(0x83, 0), (0x85, 0), (0x81, 33)] {
        let answers = guest.send(&bulk(1, endpoint, stream, 16, &[]));
        assert_eq!(bulk_parts(&answers[0]).0, RedirStatus::Invalid as u8, "{endpoint:#x} {stream}");
    }
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_packet_costs_its_connection_alone() {
    served(&mut unit(Downstream::Nothing), |socket, wait_for| {
        let mut dying = UnixStream::connect(socket).unwrap();
        dying.write_all(&hello()).unwrap();
        dying.write_all(&bulk(1, 0x02, 0, 31, &[0; 31])[..40]).unwrap();
        drop(dying);
        wait_for(|report| matches!(report, ServerEvent::GivenUp(error) if error.code() == "asm2464::serve::cut_off"));

        let mut babbling = UnixStream::connect(socket).unwrap();
        babbling.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        wait_for(|report| matches!(report, ServerEvent::GivenUp(error) if error.code() == "asm2464::serve::protocol"));

        let mut sound = UnixStream::connect(socket).unwrap();
        sound.write_all(&hello()).unwrap();
        let mut greeting = [0; 80];
        sound.read_exact(&mut greeting).unwrap();
        wait_for(is_plugged);
        drop(sound);
        wait_for(|report| matches!(report, ServerEvent::Left));
    });
}

#[test]
fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let address: Address = format!("unix:{}", path.display()).parse().unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::bind(&address).unwrap();
    assert_eq!(Listener::bind(&address).unwrap_err().code(), "asm2464::serve::in_use");
    drop(listener);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert_eq!(Listener::bind(&address).unwrap_err().code(), "asm2464::serve::not_a_socket");
}

proptest::proptest! {
    #[test]
    fn no_packets_make_a_session_panic(
        requests in proptest::collection::vec((0u32..25, 0u64..4, proptest::collection::vec(0u8.., 0..40)), 0..20),
        transfers in proptest::collection::vec((0u8.., 0u32..40, 0u32..100, 0u64..9), 0..20),
        alternate in 0u8..2,
    ) {
        let mut unit = unit(Downstream::Ssd { bytes: 4096 });
        let (mut guest, _) = Guest::connect(&mut unit);
        guest.send(&packet(kind::SET_ALT_SETTING, 1, &[0, alternate]));
        for (endpoint, stream, length, id) in transfers {
            let data = vec![0x5A; if endpoint & 0x80 == 0 { length as usize } else { 0 }];
            guest.send(&bulk(id, endpoint, stream, length, &data));
        }
        for (kind, id, body) in requests {
            let mut out = Outbox::default();
            let _ = guest.session.receive(&packet(kind, id, &body), &mut out, &mut |_| {});
        }
    }
}

#[test]
fn a_guest_that_asks_without_end_is_refused_what_is_more_than_a_host_would_hold() {
    let mut unit = unit(Downstream::Gpu);
    let (mut guest, _) = Guest::connect(&mut unit);
    let asked: Vec<u8> = (0..5000).flat_map(|id| bulk(id, 0x81, 0, 16 << 20, &[])).collect();
    let answers = guest.send(&asked);
    assert_eq!(answers.len(), 5000 - 1024);
    assert!(answers.iter().all(|answer| bulk_parts(answer).0 == RedirStatus::IoError as u8));
    assert_eq!(answers[0].1, 1024, "the first ones wait");
}

#[test]
fn data_that_the_unit_does_not_take_is_held_up_to_a_limit() {
    let mut unit = unit(Downstream::Gpu);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.use_uas();
    // No command was sent: nothing takes this data.
    let data = vec![0; MAX_DATA / 4];
    let held = (0..20).take_while(|id| guest.send(&bulk(*id, 0x02, 1, data.len() as u32, &data)).is_empty()).count();
    assert_eq!(held, 8, "twice what one packet can carry");
}

#[test]
fn answers_that_nobody_fetches_hold_the_requests_back() {
    let mut unit = unit(Downstream::Gpu);
    let mut session = GuestSession::new(&mut unit);
    let mut out = Outbox::default();
    let _ = session.receive(&hello(), &mut out, &mut |_| {}).unwrap();
    // Fill the outbox almost completely by hand, because each answer of the unit runs the chip.
    let large = Bulk { endpoint: 0x81, stream: 0, length: 64 << 10 };
    while out.unsent().len() < OUTBOX_LIMIT - (128 << 10) {
        out.bulk_in(0, &large, |data| Some((RedirStatus::Success, data.len())));
    }
    // GET_DESCRIPTOR of the whole configuration, over and over.
    let setup = [0x80, 6, 0x80, 0, 0, 2, 0, 0, 0xFF, 0];
    let request = packet(kind::CONTROL, 1, &setup);
    let burst = request.repeat(10_000);
    let used = session.receive(&burst, &mut out, &mut |_| {}).unwrap();
    assert!((1..burst.len()).contains(&used), "{used}");
    assert!(out.is_full());
    assert!(out.unsent().len() < OUTBOX_LIMIT + 4096, "{}", out.unsent().len());
    assert_eq!(session.receive(&burst, &mut out, &mut |_| {}).unwrap(), 0);
    out.advance(out.unsent().len());
    assert!(session.receive(&request, &mut out, &mut |_| {}).unwrap() > 0);
}

#[test]
fn a_halt_that_the_guest_sets_stalls_until_it_is_cleared() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.configure();
    let set = guest.send(&packet(kind::CONTROL, 1, &[0, 3, 0x02, 0, 0, 0, 0x81, 0, 0, 0]));
    assert_eq!(set[0].2[3], RedirStatus::Success as u8);
    let halted = guest.send(&packet(kind::CONTROL, 2, &[0x80, 0, 0x82, 0, 0, 0, 0x81, 0, 2, 0]));
    assert_eq!(halted[0].2[10..], [1, 0]);
    assert_eq!(bulk_parts(&guest.send(&bulk(3, 0x81, 0, 13, &[]))[0]).0, RedirStatus::Stall as u8);
    guest.send(&packet(kind::CONTROL, 4, &[0, 1, 0x02, 0, 0, 0, 0x81, 0, 0, 0]));
    assert_eq!(guest.send(&bulk(5, 0x81, 0, 13, &[])), [], "it waits for a status again");
    guest.use_uas();
    guest.send(&packet(kind::CONTROL, 6, &[0, 3, 0x02, 0, 0, 0, 0x83, 0, 0, 0]));
    assert_eq!(bulk_parts(&guest.send(&bulk(7, 0x83, 1, 96, &[]))[0]).0, RedirStatus::Stall as u8);
}

#[test]
fn an_endpoint_of_the_other_alternate_has_no_status() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    let ask = packet(kind::CONTROL, 1, &[0x80, 0, 0x82, 0, 0, 0, 0x83, 0, 2, 0]);
    assert_eq!(guest.send(&ask)[0].2[3], RedirStatus::Stall as u8);
    guest.use_uas();
    assert_eq!(guest.send(&ask)[0].2[10..], [0, 0]);
}

#[test]
fn a_guest_that_asks_for_less_than_a_packet_gets_the_status_babble() {
    let mut unit = unit(Downstream::Nothing);
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.use_uas();
    let cdb = Cdb::of([0xE0, 0x50, 0, 0, 0, 0]);
    let iu = CommandIu { tag: Tag(5), lun: 0, cdb };
    guest.send(&bulk(1, 0x81, 5, 64, &[]));
    let answers = guest.send(&bulk(2, 0x04, 0, 32, &iu.to_bytes()));
    let data = answers.iter().find(|answer| answer.1 == 1).unwrap();
    assert_eq!((bulk_parts(data).0, bulk_parts(data).1), (RedirStatus::Babble as u8, 64));
    assert_eq!(bulk_parts(&guest.send(&bulk(3, 0x83, 5, 96, &[]))[0]).2[..4], [0x03, 0, 0, 5]);
}

#[test]
fn a_server_that_ends_leaves_its_successors_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let address: Address = format!("unix:{}", path.display()).parse().unwrap();
    let first = Listener::bind(&address).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = Listener::bind(&address).unwrap();
    drop(first);
    assert!(UnixStream::connect(&path).is_ok());
    drop(second);
    assert!(!path.exists());
}

#[test]
fn packets_behind_the_one_with_which_a_unit_vanishes_get_no_answer() {
    let scenario = Scenario::parse("[[fault]]\nkind = \"disconnect\"").unwrap();
    let mut unit = VirtualUnit::in_memory(scenario, b"usbredir", None).unwrap();
    let (mut guest, _) = Guest::connect(&mut unit);
    guest.use_uas();
    let iu = CommandIu { tag: Tag(1), lun: 0, cdb: Command::TestUnitReady.cdb() }.to_bytes();
    let answers = guest.send(&[bulk(2, 0x04, 0, 32, &iu), bulk(3, 0x83, 1, 96, &[])].concat());
    assert_eq!(answers.iter().map(|answer| answer.0).collect::<Vec<_>>(), [kind::DEVICE_DISCONNECT]);
}
