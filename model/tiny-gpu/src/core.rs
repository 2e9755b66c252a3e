//! A core: runs one block of threads in lockstep. It has a fetcher, a scheduler and a PC; each thread has registers, an
//! ALU and a load-store unit (LSU).
//!
//! Source: adam-maj/tiny-gpu, `src/scheduler.sv`, `src/fetcher.sv`, `src/lsu.sv`, `src/registers.sv`, `src/pc.sv`.

use crate::controller::MemoryRequest;
use crate::isa::{BLOCK_DIM, BLOCK_INDEX, Instruction, Nzp, THREAD_INDEX, ThreadRegister};
use crate::machine::RunFault;

/// Threads per block, and so per core.
pub(super) const THREADS_A_BLOCK: usize = 4;

/// The stages of an instruction in the scheduler, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Fetch,
    Decode,
    Request,
    Wait,
    Execute,
    Update,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchState {
    Idle,
    Fetching(u8),
    Fetched,
}

/// A load-store unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lsu {
    Idle,
    Requesting,
    Waiting(MemoryRequest),
    /// With the loaded byte.
    Done(u8),
}

/// The state of one thread.
#[derive(Debug, Clone, Copy)]
struct Lane {
    registers: [u8; 16],
    condition: Nzp,
    lsu: Lsu,
}

impl Lane {
    fn new(block: u8, thread: usize) -> Self {
        let mut registers = [0; 16];
        registers[BLOCK_INDEX.index()] = block;
        registers[BLOCK_DIM.index()] = THREADS_A_BLOCK as u8;
        registers[THREAD_INDEX.index()] = thread as u8;
        Self { registers, condition: Nzp::default(), lsu: Lsu::Idle }
    }

    /// Advances by one clock edge. `answer` is data memory's. Registers change in the last stage only, so all
    /// stages read the same operands.
    fn step(&mut self, stage: Stage, instruction: Instruction, answer: Option<u8>) {
        let read = |register: ThreadRegister| self.registers[register.index()];
        let request = match instruction {
            Instruction::Load(_, address) => Some(MemoryRequest::Read(read(address))),
            Instruction::Store(address, value) => Some(MemoryRequest::Write(read(address), u16::from(read(value)))),
            _ => None,
        };
        if stage == Stage::Update {
            let written = match (instruction, self.lsu) {
                (Instruction::Compute(what, rd, left, right), _) => Some((rd, what.apply(read(left), read(right)))),
                (Instruction::Load(rd, _), Lsu::Done(loaded)) => Some((rd, loaded)),
                (Instruction::Const(rd, value), _) => Some((rd, value)),
                (Instruction::Compare(left, right), _) => {
                    self.condition = Nzp::of(read(left), read(right));
                    None
                }
                _ => None,
            };
            if let Some((rd, value)) = written.filter(|(rd, _)| rd.is_writable()) {
                self.registers[rd.index()] = value;
            }
        }
        if let Some(request) = request {
            self.lsu = match (self.lsu, answer) {
                (Lsu::Idle, _) if stage == Stage::Request => Lsu::Requesting,
                (Lsu::Requesting, _) => Lsu::Waiting(request),
                (Lsu::Waiting(_), Some(value)) => Lsu::Done(value),
                (Lsu::Done(_), _) if stage == Stage::Update => Lsu::Idle,
                (same, _) => same,
            };
        }
    }

    fn is_waiting(&self) -> bool {
        matches!(self.lsu, Lsu::Requesting | Lsu::Waiting(_))
    }
}

#[derive(Debug)]
pub(super) struct Core {
    stage: Stage,
    pub(super) block: u8,
    lanes: Vec<Lane>,
    pub(super) pc: usize,
    fetcher: FetchState,
    instruction: Instruction,
}

impl Core {
    /// Creates a core in reset, ready for a block of this many threads.
    pub(super) fn new(block: u8, threads: usize) -> Self {
        Self {
            stage: Stage::Idle,
            block,
            lanes: (0..threads).map(|thread| Lane::new(block, thread)).collect(),
            pc: 0,
            fetcher: FetchState::Idle,
            instruction: Instruction::Nop,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Returns the fetcher's request to program memory.
    pub(super) fn fetch(&self) -> Option<MemoryRequest> {
        if let FetchState::Fetching(address) = self.fetcher { Some(MemoryRequest::Read(address)) } else { None }
    }

    /// Returns the request of a thread's LSU to data memory.
    pub(super) fn access(&self, thread: usize) -> Option<MemoryRequest> {
        match self.lanes.get(thread)?.lsu {
            Lsu::Waiting(request) => Some(request),
            _ => None,
        }
    }

    /// Advances by one clock edge. With `returns_early`, RET ends the block in the stage in which other instructions
    /// request memory. `word` and `answers` come from program and data memory; `words` is the program's length.
    pub(super) fn step(
        &mut self,
        returns_early: bool,
        words: usize,
        word: Option<u16>,
        answers: &[Option<u16>],
    ) -> Result<(), RunFault> {
        let (stage, instruction) = (self.stage, self.instruction);
        let has_fetched = self.fetcher == FetchState::Fetched;
        let waits = self.lanes.iter().any(Lane::is_waiting);
        let returns = instruction == Instruction::Return;
        match (self.fetcher, word) {
            (FetchState::Idle, _) if stage == Stage::Fetch => {
                let address = u8::try_from(self.pc).ok().filter(|at| usize::from(*at) < words);
                let fault = RunFault::LeftProgram { block: self.block.into(), word: self.pc as u16 };
                self.fetcher = FetchState::Fetching(address.ok_or(fault)?);
            }
            (FetchState::Fetching(_), Some(word)) => {
                self.instruction = Instruction::from(word);
                self.fetcher = FetchState::Fetched;
            }
            (FetchState::Fetched, _) if stage == Stage::Decode => self.fetcher = FetchState::Idle,
            _ => {}
        }
        self.stage = match stage {
            Stage::Idle => Stage::Fetch,
            Stage::Fetch if has_fetched => Stage::Decode,
            Stage::Decode => Stage::Request,
            Stage::Request if returns && returns_early => Stage::Done,
            Stage::Request => Stage::Wait,
            Stage::Wait if !waits => Stage::Execute,
            Stage::Execute => Stage::Update,
            Stage::Update if returns => Stage::Done,
            Stage::Update => Stage::Fetch,
            stays => stays,
        };
        if stage == Stage::Update && !returns {
            // All threads share one PC, and the last thread's condition decides. The machine can't handle divergence.
            let condition = self.lanes.last().map_or(Nzp::default(), |lane| lane.condition);
            self.pc = match instruction {
                Instruction::Branch(wanted, target) if wanted.meets(condition) => usize::from(target),
                _ => self.pc + 1,
            };
        }
        for (lane, answer) in self.lanes.iter_mut().zip(answers) {
            lane.step(stage, instruction, answer.map(|word| word as u8));
        }
        Ok(())
    }
}
