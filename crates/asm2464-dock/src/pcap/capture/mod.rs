//! The capture file, which a thread writes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::files::file;
use crate::files::queue::{Counts, Queue, QueueEnd, Sink};
use thiserror::Error;

use super::pcapng;
use super::usbmon::{HEADER_LEN, Header};

/// How many bytes may wait for the disk. A packet that does not fit is dropped.
const BACKLOG: usize = 32 << 20;

/// Reasons a capture can't start.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file can't be opened or emptied, or its thread can't be started.
    #[error("cannot record USB traffic to {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file exists and is not a capture. It is left as it is.
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
    Io => System "asm2464::pcap::file",
    NotACapture => Refused "asm2464::pcap::not_a_capture",
    Busy => Refused "asm2464::pcap::busy",
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
    fn finish(&self) -> Summary {
        let QueueEnd { counts, failure, has_ended } = self
            .queue
            .finish(|Counts { received, lost }, out| pcapng::interface_statistics(out, now(), received, lost));
        Summary {
            received: counts.received,
            dropped: counts.lost,
            failure: failure.or_else(|| (!has_ended).then(|| "the disk does not answer".to_owned())),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The file. A block that was written in part is cut off.
struct CaptureFile(File);

impl Write for CaptureFile {
    fn write(&mut self, blocks: &[u8]) -> io::Result<usize> {
        self.0.write(blocks)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Sink for CaptureFile {
    fn cut(&mut self, len: u64) {
        // If the file can't be cut, leave it: readers accept the blocks before the torn one.
        let _ = self.0.set_len(len);
    }
}

impl Capture {
    /// Starts a capture in a new file, or replaces an earlier capture.
    ///
    /// # Errors
    /// [`CaptureError`]. Devices, symbolic links, and files that are not captures are left as they are.
    pub fn create(path: &Path) -> Result<Self, CaptureError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::WouldBlock => CaptureError::Busy { path: path.to_owned() },
            _ => CaptureError::Io { path: path.to_owned(), source },
        };
        let mut file = open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut magic = pcapng::MAGIC;
        let is_capture = metadata.len() == 0 || file.read_exact(&mut magic).is_ok() && magic == pcapng::MAGIC;
        if !metadata.is_file() || !is_capture {
            return Err(CaptureError::NotACapture { path: path.to_owned() });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        Self::to(CaptureFile(file)).map_err(failed)
    }

    fn to(sink: impl Sink) -> io::Result<Self> {
        let mut head = Vec::new();
        pcapng::section_header(&mut head, concat!("asmpatch ", env!("CARGO_PKG_VERSION")));
        pcapng::interface_description(&mut head, pcapng::USB_LINUX_MMAPPED);
        let queue = Queue::start("pcap", BACKLOG, head, sink)?;
        Ok(Self(Arc::new(Owner { queue, urbs: AtomicU64::new(0), buses: AtomicU16::new(0) })))
    }

    /// Ends the capture: writes the waiting data, for five seconds at most. Drops everything recorded afterwards.
    pub fn finish(&self) -> Summary {
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
    pub(super) fn record(&self, header: Header, length: usize, data: &[u8]) {
        let original_len = HEADER_LEN + data.len();
        let data = &data[..data.len().min(pcapng::SNAP_LEN - HEADER_LEN)];
        self.0.queue.push(HEADER_LEN + data.len(), |blocks| {
            // Read the clock in here, so that the times in the file are in order.
            let time = now();
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let header = Header { time, length, captured: data.len() as u32, ..header };
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
mod tests;
