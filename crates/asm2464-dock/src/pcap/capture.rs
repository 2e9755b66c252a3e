//! The capture file, and the thread that writes it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use asmpatch_files::file;
use thiserror::Error;

use super::device::Bus;
use super::pcapng;
use super::usbmon::{HEADER_LEN, Header};

/// How many bytes may wait for the disk. Packets beyond them are dropped.
const BACKLOG: usize = 32 << 20;
/// How long the end of a capture waits for the disk.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Reasons a capture can't start.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The system refuses to open the file.
    #[error("cannot record USB traffic to {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file exists and is no capture, so it would be lost.
    #[error("{} exists and is not a pcapng file", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
    },
    /// Another process is recording into the file.
    #[error("{} is in use by another process", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

asm2464::coded!(CaptureError {
    Io => "asmpatch::pcap::file",
    NotACapture => "asmpatch::pcap::not_a_capture",
    Busy => "asmpatch::pcap::busy",
});

/// The outcome of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Events of URBs that were to be recorded.
    pub received: u64,
    /// How many of those are missing in the file.
    pub dropped: u64,
    /// Why the file ends early, in words; `None` if it is complete.
    pub failure: Option<String>,
}

/// Records URBs to a pcapng file.
///
/// Recording copies the data to memory and returns; a thread writes them. Data that the disk does not take in time, or
/// does not take at all, are dropped and counted. The capture ends when its last clone is dropped, or with
/// [`Capture::finish`].
#[derive(Debug, Clone)]
pub struct Capture(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    shared: Arc<SharedCapture>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.finish();
    }
}

#[derive(Debug)]
struct SharedCapture {
    state: Mutex<CaptureState>,
    /// Signals something to write, or the end of the capture.
    filled: Condvar,
    /// Signals that the file is complete.
    ended: Condvar,
    urbs: AtomicU64,
    buses: AtomicU16,
}

#[derive(Debug, Default)]
struct CaptureState {
    /// Whole blocks that wait for the disk.
    blocks: Vec<u8>,
    /// How many packets are in the blocks.
    waiting: u64,
    received: u64,
    dropped: u64,
    failure: Option<String>,
    is_over: bool,
    has_ended: bool,
}

/// The destination of the blocks.
trait BlockSink: Write + Send + 'static {
    /// Cuts the file to its first `len` bytes.
    fn cut(&mut self, len: u64);
}

impl BlockSink for File {
    fn cut(&mut self, len: u64) {
        // If the file can't be cut, leave it: readers accept the blocks before the torn one.
        let _ = self.set_len(len);
    }
}

impl Capture {
    /// Starts a capture in a new file, or replaces an earlier capture.
    ///
    /// # Errors
    /// [`CaptureError`]. Leaves a file that is no capture, a device and a symbolic link as they are.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::WouldBlock => CaptureError::Busy { path: path.to_owned() },
            _ => CaptureError::Io { path: path.to_owned(), source },
        };
        let mut file = open(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?;
        let mut magic = pcapng::MAGIC;
        let is_capture = kind.len() == 0 || file.read_exact(&mut magic).is_ok() && magic == pcapng::MAGIC;
        if !kind.is_file() || !is_capture {
            return Err(CaptureError::NotACapture { path: path.to_owned() });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        Self::to(file).map_err(failed)
    }

    fn to(sink: impl BlockSink) -> io::Result<Self> {
        let mut state = CaptureState::default();
        pcapng::section_header(&mut state.blocks, concat!("asmpatch ", env!("CARGO_PKG_VERSION")));
        pcapng::interface_description(&mut state.blocks, pcapng::USB_LINUX_MMAPPED);
        let shared = Arc::new(SharedCapture {
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

    /// Returns a new bus, for one more unit.
    pub fn bus(&self) -> Bus {
        let number = self.0.shared.buses.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Bus { capture: self.clone(), number, attached: Arc::default() }
    }

    /// Ends the capture: writes the waiting data, for five seconds at most. Drops everything recorded afterwards.
    pub fn finish(&self) -> Summary {
        self.0.shared.finish()
    }

    pub(super) fn next_urb(&self) -> u64 {
        self.0.shared.urbs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records an event of an URB, whose header lacks the time and these lengths: how many bytes were requested, or
    /// moved, and how many follow the header.
    pub(super) fn record(&self, header: Header, length: usize, data: &[u8]) {
        let original_len = HEADER_LEN + data.len();
        let data = &data[..data.len().min(pcapng::SNAP_LEN - HEADER_LEN)];
        let mut state = self.0.shared.lock();
        state.received += 1;
        if state.is_over || state.failure.is_some() || state.blocks.len() + HEADER_LEN + data.len() > BACKLOG {
            state.dropped += 1;
            return;
        }
        // Take the time under the lock, so that times in the file never run backwards unless the clock does.
        let time = now();
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let header = Header { time, length, captured: data.len() as u32, ..header };
        pcapng::enhanced_packet(&mut state.blocks, time, original_len, &header.to_bytes(), data);
        state.waiting += 1;
        drop(state);
        self.0.shared.filled.notify_one();
    }
}

impl SharedCapture {
    fn finish(&self) -> Summary {
        let mut state = self.lock();
        state.is_over = true;
        self.filled.notify_all();
        let waited = self.ended.wait_timeout_while(state, LAST_WRITE, |state| !state.has_ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let unwritten = if state.has_ended { 0 } else { state.waiting };
        let failure = state.failure.clone();
        Summary {
            received: state.received,
            dropped: state.dropped + unwritten,
            failure: failure.or_else(|| (!state.has_ended).then(|| "the disk does not answer".to_owned())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes blocks until the capture is over, or the sink fails.
    fn write(&self, mut sink: impl BlockSink) {
        let (mut blocks, mut whole) = (Vec::new(), 0);
        let mut is_last = false;
        while !is_last {
            let mut state = self
                .filled
                .wait_while(self.lock(), |state| state.blocks.is_empty() && !state.is_over)
                .unwrap_or_else(PoisonError::into_inner);
            blocks.clear();
            std::mem::swap(&mut blocks, &mut state.blocks);
            // The packets still count as waiting until they are written, because the capture may end first.
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

/// Works like [`Write::write_all`], and also tells how much was written before it failed.
fn write_all(sink: &mut impl BlockSink, bytes: &[u8], written: &mut usize) -> io::Result<()> {
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
    // Only a machine without a clock thinks that it is before 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn open(path: &Path) -> io::Result<File> {
    #[cfg(not(unix))]
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_symlink()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    // Refuse a named pipe without a reader instead of waiting for one.
    file::careful(&mut options, false);
    file::hold(&options, path)
}

#[cfg(test)]
mod tests;
