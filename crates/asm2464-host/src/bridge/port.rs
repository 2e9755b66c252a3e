//! A port with a bridge: its place, what is known of its unit before that is opened, and how it is opened. The unit at the
//! port leaves and comes back, possibly in another state or with another identity.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use asm2464::escape::Escape as _;
use asm2464::firmware::{BridgeState, UsbId};
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, ParseError, TransportKind};

use super::client::Bridge;
use super::open::OpenBridge;
use super::transport::AnyTransport;

/// A USB port with a bridge, or a virtual unit's folder: what `--device` names.
///
/// It stays the same while the unit behind it is reset, changes its identity, or falls back to its boot loader. Each kind
/// of port has errors of its own; their kind tells what the caller can do.
pub trait Port: Send {
    /// Where the port is. It changes if a unit comes back at another speed, because a connector's USB 2 and SuperSpeed
    /// ports are two ports.
    fn location(&self) -> Location;

    /// Describes the attached unit. Does not take it from its kernel driver.
    ///
    /// # Errors
    /// If no unit is attached, or the system can't tell.
    fn attached(&mut self) -> Result<UnitInfo, AnyFailure>;

    /// Raw descriptors of the attached unit that can be read without opening it: device, configuration, BOS.
    fn descriptors(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Opens the unit for SCSI commands, which the vendor's firmware and the boot loader speak: over `wanted`, or else
    /// over UAS if unit and system have it, or else over Bulk-Only. Dropping the bridge gives the unit back to its former
    /// driver.
    ///
    /// # Errors
    /// No unit, no permission, busy, a unit that runs open firmware, or no UAS where it is wanted.
    fn open_over(&mut self, wanted: Option<TransportKind>) -> Result<Bridge<AnyTransport>, AnyFailure>;

    /// Opens the unit over Bulk-Only, which the vendor's firmware and the boot loader always speak.
    ///
    /// # Errors
    /// As for [`open_over`](Self::open_over).
    fn open(&mut self) -> Result<Bridge<AnyTransport>, AnyFailure> {
        self.open_over(Some(TransportKind::BulkOnly))
    }

    /// Opens a unit that runs open firmware, for its control requests. Dropping the bridge gives the unit back to its
    /// former driver.
    ///
    /// # Errors
    /// No unit, no permission, busy, or a unit that runs anything else.
    fn open_control(&mut self) -> Result<OpenBridge, AnyFailure>;

    /// Whether the last open made sure that nothing uses the disk behind the unit. `false` if the exclusive check needs
    /// root; then only mounts, swap and holders that this process sees were checked.
    fn is_disk_checked(&self) -> bool {
        true
    }

    /// Power-cycles the unit's port through its hub, and waits until the power is on again. Returns `false` if no hub
    /// can do that.
    ///
    /// # Errors
    /// If the hub supports it and fails.
    fn power_cycle(&mut self) -> Result<bool, AnyFailure> {
        Ok(false)
    }

    /// Waits until a unit that was told to reset has come back; `None` if it has not within `deadline`, or if
    /// `interrupt` asked to stop.
    ///
    /// # Errors
    /// If the system can't tell which unit is attached.
    fn wait_for_return(&mut self, deadline: Duration, interrupt: Interrupt<'_>)
    -> Result<Option<UnitInfo>, AnyFailure>;
}

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
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "Speed"))]
#[serde(rename_all = "kebab-case")]
pub enum BusSpeed {
    /// The system does not report it.
    #[display("unknown")]
    Unknown,
    /// 1.5 Mbit/s.
    #[display("1.5 Mbit/s")]
    Low,
    /// 12 Mbit/s.
    #[display("12 Mbit/s")]
    Full,
    /// 480 Mbit/s: UAS runs without streams.
    #[display("480 Mbit/s")]
    High,
    /// 5 Gbit/s.
    #[display("5 Gbit/s")]
    Super,
    /// 10 Gbit/s and up.
    #[display("10 Gbit/s")]
    SuperPlus,
}

impl BusSpeed {
    /// Whether it is 480 Mbit/s or less. A unit's usual speed is 5 Gbit/s or more.
    pub const fn is_slow(self) -> bool {
        matches!(self, Self::Low | Self::Full | Self::High)
    }
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
    /// Whether this is a virtual unit. Measurements on it say nothing about hardware.
    pub const fn is_virtual(&self) -> bool {
        self.location.is_virtual()
    }

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
