//! An HTTP server on 127.0.0.1 that misbehaves on demand.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The parts of a request that tests look at.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
    /// Number of the request on this server, from 0.
    pub number: usize,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server that answers one request per connection with `answer`, then closes the connection.
    pub fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (answer, log, stopped) = (Arc::new(answer), Arc::clone(&requests), Arc::clone(&stop));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(mut stream), answer, log) = (stream, Arc::clone(&answer), Arc::clone(&log)) else { continue };
                thread::spawn(move || {
                    let Some(mut request) = read_request(&stream) else { return };
                    {
                        let mut log: std::sync::MutexGuard<'_, Vec<Request>> = log.lock().unwrap();
                        request.number = log.len();
                        log.push(request.clone());
                    }
                    answer(&request, &mut stream);
                });
            }
        });
        Self { address, requests, stop }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the accept call.
        let _ = TcpStream::connect(self.address);
    }
}

/// Reads one request's head. Returns `None` if the client hangs up.
fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let headers = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": ").map(|(key, value)| (key.to_owned(), value.to_owned())))
        .collect();
    Some(Request { path, headers, number: 0 })
}

/// Sends a head and a body. Ignores a client that has gone away.
pub fn send(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let _ = write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(body);
}

/// Sends a whole file.
pub fn send_file(stream: &mut TcpStream, body: &[u8]) {
    send(stream, &format!("200 OK\r\nContent-Length: {}", body.len()), body);
}
