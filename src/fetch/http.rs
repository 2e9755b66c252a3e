//! HTTP: downloads one file from one address into a [`Partial`], and resumes it after a cut.

use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ureq::http::Uri;
use ureq::http::header::{self, HeaderMap, HeaderName};
use ureq::http::uri::InvalidUri;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Proxy, ResponseExt};

use super::http_error::HttpError;
use super::limits::Limits;
use super::partial::Partial;
use super::progress::{FetchEvent, FetchProgress};
use super::proxy::proxy_for;
use super::unpack::is_html;
use crate::interrupt::Interrupt;

const CHUNK: usize = 64 * 1024;
/// How often to check for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
const USER_AGENT: &str = concat!("asmpatch/", env!("CARGO_PKG_VERSION"));

/// Downloads the whole file at `url` into `partial`.
///
/// Retries after a cut connection or a silent server. The retry resumes if the server has given a validator and honours
/// Range, and starts over otherwise. All attempts together end at `deadline`.
///
/// # Errors
/// [`HttpError`]. What `partial` then holds can be resumed, unless it has no validator or its bytes are wrong.
pub fn download(
    url: &str,
    partial: &mut Partial,
    limits: &Limits,
    deadline: Instant,
    progress: &mut FetchProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<(), HttpError> {
    let mut tries = 0;
    loop {
        let result = attempt(url, partial, limits, deadline, progress, interrupt);
        progress.event(FetchEvent::End);
        match result {
            Err(error) if error.is_transient() && tries < limits.retries => {
                tries += 1;
                progress.event(FetchEvent::Retry(&error.to_string()));
                let left = deadline.saturating_duration_since(Instant::now());
                pause(left.min(limits.pause * tries), interrupt)?;
            }
            result => return result,
        }
    }
}

fn pause(length: Duration, interrupt: Interrupt<'_>) -> Result<(), HttpError> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        interrupt.check()?;
        thread::sleep(POLL.min(length));
    }
    Ok(())
}

/// Messages from the thread that talks to the server.
enum Event {
    Head { url: String, status: u16, headers: HeaderMap },
    Data(Vec<u8>),
    Failed(ureq::Error),
    End,
}

fn attempt(
    url: &str,
    partial: &mut Partial,
    limits: &Limits,
    deadline: Instant,
    progress: &mut FetchProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<(), HttpError> {
    let uri: Uri = escaped(url)
        .parse()
        .map_err(|error: InvalidUri| HttpError::Request { url: url.to_owned(), reason: error.to_string() })?;
    let proxy = proxy_for(&uri, |name| std::env::var(name).ok())?;
    let events = request(uri, proxy, partial.resume(), limits);
    let mut transfer = HttpTransfer { events, deadline, url, limits, interrupt };
    let (final_url, total) = match transfer.next(partial.received(), None)? {
        Event::Head { url, status, headers } => {
            let total = begin(&url, status, &headers, partial)?;
            (url, total)
        }
        Event::Failed(error) => return Err(HttpError::unanswered(url, error, limits, partial.received())),
        Event::Data(_) | Event::End => return Err(transfer.cut_off(partial.received(), None)),
    };
    if total.is_some_and(|total| total > limits.bytes) {
        return Err(HttpError::TooLarge { url: final_url, limit: limits.bytes });
    }
    progress.event(FetchEvent::Begin { url: &final_url, already: partial.received(), total });
    loop {
        match transfer.next(partial.received(), total)? {
            Event::Data(bytes) => {
                if partial.received() == 0 && is_html(&bytes) {
                    return Err(HttpError::Html { url: final_url });
                }
                if partial.received() + bytes.len() as u64 > limits.bytes {
                    restart(partial, None)?;
                    return Err(HttpError::TooLarge { url: final_url, limit: limits.bytes });
                }
                partial
                    .append(&bytes)
                    .map_err(|source| HttpError::Write { path: partial.path().to_owned(), source })?;
                progress.event(FetchEvent::Advance(bytes.len() as u64));
            }
            Event::Failed(error) => {
                return Err(HttpError::unfinished(url, error, limits, partial.received(), total));
            }
            // ureq reports a body that is shorter than its Content-Length. This checks the total of a resumed transfer
            // too.
            Event::End if total.is_none_or(|total| total == partial.received()) => return Ok(()),
            Event::End | Event::Head { .. } => return Err(transfer.cut_off(partial.received(), total)),
        }
    }
}

/// Checks status and headers, and prepares `partial` for the body. Returns the file's whole length if the server tells
/// it.
fn begin(url: &str, status: u16, headers: &HeaderMap, partial: &mut Partial) -> Result<Option<u64>, HttpError> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text(header::CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok());
    let asked = partial.resume().map(|(from, _)| from);
    match (status, asked) {
        (200, _) => {
            restart(partial, validator(text(header::ETAG), text(header::LAST_MODIFIED)))?;
            Ok(length)
        }
        (206, Some(asked)) => {
            let answer = text(header::CONTENT_RANGE).unwrap_or("no Content-Range");
            match content_range(answer) {
                Some((first, total)) if first == asked => Ok(total.or(length.map(|length| asked + length))),
                _ => {
                    let answer = answer.to_owned();
                    restart(partial, None)?;
                    Err(HttpError::Range { url: url.to_owned(), asked, answer })
                }
            }
        }
        // The server's file is shorter than the bytes we have: it is another file under the same validator.
        (416, Some(asked)) => {
            restart(partial, None)?;
            Err(HttpError::Range { url: url.to_owned(), asked, answer: "416 Range Not Satisfiable".to_owned() })
        }
        _ => Err(HttpError::Status { url: url.to_owned(), status }),
    }
}

fn restart(partial: &mut Partial, validator: Option<String>) -> Result<(), HttpError> {
    partial.restart(validator).map_err(|source| HttpError::Write { path: partial.path().to_owned(), source })
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

struct HttpTransfer<'a> {
    events: Receiver<Event>,
    deadline: Instant,
    url: &'a str,
    limits: &'a Limits,
    interrupt: Interrupt<'a>,
}

impl HttpTransfer<'_> {
    fn next(&mut self, received: u64, expected: Option<u64>) -> Result<Event, HttpError> {
        loop {
            self.interrupt.check()?;
            if Instant::now() >= self.deadline {
                return Err(HttpError::Deadline { url: self.url.to_owned(), deadline: self.limits.deadline, received });
            }
            match self.events.recv_timeout(POLL) {
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.cut_off(received, expected)),
            }
        }
    }

    fn cut_off(&self, received: u64, expected: Option<u64>) -> HttpError {
        HttpError::CutOff { url: self.url.to_owned(), received, expected }
    }
}

/// Sends the request from its own thread, so that Ctrl-C and the deadline need not wait for a silent server. The thread
/// ends at the first event that nobody receives, or when the server has been silent for too long.
fn request(uri: Uri, proxy: Option<Proxy>, resume: Option<(u64, &str)>, limits: &Limits) -> Receiver<Event> {
    let (send, receive) = sync_channel(4);
    let resume = resume.map(|(from, validator)| (from, validator.to_owned()));
    let limits = limits.clone();
    thread::spawn(move || {
        let last = match talk(uri, proxy, resume, &limits, &send) {
            Ok(()) => Event::End,
            Err(error) => Event::Failed(error),
        };
        let _ = send.send(last);
    });
    receive
}

fn talk(
    uri: Uri,
    proxy: Option<Proxy>,
    resume: Option<(u64, String)>,
    limits: &Limits,
    send: &SyncSender<Event>,
) -> Result<(), ureq::Error> {
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
        // Ends this thread if a server sends data without end that nobody takes, such as a redirect's body.
        .timeout_global(Some(limits.deadline))
        .max_redirects(limits.redirects)
        .http_status_as_error(false)
        .build()
        .new_agent();
    let mut request = agent.get(uri);
    if let Some((from, validator)) = resume {
        request = request.header(header::RANGE, format!("bytes={from}-")).header(header::IF_RANGE, validator);
    }
    let response = request.call()?;
    let head = Event::Head {
        url: response.get_uri().to_string(),
        status: response.status().as_u16(),
        headers: response.headers().clone(),
    };
    if send.send(head).is_err() {
        return Ok(());
    }
    let mut body = response.into_body().into_reader();
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
