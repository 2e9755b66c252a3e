//! The socket that QEMU connects to: `unix:PATH`.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use derive_more::Display;
use thiserror::Error;

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

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected `unix:PATH`, as in `unix:/tmp/bridge.sock`")]
pub struct ParseAddressError;

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self(PathBuf::from(path))),
            _ => Err(ParseAddressError),
        }
    }
}

/// Reasons the server can't listen.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Another server listens there.
    #[error("{address}: another program listens there")]
    InUse {
        /// The address.
        address: Address,
    },
    /// A file that is not a socket has this name. The server does not remove it.
    #[error("{address} exists and is not a socket")]
    NotASocket {
        /// The address.
        address: Address,
    },
    /// The system reported an error.
    #[error("cannot listen on {address}")]
    Io {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
}

asm2464::coded!(ListenError {
    InUse => Refused "asm2464::serve::in_use",
    NotASocket => BadInput "asm2464::serve::not_a_socket",
    Io => System "asm2464::serve::listen",
});

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
    /// [`ListenError`].
    pub fn bind(address: &Address) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io { address: address.clone(), source };
        match std::fs::symlink_metadata(&address.0) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ListenError::NotASocket { address: address.clone() });
            }
            Ok(_) if UnixStream::connect(&address.0).is_ok() => {
                return Err(ListenError::InUse { address: address.clone() });
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
