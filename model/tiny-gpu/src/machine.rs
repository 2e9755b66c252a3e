//! The machine: two cores, a dispatcher that assigns blocks to them, controllers, and external memories. Counts cycles.
//!
//! Source: adam-maj/tiny-gpu, `src/gpu.sv`, `src/dispatch.sv`, and its test bench, which defines when counting begins
//! and ends.

use thiserror::Error;

use crate::controller::{CacheLines, Channels, MemoryController, MemoryRequest};
use crate::core::{Core, THREADS_A_BLOCK};

/// Words of program memory.
pub const PROGRAM_LEN: usize = 256;
/// Bytes of data memory. An address has 8 bits, so every address is inside it.
pub const DATA_LEN: usize = 256;

const CORES: usize = 2;
const DATA_CHANNELS: usize = 4;
const PROGRAM_CHANNELS: usize = 1;

/// How the machine is built, and how slow its memories are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Design {
    /// Whether caches are in front of both memories: 16 lines each, of one program word or of two data bytes.
    pub has_caches: bool,
    /// Cycles until program memory answers.
    pub program_latency: u32,
    /// Cycles until data memory answers.
    pub data_latency: u32,
}

impl Design {
    /// No cache, and memories that answer in the next cycle. Source: adam-maj/tiny-gpu, `test/helpers`.
    pub const PLAIN: Self = Self { has_caches: false, program_latency: 1, data_latency: 1 };
    /// Caches, and a program memory that takes six cycles: five that its bench waits, and one to see the request.
    /// Source: dsandall/tiny-gpu, `test/helpers/memory.py` and `delay` in `test/test_matmul.py`; the README, "Cycles".
    pub const CACHED: Self = Self { has_caches: true, program_latency: 6, data_latency: 1 };
}

/// Reasons a run did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RunFault {
    /// Program or data are longer than their memory.
    #[error("a program has at most {PROGRAM_LEN} words, and its data at most {DATA_LEN} bytes")]
    TooLong,
    /// The program continued past its end.
    #[error("block {block} went on at word {word}, outside of its program")]
    LeftProgram {
        /// The block.
        block: u16,
        /// The word.
        word: u16,
    },
    /// The run reached its cycle limit.
    #[error("the program did not end within its cycle limit: block {block} is at word {word}")]
    NeverEnds {
        /// A block that had not ended.
        block: u16,
        /// Its next word.
        word: u16,
    },
}

/// A machine loaded with a program, data and a number of threads.
#[derive(Debug)]
pub struct Machine {
    design: Design,
    program: Vec<u16>,
    /// Data memory.
    pub data: [u8; DATA_LEN],
    threads: u8,
    cores: Vec<Core>,
    has_block: [bool; CORES],
    program_controller: MemoryController,
    program_cache: Option<MemoryController>,
    data_controller: MemoryController,
    program_memory: Channels,
    data_memory: Channels,
    /// The LSUs' requests and answers of the previous cycle, because registers delay both directions.
    asked: Vec<Option<MemoryRequest>>,
    answers_seen: Vec<Option<u16>>,
}

impl Machine {
    /// Creates a machine in its reset state. Data memory starts with `data`, followed by zeros.
    ///
    /// # Errors
    /// [`RunFault::TooLong`] if program or data are longer than their memory.
    pub fn new(design: Design, program: &[u16], data: &[u8], threads: u8) -> Result<Self, RunFault> {
        if program.len() > PROGRAM_LEN {
            return Err(RunFault::TooLong);
        }
        let mut memory = [0; DATA_LEN];
        memory.get_mut(..data.len()).ok_or(RunFault::TooLong)?.copy_from_slice(data);
        let lsus = CORES * THREADS_A_BLOCK;
        let data_cache = design.has_caches.then(|| CacheLines::new(2));
        let program_cache =
            design.has_caches.then(|| MemoryController::new(1, PROGRAM_CHANNELS, Some(CacheLines::new(1))));
        Ok(Self {
            design,
            program: program.to_vec(),
            data: memory,
            threads,
            cores: (0..CORES).map(|_| Core::new(0, 0)).collect(),
            has_block: [false; CORES],
            program_controller: MemoryController::new(CORES, PROGRAM_CHANNELS, None),
            program_cache,
            data_controller: MemoryController::new(lsus, DATA_CHANNELS, data_cache),
            program_memory: Channels::new(PROGRAM_CHANNELS, design.program_latency),
            data_memory: Channels::new(DATA_CHANNELS, design.data_latency),
            asked: vec![None; lsus],
            answers_seen: vec![None; lsus],
        })
    }

    /// Runs the program to its end, for at most `limit` cycles. Returns its cycles as the test bench counts them.
    ///
    /// # Errors
    /// [`RunFault`]; data memory then holds what the program has stored so far.
    pub fn run(&mut self, limit: u64) -> Result<u64, RunFault> {
        // The bench notices the end one cycle late, and the bench with caches two cycles late.
        let notice_delay = if self.design.has_caches { 2 } else { 1 };
        let blocks = usize::from(self.threads).div_ceil(THREADS_A_BLOCK);
        let (mut begun, mut ended) = (0, 0);
        for cycle in 0..limit {
            let done_before: Vec<bool> = self.cores.iter().map(Core::is_done).collect();
            let had_block = self.has_block;
            self.step()?;
            // The dispatcher. A core without a block is in reset.
            if ended == blocks {
                return Ok(cycle + 1 + notice_delay);
            }
            for core in 0..CORES {
                if !had_block[core] && begun < blocks {
                    let remaining = usize::from(self.threads) - begun * THREADS_A_BLOCK;
                    self.cores[core] = Core::new(begun as u8, remaining.min(THREADS_A_BLOCK));
                    self.has_block[core] = true;
                    begun += 1;
                } else if had_block[core] && done_before[core] {
                    self.has_block[core] = false;
                    ended += 1;
                }
            }
        }
        let at = (0..CORES).find(|core| self.has_block[*core]).unwrap_or(0);
        Err(RunFault::NeverEnds { block: self.cores[at].block.into(), word: self.cores[at].pc as u16 })
    }

    /// Advances everything but the dispatcher by one clock edge. All parts see the signals as they were before it.
    fn step(&mut self) -> Result<(), RunFault> {
        let (program, data) = (&self.program, &mut self.data);
        let fetched = |request| match request {
            MemoryRequest::Read(address) => program.get(usize::from(address)).copied().unwrap_or(0),
            MemoryRequest::Write(..) => 0,
        };
        let before_program = self.program_cache.as_ref().unwrap_or(&self.program_controller);
        let from_program = self.program_memory.step(before_program.to_memory(), fetched);
        let from_data = self.data_memory.step(self.data_controller.to_memory(), |request| match request {
            MemoryRequest::Read(address) => u16::from(data[usize::from(address)]),
            MemoryRequest::Write(address, value) => {
                data[usize::from(address)] = value as u8;
                0
            }
        });

        let fetches: Vec<_> = self.cores.iter().map(Core::fetch).collect();
        let accesses: Vec<_> =
            self.cores.iter().flat_map(|core| (0..THREADS_A_BLOCK).map(|thread| core.access(thread))).collect();
        let words = self.program_controller.answers();
        let answers_seen = self.data_controller.answers();

        if let Some(cache) = &mut self.program_cache {
            let to_cache: Vec<_> = self.program_controller.to_memory().collect();
            let from_cache = cache.answers();
            self.program_controller.step(&fetches, &from_cache);
            cache.step(&to_cache, &from_program);
        } else {
            self.program_controller.step(&fetches, &from_program);
        }
        self.data_controller.step(&self.asked, &from_data);
        for (index, core) in self.cores.iter_mut().enumerate().filter(|(index, _)| self.has_block[*index]) {
            let answers = &self.answers_seen[index * THREADS_A_BLOCK..][..THREADS_A_BLOCK];
            core.step(self.design.has_caches, self.program.len(), words[index], answers)?;
        }
        (self.asked, self.answers_seen) = (accesses, answers_seen);
        Ok(())
    }
}
