//! Discovery of the connected bridges, which are those with a known USB ID. If the system provides the strings, no
//! device is opened, so a disk in use is not disturbed. Waits for changes on the buses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asm2464::firmware::{BridgeState, InterfaceClass, UsbId};
use asm2464::{Failure, Kind};
use rusb::{Context, Hotplug, HotplugBuilder, Registration, UsbContext};

use super::descriptors::{Alternate, EndpointInfo, INTERFACE, Layout, alternates_in, bulk_packets};
use super::docks::DOCKS;
use super::error::UsbError;
use super::sysfs::Sysfs;
use crate::bridge::{BusSpeed, Location, Monitors, PortPath, UnitInfo};

/// Time limit of a string descriptor, on systems where it must be read from the device.
const STRING_TIMEOUT: Duration = Duration::from_millis(500);

/// What the caller knows of the units that it may open. A device with another ID is never opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownUnits {
    /// The USB IDs that count as an ASM2464PD unit's.
    pub ids: BTreeSet<UsbId>,
    /// Disks behind units, as in `sda`, that the caller vouches for if the system can't tell whether they are in use.
    pub unchecked_disks: BTreeSet<String>,
}

impl KnownUnits {
    /// Knows these USB IDs, and vouches for no disk.
    pub fn of(ids: impl IntoIterator<Item = UsbId>) -> Self {
        Self { ids: ids.into_iter().collect(), unchecked_disks: BTreeSet::new() }
    }

    /// Knows every dock in [`DOCKS`], and vouches for no disk.
    pub fn shipped() -> Self {
        Self::of(DOCKS.iter().map(|dock| dock.id))
    }
}

/// A bridge on this machine's buses.
#[derive(Debug, Clone)]
pub struct Found {
    /// The unit's description.
    pub info: UnitInfo,
    /// Its port.
    pub port: PortPath,
    /// The unit's alternate settings, or the reason nothing can be sent to it.
    pub(super) layout: Result<Layout, UsbError>,
    /// The known USB IDs, under which the unit may come back.
    pub known: Arc<KnownUnits>,
    /// What watches the unit's transfers once it is opened; nothing at first.
    pub monitors: Monitors,
    /// The device to open.
    pub(super) device: rusb::Device<Context>,
}

impl Found {
    /// The device's address on the bus. It changes each time the device comes back.
    pub fn address(&self) -> u8 {
        self.device.address()
    }

    /// The unit's alternate settings.
    ///
    /// # Errors
    /// If nothing can be sent to the unit.
    pub(super) fn layout(&self) -> Result<&Layout, UsbError> {
        self.layout.as_ref().map_err(Clone::clone)
    }

    /// The alternate setting of Bulk-Only.
    ///
    /// # Errors
    /// If the descriptors have none, or the unit runs open firmware.
    pub(super) fn bulk_only(&self) -> Result<u8, UsbError> {
        let layout = self.layout()?;
        if self.info.state == BridgeState::OpenFirmware {
            return Err(self.other_protocol("speaks no SCSI"));
        }
        layout.bulk_only.map_err(|fault| UsbError::of_descriptors(&self.port, self.info.speed, fault))
    }

    /// The alternate setting of the open firmware.
    ///
    /// # Errors
    /// If the descriptors have none, or the unit runs other firmware.
    pub(super) fn open_firmware(&self) -> Result<u8, UsbError> {
        let layout = self.layout()?;
        if self.info.state != BridgeState::OpenFirmware {
            return Err(self.other_protocol("takes none of the open firmware's requests"));
        }
        layout.open.map_err(|fault| UsbError::of_descriptors(&self.port, self.info.speed, fault))
    }

    fn other_protocol(&self, lacks: &str) -> UsbError {
        let message = format!("the unit at {} runs its {}, which {lacks}", self.port, self.info.state);
        Failure::new(Kind::Device.code("asm2464::usb::other_protocol"), message).into()
    }

    /// Finds the same device in its own libusb context. If two threads handle one context's events, one can miss that
    /// its transfer is back.
    pub(super) fn in_own_context(&self) -> Result<rusb::Device<Context>, UsbError> {
        let (bus, address) = (self.device.bus_number(), self.device.address());
        devices(&new_context()?)?
            .iter()
            .find(|device| (device.bus_number(), device.address()) == (bus, address))
            .ok_or_else(|| UsbError::Gone { port: self.port.clone() })
    }

    /// Builds the error of an operation on the device. Names the processes that have it open, if it is busy.
    pub(super) fn failed(&self, what: &str, source: rusb::Error) -> UsbError {
        match UsbError::of(what, &self.port, source) {
            UsbError::Busy { port, lock, .. } => {
                let users = Sysfs::system().users(self.device.bus_number(), self.device.address());
                UsbError::Busy { port, users, lock }
            }
            other => other,
        }
    }
}

/// Finds every device whose ID is `known` as an ASM2464PD unit's, sorted by port path. Opens no other device.
///
/// # Errors
/// If libusb does not work on this system.
pub fn discover(known: &Arc<KnownUnits>) -> Result<Vec<Found>, UsbError> {
    let all = devices(&new_context()?)?;
    let mut found: Vec<Found> = all.iter().filter_map(|device| look_at(device, known)).collect();
    found.sort_by(|a, b| a.port.cmp(&b.port));
    Ok(found)
}

/// The ID of whatever device is at a port, a unit or not. Opens nothing.
///
/// # Errors
/// As for [`discover`].
pub fn id_at(port: &PortPath) -> Result<Option<UsbId>, UsbError> {
    let all = devices(&new_context()?)?;
    let there = all.iter().find(|device| port_of(device).as_ref() == Some(port));
    Ok(there.and_then(|device| id_of(&device)))
}

/// Finds the bridge at a port. Ignores all other devices on the buses.
///
/// # Errors
/// As for [`discover`].
pub(super) fn find_at(port: &PortPath, known: &Arc<KnownUnits>) -> Result<Option<Found>, UsbError> {
    find_in(&new_context()?, port, known)
}

/// Finds the bridge at a port in an existing context.
pub(super) fn find_in(context: &Context, port: &PortPath, known: &Arc<KnownUnits>) -> Result<Option<Found>, UsbError> {
    let at_port = |device: &rusb::Device<Context>| port_of(device).as_ref() == Some(port);
    Ok(devices(context)?.iter().filter(at_port).find_map(|device| look_at(device, known)))
}

/// Creates a libusb context to look for devices in.
pub(super) fn new_context() -> Result<Context, UsbError> {
    Context::new().map_err(UsbError::unavailable)
}

fn devices(context: &Context) -> Result<rusb::DeviceList<Context>, UsbError> {
    context.devices().map_err(UsbError::unavailable)
}

fn port_of(device: &rusb::Device<Context>) -> Option<PortPath> {
    PortPath::new(device.bus_number(), device.port_numbers().ok()?)
}

fn id_of(device: &rusb::Device<Context>) -> Option<UsbId> {
    let descriptor = device.device_descriptor().ok()?;
    Some(UsbId { vendor: descriptor.vendor_id(), product: descriptor.product_id() })
}

/// Describes a device; `None` if it is not a bridge, or if it left meanwhile.
fn look_at(device: rusb::Device<Context>, known: &Arc<KnownUnits>) -> Option<Found> {
    let descriptor = device.device_descriptor().ok()?;
    let id = id_of(&device)?;
    if !known.ids.contains(&id) {
        return None;
    }
    let port = port_of(&device)?;
    let alternates = alternates(&device, &port);
    let packets = alternates.as_deref().map(bulk_packets).unwrap_or_default();
    let speed = speed(&device, &port).or_proved_by_packets(packets);
    let classes: Vec<InterfaceClass> = alternates.iter().flatten().map(|alternate| alternate.class).collect();
    let layout = match alternates {
        Ok(all) => Layout::of(&all, speed).map_err(|fault| UsbError::of_descriptors(&port, speed, fault)),
        Err(source) => Err(UsbError::of("read the descriptors of", &port, source)),
    };
    let string = |name, index| string(&device, &port, name, index);
    let product = string("product", descriptor.product_string_index()).unwrap_or_default();
    let info = UnitInfo {
        location: Location::Port(port.clone()),
        id,
        state: BridgeState::from_interface(&classes, &product),
        manufacturer: string("manufacturer", descriptor.manufacturer_string_index()).unwrap_or_default(),
        product,
        serial: string("serial", descriptor.serial_number_string_index()).filter(|serial| !serial.is_empty()),
        speed,
        driver: driver(&device, &port),
    };
    Some(Found { info, port, layout, known: known.clone(), monitors: Monitors::default(), device })
}

/// Name of the kernel driver that holds interface 0. Only Linux reports it without opening the device.
fn driver(device: &rusb::Device<Context>, port: &PortPath) -> Option<String> {
    if cfg!(target_os = "linux") {
        return Sysfs::system().driver(port);
    }
    let is_held = device.open().and_then(|handle| handle.kernel_driver_active(INTERFACE));
    is_held.unwrap_or(false).then(|| "system".to_owned())
}

/// The speed that the system reports. libusb up to 1.0.27 knows none above 10 Gbit/s (its pull request 1477), so on
/// Linux the kernel is asked.
fn speed(device: &rusb::Device<Context>, port: &PortPath) -> BusSpeed {
    if let Some(speed) = Sysfs::system().speed(port) {
        return speed;
    }
    match device.speed() {
        rusb::Speed::Low => BusSpeed::Low,
        rusb::Speed::Full => BusSpeed::Full,
        rusb::Speed::High => BusSpeed::High,
        rusb::Speed::Super => BusSpeed::Super,
        // Windows reports "SuperSpeedPlus or higher".
        rusb::Speed::SuperPlus if cfg!(windows) => BusSpeed::SuperPlus { mbit_per_s: None },
        rusb::Speed::SuperPlus => BusSpeed::SUPER_PLUS,
        _ => BusSpeed::UNKNOWN,
    }
}

/// The alternate settings of interface 0: by the kernel's raw descriptors, or by libusb where there are none.
fn alternates(device: &rusb::Device<Context>, port: &PortPath) -> rusb::Result<Vec<Alternate>> {
    if let Some(raw) = Sysfs::system().descriptors(port) {
        return Ok(alternates_in(&raw));
    }
    let config = device.active_config_descriptor().or_else(|_| device.config_descriptor(0))?;
    let Some(interface) = config.interfaces().find(|interface| interface.number() == INTERFACE) else {
        return Ok(Vec::new());
    };
    let mut alternates = Vec::new();
    for setting in interface.descriptors() {
        let mut endpoints = Vec::new();
        for endpoint in setting.endpoint_descriptors() {
            endpoints.push(EndpointInfo {
                address: endpoint.address(),
                attributes: endpoint.transfer_type() as u8,
                max_packet: endpoint.max_packet_size(),
                streams: EndpointInfo::streams_in(endpoint.extra().unwrap_or_default()),
            });
        }
        let class = (setting.class_code(), setting.sub_class_code(), setting.protocol_code());
        alternates.push(Alternate { number: setting.setting_number(), class, endpoints });
    }
    Ok(alternates)
}

/// Reads a string from sysfs, or from the device if there is no sysfs and the device can be opened.
fn string(device: &rusb::Device<Context>, port: &PortPath, name: &str, index: Option<u8>) -> Option<String> {
    if cfg!(target_os = "linux") {
        return Sysfs::system().string(port, name);
    }
    let handle = device.open().ok()?;
    let language = *handle.read_languages(STRING_TIMEOUT).ok()?.first()?;
    handle.read_string_descriptor(language, index?, STRING_TIMEOUT).ok()
}

/// Waits until a device arrives or leaves. On a system without such events it waits for a fixed time.
#[derive(Debug)]
pub(super) struct HotplugWatch {
    /// Its device list is current.
    pub(super) context: Context,
    events: Option<Registration<Context>>,
}

/// Interval between looks at the buses on a system without events.
const POLL: Duration = Duration::from_millis(100);

/// Makes libusb report events. Their contents do not matter: after each, the caller looks at the buses.
struct Bell;

impl Hotplug<Context> for Bell {
    fn device_arrived(&mut self, _device: rusb::Device<Context>) {}

    fn device_left(&mut self, _device: rusb::Device<Context>) {}
}

impl HotplugWatch {
    /// Starts to watch.
    ///
    /// # Errors
    /// If libusb does not work on this system.
    pub fn new() -> Result<Self, UsbError> {
        let context = new_context()?;
        let events =
            if rusb::has_hotplug() { HotplugBuilder::new().register(&context, Box::new(Bell)).ok() } else { None };
        Ok(Self { context, events })
    }

    /// Waits for a change, at most for `longest`. May return without one. A change before the call counts unless a
    /// transfer on this context has taken its event, so wait for short times and look again.
    pub fn wait(&self, longest: Duration) {
        // libusb returns after the first event.
        if self.events.is_none() || self.context.handle_events(Some(longest)).is_err() {
            std::thread::sleep(longest.min(POLL));
        }
    }
}
