//! What can go wrong between a server and a file on disk.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;

use super::limits::Limits;
use crate::interrupt::Interrupted;

/// Why a transfer failed.
#[derive(Debug, Error, Diagnostic)]
pub enum HttpError {
    /// The address, or what is needed to use any, is no good.
    #[error("cannot ask {url}: {reason}")]
    #[diagnostic(code(asmpatch::http::request))]
    Request {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// No connection.
    #[error("no connection to the server of {url}: {reason}")]
    #[diagnostic(code(asmpatch::http::connect))]
    Connect {
        /// The address.
        url: String,
        /// What the system says.
        reason: String,
    },
    /// TLS.
    #[error("no secure connection to the server of {url}: {reason}")]
    #[diagnostic(code(asmpatch::http::tls))]
    Tls {
        /// The address.
        url: String,
        /// What the handshake says.
        reason: String,
    },
    /// The server says no.
    #[error("the server answers {status} for {url}")]
    #[diagnostic(code(asmpatch::http::status))]
    Status {
        /// The address, after redirects.
        url: String,
        /// The status code.
        status: u16,
    },
    /// Redirects without end.
    #[error("{url} leads through more than {limit} redirects")]
    #[diagnostic(code(asmpatch::http::redirects))]
    Redirects {
        /// The address.
        url: String,
        /// The most that are followed.
        limit: usize,
    },
    /// Silence.
    #[error("nothing from the server of {url} for {waited:?}, after {received} bytes")]
    #[diagnostic(code(asmpatch::http::timeout))]
    Timeout {
        /// The address.
        url: String,
        /// How long was waited.
        waited: Duration,
        /// Bytes that had arrived, in all attempts.
        received: u64,
    },
    /// Too slow as a whole.
    #[error("{url} was not there whole after {deadline:?}: {received} bytes")]
    #[diagnostic(code(asmpatch::http::deadline))]
    Deadline {
        /// The address.
        url: String,
        /// The longest that a transfer may take.
        deadline: Duration,
        /// Bytes that had arrived, in all attempts.
        received: u64,
    },
    /// The connection ended too soon.
    #[error("the connection for {url} was cut after {received} bytes{}", expected.map_or_else(String::new, |all| format!(" of {all}")))]
    #[diagnostic(code(asmpatch::http::cut_off))]
    CutOff {
        /// The address.
        url: String,
        /// Bytes that had arrived, in all attempts.
        received: u64,
        /// Bytes that were announced.
        expected: Option<u64>,
    },
    /// An answer to Range that does not fit the request.
    #[error("the server of {url} answers a request for the bytes from {asked} on with {answer:?}")]
    #[diagnostic(code(asmpatch::http::range))]
    Range {
        /// The address.
        url: String,
        /// The first byte that was asked for.
        asked: u64,
        /// The Content-Range that came.
        answer: String,
    },
    /// A web page in place of a file.
    #[error("{url} gives a web page, not a file")]
    #[diagnostic(code(asmpatch::http::html))]
    Html {
        /// The address, after redirects.
        url: String,
    },
    /// More than any firmware.
    #[error("{url} has more than {limit} bytes")]
    #[diagnostic(code(asmpatch::http::too_large))]
    TooLarge {
        /// The address.
        url: String,
        /// The most that is taken.
        limit: u64,
    },
    /// The disk.
    #[error("cannot keep what arrives in {}{}", path.display(), disk_full(source))]
    #[diagnostic(code(asmpatch::http::write))]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Ctrl-C.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Interrupted(#[from] Interrupted),
}

fn disk_full(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => ": the disk is full",
        io::ErrorKind::QuotaExceeded => ": the quota is used up",
        _ => "",
    }
}

impl HttpError {
    /// Whether the same request may succeed the next time.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::CutOff { .. } | Self::Timeout { .. } | Self::Range { .. })
    }

    /// What the client's error comes down to. `received` is what had arrived by then.
    pub(super) fn classify(
        url: &str,
        error: &(dyn Error + 'static),
        limits: &Limits,
        received: u64,
        expected: Option<u64>,
    ) -> Self {
        let url = url.to_owned();
        let causes: Vec<_> = causes(error).collect();
        let client = || causes.iter().find_map(|cause| cause.downcast_ref::<reqwest::Error>());
        let innermost = || causes.last().map_or_else(|| error.to_string(), ToString::to_string);
        if let Some(tls) = causes.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
            Self::Tls { url, reason: tls.to_string() }
        } else if url.starts_with("https://") && client().is_some_and(reqwest::Error::is_connect) && hung_up(&causes) {
            Self::Tls { url, reason: innermost() }
        } else if client().is_some_and(reqwest::Error::is_redirect) {
            Self::Redirects { url, limit: limits.redirects }
        } else if client().is_some_and(reqwest::Error::is_timeout) {
            Self::Timeout { url, waited: limits.silence, received }
        } else if client().is_some_and(reqwest::Error::is_builder) {
            Self::Request { url, reason: innermost() }
        } else if client().is_some_and(reqwest::Error::is_connect) {
            Self::Connect { url, reason: innermost() }
        } else {
            Self::CutOff { url, received, expected }
        }
    }
}

/// Whether the other side closed the connection: on a new one that is in the middle of the handshake.
fn hung_up(causes: &[&(dyn Error + 'static)]) -> bool {
    causes
        .iter()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset))
}

/// An error and its causes. What an `io::Error` wraps is one of them, which `source` alone would skip.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}
