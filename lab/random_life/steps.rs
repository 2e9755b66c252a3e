//! The steps of a life, drawn from a seed.

use std::fmt;

use asm2464_chip::chip::Speed;
use fastrand::Rng;

/// Kind of firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers SCSI over Bulk-Only and UAS.
    Vendor,
    /// Answers control requests.
    Open,
}

/// The data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    None,
    In(u32),
    Out(u32),
}

/// One action of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A control request. The host gives up after `patience` instructions.
    Control {
        setup: [u8; 8],
        data: Vec<u8>,
        patience: u32,
    },
    /// A SCSI command on the current transport. The host moves `packets` packets of data and then gives up; `None`
    /// moves all data and the status. It also gives up after `patience` instructions without a packet.
    Command {
        cdb: Vec<u8>,
        data: Data,
        packets: Option<u8>,
        patience: u32,
    },
    /// UAS: sends several commands in a row and reads nothing.
    Burst {
        cdb: Vec<u8>,
        tags: Vec<u16>,
    },
    /// UAS: sends a task management IU.
    Task {
        function: u8,
        tag: u16,
        of: u16,
    },
    /// A stray packet.
    Packet {
        endpoint: u8,
        stream: u16,
        len: u16,
        fill: u8,
    },
    /// Unexpected reads of packets.
    Read {
        endpoint: u8,
        stream: u16,
        packets: u8,
    },
    /// A pause of this many instructions.
    Wait(u32),
    /// A port reset, with or without an enumeration after it.
    PortReset {
        speed: Speed,
        enumerates: bool,
    },
    Suspend,
    Resume,
    /// A power cycle.
    Unplug,
}

/// Everything that a host does to one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub kind: Kind,
    pub speed: Speed,
    pub gpu: bool,
    /// Whether the host selects UAS if the unit offers it.
    pub uas: bool,
    pub steps: Vec<Step>,
}

impl Life {
    pub fn draw(seed: u64, number: u64, kind: Kind) -> Self {
        // Neighbouring seeds and numbers must not give similar lives.
        let mut rng =
            Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03));
        let speed = if rng.u8(..) < 200 { Speed::Super } else { Speed::High };
        let (gpu, uas) = (rng.bool(), rng.bool());
        let steps = (0..rng.usize(1..60)).map(|_| Step::draw(&mut rng, kind)).collect();
        Self { kind, speed, gpu, uas, steps }
    }
}

impl Step {
    fn draw(rng: &mut Rng, kind: Kind) -> Self {
        let speed = |rng: &mut Rng| if rng.u8(..) < 230 { Speed::Super } else { Speed::High };
        match rng.u8(..100) {
            0..4 => Self::Wait(1 << rng.u8(3..18)),
            4..6 => Self::PortReset { speed: speed(rng), enumerates: rng.u8(..4) > 0 },
            6..8 => Self::Suspend,
            8..11 => Self::Resume,
            11 if rng.bool() => Self::Unplug,
            11..14 => Self::Packet {
                endpoint: *rng.choice([0x02, 0x02, 0x04].iter()).unwrap(),
                stream: rng.u16(..4),
                len: *rng.choice([0, 1, 12, 31, 32, 63, 511, 512, 1023, 1024].iter()).unwrap(),
                fill: rng.u8(..),
            },
            14..18 => Self::Read {
                endpoint: *rng.choice([0x81, 0x81, 0x83].iter()).unwrap(),
                stream: rng.u16(..4),
                packets: rng.u8(1..6),
            },
            18..40 if kind == Kind::Vendor => Self::standard(rng),
            40..45 if kind == Kind::Vendor => {
                let tags = (0..rng.usize(1..40)).map(|_| rng.u16(1..36)).collect();
                Self::Burst { cdb: cdb(rng).0, tags }
            }
            45..48 if kind == Kind::Vendor => Self::Task {
                function: *rng.choice([0x01, 0x02, 0x04, 0x08, 0x10, 0x80, 0x81, 0xFF].iter()).unwrap(),
                tag: rng.u16(1..40),
                of: rng.u16(1..40),
            },
            _ if kind == Kind::Vendor => {
                let (cdb, data) = cdb(rng);
                let data = data_of(rng, data);
                let packets = (rng.u8(..4) == 0).then(|| rng.u8(..5));
                Self::Command { cdb, data, packets, patience: patience(rng) }
            }
            18..35 => Self::standard(rng),
            _ => Self::open_request(rng),
        }
    }

    /// Draws a standard or class request, usually a meaningful one.
    fn standard(rng: &mut Rng) -> Self {
        let endpoint = *rng.choice([0x81, 0x02, 0x83, 0x04, 0x00, 0x05].iter()).unwrap();
        let mut data = Vec::new();
        let setup = match rng.u8(..16) {
            0..3 => [0x80, 6, rng.u8(..6), rng.u8(1..17), 0, 0, rng.u8(..), rng.u8(..2)],
            3 => [0x80, 0, 0, 0, 0, 0, 2, 0],
            4 => [0x82, 0, 0, 0, endpoint, 0, 2, 0],
            5 | 6 => [0x02, 1, 0, 0, endpoint, 0, 0, 0],
            7 => [0x02, 3, 0, 0, endpoint, 0, 0, 0],
            8 => [0x00, 9, *rng.choice([0, 1, 1, 2].iter()).unwrap(), 0, 0, 0, 0, 0],
            9 | 10 => [0x01, 11, *rng.choice([0, 1, 1, 2].iter()).unwrap(), 0, 0, 0, 0, 0],
            11 => [0x81, 10, 0, 0, 0, 0, 1, 0],
            12 => [0x21, 0xFF, 0, 0, 0, 0, 0, 0],
            13 => [0xA1, 0xFE, 0, 0, 0, 0, 1, 0],
            14 => {
                data = vec![0; 6];
                [0x00, 48, 0, 0, 0, 0, 6, 0]
            }
            _ => {
                let mut setup = [0; 8];
                rng.fill(&mut setup);
                // Vendor requests are drawn elsewhere.
                setup[0] &= 0xBF;
                setup[7] &= 0x03;
                if setup[0] & 0x80 == 0 {
                    data = vec![rng.u8(..); usize::from(u16::from_le_bytes([setup[6], setup[7]]))];
                }
                setup
            }
        };
        Self::Control { setup, data, patience: patience(rng) }
    }

    /// Draws a request of the open firmware.
    fn open_request(rng: &mut Rng) -> Self {
        let mut data = Vec::new();
        let at = |rng: &mut Rng| (0xF000 | rng.u16(..0x1000)).to_le_bytes();
        let setup = match rng.u8(..12) {
            0..3 => {
                let [low, high] = if rng.bool() { at(rng) } else { rng.u16(..).to_le_bytes() };
                [0xC0, 0xE4, low, high, 0, rng.u8(..2), rng.u8(..), rng.u8(..3)]
            }
            3..5 => {
                let [low, high] = at(rng);
                [0x40, 0xE5, low, high, rng.u8(..), 0, 0, 0]
            }
            5..7 => {
                let kind = *rng.choice([0x00, 0x20, 0x40, 0x60, 0x04, 0x05, 0x44, 0x45].iter()).unwrap();
                data = request(rng);
                [0x40, 0xF0, kind, rng.u8(..16), 0, 0, 12, 0]
            }
            7 => [0xC0, 0xF0, 0, 0, 0, 0, 8, 0],
            8 | 9 => {
                data = request(rng);
                // The number of dwords.
                data[8..].copy_from_slice(&u32::from(rng.u16(..600)).to_le_bytes());
                let way = rng.u8(1..3);
                [0x40, 0xF0, if way == 1 { 0x60 } else { 0x20 }, 0x0F, way, 0, 12, 0]
            }
            10 => {
                let to_host = if rng.u8(..4) == 0 { 0x80 } else { 0 };
                [0x40, 0xF2, rng.u8(..64), to_host, rng.u8(..32), rng.u8(1..4), 0, 0]
            }
            _ => [0x40, 0xF3, rng.u8(..2), 0, 0, 0, 0, 0],
        };
        Self::Control { setup, data, patience: patience(rng) }
    }
}

/// Draws address and value of a PCIe request.
fn request(rng: &mut Rng) -> Vec<u8> {
    let address =
        if rng.bool() { u64::from(rng.u32(..)) & 0x0FFF_FFFC } else { 0x1000_0000 + u64::from(rng.u16(..) & 0xFFFC) };
    let mut data = address.to_le_bytes().to_vec();
    data.extend(rng.u32(..).to_le_bytes());
    data
}

fn patience(rng: &mut Rng) -> u32 {
    if rng.u8(..3) == 0 { 1 << rng.u8(2..17) } else { 1_000_000 }
}

/// Draws the data that a host moves, usually what the command needs.
fn data_of(rng: &mut Rng, data: Data) -> Data {
    match rng.u8(..12) {
        0 => Data::None,
        1 => Data::In(rng.u32(..5000)),
        2 => Data::Out(rng.u32(..5000)),
        3 => match data {
            Data::In(len) => Data::In(len / 2),
            Data::Out(len) => Data::Out(len / 2),
            Data::None => Data::None,
        },
        _ => data,
    }
}

/// Draws a command and its data. No command writes the flash or takes the unit off the bus for good; the campaign
/// covers those.
fn cdb(rng: &mut Rng) -> (Vec<u8>, Data) {
    let len = *rng.choice([0u16, 1, 36, 64, 255, 512, 4096].iter()).unwrap();
    let [high, low] = len.to_be_bytes();
    let blocks = rng.u8(..40);
    let lba = rng.u8(..);
    let [page_high, page_low] = (rng.u16(..0x4000)).to_be_bytes();
    let six = |bytes: [u8; 6]| bytes.to_vec();
    let data_in = Data::In(len.into());
    match rng.u8(..28) {
        0 => (six([0x12, 0, 0, 0, low, 0]), Data::In(low.into())),
        1 => (six([0x12, 1, *rng.choice([0, 0x80, 0x83, 0xB0, 0xB1, 0xFF].iter()).unwrap(), high, low, 0]), data_in),
        2 => (six([0x00, 0, 0, 0, 0, 0]), Data::None),
        3 => (six([0x03, 0, 0, 0, low, 0]), Data::In(low.into())),
        4 => (six([0x1A, 0, 0x3F, 0, low, 0]), Data::In(low.into())),
        5 => (vec![0x5A, 0, 0x3F, 0, 0, 0, 0, high, low, 0], data_in),
        6 => (vec![0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Data::In(8)),
        7 => (vec![0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], Data::In(32)),
        8 => (vec![0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0], Data::In(u32::from(blocks) * 512)),
        9 => (vec![0x2A, 0, 0, 0, 0, lba, 0, 0, blocks, 0], Data::Out(u32::from(blocks) * 512)),
        10 => (vec![0x88, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0], Data::In(u32::from(blocks) * 512)),
        11 => (vec![0x8A, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0], Data::Out(u32::from(blocks) * 512)),
        12 => (six([0x1B, 0, 0, 0, rng.u8(..4), 0]), Data::None),
        13 => (vec![0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], Data::None),
        14 => (vec![0xA0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0], data_in),
        15 => (six([0x1E, 0, 0, 0, rng.u8(..2), 0]), Data::None),
        16 => (six([0xE0, 0x50, rng.u8(..2), 0, 0, 0]), Data::In(128)),
        17 | 18 => {
            let mode = *rng.choice([0x50, 0xD0].iter()).unwrap();
            (six([0xE2, mode, 0, page_high, page_low, 0]), Data::In(u16::from_be_bytes([page_high, page_low]).into()))
        }
        19..22 => {
            let len = rng.u8(..);
            (six([0xE4, len, 0x50, page_high, page_low, 0]), Data::In(len.into()))
        }
        22 => {
            // Bytes that a GPU runtime writes before its first WRITE(16).
            let writes =
                [(0x054B, 0x20), (0x05A8, 0x02), (0x05F8, 0x04), (0x07EF, 0), (0x0AFF, 1), (0xC422, 2), (0xC423, 0)];
            let (at, value): (u16, u8) = *rng.choice(writes.iter()).unwrap();
            let [high, low] = at.to_be_bytes();
            (six([0xE5, value, 0x50, high, low, 0]), Data::None)
        }
        23 => (six([0xE5, rng.u8(..), 0x50, 0xF0 | rng.u8(..16), rng.u8(..), 0]), Data::None),
        24 => (vec![0xE6, rng.u8(..), rng.u8(..), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Data::In(4096)),
        25 => (six([0xE8, 0x50, 0, 0, 0, 0]), Data::None),
        26 => (vec![0xA3, 0x0C, 0, 0, 0, 0, 0, 0, high, low, 0, 0], data_in),
        _ => {
            let mut cdb = vec![0; 16];
            rng.fill(&mut cdb);
            // E1 and E3 write the flash, E5 writes registers, and E8 may halt the unit.
            if matches!(cdb[0], 0xE1 | 0xE3 | 0xE5 | 0xE8) {
                cdb[0] = 0xEF;
            }
            (cdb, data_in)
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    asm2464::digest::to_hex(bytes, " ")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control { setup, data, patience } => {
                write!(f, "control {}", hex(setup))?;
                if !data.is_empty() {
                    write!(f, ", sends {}", hex(&data[..data.len().min(16)]))?;
                }
                write!(f, "; gives up after {patience} instructions")
            }
            Self::Command { cdb, data, packets, patience } => {
                write!(f, "command {}, {data:?}", hex(cdb))?;
                match packets {
                    Some(packets) => write!(f, "; gives up after {packets} packets of data or {patience} instructions"),
                    None => write!(f, "; gives up after {patience} instructions"),
                }
            }
            Self::Burst { cdb, tags } => write!(f, "UAS commands {} with tags {tags:?}", hex(cdb)),
            Self::Task { function, tag, of } => {
                write!(f, "task management {function:#04x} of tag {of}, its own tag {tag}")
            }
            Self::Packet { endpoint, stream, len, fill } => {
                write!(f, "packet to {endpoint:#04x}, stream {stream}, {len} bytes of {fill:#04x}")
            }
            Self::Read { endpoint, stream, packets } => {
                write!(f, "reads {packets} packets of {endpoint:#04x}, stream {stream}")
            }
            Self::Wait(instructions) => write!(f, "waits {instructions} instructions"),
            Self::PortReset { speed, enumerates } => {
                write!(f, "resets the port, {speed:?}{}", if *enumerates { ", enumerates" } else { "" })
            }
            Self::Suspend => f.write_str("suspends"),
            Self::Resume => f.write_str("resumes"),
            Self::Unplug => f.write_str("unplugs, plugs in"),
        }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match (self.kind, self.uas) {
            (Kind::Open, _) => "",
            (Kind::Vendor, true) => ", UAS",
            (Kind::Vendor, false) => ", Bulk-Only",
        };
        let behind = if self.gpu { "a GPU behind" } else { "nothing behind" };
        writeln!(f, "    {:?} speed{transport}, {behind}", self.speed)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "    {step}"))
    }
}
