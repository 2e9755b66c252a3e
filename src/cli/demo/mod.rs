//! The `asmpatch demo` command: shows the whole trip on a virtual unit.

mod mirror;
mod trip;

use std::path::{Path, PathBuf};

use crate::bench::{self, Outcome};
use crate::failure::AnyFailure;
use crate::fetch::Source;
use crate::flash::progress::FlashStep;
use crate::flash::proof::Runs;
use crate::flash::{plan, run as flash_run};
use crate::patch::{PatchSet, Patched};
use asm2464::escape::Escape as _;
use asm2464_dock::files::atomic::StagedFolder;
use asm2464_dock::files::file;
use asm2464_dock::virtual_unit::Counts;
use asm2464_host::bridge::Attached;
use owo_colors::OwoColorize as _;

use self::trip::{Computed, Demo, DemoError, Downloaded, VerifyResult};
use crate::cli::context::Context;
use crate::cli::context::short;
use crate::cli::errors::Exit;
use crate::cli::interrupt;

/// Show the whole trip with nothing attached and no network.
///
/// Downloads asmpatch's own practice image from a local server, patches, verifies and flashes it to a virtual unit,
/// measures it, and multiplies matrices on a GPU behind it. Says on one screen what each step proved; with -v, also the
/// purpose of each step, the command that does it, and everything that it found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch demo\n  asmpatch demo -v")]
pub struct Args {
    /// Work in this new folder and leave everything there: image, receipt, backup, and the virtual unit.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if any step fails.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let setup = |source| DemoError::Setup { doing: "make the demo's folder", source };
    let temporary;
    let folder = match &args.keep {
        Some(folder) => {
            std::fs::create_dir(folder).and_then(|()| file::owner_may_use(folder)).map_err(setup)?;
            folder.as_path()
        }
        None => {
            temporary = StagedFolder::for_demo().map_err(setup)?;
            temporary.path()
        }
    };
    let demo = Demo::new(folder, interrupt::install());
    let library = crate::embedded::patches()?;
    let page = Page { context };

    outln!("{} Nothing is attached or leaves this machine.", "The whole trip on a virtual unit.".bold());
    page.begin(1, "Download", "asmpatch takes an image only if its SHA-256 is known, wherever it came from.");
    page.detail(&"as `asmpatch download` does, here from a server that ends with the demo".dimmed().to_string());
    let stock = demo.download()?;
    page.downloaded(&stock);

    page.begin(2, "Patch", "A patch names the bytes that it expects. Nothing is written unless all are there.");
    page.command("patch stock.bin -o patched.bin");
    let set = demo.patches(&library, &stock)?;
    let patched = demo.patch(&set)?;
    page.patched(&set, &patched);

    page.begin(3, "Verify", "Checks the file on disk: without its patches it must be a known image.");
    page.command("verify patched.bin");
    page.verified(&demo.verify(&library, &stock, &patched)?);

    page.begin(4, "Attach", "A unit in software, as `--device virtual:DIR` makes one. Its SPI flash is a file.");
    let (mut port, before) = demo.attach()?;
    page.attached(&before);

    page.begin(5, "Flash", "Back up, write, read back and compare, restart, and check what comes back.");
    page.command("flash patched.bin --device virtual:unit");
    let (plan, report) = demo.flash(&mut port, &before, &set, &patched)?;
    page.flashed(&plan, &report);

    page.begin(6, "Bench", "A pattern must come back unchanged before anything is timed.");
    page.command("bench --device virtual:unit");
    page.measured(&demo.bench(&mut port)?);

    page.begin(7, "Compute", "A kernel goes in over USB and PCIe and runs on the GPU, which sends its result back.");
    page.command("pcie --assign --device virtual:unit");
    page.computed(&demo.compute(&mut port)?);

    page.next(args.keep.as_deref());
    Ok(Exit::Done)
}

/// What the demo prints: a line for each step, or everything with `--verbose`.
struct Page<'a> {
    context: &'a Context,
}

impl Page<'_> {
    /// Begins a step, and says what it is for.
    fn begin(&self, number: u32, name: &str, what_for: &str) {
        if self.context.is_verbose() {
            outln!("\n{} {what_for}", format!("{number} {name}.").bold().cyan());
        }
    }

    fn detail(&self, text: &str) {
        if self.context.is_verbose() {
            outln!("  {text}");
        }
    }

    fn command(&self, line: &str) {
        self.detail(&format!("$ asmpatch {line}").dimmed().to_string());
    }

    fn done(&self, text: &str) {
        self.detail(&format!("{} {text}", "✓".green()));
    }

    fn remark(&self, text: &str) {
        self.detail(&format!("{} {text}", "!".yellow()));
    }

    /// Says on one line what a step proved, unless its details are shown.
    fn proved(&self, step: &str, text: &str) {
        self.summary(&"✓".green().to_string(), step, text);
    }

    /// Says on one line what a step could not prove, unless its details are shown.
    fn left_open(&self, step: &str, text: &str) {
        self.summary(&"!".yellow().to_string(), step, text);
    }

    fn summary(&self, mark: &str, step: &str, text: &str) {
        if !self.context.is_verbose() {
            outln!("  {mark} {step:<8}  {text}");
        }
    }

    fn downloaded(&self, stock: &Downloaded) {
        let from = match &stock.acquired.source {
            Some(Source::Url(url)) => url,
            None | Some(Source::File(_)) => "the cache",
        };
        self.done(&format!("{} bytes of zip from {from}", thousands(stock.zip_len)));
        self.done(&format!(
            "practice image {}: {} bytes, SHA-256 {}",
            stock.image.version(),
            thousands(stock.acquired.bytes.len()),
            self.context.digest(&stock.sha256)
        ));
        let digest = short(&stock.sha256.to_string());
        self.proved("download", &format!("the practice image has the expected SHA-256, {digest}"));
    }

    fn patched(&self, set: &PatchSet<'_>, patched: &Patched) {
        for patch in &set.patches {
            self.done(&format!("{}: {}", patch.id, patch.title));
        }
        let digest = self.context.digest(&patched.receipt.output.sha256);
        self.done(&format!("patched.bin: SHA-256 {digest}, with a receipt beside it"));
        let ids: Vec<&str> = set.patches.iter().map(|patch| patch.id.as_str()).collect();
        self.proved("patch", &format!("every expected byte was there: {}", ids.join(", ")));
    }

    fn verified(&self, verified: &VerifyResult) {
        self.done(&format!("container, base image and receipt are valid; patches: {}", verified.patches.join(", ")));
        // Drop the detail after the comma.
        let reason = verified.refused_because.split(',').next().unwrap_or_default();
        self.done(&format!("a copy with one changed bit is refused: {reason}"));
        self.proved("verify", "image and receipt are valid; a copy with a changed bit is refused");
    }

    fn attached(&self, unit: &Attached) {
        let text = format!("{} ({}), serial {}, a GPU behind it", unit.usb_id, unit.state, unit.serial);
        self.done(&text);
        self.proved("attach", &text);
    }

    fn flashed(&self, plan: &plan::FlashPlan, report: &flash_run::FlashReport) {
        let changed = plan.blocks.iter().map(|block| block.changes.len()).sum::<usize>();
        let kept = "the unit keeps its own serial number and USB4 identity";
        self.done(&format!("{kept}; {changed} fields of its blocks change"));
        for step in &report.steps {
            let result = step.result.replace(&folder_of(report), "");
            let line = format!("{}: {result}", step.step);
            // A check without an answer is no success.
            let is_open = report.runs == Some(Runs::Unknown) && step.step == FlashStep::Prove.to_string();
            if step.done && !is_open { self.done(&line) } else { self.remark(&line) }
        }
        let id = report.after.as_ref().map_or(plan.attached.usb_id, |after| after.usb_id);
        self.proved("flash", &format!("backed up, written, read back the same; now {id}, serial kept"));
        if report.runs == Some(Runs::Unknown) {
            self.left_open("flash", "can't tell whether the new firmware runs: it behaves like the old");
        }
    }

    fn measured(&self, report: &bench::BenchReport) {
        if let Some(integrity) = &report.integrity {
            self.done("initialised as a GPU runtime does, after READ CAPACITY and E6 both said: no SSD");
            if integrity.e4 == Some(Outcome::Same) {
                self.done("written through WRITE(16), read through E4 at 0xF000: every byte the same");
                self.proved("bench", "every byte that WRITE(16) wrote came back the same through E4");
            }
        }
        for row in &report.rows {
            if let Outcome::NotRun { reason } = &row.outcome {
                self.remark(&format!("{} not run: {reason}", row.path));
            }
            if let Some(figures) = row.figures() {
                self.done(&format!(
                    "{:<10} {:>6} bytes a command: {:>9.1} MB/s, {:>8.0} commands/s",
                    row.path.to_string(),
                    row.size,
                    figures.mb_per_s.median,
                    figures.commands_per_s.median
                ));
            }
        }
        self.remark("these figures measure this machine and a virtual unit, not a chip");
    }

    fn computed(&self, computed: &Computed) {
        let work = |work: Counts| {
            let (commands, instructions) = (work.commands as usize, work.instructions as usize);
            let plural = if commands == 1 { "command" } else { "commands" };
            format!("{} {plural}, {} instructions of the 8051", thousands(commands), thousands(instructions))
        };
        let Computed { at, product: [c0, c1, c2, c3], cycles, job, by_sram, by_reads } = computed;
        let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = Demo::MATRICES;
        let product = format!("[{a0} {a1}; {a2} {a3}] x [{b0} {b1}; {b2} {b3}] = [{c0} {c1}; {c2} {c3}]");
        self.done(&format!("tiny-gpu at {at}: program and matrices written and started by {}", work(*job)));
        self.done(&format!("{product} in {cycles} GPU cycles: the host's own product"));
        self.done(&format!("sent by the GPU into the bridge's SRAM, read at 0xF000 by E4: {}", work(*by_sram)));
        self.done(&format!("the same by a memory read of the GPU: {}", work(*by_reads)));
        self.remark(
            "two of five ways: READ(16) and DMA by E5 need the vendor's 240417, F2 the open firmware (docs/tiny-gpu.md)",
        );
        self.proved("compute", &format!("{product} on the GPU as on the host"));
    }

    /// Says what the same trip is with a dock, and where to read on.
    fn next(&self, kept: Option<&Path>) {
        if let Some(folder) = kept {
            outln!("\nEverything is in {}; the unit there is --device virtual:{0}/unit", folder.shown());
        }
        outln!("\n{}", "With a real dock the same trip is:".bold());
        for (line, what_for) in [
            ("download -o stock.bin", "the vendor's image 240417"),
            ("patch stock.bin -o patched.bin", "and a receipt"),
            ("verify patched.bin", "no device needed so far"),
            ("list", "finds it; access: `asmpatch udev`"),
            ("flash patched.bin", "shows its plan, asks, backs up"),
            ("bench", "measures the dock, in MB/s"),
        ] {
            outln!("  {:<41} {}", format!("asmpatch {line}"), format!("# {what_for}").dimmed());
        }
        let whole = if self.context.is_verbose() { "" } else { "Each step whole: `asmpatch demo -v`. " };
        outln!("{whole}Read on: README.md, \"First steps\".");
        outln!("A stopped flash can be finished or undone: docs/recovery.md");
    }
}

/// Returns the backup's folder without the path to it, which is long and gone when the demo ends.
fn folder_of(report: &flash_run::FlashReport) -> String {
    let parent = report.backup.as_deref().and_then(Path::parent).and_then(Path::parent);
    parent.map_or_else(String::new, |folder| format!("{}{}", folder.display(), std::path::MAIN_SEPARATOR))
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_in_threes() {
        assert_eq!([1, 999, 1000, 98_016, 1_234_567].map(thousands), ["1", "999", "1,000", "98,016", "1,234,567"]);
    }
}
