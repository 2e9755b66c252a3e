//! Diagnosis of an examination, line by line, with advice. Pure.

use std::fmt;

use serde::Serialize;

use crate::bridge::{Behind, Speed};
use crate::cli::errors;
use crate::cli::pcie;
use crate::doctor::{Examination, PipeState, Problem};
use crate::escape::Escape as _;
use crate::firmware::{BridgeState, UsbId, is_runtime_product};
use crate::flash::firmware_kind::RunningFirmware;
use crate::pcie::{Function, class_name, vendor_name};
use crate::shell;

/// Minimum voltage of the 12 V supply in millivolts: ATX allows 11.4 V.
const SUPPLY_MIN_MV: u16 = 11_400;
/// Base classes of devices that a GPU runtime drives: display controllers, processing accelerators. Source: PCI-SIG's
/// class codes.
const DISPLAY: u8 = 0x03;
const ACCELERATOR: u8 = 0x12;
/// Advice for a unit whose bulk pipes hang. Source: owners' reports.
const POWER: &str = "power: unplug the unit and its supply, wait five seconds, plug both in again. Nothing else helps";

/// Verdict on one topic, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// In order.
    Good,
    /// A runtime can start anyway.
    Note,
    /// Not known.
    Unknown,
    /// A runtime can't start.
    Bad,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 4] = [Self::Good, Self::Note, Self::Unknown, Self::Bad];

    /// The verdict's name in JSON and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Bad => "bad",
        }
    }
}

/// One line of the diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Line"))]
pub struct TopicLine {
    /// The topic.
    pub topic: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// The finding.
    pub found: String,
    /// The advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// A diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The lines.
    pub lines: Vec<TopicLine>,
    /// The runtime that can start; `None` if none can.
    pub runtime: Option<&'static str>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Bad => "BAD",
            Self::Unknown => "?",
        })
    }
}

/// Diagnoses a unit. `device` is its port, as in `--device`.
pub fn diagnose(seen: &Examination, device: &str) -> Diagnosis {
    let mut page = Page { device: shell::word(device), lines: Vec::new() };
    page.usb(seen.unit.speed, seen.unit.state);
    page.access(seen);
    let runtime = page.firmware(seen);
    page.pipes(seen);
    page.link(seen);
    page.supply(seen);
    page.gpu(seen);
    page.bench(seen);
    let lines = page.lines;
    let verdict = |topic: &str| lines.iter().find(|line| line.topic == topic).map(|line| line.verdict);
    let must_be_good = [LINK, GPU].iter().all(|topic| verdict(topic) == Some(Verdict::Good));
    let can_start = must_be_good && lines.iter().all(|line| line.verdict != Verdict::Bad);
    Diagnosis { runtime: runtime.filter(|_| can_start), lines }
}

const USB: &str = "USB";
const ACCESS: &str = "access";
const FIRMWARE: &str = "firmware";
const PIPES: &str = "bulk pipes";
const LINK: &str = "PCIe link";
const SUPPLY: &str = "12 V";
const GPU: &str = "GPU";
const BENCH: &str = "bench";

struct Page {
    device: String,
    lines: Vec<TopicLine>,
}

impl Page {
    fn line(&mut self, topic: &'static str, verdict: Verdict, found: impl Into<String>) {
        self.lines.push(TopicLine { topic, verdict, found: found.into(), advice: None });
    }

    fn advise(&mut self, topic: &'static str, verdict: Verdict, found: impl Into<String>, advice: impl Into<String>) {
        self.lines.push(TopicLine { topic, verdict, found: found.into(), advice: Some(advice.into()) });
    }

    fn problem(&mut self, topic: &'static str, verdict: Verdict, problem: &Problem) {
        let found = problem.message.shown().to_string();
        let advice = errors::help_by_code(&problem.code).map(str::to_owned);
        self.lines.push(TopicLine { topic, verdict, found, advice });
    }

    fn usb(&mut self, speed: Speed, state: BridgeState) {
        match speed {
            Speed::Super | Speed::SuperPlus => self.line(USB, Verdict::Good, speed.to_string()),
            Speed::Unknown => self.line(USB, Verdict::Unknown, "the system does not tell the speed"),
            Speed::Low | Speed::Full | Speed::High => {
                let retrain = match state {
                    BridgeState::Vendor => format!("`asmpatch reset --device {}` trains the link anew", self.device),
                    _ => "unplug the unit, wait five seconds, plug it in again".to_owned(),
                };
                let advice = format!("{retrain}; if it stays, another cable, another port, no hub");
                self.advise(USB, Verdict::Bad, format!("{speed}: a GPU runtime needs 5 Gbit/s or more"), advice);
            }
        }
    }

    fn access(&mut self, seen: &Examination) {
        match (&seen.opened, &seen.unit.driver) {
            (Err(problem), _) => self.problem(ACCESS, Verdict::Bad, problem),
            (Ok(()), Some(driver)) => {
                let found = format!("opened; the kernel's {} driver has it otherwise", driver.shown());
                self.advise(ACCESS, Verdict::Note, found, "a GPU runtime takes it from the driver by itself");
            }
            (Ok(()), None) => self.line(ACCESS, Verdict::Good, "opened; no kernel driver has it"),
        }
    }

    /// The runtime that drives the unit's firmware.
    fn firmware(&mut self, seen: &Examination) -> Option<&'static str> {
        const OPEN: &str = "tinygrad from v0.14.0 on";
        const PATCHED: &str = "tinygrad up to v0.13.0";
        let device = self.device.clone();
        let flash = |image: &str| format!("`asmpatch flash {image} --device {device}`");
        let id = seen.unit.id;
        match (&seen.runs, seen.unit.state) {
            (_, BridgeState::BootLoader) => {
                let advice = format!("{}, with the image of your choice", flash("IMAGE --no-backup"));
                self.advise(FIRMWARE, Verdict::Bad, format!("the boot loader in ROM, under {id}"), advice);
                None
            }
            (Some(Err(problem)), _) => {
                self.problem(FIRMWARE, Verdict::Bad, problem);
                None
            }
            (_, BridgeState::OpenFirmware) if is_runtime_product(&seen.unit.product) => {
                let found = format!("open firmware {}, under {id}: {OPEN}", seen.unit.product.shown());
                self.line(FIRMWARE, Verdict::Good, found);
                Some(OPEN)
            }
            (_, BridgeState::OpenFirmware) => {
                let found = format!("open firmware that calls itself {}", seen.unit.product.shown());
                let advice =
                    format!("tinygrad takes a product string that starts with `custom`: {}", flash("OPEN.bin"));
                self.advise(FIRMWARE, Verdict::Bad, found, advice);
                None
            }
            (Some(Ok(RunningFirmware::Flashed(firmware))), _) if firmware.answers_writes() && id == UsbId::PATCHED => {
                let advice = format!("for later releases: {} with an image of the open firmware", flash("OPEN.bin"));
                self.advise(FIRMWARE, Verdict::Good, format!("{firmware}, under {id}: {PATCHED}"), advice);
                Some(PATCHED)
            }
            (Some(Ok(RunningFirmware::Flashed(firmware))), _) if firmware.answers_writes() => {
                let found = format!("{firmware}, under {id}: tinygrad looks for {}", UsbId::PATCHED);
                let advice = format!("patch the image with its identity, and {}", flash("PATCHED.bin"));
                self.advise(FIRMWARE, Verdict::Bad, found, advice);
                None
            }
            (Some(Ok(runs @ (RunningFirmware::Flashed(_) | RunningFirmware::Vendor(_)))), _) => {
                let advice = format!(
                    "{} for {OPEN}, {} for {PATCHED}; a USB4 host drives the GPU with it as it is",
                    flash("OPEN.bin"),
                    flash("PATCHED.bin")
                );
                self.advise(
                    FIRMWARE,
                    Verdict::Bad,
                    format!("{runs}, under {id}: no GPU runtime drives it over USB"),
                    advice,
                );
                None
            }
            (Some(Ok(runs)), _) => {
                let advice = "unplug the unit, wait five seconds, plug it in again: then it runs what its flash holds";
                self.advise(FIRMWARE, Verdict::Bad, runs.to_string(), advice);
                None
            }
            (None, _) => {
                self.line(
                    FIRMWARE,
                    Verdict::Unknown,
                    format!("{}, under {id}; it could not be asked", seen.unit.state),
                );
                None
            }
        }
    }

    fn pipes(&mut self, seen: &Examination) {
        match seen.pipes {
            PipeState::Move => self.line(PIPES, Verdict::Good, "data move"),
            PipeState::Hang => {
                let found = "nothing moves, though the unit answers control requests: a state that owners know, after long runs";
                self.advise(PIPES, Verdict::Bad, found, POWER);
            }
            PipeState::Dead => {
                // Source: random life on the chip model, docs/reliability.md.
                let known = match seen.unit.state {
                    BridgeState::OpenFirmware => {
                        "open firmware is so on the chip model after a host began another stream (F0) while it was reading one"
                    }
                    _ => {
                        "240417 is so on the chip model after a program was killed while it read the flash (E2), as \
                         `asmpatch backup` and `flash` do, or after a READ in half of a runtime's initialisation"
                    }
                };
                let found = format!(
                    "neither data nor control requests get an answer, not after a reset of the port either (a unit that \
                     was just unplugged looks the same): {known}"
                );
                self.advise(PIPES, Verdict::Bad, found, POWER);
            }
            PipeState::Busy(status) => {
                let found = format!(
                    "the SRAM's DMA waits for data that nobody sends (0xC450 reads {status:#04x}): a runtime that is at \
                     work, or the state in which bulk pipes hang while control requests are answered"
                );
                self.advise(PIPES, Verdict::Bad, found, format!("end the runtime; where there is none, {POWER}"));
            }
            PipeState::NotAsked
                if seen.opened.is_ok()
                    && seen.bench_failure.is_none()
                    && seen.unit.state == BridgeState::OpenFirmware =>
            {
                self.advise(PIPES, Verdict::Note, "not asked", "`--write` sends 512 bytes to the bridge's SRAM");
            }
            PipeState::NotAsked => {}
        }
    }

    fn link(&mut self, seen: &Examination) {
        match &seen.link {
            Some(Ok(link)) if link.is_up => {
                self.line(LINK, Verdict::Good, format!("up (LTSSM {:#04x})", link.ltssm));
            }
            Some(Ok(link)) => {
                let switched_off = match seen.unit.state {
                    BridgeState::OpenFirmware => {
                        "newer builds switch PCIe on only when a runtime asks (F3): `asmpatch pcie` tells more. Else "
                    }
                    _ => "",
                };
                let advice = format!(
                    "{switched_off}check that the card sits in its slot and that card and unit have their 12 V: without it \
                     PCIe never leaves reset"
                );
                self.advise(LINK, Verdict::Bad, format!("down (LTSSM {:#04x}, expected 0x78)", link.ltssm), advice);
            }
            Some(Err(problem)) => self.problem(LINK, Verdict::Bad, problem),
            None => match &seen.behind {
                Some(Behind::Ssd(_)) => self.line(LINK, Verdict::Unknown, "not asked: an SSD uses it"),
                Some(behind) if behind.is_initialised() => {
                    let found = "not asked: a GPU runtime has initialised the unit, and may be at work";
                    let advice = format!("end it, then `asmpatch reset --device {}`", self.device);
                    self.advise(LINK, Verdict::Unknown, found, advice);
                }
                Some(behind) => {
                    self.line(LINK, Verdict::Unknown, format!("not asked: {}", behind.to_string().shown()));
                }
                None => {}
            },
        }
    }

    fn supply(&mut self, seen: &Examination) {
        match &seen.supply {
            Some(Ok(Some(supply))) => {
                let found =
                    format!("{:.2} V, {:.2} A", volts(supply.voltage_mv.into()), volts(supply.current_ma.into()));
                if supply.voltage_mv < SUPPLY_MIN_MV {
                    self.advise(SUPPLY, Verdict::Bad, found, "connect the unit's supply: PCIe needs 12 V");
                } else {
                    self.line(SUPPLY, Verdict::Good, found);
                }
            }
            Some(Ok(None)) => self.line(SUPPLY, Verdict::Note, "this board does not measure its supply"),
            Some(Err(problem)) => self.problem(SUPPLY, Verdict::Note, problem),
            None => {}
        }
    }

    fn gpu(&mut self, seen: &Examination) {
        let tree = match &seen.tree {
            Some(Ok(tree)) => tree,
            Some(Err(problem)) => return self.problem(GPU, Verdict::Bad, problem),
            None => {
                if let Some(behind @ Behind::Ssd(_)) = &seen.behind {
                    let found = format!("behind it is an {}", behind.to_string().shown());
                    self.advise(GPU, Verdict::Bad, found, "put a GPU in its place");
                }
                return;
            }
        };
        let gpus: Vec<String> = tree.functions.iter().filter(|function| is_gpu(function)).map(words).collect();
        for note in &tree.notes {
            self.line(GPU, Verdict::Note, pcie::in_words(note));
        }
        if gpus.is_empty() {
            let others: Vec<String> = tree.functions.iter().map(words).collect();
            let found = match others.is_empty() {
                true => "nothing is behind the bridge".to_owned(),
                false => format!("none; there are {}", others.join(", ")),
            };
            let advice =
                format!("check the card's seat and its power; `asmpatch pcie --device {}` shows the tree", self.device);
            return self.advise(GPU, Verdict::Bad, found, advice);
        }
        // Put it first, so that it is the topic's verdict.
        let at = self.lines.iter().position(|line| line.topic == GPU).unwrap_or(self.lines.len());
        let found = gpus.join(", ");
        self.lines.insert(at, TopicLine { topic: GPU, verdict: Verdict::Good, found, advice: None });
    }

    fn bench(&mut self, seen: &Examination) {
        for timing in &seen.timings {
            let found = format!(
                "{} {}: {} us each, {} us at most",
                timing.count, timing.what, timing.median_us, timing.longest_us
            );
            self.line(BENCH, Verdict::Good, found);
        }
        if seen.is_corrupt {
            let advice = "another cable and port; then `asmpatch verify --device` and a flash";
            self.advise(BENCH, Verdict::Bad, "a byte that was written read back as another", advice);
        }
        if let Some(problem) = &seen.bench_failure {
            self.problem(BENCH, Verdict::Bad, problem);
        }
    }
}

fn volts(thousandths: i32) -> f64 {
    f64::from(thousandths) / 1000.0
}

fn is_gpu(function: &Function) -> bool {
    matches!((function.class >> 16) as u8, DISPLAY | ACCELERATOR)
}

fn words(function: &Function) -> String {
    let vendor = vendor_name(function.vendor).unwrap_or("vendor not known");
    let class = class_name(function.class).unwrap_or("class not known");
    format!("{} {vendor} {:04x}:{:04x} ({class})", function.at, function.vendor, function.device)
}
