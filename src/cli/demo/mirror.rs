//! An HTTP server on 127.0.0.1 that stands in for a vendor's mirror.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long to wait for a client that has connected.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves one file, one client after another, until it is dropped.
pub struct MirrorServer {
    address: SocketAddr,
    path: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MirrorServer {
    /// Starts serving `bytes` under `/name`, on a port that the system chooses.
    ///
    /// # Errors
    /// Fails if no port can be listened on.
    pub fn start(name: &str, bytes: Vec<u8>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, path, stop) = (listener.local_addr()?, format!("/{name}"), Arc::new(AtomicBool::new(false)));
        let (served, stopped) = (path.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // Ignore errors: a client that has gone away needs no answer.
                let _ = client.and_then(|client| answer(client, &served, &bytes));
            }
        });
        Ok(Self { address, path, stop, thread: Some(thread) })
    }

    /// Returns the file's address.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.path)
    }
}

impl Drop for MirrorServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // This connection wakes the thread that waits for a client.
        let is_woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            let _ = thread.join();
        }
    }
}

/// Answers one GET as RFC 9112 requires, and closes the connection.
fn answer(mut client: TcpStream, path: &str, bytes: &[u8]) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(&client).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|header| !header.is_empty()) {}
    let is_there = request.split(' ').nth(1) == Some(path);
    let (status, body) = if is_there { ("200 OK", bytes) } else { ("404 Not Found", &[][..]) };
    write!(client, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    client.write_all(body)
}
