//! HTTP: downloads one file from one address into a [`Partial`], and resumes it after a cut.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ureq::http::header::{self, HeaderName};
use ureq::http::response::Parts;
use ureq::http::uri::{InvalidUri, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::WithoutBody;
use ureq::{Proxy, RequestBuilder, ResponseExt};

use super::http_error::HttpError;
use super::partial::Partial;
use super::proxy::proxy_for;
use super::unpack::is_html;
use crate::interrupt::Interrupt;
use crate::progress::Progress;

const CHUNK: usize = 64 * 1024;
/// How often to check for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
const USER_AGENT: &str = concat!("asmpatch/", env!("CARGO_PKG_VERSION"));

/// How long a transfer may take, and how much it may transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest wait for a connection.
    pub connect: Duration,
    /// The longest silence of a server, before its answer and within it.
    pub silence: Duration,
    /// The longest that a download may take in total, with all attempts and mirrors, however slowly bytes arrive.
    pub deadline: Duration,
    /// The most redirects to follow.
    pub redirects: u32,
    /// The most bytes to accept.
    pub bytes: u64,
    /// How often an interrupted transfer is retried before it fails.
    pub retries: u32,
    /// The pause before each retry, multiplied by the retry's number.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            silence: Duration::from_secs(30),
            deadline: Duration::from_secs(15 * 60),
            redirects: 10,
            bytes: 64 << 20,
            retries: 3,
            pause: Duration::from_millis(500),
        }
    }
}

/// An event of fetching an image.
#[derive(Debug, Clone, Copy)]
pub enum FetchEvent<'a> {
    /// A transfer begins or resumes.
    Begin {
        /// The address, after all redirects.
        url: &'a str,
        /// How many bytes an earlier attempt has left.
        already: u64,
        /// The file's length in bytes, if the server tells it.
        total: Option<u64>,
    },
    /// This many more bytes are on disk.
    Advance(u64),
    /// The transfer failed for this reason. The next attempt or the next mirror follows.
    Retry(&'a str),
    /// The transfer has ended, successfully or not.
    End,
}

/// Receives the events of a fetch.
pub type FetchProgress<'p> = dyn for<'e> Progress<FetchEvent<'e>> + 'p;

/// A download of the whole file at one address.
pub(super) struct Transfer<'a> {
    pub(super) url: &'a str,
    /// The bytes so far.
    pub(super) partial: Partial,
    pub(super) limits: &'a Limits,
    /// The end of all attempts together.
    pub(super) deadline: Instant,
    pub(super) progress: &'a mut FetchProgress<'a>,
    pub(super) interrupt: Interrupt<'a>,
}

/// Messages from the thread that talks to the server.
enum Event {
    Head(Uri, Parts),
    Data(Vec<u8>),
    Failed(ureq::Error),
    End,
}

impl Transfer<'_> {
    /// Downloads the file and returns its bytes.
    ///
    /// Retries after a cut connection or a silent server. The retry resumes if the server has given a validator and
    /// honours Range, and starts over otherwise.
    ///
    /// # Errors
    /// [`HttpError`]. The bytes so far can then be resumed, unless they have no validator, are wrong, or fill the disk.
    pub(super) fn download(mut self) -> Result<Vec<u8>, HttpError> {
        let mut tries = 0;
        let result = loop {
            let result = self.attempt();
            self.progress.event(FetchEvent::End);
            match result {
                Err(error) if error.is_transient() && tries < self.limits.retries => {
                    tries += 1;
                    self.progress.event(FetchEvent::Retry(&error.to_string()));
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    self.pause(left.min(self.limits.pause * tries))?;
                }
                result => break result,
            }
        };
        let read =
            result.and_then(|()| self.partial.read_all(self.limits.bytes).map_err(|error| self.unwritable(error)));
        // There is nothing to resume after a complete transfer: bytes that turn out wrong must not be reused. On a full
        // disk, the partial file would only be in the way.
        if matches!(read, Ok(_) | Err(HttpError::Write { .. })) {
            self.partial.discard();
        }
        read
    }

    fn pause(&self, length: Duration) -> Result<(), HttpError> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.interrupt.check()?;
            thread::sleep(POLL.min(length));
        }
        Ok(())
    }

    fn attempt(&mut self) -> Result<(), HttpError> {
        let uri: Uri = escaped(self.url)
            .parse()
            .map_err(|error: InvalidUri| HttpError::Request { url: self.url.to_owned(), reason: error.to_string() })?;
        let proxy = proxy_for(&uri, |name| std::env::var(name).ok())?;
        let events = request(uri, proxy, self.partial.resume(), self.limits);
        let (url, total) = match self.next(&events, None)? {
            Event::Head(uri, head) => {
                let url = uri.to_string();
                let total = self.begin(&url, &head)?;
                (url, total)
            }
            Event::Failed(error) => return Err(HttpError::unanswered(self, error)),
            Event::Data(_) | Event::End => return Err(self.cut_off(None)),
        };
        if total.is_some_and(|total| total > self.limits.bytes) {
            return Err(HttpError::TooLarge { url, limit: self.limits.bytes });
        }
        self.progress.event(FetchEvent::Begin { url: &url, already: self.partial.received, total });
        loop {
            match self.next(&events, total)? {
                Event::Data(bytes) => {
                    if self.partial.received == 0 && is_html(&bytes) {
                        return Err(HttpError::Html { url });
                    }
                    if self.partial.received + bytes.len() as u64 > self.limits.bytes {
                        self.restart(None)?;
                        return Err(HttpError::TooLarge { url, limit: self.limits.bytes });
                    }
                    self.partial.append(&bytes).map_err(|error| self.unwritable(error))?;
                    self.progress.event(FetchEvent::Advance(bytes.len() as u64));
                }
                Event::Failed(error) => return Err(HttpError::unfinished(self, error, total)),
                // ureq reports a body that is shorter than its Content-Length. This checks the total of a resumed
                // transfer too.
                Event::End if total.is_none_or(|total| total == self.partial.received) => return Ok(()),
                Event::End | Event::Head(..) => return Err(self.cut_off(total)),
            }
        }
    }

    /// Checks status and headers, and prepares `partial` for the body. Returns the file's whole length if the server
    /// tells it.
    fn begin(&mut self, url: &str, head: &Parts) -> Result<Option<u64>, HttpError> {
        let text = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
        let length = text(header::CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
        let asked = self.partial.resume().map(|(from, _)| from);
        match (head.status.as_u16(), asked) {
            (200, _) => {
                self.restart(validator(text(header::ETAG), text(header::LAST_MODIFIED)))?;
                Ok(length)
            }
            (status @ (206 | 416), Some(asked)) => {
                let answer = match status {
                    206 => text(header::CONTENT_RANGE).unwrap_or("no Content-Range"),
                    // The server's file is shorter than the bytes we have: it is another file under the same validator.
                    _ => "416 Range Not Satisfiable",
                };
                match content_range(answer) {
                    Some((first, total)) if first == asked => Ok(total.or(length.map(|length| asked + length))),
                    _ => {
                        self.restart(None)?;
                        Err(HttpError::Range { url: url.to_owned(), asked, answer: answer.to_owned() })
                    }
                }
            }
            (status, _) => Err(HttpError::Status { url: url.to_owned(), status }),
        }
    }

    fn restart(&mut self, validator: Option<String>) -> Result<(), HttpError> {
        self.partial.restart(validator).map_err(|error| self.unwritable(error))
    }

    fn next(&self, events: &Receiver<Event>, expected: Option<u64>) -> Result<Event, HttpError> {
        loop {
            self.interrupt.check()?;
            if Instant::now() >= self.deadline {
                return Err(HttpError::overdue(self));
            }
            match events.recv_timeout(POLL) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.cut_off(expected)),
            }
        }
    }

    fn cut_off(&self, expected: Option<u64>) -> HttpError {
        HttpError::CutOff { url: self.url.to_owned(), received: self.partial.received, expected }
    }

    fn unwritable(&self, source: io::Error) -> HttpError {
        HttpError::Write { path: self.partial.path.clone(), source }
    }
}

/// Returns the validator that If-Range may carry: a strong ETag, otherwise the date (RFC 9110, 13.1.5).
fn validator(etag: Option<&str>, last_modified: Option<&str>) -> Option<String> {
    etag.filter(|etag| etag.starts_with('"')).or(last_modified).map(str::to_owned)
}

/// Parses `bytes 100-199/500`: returns the first byte, and the whole length if it is given.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _last) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, total))
}

/// Sends the request from its own thread, so that Ctrl-C and the deadline need not wait for a silent server. The thread
/// ends at the first event that nobody receives, or when the server has been silent for too long.
fn request(uri: Uri, proxy: Option<Proxy>, resume: Option<(u64, &str)>, limits: &Limits) -> Receiver<Event> {
    // Fails if a provider is already installed for the process: ring, or another one. Either works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let agent = ureq::Agent::config_builder()
        .user_agent(USER_AGENT)
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
        .proxy(proxy)
        .timeout_resolve(Some(limits.connect))
        .timeout_connect(Some(limits.connect))
        .timeout_per_read(Some(limits.silence))
        .timeout_per_write(Some(limits.silence))
        // Ends the thread if a server sends data without end that nobody takes, such as a redirect's body.
        .timeout_global(Some(limits.deadline))
        .max_redirects(limits.redirects)
        .http_status_as_error(false)
        .build()
        .new_agent();
    let mut request = agent.get(uri);
    if let Some((from, validator)) = resume {
        request = request.header(header::RANGE, format!("bytes={from}-")).header(header::IF_RANGE, validator);
    }
    let (send, receive) = sync_channel(4);
    thread::spawn(move || {
        let last = talk(request, &send).map_or_else(Event::Failed, |()| Event::End);
        let _ = send.send(last);
    });
    receive
}

fn talk(request: RequestBuilder<WithoutBody>, send: &SyncSender<Event>) -> Result<(), ureq::Error> {
    let response = request.call()?;
    let uri = response.get_uri().clone();
    let (head, body) = response.into_parts();
    if send.send(Event::Head(uri, head)).is_err() {
        return Ok(());
    }
    let mut body = body.into_reader();
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = body.read(&mut buffer)?;
        if read == 0 || send.send(Event::Data(buffer[..read].to_vec())).is_err() {
            return Ok(());
        }
    }
}

/// Escapes characters that people write in an address but a request line can't hold: spaces, letters outside ASCII.
fn escaped(url: &str) -> String {
    url.bytes()
        .map(|byte| if byte.is_ascii_graphic() { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_if_range_may_carry_is_a_validator() {
        let date = Some("Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(validator(Some("\"a\""), date), Some("\"a\"".to_owned()));
        assert_eq!(validator(Some("W/\"a\""), date).as_deref(), date);
        assert_eq!(validator(Some("W/\"a\""), None), None);
    }

    #[test]
    fn content_ranges_are_read_as_rfc_9110_writes_them() {
        assert_eq!(content_range("bytes 100-199/500"), Some((100, Some(500))));
        assert_eq!(content_range("bytes 100-199/*"), Some((100, None)));
        assert_eq!(content_range("bytes */500"), None);
        assert_eq!(content_range("no Content-Range"), None);
    }

    #[test]
    fn an_address_with_spaces_and_umlauts_is_escaped() {
        assert_eq!(escaped("https://h/a b/%20\u{fc}.zip?x=1"), "https://h/a%20b/%20%C3%BC.zip?x=1");
    }
}
