//! Devices below the root port: built from their descriptions, and reached through the ports' registers.

use thiserror::Error;

use super::device::{
    BRIDGE_CONTROL, BUS_NUMBERS, COMMAND, COMMAND_MASTER, DeviceRole, DeviceSpec, Engine, LinkSpec, MEMORY_WINDOW,
    PREFETCHABLE_WINDOW, PcieDevice, SECONDARY_BUS_RESET,
};
use super::drive::NvmeController;
use super::{Bdf, ConfigAddress, HostMemory, Nowhere, TlpCompletion};

/// Reasons why device descriptions don't form a tree.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A path is malformed.
    #[error("{0:?} is not a path from the root port, expected DEVICE or DEVICE.FUNCTION (0-31, 0-7) with `/` between")]
    Path(String),
    /// A port on the way to the device is missing.
    #[error("{0:?}: the port above it is not described")]
    NoPort(String),
    /// A device is described twice.
    #[error("{0:?} is described twice")]
    Twice(String),
    /// There is more than one device behind a link.
    #[error("{0:?}: a link has one device on it, and its number is 0")]
    NotOnLink(String),
    /// A BAR's size is impossible, or the BARs don't fit into the registers.
    #[error(
        "{0:?}: a BAR is 0 bytes or a power of two from 16 on, up to 2 GiB in one register; six registers at most, \
         two for a port"
    )]
    Bars(String),
    /// A device has BARs besides those of its engine.
    #[error("{0:?}: its `engine` brings its own BARs; leave `bar` out")]
    EngineBars(String),
}

/// A device with the devices behind it.
#[derive(Debug)]
pub(super) struct Node {
    device: u8,
    function: u8,
    kind: DeviceRole,
    itself: PcieDevice,
    behind: Vec<Node>,
}

/// A description with those of the devices behind it.
struct Draft<'a> {
    spec: &'a DeviceSpec,
    at: (u8, u8),
    behind: Vec<Draft<'a>>,
}

/// Description of the root port: ASMedia's IDs, four lanes at 16 GT/s.
fn root_itself() -> DeviceSpec {
    let link = LinkSpec { max_width: 4, ..LinkSpec::default() };
    DeviceSpec { vendor: 0x1B21, device: 0x2463, link, ..DeviceSpec::default() }
}

impl Node {
    /// Builds the bridge's root port with nothing behind it.
    pub(super) fn lone_root() -> Self {
        let spec = root_itself();
        let itself = PcieDevice::new(&spec, DeviceRole::Root, spec.link, false);
        Self { device: 0, function: 0, kind: DeviceRole::Root, itself, behind: Vec::new() }
    }

    /// Builds the bridge's root port with these devices behind it.
    ///
    /// # Errors
    /// [`TreeError`].
    pub(super) fn root(specs: &[DeviceSpec]) -> Result<Self, TreeError> {
        let mut ways = specs.iter().map(|spec| Ok((way(&spec.at)?, spec))).collect::<Result<Vec<_>, TreeError>>()?;
        ways.sort_by_key(|(way, _)| way.len());
        let itself = root_itself();
        let mut root = Draft { spec: &itself, at: (0, 0), behind: Vec::new() };
        for (way, spec) in ways {
            root.add(&way, spec)?;
        }
        Self::build(root, DeviceRole::Root, itself.link, false)
    }

    fn build(draft: Draft<'_>, kind: DeviceRole, link: LinkSpec, is_multi_function: bool) -> Result<Self, TreeError> {
        let Draft { spec, at: (device, function), behind } = draft;
        let bars = spec.all_bars();
        let registers: usize = bars.iter().map(|bar| bar.registers()).sum();
        if registers > if kind.is_port() { 2 } else { 6 } || bars.iter().any(|bar| !bar.is_possible()) {
            return Err(TreeError::Bars(spec.at.clone()));
        }
        if !matches!(spec.engine, Engine::None) && !spec.bars.is_empty() {
            return Err(TreeError::EngineBars(spec.at.clone()));
        }
        // A port reports the speed and width that the device below it has.
        let below = behind.first().map(|below| below.spec.link).filter(|_| kind.has_link_below());
        let link = below.map_or(link, |below| LinkSpec { speed: below.speed, width: below.width, ..link });
        let numbers: Vec<u8> = behind.iter().map(|below| below.at.0).collect();
        let below = behind.into_iter().map(|below| {
            if kind.has_link_below() && below.at.0 != 0 {
                return Err(TreeError::NotOnLink(below.spec.at.clone()));
            }
            let is_multi_function = numbers.iter().filter(|number| **number == below.at.0).count() > 1;
            let its_kind = match (below.behind.is_empty(), kind) {
                (true, _) => DeviceRole::Endpoint,
                (false, DeviceRole::Upstream) => DeviceRole::Downstream,
                (false, _) => DeviceRole::Upstream,
            };
            let link = below.spec.link;
            Self::build(below, its_kind, link, is_multi_function)
        });
        let behind = below.collect::<Result<Vec<_>, TreeError>>()?;
        Ok(Self { device, function, kind, itself: PcieDevice::new(spec, kind, link, is_multi_function), behind })
    }

    /// Whether no device is behind it.
    pub(super) fn is_leaf(&self) -> bool {
        self.behind.is_empty()
    }

    pub(super) fn config_read(&mut self, at: ConfigAddress) -> TlpCompletion {
        self.itself.config_read(usize::from(at.offset))
    }

    pub(super) fn config_write(&mut self, at: ConfigAddress, value: u32, enables: u8) -> TlpCompletion {
        let resets = |node: &Self| node.itself.config().word(BRIDGE_CONTROL) & SECONDARY_BUS_RESET != 0;
        let was_reset = resets(self);
        let completion = self.itself.config_write(usize::from(at.offset), value, enables);
        if self.kind.is_port() && resets(self) && !was_reset {
            self.behind.iter_mut().for_each(Self::reset);
        }
        completion
    }

    /// The first drive at or behind this device.
    pub(super) fn first_drive(&mut self) -> Option<&mut NvmeController> {
        let Self { itself, behind, .. } = self;
        itself.drive().or_else(|| behind.iter_mut().find_map(Self::first_drive))
    }

    /// Resets this device and everything behind it: configuration and memory are as at power-on.
    pub(super) fn reset(&mut self) {
        self.itself.reset();
        self.behind.iter_mut().for_each(Self::reset);
    }

    /// Finds the device that a configuration request of type 1 reaches through this port.
    pub(super) fn find(&mut self, place: Bdf) -> Option<&mut Self> {
        let [_, secondary, subordinate, _] = self.itself.config().dword(BUS_NUMBERS).to_le_bytes();
        if !self.kind.is_port() || secondary == 0 || !(secondary..=subordinate).contains(&place.bus) {
            return None;
        }
        if place.bus == secondary {
            return self.behind.iter_mut().find(|node| (node.device, node.function) == (place.device, place.function));
        }
        self.behind.iter_mut().find_map(|node| node.find(place))
    }

    pub(super) fn memory_read(&mut self, addr: u64) -> Option<u32> {
        if self.forwards(addr) {
            return self.behind.iter_mut().find_map(|node| node.memory_read(addr));
        }
        self.itself.memory_read(addr)
    }

    /// Writes to memory at or behind this device. `host` is the memory that the device's own writes reach. A port
    /// forwards those from below only if it is a bus master itself.
    pub(super) fn memory_write(&mut self, addr: u64, value: u32, enables: u8, host: &mut dyn HostMemory) -> bool {
        if self.forwards(addr) {
            let host = if self.is_master() { host } else { &mut Nowhere };
            return self.behind.iter_mut().any(|node| node.memory_write(addr, value, enables, host));
        }
        self.itself.memory_write(addr, value, enables, host)
    }

    fn is_master(&self) -> bool {
        self.itself.config().word(COMMAND) & COMMAND_MASTER != 0
    }

    /// Whether this device or one behind it waits for a command.
    pub(super) fn awaits_command(&self) -> bool {
        self.itself.awaits_command() || self.behind.iter().any(Self::awaits_command)
    }

    /// Lets this device and those behind it check for the commands that they wait for.
    pub(super) fn look(&mut self, host: &mut dyn HostMemory) {
        self.itself.look(host);
        let host = if self.is_master() { host } else { &mut Nowhere };
        self.behind.iter_mut().for_each(|node| node.look(host));
    }

    /// Whether one of this port's windows contains the address.
    fn forwards(&self, addr: u64) -> bool {
        let config = self.itself.config();
        let has = |at: usize, high: [u32; 2]| {
            let window = config.dword(at);
            let base = u64::from(high[0]) << 32 | u64::from(window & 0xFFF0) << 16;
            let limit = u64::from(high[1]) << 32 | u64::from(window & 0xFFF0_0000) | 0xF_FFFF;
            (base..=limit).contains(&addr)
        };
        let high = [config.dword(PREFETCHABLE_WINDOW + 4), config.dword(PREFETCHABLE_WINDOW + 8)];
        self.kind.is_port()
            && self.itself.answers_memory()
            && (has(MEMORY_WINDOW, [0, 0]) || has(PREFETCHABLE_WINDOW, high))
    }
}

impl<'a> Draft<'a> {
    fn add(&mut self, way: &[(u8, u8)], spec: &'a DeviceSpec) -> Result<(), TreeError> {
        let [step, rest @ ..] = way else { return Err(TreeError::Path(spec.at.clone())) };
        let found = self.behind.iter_mut().find(|below| below.at == *step);
        match (found, rest.is_empty()) {
            (Some(_), true) => Err(TreeError::Twice(spec.at.clone())),
            (Some(below), false) => below.add(rest, spec),
            (None, false) => Err(TreeError::NoPort(spec.at.clone())),
            (None, true) => {
                self.behind.push(Self { spec, at: *step, behind: Vec::new() });
                Ok(())
            }
        }
    }
}

/// Parses the steps of a path. There are at most 255, because there are no more buses.
fn way(path: &str) -> Result<Vec<(u8, u8)>, TreeError> {
    let number = |text: &str, most: u8| text.parse::<u8>().ok().filter(|number| *number <= most);
    let step = |text: &str| {
        let (device, function) = text.split_once('.').unwrap_or((text, "0"));
        Some((number(device, 31)?, number(function, 7)?))
    };
    let steps: Option<Vec<_>> = path.split('/').map(step).collect();
    steps.filter(|steps| steps.len() <= 255).ok_or_else(|| TreeError::Path(path.to_owned()))
}
