//! HTTP: downloads one file from one address, and starts over after a cut.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;

use super::address;
use super::http_error::HttpError;
use super::limits::Limits;
use super::request::{self, Event};
use super::unpack::is_html;

/// How often to check for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

/// An event of fetching an image.
#[derive(Debug, Clone, Copy)]
pub enum FetchEvent<'a> {
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
}

/// Receives the events of a fetch.
pub type FetchProgress<'p> = dyn for<'e> Progress<FetchEvent<'e>> + 'p;

/// A download of the whole file at one address.
pub(super) struct Transfer<'a> {
    pub(super) url: &'a str,
    pub(super) limits: &'a Limits,
    /// The end of all attempts together.
    pub(super) deadline: Instant,
    pub(super) progress: &'a mut FetchProgress<'a>,
    pub(super) interrupt: Interrupt<'a>,
}

impl Transfer<'_> {
    /// Downloads the file and returns its bytes. Starts over after a cut connection or a silent server.
    ///
    /// # Errors
    /// [`HttpError`].
    pub(super) fn download(mut self) -> Result<Vec<u8>, HttpError> {
        let mut tries = 0;
        loop {
            let result = self.attempt();
            self.progress.event(FetchEvent::End);
            match result {
                Err(error) if error.is_transient() && tries < self.limits.retries => {
                    tries += 1;
                    self.progress.event(FetchEvent::Retry(&error.to_string()));
                    let left = self.deadline.saturating_duration_since(Instant::now());
                    self.pause(left.min(self.limits.pause * tries))?;
                }
                result => return result,
            }
        }
    }

    fn pause(&self, length: Duration) -> Result<(), HttpError> {
        let end = Instant::now() + length;
        while Instant::now() < end {
            self.interrupt.check()?;
            thread::sleep(POLL.min(length));
        }
        Ok(())
    }

    fn attempt(&mut self) -> Result<Vec<u8>, HttpError> {
        let url =
            address::parse(self.url).map_err(|reason| HttpError::Request { url: address::shown(self.url), reason })?;
        let events = request::send(url, self.limits);
        let mut bytes = Vec::new();
        let Event::Head { url, status, length: total } = self.next(&events, &bytes, None)? else {
            return Err(self.cut_off(&bytes, None));
        };
        if status != 200 {
            return Err(HttpError::Status { url, status });
        }
        let limit = self.limits.bytes;
        if total.is_some_and(|total| total > limit) {
            return Err(HttpError::TooLarge { url, limit });
        }
        self.progress.event(FetchEvent::Begin { url: &url, total });
        loop {
            match self.next(&events, &bytes, total)? {
                Event::Data(more) => {
                    if bytes.is_empty() && is_html(&more) {
                        return Err(HttpError::Html { url });
                    }
                    bytes.extend_from_slice(&more);
                    if bytes.len() as u64 > limit {
                        return Err(HttpError::TooLarge { url, limit });
                    }
                    self.progress.event(FetchEvent::Advance(more.len() as u64));
                }
                Event::End => return Ok(bytes),
                Event::Head { .. } | Event::Failed(_) => return Err(self.cut_off(&bytes, total)),
            }
        }
    }

    /// Waits for the next event, no longer than a server may be silent.
    fn next(&self, events: &Receiver<Event>, bytes: &[u8], expected: Option<u64>) -> Result<Event, HttpError> {
        let silent_until = Instant::now() + self.limits.silence;
        loop {
            self.interrupt.check()?;
            let (url, received) = (address::shown(self.url), bytes.len() as u64);
            let now = Instant::now();
            if now >= self.deadline {
                return Err(HttpError::Deadline { url, deadline: self.limits.deadline, received });
            }
            // Redirects and headers are no events: a server that sends them for ever counts as silent.
            if now >= silent_until {
                return Err(HttpError::Timeout { url, waited: self.limits.silence, received });
            }
            match events.recv_timeout(POLL) {
                Ok(Event::Failed(failure)) => return Err(failure.into_error(url, self.limits, received, expected)),
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.cut_off(bytes, expected)),
            }
        }
    }

    fn cut_off(&self, bytes: &[u8], expected: Option<u64>) -> HttpError {
        HttpError::CutOff { url: address::shown(self.url), received: bytes.len() as u64, expected }
    }
}
