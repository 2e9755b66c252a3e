//! The SSD behind a virtual bridge: blocks in a file, or in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Bytes in a logical block.
pub(super) const BLOCK_LEN: u64 = 512;

#[derive(Debug)]
enum Store {
    File(File),
    Memory(Vec<u8>),
}

/// Blocks of 512 bytes.
#[derive(Debug)]
pub(in crate::virtual_bridge) struct Disk {
    store: Store,
    bytes: u64,
}

impl Disk {
    /// Blocks in memory.
    pub(in crate::virtual_bridge) fn in_memory(bytes: u64) -> Self {
        Self { store: Store::Memory(vec![0; bytes as usize]), bytes }
    }

    /// The blocks of a file, made longer where it is shorter (a hole where the system has such). What a longer one has
    /// behind the last block stays.
    pub(in crate::virtual_bridge) fn in_file(file: File, bytes: u64) -> io::Result<Self> {
        if file.metadata()?.len() < bytes {
            file.set_len(bytes)?;
        }
        Ok(Self { store: Store::File(file), bytes })
    }

    pub(super) fn blocks(&self) -> u64 {
        self.bytes / BLOCK_LEN
    }

    /// Whether the blocks exist.
    pub(super) fn holds(&self, lba: u64, blocks: u64) -> bool {
        lba.checked_add(blocks).is_some_and(|end| end <= self.blocks())
    }

    pub(super) fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        match &mut self.store {
            Store::File(file) => {
                file.seek(SeekFrom::Start(at))?;
                file.read_exact(buffer)
            }
            Store::Memory(bytes) => {
                let start = at as usize;
                let place = bytes.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(place);
                Ok(())
            }
        }
    }

    pub(super) fn write(&mut self, at: u64, data: &[u8]) -> io::Result<()> {
        match &mut self.store {
            Store::File(file) => {
                file.seek(SeekFrom::Start(at))?;
                file.write_all(data)
            }
            Store::Memory(bytes) => {
                let start = at as usize;
                let place = bytes.get_mut(start..start + data.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                place.copy_from_slice(data);
                Ok(())
            }
        }
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        match &mut self.store {
            Store::File(file) => file.sync_data(),
            Store::Memory(_) => Ok(()),
        }
    }
}
