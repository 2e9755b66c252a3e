//! The `--prometheus` option, which writes metrics to a file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use miette::Diagnostic;
use thiserror::Error;

use super::{AnyFailure, Context, Exit, output};
use crate::atomic;
use crate::prometheus::{Exposition, Sample};

/// The option that says where metrics are written.
#[derive(Debug, Clone, clap::Args)]
pub struct PrometheusArgs {
    /// Also write metrics to FILE for node_exporter's textfile collector, which reads names that end in .prom. Replaces
    /// earlier metrics. A run that fails says so in FILE. See docs/monitoring.md.
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
}

/// Reasons a file can't take metrics.
#[derive(Debug, Error, Diagnostic)]
enum TargetError {
    #[error("{} does not end in .prom", .0.display())]
    #[diagnostic(code(asmpatch::prometheus::name))]
    Name(PathBuf),
    #[error("cannot read {}", path.display())]
    #[diagnostic(code(asmpatch::prometheus::read))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} already exists and does not hold asmpatch's metrics", .0.display())]
    #[diagnostic(code(asmpatch::prometheus::foreign))]
    Foreign(PathBuf),
}

impl PrometheusArgs {
    /// Runs the command, then writes its measurements, or that it failed. `device` is the value of `--device`.
    ///
    /// # Errors
    /// Returns the command's error. Fails before the command runs if FILE must not be replaced, and afterwards if it
    /// can't be written.
    pub fn record(
        &self,
        command: &'static str,
        device: &str,
        context: &Context,
        run: impl FnOnce(&mut Exposition) -> Result<Exit, AnyFailure>,
    ) -> Result<Exit, AnyFailure> {
        let mut metrics = Exposition::default();
        let Some(path) = &self.prometheus else { return run(&mut metrics) };
        check(path)?;
        let result = run(&mut metrics);
        if result.is_err() {
            metrics = Exposition::default();
        }
        let of_run = |sample: Sample| [sample.with("command", command).with("device", device)];
        metrics.gauge(
            "asmpatch_last_run_success",
            "1 if the last run looked at the system, 0 if it failed.",
            of_run(Sample::from(result.is_ok())),
        );
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        metrics.gauge(
            "asmpatch_last_run_timestamp_seconds",
            "When the last run ended, in seconds since 1970.",
            of_run(Sample::new(now as f64)),
        );
        match (result, atomic::write(path, metrics.as_str().as_bytes())) {
            (result, Ok(())) => result,
            (Ok(_), Err(error)) => Err(error.into()),
            (Err(failure), Err(error)) => {
                context.report(&error);
                Err(failure)
            }
        }
    }
}

/// Checks that FILE may be written: its name, and what exists there.
fn check(path: &Path) -> Result<(), AnyFailure> {
    if path.extension().is_none_or(|extension| extension != "prom") {
        return Err(TargetError::Name(path.to_owned()).into());
    }
    output::refuse_irregular(path)?;
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(Exposition::START.len() as u64).read_to_end(&mut start));
    match read {
        Ok(_) if start.is_empty() || start == Exposition::START.as_bytes() => Ok(()),
        Ok(_) => Err(TargetError::Foreign(path.to_owned()).into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(TargetError::Read { path: path.to_owned(), source }.into()),
    }
}
