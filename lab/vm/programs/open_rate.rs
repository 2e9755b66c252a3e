//! Measures the open firmware's requests through asmpatch's own queue, over libusb, and compares every byte.
//!
//! `lab/vm/run` and `lab/vm/measure` run it on a virtual unit with a GPU. It assigns that GPU's BAR.
//!
//! ```text
//! open_rate PORT e4|tlp|f0-write|f0-read|f2-write BYTES PIECE DEPTH
//! ```
//!
//! A stream has BYTES, in bulk transfers of PIECE bytes (single requests have a fixed length), DEPTH of them in flight. With
//! PIECE 0 the library's own calls choose the transfers, and `tlp` reads dword by dword; with DEPTH 0 they choose the depth.
//! One stream warms up; the measured ones take at least half a second.

#![allow(clippy::print_stdout, reason = "a measurement that can't be printed is worth a panic")]

use std::error::Error;
use std::time::{Duration, Instant};

use asm2464::scsi::XdataAddress;
use asm2464::sram::{SRAM_LEN, SRAM_SECTOR_LEN};
use asm2464::tlp::Tlp;
use asm2464_host::bridge::open::{OpenCommand, OpenJob, OpenWorkload, SramTransfer};
use asm2464_host::bridge::{ControlError, Endpoint, OpenBridge};
use asm2464_host::pcie::{NoTime, Pcie, Scope};
use asmpatch::unit::{self, Selector};

/// Where the assignment puts the memory of the only GPU.
const BAR: u64 = 0x8_0000_0000;
const WINDOW_LEN: usize = 0x1000;
/// Long, because an emulated guest is slow if its host is busy.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Shortest time to measure.
const MEASURED: Duration = Duration::from_millis(500);

/// Bulk data in pieces, after the request that arms them.
struct Pieces<'a> {
    command: Option<OpenCommand>,
    /// The data to send; empty if the unit sends.
    out: &'a [u8],
    len: usize,
    piece: usize,
    asked: usize,
    filled: usize,
    came: Vec<u8>,
}

impl<'a> Pieces<'a> {
    fn out(command: Option<OpenCommand>, out: &'a [u8], piece: usize) -> Self {
        Self { command, out, len: out.len(), piece, asked: 0, filled: 0, came: Vec::new() }
    }
}

impl OpenWorkload for Pieces<'_> {
    fn bulk_len(&self) -> usize {
        self.piece
    }

    fn next(&mut self) -> Option<OpenJob> {
        if let Some(command) = self.command.take() {
            return Some(OpenJob::Control(command));
        }
        let len = self.piece.min(self.len - self.asked);
        self.asked += len;
        let endpoint = if self.out.is_empty() { Endpoint::DataIn } else { Endpoint::DataOut };
        (len > 0).then_some(OpenJob::Bulk(endpoint, len))
    }

    fn fill(&mut self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.out[self.filled..self.filled + buffer.len()]);
        self.filled += buffer.len();
    }

    fn complete(&mut self, _: OpenJob, data: &[u8], _: Duration) -> Result<(), ControlError> {
        self.came.extend_from_slice(data);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, kind, bytes, piece, depth] = &arguments[..] else {
        return Err("usage: open_rate PORT e4|tlp|f0-write|f0-read|f2-write BYTES PIECE DEPTH".into());
    };
    let (bytes, piece, depth): (usize, usize, usize) = (bytes.parse()?, piece.parse()?, depth.parse()?);
    if bytes == 0
        || !bytes.is_multiple_of(SRAM_SECTOR_LEN)
        || bytes > SRAM_LEN
        || !piece.is_multiple_of(SRAM_SECTOR_LEN)
    {
        return Err("BYTES and PIECE: multiples of 512, BYTES from 512 to 524,288".into());
    }
    let selector: Selector = port.parse()?;
    let known = asmpatch::devices::Devices::shipped().into();
    let bridge = &mut unit::choose(&known, Some(&selector), None)?.port().open_control()?;
    bridge.set_timeout(TIMEOUT);
    if depth > 0 {
        bridge.set_depth(depth);
    }
    if kind != "e4" && kind != "f2-write" {
        let mut patience = NoTime;
        let mut pcie = Pcie::new(bridge, &mut patience);
        let mut survey = pcie.survey(Scope::USUAL)?;
        pcie.assign(&mut survey)?;
    }
    let mut rate = Rate { bridge, bytes, piece };
    // The first stream also pays for memory and wake-ups.
    rate.stream(kind, 0)?;
    let (mut took, mut streams) = (Duration::ZERO, 0);
    while took < MEASURED {
        streams += 1;
        took += rate.stream(kind, streams)?;
    }
    println!("{:.5} MB/s", (bytes * streams) as f64 / took.as_secs_f64() / 1e6);
    Ok(())
}

struct Rate<'a> {
    bridge: &'a mut OpenBridge,
    bytes: usize,
    piece: usize,
}

impl Rate<'_> {
    /// Moves and compares all bytes once, different ones each time. Returns the time of the transfers alone.
    fn stream(&mut self, kind: &str, nth: usize) -> Result<Duration, Box<dyn Error>> {
        let Self { bridge, bytes, piece } = self;
        let (bytes, piece) = (*bytes, *piece);
        let data: Vec<u8> = (0..bytes).map(|at| ((at * 13 + at / 512 * 7 + nth) % 241) as u8).collect();
        let dwords = (bytes / 4) as u32;
        let began;
        let (took, expected, found) = match kind {
            "e4" => {
                bridge.sram_write(0, &data)?;
                let mut window = vec![0; bytes.min(WINDOW_LEN)];
                began = Instant::now();
                for _ in 0..bytes.div_ceil(WINDOW_LEN) {
                    bridge.xdata_read(XdataAddress::SRAM_WINDOW, &mut window)?;
                }
                (began.elapsed(), data[..window.len()].to_vec(), window)
            }
            "tlp" => {
                bridge.stream_write(BAR, &data)?;
                let reads: Vec<Tlp> = (0..u64::from(dwords)).map(|at| Tlp::memory_read(BAR + 4 * at)).collect();
                began = Instant::now();
                let found: Vec<u32> = match piece {
                    0 => reads.iter().map(|read| bridge.dword(read)).collect::<Result<_, _>>()?,
                    _ => {
                        let completions = bridge.tlps(&reads)?.into_iter().flatten();
                        completions.map(|completion| completion.value().unwrap_or_default()).collect()
                    }
                };
                let took = began.elapsed();
                (took, data.clone(), found.iter().flat_map(|value| value.to_le_bytes()).collect())
            }
            "f0-write" => {
                let command = Some(OpenCommand::StreamWrite { address: BAR, dwords });
                began = Instant::now();
                match piece {
                    0 => bridge.stream_write(BAR, &data)?,
                    piece => bridge.run(&mut Pieces::out(command, &data, piece))?,
                }
                // The answer to this request comes after the last bytes were written.
                bridge.link()?;
                let took = began.elapsed();
                let mut found = vec![0; bytes];
                bridge.stream_read(BAR, &mut found)?;
                (took, data.clone(), found)
            }
            "f0-read" => {
                bridge.stream_write(BAR, &data)?;
                let command = Some(OpenCommand::StreamRead { address: BAR, dwords });
                let mut pieces = Pieces { len: bytes, ..Pieces::out(command, &[], piece) };
                if piece == 0 {
                    pieces.came.resize(bytes, 0);
                }
                began = Instant::now();
                match piece {
                    0 => bridge.stream_read(BAR, &mut pieces.came)?,
                    _ => bridge.run(&mut pieces)?,
                }
                (began.elapsed(), data.clone(), pieces.came)
            }
            "f2-write" => {
                let transfer =
                    SramTransfer { to_host: false, first_slot: 0, sectors: (bytes / SRAM_SECTOR_LEN) as u16 };
                began = Instant::now();
                if piece == 0 {
                    bridge.sram_write(0, &data)?;
                } else {
                    bridge.arm_sram(transfer)?;
                    bridge.run(&mut Pieces::out(None, &data, piece))?;
                }
                let took = began.elapsed();
                (took, data[..bytes.min(WINDOW_LEN)].to_vec(), window(bridge, bytes.min(WINDOW_LEN))?)
            }
            other => return Err(format!("{other:?} is nothing to measure").into()),
        };
        if found != expected {
            return Err(format!("{kind}: the bytes that came back differ from those that were written").into());
        }
        Ok(took)
    }
}

fn window(bridge: &mut OpenBridge, len: usize) -> Result<Vec<u8>, ControlError> {
    let mut found = vec![0; len];
    bridge.xdata_read(XdataAddress::SRAM_WINDOW, &mut found)?;
    Ok(found)
}
