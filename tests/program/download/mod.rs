//! Downloads over HTTP, from servers that behave and from servers that don't.

mod process;
pub mod server;
mod tls;

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use asmpatch::cli::errors::Exit;

use asm2464::digest::Sha256Digest;
use asm2464::firmware::Image;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Kind};
use asmpatch::fetch::{Acquired, Cache, FetchError, FetchEvent, FetchProgress, Fetcher, Limits, Source};
use server::{Server, send, send_file};

/// An incompressible image, so that its transfer takes many reads.
fn image() -> Vec<u8> {
    let mut state = 1u32;
    let body = (0..0x1_4000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    Image::from_body(body.collect()).unwrap().to_file()
}

fn zip_of(name: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::{Cursor, Write};
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(bytes).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A manifest of [`image`] with these mirrors, all with the member `fw/image.bin`.
fn manifest(urls: &[String]) -> String {
    let bytes = image();
    let mut text = format!(
        "id = 'test'\nversion = '250102.85.00.00'\nchip = 'ASM2464PD'\nsize = {}\nsha256 = '{}'\n",
        bytes.len(),
        Sha256Digest::of(&bytes)
    );
    for url in urls {
        text.push_str(&format!("[[mirrors]]\nurl = '{url}'\nmember = 'fw/image.bin'\n"));
    }
    text
}

fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(20),
        silence: Duration::from_secs(20),
        retries: 2,
        pause: Duration::ZERO,
        ..Limits::default()
    }
}

fn fetch_with(
    cache: &Path,
    urls: &[String],
    source: Option<&Source>,
    limits: &Limits,
    progress: &mut FetchProgress<'_>,
    interrupt: Interrupt<'_>,
) -> Result<Acquired, FetchError> {
    let mut known = asmpatch::embedded::manifests(&[]).unwrap();
    known.add("test.toml", &manifest(urls)).unwrap();
    let cache = Cache::at(cache);
    let mut fetcher = Fetcher { known: &known, cache: &cache, limits, offline: false, progress, interrupt };
    fetcher.acquire(known.by_id("test").unwrap(), source)
}

fn fetch(cache: &Path, urls: &[String]) -> Result<Acquired, FetchError> {
    fetch_with(cache, urls, None, &limits(), &mut (), Interrupt::never())
}

/// Downloads from one address without a manifest.
fn fetch_url(cache: &Path, url: &str, limits: &Limits) -> Result<Acquired, FetchError> {
    let source = Source::Url(url.to_owned());
    fetch_with(cache, &[], Some(&source), limits, &mut (), Interrupt::never())
}

/// The last part of the failure's code, and the failure.
fn failure(result: Result<Acquired, FetchError>) -> (&'static str, AnyFailure) {
    let failure = AnyFailure::from(result.unwrap_err());
    let code = failure.code().rsplit("::").next().unwrap();
    let is_network = matches!(code, "connect" | "tls" | "timeout" | "deadline" | "cut_off" | "no_network");
    let expected = if is_network { Exit::System } else { Exit::BadInput };
    assert_eq!(Exit::from(failure.kind()), expected, "{code}");
    (code, failure)
}

fn files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn nothing_is_kept(cache: &Path) {
    assert_eq!(files(&cache.join("images")), [""; 0]);
}

#[test]
fn an_image_comes_out_of_a_mirrors_zip_and_the_second_time_out_of_the_cache() {
    let cache = tempfile::tempdir().unwrap();
    let zip = zip_of("fw/image.bin", &image());
    let server = Server::start(move |_, stream| send_file(stream, &zip));
    let urls = [server.url("/fw.zip")];
    let first = fetch(cache.path(), &urls).unwrap();
    assert_eq!(first.bytes, image());
    assert_eq!(fs::read(&first.path).unwrap(), image());
    assert_eq!(first.source, Some(Source::Url(urls[0].clone())));
    assert!(first.place.unwrap().contains("fw/image.bin"));
    let second = fetch(cache.path(), &urls).unwrap();
    assert_eq!((second.source, second.bytes), (None, image()));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_damaged_file_in_the_cache_is_fetched_again() {
    let cache = tempfile::tempdir().unwrap();
    let zip = zip_of("fw/image.bin", &image());
    let server = Server::start(move |_, stream| send_file(stream, &zip));
    let urls = [server.url("/fw.zip")];
    let path = fetch(cache.path(), &urls).unwrap().path;
    fs::write(&path, b"damaged").unwrap();
    assert_eq!(fetch(cache.path(), &urls).unwrap().bytes, image());
    assert_eq!(fs::read(&path).unwrap(), image());
}

#[test]
fn mirrors_are_tried_in_order_until_one_gives_the_image() {
    let cache = tempfile::tempdir().unwrap();
    let good = zip_of("fw/image.bin", &image());
    let wrong = zip_of("fw/image.bin", &image()[1..]);
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/gone" => send(stream, "404 Not Found\r\nContent-Length: 0", b""),
        "/page" => send_file(stream, b"<!DOCTYPE html><title>Please wait</title>"),
        "/wrong" => send_file(stream, &wrong),
        "/good" => send_file(stream, &good),
        _ => panic!("a request after the good mirror"),
    });
    let urls = ["/gone", "/page", "/wrong", "/good", "/never"].map(|path| server.url(path));
    assert_eq!(fetch(cache.path(), &urls).unwrap().bytes, image());
    let paths: Vec<_> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/gone", "/page", "/wrong", "/good"]);
}

#[test]
fn when_no_mirror_gives_the_image_each_is_named_with_its_reason() {
    let cache = tempfile::tempdir().unwrap();
    let other = zip_of("other.bin", b"other");
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/gone" => send(stream, "404 Not Found\r\nContent-Length: 0", b""),
        _ => send_file(stream, &other),
    });
    let (code, error) = failure(fetch(cache.path(), &["/gone", "/other"].map(|path| server.url(path))));
    let attempts: Vec<_> = error.coded().related().into_iter().map(|attempt| attempt.code()).collect();
    assert_eq!((code, &*attempts), ("mirrors", &["asmpatch::http::status", "asmpatch::archive::missing"][..]));
    nothing_is_kept(cache.path());
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|request, stream| match request.path.as_str() {
        "/here" => send_file(stream, &image()),
        "/loop" => send(stream, "302 Found\r\nLocation: /loop\r\nContent-Length: 0", b""),
        _ => send(stream, "301 Moved\r\nLocation: /here\r\nContent-Length: 0", b""),
    });
    let (code, error) = failure(fetch_url(cache.path(), &server.url("/loop"), &limits()));
    assert_eq!(code, "redirects", "{error}");
    assert_eq!(server.requests().len(), 11);
    assert_eq!(fetch_url(cache.path(), &server.url("/moved"), &limits()).unwrap().bytes, image());
}

#[test]
fn each_wrong_answer_has_its_own_error_and_nothing_is_kept() {
    let (bytes, page) = (image(), b"\n<html><body>Log in to download</body></html>");
    let length = |len: usize| format!("200 OK\r\nContent-Length: {len}");
    let status = |status: u16| (format!("{status} No\r\nContent-Length: 0"), format!("answers {status} for"));
    let statuses = [403, 404, 500, 503].map(status);
    // What the server sends; the error, and how often the server is asked.
    let mut cases = vec![
        (length(bytes.len() + 1), &bytes[..], "cut_off", "", 3),
        (length(1000), &bytes, "size", "has 1000 bytes", 1),
        (length(page.len()), page, "html", "", 1),
    ];
    cases.extend(statuses.iter().map(|(head, says)| (head.clone(), &b""[..], "status", says.as_str(), 1)));
    for (head, body, code, says, asked) in cases {
        let cache = tempfile::tempdir().unwrap();
        let body = body.to_vec();
        let server = Server::start(move |_, stream| send(stream, &head, &body));
        let (found, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits()));
        assert!(found == code && error.to_string().contains(says), "{code} {says}: {error}");
        if code != "status" {
            assert_eq!(server.requests().len(), asked, "{code}");
        }
        nothing_is_kept(cache.path());
    }
}

/// A server that sends this much of an image that it announces, and then nothing until the sender is dropped.
fn silent_after(len: usize) -> (Server, Sender<()>) {
    let (release, wait) = channel();
    let wait = Mutex::new(wait);
    let server = Server::start(move |_, stream| {
        if len > 0 {
            send(stream, "200 OK\r\nContent-Length: 60000", &image()[..len]);
        }
        let _ = wait.lock().unwrap().recv();
    });
    (server, release)
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    // The first bytes need time to arrive on a busy machine.
    for (sent, silence) in [(0, Duration::from_millis(100)), (20_000, Duration::from_secs(3))] {
        let cache = tempfile::tempdir().unwrap();
        let (server, _release) = silent_after(sent);
        let limits = Limits { silence, retries: 0, ..limits() };
        let (code, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits));
        assert!(code == "timeout" && error.to_string().ends_with(&format!("after {sent} bytes")), "{error}");
        nothing_is_kept(cache.path());
    }
}

#[test]
fn a_server_that_trickles_for_ever_meets_the_deadline() {
    use std::io::Write;
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|_, stream| {
        send(stream, "200 OK\r\nContent-Length: 1000000", b"");
        while stream.write_all(b"x").and_then(|()| stream.flush()).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let limits = Limits { deadline: Duration::from_millis(400), ..limits() };
    let (code, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits));
    assert_eq!(code, "deadline", "{error}");
}

#[test]
fn a_server_that_trickles_is_given_up_long_before_the_deadline() {
    use std::io::Write;
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|_, stream| {
        send(stream, "200 OK\r\nContent-Length: 1000000", b"");
        while stream.write_all(b"x").and_then(|()| stream.flush()).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let limits = Limits { silence: Duration::from_millis(400), retries: 0, ..limits() };
    let (code, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits));
    assert!(code == "timeout" && error.to_string().contains("sent only"), "{error}");
    nothing_is_kept(cache.path());
}

#[test]
fn headers_that_trickle_and_redirects_that_dawdle_count_as_silence() {
    use std::io::Write;
    let trickle = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X: y\r\n").and_then(|()| stream.flush()).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let dawdle = Server::start(|_, stream| {
        thread::sleep(Duration::from_millis(100));
        send(stream, "302 Found\r\nLocation: /loop\r\nContent-Length: 0", b"");
    });
    for server in [trickle, dawdle] {
        let cache = tempfile::tempdir().unwrap();
        let limits = Limits { silence: Duration::from_millis(400), retries: 0, ..limits() };
        let (code, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits));
        assert!(code == "timeout" && error.to_string().ends_with("after 0 bytes"), "{error}");
    }
}

#[test]
fn a_redirect_with_an_endless_body_is_followed_without_it() {
    use std::io::Write;
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|request, stream| match request.path.as_str() {
        "/here" => send_file(stream, &image()),
        _ => {
            send(stream, "302 Found\r\nLocation: /here", b"");
            while stream.write_all(&[0; 4096]).is_ok() {}
        }
    });
    assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
}

#[test]
fn an_answer_that_makes_no_sense_is_the_fault_of_the_server_and_not_of_the_address() {
    for answer in [
        "220 ftp.example.org ready\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        "HTTP/1.1 302 Found\r\nLocation: ftp://me:secret@127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    ] {
        use std::io::Write;
        let cache = tempfile::tempdir().unwrap();
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(answer.as_bytes());
        });
        let (code, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits()));
        assert_eq!(code, "malformed", "{answer:?}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_server_that_speaks_first_is_not_a_web_server() {
    use std::io::Write;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.write_all(b"220 ready\r\n");
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    let cache = tempfile::tempdir().unwrap();
    let (code, error) = failure(fetch_url(cache.path(), &format!("http://{address}/"), &limits()));
    assert_eq!(code, "malformed", "{error}");
}

#[test]
fn an_invalid_address_is_refused_and_its_password_is_not_shown() {
    for (address, shown) in [
        ("ftp://me:secret@127.0.0.1/fw.zip", "ftp://***@127.0.0.1/fw.zip"),
        ("http://me:secret@127.0.0.1:port/", "http://***@127.0.0.1:port/"),
        ("http://", "http://"),
    ] {
        let cache = tempfile::tempdir().unwrap();
        let (code, error) = failure(fetch_url(cache.path(), address, &limits()));
        assert!(code == "request" && error.to_string().contains(&format!("to {shown}: ")), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_cut_transfer_starts_over() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|request, stream| {
        let bytes = image();
        let end = if request.number == 0 { 50_000 } else { bytes.len() };
        send(stream, &format!("200 OK\r\nETag: \"v1\"\r\nContent-Length: {}", bytes.len()), &bytes[..end]);
    });
    assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_server_that_cuts_and_cuts_again_meets_the_same_deadline() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|_, stream| send(stream, "200 OK\r\nContent-Length: 60000000", b"x"));
    // Each attempt yields a byte, so neither silence nor the number of attempts ends the download.
    let limits = Limits { deadline: Duration::from_millis(400), retries: u32::MAX, ..limits() };
    let urls = [server.url("/one"), server.url("/two")];
    let (code, error) = failure(fetch_with(cache.path(), &urls, None, &limits, &mut (), Interrupt::never()));
    assert_eq!(code, "deadline", "{error}");
    assert!(server.requests().iter().all(|request| request.path != "/two"), "another mirror gets no more time");
}

#[test]
fn nobody_listening_is_a_connection_failure() {
    let cache = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, error) = failure(fetch_url(cache.path(), &format!("http://{address}/"), &limits()));
    assert_eq!(code, "connect", "{error}");
}

#[test]
fn a_download_over_the_size_limit_is_refused_with_or_without_a_content_length() {
    for head in ["200 OK\r\nContent-Length: 60000", "200 OK"] {
        let cache = tempfile::tempdir().unwrap();
        let server = Server::start(move |_, stream| send(stream, head, &image()[..60_000]));
        let limits = Limits { bytes: 50_000, ..limits() };
        let (code, error) = failure(fetch_url(cache.path(), &server.url("/"), &limits));
        assert!(code == "too_large" && error.to_string().ends_with("more than 50000 bytes"), "{error}");
        nothing_is_kept(cache.path());
    }
}

#[test]
fn ctrl_c_ends_a_transfer_and_nothing_is_kept() {
    let cache = tempfile::tempdir().unwrap();
    let (server, _release) = silent_after(20_000);
    let stop = AtomicBool::new(false);
    let source = Source::Url(server.url("/"));
    let interrupt = Interrupt::watching(&stop);
    let mut progress = |event: FetchEvent<'_>| {
        if matches!(event, FetchEvent::Advance(_)) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let result = fetch_with(cache.path(), &[], Some(&source), &limits(), &mut progress, interrupt);
    assert_eq!(AnyFailure::from(result.unwrap_err()).kind(), Kind::Interrupted);
    nothing_is_kept(cache.path());
}

#[test]
fn downloads_at_the_same_time_fetch_an_image_once() {
    let cache = tempfile::tempdir().unwrap();
    let zip = zip_of("fw/image.bin", &image());
    let server = Server::start(move |_, stream| {
        thread::sleep(Duration::from_millis(100));
        send_file(stream, &zip);
    });
    let urls = [server.url("/fw.zip")];
    thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| fetch(cache.path(), &urls))).collect();
        for run in runs {
            assert_eq!(run.join().unwrap().unwrap().bytes, image());
        }
    });
    assert_eq!(server.requests().len(), 1);
    assert_eq!(files(&cache.path().join("images")).len(), 1);
}
