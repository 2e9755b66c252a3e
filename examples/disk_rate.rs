//! How fast READ(16) and WRITE(16) go through asmpatch's own transports to the disk behind a virtual bridge.
//!
//! `bench` never writes to an SSD; this does, and so it refuses every unit but one whose serial number is
//! `EXPENDABLE`. `tests/vm/measure` compares it with the kernel's drivers and sg3-utils on the same unit.
//!
//! ```text
//! disk_rate PORT bot|uas read|write BYTES DEPTH COMMANDS
//! ```

#![allow(clippy::print_stdout, reason = "a measurement that can't be printed is worth a panic")]

use std::error::Error;
use std::time::{Duration, Instant};

use asmpatch::bridge::{Completion, Job, JobData, Transport, Workload};
use asmpatch::devices::Devices;
use asmpatch::scsi::{Command, ScsiStatus};
use asmpatch::unit::{self, Selector, TransportChoice};

const EXPENDABLE: &str = "EXPENDABLE";
const BLOCK: usize = 512;
/// The disk's first 16 MiB are gone over again and again.
const SPAN: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(20);

struct Disk {
    writes: bool,
    bytes: usize,
    left: u64,
    next: usize,
    failed: Option<Completion>,
}

impl Workload for Disk {
    fn buffer_len(&self) -> usize {
        self.bytes
    }

    fn next(&mut self, _buffer: &mut [u8]) -> Option<Job> {
        self.left = self.left.checked_sub(1)?;
        let (lba, blocks) = ((self.next / BLOCK) as u64, (self.bytes / BLOCK) as u32);
        self.next = (self.next + self.bytes) % SPAN;
        let (command, data) = if self.writes {
            (Command::Write16 { lba, blocks }, JobData::Out(self.bytes))
        } else {
            (Command::Read16 { lba, blocks }, JobData::In(self.bytes))
        };
        Some(Job { cdb: command.cdb(), data, id: lba })
    }

    fn complete(&mut self, _job: &Job, completion: &Completion, _data: &[u8], _elapsed: Duration) -> bool {
        if completion.status != ScsiStatus::Good || completion.transferred != self.bytes {
            self.failed = Some(*completion);
            return false;
        }
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, transport, direction, bytes, depth, commands] = &arguments[..] else {
        return Err("usage: disk_rate PORT bot|uas read|write BYTES DEPTH COMMANDS".into());
    };
    let choice = match transport.as_str() {
        "bot" => TransportChoice::Bot,
        "uas" => TransportChoice::Uas,
        other => return Err(format!("{other:?} is no transport").into()),
    };
    let (bytes, depth, commands): (usize, usize, u64) = (bytes.parse()?, depth.parse()?, commands.parse()?);
    if bytes == 0 || !bytes.is_multiple_of(BLOCK) || !SPAN.is_multiple_of(bytes) {
        return Err("BYTES: a power of two from 512 to 16 MiB".into());
    }
    let selector: Selector = port.parse()?;
    let mut unit = unit::open(&Devices::embedded()?.into(), Some(&selector), choice, None)?;
    if unit.info().serial.as_deref() != Some(EXPENDABLE) {
        return Err(format!("the unit's serial number is {:?}, not {EXPENDABLE}", unit.info().serial).into());
    }
    let mut disk = Disk { writes: direction == "write", bytes, left: 64, next: 0, failed: None };
    let transport = unit.bridge().transport_mut();
    transport.run(&mut disk, depth, TIMEOUT)?;
    disk.left = commands;
    let began = Instant::now();
    transport.run(&mut disk, depth, TIMEOUT)?;
    let took = began.elapsed().as_secs_f64();
    if let Some(failed) = disk.failed {
        return Err(format!("a command ended in {failed:?}").into());
    }
    println!("{:.1} commands/s, {:.2} MB/s", commands as f64 / took, commands as f64 * bytes as f64 / took / 1e6);
    Ok(())
}
