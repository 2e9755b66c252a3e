//! The devices behind the bridge: the root port and everything below it.
//!
//! A tree of devices hangs on the root port. The ports' bus numbers and windows route requests to them. A
//! [`MemoryFunction`] that is [attached](Fabric::attach) answers at its place regardless of the ports.

mod device;
mod tree;

pub use super::ssd::{BlockStore, DriveSpec, StoreFailed};
pub use device::{Answers, BarSpec, DeviceEngine, DeviceSpec, Engine, LinkSpec, MemoryFunction};

use asm2464::{Bdf, ParseError};
use tree::Node;

/// Target of a configuration request: a function and one dword of its configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigAddress {
    /// The function.
    pub place: Bdf,
    /// Byte offset of the dword, 0 to 0xFFC.
    pub offset: u16,
}

impl ConfigAddress {
    /// Decodes the address from bytes 8 to 11 of a configuration request.
    pub fn of_request(dword: u32) -> Self {
        let place = Bdf::new((dword >> 24) as u8, (dword >> 19) as u8, (dword >> 16) as u8);
        Self { place, offset: (dword & 0xFFC) as u16 }
    }
}

/// A request of the TLP engine. Byte enables: bit n for byte n of the dword, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlpRequest {
    /// CfgRd0, CfgRd1.
    ConfigRead(ConfigAddress),
    /// CfgWr0, CfgWr1.
    ConfigWrite(ConfigAddress, u32, u8),
    /// MRd of one dword.
    MemoryRead(u64),
    /// MWr of one dword, posted.
    MemoryWrite(u64, u32, u8),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlpCompletion {
    /// The request succeeded with data.
    Data(u32),
    /// The request succeeded without data.
    Done,
    /// No device answers there.
    UnsupportedRequest,
    /// Configuration request retry status: the device is not ready yet.
    Retry,
    /// No completion arrives.
    Never,
}

/// Memory that a device's own requests reach as bus master.
pub trait HostMemory {
    /// Reads memory. Returns `false` if some of it does not exist.
    fn read(&mut self, address: u64, data: &mut [u8]) -> bool;

    /// Writes memory. Returns `false`, and writes nothing, if some of it does not exist.
    fn write(&mut self, address: u64, data: &[u8]) -> bool;
}

/// Host memory without any addresses.
pub(super) struct Nowhere;

impl HostMemory for Nowhere {
    fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// Replaces the enabled bytes of a dword.
pub(super) fn merged(old: u32, value: u32, enables: u8) -> u32 {
    let mask = (0..4).filter(|byte| enables >> byte & 1 != 0).fold(0, |mask, byte| mask | 0xFF << (8 * byte));
    (old & !mask) | (value & mask)
}

/// The root port, the devices below it, and the functions at fixed places.
#[derive(Debug)]
pub struct Fabric {
    root: Node,
    functions: Vec<(Bdf, MemoryFunction)>,
    /// Number of requests until the link goes down; `None` if it stays up.
    link_lasts: Option<u64>,
    /// Whether the link has trained.
    is_trained: bool,
    /// Whether what is behind the bridge has no power.
    is_off: bool,
    /// Whether it has none at power-on and after a reset of the chip, until the firmware switches it on.
    starts_off: bool,
    /// Number of requests so far that get a completion: all but posted writes.
    round_trips: u64,
}

impl Default for Fabric {
    fn default() -> Self {
        Self {
            root: Node::lone_root(),
            functions: Vec::new(),
            link_lasts: None,
            is_trained: true,
            is_off: false,
            starts_off: false,
            round_trips: 0,
        }
    }
}

impl Fabric {
    /// Builds a root port with these devices below it, as after power-on: no bus number, window or BAR is set.
    ///
    /// # Errors
    /// A path or a BAR is impossible, or the descriptions don't form a tree.
    pub fn of_devices(devices: &[DeviceSpec]) -> Result<Self, ParseError> {
        Ok(Self { root: Node::root(devices)?, ..Self::default() })
    }

    /// Attaches a function at a place where it answers regardless of the ports. Replaces a function that is already
    /// there.
    pub fn attach(&mut self, place: Bdf, function: MemoryFunction) {
        self.functions.retain(|(other, _)| *other != place);
        self.functions.push((place, function));
    }

    /// Replaces the blocks of the first drive behind the bridge.
    pub fn put_store(&mut self, store: Box<dyn BlockStore>) {
        if let Some(drive) = self.root.first_drive() {
            drive.put_store(store);
        }
    }

    /// Lets the link go down after this number of requests.
    pub fn lose_link_after(&mut self, requests: u64) {
        self.link_lasts = Some(requests);
    }

    /// Switches the power of everything behind the bridge. Without power the ports and devices lose their registers; a
    /// link that went down comes up again with the power.
    pub fn switch_power(&mut self, on: bool) {
        self.is_off = !on;
        if !on {
            self.root.reset();
            self.functions.iter_mut().for_each(|(_, function)| function.lose_power());
            self.link_lasts = self.link_lasts.filter(|left| *left > 0);
        }
    }

    /// Takes the power from everything behind the bridge, now and with each reset of the chip, until the firmware
    /// switches it on.
    pub fn start_off(&mut self) {
        self.starts_off = true;
        self.chip_is_reset();
    }

    /// Follows a reset of the chip, which takes back what the firmware wrote to 0xC656.
    pub(super) fn chip_is_reset(&mut self) {
        if self.starts_off {
            self.switch_power(false);
        }
    }

    /// Whether a device is behind the bridge and its link is up.
    pub fn is_link_up(&self) -> bool {
        self.has_devices() && self.is_trained
    }

    /// Whether a device with power is behind the bridge, and its link has not gone down for good.
    pub(super) fn has_devices(&self) -> bool {
        let carries = self.link_lasts != Some(0) && !self.is_off;
        carries && !(self.functions.is_empty() && self.root.is_leaf())
    }

    pub(super) fn set_trained(&mut self, is_trained: bool) {
        self.is_trained = is_trained;
    }

    /// Number of requests so far that get a completion: all but posted writes.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Carries out a request; `None` for a posted write. Drops what a device sends because of it.
    pub fn request(&mut self, request: TlpRequest) -> Option<TlpCompletion> {
        self.carry(request, &mut Nowhere)
    }

    /// Carries out a request; `None` for a posted write. What a device sends because of it goes to `host`.
    pub fn carry(&mut self, request: TlpRequest, host: &mut dyn HostMemory) -> Option<TlpCompletion> {
        let found = match request {
            TlpRequest::ConfigRead(at) | TlpRequest::ConfigWrite(at, ..) if at.place == Bdf::ROOT => {
                Some(Self::configure(&mut self.root, at, request))
            }
            _ if !self.is_link_up() => None,
            TlpRequest::ConfigRead(at) | TlpRequest::ConfigWrite(at, ..) => {
                match self.functions.iter_mut().find(|(place, _)| *place == at.place) {
                    Some((_, function)) => Some(configure_function(function, at, request)),
                    None => self.root.find(at.place).map(|node| Self::configure(node, at, request)),
                }
            }
            TlpRequest::MemoryRead(addr) => {
                let fixed = self.functions.iter_mut().find_map(|(_, function)| function.memory_read(addr));
                fixed.or_else(|| self.root.memory_read(addr)).map(TlpCompletion::Data)
            }
            TlpRequest::MemoryWrite(addr, value, enables) => {
                let mut fixed = self.functions.iter_mut();
                let taken = fixed.any(|(_, function)| function.memory_write(addr, value, enables))
                    || self.root.memory_write(addr, value, enables, host);
                if taken { Some(TlpCompletion::Done) } else { None }
            }
        };
        self.link_lasts = self.link_lasts.map(|left| left.saturating_sub(1));
        if matches!(request, TlpRequest::MemoryWrite(..)) {
            return None;
        }
        self.round_trips += 1;
        Some(found.unwrap_or(TlpCompletion::UnsupportedRequest))
    }

    /// Whether a device waits for a command in host memory.
    pub(super) fn awaits_command(&self) -> bool {
        self.is_link_up() && self.root.awaits_command()
    }

    /// Lets the devices that wait for a command check for it.
    pub(super) fn look(&mut self, host: &mut dyn HostMemory) {
        if self.is_link_up() {
            self.root.look(host);
        }
    }

    fn configure(node: &mut Node, at: ConfigAddress, request: TlpRequest) -> TlpCompletion {
        match request {
            TlpRequest::ConfigWrite(_, value, enables) => node.config_write(at, value, enables),
            _ => node.config_read(at),
        }
    }
}

fn configure_function(function: &mut MemoryFunction, at: ConfigAddress, request: TlpRequest) -> TlpCompletion {
    match request {
        TlpRequest::ConfigWrite(_, value, enables) => {
            function.config_write(at.offset, value, enables);
            TlpCompletion::Done
        }
        _ => TlpCompletion::Data(function.config_read(at.offset)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_answers_at_its_place_and_nobody_elsewhere() {
        let mut fabric = Fabric::default();
        let place = Bdf::new(1, 0, 0);
        fabric.attach(place, MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x1000));
        let read = |bus: u32, device: u32| TlpRequest::ConfigRead(ConfigAddress::of_request(bus << 24 | device << 19));
        assert_eq!(fabric.request(read(1, 0)), Some(TlpCompletion::Data(0x744C_1002)));
        assert_eq!(fabric.request(read(0, 0)), Some(TlpCompletion::Data(0x2463_1B21)));
        assert_eq!(fabric.request(read(1, 1)), Some(TlpCompletion::UnsupportedRequest));
        assert_eq!(fabric.request(read(2, 0)), Some(TlpCompletion::UnsupportedRequest));
    }

    #[test]
    fn a_bar_reports_its_size_and_decodes_its_address() {
        let mut fabric = Fabric::default();
        let place = Bdf::new(1, 0, 0);
        fabric.attach(place, MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x2000));
        let bar = ConfigAddress { place, offset: 0x10 };
        assert_eq!(fabric.request(TlpRequest::MemoryRead(0)), Some(TlpCompletion::UnsupportedRequest));
        fabric.request(TlpRequest::ConfigWrite(bar, u32::MAX, 0x0F));
        assert_eq!(fabric.request(TlpRequest::ConfigRead(bar)), Some(TlpCompletion::Data(0xFFFF_E00C)));
        fabric.request(TlpRequest::ConfigWrite(bar, 0x1000_0000, 0x0F));
        assert_eq!(fabric.request(TlpRequest::MemoryWrite(0x1000_0100, 0x1122_3344, 0x0F)), None);
        fabric.request(TlpRequest::MemoryWrite(0x1000_0100, 0x0000_AA00, 0x02));
        assert_eq!(fabric.request(TlpRequest::MemoryRead(0x1000_0100)), Some(TlpCompletion::Data(0x1122_AA44)));
        assert_eq!(fabric.request(TlpRequest::MemoryRead(0x1000_2000)), Some(TlpCompletion::UnsupportedRequest));
    }

    fn device(at: &str, id: u16) -> DeviceSpec {
        DeviceSpec { at: at.to_owned(), vendor: 0x1002, device: id, ..DeviceSpec::default() }
    }

    /// Builds two switches, and behind them a GPU with two functions on bus 4. Source: owners of units.
    fn two_switches() -> Vec<DeviceSpec> {
        let gpu = DeviceSpec {
            bars: vec![BarSpec { bytes: 16 << 30, is_64: true, prefetchable: true }],
            class: 0x03_00_00,
            ..device("0/0/0/0", 0x744C)
        };
        vec![gpu, device("0/0/0/0.1", 0xAB30), device("0/0/0", 0x1479), device("0/0", 0x1478), device("0", 0x2461)]
    }

    fn place(bus: u8) -> Bdf {
        Bdf::new(bus, 0, 0)
    }

    fn read(fabric: &mut Fabric, place: Bdf, offset: u16) -> TlpCompletion {
        fabric.request(TlpRequest::ConfigRead(ConfigAddress { place, offset })).unwrap()
    }

    fn write(fabric: &mut Fabric, place: Bdf, offset: u16, value: u32) {
        fabric.request(TlpRequest::ConfigWrite(ConfigAddress { place, offset }, value, 0x0F)).unwrap();
    }

    /// Sets the bus numbers of the ports on buses 0 to 3, and their windows from 0x8_0000_0000 on.
    fn open_way(fabric: &mut Fabric) {
        for bus in 0..4 {
            write(fabric, place(bus), 0x18, 4 << 16 | u32::from(bus + 1) << 8 | u32::from(bus));
            write(fabric, place(bus), 0x24, 0xFFF0_0000);
            write(fabric, place(bus), 0x28, 8);
            write(fabric, place(bus), 0x2C, 0xA);
            write(fabric, place(bus), 0x04, 0x06);
        }
    }

    #[test]
    fn behind_switches_a_device_answers_once_every_port_has_its_bus_numbers() {
        let mut fabric = Fabric::of_devices(&two_switches()).unwrap();
        for bus in 1..=4 {
            assert_eq!(read(&mut fabric, place(bus), 0), TlpCompletion::UnsupportedRequest, "{bus}");
        }
        open_way(&mut fabric);
        let ids = [(0, 0x2463_1B21), (1, 0x2461_1002), (2, 0x1478_1002), (3, 0x1479_1002), (4, 0x744C_1002)];
        for (bus, id) in ids {
            assert_eq!(read(&mut fabric, place(bus), 0), TlpCompletion::Data(id), "{bus}");
            let header = if bus == 4 { 0x80_0000 } else { 0x01_0000 };
            assert_eq!(read(&mut fabric, place(bus), 0x0C), TlpCompletion::Data(header), "{bus}");
        }
        let second = Bdf { function: 1, ..place(4) };
        assert_eq!(read(&mut fabric, second, 0), TlpCompletion::Data(0xAB30_1002));
        assert_eq!(read(&mut fabric, place(5), 0), TlpCompletion::UnsupportedRequest);
    }

    #[test]
    fn a_64_bit_bar_reports_its_size_and_its_memory_answers_through_the_windows_of_all_ports() {
        let mut fabric = Fabric::of_devices(&two_switches()).unwrap();
        open_way(&mut fabric);
        let gpu = place(4);
        write(&mut fabric, gpu, 0x10, u32::MAX);
        write(&mut fabric, gpu, 0x14, u32::MAX);
        assert_eq!(read(&mut fabric, gpu, 0x10), TlpCompletion::Data(0x0C), "16 GiB: no bit of the low register");
        assert_eq!(read(&mut fabric, gpu, 0x14), TlpCompletion::Data(0xFFFF_FFFC));
        write(&mut fabric, gpu, 0x10, 0);
        write(&mut fabric, gpu, 0x14, 0x8);
        let at = 0x8_0000_0040;
        assert_eq!(
            fabric.request(TlpRequest::MemoryRead(at)),
            Some(TlpCompletion::UnsupportedRequest),
            "not switched on"
        );
        write(&mut fabric, gpu, 0x04, 0x02);
        assert_eq!(fabric.request(TlpRequest::MemoryWrite(at, 0xCAFE_F00D, 0x0F)), None);
        assert_eq!(fabric.request(TlpRequest::MemoryRead(at)), Some(TlpCompletion::Data(0xCAFE_F00D)));
        assert_eq!(fabric.request(TlpRequest::MemoryRead(at + (15 << 30))), Some(TlpCompletion::UnsupportedRequest));
        write(&mut fabric, place(2), 0x04, 0);
        assert_eq!(
            fabric.request(TlpRequest::MemoryRead(at)),
            Some(TlpCompletion::UnsupportedRequest),
            "a port is closed"
        );
    }

    #[test]
    fn a_secondary_bus_reset_resets_everything_behind_the_port() {
        let mut fabric = Fabric::of_devices(&two_switches()).unwrap();
        open_way(&mut fabric);
        write(&mut fabric, place(4), 0x04, 0x06);
        write(&mut fabric, place(0), 0x3C, 0x40 << 16);
        write(&mut fabric, place(0), 0x3C, 0);
        assert_eq!(read(&mut fabric, place(1), 0x18), TlpCompletion::Data(0), "its bus numbers are gone");
        assert_eq!(read(&mut fabric, place(4), 0), TlpCompletion::UnsupportedRequest);
        open_way(&mut fabric);
        assert_eq!(read(&mut fabric, place(4), 0x04), TlpCompletion::Data(0x0010_0000));
    }

    #[test]
    fn a_device_answers_as_its_description_says() {
        let mut retry = device("0", 1);
        retry.answers = Answers::Retry(2);
        let mut fabric = Fabric::of_devices(&[retry]).unwrap();
        write(&mut fabric, place(0), 0x18, 0x01_01_00);
        let answers: Vec<_> = (0..3).map(|_| read(&mut fabric, place(1), 0)).collect();
        assert_eq!(answers, [TlpCompletion::Retry, TlpCompletion::Retry, TlpCompletion::Data(0x0001_1002)]);
        for (answers, completion) in
            [(Answers::Ones, TlpCompletion::Data(u32::MAX)), (Answers::Never, TlpCompletion::Never)]
        {
            let mut fabric = Fabric::of_devices(&[DeviceSpec { answers, ..device("0", 1) }]).unwrap();
            write(&mut fabric, place(0), 0x18, 0x01_01_00);
            assert_eq!(read(&mut fabric, place(1), 0), completion);
        }
    }

    #[test]
    fn the_root_port_still_answers_when_the_link_is_down() {
        let mut fabric = Fabric::of_devices(&[device("0", 1)]).unwrap();
        write(&mut fabric, place(0), 0x18, 0x01_01_00);
        fabric.lose_link_after(1);
        assert!(fabric.is_link_up());
        assert_eq!(read(&mut fabric, place(1), 0), TlpCompletion::Data(0x0001_1002));
        assert_eq!(read(&mut fabric, place(1), 0), TlpCompletion::UnsupportedRequest);
        assert_eq!((read(&mut fabric, place(0), 0), fabric.is_link_up()), (TlpCompletion::Data(0x2463_1B21), false));
        assert!(!Fabric::default().is_link_up(), "nothing is behind it");
        fabric.switch_power(false);
        assert!(!fabric.is_link_up(), "off");
        fabric.switch_power(true);
        assert!(fabric.is_link_up(), "a power cycle brings it back");
    }

    #[test]
    fn descriptions_that_make_no_tree_are_refused_by_name() {
        let refused = |specs: &[DeviceSpec]| Fabric::of_devices(specs).unwrap_err().to_string();
        for at in ["", "0/", "32", "0.8", "a", "0/0/x"] {
            assert!(refused(&[device(at, 1)]).starts_with(&format!("{at:?} is not a path from the root port")), "{at}");
        }
        assert_eq!(refused(&[device("0/0", 1)]), "\"0/0\": the port above it is not described");
        assert_eq!(refused(&[device("0", 1), device("0.0", 2)]), "\"0.0\" is described twice");
        assert_eq!(refused(&[device("1", 1)]), "\"1\": a link has one device on it, and its number is 0");
        let odd = BarSpec { bytes: 24, is_64: false, prefetchable: false };
        let large = BarSpec { bytes: 4 << 30, ..odd };
        for bar in [odd, large] {
            let error = refused(&[DeviceSpec { bars: vec![bar], ..device("0", 1) }]);
            assert!(error.starts_with("\"0\": a BAR is 0 bytes or a power of two from 16 on"), "{error}");
        }
    }
}
