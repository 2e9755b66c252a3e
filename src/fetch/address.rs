//! Recognises, parses and shows addresses from users, manifests and redirects.

use reqwest::Url;

/// The most characters of an address that are shown.
const MAX_SHOWN: usize = 200;

/// Whether text begins like an address of any kind: `SCHEME://`.
pub(super) fn is_address(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.bytes().all(is_in_scheme))
}

/// Whether text begins like an address that can be downloaded from, in upper or lower case.
pub(super) fn is_http(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| is_http_scheme(scheme))
}

fn is_http_scheme(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Characters of a scheme (RFC 3986, 3.1).
fn is_in_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

/// Returns an address as messages show it: without the user's name and password, and not longer than [`MAX_SHOWN`].
pub(super) fn shown(address: &str) -> String {
    // Parsers skip any number of slashes here.
    let start = address.find("://").map_or(0, |at| at + ":".len());
    let start = address.len() - address[start..].trim_start_matches(['/', '\\']).len();
    let (scheme, rest) = address.split_at(start);
    // In an address that doesn't parse, a password may contain anything.
    let is_valid = Url::parse(address).is_ok();
    let host_end = rest.find(['/', '\\', '?', '#']).filter(|_| is_valid).unwrap_or(rest.len());
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
pub(super) fn parse(address: &str) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| error.to_string())?;
    if is_http_scheme(url.scheme()) { Ok(url) } else { Err("only http and https can be downloaded".to_owned()) }
}

/// Whether an address leads to this machine's loopback, which a proxy can't reach.
pub(super) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_an_address_in_any_case_and_a_path_is_a_file() {
        for address in ["http://h/a", "HTTPS://h/a", "Http://h"] {
            assert!(is_address(address) && is_http(address) && parse(address).is_ok(), "{address}");
        }
        assert!(is_address("ftp://me:secret@h/") && !is_http("ftp://h/") && parse("ftp://h/").is_err());
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
            assert_eq!(shown(address), expected);
        }
    }

    #[test]
    fn an_over_long_address_is_cut() {
        let long = format!("http://h/{}", "\u{fc}".repeat(5000));
        let short = shown(&long);
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
            assert_eq!(is_loopback(&parse(address).unwrap()), expected, "{address}");
        }
    }
}
