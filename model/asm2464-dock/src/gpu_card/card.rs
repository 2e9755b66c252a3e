//! tiny-gpu as a card behind the bridge: memory, registers, and a DMA engine that writes into host memory.

use asm2464_chip::chip::{BarSpec, DeviceEngine, Engine, HostMemory};
use tiny_gpu::{DATA_LEN, Design, Machine, PROGRAM_LEN, RunFault};

use super::registers::{
    AWAIT, CACHES, COMMAND_AT, CONTROL, CYCLE_LIMIT, CYCLES, CYCLES_MAX, CardFault, DATA_AT, ENTRY, ENTRY_TO, FAULT_AT,
    ID, ID_VALUE, MEMORY_LEN, PROGRAM_AT, PROGRAM_WORDS, RAN, REGISTERS_LEN, RUN, SEND, SEND_FROM, SEND_LEN, SEND_TO,
    SENT, STATUS, THREADS, WAITS,
};

const ENTRY_LEN: usize = 16;
/// Command ID in a completion entry, and in a command. Source: NVMe base specification 1.4, figures 122 and 104.
const ENTRY_COMMAND_ID: usize = 12;
const COMMAND_ID: usize = 2;
/// Registers that hold the written value. CONTROL is among them, and is handled separately.
const HELD: std::ops::Range<u16> = PROGRAM_AT..COMMAND_AT + 8;

/// The engine of a tiny-gpu device: memory behind its first BAR, [registers](super::registers) behind its second.
pub const ENGINE: Engine = Engine::Brought {
    bars: &[
        BarSpec { bytes: MEMORY_LEN as u64, is_64: true, prefetchable: true },
        BarSpec { bytes: REGISTERS_LEN as u64, is_64: false, prefetchable: false },
    ],
    build: || Box::new(Card::default()),
};

/// The tiny-gpu card.
#[derive(Debug, Default)]
struct Card {
    /// The card's memory up to the highest written byte; the rest is zeros.
    memory: Vec<u8>,
    held: [u32; (HELD.end - HELD.start) as usize / 4],
    status: u32,
    cycles: u32,
    fault: Option<CardFault>,
}

impl DeviceEngine for Card {
    fn reset(&mut self) {
        *self = Self::default();
    }

    fn read(&self, bar: usize, offset: u64) -> u32 {
        if bar == 0 { self.memory_read(offset) } else { self.register_read(offset) }
    }

    fn write(&mut self, bar: usize, offset: u64, value: u32, enables: u8, host: Option<&mut dyn HostMemory>) {
        if bar == 0 {
            return self.memory_write(offset, value, enables);
        }
        let mut bytes = self.register_read(offset).to_le_bytes();
        for (index, byte) in value.to_le_bytes().into_iter().enumerate() {
            if enables >> index & 1 != 0 {
                bytes[index] = byte;
            }
        }
        self.register_write(offset, u32::from_le_bytes(bytes), host);
    }

    fn awaits_command(&self) -> bool {
        self.waits()
    }

    fn look(&mut self, host: Option<&mut dyn HostMemory>) {
        if !self.waits() {
            return;
        }
        match self.complete(host) {
            Ok(false) => {}
            Ok(true) => self.status = self.status & !WAITS | SENT,
            Err(fault) => (self.status, self.fault) = (self.status & !WAITS, Some(fault)),
        }
    }
}

impl Card {
    /// Reads a dword of the card's memory, by byte offset.
    fn memory_read(&self, offset: u64) -> u32 {
        let bytes = u32::try_from(offset).ok().and_then(|at| self.bytes(at, 4));
        bytes.map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Writes to a dword of the card's memory.
    fn memory_write(&mut self, offset: u64, value: u32, enables: u8) {
        for (index, byte) in value.to_le_bytes().into_iter().enumerate() {
            if enables >> index & 1 != 0 {
                self.put(offset.saturating_add(index as u64), &[byte]);
            }
        }
    }

    /// Reads a register.
    fn register_read(&self, offset: u64) -> u32 {
        match u16::try_from(offset).unwrap_or(u16::MAX) {
            ID => ID_VALUE,
            STATUS => self.status | self.fault.map_or(0, |fault| u32::from(fault.number()) << 8),
            CYCLES => self.cycles,
            FAULT_AT => self.fault.map_or(0, CardFault::at),
            at if HELD.contains(&at) => self.held(at),
            _ => 0,
        }
    }

    /// Writes a register for the host. `host` receives the card's own writes; `None` if the card must not send any.
    fn register_write(&mut self, offset: u64, value: u32, host: Option<&mut dyn HostMemory>) {
        match u16::try_from(offset).unwrap_or(u16::MAX) {
            CONTROL => {
                (self.status, self.cycles, self.fault) = (0, 0, None);
                self.fault = self.work(value, host).err();
            }
            at if HELD.contains(&at) => self.held[usize::from(at - HELD.start) / 4] = value,
            _ => {}
        }
    }

    /// Whether the card waits for a command.
    const fn waits(&self) -> bool {
        self.status & WAITS != 0
    }

    /// Sends the completion entry if the command has arrived. Returns whether it has.
    fn complete(&self, host: Option<&mut dyn HostMemory>) -> Result<bool, CardFault> {
        let host = host.ok_or(CardFault::NotMaster)?;
        let mut command = [0; 4];
        if !host.read(self.held_wide(COMMAND_AT), &mut command) {
            return Err(CardFault::NoCommand);
        }
        if command[0] == 0 {
            return Ok(false);
        }
        let mut entry = self.entry();
        entry[ENTRY_COMMAND_ID..][..2].copy_from_slice(&command[COMMAND_ID..]);
        if host.write(self.held_wide(ENTRY_TO), &entry) { Ok(true) } else { Err(CardFault::NoTarget) }
    }

    fn held(&self, at: u16) -> u32 {
        self.held[usize::from(at - HELD.start) / 4]
    }

    fn held_wide(&self, at: u16) -> u64 {
        u64::from(self.held(at + 4)) << 32 | u64::from(self.held(at))
    }

    /// Copies a range of the card's memory; `None` if it is not completely inside.
    fn bytes(&self, at: u32, len: u32) -> Option<Vec<u8>> {
        let end = at.checked_add(len)?;
        if end > MEMORY_LEN {
            return None;
        }
        let end = end as usize;
        let written = self.memory.get(at as usize..end.min(self.memory.len())).unwrap_or_default();
        let mut bytes = written.to_vec();
        bytes.resize(len as usize, 0);
        Some(bytes)
    }

    /// Writes to the card's memory. Ignores a write that does not fit.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len() as u64);
        if end > u64::from(MEMORY_LEN) {
            return;
        }
        let (at, end) = (at as usize, end as usize);
        if self.memory.len() < end {
            self.memory.resize(end, 0);
        }
        self.memory[at..end].copy_from_slice(bytes);
    }

    fn work(&mut self, control: u32, host: Option<&mut dyn HostMemory>) -> Result<(), CardFault> {
        if control & RUN != 0 {
            self.run(if control & CACHES != 0 { Design::CACHED } else { Design::PLAIN })?;
            self.status |= RAN;
        }
        if control & SEND != 0 {
            self.send(host.ok_or(CardFault::NotMaster)?, control & AWAIT == 0)?;
            self.status |= if control & AWAIT == 0 { SENT } else { WAITS };
        }
        Ok(())
    }

    fn run(&mut self, design: Design) -> Result<(), CardFault> {
        let words = self.held(PROGRAM_WORDS);
        let program = if words as usize > PROGRAM_LEN { None } else { self.bytes(self.held(PROGRAM_AT), 2 * words) };
        let program = program.ok_or(CardFault::NoRun)?;
        let program: Vec<u16> = program.chunks_exact(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect();
        let data = self.bytes(self.held(DATA_AT), DATA_LEN as u32).ok_or(CardFault::NoRun)?;
        let threads = u8::try_from(self.held(THREADS)).map_err(|_| CardFault::NoRun)?;
        let limit = self.held(CYCLE_LIMIT);
        if limit > CYCLES_MAX {
            return Err(CardFault::NoRun);
        }
        let mut machine = Machine::new(design, &program, &data, threads)?;
        let ended = machine.run(u64::from(limit));
        self.put(u64::from(self.held(DATA_AT)), &machine.data);
        if let Err(RunFault::NeverEnds { .. }) = ended {
            self.cycles = limit;
        }
        self.cycles = ended? as u32;
        Ok(())
    }

    /// Sends the data and, if `with_entry` is set, the completion entry.
    fn send(&self, host: &mut dyn HostMemory, with_entry: bool) -> Result<(), CardFault> {
        let len = self.held(SEND_LEN);
        if len != 0 {
            let data = self.bytes(self.held(SEND_FROM), len).ok_or(CardFault::NoSource)?;
            if !host.write(self.held_wide(SEND_TO), &data) {
                return Err(CardFault::NoTarget);
            }
        }
        let entry_to = self.held_wide(ENTRY_TO);
        if with_entry && entry_to != 0 && !host.write(entry_to, &self.entry()) {
            return Err(CardFault::NoTarget);
        }
        Ok(())
    }

    fn entry(&self) -> [u8; ENTRY_LEN] {
        let mut entry = [0; ENTRY_LEN];
        for (bytes, at) in entry.chunks_exact_mut(4).zip((ENTRY..).step_by(4)) {
            bytes.copy_from_slice(&self.held(at).to_le_bytes());
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS, packed_matmul};

    use super::*;

    /// Takes writes at 0x1000 to 0x10FF and at 0x2000 to 0x200F, and answers reads at 0x3000 with a command.
    #[derive(Default)]
    struct Ranges(Vec<(u64, Vec<u8>)>, [u8; 4]);

    impl HostMemory for Ranges {
        fn read(&mut self, address: u64, data: &mut [u8]) -> bool {
            let is_there = (address, data.len()) == (0x3000, 4);
            if is_there {
                data.copy_from_slice(&self.1);
            }
            is_there
        }

        fn write(&mut self, address: u64, data: &[u8]) -> bool {
            let end = address.saturating_add(data.len() as u64);
            let is_taken = [0x1000..=0x1100, 0x2000..=0x2010]
                .iter()
                .any(|range: &std::ops::RangeInclusive<u64>| range.contains(&address) && range.contains(&end));
            if is_taken {
                self.0.push((address, data.to_vec()));
            }
            is_taken
        }
    }

    fn load(card: &mut Card, at: u32, bytes: &[u8]) {
        for (index, dword) in bytes.chunks(4).enumerate() {
            let mut value = [0; 4];
            value[..dword.len()].copy_from_slice(dword);
            card.memory_write(u64::from(at) + 4 * index as u64, u32::from_le_bytes(value), 0x0F);
        }
    }

    /// Builds a card that runs a program on two matrices, and sends the product to 0x1000 and an entry to 0x2000.
    fn loaded(program: &[u16]) -> Card {
        let mut card = Card::default();
        load(&mut card, 0x100, &program.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        load(&mut card, 0x400, &[1, 2, 3, 4, 1, 2, 3, 4]);
        for (at, value) in [
            (PROGRAM_AT, 0x100),
            (PROGRAM_WORDS, program.len() as u32),
            (DATA_AT, 0x400),
            (THREADS, u32::from(PRODUCT_THREADS)),
            (CYCLE_LIMIT, 10_000),
            (SEND_FROM, 0x400 + PRODUCT_AT as u32),
            (SEND_LEN, 4),
            (SEND_TO, 0x1000),
            (ENTRY_TO, 0x2000),
            (ENTRY + 12, 0x0001_0000),
        ] {
            card.register_write(u64::from(at), value, None);
        }
        card
    }

    fn outcome(card: &Card) -> (u32, Option<CardFault>) {
        let read = |at: u16| card.register_read(u64::from(at));
        (read(STATUS) & 0xFF, CardFault::of(read(STATUS), read(FAULT_AT)))
    }

    #[test]
    fn a_program_runs_and_its_result_goes_to_the_host_followed_by_an_entry() {
        for (program, control, cycles) in [
            (&MATMUL[..], RUN | SEND, 491),
            (&MATMUL[..], RUN | SEND | CACHES, 706),
            (&packed_matmul(false)[..], RUN | SEND, 955),
        ] {
            let (mut card, mut host) = (loaded(program), Ranges::default());
            card.register_write(u64::from(CONTROL), control, Some(&mut host));
            assert_eq!((outcome(&card), card.register_read(u64::from(CYCLES))), ((RAN | SENT, None), cycles));
            let entry = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            assert_eq!(host.0, [(0x1000, vec![7, 10, 15, 22]), (0x2000, entry.to_vec())]);
            assert_eq!(card.memory_read(0x408), u32::from_le_bytes([7, 10, 15, 22]));
        }
    }

    #[test]
    fn a_fault_is_in_the_status_and_nothing_is_sent() {
        let cases = [
            (PROGRAM_WORDS, 5, CardFault::Run(RunFault::LeftProgram { block: 0, word: 5 }), 0),
            (CYCLE_LIMIT, 20, CardFault::Run(RunFault::NeverEnds { block: 0, word: 1 }), 0),
            (CYCLE_LIMIT, CYCLES_MAX + 1, CardFault::NoRun, 0),
            (PROGRAM_WORDS, 257, CardFault::NoRun, 0),
            (PROGRAM_AT, u32::MAX, CardFault::NoRun, 0),
            (DATA_AT, MEMORY_LEN - 255, CardFault::NoRun, 0),
            (THREADS, 256, CardFault::NoRun, 0),
            (SEND_FROM, MEMORY_LEN - 3, CardFault::NoSource, RAN),
            (SEND_LEN, u32::MAX, CardFault::NoSource, RAN),
            (SEND_TO, 0x10FD, CardFault::NoTarget, RAN),
            (SEND_TO + 4, u32::MAX, CardFault::NoTarget, RAN),
        ];
        for (register, value, fault, status) in cases {
            let (mut card, mut host) = (loaded(&MATMUL), Ranges::default());
            card.register_write(u64::from(register), value, None);
            card.register_write(u64::from(CONTROL), RUN | SEND, Some(&mut host));
            assert_eq!((outcome(&card), host.0), ((status, Some(fault)), vec![]), "{register:#x} {value:#x}");
        }
        let mut card = loaded(&MATMUL);
        card.register_write(u64::from(CONTROL), RUN | SEND, None);
        assert_eq!(outcome(&card), (RAN, Some(CardFault::NotMaster)));
        card.register_write(u64::from(CONTROL), RUN, None);
        assert_eq!(outcome(&card), (RAN, None), "the next job starts with a clear status");
    }

    #[test]
    fn an_entry_that_waits_for_a_command_is_sent_with_its_id_once_the_command_is_there() {
        let (mut card, mut host) = (loaded(&MATMUL), Ranges::default());
        card.register_write(u64::from(COMMAND_AT), 0x3000, None);
        card.register_write(u64::from(CONTROL), RUN | SEND | AWAIT, Some(&mut host));
        card.look(Some(&mut host));
        assert_eq!((outcome(&card), card.waits()), ((RAN | WAITS, None), true));
        assert_eq!(host.0, [(0x1000, vec![7, 10, 15, 22])], "the data was sent before the entry");
        host.1 = [0x02, 0, 0x03, 0x1F];
        card.look(Some(&mut host));
        card.look(Some(&mut host));
        assert_eq!((outcome(&card), card.waits()), ((RAN | SENT, None), false));
        assert_eq!(host.0[1..], [(0x2000, vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0x1F, 1, 0])]);

        for (at, value, fault) in [(COMMAND_AT, 0x3004, CardFault::NoCommand), (ENTRY_TO, 0x2004, CardFault::NoTarget)]
        {
            card.register_write(u64::from(COMMAND_AT), 0x3000, None);
            card.register_write(u64::from(at), value, None);
            card.register_write(u64::from(CONTROL), SEND | AWAIT, Some(&mut host));
            card.look(Some(&mut host));
            assert_eq!((outcome(&card), card.waits()), ((0, Some(fault)), false));
        }
        card.register_write(u64::from(CONTROL), SEND | AWAIT, Some(&mut host));
        card.look(None);
        assert_eq!(outcome(&card), (0, Some(CardFault::NotMaster)));
    }

    #[test]
    fn accesses_past_its_memory_have_no_effect() {
        let mut card = Card::default();
        for at in [u64::from(MEMORY_LEN) - 4, u64::from(MEMORY_LEN), u64::MAX - 1] {
            card.memory_write(at, 0x1122_3344, 0x06);
        }
        assert_eq!(card.memory_read(u64::from(MEMORY_LEN) - 4), 0x0022_3300);
        assert_eq!(card.memory_read(u64::from(MEMORY_LEN)), 0);
        card.register_write(u64::MAX, 1, None);
        assert_eq!(card.register_read(u64::from(ID)), ID_VALUE);
    }

    proptest::proptest! {
        // Each case fills a memory of its own.
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        #[test]
        fn no_write_makes_the_card_panic(
            writes in proptest::collection::vec((0_u64..0x60, proptest::num::u32::ANY, 0_u32..24), 0..40)
        ) {
            let (mut card, mut host) = (loaded(&MATMUL), Ranges::default());
            // Long runs are slow, and have their own tests.
            card.register_write(u64::from(CYCLE_LIMIT), 2_000, None);
            for (at, value, shift) in writes {
                let value = if at & !3 == u64::from(CYCLE_LIMIT) { value % 2_000 } else { value >> shift };
                card.register_write(at, value, Some(&mut host));
                card.look(Some(&mut host));
                card.memory_write(u64::from(value), value, value as u8);
                let _ = (card.register_read(at), card.memory_read(u64::from(value)));
            }
            proptest::prop_assert_eq!(card.register_read(u64::from(ID)), ID_VALUE);
        }
    }
}
