//! Paths of data through a bridge.

use std::fmt;
use std::str::FromStr;

use asm2464::scsi::{BLOCK_LEN, Command, XdataAddress};
use asm2464::sram::SECTOR_LEN;
use asm2464_host::bridge::JobData;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::pattern::WINDOW_LEN;
use crate::suggest::{nearest, question};

/// Bytes of the range that READ(16) cycles through.
const READ_REACH: usize = 0x8_0000;

/// A path of data through the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// WRITE(16): host to data buffer by hardware DMA. A GPU runtime sends data to the vendor's firmware this way.
    Write16,
    /// READ(16): data buffer to host by hardware DMA.
    Read16,
    /// E4 as every firmware supports it, up to 255 bytes a command.
    #[serde(rename = "e4-255")]
    E4Stock,
    /// E4 with the length extension, up to 4,096 bytes a command.
    #[serde(rename = "e4-4096")]
    E4Extended,
    /// A configuration read: one TLP and its completion.
    ConfigRead,
    /// A memory read of one dword: one TLP and its completion.
    TlpRead,
    /// Memory writes of one dword each, as many at once as the size has dwords: 1, 4 or 16.
    TlpWrite,
    /// F0, a stream of memory writes.
    F0Write,
    /// F0, a stream of memory reads.
    F0Read,
    /// F2: host to SRAM by hardware DMA. A GPU runtime sends data to the open firmware this way.
    F2Out,
    /// F2: SRAM to host by hardware DMA.
    F2In,
}

/// What is fixed about a path.
struct PathTraits {
    name: &'static str,
    words: &'static str,
    /// Commands move multiples of this many bytes.
    step: usize,
    /// The sizes of a sweep, in ascending order. The last is the most that a command moves.
    sizes: &'static [usize],
}

impl Path {
    /// All paths. Those of the vendor's firmware come first.
    pub const ALL: [Self; 11] = [
        Self::E4Stock,
        Self::E4Extended,
        Self::ConfigRead,
        Self::TlpRead,
        Self::TlpWrite,
        Self::Write16,
        Self::Read16,
        Self::F0Write,
        Self::F0Read,
        Self::F2Out,
        Self::F2In,
    ];
    /// Paths of the vendor's firmware in the order of measurement. E4 comes first, because it can compare its data with
    /// the pattern that the integrity check left. READ(16) comes last, because it hangs a unit without an SSD.
    pub const VENDOR: [Self; 7] = *Self::ALL.first_chunk().expect("the first 7 of all");
    /// Those that are SCSI commands.
    pub const SCSI: [Self; 4] = [Self::E4Stock, Self::E4Extended, Self::Write16, Self::Read16];
    /// Paths of the open firmware in the order of measurement.
    pub const OPEN: [Self; 8] = [
        Self::E4Stock,
        Self::ConfigRead,
        Self::TlpRead,
        Self::TlpWrite,
        Self::F0Write,
        Self::F0Read,
        Self::F2Out,
        Self::F2In,
    ];

    /// Returns them. tinygrad uses 64 KiB with WRITE(16), and 512 KiB is the whole SRAM. The firmware sets the limits
    /// of E4.
    const fn traits(self) -> PathTraits {
        let (name, words, step, sizes): (_, _, _, &[usize]) = match self {
            Self::Write16 => ("write16", "WRITE(16)", BLOCK_LEN, &[512, 4096, 16_384, 65_536]),
            Self::Read16 => ("read16", "READ(16)", BLOCK_LEN, &[512, 4096, 16_384, 65_536]),
            Self::E4Stock => ("e4-255", "E4 to 255", 1, &[16, 64, 255]),
            Self::E4Extended => ("e4-4096", "E4 to 4096", 1, &[255, 1024, 4096]),
            Self::ConfigRead => ("config-read", "config read", 4, &[4]),
            Self::TlpRead => ("tlp-read", "memory read", 4, &[4]),
            Self::TlpWrite => ("tlp-write", "memory write", 4, &[4, 16, 64]),
            Self::F0Write => ("f0-write", "F0 stream out", 4, &[64, 1024, 16_384, 65_536]),
            Self::F0Read => ("f0-read", "F0 stream in", 4, &[64, 1024, 16_384, 65_536]),
            Self::F2Out => ("f2-out", "F2 out", SECTOR_LEN, &[4096, 65_536, 262_144, 524_288]),
            Self::F2In => ("f2-in", "F2 in", SECTOR_LEN, &[4096, 65_536, 262_144, 524_288]),
        };
        PathTraits { name, words, step, sizes }
    }

    /// The path's name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        self.traits().name
    }

    /// Whether the path changes the bridge's SRAM, or memory behind the bridge. Each path stands here: one that is forgotten
    /// would run where an SSD is.
    pub const fn writes(self) -> bool {
        match self {
            Self::Write16 | Self::TlpWrite | Self::F0Write | Self::F2Out => true,
            Self::Read16
            | Self::E4Stock
            | Self::E4Extended
            | Self::ConfigRead
            | Self::TlpRead
            | Self::F0Read
            | Self::F2In => false,
        }
    }

    /// Whether the path reads the window in which E4 sees the SRAM.
    pub const fn reads_window(self) -> bool {
        matches!(self, Self::E4Stock | Self::E4Extended)
    }

    /// Whether the path sends single TLPs.
    pub const fn is_tlp(self) -> bool {
        matches!(self, Self::ConfigRead | Self::TlpRead | Self::TlpWrite)
    }

    /// Whether the path needs memory behind the bridge.
    pub const fn needs_memory(self) -> bool {
        matches!(self, Self::TlpRead | Self::TlpWrite | Self::F0Write | Self::F0Read)
    }

    /// Maximum number of bytes of a command.
    pub const fn max_len(self) -> usize {
        *self.sweep_sizes().last().expect("each path has sizes")
    }

    /// Whether a command can move exactly this many bytes.
    pub const fn takes(self, len: usize) -> bool {
        len > 0 && len <= self.max_len() && len.is_multiple_of(self.traits().step)
    }

    /// The default sizes: the largest, and for memory writes 1, 4 and 16 together.
    pub fn usual_sizes(self) -> Vec<usize> {
        if self == Self::TlpWrite { self.sweep_sizes().to_vec() } else { vec![self.max_len()] }
    }

    /// The sizes that are measured if none are named.
    pub(super) fn default_sizes(self, sweep: bool) -> Vec<usize> {
        if sweep { self.sweep_sizes().to_vec() } else { self.usual_sizes() }
    }

    /// The sizes of a sweep, in ascending order.
    pub const fn sweep_sizes(self) -> &'static [usize] {
        self.traits().sizes
    }

    /// The depths of the plan at which commands of this size are measured.
    ///
    /// WRITE(16) runs one at a time, as the GPU runtime sends it. Firmware with the status patch answers it before it
    /// has its data; executed on 240417 with several in flight, one ends with good status and no data moved. TLPs run
    /// one at a time to measure their latency, and memory writes together.
    pub(super) fn depths(self, size: usize, plan: &[usize]) -> Vec<usize> {
        match self {
            Self::Write16 | Self::ConfigRead | Self::TlpRead => vec![1],
            Self::TlpWrite => vec![size / 4],
            _ => plan.to_vec(),
        }
    }

    /// The `number`th SCSI command of a stream of commands of `len` bytes, with its first byte in the window or at its
    /// LBA; `None` for a path that is no SCSI command. The stream cycles through 512 KiB or through the window.
    /// WRITE(16) always names LBA 0: the SRAM's free slots decide where its data goes.
    pub(super) fn command(self, number: u64, len: usize) -> Option<(Command, usize)> {
        let reach = match self {
            Self::Write16 => len,
            Self::Read16 => READ_REACH,
            _ => WINDOW_LEN,
        };
        let places = (reach / len).max(1) as u64;
        let at = (number % places) as usize * len;
        let (lba, blocks) = ((at / BLOCK_LEN) as u64, (len / BLOCK_LEN) as u32);
        let command = match self {
            Self::Write16 => Command::Write16 { lba, blocks },
            Self::Read16 => Command::Read16 { lba, blocks },
            Self::E4Stock | Self::E4Extended => {
                Command::XdataRead { from: XdataAddress::SRAM_WINDOW.plus(at as u16), len: len as u16 }
            }
            _ => return None,
        };
        Some((command, at))
    }

    pub(super) const fn job_data(self, len: usize) -> JobData {
        if self.writes() { JobData::Out(len) } else { JobData::In(len) }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.traits().words)
    }
}

/// The text does not name a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not one of {names}{meant}", names = Path::ALL.map(Path::name).join(", "), meant = meant(.0))]
pub struct UnknownPath(pub String);

fn meant(text: &str) -> String {
    question(nearest(text, Path::ALL.map(Path::name)))
}

impl FromStr for Path {
    type Err = UnknownPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|path| path.name() == text).ok_or_else(|| UnknownPath(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use asm2464::scsi::DataLength;

    use super::*;

    #[test]
    fn a_mistyped_path_is_asked_about() {
        let error = "e4-25".parse::<Path>().unwrap_err().to_string();
        assert!(error.ends_with("f2-in (did you mean `e4-255`?)"), "{error}");
        assert!(!"zzz".parse::<Path>().unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn no_command_of_a_stream_leaves_what_its_path_reaches() {
        for path in Path::SCSI {
            for &len in path.sweep_sizes() {
                assert!(path.takes(len));
                for number in 0..5000 {
                    let (command, at) = path.command(number, len).unwrap();
                    assert_eq!(DataLength::of(&command.cdb()).unwrap().bytes() as usize, len);
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
        assert!(!Path::F0Write.takes(6) && !Path::F2Out.takes(513) && !Path::TlpRead.takes(8));
        assert!(Path::ALL.iter().all(|path| !path.takes(0) && path.takes(path.max_len())));
        assert!(Path::ALL.iter().all(|path| path.sweep_sizes().iter().all(|size| path.takes(*size))));
    }

    #[test]
    fn every_path_of_a_firmware_is_one_of_all_and_reads_back_by_its_name() {
        for path in Path::VENDOR.into_iter().chain(Path::OPEN).chain(Path::SCSI) {
            assert!(Path::ALL.contains(&path));
            assert_eq!(path.name().parse(), Ok(path));
            assert_eq!(serde_json::to_value(path).unwrap(), path.name());
        }
    }
}
