//! The devices behind the bridge: the root port and everything below it.
//!
//! A tree of devices hangs on the root port. The ports' bus numbers and windows route requests to them. A
//! [`Function`] that is [attached](Fabric::attach) answers at its place regardless of the ports.

mod card;
mod config;
mod device;
mod memory_function;
mod nvme;
mod tree;

use std::fmt;

pub use device::{Answers, Bar, DeviceSpec, Engine, LinkSpec};
pub use memory_function::MemoryFunction;
pub use nvme::{BlockStore, DriveSpec, StoreFailed};
pub use tree::TreeError;

use tree::Node;

/// Address of a function: bus, device and function number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

/// Target of a configuration request: a function and one dword of its configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The function.
    pub place: Place,
    /// Byte offset of the dword, 0 to 0xFFC.
    pub offset: u16,
}

impl Address {
    /// Decodes the address from bytes 8 to 11 of a configuration request.
    pub fn of_request(dword: u32) -> Self {
        let place = Place {
            bus: (dword >> 24) as u8,
            device: (dword >> 19) as u8 & 0x1F,
            function: (dword >> 16) as u8 & 0x07,
        };
        Self { place, offset: (dword & 0xFFC) as u16 }
    }
}

/// A request of the TLP engine. Byte enables: bit n for byte n of the dword, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// CfgRd0, CfgRd1.
    ConfigRead(Address),
    /// CfgWr0, CfgWr1.
    ConfigWrite(Address, u32, u8),
    /// MRd of one dword.
    MemoryRead(u64),
    /// MWr of one dword, posted.
    MemoryWrite(u64, u32, u8),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
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

/// A PCIe function behind the bridge.
pub trait Function: fmt::Debug + Send {
    /// Reads a dword of configuration space.
    fn config_read(&mut self, offset: u16) -> u32;

    /// Writes to a dword of configuration space. `enables` selects its bytes.
    fn config_write(&mut self, offset: u16, value: u32, enables: u8);

    /// Reads a dword of memory; `None` if none of its BARs decodes the address.
    fn memory_read(&mut self, addr: u64) -> Option<u32>;

    /// Writes to a dword of memory. Returns `false` if none of its BARs decodes the address.
    fn memory_write(&mut self, addr: u64, value: u32, enables: u8) -> bool;
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
    functions: Vec<(Place, Box<dyn Function>)>,
    /// Number of requests until the link goes down; `None` if it stays up.
    link_lasts: Option<u64>,
    /// Number of completed requests.
    round_trips: u64,
}

impl Default for Fabric {
    fn default() -> Self {
        Self { root: Node::lone_root(), functions: Vec::new(), link_lasts: None, round_trips: 0 }
    }
}

impl Fabric {
    /// Builds a root port with these devices below it, as after power-on: no bus number, window or BAR is set.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn of_devices(devices: &[DeviceSpec]) -> Result<Self, TreeError> {
        Ok(Self { root: Node::root(devices)?, ..Self::default() })
    }

    /// Attaches a function at a place where it answers regardless of the ports. Replaces a function that is already
    /// there.
    pub fn attach(&mut self, place: Place, function: Box<dyn Function>) {
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

    /// Whether a device is behind the bridge and its link is up.
    pub fn is_link_up(&self) -> bool {
        self.link_lasts != Some(0) && !(self.functions.is_empty() && self.root.is_leaf())
    }

    /// Number of requests so far that were answered or whose answer was awaited.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Carries out a request; `None` for a posted write. Drops what a device sends because of it.
    pub fn request(&mut self, request: Request) -> Option<Completion> {
        self.carry(request, &mut Nowhere)
    }

    /// Carries out a request; `None` for a posted write. What a device sends because of it goes to `host`.
    pub fn carry(&mut self, request: Request, host: &mut dyn HostMemory) -> Option<Completion> {
        let found = match request {
            Request::ConfigRead(at) | Request::ConfigWrite(at, ..) if at.place == ROOT => {
                Some(Self::configure(&mut self.root, at, request))
            }
            _ if self.link_lasts == Some(0) => None,
            Request::ConfigRead(at) | Request::ConfigWrite(at, ..) => {
                match self.functions.iter_mut().find(|(place, _)| *place == at.place) {
                    Some((_, function)) => Some(configure_function(&mut **function, at, request)),
                    None => self.root.find(at.place).map(|node| Self::configure(node, at, request)),
                }
            }
            Request::MemoryRead(addr) => {
                let fixed = self.functions.iter_mut().find_map(|(_, function)| function.memory_read(addr));
                fixed.or_else(|| self.root.memory_read(addr)).map(Completion::Data)
            }
            Request::MemoryWrite(addr, value, enables) => {
                let mut fixed = self.functions.iter_mut();
                let taken = fixed.any(|(_, function)| function.memory_write(addr, value, enables))
                    || self.root.memory_write(addr, value, enables, host);
                taken.then_some(Completion::Done)
            }
        };
        self.link_lasts = self.link_lasts.map(|left| left.saturating_sub(1));
        let is_posted = matches!(request, Request::MemoryWrite(..));
        self.round_trips += u64::from(!is_posted);
        (!is_posted).then(|| found.unwrap_or(Completion::UnsupportedRequest))
    }

    /// Whether a device waits for a command in host memory.
    pub(super) fn awaits_command(&self) -> bool {
        self.link_lasts != Some(0) && self.root.awaits_command()
    }

    /// Lets the devices that wait for a command check for it.
    pub(super) fn look(&mut self, host: &mut dyn HostMemory) {
        if self.link_lasts != Some(0) {
            self.root.look(host);
        }
    }

    fn configure(node: &mut Node, at: Address, request: Request) -> Completion {
        match request {
            Request::ConfigWrite(_, value, enables) => node.config_write(at, value, enables),
            _ => node.config_read(at),
        }
    }
}

const ROOT: Place = Place { bus: 0, device: 0, function: 0 };

fn configure_function(function: &mut dyn Function, at: Address, request: Request) -> Completion {
    match request {
        Request::ConfigWrite(_, value, enables) => {
            function.config_write(at.offset, value, enables);
            Completion::Done
        }
        _ => Completion::Data(function.config_read(at.offset)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_answers_at_its_place_and_nobody_elsewhere() {
        let mut fabric = Fabric::default();
        let place = Place { bus: 1, device: 0, function: 0 };
        fabric.attach(place, Box::new(MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x1000)));
        let read = |bus: u32, device: u32| Request::ConfigRead(Address::of_request(bus << 24 | device << 19));
        assert_eq!(fabric.request(read(1, 0)), Some(Completion::Data(0x744C_1002)));
        assert_eq!(fabric.request(read(0, 0)), Some(Completion::Data(0x2463_1B21)));
        assert_eq!(fabric.request(read(1, 1)), Some(Completion::UnsupportedRequest));
        assert_eq!(fabric.request(read(2, 0)), Some(Completion::UnsupportedRequest));
    }

    #[test]
    fn a_bar_tells_its_size_and_decodes_where_it_was_put() {
        let mut fabric = Fabric::default();
        let place = Place { bus: 1, device: 0, function: 0 };
        fabric.attach(place, Box::new(MemoryFunction::new(0x1002, 0x744C, 0x03_00_00, 0x2000)));
        let bar = Address { place, offset: 0x10 };
        assert_eq!(fabric.request(Request::MemoryRead(0)), Some(Completion::UnsupportedRequest));
        fabric.request(Request::ConfigWrite(bar, u32::MAX, 0x0F));
        assert_eq!(fabric.request(Request::ConfigRead(bar)), Some(Completion::Data(0xFFFF_E00C)));
        fabric.request(Request::ConfigWrite(bar, 0x1000_0000, 0x0F));
        assert_eq!(fabric.request(Request::MemoryWrite(0x1000_0100, 0x1122_3344, 0x0F)), None);
        fabric.request(Request::MemoryWrite(0x1000_0100, 0x0000_AA00, 0x02));
        assert_eq!(fabric.request(Request::MemoryRead(0x1000_0100)), Some(Completion::Data(0x1122_AA44)));
        assert_eq!(fabric.request(Request::MemoryRead(0x1000_2000)), Some(Completion::UnsupportedRequest));
    }

    fn device(at: &str, id: u16) -> DeviceSpec {
        DeviceSpec { at: at.to_owned(), vendor: 0x1002, device: id, ..DeviceSpec::default() }
    }

    /// Builds two switches, and behind them a GPU of two functions on bus 4, as owners found it.
    fn two_switches() -> Vec<DeviceSpec> {
        let gpu = DeviceSpec {
            bars: vec![Bar { bytes: 16 << 30, is_64: true, prefetchable: true }],
            class: 0x03_00_00,
            ..device("0/0/0/0", 0x744C)
        };
        vec![gpu, device("0/0/0/0.1", 0xAB30), device("0/0/0", 0x1479), device("0/0", 0x1478), device("0", 0x2461)]
    }

    fn place(bus: u8) -> Place {
        Place { bus, device: 0, function: 0 }
    }

    fn read(fabric: &mut Fabric, place: Place, offset: u16) -> Completion {
        fabric.request(Request::ConfigRead(Address { place, offset })).unwrap()
    }

    fn write(fabric: &mut Fabric, place: Place, offset: u16, value: u32) {
        fabric.request(Request::ConfigWrite(Address { place, offset }, value, 0x0F)).unwrap();
    }

    /// Gives the ports of buses 0 to 3 their bus numbers, and opens their windows from 0x8_0000_0000 on.
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
            assert_eq!(read(&mut fabric, place(bus), 0), Completion::UnsupportedRequest, "{bus}");
        }
        open_way(&mut fabric);
        let ids = [(0, 0x2463_1B21), (1, 0x2461_1002), (2, 0x1478_1002), (3, 0x1479_1002), (4, 0x744C_1002)];
        for (bus, id) in ids {
            assert_eq!(read(&mut fabric, place(bus), 0), Completion::Data(id), "{bus}");
            let header = if bus == 4 { 0x80_0000 } else { 0x01_0000 };
            assert_eq!(read(&mut fabric, place(bus), 0x0C), Completion::Data(header), "{bus}");
        }
        let second = Place { function: 1, ..place(4) };
        assert_eq!(read(&mut fabric, second, 0), Completion::Data(0xAB30_1002));
        assert_eq!(read(&mut fabric, place(5), 0), Completion::UnsupportedRequest);
    }

    #[test]
    fn a_wide_bar_sizes_and_its_memory_answers_through_the_windows_of_all_ports() {
        let mut fabric = Fabric::of_devices(&two_switches()).unwrap();
        open_way(&mut fabric);
        let gpu = place(4);
        write(&mut fabric, gpu, 0x10, u32::MAX);
        write(&mut fabric, gpu, 0x14, u32::MAX);
        assert_eq!(read(&mut fabric, gpu, 0x10), Completion::Data(0x0C), "16 GiB: no bit of the low register");
        assert_eq!(read(&mut fabric, gpu, 0x14), Completion::Data(0xFFFF_FFFC));
        write(&mut fabric, gpu, 0x10, 0);
        write(&mut fabric, gpu, 0x14, 0x8);
        let at = 0x8_0000_0040;
        assert_eq!(fabric.request(Request::MemoryRead(at)), Some(Completion::UnsupportedRequest), "not switched on");
        write(&mut fabric, gpu, 0x04, 0x02);
        assert_eq!(fabric.request(Request::MemoryWrite(at, 0xCAFE_F00D, 0x0F)), None);
        assert_eq!(fabric.request(Request::MemoryRead(at)), Some(Completion::Data(0xCAFE_F00D)));
        assert_eq!(fabric.request(Request::MemoryRead(at + (15 << 30))), Some(Completion::UnsupportedRequest));
        write(&mut fabric, place(2), 0x04, 0);
        assert_eq!(fabric.request(Request::MemoryRead(at)), Some(Completion::UnsupportedRequest), "a port is closed");
    }

    #[test]
    fn a_reset_of_the_secondary_bus_takes_everything_back_that_is_behind_the_port() {
        let mut fabric = Fabric::of_devices(&two_switches()).unwrap();
        open_way(&mut fabric);
        write(&mut fabric, place(4), 0x04, 0x06);
        write(&mut fabric, place(0), 0x3C, 0x40 << 16);
        write(&mut fabric, place(0), 0x3C, 0);
        assert_eq!(read(&mut fabric, place(1), 0x18), Completion::Data(0), "its bus numbers are gone");
        assert_eq!(read(&mut fabric, place(4), 0), Completion::UnsupportedRequest);
        open_way(&mut fabric);
        assert_eq!(read(&mut fabric, place(4), 0x04), Completion::Data(0x0010_0000));
    }

    #[test]
    fn a_device_answers_as_its_description_says() {
        let mut retry = device("0", 1);
        retry.answers = Answers::Retry(2);
        let mut fabric = Fabric::of_devices(&[retry]).unwrap();
        write(&mut fabric, place(0), 0x18, 0x01_01_00);
        let answers: Vec<_> = (0..3).map(|_| read(&mut fabric, place(1), 0)).collect();
        assert_eq!(answers, [Completion::Retry, Completion::Retry, Completion::Data(0x0001_1002)]);
        for (answers, completion) in [(Answers::Ones, Completion::Data(u32::MAX)), (Answers::Never, Completion::Never)]
        {
            let mut fabric = Fabric::of_devices(&[DeviceSpec { answers, ..device("0", 1) }]).unwrap();
            write(&mut fabric, place(0), 0x18, 0x01_01_00);
            assert_eq!(read(&mut fabric, place(1), 0), completion);
        }
    }

    #[test]
    fn a_link_that_goes_down_leaves_the_root_port_alone() {
        let mut fabric = Fabric::of_devices(&[device("0", 1)]).unwrap();
        write(&mut fabric, place(0), 0x18, 0x01_01_00);
        fabric.lose_link_after(1);
        assert!(fabric.is_link_up());
        assert_eq!(read(&mut fabric, place(1), 0), Completion::Data(0x0001_1002));
        assert_eq!(read(&mut fabric, place(1), 0), Completion::UnsupportedRequest);
        assert_eq!((read(&mut fabric, place(0), 0), fabric.is_link_up()), (Completion::Data(0x2463_1B21), false));
        assert!(!Fabric::default().is_link_up(), "nothing is behind it");
    }

    #[test]
    fn descriptions_that_make_no_tree_are_refused_by_name() {
        let refused = |specs: &[DeviceSpec]| Fabric::of_devices(specs).unwrap_err();
        for at in ["", "0/", "32", "0.8", "a", "0/0/x"] {
            assert_eq!(refused(&[device(at, 1)]), TreeError::Path(at.to_owned()));
        }
        assert_eq!(refused(&[device("0/0", 1)]), TreeError::NoPort("0/0".to_owned()));
        assert_eq!(refused(&[device("0", 1), device("0.0", 2)]), TreeError::Twice("0.0".to_owned()));
        assert_eq!(refused(&[device("1", 1)]), TreeError::NotOnLink("1".to_owned()));
        let odd = Bar { bytes: 24, is_64: false, prefetchable: false };
        let large = Bar { bytes: 4 << 30, ..odd };
        for bar in [odd, large] {
            assert_eq!(refused(&[DeviceSpec { bars: vec![bar], ..device("0", 1) }]), TreeError::Bars("0".to_owned()));
        }
    }
}
