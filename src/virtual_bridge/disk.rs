//! The blocks of the SSD behind a virtual bridge: in a file, or in memory.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::chip::{BlockStore, StoreFailed};
use crate::scsi::BLOCK_LEN;

#[derive(Debug)]
enum Store {
    File(File),
    Memory(Cursor<Box<[u8]>>),
}

trait ReadWriteSeek: Read + Write + Seek {}

impl<T: Read + Write + Seek> ReadWriteSeek for T {}

impl Store {
    /// The store from this offset on.
    fn at(&mut self, offset: u64) -> io::Result<&mut dyn ReadWriteSeek> {
        let bytes: &mut dyn ReadWriteSeek = match self {
            Self::File(file) => file,
            Self::Memory(bytes) => bytes,
        };
        bytes.seek(SeekFrom::Start(offset))?;
        Ok(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync_data(),
            Self::Memory(_) => Ok(()),
        }
    }
}

/// Blocks of 512 bytes. Its clones are the same blocks: the drive behind the chip has one while the chip runs.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    store: Arc<Mutex<Store>>,
    bytes: u64,
}

impl Disk {
    fn new(store: Store, bytes: u64) -> Self {
        Self { store: Arc::new(Mutex::new(store)), bytes }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks in memory.
    pub(super) fn in_memory(bytes: u64) -> Self {
        Self::new(Store::Memory(Cursor::new(vec![0; bytes as usize].into())), bytes)
    }

    /// The blocks of a file, made longer where it is shorter (a hole where the system has such). What a longer one has
    /// behind the last block stays.
    pub(super) fn in_file(file: File, bytes: u64) -> io::Result<Self> {
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        Ok(Self::new(Store::File(file), bytes))
    }
}

impl BlockStore for Disk {
    fn blocks(&self) -> u64 {
        self.bytes / BLOCK_LEN as u64
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed> {
        self.store().at(first * BLOCK_LEN as u64).and_then(|bytes| bytes.read_exact(into)).map_err(|_| StoreFailed)
    }

    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed> {
        self.store().at(first * BLOCK_LEN as u64).and_then(|bytes| bytes.write_all(data)).map_err(|_| StoreFailed)
    }

    fn flush(&mut self) -> Result<(), StoreFailed> {
        self.store().sync().map_err(|_| StoreFailed)
    }
}
