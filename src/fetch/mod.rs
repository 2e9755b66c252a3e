//! Fetches known images.
//!
//! Vendors offer their images in archives and Windows updaters, on mirrors that come and go, and a wrong image bricks a
//! dock. So an image is known by its size and SHA-256 alone, and where the bytes come from proves nothing.
//!
//! # The trip of an image
//!
//! ```text
//! firmware-manifests/*.toml ─► Manifests ─► Manifest ─┐
//!                                                     ▼
//!        mirror, address ─► http::Transfer ─► bytes ─► unpack ─► Verified ─► Cache ─► Acquired
//!        file ─────────────────────────────────┘        │ ▲
//!                                                       ▼ │
//!                                         archive, updater: what is inside
//! ```
//!
//! - [`Manifests`] are the known images. A [`Manifest`] is data: id, size, digests, and [`Mirror`]s in order.
//! - [`Fetcher::acquire`] takes the image from a [`Source`], or else from the [`Cache`], or else from the mirrors. All
//!   mirrors share one deadline: several slow ones must not multiply the wait.
//! - `http` downloads one file. A [`FetchError`] says whether another source may help. The caller draws the
//!   [`FetchEvent`]s; nothing here prints.
//! - `unpack` looks into the file, whatever its name: an image, a zip, an updater, or one in another. In an archive the
//!   best candidate decides, not the first: an intact image of another version says more than a damaged file.
//! - [`Acquired`] has the bytes, whose size and SHA-256 are the manifest's.
//!
//! # Why it is so
//!
//! - **Input is hostile.** A transfer has limits of time and bytes ([`Limits`]). A search has one budget for a file and
//!   all that is nested in it, so that many small archives can't do what a large one may not. Nothing is written under
//!   a name from an archive, and no program from one is run.
//! - **A cached file is verified each time.** Others may have changed it. A damaged one counts as missing.
//! - **Ctrl-C works at any time.** reqwest's blocking client can't be stopped while it waits for a server's first byte.
//!   A runtime in the calling thread takes its asynchronous client through steps of 50 ms instead.
//! - **Each redirect gets a client of its own.** Requests to this machine never go through a proxy, and requests to
//!   others always go through the environment's. A proxy variable that can't be used is an error: without the proxy,
//!   the server would see your address.
//!
//! Tried and dropped: resuming an interrupted transfer, which took 250 lines and two files in the cache for 98 KB (a
//! retry starts over); ureq, which doesn't read macOS's proxy settings; a thread for the transfer, which needed a
//! channel to report and to stop.
//!
//! Not known: whether the mirrors of the vendor's images stay. The tests run against servers of their own, which cut,
//! stall, lie and loop (`tests/program/download`).
//!
//! # Example
//!
//! ```
//! use asm2464::AnyFailure;
//! use asm2464::digest::Sha256Digest;
//! use asm2464::interrupt::Interrupt;
//! use asm2464_chip::practice;
//! use asmpatch::fetch::{Cache, Fetcher, Limits, Manifests, Source};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("download.bin");
//! let bytes = practice::image().to_file();
//! std::fs::write(&file, &bytes)?;
//!
//! let (size, sha256) = (bytes.len(), Sha256Digest::of(&bytes));
//! let manifest = format!(
//!     "id = 'practice'\nversion = '240417.85.00.00'\nchip = 'ASM2464PD'\nsize = {size}\nsha256 = '{sha256}'"
//! );
//! let known = Manifests::load(&[("practice.toml", &manifest)], &[])?;
//! let cache = Cache::at(&folder.path().join("cache"));
//! let mut fetcher = Fetcher {
//!     known: &known,
//!     cache: &cache,
//!     limits: &Limits::default(),
//!     offline: false,
//!     progress: &mut (),
//!     interrupt: Interrupt::never(),
//! };
//! let practice = known.by_id("practice")?;
//! let acquired = fetcher.acquire(practice, Some(&Source::File(file))).map_err(AnyFailure::from)?;
//! assert_eq!(acquired.bytes, bytes);
//! // From now on the cache has it, so without a source nothing is read or downloaded.
//! let cached = fetcher.acquire(practice, None).map_err(AnyFailure::from)?;
//! assert_eq!(cached.source, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod archive;
mod fetcher;
mod http;
mod manifest;
mod unpack;
mod updater;

pub use fetcher::{Acquired, Cache, Fetcher, Source, images_in};
pub use http::{FetchError, FetchEvent, FetchProgress, Limits};
pub use manifest::{DEFAULT_IMAGE, ImageVersion, Manifest, Manifests, Md5Digest, Mirror, OPEN_IMAGE};
pub use unpack::Inside;
