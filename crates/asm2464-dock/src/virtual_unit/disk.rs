//! The blocks of the SSD behind a virtual unit: in a file, or in memory.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asm2464::scsi::BLOCK_LEN;
use asm2464_chip::chip::{BlockStore, StoreFailed};

/// What holds the blocks.
trait Medium: Read + Write + Seek + Debug + Send {
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Medium for Cursor<Box<[u8]>> {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Blocks of 512 bytes. Clones share the blocks: while the chip runs, the drive behind it has a clone.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    medium: Arc<Mutex<dyn Medium>>,
    bytes: u64,
}

impl Disk {
    /// Locks the medium, positioned at this block.
    fn at(&self, block: u64) -> io::Result<MutexGuard<'_, dyn Medium + 'static>> {
        let mut medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        medium.seek(SeekFrom::Start(block * BLOCK_LEN as u64))?;
        Ok(medium)
    }

    /// Blocks in memory.
    pub(super) fn in_memory(bytes: u64) -> Self {
        let blocks = vec![0; bytes as usize].into_boxed_slice();
        Self { medium: Arc::new(Mutex::new(Cursor::new(blocks))), bytes }
    }

    /// Blocks in a file. Extends a shorter file to `bytes` (with a hole if the system supports it). The rest of a
    /// longer file stays as it is.
    pub(super) fn in_file(file: File, bytes: u64) -> io::Result<Self> {
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        Ok(Self { medium: Arc::new(Mutex::new(file)), bytes })
    }
}

impl BlockStore for Disk {
    fn blocks(&self) -> u64 {
        self.bytes / BLOCK_LEN as u64
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed> {
        self.at(first).and_then(|mut medium| medium.read_exact(into)).map_err(|_| StoreFailed)
    }

    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed> {
        self.at(first).and_then(|mut medium| medium.write_all(data)).map_err(|_| StoreFailed)
    }

    fn flush(&mut self) -> Result<(), StoreFailed> {
        self.at(0).and_then(|medium| medium.sync()).map_err(|_| StoreFailed)
    }
}
