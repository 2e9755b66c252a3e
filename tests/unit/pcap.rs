//! Captures of virtual units, read back directly and by Wireshark's dissectors.
use std::path::PathBuf;
use std::process::Command as Process;

use asm2464_chip::practice;
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Bridge, Monitors, PipeError, Port as _, TransferEnd, TransportKind};
use asmpatch::pcap::{Capture, CapturedDevice};

fn unit(scenario: &str) -> VirtualUnit {
    let scenario = Scenario::parse(scenario).unwrap();
    VirtualUnit::in_memory(scenario, b"pcap", Some(&practice::image().to_file())).unwrap()
}

/// A capture file and its temporary folder.
struct Recorded {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

/// Records the traffic of `work`.
fn recorded(work: impl FnOnce(&Capture)) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usb.pcapng");
    let capture = Capture::create(&path).unwrap();
    work(&capture);
    let end = capture.finish();
    assert_eq!((end.lost, end.failure), (0, None));
    Recorded { _dir: dir, path }
}

/// The monitor that records a unit into this capture.
fn monitors(capture: &Capture) -> Monitors {
    let mut monitors = Monitors::default();
    monitors.add(capture.bus());
    monitors
}

/// Records a virtual unit in this process: a read, a write, a refused command, and one without data.
fn in_process(connect: impl FnOnce(&mut VirtualPort) -> Bridge) -> Recorded {
    recorded(|capture| {
        let mut port = VirtualPort::new("unit", unit("behind = { ssd = { bytes = 1048576 } }"));
        port.watch(monitors(capture));
        let mut bridge = connect(&mut port);
        bridge.inquiry().unwrap();
        bridge.write16(8, &[0x5A; 1024]).unwrap();
        bridge.read16(8, &mut [0; 1024]).unwrap();
        bridge.read16(1 << 40, &mut [0; 512]).unwrap_err();
        assert!(bridge.is_ready().unwrap());
    })
}

fn bulk_only() -> Recorded {
    in_process(|port| port.open().unwrap())
}

fn uas() -> Recorded {
    in_process(|port| port.open_over(Some(TransportKind::UasStreams)).unwrap())
}

/// An URB event: type, endpoint, status, and the data after the header.
type Event = (char, u8, i32, Vec<u8>);

fn events(file: &Recorded) -> Vec<Event> {
    let bytes = std::fs::read(&file.path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        const ENHANCED_PACKET: u32 = 6;
        if word(at) == ENHANCED_PACKET {
            let urb = at + 28;
            let data = &bytes[urb + 64..urb + word(at + 20) as usize];
            found.push((char::from(bytes[urb + 8]), bytes[urb + 10], word(urb + 28) as i32, data.to_vec()));
        }
        at += word(at + 4) as usize;
    }
    found
}

#[test]
fn a_capture_begins_with_the_descriptors_and_shows_what_moved_and_what_stalled() {
    let events = events(&bulk_only());
    let device = &events[1];
    assert_eq!((device.0, device.1, device.2, &device.3[..2]), ('C', 0x80, 0, &[18, 1][..]));
    let ends = |end: i32| events.iter().filter(|event| event.0 == 'C' && event.2 == end).count();
    let submitted = events.iter().filter(|event| event.0 == 'S').count();
    assert_eq!((submitted, ends(0), ends(-32)), (26, 24, 2), "data and status of the refused READ stall once");
    let product: Vec<u8> = "ASM246X USB4 NVMe".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(events.iter().any(|event| event.3.ends_with(&product)), "the strings identify the unit");
    assert!(events.contains(&('S', 0x02, -115, vec![0x5A; 1024])));
    assert!(events.contains(&('C', 0x81, 0, vec![0x5A; 1024])));
}

#[test]
fn a_unit_that_starts_over_is_another_device_on_its_bus() {
    let file = recorded(|capture| {
        let mut port = VirtualPort::new("unit", unit(""));
        port.watch(monitors(capture));
        port.open().unwrap().reset(asm2464::scsi::ResetMode::CpuReset).unwrap();
        port.open().unwrap().inquiry().unwrap();
    });
    let descriptors = events(&file).into_iter().filter(|event| event.3.starts_with(&[18, 1])).count();
    assert_eq!(descriptors, 2);
}

/// The fields of each packet that matches a Wireshark filter, one line per packet.
fn tshark(file: &Recorded, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut tshark = Process::new("tshark");
    tshark.arg("-r").arg(&file.path).args(["-Y", filter, "-T", "fields", "-E", "separator=/s"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs tshark"]
fn tshark_decodes_scsi_over_bulk_only() {
    let file = bulk_only();
    let commands = tshark(&file, "usbms.dCBWSignature", &["scsi_sbc.opcode"]);
    assert_eq!(commands, ["0x12", "0x8a", "0x88", "0x88", "0x03", "0x00"]);
    let statuses = tshark(&file, "usbms.dCSWSignature", &["usbms.dCSWStatus", "scsi.status"]);
    assert_eq!(statuses, ["0x00 0x00", "0x00 0x00", "0x00 0x00", "0x01 0x02", "0x00 0x00", "0x00 0x00"]);
    assert_eq!(tshark(&file, "scsi.sns.key", &["scsi.sns.key", "scsi.sns.ascascq"]), ["0x05 0x2100"]);
    assert_eq!(
        tshark(&file, "usb.bDescriptorType == 1 && usb.idVendor", &["usb.idVendor", "usb.idProduct"]),
        ["0x174c 0x2464"]
    );
    assert_eq!(tshark(&file, "_ws.malformed", &["frame.number"]), [""; 0]);
}

#[test]
#[ignore = "needs tshark"]
fn tshark_decodes_scsi_over_uas() {
    let file = uas();
    let commands = tshark(&file, "uasp.iu_id == 1", &["uasp.tag", "scsi_sbc.opcode"]);
    assert_eq!(commands, ["0x0001 0x12", "0x0001 0x8a", "0x0001 0x88", "0x0001 0x88", "0x0001 0x00"]);
    let statuses = tshark(&file, "uasp.iu_id == 3", &["scsi.status", "scsi.sns.ascascq"]);
    assert_eq!(statuses, ["0x00 ", "0x00 ", "0x00 ", "0x02 0x2100", "0x00 "]);
    assert_eq!(tshark(&file, "_ws.malformed", &["frame.number"]), [""; 0]);
}

#[test]
fn a_transfer_that_babbles_is_shown_by_its_status() {
    let file = recorded(|capture| {
        let device: CapturedDevice = capture.bus().attach();
        let urb = device.submit_bulk(0x81, 100, &[]);
        device.complete(urb, &TransferEnd::Failed(PipeError::Overflow), 100, &[7; 100]);
    });
    assert_eq!(events(&file)[1], ('C', 0x81, -75, vec![7; 100]));
}
