//! The file of a capture, and the thread that writes it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use miette::Diagnostic;
use thiserror::Error;

use super::device::{Bus, Device, Record, Urb};
use super::pcapng;
use super::usbmon::{HEADER_LEN, Header};
use crate::failure::{Exit, Failure};
use crate::file;

/// Bytes that may wait for the disk; packets beyond them are dropped.
const BACKLOG: usize = 32 << 20;
/// How long the end of a capture waits for its disk.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Why there is no capture.
#[derive(Debug, Error, Diagnostic)]
pub enum CaptureError {
    /// The system refuses.
    #[error("cannot record USB traffic to {}", path.display())]
    #[diagnostic(
        code(asmpatch::pcap::file),
        help("name a file in a folder that you may write to; a symbolic link is not followed")
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something that is no capture would be lost.
    #[error("{} exists and is no pcapng file", path.display())]
    #[diagnostic(
        code(asmpatch::pcap::not_a_capture),
        help("name a new file, or an earlier capture, which is replaced")
    )]
    NotACapture {
        /// The file.
        path: PathBuf,
    },
    /// Two captures into one file.
    #[error("{} is in use by another process", path.display())]
    #[diagnostic(code(asmpatch::pcap::busy), help("wait for the other command to end, or name another file"))]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl Failure for CaptureError {
    fn exit(&self) -> Exit {
        match self {
            Self::Io { .. } => Exit::BadInput,
            Self::NotACapture { .. } | Self::Busy { .. } => Exit::Refused,
        }
    }
}

/// What became of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Events of URBs that were to be recorded.
    pub received: u64,
    /// Those of them that are not in the file.
    pub dropped: u64,
    /// Why the file ends early, in words.
    pub failure: Option<String>,
}

/// Records URBs to a pcapng file.
///
/// Recording copies the data to memory and returns; a thread writes them. What the disk does not take in time, or does
/// not take at all, is dropped and counted.
/// The capture ends with the last of its clones, or with [`Capture::finish`].
#[derive(Debug, Clone)]
pub struct Capture(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.finish();
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or the capture is over.
    filled: Condvar,
    /// The file is complete.
    ended: Condvar,
    urbs: AtomicU64,
    buses: AtomicU16,
}

#[derive(Debug, Default)]
struct State {
    /// Whole blocks that wait for the disk.
    blocks: Vec<u8>,
    /// Packets in them.
    waiting: u64,
    received: u64,
    dropped: u64,
    failure: Option<String>,
    is_over: bool,
    has_ended: bool,
}

/// Where blocks go.
trait Sink: Write + Send + 'static {
    /// Keeps the first `len` bytes alone.
    fn cut(&mut self, len: u64);
}

impl Sink for File {
    fn cut(&mut self, len: u64) {
        // What can't be cut stays: readers take the blocks before the torn one.
        let _ = self.set_len(len);
    }
}

impl Capture {
    /// Begins a capture in a new file, or in place of an earlier capture.
    ///
    /// # Errors
    /// [`CaptureError`]. A file that is no capture, a device, a symbolic link are left as they are.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Io { path: path.to_owned(), source };
        let mut file = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(CaptureError::Busy { path: path.to_owned() });
            }
            opened => opened.map_err(failed)?,
        };
        let kind = file.metadata().map_err(failed)?;
        if !kind.is_file() {
            return Err(CaptureError::NotACapture { path: path.to_owned() });
        }
        let mut magic = [0; pcapng::MAGIC.len()];
        if kind.len() > 0 && !(file.read_exact(&mut magic).is_ok() && magic == pcapng::MAGIC) {
            return Err(CaptureError::NotACapture { path: path.to_owned() });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        Self::to(file).map_err(failed)
    }

    fn to(sink: impl Sink) -> io::Result<Self> {
        let mut state = State::default();
        pcapng::section_header(&mut state.blocks, concat!("asmpatch ", env!("CARGO_PKG_VERSION")));
        pcapng::interface_description(&mut state.blocks, pcapng::USB_LINUX_MMAPPED);
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            filled: Condvar::new(),
            ended: Condvar::new(),
            urbs: AtomicU64::new(0),
            buses: AtomicU16::new(0),
        });
        let writer = Arc::clone(&shared);
        thread::Builder::new().name("pcap".to_owned()).spawn(move || writer.write(sink))?;
        Ok(Self(Arc::new(Owner { shared })))
    }

    /// A bus of its own for one more unit.
    pub fn bus(&self) -> Bus {
        let number = self.0.shared.buses.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Bus { capture: self.clone(), number, attached: Arc::default() }
    }

    /// Ends the capture: writes what waits, for five seconds at most. What is recorded afterwards is dropped.
    pub fn finish(&self) -> Summary {
        self.0.finish()
    }

    pub(super) fn next_urb(&self) -> u64 {
        self.0.shared.urbs.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn record(&self, device: &Device, urb: &Urb, record: &Record<'_>) {
        let data = &record.data[..record.data.len().min(pcapng::SNAP_LEN - HEADER_LEN)];
        let mut state = self.0.shared.lock();
        state.received += 1;
        if state.is_over || state.failure.is_some() || state.blocks.len() + HEADER_LEN + data.len() > BACKLOG {
            state.dropped += 1;
            return;
        }
        // Taken under the lock: times in the file never run backwards unless the clock does.
        let time = now();
        let header = Header {
            id: urb.id,
            event: record.event,
            transfer: urb.transfer,
            endpoint: urb.endpoint,
            device: device.address,
            bus: device.bus,
            setup: record.setup,
            time,
            status: record.status,
            length: u32::try_from(record.length).unwrap_or(u32::MAX),
            captured: data.len() as u32,
        };
        let original_len = HEADER_LEN + record.data.len();
        pcapng::enhanced_packet(&mut state.blocks, time, original_len, &header.to_bytes(), data);
        state.waiting += 1;
        drop(state);
        self.0.shared.filled.notify_one();
    }
}

impl Owner {
    fn finish(&self) -> Summary {
        let mut state = self.shared.lock();
        state.is_over = true;
        self.shared.filled.notify_all();
        let waited = self.shared.ended.wait_timeout_while(state, LAST_WRITE, |state| !state.has_ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let unwritten = if state.has_ended { 0 } else { state.waiting };
        let failure = state.failure.clone();
        Summary {
            received: state.received,
            dropped: state.dropped + unwritten,
            failure: failure.or_else(|| (!state.has_ended).then(|| "the disk does not answer".to_owned())),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes blocks until the capture is over, or the sink fails.
    fn write(&self, mut sink: impl Sink) {
        let (mut blocks, mut whole) = (Vec::new(), 0);
        let mut is_last = false;
        while !is_last {
            let mut state = self
                .filled
                .wait_while(self.lock(), |state| state.blocks.is_empty() && !state.is_over)
                .unwrap_or_else(PoisonError::into_inner);
            blocks.clear();
            std::mem::swap(&mut blocks, &mut state.blocks);
            // They stay counted as waiting until they are written: the end of the capture may come before.
            let packets = state.waiting;
            is_last = state.is_over;
            if is_last {
                pcapng::interface_statistics(&mut blocks, now(), state.received, state.dropped);
            }
            drop(state);
            let mut written = 0;
            let outcome = write_all(&mut sink, &blocks, &mut written);
            let mut state = self.lock();
            state.waiting -= packets;
            match outcome {
                Ok(()) => whole += written as u64,
                Err(error) => {
                    let (kept, kept_packets) = pcapng::whole_blocks(&blocks[..written]);
                    state.dropped += packets - kept_packets + std::mem::take(&mut state.waiting);
                    state.blocks = Vec::new();
                    state.failure = Some(error.to_string());
                    drop(state);
                    sink.cut(whole + kept as u64);
                    break;
                }
            }
        }
        drop(sink);
        self.lock().has_ended = true;
        self.ended.notify_all();
    }
}

/// [`Write::write_all`] that tells how much was written before it failed.
fn write_all(sink: &mut impl Sink, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match sink.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    sink.flush()
}

fn now() -> Duration {
    // Before 1970 only on a machine without a clock.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Not blocking: a named pipe without a reader is refused, not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    file::hold(File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags), path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file::hold(File::options().read(true).write(true).create(true).truncate(false), path)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::super::End;
    use super::*;

    /// What a file holds: URB ids and events, in order.
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
        assert_eq!(capture.finish().dropped, 1, "after its end nothing is recorded");
    }

    #[test]
    fn a_capture_that_is_let_go_is_whole() {
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
        assert_eq!(kept, 4, "as many as there is room for");
        assert!(summary.failure.is_some());
    }

    /// A disk that takes nothing before it is told to.
    struct Stuck {
        go: mpsc::Receiver<()>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Without a sender it goes on by itself.
            let _ = self.go.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Stuck {
        fn cut(&mut self, _len: u64) {}
    }

    #[test]
    fn a_disk_that_hangs_costs_packets_and_bounded_memory_and_no_time() {
        let (disk, go) = mpsc::channel();
        let capture = Capture::to(Stuck { go }).unwrap();
        let device = capture.bus().attach();
        let data = vec![0; 65536];
        for _ in 0..2000 {
            device.submit_bulk(0x02, data.len(), &data);
        }
        assert!(capture.0.shared.lock().blocks.len() <= BACKLOG + pcapng::SNAP_LEN);
        drop(disk);
        let summary = capture.finish();
        assert_eq!((summary.received, summary.failure), (2000, None));
        assert!((900..2000).contains(&summary.dropped), "{}", summary.dropped);
    }
}
