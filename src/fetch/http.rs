//! HTTP: downloads one file from one address, and starts again if the connection is cut. Certificates, proxies and
//! names are the system's; an address is shown without its user's name and password.

use std::error::Error as StdError;
use std::net::ToSocketAddrs as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, io, iter, thread};

use asm2464::escape::Escape as _;
use asm2464::interrupt::{Interrupt, Interrupted};
use asm2464::progress::Progress;
use asm2464::{AnyFailure, Failure, Kind};
use derive_more::Display;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Proxy, Response, Url, header, redirect};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a transfer may take, and how much it may transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest wait for a connection.
    pub connect: Duration,
    /// The longest wait for a server's answer, with all redirects, and the longest silence within the answer.
    pub silence: Duration,
    /// The fewest bytes a second, over such a time: a server that sends fewer counts as silent.
    pub slowest: u64,
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
            // The images have 98 KB: three minutes.
            slowest: 500,
            deadline: Duration::from_secs(15 * 60),
            redirects: 10,
            bytes: 64 << 20,
            retries: 3,
            pause: Duration::from_millis(500),
        }
    }
}

const USER_AGENT: &str = concat!("asmpatch/", env!("CARGO_PKG_VERSION"));
/// The kinds of proxy that reqwest speaks to.
const PROXY_SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
/// The most characters of an address that are shown.
const MAX_SHOWN: usize = 200;
/// How often to check for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// An event of fetching an image.
#[derive(Debug, Clone, Copy)]
pub enum FetchEvent<'a> {
    /// A server is asked, and its answer waited for.
    Ask {
        /// The address as it may be shown.
        url: &'a str,
    },
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
    /// The source can't be reached, or doesn't have the image. Another one, or the same one later, may have it.
    Source(AnyFailure),
    /// The cause is on this machine: a file, the time limit of the download, or Ctrl-C. Another source does not help.
    Local(AnyFailure),
}

impl From<FetchError> for AnyFailure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Source(failure) | FetchError::Local(failure) => failure,
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
        let runtime = runtime.map_err(|error| FetchError::Source(unsent(self.url, &error.to_string()).into()))?;
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
                Err(AttemptError::Lost(failure)) => break Err(FetchError::Source(failure.into())),
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
        let url = parse_address(self.url).map_err(|reason| lasting(unsent(self.url, &reason)))?;
        self.progress.event(FetchEvent::Ask { url: &shown_address(self.url) });
        let (at, mut response) = self.awaited(self.answer(url), 0).await??;
        let (url, status) = (shown_address(at.as_str()), response.status().as_u16());
        if status != 200 {
            let label = Kind::BadInput.code("asmpatch::http::status");
            return Err(lasting(Failure::new(label, format!("the server answers {status} for {url}"))));
        }
        let (total, limit) = (response.content_length(), self.limits.bytes);
        let mut bytes = Vec::new();
        let (mut since, mut before) = (Instant::now(), 0);
        self.progress.event(FetchEvent::Begin { url: &url, total });
        loop {
            let received = bytes.len() as u64;
            if received.max(total.unwrap_or_default()) > limit {
                let label = Kind::BadInput.code("asmpatch::http::too_large");
                return Err(lasting(Failure::new(label, format!("{url} has more than {limit} bytes"))));
            }
            let more = self.awaited(response.chunk(), received).await?;
            let Some(more) = more.map_err(|error| self.failed(&error, &at, received, total))? else { return Ok(bytes) };
            if bytes.is_empty() && is_html(&more) {
                let label = Kind::BadInput.code("asmpatch::http::html");
                return Err(lasting(Failure::new(label, format!("{url} gives a web page, not a file"))));
            }
            if bytes.is_empty() {
                // While it grows, it would take twice as many.
                bytes.reserve_exact(total.unwrap_or_default().min(limit) as usize);
            }
            bytes.extend_from_slice(&more);
            let (silence, received) = (self.limits.silence, bytes.len() as u64);
            if since.elapsed() >= silence {
                let least = self.limits.slowest as f64 * silence.as_secs_f64();
                if ((received - before) as f64) < least && total != Some(received) {
                    let sent = received - before;
                    return Err(
                        self.timed_out(&format!("sent only {sent} bytes in {silence:?}, and {received} in all"))
                    );
                }
                (since, before) = (Instant::now(), received);
            }
            self.progress.event(FetchEvent::Advance(more.len() as u64));
        }
    }

    /// Follows redirects to an answer, and returns it with its address.
    async fn answer(&self, mut url: Url) -> Result<(Url, Response), AttemptError> {
        let limit = self.limits.redirects;
        for _ in 0..=limit {
            let client = client(&url, self.limits).map_err(lasting)?;
            let response = client.get(url.clone()).send().await.map_err(|error| self.failed(&error, &url, 0, None))?;
            match self.next_hop(&url, &response)? {
                Some(next) => url = next,
                None => return Ok((url, response)),
            }
        }
        let label = Kind::BadInput.code("asmpatch::http::redirects");
        let url = shown_address(self.url);
        Err(lasting(Failure::new(label, format!("{url} leads through more than {limit} redirects"))))
    }

    /// Returns the address that an answer redirects to. A relative one keeps the user and the password; reqwest's own
    /// address of the answer has none.
    fn next_hop(&self, url: &Url, response: &Response) -> Result<Option<Url>, AttemptError> {
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(header::LOCATION) else { return Ok(None) };
        let location = String::from_utf8_lossy(location.as_bytes());
        let next = url.join(&location).map_err(|error| error.to_string());
        match next.and_then(|next| parse_address(next.as_str())) {
            Ok(next) => Ok(Some(next)),
            Err(reason) => {
                let shown = shown_address(&location);
                Err(self.malformed(&format!("it redirects to {shown:?}: {reason}")))
            }
        }
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
                let url = shown_address(self.url);
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
        let (url, reason) = (shown_address(self.url) + &through(at), root(error));
        if error.is_timeout() {
            return self.silent(self.limits.connect, received);
        }
        let is_tls = find(error, |_: &rustls::Error| true).is_some();
        // A server may close the connection during the TLS handshake. TCP's own handshake doesn't fail in this way.
        if is_tls || (error.is_connect() && find(error, is_cut).is_some()) {
            let label = Kind::System.code("asmpatch::http::tls");
            return lasting(Failure::new(label, format!("no secure connection to the server of {url}: {reason}")));
        }
        if error.is_connect() {
            let reason = match looked_up_here(at) {
                // Neither the system's error of a socket nor the proxy's answer, so that of a look-up.
                Some(host) if find(error, is_look_up).is_some() => format!("{host}: {reason}"),
                _ => reason,
            };
            let label = Kind::System.code("asmpatch::http::connect");
            return lasting(Failure::new(label, format!("no connection to the server of {url}: {reason}")));
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
        self.timed_out(&format!("sent nothing for {waited:?}, after {received} bytes"))
    }

    fn timed_out(&self, how: &str) -> AttemptError {
        let proxy = parse_address(self.url).map(|url| through(&url)).unwrap_or_default();
        let url = shown_address(self.url) + &proxy;
        let label = Kind::System.code("asmpatch::http::timeout");
        AttemptError::Lost(Failure::new(label, format!("the server of {url} {how}")))
    }

    fn malformed(&self, reason: &str) -> AttemptError {
        let label = Kind::BadInput.code("asmpatch::http::malformed");
        let url = shown_address(self.url);
        lasting(Failure::new(label, format!("the server of {url} sends an invalid answer: {reason}")))
    }
}

/// The failure of a source that would fail again.
fn lasting(failure: Failure) -> AttemptError {
    AttemptError::Failed(FetchError::Source(failure.into()))
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

/// Makes the client for an address. Each redirect needs a new client: requests to this machine's loopback must not use
/// a proxy, and requests to other hosts must use the environment's proxy, if it names one.
///
/// # Errors
/// Fails if the environment's proxy is unusable, or the system lacks certificates.
fn client(url: &Url, limits: &Limits) -> Result<Client, Failure> {
    // Fails if a provider is already installed for the process: ring, or another one. Either works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .dns_resolver(Arc::new(Resolver))
        .connect_timeout(limits.connect);
    if is_loopback(url) {
        builder = builder.no_proxy();
        if url.scheme() == "http" {
            // The platform's certificates may be missing, and nothing needs them here.
            builder = builder.tls_certs_only([]);
        }
    } else if let Some((variable, value)) = unusable_proxy(url.scheme(), |name| env::var(name).ok()) {
        // The variable may also be in lower case.
        return Err(Failure::new(
            Kind::System.code("asmpatch::http::proxy"),
            format!("{variable}={} in the environment is not a proxy's address", without_user(&value).shown()),
        ));
    }
    builder.build().map_err(|error| unsent(url.as_str(), &root(&error)))
}

/// The proxy that a request to this address goes through, if there is one.
fn proxy_of(url: &Url) -> Option<Intercept> {
    if is_loopback(url) {
        return None;
    }
    Matcher::from_system().intercept(&url.as_str().parse().ok()?)
}

/// Names the proxy that a request to this address goes through, for messages; empty without one.
fn through(url: &Url) -> String {
    let Some(proxy) = proxy_of(url) else { return String::new() };
    let shown = without_user(proxy.uri().to_string().trim_end_matches('/')).shown().to_string();
    match proxy_variable(url.scheme(), |name| env::var(name).ok()) {
        Some((variable, _)) => format!(" through the proxy {variable}={shown}"),
        None => format!(" through the system's proxy {shown}"),
    }
}

/// Returns the host of an address that this host looks up itself although a proxy connects to it: SOCKS 4 and 5 take
/// addresses alone, as curl has it, and `socks4a` and `socks5h` ask for names to be sent.
fn looked_up_here(url: &Url) -> Option<&str> {
    let proxy = proxy_of(url)?;
    if matches!(proxy.uri().scheme_str(), Some("socks4" | "socks5")) { url.host_str() } else { None }
}

/// Whether it is the error of a name's look-up as the standard library has it: without a number, and without a cause.
fn is_look_up(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.get_ref().is_none()
}

/// Returns a proxy's address without user and password. In one that doesn't parse, a password may contain anything.
fn without_user(proxy: &str) -> String {
    proxy.rsplit_once('@').map_or_else(|| proxy.to_owned(), |(_, host)| format!("***@{host}"))
}

/// The failure of a request that can't be sent.
fn unsent(url: &str, reason: &str) -> Failure {
    let label = Kind::BadInput.code("asmpatch::http::request");
    Failure::new(label, format!("cannot send a request to {}: {reason}", shown_address(url)))
}

type AnyError<'a> = &'a (dyn StdError + 'static);

/// Lists an error and its causes, outermost first. [`io::Error`] hides the error that it wraps.
fn causes(error: AnyError<'_>) -> impl Iterator<Item = AnyError<'_>> {
    iter::successors(Some(error), |&cause| match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped as AnyError<'_>),
        None => cause.source(),
    })
}

/// Returns the innermost cause's message. The outer ones repeat the address, with its password.
fn root(error: AnyError<'_>) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

/// Asks the system for a host's addresses, in a thread of its own. reqwest's own resolver panics if no thread can start.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            let ask = move || {
                // reqwest sets the port. The system's error doesn't name the host, which may be a proxy's.
                let found = (name.as_str(), 0).to_socket_addrs();
                let _ = send
                    .send(found.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", name.as_str()))));
            };
            thread::Builder::new().spawn(ask)?;
            Ok(Box::new(receive.await??) as Addrs)
        })
    }
}

/// Returns the environment variable that names the proxy for addresses of this scheme, and its value.
fn proxy_variable(scheme: &str, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let by_scheme = if scheme == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    for name in [by_scheme, "ALL_PROXY"] {
        let value = variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
        if let Some(value) = value
            && !value.is_empty()
        {
            return Some((name, value));
        }
    }
    None
}

/// Returns the environment variable that should hold a proxy's address and doesn't, and its value. reqwest ignores such
/// a value, but without the proxy the server would see the user's address.
fn unusable_proxy(scheme: &str, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let (name, value) = proxy_variable(scheme, variable)?;
    let is_known = value
        .split_once("://")
        .is_none_or(|(scheme, _)| PROXY_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)));
    if is_known && Proxy::all(&value).is_ok() {
        return None;
    }
    Some((name, value))
}

/// Whether text begins like an address of any kind: `SCHEME://`.
pub(super) fn is_address(text: &str) -> bool {
    // Characters of a scheme: RFC 3986, 3.1.
    let is_in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.bytes().all(is_in_scheme))
}

/// Whether text begins like an address that can be downloaded from, in upper or lower case.
pub(super) fn is_http(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| is_http_scheme(scheme))
}

fn is_http_scheme(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Returns an address as messages show it: without the user's name and password, and not longer than [`MAX_SHOWN`].
pub(super) fn shown_address(address: &str) -> String {
    // Parsers skip any number of slashes here.
    let start = address.find("://").map_or(0, |at| at + ":".len());
    let start = address.len() - address[start..].trim_start_matches(['/', '\\']).len();
    let (scheme, rest) = address.split_at(start);
    // In an address that doesn't parse, a password may contain anything.
    let is_valid = Url::parse(address).is_ok();
    let host_end = match rest.find(['/', '\\', '?', '#']) {
        Some(end) if is_valid => end,
        _ => rest.len(),
    };
    let without_user = match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}***{}", &rest[at..]),
        None => address.to_owned(),
    };
    match without_user.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &without_user[..end]),
        None => without_user,
    }
}

/// Parses an address that can be downloaded from.
///
/// # Errors
/// Describes what is wrong with the address.
fn parse_address(address: &str) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| error.to_string())?;
    if is_http_scheme(url.scheme()) { Ok(url) } else { Err("only http and https can be downloaded".to_owned()) }
}

/// Whether an address leads to this machine's loopback, which a proxy can't reach.
fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusable(scheme: &str, variables: &[(&str, &str)]) -> Option<&'static str> {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        unusable_proxy(scheme, value).map(|(name, _)| name)
    }

    #[test]
    fn a_proxy_is_a_host_or_an_address_that_reqwest_can_use() {
        for value in
            ["proxy", "proxy:3128", "http://me:secret@proxy:3128/", "HTTPS://proxy", "socks5h://[::1]:1080", ""]
        {
            assert_eq!(unusable("http", &[("http_proxy", value)]), None, "{value}");
        }
        for value in ["ftp://proxy:21", "http://", "http://me:pass/word@proxy:1", "proxy:port"] {
            assert_eq!(unusable("http", &[("http_proxy", value)]), Some("HTTP_PROXY"), "{value}");
        }
    }

    #[test]
    fn only_the_variable_that_applies_is_checked() {
        let variables = [("HTTPS_PROXY", "ftp://a"), ("HTTP_PROXY", "b"), ("ALL_PROXY", "ftp://c")];
        assert_eq!(unusable("https", &variables), Some("HTTPS_PROXY"));
        assert_eq!(unusable("http", &variables), None);
        assert_eq!(unusable("http", &variables[2..]), Some("ALL_PROXY"));
    }

    #[test]
    fn a_scheme_is_an_address_in_any_case_and_a_path_is_a_file() {
        for address in ["http://h/a", "HTTPS://h/a", "Http://h"] {
            assert!(is_address(address) && is_http(address) && parse_address(address).is_ok(), "{address}");
        }
        assert!(is_address("ftp://me:secret@h/") && !is_http("ftp://h/") && parse_address("ftp://h/").is_err());
        for file in ["fw.zip", "a/b://c", "C:\\fw.zip", "://", "http:/h"] {
            assert!(!is_address(file), "{file}");
        }
    }

    #[test]
    fn users_and_passwords_are_not_shown() {
        for (address, expected) in [
            ("https://me:secret@h:8/a@b?c=d@e", "https://***@h:8/a@b?c=d@e"),
            ("https://secret@h", "https://***@h"),
            ("HTTP:////me:secret@h/", "HTTP:////***@h/"),
            ("http://me:se@cret@h/", "http://***@h/"),
            // Not valid: the port is not a number.
            ("http://me:sec/ret@h/", "http://***@h/"),
            ("ftp://me:secret@h/", "ftp://***@h/"),
            ("https://h/a@b", "https://h/a@b"),
            ("https://h", "https://h"),
        ] {
            assert_eq!(shown_address(address), expected);
        }
    }

    #[test]
    fn an_over_long_address_is_cut() {
        let long = format!("http://h/{}", "\u{fc}".repeat(5000));
        let short = shown_address(&long);
        assert_eq!(short.chars().count(), MAX_SHOWN + "...".len());
        assert!(long.starts_with(short.trim_end_matches('.')));
    }

    #[test]
    fn this_machine_has_several_addresses() {
        for (address, expected) in [
            ("http://127.0.0.1:80/", true),
            ("http://127.9.9.9/", true),
            ("http://[::1]/", true),
            ("http://LocalHost/", true),
            ("http://192.0.2.1/", false),
            ("https://example.org/127.0.0.1", false),
        ] {
            assert_eq!(is_loopback(&parse_address(address).unwrap()), expected, "{address}");
        }
    }
}
