//! Measures E4, READ(16) and WRITE(16) through asmpatch's own transports.
//!
//! It writes to an SSD, which `bench` never does, and therefore refuses every unit whose serial number is not
//! `EXPENDABLE`. `lab/vm/measure` compares it with the kernel's drivers, sg3-utils, and a GPU runtime's client on the
//! same unit.
//!
//! ```text
//! rate PORT bot|uas e4|read|write|runtime-write BYTES DEPTH COMMANDS
//! ```
//!
//! `runtime-write` sends WRITE(16) as a GPU runtime does. It initialises the bridge, frees the SRAM after each command,
//! and restarts the unit at the end, because the kernel's driver would wait 30 s for an initialised unit.

#![allow(clippy::print_stdout, reason = "a measurement that can't be printed is worth a panic")]

#[path = "../../benches/plain/mod.rs"]
mod plain;

use std::error::Error;
use std::time::{Duration, Instant};

use asm2464::TransportKind;
use asm2464::scsi::ResetMode;
use asmpatch::unit::{self, Selector};
use plain::{BLOCK, EXPENDABLE, Kind, SPAN, Stream};

const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest E4 that every firmware answers.
const MOST_E4: usize = 255;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, transport, kind, bytes, depth, commands] = &arguments[..] else {
        return Err("usage: rate PORT bot|uas e4|read|write|runtime-write BYTES DEPTH COMMANDS".into());
    };
    let choice = match transport.as_str() {
        "bot" => TransportKind::BulkOnly,
        "uas" => TransportKind::Uas,
        other => return Err(format!("{other:?} is no transport").into()),
    };
    let kind = match kind.as_str() {
        "e4" => Kind::E4,
        "read" => Kind::Read,
        "write" => Kind::Write,
        "runtime-write" => Kind::RuntimeWrite,
        other => return Err(format!("{other:?} is nothing to measure").into()),
    };
    let (bytes, depth, commands): (usize, usize, u64) = (bytes.parse()?, depth.parse()?, commands.parse()?);
    match kind {
        Kind::E4 if bytes == 0 || bytes > MOST_E4 => return Err("BYTES of E4: 1 to 255".into()),
        Kind::Read | Kind::Write | Kind::RuntimeWrite
            if bytes == 0 || !bytes.is_multiple_of(BLOCK) || !SPAN.is_multiple_of(bytes) =>
        {
            return Err("BYTES: a power of two from 512 to 16 MiB".into());
        }
        _ => {}
    }
    let selector: Selector = port.parse()?;
    let known = asmpatch::devices::Devices::shipped().into();
    let mut unit = unit::choose(&known, Some(&selector), None)?;
    if unit.info.serial.as_deref() != Some(EXPENDABLE) {
        return Err(format!("the unit's serial number is {:?}, not {EXPENDABLE}", unit.info.serial).into());
    }
    let mut bridge = unit.port().open_over(Some(choice))?;
    if kind == Kind::RuntimeWrite {
        bridge.initialise()?;
    }
    let mut stream = Stream::new(kind, bytes, 64);
    let transport = bridge.transport_mut();
    transport.run(&mut stream, depth, TIMEOUT)?;
    stream.restart(commands);
    let began = Instant::now();
    transport.run(&mut stream, depth, TIMEOUT)?;
    let took = began.elapsed().as_secs_f64();
    if let Some(failed) = stream.failed {
        return Err(format!("a command ended in {failed:?}").into());
    }
    if kind == Kind::RuntimeWrite {
        bridge.reset(ResetMode::CpuReset)?;
    }
    println!("{:.1} commands/s, {:.2} MB/s", commands as f64 / took, commands as f64 * bytes as f64 / took / 1e6);
    Ok(())
}
