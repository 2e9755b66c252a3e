//! The `asmpatch download` command: downloads an image and verifies it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fetch::{Acquired, DEFAULT_IMAGE, Limits, Manifest, Manifests, Source};
use crate::practice;
use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use serde::Serialize;

use crate::cli::commands::help;
use crate::cli::given::arguments;
use crate::cli::given::context::Context;
use crate::cli::given::named_image::acquire;
use crate::cli::given::user_files;
use crate::cli::words::errors::Exit;
use crate::cli::words::print;
use crate::cli::words::printed_command::PrintedCommand;

/// Download an image and verify it.
///
/// Tries the mirrors of the image's manifest in order, extracts the image, and keeps it in the cache only if its size
/// and SHA-256 match the manifest. Starts an interrupted transfer over. Uses an image from the cache if it verifies.
/// Prints the image's path.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  asmpatch download -o stock.bin\n  asmpatch download ed4e39b -o open.bin\n  \
                  asmpatch download --list\n  asmpatch download 240417 --from updater.exe")]
pub struct Args {
    /// The image's id.
    #[arg(default_value = DEFAULT_IMAGE)]
    image: String,

    /// List the known images.
    #[arg(long, conflicts_with_all = ["from", "output", "offline"])]
    list: bool,

    /// Take the image from here: a zip, a bare image, or a vendor's Windows updater.
    #[arg(long, value_name = "FILE|URL")]
    from: Option<String>,

    /// Also write the image to this file.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// Replace OUT if it is another file.
    #[arg(long, requires = "output")]
    force: bool,

    /// Add the manifests in this folder to the known ones. Can be repeated.
    #[arg(long, value_name = "DIR")]
    manifest_dir: Vec<PathBuf>,

    /// Keep images here; by default in the folder that ASMPATCH_CACHE_DIR names, or in asmpatch in the platform's cache
    /// folder.
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// Never touch the network.
    #[arg(long)]
    offline: bool,

    /// Give up on a server that doesn't answer for this long, falls silent, or sends fewer than 500 bytes a second.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// Print what was fetched as JSON.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct DownloadReport<'a> {
    #[serde(flatten)]
    image: &'a Manifest,
    /// The file: OUT, or the one in the cache.
    path: &'a Path,
    /// `cache`, `file` or `url`.
    origin: &'static str,
    /// The file or address.
    from: Option<String>,
    /// Where in that file the image was found.
    place: Option<&'a str>,
}

impl print::Document for DownloadReport<'_> {}

impl print::Document for &Manifest {
    const VERSION: u32 = 2;
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the image is unknown, a manifest is wrong, the transfer or the disk fails, or OUT exists.
pub fn run(args: &Args, context: &Context) -> Result<Exit, AnyFailure> {
    let known = crate::embedded::manifests(&args.manifest_dir)?;
    if args.list {
        list(&known, args.json);
        return Ok(Exit::Done);
    }
    let manifest =
        known.by_id(&args.image).map_err(|unknown| if args.image == practice::ID { no_download() } else { unknown })?;
    let cache = arguments::cache(args.cache_dir.as_deref())?;
    let limits = Limits { silence: Duration::from_secs(args.timeout), ..Limits::default() };
    let source = args.from.as_deref().map(Source::from);
    let acquired = acquire(manifest, &known, source.as_ref(), &cache, &limits, args.offline, context)?;
    if let Some(path) = &args.output {
        user_files::write(&[(path, &acquired.bytes)], None, args.force)?;
    }
    let path = args.output.as_deref().unwrap_or(&acquired.path);
    if args.json {
        let Acquired { source, place, .. } = &acquired;
        let origin = match source {
            None => "cache",
            Some(Source::File(_)) => "file",
            Some(Source::Url(_)) => "url",
        };
        let from = source.as_ref().map(Source::to_string);
        print::json(&DownloadReport { image: manifest, path, origin, from, place: place.as_deref() });
    } else {
        if !context.is_quiet {
            errln!("{}", summary(manifest, &acquired, context));
            if manifest.id == DEFAULT_IMAGE {
                print::err(help::ROADS.lines());
            }
            errln!("next:");
            errln!("    {}", next(manifest, args, path, context)?);
        }
        print::whole(&format!("{}\n", path.shown()));
    }
    Ok(Exit::Done)
}

/// The failure of a download of the image that needs none.
fn no_download() -> Failure {
    let message = format!("{} is asmpatch's own image, for virtual units: it is a part of the program", practice::ID);
    Failure::new(Kind::Usage.code("asmpatch::manifest::practice"), message)
}

/// Returns the next command for an image that is in this file.
///
/// # Errors
/// Fails if the embedded manifests are wrong.
fn next(manifest: &Manifest, args: &Args, path: &Path, context: &Context) -> Result<PrintedCommand, AnyFailure> {
    let is_ours = crate::embedded::manifests(&[])?.by_sha256(&manifest.sha256).is_some();
    let invocation = &context.invocation;
    let command = if !is_ours {
        // Whoever has added it knows what it is for.
        invocation.other("info")
    } else if manifest.id == DEFAULT_IMAGE {
        invocation.other("patch").with("output", invocation.patched())
    } else {
        invocation.other("flash")
    };
    // Commands look for an ID in the usual cache alone.
    let has_id = is_ours && args.output.is_none() && args.cache_dir.is_none();
    let image = if has_id { OsStr::new(&manifest.id) } else { path.as_os_str() };
    Ok(command.operand(image))
}

fn list(known: &Manifests, json: bool) {
    if json {
        return print::json_each(&known.iter().collect::<Vec<_>>());
    }
    for Manifest { id, version, chip, size, sha256, notes, build, .. } in known.iter() {
        let default = if id == DEFAULT_IMAGE { ", the default" } else { "" };
        outln!("{id}: version {} for the {}, {size} bytes{default}", version.to_string().shown(), chip.shown());
        outln!("  {sha256}");
        for text in [notes, build].into_iter().flatten() {
            outln!("  {}", text.shown());
        }
    }
}

fn summary(manifest: &Manifest, acquired: &Acquired, context: &Context) -> String {
    let from = match (&acquired.source, &acquired.place) {
        (None, _) => "already in the cache".to_owned(),
        (_, Some(place)) => format!("taken from {}", place.shown()),
        (Some(Source::File(file)), None) => format!("taken from {}", file.shown()),
        (Some(source @ Source::Url(_)), None) => format!("fetched from {}", source.to_string().shown()),
    };
    let Manifest { id, version, chip, size, sha256, .. } = manifest;
    let (version, chip, digest) = (version.to_string(), chip.shown(), context.digest(sha256));
    let version = version.shown();
    format!("{id} (version {version} for the {chip}): {from}; verified {size} bytes, SHA-256 {digest}")
}
