//! A unit, started from reset, that gets commands packet by packet over either transport.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part of it; a panic is how a test fails")]

use std::sync::LazyLock;

use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464::scsi::bot::Direction;
use asm2464::scsi::runtime::INITIALISATION;
use asm2464::sram::SRAM_LEN;
use asm2464_chip::chip::{DATA_IN, Data, Driver, Speed, Unanswered, Work};

use crate::chip_images::{powered_on, reset_recovery};

pub const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 36, 0];
pub const SPEEDS: [Speed; 2] = [Speed::Super, Speed::High];

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wire {
    BulkOnly,
    Uas,
}
pub const WIRES: [Wire; 2] = [Wire::BulkOnly, Wire::Uas];

pub fn everywhere() -> impl Iterator<Item = (Wire, Speed)> {
    WIRES.into_iter().flat_map(|wire| SPEEDS.map(|speed| (wire, speed)))
}

pub struct Unit {
    pub driver: Driver,
    pub wire: Wire,
    pub tag: u16,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub data: Vec<u8>,
    pub good: bool,
    pub residue: u32,
}

pub fn pattern(at: usize) -> u8 {
    ((at as u32 + 1).wrapping_mul(0x9E37_79B9) >> 13) as u8
}

/// The content of a new unit's SRAM. Made once: unoptimised, it takes as long as a boot.
static SRAM: LazyLock<Vec<u8>> = LazyLock::new(|| (0..SRAM_LEN).map(pattern).collect());

/// Content of a new unit's SRAM, from this offset on.
pub fn sram(from: usize, len: usize) -> Vec<u8> {
    SRAM[from..from + len].to_vec()
}

/// Compares counts of instructions. They vary by a few dozen with the place in its main loop where the firmware is when
/// a packet arrives.
pub fn is_about(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) <= 100.max(expected / 200)
}

/// A host's action on a unit, with its name.
pub type Way = (&'static str, fn(&mut Unit));

/// The ways to recover a unit after the host has given up a command.
pub const RECOVERIES: [Way; 3] = [
    ("a Bulk-Only reset", |unit| {
        reset_recovery(&mut unit.driver);
    }),
    ("SET_INTERFACE", |unit| unit.driver.set_alternate(u8::from(unit.wire == Wire::Uas)).unwrap()),
    ("a reset of the port", |unit| {
        let speed = unit.driver.chip.speed();
        unit.driver.chip.bus_reset(speed);
        unit.driver.enumerate().unwrap();
        unit.driver.set_alternate(u8::from(unit.wire == Wire::Uas)).unwrap();
    }),
];

impl Unit {
    pub fn new(image: &Image, wire: Wire, speed: Speed) -> Self {
        Self::started(powered_on(image, speed), wire)
    }

    /// Takes a unit that has been powered on.
    pub fn started(mut driver: Driver, wire: Wire) -> Self {
        driver.enumerate().unwrap();
        if wire == Wire::Uas {
            driver.set_alternate(1).unwrap();
        }
        let mut unit = Self { driver, wire, tag: 0 };
        unit.driver.chip.sram_mut().copy_from_slice(&SRAM);
        assert_eq!(unit.command(&INQUIRY, 36).data.len(), 36);
        unit
    }

    pub fn attempt(&mut self, cdb: &[u8], host_len: usize) -> Result<Reply, Unanswered> {
        self.run(cdb, if host_len == 0 { Data::None } else { Data::In(host_len) })
    }

    /// Runs a command with data from the host.
    pub fn write(&mut self, cdb: &[u8], data: &[u8]) -> Result<Reply, Unanswered> {
        self.run(cdb, Data::Out(data))
    }

    fn run(&mut self, cdb: &[u8], data: Data<'_>) -> Result<Reply, Unanswered> {
        Ok(match self.wire {
            Wire::BulkOnly => {
                let reply = self.driver.bulk_only(cdb, data)?;
                Reply { data: reply.data, good: reply.status == 0, residue: reply.residue }
            }
            Wire::Uas => {
                self.tag = self.tag % 100 + 1;
                let reply = self.driver.uas(self.tag, cdb, if let Data::Out(data) = data { data } else { &[] })?;
                Reply { data: reply.data, good: reply.status[6] == 0, residue: 0 }
            }
        })
    }

    pub fn command(&mut self, cdb: &[u8], host_len: usize) -> Reply {
        self.attempt(cdb, host_len).unwrap()
    }

    /// Sends a command for which the host expects `host_len` bytes. Checks that the answer is the SRAM's first `came`
    /// bytes, good status and this residue.
    pub fn leaves(&mut self, cdb: &[u8], host_len: usize, came: usize, residue: u32) {
        let reply = self.command(cdb, host_len);
        let expected = Reply { data: sram(0, came), good: true, residue };
        let speed = self.driver.chip.speed();
        assert!(reply == expected, "{speed:?}: {host_len} for {cdb:02x?}: {} {}", reply.data.len(), reply.residue);
    }

    /// Sends a command for which the host expects `host_len` bytes, and takes only `packets` packets of the answer.
    pub fn begin(&mut self, cdb: &[u8], host_len: u32, packets: usize) -> Vec<u8> {
        self.send(cdb, host_len);
        let what = (self.wire, self.driver.chip.speed(), packets);
        let mut receive = |packet| self.packet().unwrap_or_else(|error| panic!("{what:?} packet {packet}: {error:?}"));
        (0..packets).flat_map(&mut receive).collect()
    }

    /// Sends a command for which the host expects `host_len` bytes.
    pub fn send(&mut self, cdb: &[u8], host_len: u32) {
        match self.wire {
            Wire::BulkOnly => {
                self.driver.begin(cdb, host_len, Direction::In).unwrap();
            }
            Wire::Uas => {
                self.tag = self.tag % 100 + 1;
                self.driver.send_command(self.tag, cdb).unwrap();
            }
        }
    }

    /// Takes the next packet of the last command's data.
    pub fn packet(&mut self) -> Result<Vec<u8>, Unanswered> {
        let has_streams = self.wire == Wire::Uas && self.driver.chip.speed() == Speed::Super;
        self.driver.receive(DATA_IN, if has_streams { self.tag } else { 0 })
    }

    /// Initialises the unit as a GPU runtime does.
    pub fn initialise(&mut self) {
        INITIALISATION.iter().for_each(|(at, value)| self.poke(*at, *value));
    }

    pub fn poke(&mut self, at: u16, value: u8) {
        let [high, low] = at.to_be_bytes();
        assert!(self.command(&[0xE5, value, 0x50, high, low, 0], 0).good, "E5 {at:#06x}");
    }

    /// Runs a command that waits for no timer. Returns its answer, and the work from the command to its status.
    pub fn work(&mut self, cdb: &[u8], len: usize) -> (Reply, Work) {
        self.driver.settle();
        let chip = &mut self.driver.chip;
        let (before, began, executed) = (chip.work(), chip.now(), chip.instructions());
        let reply = self.command(cdb, len);
        let chip = &mut self.driver.chip;
        assert_eq!(chip.now() - began, chip.instructions() - executed, "a timer was waited for");
        (reply, chip.work() - before)
    }

    /// Begins a command over UAS, sends the others after this many packets, with tags from 200 on, and takes the rest.
    /// Returns the first command's data.
    pub fn between_packets(&mut self, cdb: &[u8], len: u32, packets: usize, others: &[&[u8]]) -> Vec<u8> {
        let mut data = self.begin(cdb, len, packets);
        let first = self.tag;
        for (tag, cdb) in (200..).zip(others) {
            self.driver.send_command(tag, cdb).unwrap();
        }
        let reply = self.driver.finish_uas(first, &[]).unwrap();
        assert_eq!(reply.status[6], 0, "{packets} packets");
        data.extend(reply.data);
        data
    }

    /// Runs a command, and checks that it changes no other places of XDATA and IDATA than these.
    pub fn changes_only(&mut self, xdata: fn(usize) -> bool, idata: fn(usize) -> bool, cdb: &[u8], len: usize) {
        self.driver.settle();
        let before = (self.driver.chip.memory().main().to_vec(), self.driver.chip.cpu().internal_ram);
        // Use the same tag, and with it the same stream.
        self.tag = self.tag.saturating_sub(1);
        self.command(cdb, len);
        self.driver.settle();
        let speed = self.driver.chip.speed();
        let (main, cpu) = (self.driver.chip.memory().main(), self.driver.chip.cpu());
        let strange: Vec<_> = (0..main.len()).filter(|at| main[*at] != before.0[*at] && !xdata(*at)).collect();
        assert!(strange.is_empty(), "{:?} {:?}: XDATA {strange:#06x?}", self.wire, speed);
        let strange: Vec<_> = (0..256).filter(|at| cpu.internal_ram[*at] != before.1[*at] && !idata(*at)).collect();
        assert!(strange.is_empty(), "{:?} {:?}: IDATA {strange:#04x?}", self.wire, speed);
    }

    pub fn peek(&self, at: u16) -> u8 {
        self.driver.chip.peek(XdataAddress::main(at))
    }
}
