//! Options of `run` for firmware authors: names, a profile, coverage.

use std::path::{Path, PathBuf};

use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;
use asm2464::firmware::Image;
use asm2464_chip::mcu::{Observer, Step};
use asm2464_chip::profile::{Coverage, Profile};
use asm2464_dock::files::atomic;

use crate::cli::names::LoadedSymbols;
use crate::cli::output;

/// The options for firmware authors.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "For firmware authors")]
pub struct AuthorArgs {
    /// Take names and source lines from SDCC's NAME.map or NAME.cdb, or from an ELF; may be given more than once.
    #[arg(long, value_name = "FILE")]
    symbols: Vec<PathBuf>,

    /// Write a profile by function into this file: folded stacks, which flamegraph.pl and inferno take, in clock
    /// cycles.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Write line coverage into this file: an lcov tracefile. Needs a --symbols with lines.
    #[arg(long, value_name = "FILE", requires = "symbols")]
    coverage: Option<PathBuf>,

    /// Replace these files if they exist.
    #[arg(long)]
    force: bool,
}

/// The observers that measure a run; `None` for those that were not requested.
#[derive(Debug, Default)]
pub(super) struct Observers {
    pub(super) profile: Option<Profile>,
    coverage: Option<Coverage>,
}

impl Observers {
    /// Whether any measurement was requested.
    pub(super) fn is_any(&self) -> bool {
        self.profile.is_some() || self.coverage.is_some()
    }
}

impl Observer for Observers {
    fn before(&mut self, step: &Step<'_>) {
        self.profile.iter_mut().for_each(|profile| profile.before(step));
        self.coverage.iter_mut().for_each(|coverage| coverage.before(step));
    }
}

impl AuthorArgs {
    /// Reads the symbols, and checks that every result can be written.
    pub(super) fn symbols(&self, image_path: &Path, image: &Image) -> Result<LoadedSymbols, AnyFailure> {
        let outputs: Vec<&PathBuf> = [&self.profile, &self.coverage].into_iter().flatten().collect();
        for (index, path) in outputs.iter().enumerate() {
            if outputs[..index].contains(path) {
                let label = Kind::Usage.code("asmpatch::run::same_output");
                return Err(Failure::new(label, format!("{} is named for two results", path.display())).into());
            }
            for input in self.symbols.iter().map(PathBuf::as_path).chain([image_path]) {
                output::check(path, input, self.force)?;
            }
        }
        let names = LoadedSymbols::read(&self.symbols, image)?;
        if self.coverage.is_some() && names.names.lines().next().is_none() {
            let label = Kind::BadInput.code("asmpatch::run::no_lines");
            return Err(Failure::new(label, "no file of --symbols has source lines").into());
        }
        Ok(names)
    }

    /// Returns the observers that were requested.
    pub(super) fn observers(&self, names: &LoadedSymbols) -> Observers {
        Observers {
            profile: self.profile.is_some().then(|| Profile::new(names.names.clone())),
            coverage: self.coverage.is_some().then(Coverage::default),
        }
    }

    /// Writes the results. Returns the files' names.
    pub(super) fn write(&self, names: &LoadedSymbols, observers: &Observers) -> Result<Vec<String>, AnyFailure> {
        let profile = observers.profile.as_ref().map(Profile::folded);
        let coverage = observers.coverage.as_ref().map(|coverage| coverage.lcov(&names.names, &names.folder));
        let results = [(&self.profile, profile), (&self.coverage, coverage)];
        let files: Vec<(&Path, Vec<u8>)> =
            results.into_iter().filter_map(|(path, text)| Some((path.as_deref()?, text?.into_bytes()))).collect();
        let files: Vec<(&Path, &[u8])> = files.iter().map(|(path, bytes)| (*path, bytes.as_slice())).collect();
        atomic::write_all(&files)?;
        Ok(files.iter().map(|(path, _)| path.display().to_string()).collect())
    }
}
