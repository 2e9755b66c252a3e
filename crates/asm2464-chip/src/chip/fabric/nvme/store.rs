//! Storage for a drive's blocks.

use std::collections::BTreeMap;
use std::fmt;

use asm2464::scsi::BLOCK_LEN;

/// The blocks could not be read, or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreFailed;

/// Storage of 512-byte blocks. A drive only accesses existing blocks, at most as many as a command moves.
pub trait BlockStore: fmt::Debug + Send {
    /// Number of blocks.
    fn blocks(&self) -> u64;

    /// Reads whole blocks, from block number `first` on.
    ///
    /// # Errors
    /// [`StoreFailed`]: the host gets a media error.
    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed>;

    /// Writes whole blocks, from block number `first` on.
    ///
    /// # Errors
    /// [`StoreFailed`]: the host gets a write fault.
    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// [`StoreFailed`]: the host gets a write fault.
    fn flush(&mut self) -> Result<(), StoreFailed>;
}

/// Blocks in memory. Only written blocks take memory; the rest reads as zeros.
#[derive(Debug)]
pub(super) struct SparseStore {
    blocks: u64,
    written: BTreeMap<u64, [u8; BLOCK_LEN]>,
}

impl SparseStore {
    pub(super) fn new(blocks: u64) -> Self {
        Self { blocks, written: BTreeMap::new() }
    }
}

impl BlockStore for SparseStore {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<(), StoreFailed> {
        for (number, block) in (first..).zip(into.chunks_mut(BLOCK_LEN)) {
            match self.written.get(&number) {
                Some(written) => block.copy_from_slice(&written[..block.len()]),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, first: u64, data: &[u8]) -> Result<(), StoreFailed> {
        for (number, block) in (first..).zip(data.chunks(BLOCK_LEN)) {
            let written = self.written.entry(number).or_insert([0; BLOCK_LEN]);
            written[..block.len()].copy_from_slice(block);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreFailed> {
        Ok(())
    }
}
