//! The image that a command names: a file, the folder of a backup, or a known image by its ID, which is fetched first.

use std::path::{Path, PathBuf};

use asm2464::escape::Escape as _;
use asm2464::{AnyFailure, Failure, Kind};
use indicatif::{ProgressBar, ProgressStyle};
use tracing::info;

use crate::cli::given::arguments;
use crate::cli::given::context::Context;
use crate::cli::given::user_files::is_absent;
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::errors::Advised;
use crate::cli::words::invocation::Invocation;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::worded_step::WordedStep;
use crate::cli::words::{interrupt, terminal};
use crate::fetch::{
    Acquired, Cache, DEFAULT_IMAGE, FetchError, FetchEvent, Fetcher, Limits, Manifest, Manifests, OPEN_IMAGE, Source,
};
use crate::flash::backup_folder;
use crate::flash::recovery::ImageRef;
use crate::{practice, suggest};

/// Returns the image as a command names it, and where it is: the file of this name, or a known image of this ID, which is
/// fetched first.
///
/// # Errors
/// Fails if the name is neither, or if the image can't be fetched.
pub fn place(named: &Path, context: &Context) -> Result<(ImageRef, PathBuf), AnyFailure> {
    let known = crate::embedded::manifests(&[])?;
    // A backup has its unit's firmware in a file.
    let firmware = named.join(backup_folder::FIRMWARE);
    if backup_folder::is_one(named) && firmware.is_file() {
        return Ok((ImageRef::File(firmware.clone()), firmware));
    }
    let text = named.to_str();
    let manifest = text.and_then(|id| known.by_id(id).ok());
    match (named.symlink_metadata(), manifest) {
        (Err(_), None) if text == Some("-") => {
            let label = Kind::Usage.code("asmpatch::file::standard_input");
            Err(Failure::new(label, "- is no file's name, and asmpatch reads no image from standard input").into())
        }
        (Err(_), None) if let Some(Source::Url(url)) = text.map(Source::from) => Err(address(&url, &known)),
        (Err(_), None) if text == Some(practice::ID) => {
            let path = arguments::cache(None)?.keep_practice(&asm2464_chip::practice::image().to_file())?;
            Ok((ImageRef::Known(practice::ID.to_owned()), path))
        }
        (Ok(_), manifest) => {
            if let Some(Manifest { id, .. }) = manifest {
                errln!("{}: the file of this name, not the known image {}", named.shown(), id.shown());
            }
            Ok((ImageRef::File(named.to_owned()), named.to_owned()))
        }
        (Err(_), Some(manifest)) => {
            let path = known_image(manifest, &known, context)?.path;
            Ok((ImageRef::Known(manifest.id.clone()), path))
        }
        // The read says what is wrong.
        (Err(cause), None) if !is_absent(cause.kind()) => Ok((ImageRef::File(named.to_owned()), named.to_owned())),
        // It may be a mistyped ID.
        (Err(cause), None) => {
            let mut ids: Vec<&str> = known.iter().map(|manifest| manifest.id.as_str()).collect();
            ids.push(practice::ID);
            let name = named.to_string_lossy();
            let meant = suggest::nearest(&name, ids.iter().copied());
            let message = format!(
                "cannot read {}: no file and no known image ({}) has this name{}",
                named.display(),
                ids.join(", "),
                suggest::did_you_mean(meant)
            );
            // Two files that every page names, and that a command before this one writes.
            let made = match &*name {
                Invocation::PATCHED => {
                    Some(PrintedCommand::named("patch").operand(DEFAULT_IMAGE).with("output", named))
                }
                "stock.bin" => Some(PrintedCommand::named("download").operand(DEFAULT_IMAGE).with("output", named)),
                _ => None,
            };
            let made = made.map(|command| AdvicePart::Command("make it first".into(), command));
            let is_write = context.invocation.subcommand() == "flash";
            let known = match (&made, meant) {
                (None, None) if is_write => vec![
                    AdvicePart::text("check the name"),
                    AdvicePart::AgainWith {
                        purpose: "or write a known image: the open firmware",
                        value: OPEN_IMAGE.into(),
                    },
                    AdvicePart::AgainWith { purpose: "or the vendor's", value: DEFAULT_IMAGE.into() },
                ],
                _ => Vec::new(),
            };
            let again = meant.map(|id| AdvicePart::AgainWith { purpose: "if you mean that image", value: id.into() });
            let failure = Failure::new(Kind::BadInput.code("asmpatch::file::not_found"), message).because(cause);
            Err(Advised::with(failure, made.into_iter().chain(again).chain(known).collect()))
        }
    }
}

/// The error of an address in place of a file: which image is there, only the user knows, and its digest decides.
fn address(url: &str, known: &Manifests) -> AnyFailure {
    let label = Kind::Usage.code("asmpatch::file::address");
    let shown = Source::Url(url.to_owned()).to_string();
    let failure = Failure::new(label, format!("{shown} is an address, expected a file or a known image's ID"));
    // An address with a password is not printed again.
    let step = match &known.meant(url, &[])[..] {
        [Manifest { id, .. }] if shown == url => {
            let fetch = PrintedCommand::named("download").operand(id).with("from", url);
            AdvicePart::Command(format!("fetch it first, if it is {id}: its digest decides").into(), fetch)
        }
        _ => {
            let lacks = "fetch it first: its digest decides whether it is that image: `download ID --from URL`";
            AdvicePart::Step(WordedStep::lacking(lacks))
        }
    };
    let list = AdvicePart::Run { purpose: "list the known images", line: "download --list" };
    Advised::with(failure, vec![step, list])
}

/// Fetches a known image without any option of `download`: from the cache, or from its mirrors.
///
/// # Errors
/// As for [`acquire`].
pub fn known_image(manifest: &Manifest, known: &Manifests, context: &Context) -> Result<Acquired, AnyFailure> {
    let (cache, limits) = (arguments::cache(None)?, Limits::default());
    acquire(manifest, known, None, &cache, &limits, false, context).map_err(|failure| {
        if failure.kind() == Kind::Interrupted {
            return failure;
        }
        let command = context.invocation.subcommand();
        Advised::also(failure, WordedStep::lacking(format!("with a copy of the image: `{command} FILE`")))
    })
}

/// Fetches a known image from `source`, or else from the cache or its mirrors. Shows transfers as bars on stderr.
///
/// # Errors
/// Fails if no source has the image, if the disk fails, and on Ctrl-C.
pub fn acquire(
    manifest: &Manifest,
    known: &Manifests,
    source: Option<&Source>,
    cache: &Cache,
    limits: &Limits,
    offline: bool,
    context: &Context,
) -> Result<Acquired, AnyFailure> {
    let mut progress = show_transfers(context);
    let mut fetcher =
        Fetcher { known, cache, limits, offline, progress: &mut progress, interrupt: interrupt::install() };
    fetcher.acquire(manifest, source).map_err(|error| unavailable(error, manifest))
}

/// Adds to a failure what else helps, unless its cause is on this machine: how to build an image that no mirror has.
fn unavailable(error: FetchError, manifest: &Manifest) -> AnyFailure {
    let is_local = matches!(error, FetchError::Local(_));
    let failure = AnyFailure::from(error);
    match &manifest.build {
        Some(build) if !is_local && manifest.mirrors.is_empty() => {
            Advised::also(failure, WordedStep::hands(build.clone()))
        }
        _ => failure,
    }
}

/// Shows transfers as bars on stderr, or not at all.
fn show_transfers(context: &Context) -> impl FnMut(FetchEvent<'_>) {
    let mut bar = ProgressBar::hidden();
    let is_quiet = context.is_quiet;
    move |event| match event {
        FetchEvent::Ask { url } => {
            info!("asking {url}");
            bar = terminal::bars(context.shows_progress()).add(ProgressBar::new_spinner());
            bar.set_message(format!("waiting for the answer of {}", host(url).shown()));
        }
        FetchEvent::Begin { url, total } => {
            bar.finish_and_clear();
            let length = total.map_or("an unknown number of".to_owned(), |total| total.to_string());
            info!("fetching {url}: {length} bytes");
            bar = terminal::bars(context.shows_progress()).add(transfer_bar(url, total));
        }
        FetchEvent::Advance(bytes) => bar.inc(bytes),
        FetchEvent::Retry(reason) => {
            info!("{reason}: trying again");
            if context.shows_progress() {
                errln!("{}; trying again", reason.shown());
            }
        }
        FetchEvent::End => bar.finish_and_clear(),
        FetchEvent::Waiting(holder) => {
            info!("waiting for {holder}");
            if !is_quiet {
                errln!("{holder} fetches the same image: waiting until it has ended; Ctrl-C stops the wait");
            }
        }
    }
}

fn transfer_bar(url: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => (ProgressBar::new_spinner(), "{msg} {spinner} {bytes} {bytes_per_sec}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_message(host(url).shown().to_string())
}

/// Returns the host in an address: the whole address would not fit beside the bar.
fn host(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest.split('/').next().unwrap_or(rest))
}
