//! Errors of transfers between a server and a file on disk.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use miette::Diagnostic;
use thiserror::Error;
use ureq::Timeout as Waited;

use super::http::Transfer;
use crate::interrupt::Interrupted;

/// Reasons a transfer failed.
#[derive(Debug, Error, Diagnostic)]
pub enum HttpError {
    /// The address is unusable, or the system lacks what is needed to use any address.
    #[error("cannot send a request to {url}: {reason}")]
    #[diagnostic(code(asmpatch::http::request))]
    Request {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The environment's proxy is not an address. The value may hold a password, so it is not shown.
    #[error("the value of {variable} in the environment is not a proxy's address")]
    #[diagnostic(code(asmpatch::http::proxy))]
    Proxy {
        /// The variable's name; it may be set in lower case.
        variable: &'static str,
    },
    /// The connection failed.
    #[error("no connection to the server of {url}: {reason}")]
    #[diagnostic(code(asmpatch::http::connect))]
    Connect {
        /// The address.
        url: String,
        /// What the system says.
        reason: String,
    },
    /// The TLS handshake failed.
    #[error("no secure connection to the server of {url}: {reason}")]
    #[diagnostic(code(asmpatch::http::tls))]
    Tls {
        /// The address.
        url: String,
        /// The handshake's error.
        reason: String,
    },
    /// The server refused the request.
    #[error("the server answers {status} for {url}")]
    #[diagnostic(code(asmpatch::http::status))]
    Status {
        /// The address, after redirects.
        url: String,
        /// The status code.
        status: u16,
    },
    /// Too many redirects.
    #[error("{url} leads through more than {limit} redirects")]
    #[diagnostic(code(asmpatch::http::redirects))]
    Redirects {
        /// The address.
        url: String,
        /// The most redirects that are followed.
        limit: u32,
    },
    /// The server sent nothing for too long.
    #[error("the server of {url} sent nothing for {waited:?}, after {received} bytes")]
    #[diagnostic(code(asmpatch::http::timeout))]
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
    #[diagnostic(code(asmpatch::http::deadline))]
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
    #[diagnostic(code(asmpatch::http::cut_off))]
    CutOff {
        /// The address.
        url: String,
        /// Bytes that had arrived, in all attempts.
        received: u64,
        /// Bytes that were announced.
        expected: Option<u64>,
    },
    /// The server's answer to a Range request does not fit the request.
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
    /// The server sent a web page instead of a file.
    #[error("{url} gives a web page, not a file")]
    #[diagnostic(code(asmpatch::http::html))]
    Html {
        /// The address, after redirects.
        url: String,
    },
    /// The file is larger than any firmware.
    #[error("{url} has more than {limit} bytes")]
    #[diagnostic(code(asmpatch::http::too_large))]
    TooLarge {
        /// The address.
        url: String,
        /// The most bytes that are accepted.
        limit: u64,
    },
    /// The file can't be written.
    #[error("cannot write the download to {}{}", path.display(), disk_full(source))]
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

    /// Converts an error that came before any answer.
    pub(super) fn unanswered(transfer: &Transfer<'_>, error: ureq::Error) -> Self {
        use ureq::Error as E;
        let (url, reason) = (transfer.url.to_owned(), error.to_string());
        match error {
            E::Timeout(Waited::Resolve | Waited::Connect) => {
                Self::Timeout { url, waited: transfer.limits.connect, received: transfer.partial.received }
            }
            E::TooManyRedirects => Self::Redirects { url, limit: transfer.limits.redirects },
            E::Http(_) | E::BadUri(_) | E::Protocol(_) => Self::Request { url, reason },
            E::Tls(reason) => Self::Tls { url, reason: reason.to_owned() },
            E::Io(error) if url.starts_with("https://") && is_cut_handshake(&error) => {
                Self::Tls { url, reason: error.to_string() }
            }
            E::Io(error) if rustls_error(&error).is_none() && !is_cut(&error) => {
                Self::Connect { url, reason: error.to_string() }
            }
            E::HostNotFound | E::ConnectionFailed | E::ConnectProxyFailed(_) => Self::Connect { url, reason },
            error => Self::unfinished(transfer, error, None),
        }
    }

    /// Converts an error that came during an answer.
    pub(super) fn unfinished(transfer: &Transfer<'_>, error: ureq::Error, expected: Option<u64>) -> Self {
        let (url, received) = (transfer.url.to_owned(), transfer.partial.received);
        match &error {
            ureq::Error::Timeout(Waited::Global) => Self::overdue(transfer),
            ureq::Error::Timeout(_) => Self::Timeout { url, waited: transfer.limits.silence, received },
            ureq::Error::Rustls(error) => Self::Tls { url, reason: error.to_string() },
            ureq::Error::Io(error) if let Some(error) = rustls_error(error) => {
                Self::Tls { url, reason: error.to_string() }
            }
            _ => Self::CutOff { url, received, expected },
        }
    }

    /// The transfer's time is up.
    pub(super) fn overdue(transfer: &Transfer<'_>) -> Self {
        let received = transfer.partial.received;
        Self::Deadline { url: transfer.url.to_owned(), deadline: transfer.limits.deadline, received }
    }
}

/// Returns the TLS error that an I/O error wraps.
fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
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

/// Whether the server closed a new connection during the handshake. If a connection ends after the handshake but before
/// the answer, ureq has its own error for it.
fn is_cut_handshake(error: &io::Error) -> bool {
    is_cut(error) && error.get_ref().is_none()
}
