//! Interrupted transfers that resume with Range and If-Range.

use super::*;

#[test]
fn a_cut_transfer_goes_on_where_it_stopped() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|request, stream| {
        let bytes = image();
        match request.range_start() {
            None => {
                send(stream, &format!("200 OK\r\nETag: \"v1\"\r\nContent-Length: {}", bytes.len()), &bytes[..50_000]);
            }
            Some(start) => {
                assert_eq!(request.header("if-range"), Some("\"v1\""));
                let range = format!("Content-Range: bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
                let length = bytes.len() - start;
                send(stream, &format!("206 Partial\r\n{range}\r\nContent-Length: {length}"), &bytes[start..]);
            }
        }
    });
    assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
    let starts: Vec<_> = server.requests().iter().map(|request| request.range_start()).collect();
    assert_eq!(starts, [None, Some(50_000)]);
}

#[test]
fn a_transfer_that_stays_cut_is_taken_up_by_the_next_run() {
    let cache = tempfile::tempdir().unwrap();
    let whole = Arc::new(AtomicBool::new(false));
    let serves_whole = Arc::clone(&whole);
    let server = Server::start(move |request, stream| {
        let bytes = image();
        let start = request.range_start().unwrap_or(0);
        let end = if serves_whole.load(Ordering::Relaxed) { bytes.len() } else { start + 10_000 };
        let status = if start == 0 { "200 OK" } else { "206 Partial" };
        let range = format!("Content-Range: bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
        let date = "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT";
        let length = bytes.len() - start;
        send(stream, &format!("{status}\r\n{range}\r\n{date}\r\nContent-Length: {length}"), &bytes[start..end]);
    });
    let error = http_error(fetch_url(cache.path(), &server.url("/"), &limits()));
    let total = image().len() as u64;
    assert!(
        matches!(error, HttpError::CutOff { received: 30_000, expected: Some(expected), .. } if expected == total),
        "{error}"
    );
    whole.store(true, Ordering::Relaxed);
    assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
    let last = server.requests().pop().unwrap();
    assert_eq!(last.range_start(), Some(30_000));
    assert_eq!(last.header("if-range"), Some("Wed, 21 Oct 2015 07:28:00 GMT"));
    assert_eq!(files(&cache.path().join("partial")), [""; 0]);
}

#[test]
fn a_server_that_ignores_range_is_started_over() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|request, stream| {
        let bytes = image();
        let end = if request.number == 0 { 40_000 } else { bytes.len() };
        send(stream, &format!("200 OK\r\nETag: \"v1\"\r\nContent-Length: {}", bytes.len()), &bytes[..end]);
    });
    assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
    assert_eq!(server.requests()[1].range_start(), Some(40_000));
}

#[test]
fn a_file_that_changed_on_the_server_is_started_over() {
    let cache = tempfile::tempdir().unwrap();
    let server = Server::start(|request, stream| {
        let bytes = image();
        if request.number == 0 {
            send(stream, &format!("200 OK\r\nETag: \"old\"\r\nContent-Length: {}", bytes.len()), &[7; 30_000]);
        } else {
            // RFC 9110: what a server sends if If-Range no longer matches.
            send(stream, &format!("200 OK\r\nETag: \"new\"\r\nContent-Length: {}", bytes.len()), &bytes);
        }
    });
    assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
}

#[test]
fn an_answer_for_another_range_is_not_pasted_in() {
    for answer in ["206 Partial\r\nContent-Range: bytes 5-9/100", "206 Partial", "416 No\r\nContent-Range: bytes */5"] {
        let cache = tempfile::tempdir().unwrap();
        let server = Server::start(move |request, stream| {
            let bytes = image();
            match request.number {
                0 => {
                    let head = format!("200 OK\r\nETag: \"v1\"\r\nContent-Length: {}", bytes.len());
                    send(stream, &head, &bytes[..30_000]);
                }
                1 => send(stream, &format!("{answer}\r\nContent-Length: 5"), b"wrong"),
                _ => send_file(stream, &bytes),
            }
        });
        assert_eq!(fetch_url(cache.path(), &server.url("/"), &limits()).unwrap().bytes, image());
        assert_eq!(server.requests()[2].range_start(), None, "{answer}");
    }
}
