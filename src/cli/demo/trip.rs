//! The demonstration, with nothing attached and no network: downloads the practice image from a local mirror, patches,
//! verifies and flashes it to a virtual unit, and measures it, with the same calls as the commands.

use std::fs;
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::mirror::MirrorServer;
use crate::bench::{self, Effort};
use crate::failure::AnyFailure;
use crate::fetch::{Acquired, Cache, Fetcher, Limits};
use crate::flash::access::Access;
use crate::flash::{plan, run};
use crate::patch::{Expectations, Library, PatchSet, Patched, Selection, verify};
use crate::unit;
use asm2464::Bdf;
use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::flash::BUDGET;
use asm2464::interrupt::Interrupt;
use asm2464::sram::SRAM_ADDRESS;
use asm2464_chip::practice;
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;
use asm2464_dock::tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS, host_product};
use asm2464_dock::tiny_gpu::{DmaWrite, Job, TinyGpu};
use asm2464_dock::virtual_unit::{Counts, VirtualPort};
use asm2464_host::bridge::{Attached, Bridge, Port, Transport};
use asm2464_host::pcie::{NoTime, Pcie, Scope, VendorTlp};

/// The practice image's id in the demo's manifest.
pub const IMAGE_ID: &str = "practice";
/// The practice image's name in the mirror's zip.
const MEMBER: &str = "Software/practice.bin";

/// A step that failed.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The folder or the local server can't be used.
    #[error("cannot {doing}")]
    Setup {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A check that must pass failed, or one that must fail passed.
    #[error("{0}")]
    Check(String),
}

asm2464::coded!(DemoError {
    Setup => BadInput "asmpatch::demo::setup",
    Check => CheckFailed "asmpatch::demo::check",
});

/// The demonstration's folder, which takes everything that it leaves, and its interrupt flag.
#[derive(Debug)]
pub struct Demo<'a> {
    folder: PathBuf,
    interrupt: Interrupt<'a>,
}

/// The result of downloading.
#[derive(Debug)]
pub struct Downloaded {
    /// The image, and where it came from.
    pub acquired: Acquired,
    /// The image.
    pub image: Image,
    /// The SHA-256 of its file.
    pub sha256: Sha256Digest,
    /// The length of the zip that was transferred.
    pub zip_len: usize,
}

/// The result of verifying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyResult {
    /// The ids of the patches that were found in the file.
    pub patches: Vec<String>,
    /// Why a copy with one changed bit is refused.
    pub refused_because: String,
}

/// The result of computing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Computed {
    /// Where the GPU was found.
    pub at: Bdf,
    /// The product, which the host has computed too.
    pub product: [u8; 4],
    /// GPU cycles that it took.
    pub cycles: u32,
    /// The firmware's work to move program and data in, and to let the GPU send the product.
    pub job: Counts,
    /// The firmware's work to read the product from the SRAM.
    pub by_sram: Counts,
    /// The firmware's work to read the product from the GPU's memory.
    pub by_reads: Counts,
}

impl<'a> Demo<'a> {
    /// The matrices that [`Demo::compute`] multiplies, row by row.
    pub const MATRICES: [[u8; 4]; 2] = [[1, 2, 3, 4], [5, 6, 7, 8]];

    /// Creates a demo that works in this folder, which must be empty or new.
    pub fn new(folder: &Path, interrupt: Interrupt<'a>) -> Self {
        Self { folder: folder.to_owned(), interrupt }
    }

    /// Downloads the practice image from a local mirror, through manifest, HTTP, zip, digest and cache; writes
    /// `stock.bin`.
    ///
    /// # Errors
    /// [`DemoError::Setup`], and the errors of `download`.
    pub fn download(&self) -> Result<Downloaded, AnyFailure> {
        let image = practice::image();
        let file = image.to_file();
        let sha256 = Sha256Digest::of(&file);
        let zip = zip(&file).map_err(setup("zip the practice image"))?;
        let zip_len = zip.len();
        let mirror = MirrorServer::start("practice.zip", zip).map_err(setup("start a local server"))?;
        let manifests = self.folder.join("manifests");
        file::make_folder(&manifests).map_err(setup("make the demo's folder"))?;
        let manifest = format!(
            "id = \"{IMAGE_ID}\"\nversion = \"{}\"\nchip = \"ASM2464PD\"\nsize = {}\nsha256 = \"{sha256}\"\n\
             notes = \"asmpatch's own practice image.\"\n\n[[mirrors]]\nurl = \"{}\"\nmember = \"{MEMBER}\"\n",
            image.version(),
            file.len(),
            mirror.url()
        );
        atomic::write(&manifests.join("practice.toml"), manifest.as_bytes())?;
        let known = crate::embedded::manifests(&[manifests])?;
        let cache = Cache::at(&self.folder.join("cache"));
        let mut fetcher = Fetcher {
            known: &known,
            cache: &cache,
            limits: &Limits::default(),
            offline: false,
            progress: &mut (),
            interrupt: self.interrupt,
        };
        let acquired = fetcher.acquire(known.by_id(IMAGE_ID)?, None)?;
        let image = Image::parse(&acquired.bytes)?;
        atomic::write(&self.folder.join("stock.bin"), &acquired.bytes)?;
        Ok(Downloaded { acquired, image, sha256, zip_len })
    }

    /// Returns the default patches for this image.
    ///
    /// # Errors
    /// Fails if they don't go together on it.
    pub fn patches<'b>(&self, library: &'b Library, stock: &'b Downloaded) -> Result<PatchSet<'b>, AnyFailure> {
        Ok(PatchSet::resolve(library, &Selection::default(), &stock.image, stock.sha256)?)
    }

    /// Patches the image; writes `patched.bin` and its receipt.
    ///
    /// # Errors
    /// Fails if an expected byte is missing, or a file can't be written.
    pub fn patch(&self, set: &PatchSet<'_>) -> Result<Patched, AnyFailure> {
        let patched = set.apply()?;
        atomic::write(&self.folder.join("patched.bin"), &patched.image.to_file())?;
        atomic::write(&self.folder.join("patched.bin.toml"), patched.receipt.to_string().as_bytes())?;
        Ok(patched)
    }

    /// Verifies `patched.bin` as it is on disk, and checks that a copy with one changed bit is refused.
    ///
    /// # Errors
    /// [`DemoError`] if the file is refused or the changed copy is not.
    pub fn verify(&self, library: &Library, stock: &Downloaded, patched: &Patched) -> Result<VerifyResult, AnyFailure> {
        let mut file = fs::read(self.folder.join("patched.bin")).map_err(setup("read the patched image"))?;
        let expect = Expectations { receipt: Some(&patched.receipt), image: Some(stock.sha256), originals: None };
        let verification = verify(library, &file, &expect);
        if let Some(finding) = verification.findings.first() {
            return Err(check_failed(format!("the patched image does not verify: {finding}")));
        }
        let patches = verification.patches.iter().map(|patch| patch.id.clone()).collect();
        file[0x2000] ^= 0x01;
        let changed = verify(library, &file, &expect);
        let refused =
            changed.findings.first().ok_or_else(|| check_failed("a changed bit in the image went unnoticed"))?;
        Ok(VerifyResult { patches, refused_because: refused.to_string() })
    }

    /// Creates a virtual unit as its maker sells it, with a GPU behind it.
    ///
    /// # Errors
    /// Fails if its folder can't be used.
    pub fn attach(&self) -> Result<(VirtualPort, Attached), AnyFailure> {
        let folder = self.folder.join("unit");
        file::make_folder(&folder).map_err(setup("make the virtual unit's folder"))?;
        atomic::write(
            &folder.join("bridge.toml"),
            b"behind = \"tiny-gpu\"\nserial = \"DEMO0001\"\nport-power = true\n",
        )?;
        let mut port = VirtualPort::open_dir(&folder)?;
        let attached = port.attached()?;
        Ok((port, attached))
    }

    /// Backs the unit up, flashes it, and waits until it is back.
    ///
    /// # Errors
    /// The errors of `flash`.
    pub fn flash(
        &self,
        port: &mut VirtualPort,
        attached: &Attached,
        set: &PatchSet<'_>,
        patched: &Patched,
    ) -> Result<(plan::FlashPlan, run::FlashReport), AnyFailure> {
        let blocks = Access::open(port)?.blocks(attached.state)?;
        let edit = |block: &mut _| set.config.apply(block);
        let plan = plan::FlashPlan::flash(attached.clone(), blocks, None, &patched.image, edit)?;
        let options = run::FlashOptions {
            backup_into: Some(self.folder.join("backups")),
            backup_elsewhere: Vec::new(),
            return_deadline: Duration::from_secs(10),
            replug_deadline: Duration::ZERO,
            rewrite: false,
            budget: BUDGET,
        };
        match run::run(port, &plan, &options, &mut (), self.interrupt) {
            Ok(report) => Ok((plan, report)),
            Err(stopped) => Err(stopped.error.into()),
        }
    }

    /// Runs a short bench: writes a pattern and reads it back, then measures each path for a moment.
    ///
    /// # Errors
    /// The errors of `bench`, and [`DemoError::Check`] if bytes came back wrong.
    pub fn bench(&self, port: &mut VirtualPort) -> Result<bench::BenchReport, AnyFailure> {
        let unit = bench::BenchUnit::from(&unit::of_port(port)?);
        let effort = Effort {
            warm_up: Duration::from_millis(20),
            repetition: Duration::from_millis(100),
            repetitions: 3,
            timeout: Duration::from_millis(300),
        };
        let plan = bench::BenchPlan::new(bench::Path::SCSI, effort, 1);
        let report = bench::run(&mut uas(port)?, unit, &plan, self.interrupt, &mut |_| ())?;
        if report.integrity.is_none() || report.is_corrupt() {
            return Err(check_failed("bytes came back from the bridge changed"));
        }
        Ok(report)
    }

    /// Multiplies matrices on the GPU behind the bridge. They go in over USB and PCIe; the product comes back once by
    /// the GPU's own write into the SRAM, and once by memory reads.
    ///
    /// # Errors
    /// The errors of the connection to the GPU, and [`DemoError::Check`] if the product differs from the host's.
    pub fn compute(&self, port: &mut VirtualPort) -> Result<Computed, AnyFailure> {
        let unit = port.unit().clone();
        let mut bridge = uas(port)?;
        let mut patience = NoTime;
        let mut engine = VendorTlp::new(&mut bridge);
        let mut pcie = Pcie::new(&mut engine, &mut patience);
        let mut survey = pcie.survey(Scope::USUAL)?;
        pcie.assign(&mut survey)?;
        let gpu = TinyGpu::open(&mut pcie, &survey)?;
        let gpu = gpu.ok_or_else(|| check_failed("the GPU behind the bridge was not found"))?;
        let [a, b] = Self::MATRICES;
        let job = Job {
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
        let marks = [begun, run, read, counts()];
        let host = host_product(a, b);
        if product != host || again != host {
            let found = format!("{product:?} in the SRAM and {again:?} in its memory, not {host:?}");
            return Err(check_failed(format!("the GPU's product is {found}")));
        }
        let [job, by_sram, by_reads] = [0, 1, 2].map(|at| Counts {
            commands: marks[at + 1].commands - marks[at].commands,
            instructions: marks[at + 1].instructions - marks[at].instructions,
        });
        Ok(Computed { at: gpu.at, product, cycles, job, by_sram, by_reads })
    }
}

fn setup(doing: &'static str) -> impl FnOnce(io::Error) -> DemoError {
    move |source| DemoError::Setup { doing, source }
}

fn check_failed(what: impl Into<String>) -> AnyFailure {
    DemoError::Check(what.into()).into()
}

/// Opens the unit over UAS, as the GPU runtime does: the status patch has an effect only there.
fn uas(port: &mut VirtualPort) -> Result<Bridge<impl Transport>, AnyFailure> {
    Ok(Bridge::new(port.uas()?.ok_or_else(|| check_failed("the unit came back without UAS"))?))
}

fn zip(image: &[u8]) -> io::Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in [("readme.txt", &b"A stand-in for a vendor's archive.\n"[..]), (MEMBER, image)] {
        zip.start_file(name, SimpleFileOptions::default())?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{BridgeState, UsbId};

    use super::*;
    use crate::cli::errors::Exit;

    #[test]
    fn the_whole_trip_ends_with_a_patched_unit_that_gives_bytes_back() {
        let folder = tempfile::tempdir().unwrap();
        let demo = Demo::new(folder.path(), Interrupt::never());
        let library = crate::embedded::patches().unwrap();
        let stock = demo.download().unwrap();
        let set = demo.patches(&library, &stock).unwrap();
        let patched = demo.patch(&set).unwrap();
        assert!(demo.verify(&library, &stock, &patched).unwrap().patches.contains(&"status-0x2a12".to_owned()));
        let (mut port, before) = demo.attach().unwrap();
        assert_eq!(before.state, BridgeState::Vendor);
        let (plan, report) = demo.flash(&mut port, &before, &set, &patched).unwrap();
        let after = report.after.unwrap();
        assert_eq!((after.usb_id, after.state), (UsbId::PATCHED, BridgeState::Vendor));
        assert_eq!(after.serial, "DEMO0001");
        assert_eq!(report.version, plan.version);
        let bench = demo.bench(&mut port).unwrap();
        assert!(bench.rows.iter().any(|row| row.path == bench::Path::Write16 && row.figures().is_some()));
        let computed = demo.compute(&mut port).unwrap();
        assert_eq!((computed.product, computed.cycles), ([19, 22, 43, 50], 491));
        assert!(computed.by_sram.commands == 1 && computed.by_reads.instructions > computed.by_sram.instructions);
    }

    #[test]
    fn a_changed_patched_image_does_not_verify() {
        let folder = tempfile::tempdir().unwrap();
        let demo = Demo::new(folder.path(), Interrupt::never());
        let library = crate::embedded::patches().unwrap();
        let stock = demo.download().unwrap();
        let set = demo.patches(&library, &stock).unwrap();
        let patched = demo.patch(&set).unwrap();
        let path = folder.path().join("patched.bin");
        let mut file = fs::read(&path).unwrap();
        file[0x3000] ^= 0x80;
        fs::write(&path, file).unwrap();
        let failure = demo.verify(&library, &stock, &patched).unwrap_err();
        assert_eq!(Exit::from(failure.coded().kind()), Exit::CheckFailed);
    }
}
