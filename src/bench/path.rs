//! The ways in which data goes through a bridge.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::pattern::WINDOW_LEN;
use crate::bridge::JobData;
use crate::scsi::{Command, XdataAddress};

/// Where XDATA shows the first 4 KiB of the data buffer. Source: the reference's XDATA map.
pub(super) const WINDOW_AT: u16 = 0xF000;
/// Bytes that READ(16) goes round in.
const READ_REACH: usize = 0x8_0000;

/// A way for data through the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Path {
    /// WRITE(16): host to data buffer by hardware DMA. What a GPU runtime sends with.
    #[serde(rename = "write16")]
    Write16,
    /// READ(16): data buffer to host by hardware DMA.
    #[serde(rename = "read16")]
    Read16,
    /// E4 as every firmware answers it, up to 255 bytes a command.
    #[serde(rename = "e4-255")]
    E4Stock,
    /// E4 with the length extension, up to 4,096 bytes a command.
    #[serde(rename = "e4-4096")]
    E4Extended,
}

impl Path {
    /// All, in the order in which they are measured: E4 first, which can compare what it reads with the pattern that the
    /// integrity check left, and READ(16) last, which hangs a unit without an SSD.
    pub const ALL: [Self; 4] = [Self::E4Stock, Self::E4Extended, Self::Write16, Self::Read16];

    /// Its name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write16 => "write16",
            Self::Read16 => "read16",
            Self::E4Stock => "e4-255",
            Self::E4Extended => "e4-4096",
        }
    }

    /// Whether it changes what is behind the bridge.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write16)
    }

    /// Whether it reads the window in which E4 sees the SRAM.
    pub const fn reads_window(self) -> bool {
        matches!(self, Self::E4Stock | Self::E4Extended)
    }

    /// The most bytes a command moves. 64 KiB is what tinygrad uses; the others are the firmware's own limits.
    pub const fn max_len(self) -> usize {
        match self {
            Self::Write16 | Self::Read16 => 0x1_0000,
            Self::E4Stock => 255,
            Self::E4Extended => 4096,
        }
    }

    /// Whether a command can move exactly this many bytes.
    pub const fn takes(self, len: usize) -> bool {
        let whole = match self {
            Self::Write16 | Self::Read16 => len.is_multiple_of(512),
            Self::E4Stock | Self::E4Extended => true,
        };
        len > 0 && len <= self.max_len() && whole
    }

    /// The sizes of a sweep, ascending.
    pub const fn sweep_sizes(self) -> &'static [usize] {
        match self {
            Self::Write16 | Self::Read16 => &[512, 4096, 16_384, 65_536],
            Self::E4Stock => &[16, 64, 255],
            Self::E4Extended => &[255, 1024, 4096],
        }
    }

    /// The `number`th command of a stream of commands of `len` bytes, and the byte of the window or the LBA's byte that
    /// it begins at. The stream goes round in 512 KiB, or in the window. WRITE(16) always names LBA 0: the SRAM's free
    /// slots decide where its data goes.
    pub(super) fn command(self, number: u64, len: usize) -> (Command, usize) {
        let reach = match self {
            Self::Write16 => len,
            Self::Read16 => READ_REACH,
            Self::E4Stock | Self::E4Extended => WINDOW_LEN,
        };
        let places = (reach / len).max(1) as u64;
        let at = (number % places) as usize * len;
        let command = match self {
            Self::Write16 => Command::Write16 { lba: (at / 512) as u64, blocks: (len / 512) as u32 },
            Self::Read16 => Command::Read16 { lba: (at / 512) as u64, blocks: (len / 512) as u32 },
            Self::E4Stock | Self::E4Extended => {
                Command::XdataRead { from: XdataAddress::main(WINDOW_AT + at as u16), len: len as u16 }
            }
        };
        (command, at)
    }

    pub(super) const fn job_data(self, len: usize) -> JobData {
        if self.writes() { JobData::Out(len) } else { JobData::In(len) }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write16 => "WRITE(16)",
            Self::Read16 => "READ(16)",
            Self::E4Stock => "E4 to 255",
            Self::E4Extended => "E4 to 4096",
        })
    }
}

/// A text that names no path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is none of write16, read16, e4-255, e4-4096")]
pub struct UnknownPath(pub String);

impl FromStr for Path {
    type Err = UnknownPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|path| path.name() == text).ok_or_else(|| UnknownPath(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_of_a_stream_leaves_what_its_path_reaches() {
        for path in Path::ALL {
            for &len in path.sweep_sizes() {
                assert!(path.takes(len));
                for number in 0..5000 {
                    let (command, at) = path.command(number, len);
                    assert_eq!(command.data().bytes() as usize, len);
                    let reach = if matches!(path, Path::E4Stock | Path::E4Extended) { 4096 } else { 512 * 1024 };
                    assert!(at + len <= reach, "{path} {len} {number}");
                }
            }
        }
    }

    #[test]
    fn a_path_refuses_what_no_command_of_it_can_move() {
        assert!(!Path::E4Stock.takes(256));
        assert!(!Path::E4Extended.takes(4097));
        assert!(!Path::Read16.takes(511));
        assert!(!Path::Write16.takes(0x1_0200));
        assert!(Path::ALL.iter().all(|path| !path.takes(0) && path.takes(path.max_len())));
    }
}
