//! The NVMe drive: queues, commands, errors.

use super::*;

const LEN: usize = 0x20_0000;
const ADMIN_SUBMISSIONS: u64 = 0x1000;
const ADMIN_COMPLETIONS: u64 = 0x2000;
const SUBMISSIONS: u64 = 0x3000;
const COMPLETIONS: u64 = 0x4000;
const DATA: u64 = 0x10_0000;

/// Two MiB of host memory, from address 0 on.
struct Memory(Vec<u8>);

impl Memory {
    fn range(&self, address: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let at = usize::try_from(address).ok()?;
        at.checked_add(len).filter(|end| *end <= self.0.len()).map(|end| at..end)
    }
}

impl HostMemory for Memory {
    fn read(&mut self, address: u64, data: &mut [u8]) -> bool {
        let Some(range) = self.range(address, data.len()) else { return false };
        data.copy_from_slice(&self.0[range]);
        true
    }

    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        let Some(range) = self.range(address, data.len()) else { return false };
        self.0[range].copy_from_slice(data);
        true
    }
}

/// A host with a drive.
struct Host {
    drive: NvmeController,
    memory: Memory,
    /// Commands sent so far, by queue.
    sent: [u64; 2],
}

impl Host {
    fn new(spec: DriveSpec) -> Self {
        Self { drive: NvmeController::new(spec), memory: Memory(vec![0; LEN]), sent: [0, 0] }
    }

    fn register(&mut self, offset: u64, value: u32) {
        self.drive.register_write(offset, value, &mut self.memory);
    }

    /// Creates queues of 16 entries and sets EN.
    fn enable(&mut self) {
        self.register(AQA, 0x000F_000F);
        self.register(ASQ, ADMIN_SUBMISSIONS as u32);
        self.register(ACQ, ADMIN_COMPLETIONS as u32);
        self.register(CC, 0x0046_0001);
    }

    /// Builds a host whose drive is ready, with I/O queues of 16 entries.
    fn ready(spec: DriveSpec) -> Self {
        let mut host = Self::new(spec);
        host.enable();
        assert_eq!(host.drive.register_read(CSTS), CSTS_READY);
        assert_eq!(host.admin(0x05, 0, COMPLETIONS, [0x000F_0001, 1, 0]), (0, 0));
        assert_eq!(host.admin(0x01, 0, SUBMISSIONS, [0x000F_0001, 0x0001_0001, 0]), (0, 0));
        host
    }

    /// Queues a command and returns the status and the result of its completion entry.
    fn send(&mut self, queue: usize, opcode: u8, namespace: u32, prps: [u64; 2], dwords: [u32; 3]) -> (u16, u32) {
        let bases = [(ADMIN_SUBMISSIONS, ADMIN_COMPLETIONS), (SUBMISSIONS, COMPLETIONS)][queue];
        let number = self.sent[queue];
        self.sent[queue] += 1;
        let id = 0x4000 + number as u16;
        let mut command = [0; 64];
        command[0] = opcode;
        command[2..4].copy_from_slice(&id.to_le_bytes());
        command[4..8].copy_from_slice(&namespace.to_le_bytes());
        command[24..32].copy_from_slice(&prps[0].to_le_bytes());
        command[32..40].copy_from_slice(&prps[1].to_le_bytes());
        for (place, dword) in command[40..52].chunks_exact_mut(4).zip(dwords) {
            place.copy_from_slice(&dword.to_le_bytes());
        }
        assert!(self.memory.write(bases.0 + 64 * (number % 16), &command));
        let doorbell = DOORBELLS + 8 * queue as u64;
        self.register(doorbell, ((number + 1) % 16) as u32);
        let mut entry = [0; 16];
        assert!(self.memory.read(bases.1 + 16 * (number % 16), &mut entry));
        assert_eq!(entry[14] & 1, u8::from((number / 16).is_multiple_of(2)), "the phase bit flips with each round");
        assert_eq!(entry[8..14], [((number + 1) % 16) as u8, 0, queue as u8, 0, id as u8, (id >> 8) as u8]);
        self.register(doorbell + 4, ((number + 1) % 16) as u32);
        let status = u16::from_le_bytes([entry[14], entry[15]]) >> 1;
        (status, u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]))
    }

    fn admin(&mut self, opcode: u8, namespace: u32, prp: u64, dwords: [u32; 3]) -> (u16, u32) {
        self.send(0, opcode, namespace, [prp, 0], dwords)
    }

    /// Reads or writes `blocks` blocks at DATA.
    fn io(&mut self, opcode: u8, first: u64, blocks: u32, prps: [u64; 2]) -> u16 {
        self.send(1, opcode, 1, prps, [first as u32, (first >> 32) as u32, blocks.wrapping_sub(1) & 0xFFFF]).0
    }
}

const WRITE: u8 = 1;
const READ: u8 = 2;

fn good(blocks: u64) -> DriveSpec {
    DriveSpec { blocks, ..DriveSpec::default() }
}

#[test]
fn the_drive_is_ready_when_enabled_and_forgets_its_queues_when_disabled() {
    let mut host = Host::new(good(8));
    assert_eq!((host.drive.register_read(VS), host.drive.register_read(CSTS)), (0x0001_0400, 0));
    assert_eq!(host.drive.register_read(CAP) & 0xFFFF, 255);
    host.register(DOORBELLS, 1);
    assert_eq!(host.drive.register_read(CSTS), 0, "a disabled drive ignores its doorbells");
    host.enable();
    assert_eq!(host.drive.register_read(CSTS), CSTS_READY);
    host.register(CC, 0x0046_8001);
    assert_eq!(host.drive.register_read(CSTS), CSTS_READY | CSTS_SHUT_DOWN);
    host.register(CC, 0);
    assert_eq!((host.drive.register_read(CSTS), host.drive.register_read(ASQ)), (0, ADMIN_SUBMISSIONS as u32));
    host.enable();
    host.drive.reset();
    assert_eq!((host.drive.register_read(CC), host.drive.register_read(ASQ)), (0, 0));
}

#[test]
fn identify_reports_the_number_of_blocks_and_how_much_a_command_moves() {
    let mut host = Host::ready(good(0x1_2345_6789));
    assert_eq!(host.admin(0x06, 0, DATA, [1, 0, 0]), (0, 0));
    let at = DATA as usize;
    assert_eq!((host.memory.0[at + 77], &host.memory.0[at + 24..at + 32]), (MDTS, &b"asmpatch"[..]));
    assert_eq!(host.admin(0x06, 1, DATA, [0, 0, 0]), (0, 0));
    assert_eq!(host.memory.0[at..at + 8], 0x1_2345_6789_u64.to_le_bytes());
    assert_eq!(host.memory.0[at + 130], 9, "LBADS");
    assert_eq!(host.admin(0x06, 2, DATA, [0, 0, 0]).0, NvmeStatus::INVALID_NAMESPACE.0);
    assert_eq!(host.admin(0x06, 0, DATA, [9, 0, 0]).0, NvmeStatus::INVALID_FIELD.0);
    assert_eq!(host.admin(0x06, 0, LEN as u64, [1, 0, 0]).0, NvmeStatus::TRANSFER_ERROR.0);
}

#[test]
fn blocks_that_were_written_are_read_by_one_page_two_pages_and_a_list() {
    let mut host = Host::ready(good(1 << 20));
    let list = 0x5000_u64;
    for blocks in [1_u32, 8, 9, 16, 17, 128, 256] {
        let len = blocks as usize * 512;
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + blocks as usize) as u8).collect();
        // The list's pages are in reverse order, to distinguish them.
        let pages: Vec<u64> = (1..=32).map(|page| DATA + 0x4_0000 - 0x1000 * page).collect();
        for (index, page) in pages.iter().enumerate() {
            assert!(host.memory.write(list + 8 * index as u64, &page.to_le_bytes()));
        }
        let second = match len {
            0..=4096 => 0,
            4097..=8192 => pages[0],
            _ => list,
        };
        let place = |at: usize| if at < 4096 { DATA + at as u64 } else { pages[at / 4096 - 1] + at as u64 % 4096 };
        for (at, chunk) in data.chunks(512).enumerate() {
            assert!(host.memory.write(place(512 * at), chunk));
        }
        assert_eq!(host.io(WRITE, 1_000, blocks, [DATA, second]), 0, "{blocks}");
        host.memory.0[DATA as usize..][..0x4_0000].fill(0);
        assert_eq!(host.io(READ, 1_000, blocks, [DATA, second]), 0, "{blocks}");
        for (at, chunk) in data.chunks(512).enumerate() {
            let mut came = [0; 512];
            assert!(host.memory.read(place(512 * at), &mut came));
            assert!(came == *chunk, "{blocks} {at}");
        }
    }
    assert_eq!(host.send(1, 0, 1, [0, 0], [0; 3]).0, 0, "flush");
}

#[test]
fn a_list_goes_on_in_the_page_that_its_last_entry_names() {
    let mut host = Host::ready(good(1 << 20));
    let (first, next) = (0x6FF0_u64, 0x7000_u64);
    assert!(host.memory.write(first, &(DATA + 0x1000).to_le_bytes()));
    assert!(host.memory.write(first + 8, &next.to_le_bytes()));
    assert!(host.memory.write(next, &(DATA + 0x2000).to_le_bytes()));
    assert!(host.memory.write(next + 8, &(DATA + 0x3000).to_le_bytes()));
    host.memory.0[DATA as usize..][..0x4000].fill(0x5A);
    assert_eq!(host.io(WRITE, 0, 32, [DATA, first]), 0);
    host.memory.0[DATA as usize..][..0x4000].fill(0);
    assert_eq!(host.io(READ, 0, 32, [DATA, first]), 0);
    assert!(host.memory.0[DATA as usize..][..0x4000].iter().all(|byte| *byte == 0x5A));
    assert!(host.memory.write(first + 8, &(first + 8).to_le_bytes()));
    assert_eq!(host.io(READ, 0, 32, [DATA, first]), NvmeStatus::INVALID_OFFSET.0, "a list that names itself");
}

#[test]
fn an_impossible_command_ends_in_the_matching_status() {
    let mut host = Host::ready(good(1_000));
    let cases = [
        (READ, 999, 2, [DATA, 0], NvmeStatus::OUT_OF_RANGE),
        (READ, u64::MAX, 1, [DATA, 0], NvmeStatus::OUT_OF_RANGE),
        (WRITE, 0, 257, [DATA, 0], NvmeStatus::INVALID_FIELD),
        (READ, 0, 1, [DATA + 2, 0], NvmeStatus::INVALID_OFFSET),
        (READ, 0, 16, [DATA, DATA + 4], NvmeStatus::INVALID_OFFSET),
        (READ, 0, 24, [DATA, 0x5004], NvmeStatus::INVALID_OFFSET),
        (READ, 0, 24, [DATA, LEN as u64], NvmeStatus::TRANSFER_ERROR),
        (WRITE, 0, 1, [!3, 0], NvmeStatus::TRANSFER_ERROR),
        (0x42, 0, 1, [DATA, 0], NvmeStatus::INVALID_OPCODE),
    ];
    for (opcode, first, blocks, prps, status) in cases {
        assert_eq!(host.io(opcode, first, blocks, prps), status.0, "{opcode} {first} {blocks}");
    }
    assert_eq!(host.send(1, READ, 2, [DATA, 0], [0; 3]).0, NvmeStatus::INVALID_NAMESPACE.0);
    assert_eq!(host.admin(0x7F, 0, 0, [0; 3]).0, NvmeStatus::INVALID_OPCODE.0);
    assert_eq!(host.admin(0x05, 0, COMPLETIONS, [0x000F_0001, 1, 0]).0, NvmeStatus::INVALID_QUEUE.0, "it exists");
    assert_eq!(host.admin(0x05, 0, COMPLETIONS, [0x0100_0002, 1, 0]).0, NvmeStatus::INVALID_QUEUE_SIZE.0);
    assert_eq!(
        host.admin(0x01, 0, SUBMISSIONS, [0x000F_0002, 0x0003_0001, 0]).0,
        NvmeStatus::INVALID_COMPLETION_QUEUE.0
    );
    assert_eq!(host.admin(0x04, 0, 0, [1, 0, 0]).0, NvmeStatus::INVALID_QUEUE_DELETION.0);
    assert_eq!((host.admin(0x00, 0, 0, [1, 0, 0]).0, host.admin(0x04, 0, 0, [1, 0, 0]).0), (0, 0));
    assert_eq!(host.admin(0x02, 0, DATA, [0x007F_0002, 0, 0]).0, 0, "health");
    assert_eq!(host.admin(0x02, 0, DATA, [0x007F_0009, 0, 0]).0, NvmeStatus::INVALID_LOG_PAGE.0);
    assert_eq!(host.admin(0x09, 0, 0, [7, 0x0003_0003, 0]), (0, 0x0003_0003), "four pairs of queues");
    assert_eq!(host.admin(0x09, 0, 0, [6, 1, 0]).0, 0);
    assert_eq!(host.admin(0x0A, 0, 0, [6, 0, 0]), (0, 1));
}

#[test]
fn a_faulty_drive_fails_as_its_description_says() {
    let mut host = Host::new(DriveSpec { never_ready: true, ..good(8) });
    host.enable();
    assert_eq!(host.drive.register_read(CSTS), 0);
    let mut host = Host::ready(DriveSpec { fails_after: Some(1), ..good(8) });
    assert_eq!(host.io(READ, 0, 1, [DATA, 0]), 0);
    assert_eq!(host.io(READ, 0, 1, [DATA, 0]), NvmeStatus::READ_ERROR.0);
    assert_eq!(host.io(WRITE, 0, 1, [DATA, 0]), NvmeStatus::WRITE_FAULT.0);
    let mut host = Host::ready(good(0));
    assert_eq!(host.io(READ, 0, 1, [DATA, 0]), NvmeStatus::OUT_OF_RANGE.0);
    let mut host = Host::ready(good(1 << 63));
    assert_eq!(host.io(WRITE, (1 << 63) - 1, 1, [DATA, 0]), 0);
    assert_eq!(host.io(READ, 1 << 63, 1, [DATA, 0]), NvmeStatus::OUT_OF_RANGE.0);
}

#[test]
fn queues_outside_memory_are_fatal_until_the_drive_is_disabled() {
    let mut host = Host::ready(good(8));
    host.register(CC, 0);
    host.register(ASQ, u32::MAX);
    host.register(CC, 0x0046_0001);
    host.register(DOORBELLS, 1);
    assert_eq!(host.drive.register_read(CSTS), CSTS_FATAL);
    host.register(DOORBELLS, 2);
    host.register(CC, 0);
    assert_eq!(host.drive.register_read(CSTS), 0);
    host.register(CC, 0x0046_0081);
    assert_eq!(host.drive.register_read(CSTS), CSTS_FATAL, "pages of another size");
}

proptest::proptest! {
    #[test]
    fn whatever_a_host_writes_the_drive_goes_on(
        writes in proptest::collection::vec((0_u64..0x1040, proptest::num::u32::ANY, 0_u32..32), 0..60),
        seed: u64
    ) {
        let mut host = Host::ready(good(1 << 40));
        let mut state = seed | 1;
        for byte in &mut host.memory.0[..0x8000] {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8 & 0x1F;
        }
        for (at, value, shift) in writes {
            host.register(at & !3, value >> shift);
            let _ = host.drive.register_read(at);
        }
    }
}
