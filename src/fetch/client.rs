//! The HTTP client for an address: certificates, proxies, name resolution.

use std::error::Error as StdError;
use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::{env, io, iter, thread};

use asm2464::Kind;
use asm2464::escape::Escape as _;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Proxy, Url, redirect};
use tokio::sync::oneshot;

use super::address;
use super::limits::Limits;
use crate::failure::Failure;

const USER_AGENT: &str = concat!("asmpatch/", env!("CARGO_PKG_VERSION"));
/// The kinds of proxy that reqwest speaks to.
const PROXY_SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// Makes the client for an address. Each redirect needs a new client: requests to this machine's loopback must not use
/// a proxy, and requests to other hosts must use the environment's proxy, if it names one.
///
/// # Errors
/// Fails if the environment's proxy is unusable, or the system lacks certificates.
pub(super) fn client(url: &Url, limits: &Limits) -> Result<Client, Failure> {
    // Fails if a provider is already installed for the process: ring, or another one. Either works.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .dns_resolver(Arc::new(Resolver))
        .connect_timeout(limits.connect);
    if address::is_loopback(url) {
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

/// Names the proxy that a request to this address goes through, for messages; empty without one.
pub(super) fn through(url: &Url) -> String {
    let uri = url.as_str().parse::<hyper::Uri>().ok().filter(|_| !address::is_loopback(url));
    let Some(proxy) = uri.and_then(|uri| Matcher::from_system().intercept(&uri)) else { return String::new() };
    let shown = without_user(proxy.uri().to_string().trim_end_matches('/')).shown().to_string();
    match proxy_variable(url.scheme(), |name| env::var(name).ok()) {
        Some((variable, _)) => format!(" through the proxy {variable}={shown}"),
        None => format!(" through the system's proxy {shown}"),
    }
}

/// Returns a proxy's address without user and password. In one that doesn't parse, a password may contain anything.
fn without_user(proxy: &str) -> String {
    proxy.rsplit_once('@').map_or_else(|| proxy.to_owned(), |(_, host)| format!("***@{host}"))
}

/// The failure of a request that can't be sent.
pub(super) fn unsent(url: &str, reason: &str) -> Failure {
    let label = Kind::BadInput.code("asmpatch::http::request");
    Failure::new(label, format!("cannot send a request to {}: {reason}", address::shown(url)))
}

pub(super) type AnyError<'a> = &'a (dyn StdError + 'static);

/// Lists an error and its causes, outermost first. [`io::Error`] hides the error that it wraps.
pub(super) fn causes(error: AnyError<'_>) -> impl Iterator<Item = AnyError<'_>> {
    iter::successors(Some(error), |&cause| match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped as AnyError<'_>),
        None => cause.source(),
    })
}

/// Returns the innermost cause's message. The outer ones repeat the address, with its password.
pub(super) fn root(error: AnyError<'_>) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

/// Asks the system for a host's addresses, in a thread of its own. reqwest's own resolver panics if no thread can start.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            let ask = move || {
                // reqwest sets the port.
                let _ = send.send((name.as_str(), 0).to_socket_addrs());
            };
            thread::Builder::new().spawn(ask)?;
            Ok(Box::new(receive.await??) as Addrs)
        })
    }
}

/// Returns the environment variable that names the proxy for addresses of this scheme, and its value.
fn proxy_variable(scheme: &str, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let by_scheme = if scheme == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    [by_scheme, "ALL_PROXY"].into_iter().find_map(|name| {
        let value = variable(name).or_else(|| variable(&name.to_ascii_lowercase()))?;
        (!value.is_empty()).then_some((name, value))
    })
}

/// Returns the environment variable that should hold a proxy's address and doesn't, and its value. reqwest ignores such
/// a value, but without the proxy the server would see the user's address.
fn unusable_proxy(scheme: &str, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let (name, value) = proxy_variable(scheme, variable)?;
    let is_known = value
        .split_once("://")
        .is_none_or(|(scheme, _)| PROXY_SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)));
    (!is_known || Proxy::all(&value).is_err()).then_some((name, value))
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
}
