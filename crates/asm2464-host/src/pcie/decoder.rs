//! Who takes a memory request: the function with a BAR there, if every bridge above forwards the request.

use super::bar::BarKind;
use super::function::{Function, Header, Window};
use super::survey::Survey;
use asm2464::Bdf;

impl Survey {
    /// The function that decodes all of `len` bytes from `address` on, by its sized BARs; `None` if nobody does. Nobody
    /// tells the sender of a write.
    pub fn decoder(&self, address: u64, len: u64) -> Option<Bdf> {
        let last = address.checked_add(len.checked_sub(1)?)?;
        let asked = Window { base: address, limit: last };
        let takes = |function: &&Function| {
            function.decodes_memory()
                && function.bars.iter().any(|bar| {
                    let end = bar.size.and_then(|size| bar.address.checked_add(size - 1));
                    let memory = end.filter(|_| bar.kind != BarKind::Io && bar.is_assigned());
                    memory.is_some_and(|limit| Window { base: bar.address, limit }.contains(asked))
                })
                && self.above(function).all(|bridge| bridge.forwards(asked))
        };
        self.functions.iter().find(takes).map(|function| function.at)
    }

    fn above(&self, function: &Function) -> impl Iterator<Item = &Function> {
        let above = |function: &Function| function.parent.map(|parent| &self.functions[parent]);
        std::iter::successors(above(function), move |bridge| above(bridge))
    }
}

impl Function {
    fn forwards(&self, asked: Window) -> bool {
        match self.header {
            Header::Bridge { memory, prefetchable, .. } => {
                self.decodes_memory()
                    && [memory, prefetchable].into_iter().flatten().any(|window| window.contains(asked))
            }
            _ => false,
        }
    }
}

impl Window {
    const fn contains(self, other: Self) -> bool {
        self.base <= other.base && other.limit <= self.limit
    }
}
