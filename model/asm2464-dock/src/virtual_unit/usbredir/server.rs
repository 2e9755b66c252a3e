//! Serves one virtual unit to one guest after another, on the socket that QEMU connects to: `unix:PATH`.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use asm2464::interrupt::Interrupt;
use asm2464::progress::Progress;
use asm2464::{Failure, Kind, ParseError};
use derive_more::Display;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::guest::{GuestEvent, GuestSession};
use super::packets::Outbox;
use crate::virtual_unit::scenario::PowerOnState;
use crate::virtual_unit::unit::VirtualUnit;

/// Time after which the server gives up a peer that owes the rest of a packet or does not read its answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks for Ctrl-C.
const LOOK_UP: Duration = Duration::from_millis(100);
/// How long an answer may wait for others to be sent with it. Without this limit, a unit that works long on each
/// packet, such as firmware that moves data itself, would keep its guest idle until it has answered everything in
/// flight.
const ANSWER_PATIENCE: Duration = Duration::from_micros(300);
/// Bytes to read from the socket at once. A Unix socket of Linux holds about as many.
const READ_LEN: usize = 256 << 10;

/// Events for the user who runs the server.
#[derive(Debug)]
pub enum ServerEvent {
    /// A guest has connected.
    Connected,
    /// Something happened to the unit.
    Unit(GuestEvent),
    /// The guest left between two packets.
    Left,
    /// The server gave up the connection and unplugged the unit. It waits for the next guest.
    GivenUp(Failure),
}

/// Serves `unit` to one guest after another, until Ctrl-C. With `once`, serves only the first guest.
///
/// The first guest finds the unit as it was opened; each later guest finds it just plugged in. When a connection ends,
/// for any reason, the unit is unplugged.
///
/// # Errors
/// `asm2464::serve::wait` if the system can't wait for guests. An error of a connection only ends that connection.
pub fn serve(
    unit: &mut VirtualUnit,
    listener: &Listener,
    once: bool,
    interrupt: Interrupt<'_>,
    progress: &mut dyn Progress<ServerEvent>,
) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let message = format!("cannot wait for connections on {}", listener.address());
        Failure::new(Kind::Device.code("asm2464::serve::wait"), message).because(error)
    };
    let mut was_served = false;
    while !interrupt.is_requested() {
        wait(&listener.socket, PollFlags::IN, LOOK_UP).map_err(failed)?;
        // Drop replug requests: without a guest the unit has no power to lose.
        let _ = unit.takes_replug_request();
        let Some(peer) = listener.accept().map_err(failed)? else { continue };
        progress.event(ServerEvent::Connected);
        if was_served && unit.scenario().state != PowerOnState::Absent {
            unit.plug_in();
        }
        was_served = true;
        let ended = Connection::new(peer, unit).run(interrupt, progress);
        unit.unplug();
        match ended {
            Ok(()) => progress.event(ServerEvent::Left),
            Err(error) => progress.event(ServerEvent::GivenUp(error)),
        }
        if once {
            break;
        }
    }
    Ok(())
}

struct Connection<'u> {
    peer: UnixStream,
    session: GuestSession<'u>,
    inbox: Inbox,
    outbox: Outbox,
    /// Time at which a byte last moved.
    moved_at: Instant,
}

impl<'u> Connection<'u> {
    fn new(peer: UnixStream, unit: &'u mut VirtualUnit) -> Self {
        let mut outbox = Outbox::default();
        outbox.patience = Some(ANSWER_PATIENCE);
        outbox.hello();
        Self { peer, session: GuestSession::new(unit), inbox: Inbox::default(), outbox, moved_at: Instant::now() }
    }

    /// Serves until the peer leaves, or until Ctrl-C.
    fn run(mut self, interrupt: Interrupt<'_>, progress: &mut dyn Progress<ServerEvent>) -> Result<(), Failure> {
        let mut tell = |event| progress.event(ServerEvent::Unit(event));
        while !interrupt.is_requested() {
            self.write()?;
            let received = if self.outbox.is_full() { None } else { self.read()? };
            match received {
                Some(0) => return self.check_cut_off(),
                Some(_) => self.process_inbox(&mut tell)?,
                None => {
                    self.session.replug_where_asked();
                    // Requests that remained because the outbox was full.
                    self.process_inbox(&mut tell)?;
                    let until = self.settle(&mut tell)?;
                    self.refuse_silent_guest()?;
                    self.wait(until)?;
                }
            }
        }
        Ok(())
    }

    fn process_inbox(&mut self, tell: &mut dyn FnMut(GuestEvent)) -> Result<(), Failure> {
        loop {
            let used = self.session.receive(self.inbox.bytes(), &mut self.outbox, tell)?;
            self.inbox.consume(used);
            if !self.outbox.is_due() {
                return Ok(());
            }
            self.write()?;
        }
    }

    /// Reads what the peer has sent. Returns the number of bytes, 0 at the end; `None` if there is nothing yet.
    fn read(&mut self) -> Result<Option<usize>, Failure> {
        match self.peer.read(self.inbox.room()) {
            Ok(0) => Ok(Some(0)),
            Ok(count) => {
                self.inbox.end += count;
                self.moved_at = Instant::now();
                Ok(Some(count))
            }
            Err(error) if is_not_yet(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(0)),
            Err(error) => Err(connection_failed(error)),
        }
    }

    /// Checks that the peer left between two packets.
    fn check_cut_off(&self) -> Result<(), Failure> {
        let arrived = self.inbox.bytes().len();
        if arrived == 0 {
            return Ok(());
        }
        let message = format!("the peer disappeared in the middle of a packet, {arrived} bytes into it");
        Err(Failure::new(Kind::Device.code("asm2464::serve::cut_off"), message))
    }

    fn write(&mut self) -> Result<(), Failure> {
        while !self.outbox.unsent().is_empty() {
            match self.peer.write(self.outbox.unsent()) {
                Ok(count) => {
                    self.outbox.advance(count);
                    self.moved_at = Instant::now();
                }
                Err(error) if is_not_yet(&error) => break,
                // The next read shows whether the peer left between two packets.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    let unsent = self.outbox.unsent().len();
                    self.outbox.advance(unsent);
                }
                Err(error) => return Err(connection_failed(error)),
            }
        }
        self.outbox.was_offered();
        Ok(())
    }

    fn refuse_silent_guest(&self) -> Result<(), Failure> {
        let what = if self.outbox.is_full() {
            "does not read what it asked for"
        } else if !self.inbox.bytes().is_empty() {
            "owes the rest of a packet"
        } else if !self.outbox.unsent().is_empty() {
            "does not read what it asked for"
        } else if !self.session.is_greeted() {
            "does not say hello"
        } else {
            return Ok(());
        };
        if self.moved_at.elapsed() < PATIENCE {
            return Ok(());
        }
        let message = format!("no progress for {PATIENCE:?}: the peer {what}");
        Err(Failure::new(Kind::Device.code("asm2464::serve::stuck"), message))
    }

    /// Does what is due without a packet from the guest, and sends it. Returns the time until the next due event.
    fn settle(&mut self, tell: &mut dyn FnMut(GuestEvent)) -> Result<Duration, Failure> {
        loop {
            let _ = self.session.settle(&mut self.outbox, tell);
            let mut until = self.session.wake_in();
            let is_settled = until.is_some() || !self.session.settle(&mut self.outbox, tell);
            let is_due = self.outbox.is_due();
            // Send the latest answers before waiting for anything.
            self.write()?;
            if is_settled && !is_due {
                until = until.or_else(|| self.session.wake_in());
                return Ok(until.unwrap_or(LOOK_UP));
            }
        }
    }

    fn wait(&self, until: Duration) -> Result<(), Failure> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, !self.outbox.is_full());
        events.set(PollFlags::OUT, !self.outbox.unsent().is_empty());
        wait(&self.peer, events, until).map_err(connection_failed)
    }
}

/// The error of a connection that the system reports.
fn connection_failed(error: io::Error) -> Failure {
    Failure::new(Kind::Device.code("asm2464::serve::io"), "the connection failed").because(error)
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn wait(socket: &impl AsFd, events: PollFlags, longest: Duration) -> io::Result<()> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: longest.min(LOOK_UP).subsec_nanos().into() };
    match poll(&mut [PollFd::new(socket, events)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Received bytes that are not processed yet.
#[derive(Debug, Default)]
struct Inbox {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn bytes(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// Buffer for the next bytes. Moves the rest of an unfinished packet to the front first.
    fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let needed = self.end + READ_LEN;
        if self.storage.len() < needed {
            self.storage.resize(needed, 0);
        }
        &mut self.storage[self.end..]
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }
}

/// Address to listen on, written `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
#[display("unix:{}", _0.display())]
pub struct Address(PathBuf);

impl Address {
    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Address {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self(PathBuf::from(path))),
            _ => Err(ParseError("expected `unix:PATH`, as in `unix:/tmp/bridge.sock`".to_owned())),
        }
    }
}

/// A listening socket. Removes its file when dropped, unless another server has put its own there.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: UnixListener,
    address: Address,
    /// The file's device and inode. No other file gets them while the socket is open.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at the address. Replaces a socket that an ended server left behind.
    ///
    /// # Errors
    /// `asm2464::serve::in_use` if another server listens there; `asm2464::serve::not_a_socket` if a file that is no
    /// socket has this name, which stays; `asm2464::serve::listen` if the system fails.
    pub fn bind(address: &Address) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let label = Kind::System.code("asm2464::serve::listen");
            Failure::new(label, format!("cannot listen on {address}")).because(error)
        };
        match std::fs::symlink_metadata(&address.0) {
            Ok(found) if !found.file_type().is_socket() => {
                let label = Kind::BadInput.code("asm2464::serve::not_a_socket");
                return Err(Failure::new(label, format!("{address} exists and is not a socket")));
            }
            Ok(_) if UnixStream::connect(&address.0).is_ok() => {
                let label = Kind::Refused.code("asm2464::serve::in_use");
                return Err(Failure::new(label, format!("{address}: another program listens there")));
            }
            Ok(_) => std::fs::remove_file(&address.0).map_err(failed)?,
            Err(_) => {}
        }
        let socket = UnixListener::bind(&address.0).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Self { socket, address: address.clone(), file: file_at(&address.0) })
    }

    /// The address that it listens on.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Accepts the next connected peer, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((peer, _)) => {
                peer.set_nonblocking(true)?;
                Ok(Some(peer))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.file.is_some() && file_at(&self.address.0) == self.file {
            // If the file is gone already, nothing is lost.
            let _ = std::fs::remove_file(&self.address.0);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
