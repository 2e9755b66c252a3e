//! Selects the proxy for an address from the environment, as curl does.

use std::net::IpAddr;

use ureq::Proxy;
use ureq::http::Uri;

use super::http_error::HttpError;

/// Returns the proxy that the environment, read through `variable`, names for `uri`.
///
/// `HTTPS_PROXY` or `HTTP_PROXY` applies by the scheme, otherwise `ALL_PROXY`, in upper or lower case. `None` for hosts
/// that `NO_PROXY` lists and for this machine, whose loopback no proxy reaches. On Windows, the proxy in the system
/// settings replaces variables that aren't set.
///
/// # Errors
/// [`HttpError::Proxy`] if the variable's value is not a proxy's address. Bypassing the proxy instead would show the
/// server who asks.
pub(super) fn proxy_for(uri: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Proxy>, HttpError> {
    let set =
        |name: &str| variable(name).or_else(|| variable(&name.to_ascii_lowercase())).filter(|text| !text.is_empty());
    let Some(host) = uri.host() else { return Ok(None) };
    let host = host.trim_matches(['[', ']']);
    if is_loopback(host) || set("NO_PROXY").is_some_and(|list| lists(&list, host)) {
        return Ok(None);
    }
    let by_scheme = if uri.scheme_str() == Some("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    for name in [by_scheme, "ALL_PROXY"] {
        if let Some(text) = set(name) {
            return Proxy::new(&text).map(Some).map_err(|_| HttpError::Proxy { variable: name });
        }
    }
    Ok(if cfg!(windows) { Proxy::try_from_env() } else { None })
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether `list`, the value of `NO_PROXY`, covers a host: `*`, the host, a parent domain, its address or its network.
fn lists(list: &str, host: &str) -> bool {
    let address = host.parse::<IpAddr>().ok();
    let host = host.to_ascii_lowercase();
    list.split(',').map(str::trim).any(|entry| {
        let domain = entry.trim_start_matches('.').to_ascii_lowercase();
        entry == "*"
            || match address {
                Some(address) => is_in_network(address, entry),
                None => host.strip_suffix(&domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            }
    })
}

/// Whether `network`, such as `10.0.0.0/8` or `10.1.2.3`, contains an address.
fn is_in_network(address: IpAddr, network: &str) -> bool {
    let (network, length) = network.split_once('/').unwrap_or((network, "128"));
    let (Ok(network), Ok(length)) = (network.parse(), length.parse::<u32>()) else { return false };
    let differs = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => u128::from(network.to_bits() ^ address.to_bits()) << 96,
        (IpAddr::V6(network), IpAddr::V6(address)) => network.to_bits() ^ address.to_bits(),
        _ => return false,
    };
    differs.leading_zeros() >= length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(url: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        proxy_for(&url.parse().unwrap(), variable).unwrap().map(|proxy| proxy.host().to_owned())
    }

    #[test]
    fn the_scheme_selects_the_proxy_and_all_proxy_stands_in() {
        let variables = [("HTTPS_PROXY", "http://secure:3128"), ("http_proxy", "plain"), ("ALL_PROXY", "all:1")];
        assert_eq!(proxy("https://example.org/", &variables).as_deref(), Some("secure"));
        assert_eq!(proxy("http://example.org/", &variables).as_deref(), Some("plain"));
        assert_eq!(proxy("http://example.org/", &variables[2..]).as_deref(), Some("all"));
        assert_eq!(proxy("http://example.org/", &[("HTTP_PROXY", ""), ("ALL_PROXY", "all")]).as_deref(), Some("all"));
    }

    #[test]
    fn loopback_needs_no_proxy() {
        for url in ["http://127.0.0.1:80/", "http://[::1]/", "http://localhost/"] {
            assert_eq!(proxy(url, &[("ALL_PROXY", "all")]), None, "{url}");
        }
        assert!(proxy("http://192.0.2.1/", &[("ALL_PROXY", "all")]).is_some());
        assert!(proxy("https://example.org/127.0.0.1", &[("ALL_PROXY", "all")]).is_some());
    }

    #[test]
    fn no_proxy_lists_hosts_domains_addresses_and_networks() {
        let direct = |list: &str, url: &str| proxy(url, &[("ALL_PROXY", "all"), ("no_proxy", list)]).is_none();
        for list in ["Example.org", ".example.org", "a, www.example.org", "*"] {
            assert!(direct(list, "https://www.EXAMPLE.org/"), "{list}");
        }
        for list in ["ample.org", "ww.example.org", "example.com", "10.0.0.0/8", ",", ""] {
            assert!(!direct(list, "https://www.example.org/"), "{list}");
        }
        assert!(direct("10.0.0.0/8", "http://10.1.2.3/") && direct("10.1.2.3", "http://10.1.2.3/"));
        assert!(!direct("10.0.0.0/8", "http://11.1.2.3/") && !direct("10.1.2.4,1.2.3", "http://10.1.2.3/"));
        assert!(direct("2001:db8::/32", "http://[2001:db8::1]/") && !direct("2001:db8::/32", "http://[2001:db9::1]/"));
        assert!(direct("0.0.0.0/0", "http://10.1.2.3/") && !direct("::/0", "http://10.1.2.3/"));
    }
}
