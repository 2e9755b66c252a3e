//! One request with its redirects, sent from a thread of its own, so that Ctrl-C and the deadline need not wait for a
//! server.

use std::env;
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use reqwest::blocking::{Client, Response};
use reqwest::{Proxy, Url, header, redirect};

use super::address;
use super::http_error::Failure;
use super::limits::Limits;

const CHUNK: usize = 64 * 1024;
const USER_AGENT: &str = concat!("asmpatch/", env!("CARGO_PKG_VERSION"));
/// The kinds of proxy that reqwest speaks to.
const PROXY_SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// Messages from the thread that talks to the server.
pub(super) enum Event {
    /// The answer begins.
    Head {
        /// The address after all redirects, as it may be shown.
        url: String,
        status: u16,
        /// The body's length in bytes, if the server tells it.
        length: Option<u64>,
    },
    Data(Vec<u8>),
    Failed(Failure),
    /// The body is complete.
    End,
}

/// Sends a request. The thread ends at the first event that nobody receives, or when the server is silent for too long.
pub(super) fn send(url: Url, limits: &Limits) -> Receiver<Event> {
    let (send, receive) = sync_channel(4);
    let limits = limits.clone();
    thread::spawn(move || {
        let last = talk(url, &limits, &send).map_or_else(Event::Failed, |()| Event::End);
        let _ = send.send(last);
    });
    receive
}

fn talk(url: Url, limits: &Limits, send: &SyncSender<Event>) -> Result<(), Failure> {
    let (url, mut response) = answer(url, limits)?;
    let (status, length) = (response.status().as_u16(), response.content_length());
    let head = Event::Head { url: address::shown(url.as_str()), status, length };
    if send.send(head).is_err() {
        return Ok(());
    }
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = response.read(&mut buffer).map_err(|error| Failure::Transfer(Box::new(error)))?;
        if read == 0 || send.send(Event::Data(buffer[..read].to_vec())).is_err() {
            return Ok(());
        }
    }
}

/// Follows redirects to an answer, and returns it with its address. Each hop gets its own client: this machine's loopback must not meet a proxy, and no
/// other host may be asked without one.
fn answer(mut url: Url, limits: &Limits) -> Result<(Url, Response), Failure> {
    for _ in 0..=limits.redirects {
        let client = client(&url, limits)?;
        let response = client.get(url.clone()).send().map_err(|error| Failure::Transfer(Box::new(error)))?;
        match next_hop(&url, &response)? {
            Some(next) => url = next,
            None => return Ok((url, response)),
        }
    }
    Err(Failure::Redirects)
}

/// Returns the address that an answer redirects to. A relative one keeps the user and the password; reqwest's own
/// address of the answer has none.
fn next_hop(url: &Url, response: &Response) -> Result<Option<Url>, Failure> {
    let location = response.headers().get(header::LOCATION);
    let Some(location) = location.filter(|_| matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308)) else {
        return Ok(None);
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    let next = url.join(&location).map_err(|error| error.to_string());
    next.and_then(|next| address::parse(next.as_str()))
        .map(Some)
        .map_err(|reason| Failure::Malformed(format!("it redirects to {:?}: {reason}", address::shown(&location))))
}

fn client(url: &Url, limits: &Limits) -> Result<Client, Failure> {
    // Fails if a provider is already installed for the process: ring, or another one. Either works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .connect_timeout(limits.connect)
        .timeout(limits.silence);
    if address::is_loopback(url) {
        builder = builder.no_proxy();
        if url.scheme() == "http" {
            // The platform's certificates may be missing, and nothing needs them here.
            builder = builder.tls_certs_only([]);
        }
    } else if let Some(variable) = unusable_proxy(url.scheme(), |name| env::var(name).ok()) {
        return Err(Failure::Proxy(variable));
    }
    builder.build().map_err(|error| Failure::Client(Box::new(error)))
}

/// Returns the environment's variable whose value should be a proxy's address and isn't. reqwest ignores such a value,
/// but without the proxy the server would see who asks.
fn unusable_proxy(scheme: &str, variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let by_scheme = if scheme == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    let (name, value) = [by_scheme, "ALL_PROXY"].into_iter().find_map(|name| {
        let value = variable(name).or_else(|| variable(&name.to_ascii_lowercase()))?;
        (!value.is_empty()).then_some((name, value))
    })?;
    let is_known = value
        .split_once("://")
        .is_none_or(|(scheme, _)| PROXY_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)));
    (!is_known || Proxy::all(&value).is_err()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unusable(scheme: &str, variables: &[(&str, &str)]) -> Option<&'static str> {
        unusable_proxy(scheme, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
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
}
