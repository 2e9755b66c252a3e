//! HTTP: downloads one file from one address, and starts again if the connection is cut.

use std::error::Error as StdError;
use std::io;
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use asm2464::Kind;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::progress::Progress;
use derive_more::Display;
use reqwest::{Response, Url, header};
use tokio::runtime;
use tokio::time::timeout;

use super::address;
use super::client::{AnyError, causes, client, root, through, unsent};
use super::limits::Limits;
use crate::failure::{AnyFailure, Failure};

/// How often to check for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// An event of fetching an image.
#[derive(Debug, Clone, Copy)]
pub enum FetchEvent<'a> {
    /// A transfer begins.
    Begin {
        /// The address, after all redirects, as it may be shown.
        url: &'a str,
        /// The file's length in bytes, if the server tells it.
        total: Option<u64>,
    },
    /// This many more bytes have arrived.
    Advance(u64),
    /// The transfer failed for this reason. The next attempt or the next mirror follows.
    Retry(&'a str),
    /// The transfer has ended, successfully or not.
    End,
    /// Another process fetches the image, and this one has waited for it for a second. Names the process if the system
    /// does, and the lock's file.
    Waiting(&'a str),
}

/// Receives the events of a fetch.
pub type FetchProgress<'p> = dyn for<'e> Progress<FetchEvent<'e>> + 'p;

/// A failure to fetch an image. The variant tells what may still help.
#[derive(Debug, Display)]
pub enum FetchError {
    /// A server can't be reached, or falls silent. Another one, or the same one later, may have the image.
    #[display("{_0}")]
    Unreachable(AnyFailure),
    /// What was found is not what was asked for. Another source may have it.
    #[display("{_0}")]
    NotTheImage(AnyFailure),
    /// The cause is on this machine: a file, the time limit of the download, or Ctrl-C. Another source does not help.
    #[display("{_0}")]
    Local(AnyFailure),
}

impl From<FetchError> for AnyFailure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Unreachable(failure) | FetchError::NotTheImage(failure) | FetchError::Local(failure) => failure,
        }
    }
}

impl From<Interrupted> for FetchError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Local(interrupted.into())
    }
}

/// A download of the whole file at one address.
pub(super) struct Transfer<'a> {
    pub(super) url: &'a str,
    pub(super) limits: &'a Limits,
    /// The end of all attempts together.
    pub(super) deadline: Instant,
    pub(super) progress: &'a mut FetchProgress<'a>,
    pub(super) interrupt: Interrupt<'a>,
}

/// Why an attempt failed.
enum AttemptError {
    /// The connection was cut, or the server fell silent: the same request may succeed the next time.
    Lost(Failure),
    /// It would fail again.
    Failed(FetchError),
}

impl Transfer<'_> {
    /// Downloads the file and returns its bytes. Starts over after a cut connection or a silent server.
    ///
    /// # Errors
    /// [`FetchError`].
    pub(super) fn download(mut self) -> Result<Vec<u8>, FetchError> {
        // The runtime drives the transfer in this thread. Between steps, Ctrl-C and the deadline are checked.
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| FetchError::Unreachable(unsent(self.url, &error.to_string()).into()))?;
        let mut tries = 0;
        let result = loop {
            let result = runtime.block_on(self.attempt());
            self.progress.event(FetchEvent::End);
            match result {
                Err(AttemptError::Lost(failure)) if tries < self.limits.retries => {
                    tries += 1;
                    self.progress.event(FetchEvent::Retry(&failure.to_string()));
                    let remaining = self.deadline.saturating_duration_since(Instant::now());
                    self.pause(remaining.min(self.limits.pause * tries))?;
                }
                Err(AttemptError::Lost(failure)) => break Err(FetchError::Unreachable(failure.into())),
                Err(AttemptError::Failed(error)) => break Err(error),
                Ok(bytes) => break Ok(bytes),
            }
        };
        runtime.shutdown_background();
        result
    }

    fn pause(&self, length: Duration) -> Result<(), FetchError> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.interrupt.check()?;
            thread::sleep(POLL.min(length));
        }
        Ok(())
    }

    async fn attempt(&mut self) -> Result<Vec<u8>, AttemptError> {
        let url = address::parse(self.url).map_err(|reason| not_found(unsent(self.url, &reason)))?;
        let (at, mut response) = self.awaited(self.answer(url), 0).await??;
        let (url, status) = (address::shown(at.as_str()), response.status().as_u16());
        if status != 200 {
            let label = Kind::BadInput.code("asmpatch::http::status");
            return Err(not_found(Failure::new(label, format!("the server answers {status} for {url}"))));
        }
        let (total, limit) = (response.content_length(), self.limits.bytes);
        let mut bytes = Vec::new();
        self.progress.event(FetchEvent::Begin { url: &url, total });
        loop {
            let received = bytes.len() as u64;
            if received.max(total.unwrap_or_default()) > limit {
                let label = Kind::BadInput.code("asmpatch::http::too_large");
                return Err(not_found(Failure::new(label, format!("{url} has more than {limit} bytes"))));
            }
            let more = self.awaited(response.chunk(), received).await?;
            let Some(more) = more.map_err(|error| self.failed(&error, &at, received, total))? else { return Ok(bytes) };
            if bytes.is_empty() && is_html(&more) {
                let label = Kind::BadInput.code("asmpatch::http::html");
                return Err(not_found(Failure::new(label, format!("{url} gives a web page, not a file"))));
            }
            bytes.extend_from_slice(&more);
            self.progress.event(FetchEvent::Advance(more.len() as u64));
        }
    }

    /// Follows redirects to an answer, and returns it with its address.
    async fn answer(&self, mut url: Url) -> Result<(Url, Response), AttemptError> {
        let limit = self.limits.redirects;
        for _ in 0..=limit {
            let client = client(&url, self.limits).map_err(unreachable)?;
            let response = client.get(url.clone()).send().await.map_err(|error| self.failed(&error, &url, 0, None))?;
            match self.next_hop(&url, &response)? {
                Some(next) => url = next,
                None => return Ok((url, response)),
            }
        }
        let label = Kind::BadInput.code("asmpatch::http::redirects");
        let url = address::shown(self.url);
        Err(not_found(Failure::new(label, format!("{url} leads through more than {limit} redirects"))))
    }

    /// Returns the address that an answer redirects to. A relative one keeps the user and the password; reqwest's own
    /// address of the answer has none.
    fn next_hop(&self, url: &Url, response: &Response) -> Result<Option<Url>, AttemptError> {
        let location = response.headers().get(header::LOCATION);
        let Some(location) = location.filter(|_| matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308))
        else {
            return Ok(None);
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        let next = url.join(&location).map_err(|error| error.to_string());
        let next = next.and_then(|next| address::parse(next.as_str()));
        let malformed = |reason| self.malformed(&format!("it redirects to {:?}: {reason}", address::shown(&location)));
        next.map(Some).map_err(malformed)
    }

    /// Waits for a step of a transfer, no longer than a server may be silent.
    async fn awaited<T>(&self, step: impl Future<Output = T>, received: u64) -> Result<T, AttemptError> {
        let mut step = pin!(step);
        let silent_until = Instant::now() + self.limits.silence;
        loop {
            self.interrupt.check().map_err(|interrupted| AttemptError::Failed(interrupted.into()))?;
            let (now, deadline) = (Instant::now(), self.limits.deadline);
            if now >= self.deadline {
                let label = Kind::System.code("asmpatch::http::deadline");
                let url = address::shown(self.url);
                let message = format!("the download of {url} is incomplete after {deadline:?}: {received} bytes");
                return Err(AttemptError::Failed(FetchError::Local(Failure::new(label, message).into())));
            }
            // Redirects and headers are one step: a server that sends them for ever counts as silent.
            if now >= silent_until {
                return Err(self.silent(self.limits.silence, received));
            }
            if let Ok(output) = timeout(POLL, &mut step).await {
                return Ok(output);
            }
        }
    }

    /// Makes the failure of a transfer from reqwest's error after `received` bytes. `at` is the address after redirects.
    fn failed(&self, error: &reqwest::Error, at: &Url, received: u64, expected: Option<u64>) -> AttemptError {
        let (url, reason) = (address::shown(self.url) + &through(at), root(error));
        if error.is_timeout() {
            return self.silent(self.limits.connect, received);
        }
        let is_tls = find(error, |_: &rustls::Error| true).is_some();
        // A server may close the connection during the TLS handshake. TCP's own handshake doesn't fail in this way.
        if is_tls || (error.is_connect() && find(error, is_cut).is_some()) {
            let label = Kind::System.code("asmpatch::http::tls");
            return unreachable(Failure::new(label, format!("no secure connection to the server of {url}: {reason}")));
        }
        if error.is_connect() {
            let label = Kind::System.code("asmpatch::http::connect");
            return unreachable(Failure::new(label, format!("no connection to the server of {url}: {reason}")));
        }
        let is_malformed = match causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).last() {
            // hyper reports a faulty chunk so.
            Some(error) => matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData),
            None => find(error, is_about_the_answer).is_some(),
        };
        if is_malformed {
            return self.malformed(&reason);
        }
        let expected = expected.map_or_else(String::new, |all| format!(" of {all}"));
        let label = Kind::System.code("asmpatch::http::cut_off");
        let message = format!("the connection for {url} was cut after {received} bytes{expected}");
        AttemptError::Lost(Failure::new(label, message))
    }

    fn silent(&self, waited: Duration, received: u64) -> AttemptError {
        let proxy = address::parse(self.url).map(|url| through(&url)).unwrap_or_default();
        let url = address::shown(self.url) + &proxy;
        let label = Kind::System.code("asmpatch::http::timeout");
        let message = format!("the server of {url} sent nothing for {waited:?}, after {received} bytes");
        AttemptError::Lost(Failure::new(label, message))
    }

    fn malformed(&self, reason: &str) -> AttemptError {
        let label = Kind::BadInput.code("asmpatch::http::malformed");
        let url = address::shown(self.url);
        not_found(Failure::new(label, format!("the server of {url} sends an invalid answer: {reason}")))
    }
}

fn unreachable(failure: Failure) -> AttemptError {
    AttemptError::Failed(FetchError::Unreachable(failure.into()))
}

fn not_found(failure: Failure) -> AttemptError {
    AttemptError::Failed(FetchError::NotTheImage(failure.into()))
}

/// Whether the bytes begin like a web page.
pub(super) fn is_html(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    let begins = |tag: &str| bytes.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()));
    ["<!doctype", "<html", "<head", "<?xml", "<!--"].into_iter().any(begins)
}

/// Finds an error of one type among an error and its causes.
fn find<E: StdError + 'static>(error: AnyError<'_>, matches: impl Fn(&E) -> bool) -> Option<&E> {
    causes(error).filter_map(|cause| cause.downcast_ref()).find(|cause| matches(cause))
}

/// Whether the error is about what the server sent, rather than about how the connection ended.
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
