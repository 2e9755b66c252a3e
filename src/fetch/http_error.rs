//! Errors of transfers from a server.

use std::error::Error as StdError;
use std::io;
use std::iter;
use std::time::Duration;

use asm2464::interrupt::Interrupted;
use thiserror::Error;

use super::limits::Limits;

/// Reasons a transfer failed. Addresses are without user names and passwords, and at most 200 characters long.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The address is unusable, or the system lacks what is needed to use any address.
    #[error("cannot send a request to {url}: {reason}")]
    Request {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The environment's proxy is not an address. The value may hold a password, so it is not shown.
    #[error("the value of {variable} in the environment is not a proxy's address")]
    Proxy {
        /// The variable's name; it may be set in lower case.
        variable: &'static str,
    },
    /// The connection failed.
    #[error("no connection to the server of {url}: {reason}")]
    Connect {
        /// The address.
        url: String,
        /// What the system says.
        reason: String,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to the server of {url}: {reason}")]
    Tls {
        /// The address.
        url: String,
        /// The handshake's error.
        reason: String,
    },
    /// The server refused the request.
    #[error("the server answers {status} for {url}")]
    Status {
        /// The address, after redirects.
        url: String,
        /// The status code.
        status: u16,
    },
    /// Too many redirects.
    #[error("{url} leads through more than {limit} redirects")]
    Redirects {
        /// The address.
        url: String,
        /// The most redirects that are followed.
        limit: u32,
    },
    /// The server sent nothing for too long.
    #[error("the server of {url} sent nothing for {waited:?}, after {received} bytes")]
    Timeout {
        /// The address.
        url: String,
        /// How long the client waited.
        waited: Duration,
        /// Bytes that had arrived, in all attempts.
        received: u64,
    },
    /// The whole transfer took too long.
    #[error("the download of {url} is incomplete after {deadline:?}: {received} bytes")]
    Deadline {
        /// The address.
        url: String,
        /// The longest that a transfer may take.
        deadline: Duration,
        /// Bytes that had arrived, in all attempts.
        received: u64,
    },
    /// The connection ended before the whole file arrived.
    #[error("the connection for {url} was cut after {received} bytes{}", expected.map_or_else(String::new, |all| format!(" of {all}")))]
    CutOff {
        /// The address.
        url: String,
        /// Bytes that had arrived, in all attempts.
        received: u64,
        /// Bytes that were announced.
        expected: Option<u64>,
    },
    /// The server's answer is not HTTP, or leads to no usable address.
    #[error("the server of {url} sends an invalid answer: {reason}")]
    Malformed {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The server sent a web page instead of a file.
    #[error("{url} gives a web page, not a file")]
    Html {
        /// The address, after redirects.
        url: String,
    },
    /// The file is larger than any firmware.
    #[error("{url} has more than {limit} bytes")]
    TooLarge {
        /// The address.
        url: String,
        /// The most bytes that are accepted.
        limit: u64,
    },
    /// Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

asm2464::coded!(HttpError {
    Request => BadInput "asmpatch::http::request",
    Proxy => BadInput "asmpatch::http::proxy",
    Connect => BadInput "asmpatch::http::connect",
    Tls => BadInput "asmpatch::http::tls",
    Status => BadInput "asmpatch::http::status",
    Redirects => BadInput "asmpatch::http::redirects",
    Timeout => BadInput "asmpatch::http::timeout",
    Deadline => BadInput "asmpatch::http::deadline",
    CutOff => BadInput "asmpatch::http::cut_off",
    Malformed => BadInput "asmpatch::http::malformed",
    Html => BadInput "asmpatch::http::html",
    TooLarge => BadInput "asmpatch::http::too_large",
    Interrupted(cause) => cause,
});

impl HttpError {
    /// Whether the same request may succeed the next time.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::CutOff { .. } | Self::Timeout { .. })
    }
}

/// Reasons a request's thread failed.
pub(super) enum Failure {
    /// No client can be made: the system lacks certificates, or threads.
    Client(Box<dyn StdError + Send + Sync>),
    /// The environment's variable is not a proxy's address.
    Proxy(&'static str),
    /// Too many redirects.
    Redirects,
    /// The answer makes no sense.
    Malformed(String),
    /// The connection failed, or reqwest rejects the answer.
    Transfer(Box<dyn StdError + Send + Sync>),
}

impl Failure {
    /// Names the failure of a transfer of `url` after so many bytes.
    pub(super) fn into_error(self, url: String, limits: &Limits, received: u64, expected: Option<u64>) -> HttpError {
        match self {
            Self::Client(error) => HttpError::Request { url, reason: root(&*error) },
            Self::Proxy(variable) => HttpError::Proxy { variable },
            Self::Redirects => HttpError::Redirects { url, limit: limits.redirects },
            Self::Malformed(reason) => HttpError::Malformed { url, reason },
            Self::Transfer(error) => named(&*error, url, limits, received, expected),
        }
    }
}

/// Names an error of reqwest, or one of I/O that wraps it.
fn named(error: Causes<'_>, url: String, limits: &Limits, received: u64, expected: Option<u64>) -> HttpError {
    let is_connect = find(error, reqwest::Error::is_connect).is_some();
    let reason = root(error);
    if find(error, reqwest::Error::is_timeout).is_some() {
        let waited = if is_connect { limits.connect } else { limits.silence };
        return HttpError::Timeout { url, waited, received };
    }
    let is_tls = find(error, |_: &rustls::Error| true).is_some();
    // A server may hang up during the handshake. TCP doesn't fail in this way before.
    if is_tls || (is_connect && find(error, is_cut).is_some()) {
        return HttpError::Tls { url, reason };
    }
    if is_connect {
        return HttpError::Connect { url, reason };
    }
    let io = causes(error).filter_map(|cause| cause.downcast_ref()).map(io::Error::kind);
    // reqwest wraps its errors in I/O errors of kind Other.
    let is_malformed = match io.filter(|&kind| kind != io::ErrorKind::Other).last() {
        // What hyper makes of a faulty chunk.
        Some(kind) => matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData),
        None => find(error, is_about_the_answer).is_some(),
    };
    if is_malformed {
        return HttpError::Malformed { url, reason };
    }
    HttpError::CutOff { url, received, expected }
}

type Causes<'a> = &'a (dyn StdError + 'static);

/// Finds an error of one type among an error and its causes.
fn find<E: StdError + 'static>(error: Causes<'_>, matches: impl Fn(&E) -> bool) -> Option<&E> {
    causes(error).filter_map(|cause| cause.downcast_ref()).find(|cause| matches(cause))
}

/// Lists an error and its causes, outermost first. [`io::Error`] hides the error that it wraps.
fn causes(error: Causes<'_>) -> impl Iterator<Item = Causes<'_>> {
    iter::successors(Some(error), |&cause| match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped as Causes<'_>),
        None => cause.source(),
    })
}

/// Returns the innermost cause's message. The outer ones repeat the address, with its password.
fn root(error: Causes<'_>) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

/// Whether hyper rejects what the server sent, and not how the connection ended.
fn is_about_the_answer(error: &hyper::Error) -> bool {
    !(error.is_incomplete_message() || error.is_closed() || error.is_canceled())
}

/// Whether the server closed the connection.
fn is_cut(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}
