//! The paths of data through a bridge, as a table.

use std::fmt;
use std::str::FromStr;

use asm2464::ParseError;
use asm2464::firmware::BridgeState;
use asm2464::scsi::{BLOCK_LEN, Command, XdataAddress};
use asm2464::sram::SRAM_SECTOR_LEN;
use derive_more::Display;
use serde::{Deserialize, Serialize};

use crate::suggest::question;

/// Bytes of the data buffer that XDATA shows at 0xF000.
pub(super) const WINDOW_LEN: usize = 4096;

/// Fixed properties of a path. Every path states all of them: one whose `writes` was forgotten would run on a unit with
/// an SSD.
struct PathProperties {
    /// The name on the command line and in JSON.
    name: &'static str,
    /// The name in tables.
    words: &'static str,
    /// The firmware that has it.
    on: &'static [BridgeState],
    /// Whether it changes the bridge's SRAM, or memory behind the bridge.
    writes: bool,
    sends: Sends,
    /// The check of the bytes that shows whether it works.
    check: Option<IntegrityCheck>,
    /// Commands move multiples of this many bytes.
    step: usize,
    /// The sizes of a sweep, in ascending order. The last is the most that a command moves.
    sizes: &'static [usize],
    depth: Depth,
    /// The published figures that it is compared with.
    published: &'static [Published],
    /// Its colour in pictures, from Okabe and Ito's palette, which people with any colour vision can distinguish. Paths
    /// that no firmware has together may share one.
    colour: [u8; 3],
}

const VENDOR: &[BridgeState] = &[BridgeState::Vendor];
const OPEN: &[BridgeState] = &[BridgeState::OpenFirmware];
const EITHER: &[BridgeState] = &[BridgeState::Vendor, BridgeState::OpenFirmware];

/// What a path sends.
#[derive(Clone, Copy)]
enum Sends {
    /// Single TLPs.
    Tlps,
    /// Streams and transfers that only the open firmware has.
    Transfers,
    /// Commands that the vendor's firmware takes as SCSI commands.
    Commands {
        /// Bytes of the window or of the LBA range that a stream of commands cycles through.
        reach: usize,
        /// The command of `len` bytes at a byte offset in that range.
        command: fn(at: usize, len: usize) -> Command,
    },
}

/// E4, which reads the window.
const E4: Sends = Sends::Commands {
    reach: WINDOW_LEN,
    command: |at, len| Command::XdataRead { from: XdataAddress::SRAM_WINDOW.plus(at as u16), len: len as u16 },
};
/// WRITE(16) always names LBA 0: the SRAM's free slots decide where its data goes.
const WRITE16: Sends =
    Sends::Commands { reach: 0, command: |_, len| Command::Write16 { lba: 0, blocks: (len / BLOCK_LEN) as u32 } };
/// READ(16) cycles through 512 KiB.
const READ16: Sends = Sends::Commands {
    reach: 0x8_0000,
    command: |at, len| Command::Read16 { lba: (at / BLOCK_LEN) as u64, blocks: (len / BLOCK_LEN) as u32 },
};

/// Checks of the bytes before the rows, as in [`Integrity`](super::Integrity).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum IntegrityCheck {
    /// The SRAM is filled by WRITE(16).
    #[display("pattern written through WRITE(16)")]
    Write16,
    /// The SRAM is filled by F2.
    #[display("pattern written through F2")]
    F2,
    /// E4 reads the window.
    #[display("read back through E4 at 0xF000")]
    E4,
    /// Memory behind the bridge is written and read.
    #[display("written to a GPU's memory, and back")]
    Memory,
}

/// Commands in flight.
#[derive(Clone, Copy)]
enum Depth {
    /// As the plan says.
    Planned,
    /// One at a time.
    One,
    /// As many as the size has dwords, so that each size stands for a depth.
    Dwords,
}

/// A published figure.
#[derive(Clone, Copy)]
pub(super) struct Published {
    pub(super) firmware: BridgeState,
    /// Mbit/s that the link has at least; 0 is any.
    pub(super) from_mbit_per_s: u32,
    pub(super) mb_per_s: f64,
    /// Who published it.
    pub(super) source: &'static str,
}

/// A figure of the vendor's firmware, whatever the link's speed.
const fn vendors(mb_per_s: f64) -> Published {
    let source = "USBGPU.md in github.com/tinygrad/asm2464pd-firmware, \"Speed Comparison\"";
    Published { firmware: BridgeState::Vendor, from_mbit_per_s: 0, mb_per_s, source }
}

/// A figure of the open firmware.
const fn opens(mb_per_s: f64, from_mbit_per_s: u32) -> Published {
    let source = "README of github.com/tinygrad/asm2464pd-firmware: measured on a unit at 10 Gbit/s";
    Published { firmware: BridgeState::OpenFirmware, from_mbit_per_s, mb_per_s, source }
}

/// The open firmware's figure of F2 out at 5 Gbit/s.
const F2_AT_5: Published =
    Published { source: "tinygrad pull request 17663: copies to a GPU from a phone-class host", ..opens(323.0, 5_000) };

/// Declares the paths in the order of measurement, each as a row of the table.
macro_rules! paths {
    ($($(#[$attribute:meta])* $path:ident $properties:tt)*) => {
        /// A path of data through the bridge.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Path"))]
        #[serde(rename_all = "kebab-case")]
        pub enum DataPath {
            $($(#[$attribute])* $path,)*
        }

        impl DataPath {
            /// All paths, in the order of measurement.
            pub const ALL: &'static [Self] = &[$(Self::$path,)*];

            const fn properties(self) -> &'static PathProperties {
                match self {
                    $(Self::$path => {
                        const PROPERTIES: &PathProperties = &PathProperties $properties;
                        PROPERTIES
                    })*
                }
            }
        }
    };
}

// tinygrad uses 64 KiB with WRITE(16), and 512 KiB is the whole SRAM. The firmware sets the limits of E4. E4's
// published figure is 1 to 5 MB/s. E4 of 255 bytes must reach the lower end. READ(16) and the longer E4 are meant to
// replace that slow path, so they must reach the upper end. F0's streams are limited by the firmware's loop at any
// speed.
paths! {
    /// E4 as every firmware supports it, up to 255 bytes a command. Measured first, because it can compare its data
    /// with the pattern that the integrity check left.
    #[serde(rename = "e4-255")]
    E4Stock {
        name: "e4-255",
        words: "E4 to 255",
        on: EITHER,
        writes: false,
        sends: E4,
        check: Some(IntegrityCheck::E4),
        step: 1,
        sizes: &[16, 64, 255],
        depth: Depth::Planned,
        published: &[vendors(1.0)],
        colour: [0x9A, 0x9A, 0x9A],
    }
    /// E4 with the length extension, up to 4,096 bytes a command.
    #[serde(rename = "e4-4096")]
    E4Extended {
        name: "e4-4096",
        words: "E4 to 4096",
        on: VENDOR,
        writes: false,
        sends: E4,
        check: Some(IntegrityCheck::E4),
        step: 1,
        sizes: &[255, 1024, 4096],
        depth: Depth::Planned,
        published: &[vendors(5.0)],
        colour: [0x00, 0x9E, 0x73],
    }
    /// A configuration read: one TLP and its completion.
    ConfigRead {
        name: "config-read",
        words: "config read",
        on: EITHER,
        writes: false,
        sends: Sends::Tlps,
        check: None,
        step: 4,
        sizes: &[4],
        depth: Depth::One,
        published: &[],
        colour: [0xCC, 0x79, 0xA7],
    }
    /// A memory read of one dword: one TLP and its completion.
    TlpRead {
        name: "tlp-read",
        words: "memory read",
        on: EITHER,
        writes: false,
        sends: Sends::Tlps,
        check: Some(IntegrityCheck::Memory),
        step: 4,
        sizes: &[4],
        depth: Depth::One,
        published: &[],
        colour: [0x56, 0xB4, 0xE9],
    }
    /// Memory writes of one dword each, as many at once as the size has dwords: 1, 4 or 16.
    TlpWrite {
        name: "tlp-write",
        words: "memory write",
        on: EITHER,
        writes: true,
        sends: Sends::Tlps,
        check: Some(IntegrityCheck::Memory),
        step: 4,
        sizes: &[4, 16, 64],
        depth: Depth::Dwords,
        published: &[],
        colour: [0x00, 0x00, 0x00],
    }
    /// WRITE(16): host to data buffer by hardware DMA. A GPU runtime sends data to the vendor's firmware this way, one
    /// at a time. Firmware with the status patch answers it before it has its data. Executed on 240417 with several in
    /// flight, one ended with good status although no data moved.
    Write16 {
        name: "write16",
        words: "WRITE(16)",
        on: VENDOR,
        writes: true,
        sends: WRITE16,
        check: Some(IntegrityCheck::Write16),
        step: BLOCK_LEN,
        sizes: &[512, 4096, 16_384, 65_536],
        depth: Depth::One,
        published: &[vendors(100.0)],
        colour: [0xD5, 0x5E, 0x00],
    }
    /// READ(16): data buffer to host by hardware DMA. Measured last of the vendor's paths, because it hangs a unit
    /// without an SSD.
    Read16 {
        name: "read16",
        words: "READ(16)",
        on: VENDOR,
        writes: false,
        sends: READ16,
        check: None,
        step: BLOCK_LEN,
        sizes: &[512, 4096, 16_384, 65_536],
        depth: Depth::Planned,
        published: &[vendors(5.0)],
        colour: [0x00, 0x72, 0xB2],
    }
    /// F0, a stream of memory writes.
    F0Write {
        name: "f0-write",
        words: "F0 stream out",
        on: OPEN,
        writes: true,
        sends: Sends::Transfers,
        check: Some(IntegrityCheck::Memory),
        step: 4,
        sizes: &[64, 1024, 16_384, 65_536],
        depth: Depth::Planned,
        published: &[opens(3.6, 0)],
        colour: [0xE6, 0x9F, 0x00],
    }
    /// F0, a stream of memory reads.
    F0Read {
        name: "f0-read",
        words: "F0 stream in",
        on: OPEN,
        writes: false,
        sends: Sends::Transfers,
        check: Some(IntegrityCheck::Memory),
        step: 4,
        sizes: &[64, 1024, 16_384, 65_536],
        depth: Depth::Planned,
        published: &[opens(1.8, 0)],
        colour: [0x00, 0x9E, 0x73],
    }
    /// F2: host to SRAM by hardware DMA. A GPU runtime sends data to the open firmware this way.
    F2Out {
        name: "f2-out",
        words: "F2 out",
        on: OPEN,
        writes: true,
        sends: Sends::Transfers,
        check: Some(IntegrityCheck::F2),
        step: SRAM_SECTOR_LEN,
        sizes: &[4096, 65_536, 262_144, 524_288],
        depth: Depth::Planned,
        published: &[opens(700.0, 10_000), F2_AT_5],
        colour: [0xD5, 0x5E, 0x00],
    }
}

impl DataPath {
    /// The paths that are SCSI commands, in the order of measurement.
    pub fn scsi() -> Vec<Self> {
        Self::ALL.iter().copied().filter(|path| matches!(path.properties().sends, Sends::Commands { .. })).collect()
    }

    /// The paths of a firmware, in the order of measurement.
    pub fn of(firmware: BridgeState) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |path| path.is_of(firmware))
    }

    /// Whether a firmware has the path.
    pub fn is_of(self, firmware: BridgeState) -> bool {
        self.properties().on.contains(&firmware)
    }

    /// The path's name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// The path's colour in pictures: red, green, blue.
    pub const fn colour(self) -> [u8; 3] {
        self.properties().colour
    }

    /// Whether the path changes the bridge's SRAM, or memory behind the bridge.
    pub const fn writes(self) -> bool {
        self.properties().writes
    }

    /// The check of the bytes that shows whether the path works.
    pub(super) const fn check(self) -> Option<IntegrityCheck> {
        self.properties().check
    }

    /// Whether the path reads the window in which E4 sees the SRAM.
    pub const fn reads_window(self) -> bool {
        matches!(self.check(), Some(IntegrityCheck::E4))
    }

    /// Whether the path sends single TLPs.
    pub(super) const fn is_tlp(self) -> bool {
        matches!(self.properties().sends, Sends::Tlps)
    }

    /// Whether the path needs memory behind the bridge.
    pub(super) const fn needs_memory(self) -> bool {
        matches!(self.check(), Some(IntegrityCheck::Memory))
    }

    /// The figure that is published for the path on this firmware, at this speed of the link or below it.
    pub(super) fn published(self, firmware: BridgeState, mbit_per_s: u32) -> Option<&'static Published> {
        let is_for = |figure: &&Published| figure.firmware == firmware && mbit_per_s >= figure.from_mbit_per_s;
        self.properties().published.iter().find(is_for)
    }

    /// Maximum number of bytes of a command.
    pub const fn max_len(self) -> usize {
        *self.properties().sizes.last().expect("each path has sizes")
    }

    /// Whether a command can move exactly this many bytes.
    pub const fn takes(self, len: usize) -> bool {
        len > 0 && len <= self.max_len() && len.is_multiple_of(self.properties().step)
    }

    /// The sizes that are measured if none are named: with `sweep` all, otherwise the largest. A path whose sizes stand
    /// for depths always has all of them.
    pub(super) fn default_sizes(self, sweep: bool) -> Vec<usize> {
        let all = sweep || matches!(self.properties().depth, Depth::Dwords);
        if all { self.properties().sizes.to_vec() } else { vec![self.max_len()] }
    }

    /// The depths of the plan at which commands of this size are measured. TLPs run one at a time to measure their
    /// latency, and memory writes together.
    pub(super) fn depths(self, size: usize, plan: &[usize]) -> Vec<usize> {
        match self.properties().depth {
            Depth::Planned => plan.to_vec(),
            Depth::One => vec![1],
            Depth::Dwords => vec![size / 4],
        }
    }

    /// The byte offset in the window, or in the LBA range, of the `number`th command of a stream of commands of `len`
    /// bytes.
    pub(super) const fn offset(self, number: u64, len: usize) -> usize {
        match self.properties().sends {
            Sends::Commands { reach, .. } if reach > len => (number % (reach / len) as u64) as usize * len,
            _ => 0,
        }
    }

    /// The SCSI command that moves `len` bytes at an offset; `None` for a path that is not a SCSI command.
    pub(super) fn command(self, at: usize, len: usize) -> Option<Command> {
        match self.properties().sends {
            Sends::Commands { command, .. } => Some(command(at, len)),
            Sends::Tlps | Sends::Transfers => None,
        }
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().words)
    }
}

impl FromStr for DataPath {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(path) = Self::ALL.iter().find(|path| path.name() == text) {
            return Ok(*path);
        }
        let names: Vec<&str> = Self::ALL.iter().map(|path| path.name()).collect();
        let known = names.join(", ");
        let meant = question(text, names);
        Err(ParseError(format!("{text:?} is not one of {known}{meant}")))
    }
}

#[cfg(test)]
mod tests {
    use asm2464::scsi::DataLength;

    use super::*;

    #[test]
    fn a_mistyped_path_is_asked_about() {
        let error = "e4-25".parse::<DataPath>().unwrap_err().to_string();
        assert!(error.ends_with("f2-out (did you mean `e4-255`?)"), "{error}");
        assert!(!"zzz".parse::<DataPath>().unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn a_stream_of_commands_cycles_through_what_its_path_reaches() {
        assert_eq!(DataPath::scsi(), [DataPath::E4Stock, DataPath::E4Extended, DataPath::Write16, DataPath::Read16]);
        for path in DataPath::scsi() {
            for &len in path.properties().sizes {
                let offsets: Vec<usize> = (0..5000).map(|number| path.offset(number, len)).collect();
                for &at in &offsets {
                    let command = path.command(at, len).unwrap();
                    assert_eq!(DataLength::of(&command.cdb()).unwrap().bytes() as usize, len);
                }
                let reach = match path {
                    DataPath::E4Stock | DataPath::E4Extended => 4096,
                    DataPath::Write16 => len,
                    _ => 512 * 1024,
                };
                let most = offsets.iter().max().unwrap() + len;
                assert!(most <= reach && most + len > reach, "{path} {len} reaches {most}");
            }
        }
        assert_eq!(DataPath::Read16.command(1024, 512), Some(Command::Read16 { lba: 2, blocks: 1 }));
        assert_eq!(DataPath::F2Out.command(0, 4096), None);
    }

    #[test]
    fn only_memory_writes_are_measured_at_more_than_their_largest_size() {
        for &path in DataPath::ALL {
            let sizes = if path == DataPath::TlpWrite { vec![4, 16, 64] } else { vec![path.max_len()] };
            assert_eq!(path.default_sizes(false), sizes, "{path}");
            assert_eq!(path.default_sizes(true), path.properties().sizes);
        }
    }

    #[test]
    fn a_path_refuses_what_no_command_of_it_can_move() {
        assert!(!DataPath::E4Stock.takes(256));
        assert!(!DataPath::E4Extended.takes(4097));
        assert!(!DataPath::Read16.takes(511));
        assert!(!DataPath::Write16.takes(0x1_0200));
        assert!(!DataPath::F0Write.takes(6) && !DataPath::F2Out.takes(513) && !DataPath::TlpRead.takes(8));
        assert!(DataPath::ALL.iter().all(|path| !path.takes(0) && path.takes(path.max_len())));
        assert!(DataPath::ALL.iter().all(|path| path.properties().sizes.iter().all(|size| path.takes(*size))));
    }

    #[test]
    fn every_path_reads_back_by_its_name() {
        for &path in DataPath::ALL {
            assert_eq!(path.name().parse(), Ok(path));
            assert_eq!(serde_json::to_value(path).unwrap(), path.name());
        }
    }
}
