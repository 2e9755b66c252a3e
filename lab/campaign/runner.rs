//! Command line, worker threads and verdict of the campaign.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use std::{env, fs};

use super::feature;
use super::history::History;
use super::play::{Broken, play};
use super::tally::Tally;
use super::watchdog::Watchdog;
use super::world::World;

/// Number of histories in a plain `cargo test`.
const FEW: u64 = 20;
/// Number of failures to print in full.
const SHOWN: usize = 5;

struct Options {
    histories: u64,
    seed: u64,
    only: Option<u64>,
    /// Whether each history is one of `doctor --fix`.
    is_fix: bool,
    jobs: usize,
}

/// Runs the campaign as the command line says.
pub fn main() -> ExitCode {
    let options = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => options,
        // The arguments select other tests.
        Ok(None) => return ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("campaign: {what}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("campaign: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        // A process mostly sleeps while it waits for its unit.
        let mut options = Self { histories: FEW, seed: 1, only: None, is_fix: false, jobs: cores * 3 };
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().ok_or_else(|| format!("{word} wants a number"))?;
                value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"))
            };
            match word.as_str() {
                "--histories" => options.histories = number()?,
                "--seed" => options.seed = number()?,
                "--only" => options.only = Some(number()?),
                "--fix" => options.is_fix = true,
                "--jobs" => options.jobs = usize::try_from(number()?.max(1)).unwrap_or(1),
                // Cargo passes these to tests with their own harness.
                "--list" | "--ignored" => return Ok(None),
                "--skip" | "--format" | "--test-threads" | "--color" => drop(words.next()),
                flag if flag.starts_with('-') => {}
                filter if "campaign".contains(filter) => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(options))
    }

    fn repeat(&self, number: u64) -> String {
        let binary = env::var("ASMPATCH_BIN").map_or_else(|_| String::new(), |path| format!("ASMPATCH_BIN={path} "));
        let fix = if self.is_fix { "--fix " } else { "" };
        format!("{binary}cargo test --test campaign -- {fix}--seed {} --only {number}", self.seed)
    }
}

fn run(options: &Options) -> io::Result<bool> {
    let binary =
        env::var_os("ASMPATCH_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_asmpatch")), PathBuf::from);
    let binary =
        fs::canonicalize(&binary).map_err(|error| io::Error::other(format!("{}: {error}", binary.display())))?;
    // Prefer memory: there are thousands of units of 512 KiB each.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    let root = tempfile::Builder::new().prefix("asmpatch-campaign-").tempdir_in(place)?;
    let bin = root.path().join("bin");
    fs::create_dir(&bin)?;
    std::os::unix::fs::symlink(&binary, bin.join("asmpatch"))?;

    let world = World::new(root.path())?;
    let watchdog = Watchdog::start();
    let (first, end) = options.only.map_or((0, options.histories), |only| (only, only + 1));
    let next = AtomicU64::new(first);
    let tally = Mutex::new(Tally::default());
    let broken: Mutex<Vec<(u64, Broken)>> = Mutex::default();
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        break;
                    }
                    let history = History::new(options.seed, number, options.is_fix);
                    let folder = root.path().join(number.to_string());
                    let played = fs::create_dir(&folder)
                        .map_err(|error| Broken { what: error.to_string(), processes: String::new() })
                        .and_then(|()| play(&world, &history, &folder, &bin, &watchdog));
                    let _ = fs::remove_dir_all(&folder);
                    let Ok(mut tally) = tally.lock() else { break };
                    tally.add(&history, played.as_ref().ok());
                    if let (Err(failed), Ok(mut broken)) = (played, broken.lock()) {
                        broken.push((number, failed));
                    }
                }
            });
        }
    });
    let took = began.elapsed();
    let mut broken = broken.into_inner().unwrap_or_default();
    broken.sort_by_key(|(number, _)| *number);
    for (number, Broken { what, processes }) in broken.iter().take(SHOWN) {
        let history = History::new(options.seed, *number, options.is_fix);
        println!("history {number} ({}): {what}\n{history:#?}\n{processes}", history.class);
    }
    let mut unreached = Vec::new();
    if let Ok(tally) = tally.into_inner() {
        println!("{tally}");
        unreached.extend(tally.features.unreached());
    }
    unreached.extend(feature::never_drawn(options.seed));
    // Histories of one kind don't reach all of it.
    unreached.retain(|_| !options.is_fix);
    // The practice image that replaces a missing newest open firmware proves nothing about it.
    unreached.retain(|feature| *feature != feature::NEWEST_OPEN || world.has_newest_open());
    for feature in &unreached {
        println!("no history reaches: {feature}");
    }
    for (number, Broken { what, .. }) in &broken {
        println!("broken: {what}\n  again: {}", options.repeat(*number));
    }
    println!(
        "seed {}: {} histories in {:.1} s, {} broken",
        options.seed,
        end - first,
        took.as_secs_f64(),
        broken.len()
    );
    Ok(broken.is_empty() && unreached.is_empty())
}
