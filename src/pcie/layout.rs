//! Layout of addresses for BARs, and of the windows that forward them, for the whole tree. It is written only on
//! request.

use serde::Serialize;

use super::access::Pcie;
use super::bar::{Bar, BarKind};
use super::engine::TlpEngine;
use super::error::PcieError;
use super::function::{
    COMMAND, COMMAND_MASTER, COMMAND_MEMORY, Function, Header, MEMORY_WINDOW, PREFETCHABLE_WINDOW, Window,
};
use super::note::{Change, Note};
use super::survey::Survey;

/// Addresses below 4 GiB that may be assigned. The bridge's SRAM and queues lie below them. Source: the GPU runtime.
const MEMORY: std::ops::Range<u128> = 0x1000_0000..0x1_0000_0000;
/// Addresses above 4 GiB that may be assigned, within the 48 bits that every device supports. Source: the GPU runtime.
const PREFETCHABLE: std::ops::Range<u128> = 0x8_0000_0000..0x1_0000_0000_0000;
/// Granularity of a window.
const WINDOW_STEP: u128 = 0x10_0000;
/// A window that forwards nothing: its base is above its limit.
const CLOSED: u32 = 0x0000_FFF0;

/// Addresses that a bridge forwards through one of its windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Memory,
    Prefetchable,
}

/// A BAR that gets no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NoRoom {
    /// The function, as an index in the survey.
    pub function: usize,
    /// The BAR's number.
    pub index: u8,
    /// Its size.
    pub size: u64,
}

/// A layout of all addresses. The same tree always gets the same layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Each bridge with its windows: below 4 GiB, and for prefetchable memory.
    pub windows: Vec<(usize, Option<Window>, Option<Window>)>,
    /// Each memory BAR: its function, its number and its address.
    pub bars: Vec<(usize, u8, u64)>,
    /// The BARs without room, the largest first.
    pub no_room: Vec<NoRoom>,
}

/// An item that takes room on a bus.
#[derive(Debug, Clone, Copy)]
struct Item {
    function: usize,
    /// The BAR's number; `None` for a bridge's window.
    bar: Option<u8>,
    size: u128,
    align: u128,
}

impl Layout {
    /// Lays out the memory BARs with known sizes, except those of the bridge's own root port, which the firmware has
    /// written.
    pub fn of(functions: &[Function]) -> Self {
        let mut layout = Self::default();
        for (space, region) in [(Space::Memory, MEMORY), (Space::Prefetchable, PREFETCHABLE)] {
            layout.fill(functions, space, &region);
        }
        for index in (0..functions.len()).filter(|index| functions[*index].buses().is_some()) {
            if layout.windows.iter().all(|(bridge, ..)| *bridge != index) {
                layout.windows.push((index, None, None));
            }
        }
        layout.windows.sort_unstable_by_key(|(bridge, ..)| *bridge);
        layout
    }

    fn fill(&mut self, functions: &[Function], space: Space, region: &std::ops::Range<u128>) {
        loop {
            let items = self.items(functions, None, space);
            let (size, align) = measured(&items);
            let base = region.start.next_multiple_of(align);
            if base + size <= region.end {
                return self.place(functions, &items, base, space);
            }
            // Drop the largest BAR.
            let this = &*self;
            let bars = functions.iter().enumerate().flat_map(|(function, itself)| {
                itself.bars.iter().filter_map(move |bar| this.item_of(functions, function, bar, space))
            });
            let Some(largest) = bars.max_by_key(|item| item.size) else { return };
            let (Some(index), function) = (largest.bar, largest.function) else { return };
            self.no_room.push(NoRoom { function, index, size: largest.size as u64 });
        }
    }

    /// Collects the items on the bus behind a bridge.
    fn items(&self, functions: &[Function], bridge: Option<usize>, space: Space) -> Vec<Item> {
        let mut items = Vec::new();
        for (function, itself) in functions.iter().enumerate().filter(|(_, function)| function.parent == bridge) {
            items.extend(itself.bars.iter().filter_map(|bar| self.item_of(functions, function, bar, space)));
            if itself.buses().is_some() {
                let (size, align) = measured(&self.items(functions, Some(function), space));
                if size != 0 {
                    let align = align.max(WINDOW_STEP);
                    items.push(Item { function, bar: None, size: size.next_multiple_of(WINDOW_STEP), align });
                }
            }
        }
        // Place the most aligned first, which wastes nothing in between.
        items.sort_by_key(|item| std::cmp::Reverse(item.align));
        items
    }

    /// The item of a BAR, if it takes room in this space.
    fn item_of(&self, functions: &[Function], function: usize, bar: &Bar, space: Space) -> Option<Item> {
        let size = u128::from(bar.size?);
        let is_left_out = |out: &NoRoom| (out.function, out.index) == (function, bar.index);
        let takes = functions[function].parent.is_some()
            && space_of(functions, function, bar) == Some(space)
            && !self.no_room.iter().any(is_left_out);
        takes.then_some(Item { function, bar: Some(bar.index), size, align: size })
    }

    fn place(&mut self, functions: &[Function], items: &[Item], base: u128, space: Space) {
        let mut at = base;
        for item in items {
            at = at.next_multiple_of(item.align);
            if let Some(index) = item.bar {
                self.bars.push((item.function, index, at as u64));
            } else {
                let window = Window { base: at as u64, limit: (at + item.size - 1) as u64 };
                self.set_window(item.function, space, window);
                let below = self.items(functions, Some(item.function), space);
                self.place(functions, &below, at, space);
            }
            at += item.size;
        }
    }

    fn set_window(&mut self, bridge: usize, space: Space, window: Window) {
        let position = self.windows.iter().position(|(known, ..)| *known == bridge).unwrap_or_else(|| {
            self.windows.push((bridge, None, None));
            self.windows.len() - 1
        });
        match space {
            Space::Memory => self.windows[position].1 = Some(window),
            Space::Prefetchable => self.windows[position].2 = Some(window),
        }
    }
}

/// Size and alignment of items placed one behind the other.
fn measured(items: &[Item]) -> (u128, u128) {
    let end = items.iter().fold(0_u128, |at, item| at.next_multiple_of(item.align) + item.size);
    (end, items.iter().map(|item| item.align).max().unwrap_or(1))
}

/// The window that forwards a BAR's memory; `None` for I/O.
fn space_of(functions: &[Function], function: usize, bar: &Bar) -> Option<Space> {
    let mut above = std::iter::successors(functions[function].parent, |above| functions[*above].parent);
    let is_wide = |bridge: usize| matches!(functions[bridge].header, Header::Bridge { prefetchable_is_64: true, .. });
    match bar.kind {
        BarKind::Io => None,
        BarKind::Memory64 if bar.prefetchable && above.all(is_wide) => Some(Space::Prefetchable),
        BarKind::Memory32 | BarKind::Memory64 => Some(Space::Memory),
    }
}

impl<E: TlpEngine> Pcie<'_, E> {
    /// Opens windows of bridges that have none, if no BAR has an address. Then nothing can be in use.
    pub(super) fn open_windows(&mut self, survey: &mut Survey) -> Result<(), PcieError> {
        let behind_something = |bridge: usize| survey.behind(Some(bridge)).next().is_some();
        let closed: Vec<usize> = (0..survey.functions.len())
            .filter(|index| behind_something(*index) && is_closed(&survey.functions[*index]))
            .collect();
        let behind = survey.functions.iter().filter(|function| function.parent.is_some());
        let has_memory = |bar: &Bar| bar.kind != BarKind::Io;
        let bars: Vec<Bar> = behind.flat_map(|function| function.bars.iter().copied()).filter(has_memory).collect();
        if closed.is_empty() || bars.is_empty() {
            return Ok(());
        }
        if bars.iter().any(Bar::is_assigned) {
            let notes = closed.iter().map(|bridge| Note::Closed { at: survey.functions[*bridge].at });
            survey.notes.extend(notes.collect::<Vec<_>>());
            return Ok(());
        }
        let layout = Layout::of(&survey.functions);
        self.write_windows(survey, &layout)
    }

    /// Lays out windows and BARs again and writes them; existing addresses change. Afterwards each function with a BAR
    /// answers memory requests, and each bridge forwards them both ways. The survey records what was written.
    ///
    /// # Errors
    /// [`PcieError`]; a function that no longer answers has lost its addresses.
    pub fn assign(&mut self, survey: &mut Survey) -> Result<(), PcieError> {
        let layout = Layout::of(&survey.functions);
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
            survey.changes.push(Change::Bar { at, index: bar_index, address });
        }
        for (index, function) in survey.functions.iter_mut().enumerate() {
            if layout.bars.iter().any(|(owner, ..)| *owner == index) {
                function.command |= COMMAND_MEMORY;
                self.config_write(function.at, COMMAND, u32::from(function.command), 0x03)?;
            }
        }
        Ok(())
    }

    fn write_windows(&mut self, survey: &mut Survey, layout: &Layout) -> Result<(), PcieError> {
        for &(index, memory, prefetchable) in &layout.windows {
            let function = &mut survey.functions[index];
            let at = function.at;
            let Header::Bridge { prefetchable_is_64, .. } = function.header else { continue };
            let mut writes =
                vec![at.write(MEMORY_WINDOW, register(memory)), at.write(PREFETCHABLE_WINDOW, register(prefetchable))];
            if prefetchable_is_64 {
                let high = |address: Option<u64>| address.map_or(0, |address| (address >> 32) as u32);
                writes.push(at.write(PREFETCHABLE_WINDOW + 4, high(prefetchable.map(|window| window.base))));
                writes.push(at.write(PREFETCHABLE_WINDOW + 8, high(prefetchable.map(|window| window.limit))));
            }
            function.command |= COMMAND_MEMORY | COMMAND_MASTER;
            writes.push(at.write(COMMAND, u32::from(function.command)).with_enables(0x03));
            self.config_all(at, &writes)?;
            function.set_windows(memory, prefetchable);
            survey.changes.push(Change::Windows { at, memory, prefetchable });
        }
        let no_room = layout.no_room.iter().map(|NoRoom { function, index, size }| Note::NoRoom {
            at: survey.functions[*function].at,
            index: *index,
            size: *size,
        });
        survey.notes.extend(no_room.collect::<Vec<_>>());
        Ok(())
    }
}

/// Whether a bridge forwards no memory requests.
fn is_closed(function: &Function) -> bool {
    match function.header {
        Header::Bridge { memory, prefetchable, .. } => {
            !function.decodes_memory() || (memory.is_none() && prefetchable.is_none())
        }
        _ => false,
    }
}

/// Encodes a window for the low registers.
fn register(window: Option<Window>) -> u32 {
    window.map_or(CLOSED, |Window { base, limit }| (limit as u32 & 0xFFF0_0000) | (base >> 16) as u32 & 0xFFF0)
}
