//! One image's CPU, which runs E4's handler and its packets, and a model of the expected bytes.
use asm2464::firmware::{CodeAddress, Image};
use asm2464::scsi::{XDATA_PAGE_LEN, XdataPage};
use asm2464_chip::mcu::{AccessKind, XdataMemory};

use crate::firmware::machine::{Machine, Registers, Returned};

/// Bit 1 SuperSpeed, bit 0 high speed.
const LINK_SPEED: u16 = 0x9100;
const STATUS: usize = 0x6A;
const CONTEXT: usize = 0x2000;
const BUDGET: u64 = 400_000;

/// Registers 0x9000-0xEFFF, whose values change with each read. Bit 0 of the first (0x9000, UAS) and the link's speed
/// stay.
pub struct Counting {
    reads: Box<[u8; 0x1_0000]>,
}

impl Counting {
    pub fn new() -> Self {
        Self { reads: Box::new([0; 0x1_0000]) }
    }

    pub fn value(&mut self, addr: u16, stored: u8) -> u8 {
        if addr == LINK_SPEED {
            return stored;
        }
        let reads = &mut self.reads[usize::from(addr)];
        *reads = reads.wrapping_add(2);
        stored.wrapping_add(*reads)
    }
}

impl Registers for Counting {
    fn read(&mut self, addr: u16, stored: u8) -> u8 {
        if (0x9000..=0xEFFF).contains(&addr) { self.value(addr, stored) } else { stored }
    }
}

/// The fields of an E4.
#[derive(Debug, Clone, Copy)]
pub struct E4 {
    pub len: u16,
    pub mode: u8,
    pub addr: u16,
    pub uas: bool,
}

impl E4 {
    pub fn cdb(self) -> [u8; 16] {
        let [high, low] = self.addr.to_be_bytes();
        let [len_high, len_low] = self.len.to_be_bytes();
        let mut cdb = [0; 16];
        cdb[..6].copy_from_slice(&[0xE4, len_low, self.mode, high, low, len_high]);
        cdb
    }
}

/// A read of more than 255 bytes, packet by packet.
pub struct Sent {
    pub packets: Vec<Vec<u8>>,
    /// The CPU after the handler, and after the interrupt for each sent packet.
    pub after: Vec<After>,
}

#[derive(PartialEq)]
pub struct After {
    pub outcome: Returned,
    pub main: Vec<u8>,
    pub other: Vec<u8>,
    pub idata: [u8; 256],
    pub reads: Vec<(XdataPage, u16, u8)>,
    pub writes: Vec<(u16, u8)>,
    pub sfrs: [u8; 2],
}

impl After {
    pub fn sense(&self) -> [u8; 3] {
        [self.main[0x0203], self.main[0x020D], self.main[0x020E]]
    }
}

/// One image's CPU, reset before every command.
pub struct Unit {
    pub machine: Machine<Counting>,
    pub pristine: XdataMemory,
    pub entry: CodeAddress,
    pub packet: u16,
    /// The length in the CBW. `None` leaves a large number there.
    pub host_length: Option<u32>,
}

impl Unit {
    pub fn new(image: &Image) -> Self {
        let machine = Machine::new(image, Counting::new());
        let mut pristine = XdataMemory::new();
        for (page, seed) in [0x9E37_79B9u32, 0x85EB_CA6B].into_iter().enumerate() {
            for at in 0..XDATA_PAGE_LEN {
                pristine.set(page * XDATA_PAGE_LEN + at, ((at as u32 + 1).wrapping_mul(seed) >> 13) as u8);
            }
        }
        pristine.main_mut()[7..10].copy_from_slice(&[0x01, (CONTEXT >> 8) as u8, CONTEXT as u8]);
        // Means that the host's length and the command's agree.
        pristine.main_mut()[0x0001] = 0;
        let mut unit = Self { machine, pristine, entry: "b1:0xC98D".parse().unwrap(), packet: 0, host_length: None };
        unit.link_of(0x400);
        unit
    }

    /// Sets the link's packet size.
    pub fn link_of(&mut self, packet: u16) {
        self.pristine.main_mut()[usize::from(LINK_SPEED)] = (packet >> 9) as u8;
        self.packet = packet;
    }

    pub fn run(&mut self, command: E4) -> After {
        self.run_cdb(&command.cdb(), command.uas)
    }

    pub fn run_cdb(&mut self, cdb: &[u8; 16], uas: bool) -> After {
        let machine = &mut self.machine;
        machine.memory().clone_from(&self.pristine);
        *machine.registers() = Counting::new();
        let memory = machine.memory().main_mut();
        memory[CONTEXT + 0x0F..CONTEXT + 0x1F].copy_from_slice(cdb);
        memory[0x9000] = u8::from(uas);
        for (at, byte) in machine.idata().iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(0x35) ^ 0xC3;
        }
        if let Some(length) = self.host_length {
            machine.idata()[0x6B..0x6F].copy_from_slice(&length.to_be_bytes());
        }
        machine.take_accesses();
        self.call(self.entry)
    }

    pub fn call(&mut self, entry: CodeAddress) -> After {
        let machine = &mut self.machine;
        let outcome = machine.call(entry, BUDGET);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for access in machine.take_accesses() {
            match access.kind {
                AccessKind::Read => reads.push((access.at.page, access.at.addr, access.value)),
                AccessKind::Write => {
                    assert_eq!(access.at.page, XdataPage::Main, "E4 writes nothing in the other page");
                    writes.push((access.at.addr, access.value));
                }
            }
        }
        After {
            outcome,
            main: machine.memory().main().to_vec(),
            other: machine.memory().page(XdataPage::Other).to_vec(),
            idata: *machine.idata(),
            reads,
            writes,
            sfrs: [machine.sfr(0x93), machine.sfr(0x96)],
        }
    }

    /// Runs an E4 of more than 255 bytes, and the interrupt for each packet up to the last byte.
    pub fn run_long(&mut self, command: E4) -> Sent {
        let mut after = vec![self.run(command)];
        assert_eq!(after[0].outcome.r7, 8, "{command:?}: packet by packet");
        self.machine.idata()[STATUS] = 8;
        // This routine arms the first packet. The firmware calls it at 0x01C5 over Bulk-Only, at 0x4188 over UAS.
        self.call("c:0x5216".parse().unwrap());
        let mut packets = Vec::new();
        while self.machine.idata()[STATUS] == 8 {
            let page = self.machine.memory().main();
            let length = usize::from(u16::from_be_bytes([page[0x9007], page[0x9008]]));
            packets.push(page[0x8000..0x8000 + length].to_vec());
            assert!(packets.len() <= 8, "{command:?}: eight packets of 512 bytes at most");
            after.push(self.call("c:0x4D44".parse().unwrap()));
        }
        Sent { packets, after }
    }

    /// The bytes that a read byte by byte gives, each once and in ascending order. Each packet is read when it is sent,
    /// into the buffer that the previous packet has left.
    pub fn byte_by_byte(&self, command: E4) -> Vec<u8> {
        let mut memory = self.pristine.clone();
        let mut registers = Counting::new();
        memory.main_mut()[CONTEXT + 0x0F..CONTEXT + 0x1F].copy_from_slice(&command.cdb());
        memory.main_mut()[0x9000] = u8::from(command.uas);
        let [high, low] = command.len.to_be_bytes();
        memory.main_mut()[0x9007..0x9009].copy_from_slice(&[high, low]);
        memory.main_mut()[0x0215] = command.mode & 1;
        let mut data = Vec::new();
        while data.len() < usize::from(command.len) {
            // The handler reads these registers before the copy.
            for addr in [0xCC3A, 0xCC38] {
                let value = registers.value(addr, memory.main()[usize::from(addr)]);
                memory.main_mut()[usize::from(addr)] = value & !2;
            }
            if data.is_empty() {
                registers.value(0x9000, 0);
            }
            let packet = (command.len - data.len() as u16).min(self.packet);
            for i in 0..packet {
                let at = usize::from(command.addr) + data.len() + usize::from(i);
                let addr = at as u16;
                // In mode 0x51 a carry increments the page number, of which the emulated unit has one bit.
                let value = if command.mode == 0x51 && at <= 0xFFFF {
                    memory.page(XdataPage::Other)[usize::from(addr)]
                } else if (0x9000..=0xEFFF).contains(&addr) {
                    registers.value(addr, memory.main()[usize::from(addr)])
                } else {
                    memory.main()[usize::from(addr)]
                };
                memory.main_mut()[0x8000 + usize::from(i)] = value;
            }
            data.extend_from_slice(&memory.main()[0x8000..0x8000 + usize::from(packet)]);
            // Arming the packet writes these.
            memory.main_mut()[0x9007..0x9009].copy_from_slice(&packet.to_be_bytes());
            memory.main_mut()[0x9093..0x9095].copy_from_slice(&[8, 2]);
        }
        data
    }
}
