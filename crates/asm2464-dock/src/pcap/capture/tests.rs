//! Tests of captures: complete ones, what a full or hanging disk does to them, and which files are never replaced.

use std::sync::mpsc;

use super::super::End;
use super::*;

/// Reads a file's URB ids and events, in order.
fn events(file: &[u8]) -> Vec<(u64, u8)> {
    let mut found = Vec::new();
    let mut rest = file;
    while let Some(length) = rest.get(4..8) {
        let len = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        if rest[0] == 6 {
            found.push((u64::from_le_bytes(rest[28..36].try_into().unwrap()), rest[36]));
        }
        rest = rest.get(len..).expect("whole blocks");
    }
    assert!(rest.is_empty());
    found
}

#[test]
fn a_capture_holds_each_urb_twice_in_the_order_of_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usb.pcapng");
    std::fs::write(&path, [&pcapng::MAGIC[..], &[0xEE; 5000]].concat()).unwrap();
    let capture = Capture::create(&path).unwrap();
    assert!(matches!(Capture::create(&path), Err(CaptureError::Busy { .. })));
    let device = capture.bus().attach();
    let first = device.submit_bulk(0x81, 13, &[]);
    let second = device.submit_bulk(0x02, 3, b"abc");
    device.complete(second, End::Done, 3, &[]);
    device.complete(first, End::Cancelled, 0, &[]);
    assert_eq!(capture.finish(), Summary { received: 4, dropped: 0, failure: None });
    assert_eq!(events(&std::fs::read(&path).unwrap()), [(1, b'S'), (2, b'S'), (2, b'C'), (1, b'C')]);
    device.submit_bulk(0x81, 13, &[]);
    assert_eq!(capture.finish().dropped, 1, "nothing is recorded after the end");
}

#[test]
fn a_dropped_capture_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usb.pcapng");
    Capture::create(&path).unwrap().bus().attach().submit_bulk(0x81, 13, &[]);
    assert_eq!(events(&std::fs::read(&path).unwrap()), [(1, b'S')]);
}

#[test]
fn a_file_that_is_no_capture_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "not a capture").unwrap();
    assert!(matches!(Capture::create(&precious), Err(CaptureError::NotACapture { .. })));
    assert_eq!(std::fs::read(&precious).unwrap(), b"not a capture");
    assert!(matches!(Capture::create(dir.path()), Err(CaptureError::Io { .. })));
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_not_followed_and_a_device_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert!(matches!(Capture::create(&link), Err(CaptureError::Io { .. })));
    assert!(!target.exists());
    assert!(matches!(Capture::create(Path::new("/dev/null")), Err(CaptureError::NotACapture { .. })));
}

/// A disk that fills up.
struct Small {
    room: usize,
    written: Vec<u8>,
    end: mpsc::Sender<Vec<u8>>,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room - self.written.len());
        self.written.extend(&bytes[..count]);
        if count > 0 { Ok(count) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Small {
    fn cut(&mut self, len: u64) {
        self.written.truncate(len as usize);
        self.end.send(self.written.clone()).unwrap();
    }
}

#[test]
fn a_full_disk_ends_the_file_at_a_whole_block_and_the_unit_goes_on() {
    let (end, written) = mpsc::channel();
    let capture = Capture::to(Small { room: 1000, written: Vec::new(), end }).unwrap();
    let device = capture.bus().attach();
    for _ in 0..1000 {
        device.submit_bulk(0x02, 100, &[0x5A; 100]);
    }
    let summary = capture.finish();
    let kept = events(&written.recv().unwrap()).len() as u64;
    assert_eq!((summary.received, summary.dropped), (1000, 1000 - kept));
    assert_eq!(kept, 4, "as many as fit");
    assert!(summary.failure.is_some());
}

/// A disk that waits for a signal before each write.
struct Stuck {
    go: mpsc::Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Without a sender it continues by itself.
        let _ = self.go.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Stuck {}

#[test]
fn a_disk_that_hangs_loses_packets_and_delays_nobody() {
    let (disk, go) = mpsc::channel();
    let capture = Capture::to(Stuck { go }).unwrap();
    let device = capture.bus().attach();
    let data = vec![0; 65536];
    for _ in 0..2000 {
        device.submit_bulk(0x02, data.len(), &data);
    }
    drop(disk);
    let summary = capture.finish();
    assert_eq!((summary.received, summary.failure), (2000, None));
    assert!((900..2000).contains(&summary.dropped), "{}", summary.dropped);
}
