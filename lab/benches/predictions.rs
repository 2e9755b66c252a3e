//! Predicts what silicon should reach, from the clock cycles that firmware takes on the chip model: the tables of
//! docs/lab/performance.md, "Silicon, predicted". Fails if the document has another figure.
//!
//! `ASMPATCH_VENDOR_IMAGE=FILE ASMPATCH_OPEN_IMAGE=FILE cargo bench --bench predictions`. Rows of a missing image are
//! left out. This is a benchmark of the program and not of `asm2464-chip`, because that crate depends neither on the
//! host's code, which drives the virtual units here, nor on the patches.

mod plain;
#[path = "../read16.rs"]
mod read16;

use std::error::Error;
use std::time::Duration;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::scsi::XdataAddress;
use asm2464::sram::SRAM_LEN;
use asm2464::tlp::Tlp;
use asm2464::{AnyFailure, Bdf};
use asm2464_chip::chip::{CLOCK_MHZ, Work};
use asm2464_dock::gpu_card::TinyGpu;
use asm2464_dock::virtual_unit::{Scenario, SharedUnit, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{Bridge, Port as _, TransportKind};
use asm2464_host::pcie::{NoTime, Pcie, Scope, TlpEngine as _, VendorTlp};
use asmpatch::patch::{PatchSet, Selection};
use plain::{Kind, Stream};

type BenchResult<T> = Result<T, Box<dyn Error>>;

/// Time from a request on PCIe to its completion, which the firmware waits for, in microseconds. The only fitted
/// constant: it explains the difference between the cycles of the open firmware's stream of reads and its 1.8 MB/s (its
/// README).
const ROUND_TRIP_US: f64 = 1.02;
/// Maximum throughput of a link at 10 Gbit/s in MB/s: 128b/132b coding, 20 to 24 bytes of headers for 1,024 of data.
const WIRE_MB_PER_S: f64 = 1_180.0;
/// The row that the others are compared with.
const E4: &str = "vendor's, E4 of 255 bytes";
const DOCUMENT: &str = include_str!("../../docs/lab/performance.md");
const TIMEOUT: Duration = Duration::from_secs(20);
/// The bytes of a WRITE(16) and of a stream, as runtimes send them.
const LEN: usize = 0x1_0000;
/// How often [`Table::add_each`] sends its command.
const TIMES: u32 = 10;
/// The address that a BAR of the GPU gets.
const BAR: u64 = 0x1000_0000;

/// Predicted costs of a command on silicon.
struct Prediction {
    /// CPU time in microseconds.
    cpu_us: f64,
    /// Time that the CPU waits for PCIe, in microseconds.
    pcie_us: f64,
    /// Time of the data on the link, in microseconds. The CPU works meanwhile.
    wire_us: f64,
    /// Whether the DMA moves data. Its speed is unknown; it is assumed to keep up.
    by_dma: bool,
    /// Throughput in MB/s. An upper bound if the DMA moves data.
    mb_per_s: f64,
}

impl Prediction {
    /// Predicts from the work of `commands` commands of `bytes` bytes each.
    fn of(work: Work, bytes: usize, commands: u32) -> Self {
        let each = |count: u64| count as f64 / f64::from(commands);
        let (cpu_us, pcie_us) = (each(work.cycles) / f64::from(CLOCK_MHZ), each(work.round_trips) * ROUND_TRIP_US);
        let wire_us = bytes as f64 / WIRE_MB_PER_S;
        let mb_per_s = bytes as f64 / (cpu_us + pcie_us).max(wire_us);
        Self { cpu_us, pcie_us, wire_us, by_dma: work.dma_bytes > 0, mb_per_s }
    }

    /// What the command waits for most.
    fn limit(&self) -> &'static str {
        match self {
            Self { cpu_us, pcie_us, wire_us, .. } if *wire_us > cpu_us + pcie_us => "wire",
            Self { cpu_us, pcie_us, .. } if pcie_us > cpu_us => "PCIe",
            _ => "CPU",
        }
    }
}

/// The predictions, by the names of their rows in the document.
#[derive(Default)]
struct Table(Vec<(&'static str, Prediction)>);

impl Table {
    /// Adds the row of the `commands` commands that `run` sends, which move `bytes` bytes each. Counts the second run:
    /// the first one brings the firmware into its usual state.
    fn add(
        &mut self,
        name: &'static str,
        unit: &SharedUnit,
        bytes: usize,
        commands: u32,
        mut run: impl FnMut() -> BenchResult<()>,
    ) -> BenchResult<()> {
        let work = || unit.lock().work().ok_or("no image runs on the unit");
        run()?;
        let before = work()?;
        run()?;
        self.0.push((name, Prediction::of(work()? - before, bytes, commands)));
        Ok(())
    }

    /// Adds the row of a command that is sent one at a time.
    fn add_each(
        &mut self,
        name: &'static str,
        unit: &SharedUnit,
        bytes: usize,
        mut command: impl FnMut() -> BenchResult<()>,
    ) -> BenchResult<()> {
        self.add(name, unit, bytes, TIMES, || (0..TIMES).try_for_each(|_| command()))
    }

    fn find(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|row| row.0 == name).map(|row| row.1.mb_per_s)
    }

    #[allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
    fn print(&self) {
        println!("| figure | MB/s | against E4 | CPU µs | PCIe µs | wire µs | limited by |");
        println!("| --- | --- | --- | --- | --- | --- | --- |");
        for (name, prediction) in &self.0 {
            let Prediction { cpu_us, pcie_us, wire_us, by_dma, mb_per_s } = prediction;
            let most = if *by_dma { "at most " } else { "" };
            let gain = self.find(E4).map(|e4| format!("{:.3}", mb_per_s / e4)).unwrap_or_default();
            let limit = prediction.limit();
            println!("| {name} | {most}{mb_per_s:.4} | {gain} | {cpu_us:.2} | {pcie_us:.2} | {wire_us:.2} | {limit} |");
        }
    }

    /// Compares each row with the document's. A difference of 1 % or more is an error.
    fn check(&self) -> BenchResult<()> {
        for (name, Prediction { mb_per_s, .. }) in &self.0 {
            let documented = documented(name).ok_or_else(|| format!("docs/lab/performance.md has no row {name:?}"))?;
            if (mb_per_s / documented - 1.0).abs() >= 0.01 {
                return Err(format!("{name}: {mb_per_s} MB/s, but docs/lab/performance.md says {documented}").into());
            }
        }
        Ok(())
    }
}

/// The first figure in MB/s of a row of the document.
fn documented(name: &str) -> Option<f64> {
    let start = format!("| {name} | ");
    let cell = DOCUMENT.lines().find_map(|line| line.strip_prefix(&start))?.split(" | ").next()?;
    cell.split(" MB/s").next()?.rsplit(' ').next()?.replace(',', "").parse().ok()
}

fn image(variable: &str) -> BenchResult<Option<Image>> {
    let Some(path) = std::env::var_os(variable) else { return Ok(None) };
    Ok(Some(Image::parse(&std::fs::read(path)?)?))
}

fn port(image: &Image, scenario: &str) -> BenchResult<VirtualPort> {
    let unit = VirtualUnit::in_memory(Scenario::parse(scenario)?, b"predicted", Some(&image.to_file()))?;
    Ok(VirtualPort::new("predicted", unit))
}

/// An image with the default patches and this one.
fn patched(image: &Image, patch: Option<&str>) -> BenchResult<Image> {
    let selection = Selection { no_defaults: false, add: patch.into_iter().map(str::to_owned).collect() };
    let digest = Sha256Digest::of(&image.to_file());
    let library = asmpatch::embedded::patches()?;
    Ok(PatchSet::resolve(&library, &selection, image, digest)?.apply()?.image)
}

/// A unit over UAS with its GPU's address assigned, initialised as by a GPU runtime.
struct Vendor {
    unit: SharedUnit,
    bridge: Bridge,
    card: Option<TinyGpu>,
    /// The address of the GPU's frame buffer.
    memory: Option<u64>,
}

impl Vendor {
    fn new(image: &Image, scenario: &str) -> BenchResult<Self> {
        let mut port = port(image, scenario)?;
        let mut bridge = port.open_over(Some(TransportKind::UasStreams))?;
        bridge.inquiry()?;
        let (mut engine, mut patience) = (VendorTlp::new(&mut bridge), NoTime);
        let mut pcie = Pcie::new(&mut engine, &mut patience);
        let mut survey = pcie.survey(Scope::USUAL)?;
        pcie.assign(&mut survey)?;
        let card = TinyGpu::open(&mut pcie, &survey)?;
        let bars = survey.functions.iter().flat_map(|function| &function.bars);
        let memory = bars.filter(|bar| bar.prefetchable && bar.is_assigned()).map(|bar| bar.address).next();
        bridge.initialise()?;
        Ok(Self { unit: port.unit().clone(), bridge, card, memory })
    }

    /// Adds the row of a stream of commands.
    fn stream(&mut self, table: &mut Table, name: &'static str, kind: Kind, len: usize) -> BenchResult<()> {
        // A runtime has as many E4 in flight as it has tags, and one WRITE(16).
        let depth = if kind == Kind::E4 { 31 } else { 1 };
        table.add(name, &self.unit, len, 310, || {
            let mut stream = Stream::new(kind, len, 310);
            self.bridge.transport_mut().run(&mut stream, depth, TIMEOUT)?;
            stream.failed.map_or(Ok(()), |failed| Err(format!("{name}: {failed:?}").into()))
        })
    }
}

/// The vendor's firmware, as patched by default.
fn vendor(table: &mut Table, image: &Image) -> BenchResult<()> {
    let mut vendor = Vendor::new(&patched(image, None)?, "")?;
    vendor.stream(table, E4, Kind::E4, 255)?;
    vendor.stream(table, "vendor's, WRITE(16) of 64 KiB with its E5", Kind::RuntimeWrite, LEN)?;
    let Vendor { unit, mut bridge, memory, .. } = vendor;
    let memory = memory.ok_or("no GPU's memory has an address")?;
    table.add_each("vendor's, E5", &unit, 1, || Ok(bridge.xdata_write(XdataAddress::SRAM_WINDOW, 1)?))?;
    // Each byte of a TLP is an E5, and each byte of a completion an E4.
    let mut engine = VendorTlp::new(&mut bridge);
    let mut number = 0;
    let mut at = || {
        number += 4;
        memory + number % 1024
    };
    let writes = "vendor's, 16 memory writes of 4 bytes by E5";
    table.add_each(writes, &unit, 64, || {
        let tlps: Vec<Tlp> = (0..16).map(|index| Tlp::memory_write(at(), index)).collect();
        Ok(engine.tlps(&tlps).map(drop)?)
    })?;
    table.add_each("vendor's, a memory read of 4 bytes by E5 and E4", &unit, 4, || {
        Ok(engine.tlps(&[Tlp::memory_read(at())]).map(drop)?)
    })
}

/// The ways to read faster than E4: patches, and a GPU that completes READ(16).
fn reads(table: &mut Table, image: &Image) -> BenchResult<()> {
    let mut vendor = Vendor::new(&patched(image, Some("e4-length-16"))?, "")?;
    vendor.stream(table, "`e4-length-16`, 255 bytes a command", Kind::E4, 255)?;
    vendor.stream(table, "`e4-length-16`, 4,096 bytes a command", Kind::E4, 4096)?;
    let Vendor { unit, mut bridge, .. } = Vendor::new(&patched(image, Some("read16-sram"))?, "")?;
    let mut found = vec![0; 0x8000];
    table.add_each("`read16-sram`, 32 KiB a command", &unit, found.len(), || Ok(bridge.read16(0, &mut found)?))?;
    let Vendor { unit, mut bridge, card, .. } = Vendor::new(&patched(image, None)?, "behind = 'tiny-gpu'")?;
    let card = card.ok_or("no tiny-gpu is behind the unit")?;
    let mut found = vec![0; LEN];
    let name = "READ(16) of 64 KiB that a GPU completes, with the status patch only";
    table.add_each(name, &unit, LEN, || {
        let complete = |bridge: &mut Bridge, entry| -> Result<(), AnyFailure> {
            card.complete(&mut Pcie::new(&mut VendorTlp::new(bridge), &mut NoTime), entry)
        };
        Ok(read16::read_sram(&mut bridge, &mut found, TIMEOUT, complete)?)
    })
}

fn open(table: &mut Table, image: &Image) -> BenchResult<()> {
    let mut port = port(image, "")?;
    let mut bridge = port.open_control()?;
    let unit = port.unit();
    bridge.tlp(&Tlp::config_write(Bdf::new(1, 0, 0), 0x10, BAR as u32))?;
    let mut data = vec![0x5A; LEN];
    let name = "open firmware, F0 stream of writes";
    table.add_each(name, unit, LEN, || Ok(bridge.stream_write(BAR, &data)?))?;
    let name = "open firmware, F0 stream of reads";
    table.add_each(name, unit, LEN, || Ok(bridge.stream_read(BAR, &mut data)?))?;
    let all = vec![0x5A; SRAM_LEN];
    table.add_each("open firmware, F2 of 512 KiB", unit, SRAM_LEN, || Ok(bridge.sram_write(0, &all)?))
}

fn main() -> BenchResult<()> {
    let mut table = Table::default();
    if let Some(image) = image("ASMPATCH_OPEN_IMAGE")? {
        open(&mut table, &image)?;
    }
    if let Some(image) = image("ASMPATCH_VENDOR_IMAGE")? {
        vendor(&mut table, &image)?;
        reads(&mut table, &image)?;
    }
    table.print();
    table.check()
}
