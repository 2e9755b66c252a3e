//! Command line and verdict of random life.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use asm2464::firmware::Image;
use asm2464_chip::practice;

use crate::chip_images;

use super::host::Host;
use super::judge::Verdict;
use super::reduce;
use super::steps::{Kind, Life};

/// An image and its kind of firmware.
struct Subject {
    name: &'static str,
    kind: Kind,
    image: Image,
}

struct Args {
    instructions: u64,
    seed: u64,
    image: Option<String>,
    life: Option<u64>,
    write: Option<PathBuf>,
    allow_findings: bool,
}

impl Args {
    /// Returns `None` if the arguments select other tests.
    fn parse() -> Result<Option<Self>, String> {
        let mut args =
            Self { instructions: 5_000_000, seed: 1, image: None, life: None, write: None, allow_findings: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| text.parse().map_err(|_| format!("{text:?} is no number"));
            match word.as_str() {
                "--instructions" => args.instructions = number(value()?)?,
                "--seed" => args.seed = number(value()?)?,
                "--life" => args.life = Some(number(value()?)?),
                "--image" => args.image = Some(value()?),
                "--write" => args.write = Some(value()?.into()),
                "--allow-findings" => args.allow_findings = true,
                // Cargo passes these to tests with their own harness.
                "--list" | "--ignored" => return Ok(None),
                "--skip" | "--format" | "--test-threads" | "--color" => drop(words.next()),
                flag if flag.starts_with('-') => {}
                filter if "random_life".contains(filter) => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(args))
    }
}

fn subjects(wanted: Option<&str>) -> Vec<Subject> {
    let mut all = vec![
        Subject { name: "practice", kind: Kind::Vendor, image: practice::image() },
        Subject { name: "practice-open", kind: Kind::Open, image: practice::open_image() },
    ];
    // Real images run only on request.
    match wanted {
        Some("vendor") => all = vec![Subject { name: "vendor", kind: Kind::Vendor, image: chip_images::vendor() }],
        Some("open") => all = vec![Subject { name: "open", kind: Kind::Open, image: chip_images::open() }],
        Some(name) => all.retain(|subject| subject.name == name),
        None => {}
    }
    all
}

/// Runs what the command line says.
pub fn main() -> ExitCode {
    let args = match Args::parse() {
        Ok(Some(args)) => args,
        Ok(None) => return ExitCode::SUCCESS,
        Err(why) => {
            println!("random_life: {why}");
            return ExitCode::from(2);
        }
    };
    let mut text = String::new();
    let mut findings = 0;
    for subject in subjects(args.image.as_deref()) {
        let (report, found) = live(&subject, &args);
        println!("{report}");
        text += &report;
        findings += found;
    }
    if let Some(path) = &args.write {
        std::fs::write(path, &text).unwrap();
    }
    if findings == 0 || args.allow_findings { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first finding at a place.
struct Found {
    life: u64,
    count: u64,
    shortest: Life,
    verdict: Verdict,
}

/// Runs lives until the instructions are used up. Returns the report, and the number of different findings.
fn live(subject: &Subject, args: &Args) -> (String, usize) {
    let began = Instant::now();
    let (mut executed, mut lives, mut steps) = (0, 0, 0);
    let mut tally: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let numbers = args.life.map_or(0..u64::MAX, |life| life..life + 1);
    for number in numbers {
        if args.life.is_none() && executed >= args.instructions {
            break;
        }
        let life = Life::draw(args.seed, number, subject.kind);
        let mut host = Host::new(&subject.image, &life);
        host.live(&life);
        let verdict = host.recover();
        executed += host.instructions();
        lives += 1;
        steps += life.steps.len();
        *tally.entry(verdict.words()).or_default() += 1;
        if args.life.is_some() {
            println!("{life}{verdict}");
        }
        if let Some(place) = verdict.place() {
            found.entry(place.clone()).and_modify(|found| found.count += 1).or_insert_with(|| {
                let shortest = reduce::shortest(&subject.image, &life, &place);
                Found { life: number, count: 1, shortest, verdict }
            });
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut text = format!(
        "{}: {executed} instructions, {lives} lives, {steps} steps, seed {}, {seconds:.1} s\n",
        subject.name, args.seed
    );
    for (words, count) in &tally {
        text += &format!("  {count:>8}  {words}\n");
    }
    for Found { life, count, shortest, verdict } in found.values() {
        text += &format!("  finding, {count} times, first in life {life}: {verdict}shortest history:\n{shortest}");
    }
    (text, found.len())
}
