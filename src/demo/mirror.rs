//! An HTTP server on 127.0.0.1 that stands in for a vendor's mirror.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tiny_http::{Response, Server};

/// Serves one file until it is dropped.
pub struct Mirror {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    url: String,
}

impl Mirror {
    /// Serves `bytes` under `/name`, on a port of the system's choice.
    ///
    /// # Errors
    /// Where no port can be listened on.
    pub fn start(name: &str, bytes: Vec<u8>) -> io::Result<Self> {
        let server = Arc::new(Server::http("127.0.0.1:0").map_err(io::Error::other)?);
        let address = server.server_addr().to_ip().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let path = format!("/{name}");
        let url = format!("http://{address}{path}");
        let listening = Arc::clone(&server);
        let thread = thread::spawn(move || {
            for request in listening.incoming_requests() {
                // A client that has gone away needs no answer.
                let _ = if request.url() == path {
                    request.respond(Response::from_data(bytes.as_slice()))
                } else {
                    request.respond(Response::empty(404))
                };
            }
        });
        Ok(Self { server, thread: Some(thread), url })
    }

    /// The file's address.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
