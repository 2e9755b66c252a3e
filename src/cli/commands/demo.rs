//! The `asmpatch demo` command: runs the commands of the whole trip on a virtual unit.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Cursor, Write as _};
use std::path::{Path, PathBuf};

use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{FirmwareVersion, Image};
use asm2464::interrupt::Interrupt;
use asm2464::sram::SRAM_ADDRESS;
use asm2464::{AnyFailure, Bdf, Failure, Kind};
use asm2464_chip::practice;
use asm2464_dock::gpu_card::{DmaWrite, GpuJob, TinyGpu};
use asm2464_dock::virtual_unit::{FirmwareCounts, VirtualPort, VirtualUnit};
use asm2464_files::atomic;
use asm2464_files::file;
use asm2464_files::staged::StagedFolder;
use asm2464_host::bridge::{Port as _, TransportKind};
use asm2464_host::pcie::{NoTime, Pcie, Scope, VendorTlp};
use indicatif::HumanCount;
use owo_colors::OwoColorize as _;
use serde_json::Value;
use tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS, host_product};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::cli::commands::help::ROADS;
use crate::cli::given::context::{Context, short};
use crate::cli::words::errors::Exit;
use crate::cli::words::{interrupt, print};

/// Show the whole trip with nothing attached and no network.
///
/// Takes asmpatch's own practice image from a zip, patches, verifies and flashes it to a virtual unit, measures it, and
/// multiplies matrices on a GPU behind it. Each step is the command that you would type. Says on one screen what each
/// step proved; with -v, also the purpose of each step, its command, and what that prints.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch demo\n  asmpatch demo -v")]
pub struct Args {
    /// Work in this new folder and leave everything there: image, receipt, backup, and the virtual unit. In the folder
    /// of an earlier demo, begin anew.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// The error of a folder that can't be used.
fn setup(cause: io::Error) -> Failure {
    Failure::new(Kind::System.code("asmpatch::demo::setup"), "cannot make the demo's folder").because(cause)
}

/// The error of a check that must pass and failed, or that must fail and passed.
fn check_failed(what: impl Into<String>) -> AnyFailure {
    Failure::new(Kind::CheckFailed.code("asmpatch::demo::check"), what).into()
}

/// A step of the trip: one command.
struct DemoStep {
    name: &'static str,
    what_for: &'static str,
    /// The command line, without the program's name.
    line: &'static str,
    /// How the command must end.
    ends: Exit,
    /// Says what the command proved, by its JSON document.
    proved: fn(&Value) -> String,
}

/// The unit of the trip, as its maker sells it, with a GPU behind it.
const UNIT: &str = "behind = \"tiny-gpu\"\nserial = \"DEMO0001\"\nport-power = true\n";

const STEPS: &[DemoStep] = &[
    DemoStep {
        name: "download",
        what_for: "asmpatch takes an image only if its SHA-256 is known, wherever it came from.",
        line: "download practice --from practice.zip --manifest-dir . --cache-dir cache -o stock.bin",
        ends: Exit::Done,
        proved: |said| format!("the practice image has the expected SHA-256, {}", short(text(&said["sha256"]))),
    },
    DemoStep {
        name: "patch",
        what_for: "A patch names the bytes that it expects. Nothing is written unless all are there.",
        line: "patch stock.bin -o patched.bin",
        ends: Exit::Done,
        proved: |said| format!("every expected byte was there: {}", list(&said["patches"], "id")),
    },
    DemoStep {
        name: "verify",
        what_for: "Checks the file on disk: without its patches it must be a known image.",
        line: "verify patched.bin",
        ends: Exit::Done,
        proved: |said| format!("image and receipt are valid, with {}", list(&said[0]["patches"], "id")),
    },
    DemoStep {
        name: "verify",
        what_for: "A copy with one changed bit must be refused.",
        line: "verify damaged.bin",
        ends: Exit::CheckFailed,
        proved: |_| "a copy with a changed bit is refused".to_owned(),
    },
    DemoStep {
        name: "list",
        what_for: "A unit in software: `--device virtual:DIR` makes one. Its SPI flash is a file.",
        line: "list --device virtual:unit",
        ends: Exit::Done,
        proved: |said| {
            let unit = &said["units"][0];
            format!("{} ({} firmware), serial {}", text(&unit["usb_id"]), text(&unit["state"]), text(&unit["serial"]))
        },
    },
    DemoStep {
        name: "flash",
        what_for: "Back up, write, read back and compare, restart, and check what comes back.",
        line: "flash patched.bin --device virtual:unit --backup-dir backups --yes",
        ends: Exit::Done,
        proved: |said| {
            let runs = match text(&said[0]["runs"]) {
                "written" => "runs what was written",
                _ => "can't tell what runs",
            };
            format!("backed up, {}, read back: the same; {runs}", text(&said[0]["result"]))
        },
    },
    DemoStep {
        name: "bench",
        what_for: "A pattern must come back unchanged before anything is timed.",
        line: "bench --device virtual:unit --path e4-255 --path write16 --seconds 0.1 --repetitions 3",
        ends: Exit::Done,
        proved: |said| {
            let integrity = &said["integrity"];
            let (write, read) = (text(&integrity["write16"]["outcome"]), text(&integrity["e4"]["outcome"]));
            format!("written by WRITE(16): {write}; read by E4: {read}")
        },
    },
    DemoStep {
        name: "doctor",
        what_for: "Takes the steps that lead to a runtime, one after the other. Here none is left: the GPU is a toy.",
        line: "doctor --fix --device virtual:unit",
        ends: Exit::CheckFailed,
        proved: |said| format!("--fix has no step left; what a runtime lacks: {}", list(&said["left"], "topic")),
    },
];

/// A text of a document; empty if it has none there.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The texts that the objects of an array have under `key`.
fn list(values: &Value, key: &str) -> String {
    let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
    values.iter().map(|value| text(&value[key])).collect::<Vec<_>>().join(", ")
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if any step fails.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let staged;
    let folder = match &args.keep {
        Some(folder) => {
            if folder.is_dir() && is_earlier(folder) {
                clear(folder).map_err(setup)?;
            } else {
                fs::create_dir(folder).and_then(|()| file::owner_may_use(folder)).map_err(setup)?;
            }
            folder.as_path()
        }
        None => {
            staged = StagedFolder::for_demo().map_err(setup)?;
            staged.path()
        }
    };
    let interrupt = interrupt::install();
    prepare(folder)?;
    outln!("{} Nothing is attached or leaves this machine.", "The whole trip on a virtual unit.".bold());
    let from = std::env::current_dir().map_err(setup)?;
    std::env::set_current_dir(folder).map_err(setup)?;
    let went = trip(context, interrupt);
    // Some systems can't remove the current folder of a process.
    std::env::set_current_dir(from).map_err(setup)?;
    went?;
    next(context, args.keep.as_deref());
    Ok(Exit::Done)
}

/// Whether an earlier demo left this folder: it has the demo's manifest.
fn is_earlier(folder: &Path) -> bool {
    let manifest = manifest(&practice::image());
    file::read_regular(&folder.join(MANIFEST), manifest.len()).is_ok_and(|there| there == manifest.as_bytes())
}

/// Removes what the steps of an earlier demo made, and nothing else. Backups stay.
fn clear(folder: &Path) -> io::Result<()> {
    for name in ["unit/flash.bin", "stock.bin", "patched.bin", "patched.bin.toml", "damaged.bin"] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The name of the manifest in the demo's folder.
const MANIFEST: &str = "practice.toml";

/// The manifest of the practice image.
fn manifest(image: &Image) -> String {
    let stock = image.to_file();
    format!(
        "id = \"practice\"\nversion = \"{}\"\nchip = \"ASM2464PD\"\nsize = {}\nsha256 = \"{}\"\n\
         notes = \"asmpatch's own practice image.\"\n",
        image.version(),
        stock.len(),
        Sha256Digest::of(&stock)
    )
}

/// Puts what the commands need into the folder: the image in a zip, its manifest, and the unit.
fn prepare(folder: &Path) -> Result<(), AnyFailure> {
    let image = practice::image();
    let stock = image.to_file();
    let manifest = manifest(&image);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("Software/practice.bin", SimpleFileOptions::default()).map_err(|zip| setup(zip.into()))?;
    zip.write_all(&stock).map_err(setup)?;
    let zip = zip.finish().map_err(|zip| setup(zip.into()))?.into_inner();
    file::make_folder(&folder.join("unit")).map_err(setup)?;
    for (name, bytes) in
        [(MANIFEST, manifest.as_bytes()), ("practice.zip", &zip[..]), ("unit/bridge.toml", UNIT.as_bytes())]
    {
        atomic::write(&folder.join(name), bytes)?;
    }
    VirtualUnit::open(&folder.join("unit"), Some(&older(&image).to_file()))?;
    Ok(())
}

/// What the unit has when it comes from its maker: the practice image with an older version, so that the unit shows
/// after the flash which of the two it runs.
fn older(image: &Image) -> Image {
    let FirmwareVersion(mut version) = image.version();
    version[0] -= 1;
    image.clone().with_version(FirmwareVersion(version))
}

/// Runs each step in the current folder.
fn trip(context: &Context, interrupt: Interrupt<'_>) -> Result<(), AnyFailure> {
    for (number, step) in (1..).zip(STEPS) {
        interrupt.check()?;
        if step.line == "verify damaged.bin" {
            let mut damaged = fs::read("patched.bin").map_err(setup)?;
            damaged[0x2000] ^= 0x01;
            atomic::write(Path::new("damaged.bin"), &damaged)?;
        }
        if context.is_verbose {
            outln!("");
            outln!("{} {}", format!("{number} {}.", step.name).bold().cyan(), step.what_for);
            outln!("  {}", format!("$ asmpatch {}", step.line).dimmed());
        }
        let said = command(step, context)?;
        if !context.is_verbose {
            proved(step.name, &(step.proved)(&said));
        }
    }
    interrupt.check()?;
    if context.is_verbose {
        let what_for = "A kernel goes in over USB and PCIe and runs on the GPU, which sends its result back.";
        outln!("");
        outln!("{} {what_for}", format!("{} compute.", STEPS.len() + 1).bold().cyan());
    }
    compute(Path::new("unit"), context)
}

/// Runs a step's command as the program does, and returns its JSON document. With `--verbose` it prints its own text
/// instead.
fn command(step: &DemoStep, context: &Context) -> Result<Value, AnyFailure> {
    let words: Vec<OsString> = ["asmpatch"].into_iter().chain(step.line.split(' ')).map(OsString::from).collect();
    let ran = context.run(&words, !context.is_verbose).map_err(|error| check_failed(error.to_string()))?;
    let ended = ran.outcome?;
    if ended != step.ends {
        return Err(check_failed(format!("`asmpatch {}` ended as {ended:?}, not as {:?}", step.line, step.ends)));
    }
    Ok(serde_json::from_str(&ran.said).unwrap_or_default())
}

fn proved(step: &str, text: &str) {
    outln!("  {} {step:<8}  {text}", "✓".green());
}

/// Says what the GPU computed. `counts` are the firmware's work to move program and data in and to let the GPU send the
/// product, to read that from the SRAM, and to read it from the GPU's memory.
fn computed(context: &Context, at: Bdf, product: [u8; 4], cycles: u32, counts: [FirmwareCounts; 3]) {
    let work = |work: FirmwareCounts| {
        let plural = if work.commands == 1 { "command" } else { "commands" };
        format!("{} {plural}, {} instructions of the 8051", HumanCount(work.commands), HumanCount(work.instructions))
    };
    let [job, by_sram, by_reads] = counts.map(work);
    let [c0, c1, c2, c3] = product;
    let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = MATRICES;
    let product = format!("[{a0} {a1}; {a2} {a3}] x [{b0} {b1}; {b2} {b3}] = [{c0} {c1}; {c2} {c3}]");
    if !context.is_verbose {
        return proved("compute", &format!("{product} on the GPU as on the host"));
    }
    outln!("tiny-gpu at {at}: program and matrices written and started by {job}");
    outln!("{product} in {cycles} GPU cycles: the host's own product");
    outln!("sent by the GPU into the bridge's SRAM, read at 0xF000 by E4: {by_sram}");
    outln!("the same by a memory read of the GPU: {by_reads}");
    outln!(
        "two of five ways: READ(16) and DMA by E5 need the vendor's 240417, F2 the open firmware (`asmpatch help tiny-gpu`)"
    );
}

/// Prints the commands of the same trip with a real dock, and where to read on.
fn next(context: &Context, kept: Option<&Path>) {
    if let Some(folder) = kept {
        outln!("");
        outln!("Everything is in {}; the unit there is --device virtual:{0}/unit", folder.shown());
    }
    outln!("");
    outln!("{}", "With a real dock".bold());
    print::out(ROADS.lines());
    outln!("Led step by step: `asmpatch doctor --fix`; then `asmpatch bench` (how fast?)");
    let whole = if context.is_verbose { "" } else { "Each step whole: `asmpatch demo -v`. " };
    outln!("{whole}Read on: `asmpatch help first-steps`");
    outln!("A stopped flash can be finished or undone: `asmpatch help recovery`");
}

/// The matrices, row by row.
const MATRICES: [[u8; 4]; 2] = [[1, 2, 3, 4], [5, 6, 7, 8]];

/// Multiplies the matrices on the GPU of the unit in `folder`. They go in over USB and PCIe; the product comes back
/// once by the GPU's own write into the SRAM, and once by memory reads. Says what it was.
///
/// # Errors
/// The errors of the connection to the GPU, and a failed check if the product differs from the host's.
fn compute(folder: &Path, context: &Context) -> Result<(), AnyFailure> {
    let mut port = VirtualPort::open_dir(folder)?;
    let unit = port.unit().clone();
    // UAS, as the GPU runtime does: the status patch has an effect only there.
    let mut bridge = port.open_over(Some(TransportKind::UasStreams))?;
    let mut patience = NoTime;
    let mut engine = VendorTlp::new(&mut bridge);
    let mut pcie = Pcie::new(&mut engine, &mut patience);
    let mut survey = pcie.survey(Scope::USUAL)?;
    pcie.assign(&mut survey)?;
    let gpu = TinyGpu::open(&mut pcie, &survey)?;
    let gpu = gpu.ok_or_else(|| check_failed("the GPU behind the bridge was not found"))?;
    let [a, b] = MATRICES;
    let job = GpuJob {
        program: &MATMUL,
        data: &[a, b].concat(),
        threads: PRODUCT_THREADS,
        caches: false,
        cycle_limit: 10_000,
        send: Some(DmaWrite { from: PRODUCT_AT as u8, len: 4, to: SRAM_ADDRESS, entry: None }),
    };
    let counts = || unit.lock().counts();
    let begun = counts();
    let cycles = gpu.run(&mut pcie, &job)?;
    let run = counts();
    let mut product = [0; 4];
    pcie.sram_read(0, &mut product)?;
    let read = counts();
    let mut again = [0; 4];
    gpu.read(&mut pcie, PRODUCT_AT as u8, &mut again)?;
    let ended = counts();
    let host = host_product(a, b);
    if product != host || again != host {
        let found = format!("{product:?} in the SRAM and {again:?} in its memory, not {host:?}");
        return Err(check_failed(format!("the GPU's product is {found}")));
    }
    let counts = [run - begun, read - run, ended - read];
    computed(context, gpu.at, product, cycles, counts);
    Ok(())
}
