//! Layout of addresses for BARs, and of the windows that forward them, for the whole tree. It is written only on
//! request.

use std::collections::BTreeMap;
use std::ops::Range;

use asm2464::tlp::Tlp;

use super::access::Pcie;
use super::engine::PcieError;
use super::function::{
    Bar, BarKind, COMMAND, COMMAND_MASTER, COMMAND_MEMORY, Function, Header, MEMORY_WINDOW, PREFETCHABLE_WINDOW, Window,
};
use super::survey::{Assignment, Note, Survey};

/// Addresses below 4 GiB that may be assigned. The bridge's SRAM and queues lie below them. Source: the GPU runtime.
const MEMORY: Range<u128> = 0x1000_0000..0x1_0000_0000;
/// Addresses above 4 GiB that may be assigned, within the 48 bits that every device supports. Source: the GPU runtime.
const PREFETCHABLE: Range<u128> = 0x8_0000_0000..0x1_0000_0000_0000;
/// Granularity of a window.
const WINDOW_STEP: u128 = 0x10_0000;
/// A window that forwards nothing: its base is above its limit.
const CLOSED: u32 = 0x0000_FFF0;

/// Addresses that a bridge forwards through one of its windows.
#[derive(Clone, Copy, PartialEq)]
enum Space {
    Memory,
    Prefetchable,
}

/// A layout of all addresses. The same tree always gets the same layout.
#[derive(Default)]
struct AddressLayout {
    /// The windows of each bridge, by [`Space`].
    windows: BTreeMap<usize, [Option<Window>; 2]>,
    /// Each memory BAR: its function, its number and its address.
    bars: Vec<(usize, u8, u64)>,
    /// The BARs without room, the largest first.
    no_room: Vec<Item>,
}

/// An item that takes room on a bus.
#[derive(Clone, Copy)]
struct Item {
    function: usize,
    /// The BAR's number; `None` for a bridge's window.
    bar: Option<u8>,
    size: u128,
    align: u128,
}

impl AddressLayout {
    /// Lays out the memory BARs with known sizes, except those of the bridge's own root port, which the firmware has
    /// written.
    fn of(functions: &[Function]) -> Self {
        let bridges = (0..functions.len()).filter(|index| functions[*index].buses().is_some());
        let mut layout = Self { windows: bridges.map(|bridge| (bridge, [None; 2])).collect(), ..Self::default() };
        for (space, region) in [(Space::Memory, MEMORY), (Space::Prefetchable, PREFETCHABLE)] {
            layout.fill(functions, space, &region);
        }
        layout
    }

    fn fill(&mut self, functions: &[Function], space: Space, region: &Range<u128>) {
        loop {
            let items = self.items(functions, None, space);
            let (size, align) = measured(&items);
            let base = region.start.next_multiple_of(align);
            if base + size <= region.end {
                return self.place(functions, &items, base, space);
            }
            // Drop the largest BAR.
            let bars = (0..functions.len()).flat_map(|function| self.bars(functions, function, space));
            let Some(largest) = bars.max_by_key(|item| item.size) else { return };
            self.no_room.push(largest);
        }
    }

    /// Collects the items on the bus behind a bridge.
    fn items(&self, functions: &[Function], bridge: Option<usize>, space: Space) -> Vec<Item> {
        let mut items = Vec::new();
        for (function, itself) in functions.iter().enumerate().filter(|(_, function)| function.parent == bridge) {
            items.extend(self.bars(functions, function, space));
            if itself.buses().is_some() {
                let (size, align) = measured(&self.items(functions, Some(function), space));
                if size != 0 {
                    let align = align.max(WINDOW_STEP);
                    items.push(Item { function, bar: None, size: size.next_multiple_of(WINDOW_STEP), align });
                }
            }
        }
        // Place the largest alignment first, so that no gaps arise.
        items.sort_by_key(|item| std::cmp::Reverse(item.align));
        items
    }

    /// The items of a function's BARs that take room in this space.
    fn bars(&self, functions: &[Function], function: usize, space: Space) -> Vec<Item> {
        let mut items = Vec::new();
        for bar in &functions[function].bars {
            let Some(size) = bar.size.map(u128::from) else { continue };
            let is_left_out = self.no_room.iter().any(|out| (out.function, out.bar) == (function, Some(bar.index)));
            if !is_left_out && space_of(functions, function, bar) == Some(space) {
                items.push(Item { function, bar: Some(bar.index), size, align: size });
            }
        }
        items
    }

    fn place(&mut self, functions: &[Function], items: &[Item], base: u128, space: Space) {
        let mut at = base;
        for item in items {
            at = at.next_multiple_of(item.align);
            if let Some(index) = item.bar {
                self.bars.push((item.function, index, at as u64));
            } else {
                let window = Window { base: at as u64, limit: (at + item.size - 1) as u64 };
                self.windows.entry(item.function).or_default()[space as usize] = Some(window);
                let below = self.items(functions, Some(item.function), space);
                self.place(functions, &below, at, space);
            }
            at += item.size;
        }
    }
}

/// Size and alignment of items placed one behind the other.
fn measured(items: &[Item]) -> (u128, u128) {
    let end = items.iter().fold(0_u128, |at, item| at.next_multiple_of(item.align) + item.size);
    (end, items.iter().map(|item| item.align).max().unwrap_or(1))
}

/// The window that forwards a BAR's memory; `None` for I/O, and on the bridge's own root port.
fn space_of(functions: &[Function], function: usize, bar: &Bar) -> Option<Space> {
    let parent = functions[function].parent?;
    let mut above = std::iter::successors(Some(parent), |above| functions[*above].parent);
    let is_wide = |bridge: usize| matches!(functions[bridge].header, Header::Bridge { prefetchable_is_64: true, .. });
    match bar.kind {
        BarKind::Io => None,
        BarKind::Memory64 if bar.prefetchable && above.all(is_wide) => Some(Space::Prefetchable),
        BarKind::Memory32 | BarKind::Memory64 => Some(Space::Memory),
    }
}

impl Pcie<'_> {
    /// Opens windows of bridges that have none, if no BAR has an address. Then nothing can be in use.
    pub(super) fn open_windows(&mut self, survey: &mut Survey) -> Result<(), PcieError> {
        let functions = &survey.functions;
        let is_closed = |index: &usize| {
            let forwards_nothing = match functions[*index].header {
                Header::Bridge { memory: None, prefetchable: None, .. } => true,
                Header::Bridge { .. } => !functions[*index].decodes_memory(),
                _ => false,
            };
            forwards_nothing && survey.behind(Some(*index)).next().is_some()
        };
        let closed: Vec<usize> = (0..functions.len()).filter(is_closed).collect();
        let behind = functions.iter().filter(|function| function.parent.is_some());
        let bars: Vec<&Bar> =
            behind.flat_map(|function| &function.bars).filter(|bar| bar.kind != BarKind::Io).collect();
        if closed.is_empty() || bars.is_empty() {
            return Ok(());
        }
        if bars.iter().any(|bar| bar.is_assigned()) {
            survey.notes.extend(closed.iter().map(|bridge| Note::Closed { at: functions[*bridge].at }));
            return Ok(());
        }
        let layout = AddressLayout::of(&survey.functions);
        self.write_windows(survey, &layout)
    }

    /// Lays out windows and BARs again and writes them; existing addresses change. Afterwards each function with a BAR
    /// answers memory requests, and each bridge forwards them both ways. The survey records what was written.
    ///
    /// # Errors
    /// [`PcieError`]; a function that no longer answers has lost its addresses.
    pub fn assign(&mut self, survey: &mut Survey) -> Result<(), PcieError> {
        let layout = AddressLayout::of(&survey.functions);
        for function in survey.functions.iter().filter(|function| function.parent.is_some()) {
            if function.decodes_memory() {
                let command = u32::from(function.command & !COMMAND_MEMORY);
                self.config_write(function.at, COMMAND, command, 0x03)?;
            }
        }
        self.write_windows(survey, &layout)?;
        for &(index, bar_index, address) in &layout.bars {
            let function = &mut survey.functions[index];
            let at = function.at;
            let Some(bar) = function.bars.iter_mut().find(|bar| bar.index == bar_index) else { continue };
            self.config_write(at, bar.offset(), address as u32, 0x0F)?;
            if bar.kind == BarKind::Memory64 {
                self.config_write(at, bar.offset() + 4, (address >> 32) as u32, 0x0F)?;
            }
            bar.address = address;
            survey.changes.push(Assignment::Bar { at, index: bar_index, address });
        }
        for (index, function) in survey.functions.iter_mut().enumerate() {
            if layout.bars.iter().any(|(owner, ..)| *owner == index) {
                function.command |= COMMAND_MEMORY;
                self.config_write(function.at, COMMAND, u32::from(function.command), 0x03)?;
            }
        }
        Ok(())
    }

    fn write_windows(&mut self, survey: &mut Survey, layout: &AddressLayout) -> Result<(), PcieError> {
        for (index, windows) in &layout.windows {
            let function = &mut survey.functions[*index];
            let at = function.at;
            let Header::Bridge { memory, prefetchable, prefetchable_is_64, .. } = &mut function.header else {
                continue;
            };
            let mut writes = vec![
                Tlp::config_write(at, MEMORY_WINDOW, register(windows[0])),
                Tlp::config_write(at, PREFETCHABLE_WINDOW, register(windows[1])),
            ];
            if *prefetchable_is_64 {
                let Window { base, limit } = windows[1].unwrap_or(Window { base: 0, limit: 0 });
                writes.push(Tlp::config_write(at, PREFETCHABLE_WINDOW + 4, (base >> 32) as u32));
                writes.push(Tlp::config_write(at, PREFETCHABLE_WINDOW + 8, (limit >> 32) as u32));
            }
            function.command |= COMMAND_MEMORY | COMMAND_MASTER;
            writes.push(Tlp::config_write(at, COMMAND, u32::from(function.command)).with_enables(0x03));
            self.config_all(at, &writes)?;
            [*memory, *prefetchable] = *windows;
            survey.changes.push(Assignment::Windows { at, memory: *memory, prefetchable: *prefetchable });
        }
        for item in &layout.no_room {
            if let Some(index) = item.bar {
                let at = survey.functions[item.function].at;
                survey.notes.push(Note::NoRoom { at, index, size: item.size as u64 });
            }
        }
        Ok(())
    }
}

/// Encodes a window for the low registers.
fn register(window: Option<Window>) -> u32 {
    window.map_or(CLOSED, |Window { base, limit }| (limit as u32 & 0xFFF0_0000) | (base >> 16) as u32 & 0xFFF0)
}
