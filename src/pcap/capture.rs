//! The capture file, which a thread writes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use asm2464::{Failure, Kind};
use asm2464_files::file;
use asm2464_files::queue::{Queue, QueueEnd, Sink};

use super::pcapng;
use super::usbmon::{HEADER_LEN, UsbmonHeader};

/// How many bytes may wait for the disk. A packet that does not fit is dropped.
const BACKLOG: usize = 32 << 20;

/// Records URBs to a pcapng file.
///
/// Recording copies the data to memory and returns; a thread writes them. Packets that the disk does not take in time,
/// or at all, are dropped and counted. The capture ends when its last clone is dropped, or with [`Capture::finish`].
#[derive(Debug, Clone)]
pub struct Capture(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    queue: Arc<Queue>,
    urbs: AtomicU64,
    buses: AtomicU16,
}

impl Owner {
    fn finish(&self) -> QueueEnd {
        self.queue.finish(|received, lost, out| pcapng::interface_statistics(out, now(), received, lost))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Capture {
    /// Starts a capture in a new file, or replaces an earlier capture.
    ///
    /// # Errors
    /// `asmpatch::pcap::busy` if another process records into the file; `asmpatch::pcap::not_a_capture`;
    /// `asmpatch::pcap::file` if the system can't open or empty it, or starts no thread. Devices, symbolic links, and
    /// files that are not captures are left as they are.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                let label = Kind::Refused.code("asmpatch::pcap::busy");
                return Failure::new(label, format!("{shown} is in use by another process"));
            }
            let label = Kind::System.code("asmpatch::pcap::file");
            Failure::new(label, format!("cannot record USB traffic to {shown}")).because(error)
        };
        let mut file = open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut magic = pcapng::MAGIC;
        let is_capture = metadata.len() == 0 || file.read_exact(&mut magic).is_ok() && magic == pcapng::MAGIC;
        if !metadata.is_file() || !is_capture {
            let label = Kind::Refused.code("asmpatch::pcap::not_a_capture");
            return Err(Failure::new(label, format!("{shown} exists and is not a pcapng file")));
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        Self::to(file).map_err(failed)
    }

    fn to(sink: impl Sink) -> io::Result<Self> {
        let mut head = Vec::new();
        pcapng::section_header(&mut head, concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")));
        pcapng::interface_description(&mut head, pcapng::USB_LINUX_MMAPPED);
        let queue = Queue::start("pcap", BACKLOG, head, sink)?;
        Ok(Self(Arc::new(Owner { queue, urbs: AtomicU64::new(0), buses: AtomicU16::new(0) })))
    }

    /// Ends the capture: writes the waiting data, for five seconds at most. Drops everything recorded afterwards.
    /// Returns how many of the URBs' events the file has.
    pub fn finish(&self) -> QueueEnd {
        self.0.finish()
    }

    pub(super) fn next_bus(&self) -> u16 {
        self.0.buses.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    pub(super) fn next_urb(&self) -> u64 {
        self.0.urbs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records an event of an URB: sets the time and the lengths in its header. `length` is how many bytes were
    /// requested or moved; `data` follow the header.
    pub(super) fn record(&self, header: UsbmonHeader, length: usize, data: &[u8]) {
        let original_len = HEADER_LEN + data.len();
        let data = &data[..data.len().min(pcapng::SNAP_LEN - HEADER_LEN)];
        self.0.queue.push(HEADER_LEN + data.len(), |blocks| {
            // Read the clock in here, so that the times in the file are in order.
            let time = now();
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let header = UsbmonHeader { time, length, captured: data.len() as u32, ..header };
            pcapng::enhanced_packet(blocks, time, original_len, &header.to_bytes(), data);
        });
    }
}

fn now() -> Duration {
    // This fails only if the clock is set to a time before 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn open(path: &Path) -> io::Result<File> {
    #[cfg(not(unix))]
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    // Neither follow a symbolic link nor wait for a pipe or a device.
    file::careful(&mut options, false);
    file::private(&mut options);
    file::hold(&options, path)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;

    use asm2464::Coded as _;
    use asm2464_host::bridge::TransferEnd;

    use super::*;

    fn refusal(path: &Path) -> &'static str {
        Capture::create(path).unwrap_err().code()
    }

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
        assert_eq!(refusal(&path), "asmpatch::pcap::busy");
        let device = capture.bus().attach();
        let first = device.submit_bulk(0x81, 13, &[]);
        let second = device.submit_bulk(0x02, 3, b"abc");
        device.complete(second, &TransferEnd::Completed, 3, &[]);
        device.complete(first, &TransferEnd::Cancelled, 0, &[]);
        let complete = QueueEnd { received: 4, lost: 0, failure: None, has_ended: true };
        assert_eq!(capture.finish(), complete);
        assert_eq!(events(&std::fs::read(&path).unwrap()), [(1, b'S'), (2, b'S'), (2, b'C'), (1, b'C')]);
        device.submit_bulk(0x81, 13, &[]);
        assert_eq!(capture.finish().lost, 1, "nothing is recorded after the end");
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
        assert_eq!(refusal(&precious), "asmpatch::pcap::not_a_capture");
        assert_eq!(std::fs::read(&precious).unwrap(), b"not a capture");
        assert_eq!(refusal(dir.path()), "asmpatch::pcap::file");
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_is_not_followed_and_a_device_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(refusal(&link), "asmpatch::pcap::file");
        assert!(!target.exists());
        assert_eq!(refusal(Path::new("/dev/null")), "asmpatch::pcap::not_a_capture");
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
        let end = capture.finish();
        let kept = events(&written.recv().unwrap()).len() as u64;
        assert_eq!((end.received, end.lost), (1000, 1000 - kept));
        assert_eq!(kept, 4, "as many as fit");
        assert!(end.failure.is_some());
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
        let end = capture.finish();
        assert_eq!((end.received, end.failure), (2000, None));
        assert!((900..2000).contains(&end.lost), "{}", end.lost);
    }
}
