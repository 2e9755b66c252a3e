//! What is behind the bridge: the root port, and functions at their bus, device and function.

use std::fmt;

/// A function's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

/// What a configuration request names: a function and one dword of its configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The function.
    pub place: Place,
    /// Byte offset of the dword, 0 to 0xFFC.
    pub offset: u16,
}

impl Address {
    /// As bytes 8 to 11 of a configuration request carry it.
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
    /// With data.
    Data(u32),
    /// Without.
    Done,
    /// Nobody is there.
    UnsupportedRequest,
}

/// A PCIe function behind the bridge.
pub trait Function: fmt::Debug + Send {
    /// Reads a dword of configuration space.
    fn config_read(&mut self, offset: u16) -> u32;

    /// Writes to a dword of configuration space, where `enables` says.
    fn config_write(&mut self, offset: u16, value: u32, enables: u8);

    /// Reads a dword of memory; `None` where no BAR of it decodes the address.
    fn memory_read(&mut self, addr: u64) -> Option<u32>;

    /// Writes to a dword of memory. `false` where no BAR of it decodes the address.
    fn memory_write(&mut self, addr: u64, value: u32, enables: u8) -> bool;
}

/// A dword with the enabled bytes replaced.
pub(super) fn merged(old: u32, value: u32, enables: u8) -> u32 {
    let mask = (0..4).filter(|byte| enables >> byte & 1 != 0).fold(0, |mask, byte| mask | 0xFF << (8 * byte));
    (old & !mask) | (value & mask)
}

/// The root port and the functions.
#[derive(Debug)]
pub struct Fabric {
    root: MemoryFunction,
    functions: Vec<(Place, Box<dyn Function>)>,
}

impl Default for Fabric {
    fn default() -> Self {
        // ASMedia's root port: a bridge. Its memory BAR does not exist.
        Self { root: MemoryFunction::new(0x1B21, 0x2463, 0x06_04_00, 0), functions: Vec::new() }
    }
}

impl Fabric {
    /// Puts a function behind the bridge; one that is there already is replaced.
    pub fn attach(&mut self, place: Place, function: Box<dyn Function>) {
        self.functions.retain(|(other, _)| *other != place);
        self.functions.push((place, function));
    }

    /// Whether anything is behind the bridge.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    fn at(&mut self, place: Place) -> Option<&mut dyn Function> {
        const ROOT: Place = Place { bus: 0, device: 0, function: 0 };
        if place == ROOT {
            return Some(&mut self.root);
        }
        let found = self.functions.iter_mut().find(|(other, _)| *other == place)?;
        Some(&mut *found.1)
    }

    /// Carries a request out; `None` for a posted write.
    pub(super) fn request(&mut self, request: Request) -> Option<Completion> {
        let found = match request {
            Request::ConfigRead(at) => {
                self.at(at.place).map(|function| Completion::Data(function.config_read(at.offset)))
            }
            Request::ConfigWrite(at, value, enables) => self.at(at.place).map(|function| {
                function.config_write(at.offset, value, enables);
                Completion::Done
            }),
            Request::MemoryRead(addr) => {
                self.functions.iter_mut().find_map(|(_, function)| function.memory_read(addr)).map(Completion::Data)
            }
            Request::MemoryWrite(addr, value, enables) => {
                self.functions.iter_mut().any(|(_, function)| function.memory_write(addr, value, enables));
                return None;
            }
        };
        Some(found.unwrap_or(Completion::UnsupportedRequest))
    }
}

const BAR0: usize = 0x10;
const CONFIG_LEN: usize = 0x1000;

/// A function of configuration space and one 32-bit memory BAR.
#[derive(Debug)]
pub struct MemoryFunction {
    config: Box<[u8; CONFIG_LEN]>,
    memory: Vec<u8>,
}

impl MemoryFunction {
    /// A function with these IDs and class code. BAR0 has `len` bytes, rounded up to a power of two of at least 16; 0
    /// for no BAR.
    pub fn new(vendor: u16, device: u16, class: u32, len: usize) -> Self {
        let mut config = Box::new([0; CONFIG_LEN]);
        config[0..2].copy_from_slice(&vendor.to_le_bytes());
        config[2..4].copy_from_slice(&device.to_le_bytes());
        config[9..12].copy_from_slice(&class.to_le_bytes()[..3]);
        // A bridge has a header of type 1.
        config[14] = u8::from(class >> 8 == 0x06_04);
        let len = if len == 0 { 0 } else { len.max(16).next_power_of_two() };
        Self { config, memory: vec![0; len] }
    }

    /// The BAR's memory.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// The BAR's memory, to change.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn dword(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.config[at], self.config[at + 1], self.config[at + 2], self.config[at + 3]])
    }

    fn decode(&self, addr: u64) -> Option<usize> {
        let base = u64::from(self.dword(BAR0) & !0x0F);
        let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
        (base != 0 && offset < self.memory.len()).then_some(offset & !3)
    }
}

impl Function for MemoryFunction {
    fn config_read(&mut self, offset: u16) -> u32 {
        self.dword(usize::from(offset) & (CONFIG_LEN - 4))
    }

    fn config_write(&mut self, offset: u16, value: u32, enables: u8) {
        let at = usize::from(offset) & (CONFIG_LEN - 4);
        let writable = match at {
            // IDs, class, header type.
            0x00 | 0x08 => 0,
            0x0C => 0x0000_FFFF,
            // The BAR's low bits say its size.
            BAR0 => (self.memory.len() as u32).checked_sub(1).map_or(0, |low| !low),
            _ => u32::MAX,
        };
        let old = self.dword(at);
        let new = (old & !writable) | (merged(old, value, enables) & writable);
        self.config[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }

    fn memory_read(&mut self, addr: u64) -> Option<u32> {
        let at = self.decode(addr)?;
        let bytes = &self.memory[at..at + 4];
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn memory_write(&mut self, addr: u64, value: u32, enables: u8) -> bool {
        let Some(at) = self.decode(addr) else { return false };
        for byte in (0..4).filter(|byte| enables >> byte & 1 != 0) {
            self.memory[at + byte] = value.to_le_bytes()[byte];
        }
        true
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
        assert_eq!(fabric.request(Request::ConfigRead(bar)), Some(Completion::Data(0xFFFF_E000)));
        fabric.request(Request::ConfigWrite(bar, 0x1000_0000, 0x0F));
        assert_eq!(fabric.request(Request::MemoryWrite(0x1000_0100, 0x1122_3344, 0x0F)), None);
        fabric.request(Request::MemoryWrite(0x1000_0100, 0x0000_AA00, 0x02));
        assert_eq!(fabric.request(Request::MemoryRead(0x1000_0100)), Some(Completion::Data(0x1122_AA44)));
        assert_eq!(fabric.request(Request::MemoryRead(0x1000_2000)), Some(Completion::UnsupportedRequest));
    }
}
