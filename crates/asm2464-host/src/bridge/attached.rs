//! An attached unit as its system and its descriptors describe it, before it is opened: its place, its speed, its names.

use std::path::PathBuf;
use std::str::FromStr;

use asm2464::ParseError;
use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, UsbId, descriptors};

/// Place where a device is plugged in: the bus, then the port of each hub on the way. Written as in Linux: `3-1.2`.
///
/// It stays the same while a unit leaves the bus and comes back, even with another identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display, serde::Serialize)]
#[display("{bus}-{}", ports.iter().map(u8::to_string).collect::<Vec<_>>().join("."))]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(into = "String")]
pub struct PortPath {
    bus: u8,
    ports: Vec<u8>,
}

/// USB's limit on the number of ports from a root hub to a device (USB 3.2, 10.1).
const MAX_TIERS: usize = 7;

impl PortPath {
    /// Builds the path to a device; `None` without ports, as for a root hub, or with more than USB allows.
    pub fn new(bus: u8, ports: Vec<u8>) -> Option<Self> {
        if ports.is_empty() || ports.len() > MAX_TIERS { None } else { Some(Self { bus, ports }) }
    }

    /// The bus.
    pub const fn bus(&self) -> u8 {
        self.bus
    }

    /// The ports, from the root hub on.
    pub fn ports(&self) -> &[u8] {
        &self.ports
    }
}

impl FromStr for PortPath {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (bus, ports) = text.split_once('-')?;
            let ports = ports.split('.').map(decimal).collect::<Option<Vec<_>>>()?;
            Self::new(decimal(bus)?, ports)
        };
        let wrong =
            || format!("{text:?} is not a port path: a bus, a dash, and ports with dots between them, as in 3-1.2");
        parse().ok_or_else(|| ParseError(wrong()))
    }
}

/// Parses a number as the kernel writes it: no sign, no leading zero.
fn decimal(text: &str) -> Option<u8> {
    let number: u8 = text.parse().ok()?;
    (number > 0 && number.to_string() == text).then_some(number)
}

impl From<PortPath> for String {
    fn from(path: PortPath) -> Self {
        path.to_string()
    }
}

/// Place of a unit. By it, a unit is found again after it left the bus.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Location {
    /// A port of this machine.
    Port(PortPath),
    /// The folder of a virtual unit.
    #[display("virtual:{}", _0.display())]
    Virtual(PathBuf),
}

impl Location {
    /// Whether the unit there is software. Measurements on it say nothing about hardware.
    pub const fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }
}

impl FromStr for Location {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.strip_prefix("virtual:") {
            Some(dir) => Ok(Self::Virtual(dir.into())),
            None => text.parse().map(Self::Port),
        }
    }
}

/// The bus speed that a unit has negotiated.
///
/// Speeds have no order: an unknown one is neither slower nor faster than another. Ask [`BusSpeed::is_slow`] or
/// [`BusSpeed::at_least`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, derive_more::Display, serde::Serialize, serde::Deserialize)]
#[serde(tag = "speed", rename_all = "kebab-case")]
pub enum BusSpeed {
    /// The system does not report it.
    #[display("unknown{}", at_least.map(|least| format!(", at least {}", rate(least))).unwrap_or_default())]
    Unknown {
        /// Mbit/s that the unit's descriptors prove. Left out if they prove nothing.
        #[serde(rename = "speed_at_least_mbit_per_s", default, skip_serializing_if = "Option::is_none")]
        at_least: Option<u32>,
    },
    /// 1.5 Mbit/s.
    #[display("1.5 Mbit/s")]
    Low,
    /// 12 Mbit/s.
    #[display("{}", rate(FULL))]
    Full,
    /// 480 Mbit/s: UAS runs without streams.
    #[display("{}", rate(HIGH))]
    High,
    /// 5 Gbit/s.
    #[display("{}", rate(SUPER))]
    Super,
    /// 10 Gbit/s or more.
    #[display("{}", mbit_per_s.map_or_else(|| format!("{} or more", rate(SUPER_PLUS)), rate))]
    SuperPlus {
        /// Mbit/s. Left out if the system doesn't say how many.
        #[serde(rename = "speed_mbit_per_s", default, skip_serializing_if = "Option::is_none")]
        mbit_per_s: Option<u32>,
    },
}

/// Its keys stand among a unit's, which are left out as a whole where there is no unit, so they are described without a
/// choice.
#[cfg(feature = "schemas")]
impl schemars::JsonSchema for BusSpeed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Speed".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "properties": {
                "speed": {
                    "description": "The unit's speed; super-plus is 10 Gbit/s or more.",
                    "enum": ["unknown", "low", "full", "high", "super", "super-plus"],
                    "type": "string",
                },
                "speed_at_least_mbit_per_s": {
                    "description": "If the speed is unknown: Mbit/s that the unit's descriptors prove, if they prove any.",
                    "minimum": 0,
                    "type": "integer",
                },
                "speed_mbit_per_s": {
                    "description": "If it is super-plus: Mbit/s, if the system says how many.",
                    "minimum": 0,
                    "type": "integer",
                },
            },
            "required": ["speed"],
        })
    }
}

/// Mbit/s of the speeds with a name.
const FULL: u32 = 12;
const HIGH: u32 = 480;
const SUPER: u32 = 5_000;
const SUPER_PLUS: u32 = 10_000;

impl BusSpeed {
    /// The speed is not known at all.
    pub const UNKNOWN: Self = Self::Unknown { at_least: None };
    /// 10 Gbit/s.
    pub const SUPER_PLUS: Self = Self::SuperPlus { mbit_per_s: Some(SUPER_PLUS) };

    /// Reads the speed that Linux reports in a device's `speed`, in Mbit/s: 20000 is USB 3.2 Gen 2x2. `None` for
    /// anything else than a speed of USB. Source: the kernel's `Documentation/ABI/testing/sysfs-bus-usb`.
    pub fn of_sysfs(text: &str) -> Option<Self> {
        if text == "1.5" {
            return Some(Self::Low);
        }
        match text.parse().ok()? {
            FULL => Some(Self::Full),
            HIGH => Some(Self::High),
            SUPER => Some(Self::Super),
            mbit_per_s @ SUPER_PLUS.. => Some(Self::SuperPlus { mbit_per_s: Some(mbit_per_s) }),
            _ => None,
        }
    }

    /// The same speed, or what these descriptors prove if it is unknown: the packets of bulk endpoints. `descriptors`
    /// are the raw ones that the unit gave at this speed.
    #[must_use]
    pub fn or_proved_by(self, descriptors: &[u8]) -> Self {
        self.or_proved_by_packets(bulk_packets(descriptors))
    }

    /// The same for the maximum packet sizes of bulk endpoints. Only SuperSpeed has packets of 1,024 bytes, only high
    /// speed has 512, and full speed has 64 or less (USB 2.0, 5.8.3; USB 3.2, 9.6.6).
    pub(crate) fn or_proved_by_packets(self, packets: impl IntoIterator<Item = u16>) -> Self {
        if self != Self::UNKNOWN {
            return self;
        }
        let proves = |packet| match packet {
            SUPER_SPEED_PACKET => Some(SUPER),
            512 => Some(HIGH),
            8 | 16 | 32 | 64 => Some(FULL),
            _ => None,
        };
        Self::Unknown { at_least: packets.into_iter().filter_map(proves).max() }
    }

    /// Whether it is known to be 480 Mbit/s or less. A unit's usual speed is 5 Gbit/s or more.
    pub const fn is_slow(self) -> bool {
        matches!(self, Self::Low | Self::Full | Self::High)
    }

    /// Whether it is known to be 5 Gbit/s or more, by what the system reports or by the unit's descriptors.
    pub const fn is_super(self) -> bool {
        self.at_least() >= SUPER
    }

    /// Mbit/s that the unit has at least; 0 if nothing is known.
    pub const fn at_least(self) -> u32 {
        match self {
            Self::Unknown { at_least: Some(mbit_per_s) } | Self::SuperPlus { mbit_per_s: Some(mbit_per_s) } => {
                mbit_per_s
            }
            Self::Unknown { at_least: None } => 0,
            Self::Low => 1,
            Self::Full => FULL,
            Self::High => HIGH,
            Self::Super => SUPER,
            Self::SuperPlus { mbit_per_s: None } => SUPER_PLUS,
        }
    }
}

/// wMaxPacketSize of a bulk endpoint at SuperSpeed, in bytes.
pub(crate) const SUPER_SPEED_PACKET: u16 = 1024;

/// Words a rate of so many Mbit/s.
fn rate(mbit_per_s: u32) -> String {
    match mbit_per_s {
        ..1000 => format!("{mbit_per_s} Mbit/s"),
        _ => format!("{} Gbit/s", f64::from(mbit_per_s) / 1e3),
    }
}

/// wMaxPacketSize of the bulk endpoints in raw descriptors.
fn bulk_packets(raw: &[u8]) -> Vec<u16> {
    const ENDPOINT: u8 = 5;
    const BULK: u8 = 2;
    let mut packets = Vec::new();
    for descriptor in descriptors(raw) {
        if let [_, ENDPOINT, _, attributes, low, high, ..] = *descriptor
            && attributes & 3 == BULK
        {
            packets.push(u16::from_le_bytes([low, high]));
        }
    }
    packets
}

/// A unit as its descriptors describe it.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display, serde::Serialize, serde::Deserialize)]
#[display(
    "{location} {id} ({state}{})",
    serial.as_ref().map(|it| format!(", serial {}", it.shown())).unwrap_or_default()
)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct UnitInfo {
    /// The unit's place. In JSON, as `--device` takes it.
    #[serde(rename = "device", serialize_with = "as_text", deserialize_with = "of_text")]
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub location: Location,
    /// idVendor and idProduct.
    #[serde(rename = "usb_id")]
    pub id: UsbId,
    /// The unit's state: what runs on it.
    pub state: BridgeState,
    /// iManufacturer, empty if it can't be read.
    pub manufacturer: String,
    /// iProduct, empty if it can't be read.
    pub product: String,
    /// iSerialNumber; `None` if there is none or it can't be read.
    pub serial: Option<String>,
    /// The unit's speed.
    #[serde(flatten)]
    pub speed: BusSpeed,
    /// The kernel driver that holds interface 0.
    pub driver: Option<String>,
}

fn as_text<S: serde::Serializer>(location: &Location, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(location)
}

fn of_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Location, D::Error> {
    let text: String = serde::Deserialize::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

impl UnitInfo {
    /// The serial number, empty if there is none.
    pub fn serial(&self) -> &str {
        self.serial.as_deref().unwrap_or_default()
    }

    /// Whether both are one unit that runs the same firmware, by their descriptors. Its place, its speed and its driver
    /// may have changed.
    pub fn has_same_descriptors(&self, other: &Self) -> bool {
        let Self { location, speed, driver, .. } = self.clone();
        *self == Self { location, speed, driver, ..other.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_paths_read_as_the_kernel_writes_them() {
        for text in ["3-1", "3-1.2", "12-4.1.4.4.1.2.3"] {
            assert_eq!(text.parse::<PortPath>().unwrap().to_string(), text);
        }
        for text in ["", "3", "3-", "3-0", "3-1.", "03-1", "3-1.+2", "usb3", "256-1", "1-1.1.1.1.1.1.1.1", "3-1:1.0"] {
            let error = text.parse::<PortPath>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a port path")), "{error}");
        }
    }

    fn unit(serial: &str) -> UnitInfo {
        UnitInfo {
            location: Location::Port("3-1".parse().unwrap()),
            id: UsbId::STOCK,
            state: BridgeState::Vendor,
            manufacturer: String::new(),
            product: String::new(),
            serial: Some(serial.to_owned()),
            speed: BusSpeed::Super,
            driver: None,
        }
    }

    #[test]
    fn each_speed_that_linux_reports_is_known_with_its_figure() {
        for (text, shown, least) in [
            ("1.5", "1.5 Mbit/s", 1),
            ("12", "12 Mbit/s", 12),
            ("480", "480 Mbit/s", 480),
            ("5000", "5 Gbit/s", 5_000),
            ("10000", "10 Gbit/s", 10_000),
            ("20000", "20 Gbit/s", 20_000),
            ("80000", "80 Gbit/s", 80_000),
        ] {
            let speed = BusSpeed::of_sysfs(text).unwrap();
            assert_eq!((speed.to_string().as_str(), speed.at_least()), (shown, least));
            assert_eq!((speed.is_slow(), speed.is_super()), (least < 5_000, least >= 5_000), "{text}");
        }
        for text in ["unknown", "", "-1", "0", "7", "99999999999"] {
            assert_eq!(BusSpeed::of_sysfs(text), None, "{text}");
        }
        assert_eq!(BusSpeed::SuperPlus { mbit_per_s: None }.to_string(), "10 Gbit/s or more");
    }

    #[test]
    fn an_unknown_speed_is_at_least_what_the_descriptors_prove_and_never_slow() {
        let endpoint = |packet: u16| [7, 5, 0x81, 2, packet.to_le_bytes()[0], packet.to_le_bytes()[1], 0];
        for (packet, shown) in [
            (64, "unknown, at least 12 Mbit/s"),
            (512, "unknown, at least 480 Mbit/s"),
            (1024, "unknown, at least 5 Gbit/s"),
            (1000, "unknown"),
        ] {
            let interrupt = [7, 5, 0x83, 3, 0, 4, 0];
            let speed = BusSpeed::UNKNOWN
                .or_proved_by(&[&[9, 2, 0, 0, 1, 1, 0, 0, 0][..], &interrupt, &endpoint(packet)].concat());
            assert_eq!((speed.to_string().as_str(), speed.is_slow(), speed.is_super()), (shown, false, packet == 1024));
        }
        for hostile in [&[][..], &[0; 8], &[1, 5, 0], &[255, 5, 0x81, 2, 0, 4, 0]] {
            assert_eq!(BusSpeed::UNKNOWN.or_proved_by(hostile), BusSpeed::UNKNOWN);
        }
        assert_eq!(BusSpeed::High.or_proved_by(&endpoint(1024)), BusSpeed::High, "what the system reports counts");
    }

    #[test]
    fn a_hostile_serial_number_stays_in_its_line() {
        let text = unit("1)\n3-2 174C:2464 (\u{1b}[2J\u{202E}").to_string();
        assert!(text.ends_with("serial 1)\\n3-2 174C:2464 (\\u{1b}[2J\\u{202e})"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn port_paths_that_parse_print_the_same(text: String) {
            if let Ok(path) = text.parse::<PortPath>() {
                proptest::prop_assert_eq!(path.to_string(), text);
            }
        }
    }

    #[test]
    fn a_unit_stays_the_same_at_another_place_speed_and_driver_and_is_another_by_any_descriptor() {
        let before = unit("A");
        let location = Location::Virtual("elsewhere".into());
        let moved = UnitInfo { location, speed: BusSpeed::High, driver: Some("uas".to_owned()), ..before.clone() };
        assert!(moved.has_same_descriptors(&before));
        let others = [
            UnitInfo { id: UsbId::BOOT_LOADER, ..before.clone() },
            UnitInfo { state: BridgeState::BootLoader, ..before.clone() },
            UnitInfo { manufacturer: "another".to_owned(), ..before.clone() },
            UnitInfo { product: "another".to_owned(), ..before.clone() },
            UnitInfo { serial: None, ..before.clone() },
        ];
        assert!(others.iter().all(|other| !other.has_same_descriptors(&before)));
    }
}
