//! Devices below the root port: built from their descriptions, and reached through the ports' registers.

use asm2464::ParseError;

use super::device::{
    BRIDGE_CONTROL, BUS_NUMBERS, COMMAND, COMMAND_MASTER, DeviceRole, DeviceSpec, Engine, LinkSpec, MEMORY_WINDOW,
    PREFETCHABLE_WINDOW, PcieDevice, SECONDARY_BUS_RESET,
};
use super::{Bdf, ConfigAddress, HostMemory, Nowhere, TlpCompletion};
use crate::chip::ssd::NvmeController;

/// A device with the devices behind it.
#[derive(Debug)]
pub(super) struct Node {
    device: u8,
    function: u8,
    kind: DeviceRole,
    itself: PcieDevice,
    behind: Vec<Node>,
}

/// The way from the root port to a device: device and function number at each step.
type Way = [(u8, u8)];

/// A description of a device and the way to it.
type Described<'a> = (Vec<(u8, u8)>, &'a DeviceSpec);

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
    /// As [`Fabric::of_devices`](super::Fabric::of_devices).
    pub(super) fn root(specs: &[DeviceSpec]) -> Result<Self, ParseError> {
        let mut described: Vec<Described<'_>> = Vec::new();
        for spec in specs {
            described.push((way(&spec.at)?, spec));
        }
        // A port is shorter to reach than what is behind it.
        described.sort_by_key(|(way, _)| way.len());
        for (index, (way, spec)) in described.iter().enumerate() {
            let is_before = |way: &Way| described[..index].iter().any(|(before, _)| before == way);
            let above = &way[..way.len() - 1];
            if !above.is_empty() && !is_before(above) {
                return Err(wrong(spec, "the port above it is not described"));
            }
            if is_before(way) {
                return Err(ParseError(format!("{:?} is described twice", spec.at)));
            }
        }
        let spec = root_itself();
        Self::build(&[], &spec, &described, DeviceRole::Root, spec.link, false)
    }

    /// Builds the device at the end of a way, and those behind it.
    fn build(
        at: &Way,
        spec: &DeviceSpec,
        described: &[Described<'_>],
        kind: DeviceRole,
        link: LinkSpec,
        is_multi_function: bool,
    ) -> Result<Self, ParseError> {
        let most = if kind.is_port() { 2 } else { 6 };
        let bars = spec.all_bars();
        let registers: usize = bars.iter().map(|bar| bar.registers()).sum();
        if registers > most || bars.iter().any(|bar| !bar.is_possible()) {
            let what = "a BAR is 0 bytes or a power of two from 16 on, up to 2 GiB in one register; six registers at \
                        most, two for a port";
            return Err(wrong(spec, what));
        }
        if !matches!(spec.engine, Engine::None) && !spec.bars.is_empty() {
            return Err(wrong(spec, "its `engine` brings its own BARs; leave `bar` out"));
        }
        let is_behind = |way: &Way, port: &Way| way.len() == port.len() + 1 && way.starts_with(port);
        let below: Vec<&Described<'_>> = described.iter().filter(|(way, _)| is_behind(way, at)).collect();
        // A port reports the speed and width that the device below it has.
        let mut link = link;
        if let Some((_, first)) = below.first()
            && kind.has_link_below()
        {
            link = LinkSpec { speed: first.link.speed, width: first.link.width, ..link };
        }
        let mut behind = Vec::new();
        for (way, its_spec) in &below {
            let number = way[at.len()].0;
            if kind.has_link_below() && number != 0 {
                return Err(wrong(its_spec, "a link has one device on it, and its number is 0"));
            }
            let functions = below.iter().filter(|(other, _)| other[at.len()].0 == number).count();
            let is_port = described.iter().any(|(other, _)| is_behind(other, way));
            let its_kind = match (is_port, kind) {
                (false, _) => DeviceRole::Endpoint,
                (true, DeviceRole::Upstream) => DeviceRole::Downstream,
                (true, _) => DeviceRole::Upstream,
            };
            behind.push(Self::build(way, its_spec, described, its_kind, its_spec.link, functions > 1)?);
        }
        let (device, function) = at.last().copied().unwrap_or_default();
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

/// Parses the steps of a path. There are at most 255, because there are no more buses.
fn way(path: &str) -> Result<Vec<(u8, u8)>, ParseError> {
    let number = |text: &str, most: u8| text.parse::<u8>().ok().filter(|number| *number <= most);
    let step = |text: &str| {
        let (device, function) = text.split_once('.').unwrap_or((text, "0"));
        Some((number(device, 31)?, number(function, 7)?))
    };
    let steps: Option<Vec<_>> = path.split('/').map(step).collect();
    let wrong = || {
        let form = "expected DEVICE or DEVICE.FUNCTION (0-31, 0-7) with `/` between";
        ParseError(format!("{path:?} is not a path from the root port, {form}"))
    };
    steps.filter(|steps| steps.len() <= 255).ok_or_else(wrong)
}

/// The error of a device whose description does not fit.
fn wrong(spec: &DeviceSpec, what: &str) -> ParseError {
    ParseError(format!("{:?}: {what}", spec.at))
}
