//! A profile by function: clock cycles by call stack.

use std::collections::{HashMap, HashSet};

use asm2464::firmware::CodeAddress;

use super::calls::CallStack;
use crate::chip::instruction_cycles;
use crate::mcu::{Observer, Step};
use crate::symbols::Symbols;

/// Maximum number of call paths. The cycles of further paths count for their caller.
const MOST_PATHS: usize = 1 << 16;

/// A call path to a function.
#[derive(Debug, Clone)]
struct CallPath {
    caller: Option<u32>,
    entry: CodeAddress,
    cycles: u64,
    calls: u64,
}

/// Counts clock cycles and calls of each function, separately for each call path to it.
///
/// Interrupt handlers start call paths of their own: the interrupted function says nothing about the cost of the
/// handler.
#[derive(Debug, Default)]
pub struct Profile {
    symbols: Symbols,
    stack: CallStack,
    paths: Vec<CallPath>,
    known: HashMap<(Option<u32>, CodeAddress), u32>,
    /// The path of each frame.
    at: Vec<u32>,
}

/// The cost of a function.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "FunctionReport", description = ""))]
pub struct FunctionCost {
    /// Its name, or its address.
    pub name: String,
    /// Its first address.
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub at: CodeAddress,
    /// How often it was called.
    pub calls: u64,
    /// Clock cycles of its own instructions.
    pub own_cycles: u64,
    /// Clock cycles including everything that it called.
    pub total_cycles: u64,
}

impl Profile {
    /// Creates a profile that uses these names.
    pub fn new(symbols: Symbols) -> Self {
        Self { symbols, ..Self::default() }
    }

    /// Returns the functions, sorted by their own cycles, highest first.
    pub fn functions(&self) -> Vec<FunctionCost> {
        let mut costs: HashMap<CodeAddress, FunctionCost> = HashMap::new();
        for path in &self.paths {
            let cost = costs.entry(path.entry).or_insert_with(|| FunctionCost {
                name: self.name(path.entry),
                at: path.entry,
                calls: 0,
                own_cycles: 0,
                total_cycles: 0,
            });
            cost.own_cycles += path.cycles;
            cost.calls += path.calls;
        }
        // A function that calls itself counts once.
        for path in self.paths.iter().filter(|path| path.cycles > 0) {
            let entries: HashSet<CodeAddress> = self.upwards(path).map(|path| path.entry).collect();
            for entry in entries {
                costs.entry(entry).and_modify(|cost| cost.total_cycles += path.cycles);
            }
        }
        let mut costs: Vec<FunctionCost> = costs.into_values().collect();
        costs.sort_by(|a, b| b.own_cycles.cmp(&a.own_cycles).then(a.at.cmp(&b.at)));
        costs
    }

    /// Formats the profile as folded stacks: a line for each call path, with its functions separated by `;`, a space,
    /// and the clock cycles. flamegraph.pl and inferno accept it.
    pub fn folded(&self) -> String {
        let line = |path| {
            let mut names: Vec<String> = self.upwards(path).map(|path| self.name(path.entry)).collect();
            names.reverse();
            format!("{} {}\n", names.join(";"), path.cycles)
        };
        let mut lines: Vec<String> = self.paths.iter().filter(|path| path.cycles > 0).map(line).collect();
        lines.sort();
        lines.concat()
    }

    /// Returns a path, the path of its caller, and so on.
    fn upwards<'a>(&'a self, path: &'a CallPath) -> impl Iterator<Item = &'a CallPath> {
        std::iter::successors(Some(path), |path| self.paths.get(path.caller? as usize))
    }

    fn name(&self, entry: CodeAddress) -> String {
        self.symbols.entry(entry).map_or_else(|| entry.to_string(), str::to_owned)
    }

    /// Returns the path that leads to `entry` from `caller`.
    fn path(&mut self, caller: Option<u32>, entry: CodeAddress) -> u32 {
        if let Some(path) = self.known.get(&(caller, entry)) {
            return *path;
        }
        if self.paths.len() == MOST_PATHS {
            return caller.unwrap_or(0);
        }
        let path = self.paths.len() as u32;
        self.paths.push(CallPath { caller, entry, cycles: 0, calls: 0 });
        self.known.insert((caller, entry), path);
        path
    }
}

impl Observer for Profile {
    fn before(&mut self, step: &Step<'_>) {
        let symbols = &self.symbols;
        let same = self.stack.step(step, |at| symbols.is_entry(at));
        if same < self.at.len() || self.stack.frames().len() != self.at.len() {
            self.at.truncate(same);
            for index in same..self.stack.frames().len() {
                let frame = self.stack.frames()[index];
                let caller = self.at.last().copied().filter(|_| !frame.is_interrupt);
                let path = self.path(caller, frame.entry);
                self.paths[path as usize].calls += 1;
                self.at.push(path);
            }
        }
        if let Some(path) = self.at.last() {
            self.paths[*path as usize].cycles += instruction_cycles(step.opcode);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chip::{Chip, Speed};
    use crate::mcu::{CodeSpace, MemoryFlash};

    /// Runs code that ends with a jump to itself.
    fn profile(pieces: &[(usize, &[u8])], names: &str) -> Profile {
        let mut body = vec![0; 0x1_7ED6];
        for (at, bytes) in pieces {
            body[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        let mut chip = Chip::power_on(CodeSpace::from_body(&body), MemoryFlash::erased(), Speed::Super);
        let symbols = Symbols::parse(format!("ASxxxx Linker\n{names}").as_bytes()).unwrap().1;
        let mut profile = Profile::new(symbols);
        chip.run_observed(10_000, &mut profile);
        profile
    }

    const LCALL_100: [u8; 3] = [0x12, 0x01, 0x00];
    const END: [u8; 2] = [0x80, 0xFE];

    #[test]
    fn cycles_go_to_the_function_that_spends_them_along_its_callers() {
        // main calls f twice and g once, which calls f. LCALL is 4 cycles, NOP 1, RET 4, SJMP 3.
        let names = "C:   00000000 _main\nC:   00000100 _f\nC:   00000200 _g\n";
        let main = [&LCALL_100[..], &LCALL_100, &[0x12, 0x02, 0x00], &END].concat();
        let g = [&LCALL_100[..], &[0x22]].concat();
        let profile = profile(&[(0, &main), (0x100, &[0x00, 0x22]), (0x200, &g)], names);
        assert_eq!(profile.folded(), "main 15\nmain;f 10\nmain;g 8\nmain;g;f 5\n");
        let costs: Vec<_> = profile
            .functions()
            .into_iter()
            .map(|cost| (cost.name, cost.calls, cost.own_cycles, cost.total_cycles))
            .collect();
        let expected = [("f", 3, 15, 15), ("main", 1, 15, 38), ("g", 1, 8, 13)];
        assert_eq!(
            costs
                .iter()
                .map(|(name, calls, own, total)| (name.as_str(), *calls, *own, *total))
                .collect::<BTreeSet<_>>(),
            BTreeSet::from(expected)
        );
    }

    #[test]
    fn a_popped_return_address_and_a_new_stack_leave_the_function() {
        // f pops its return address, sets up its own stack and jumps on: the rest belongs to main.
        let names = "C:   00000000 _main\nC:   00000100 _f\n";
        let f = [0xD0, 0x83, 0xD0, 0x82, 0xE4, 0x73];
        let folded = profile(&[(0, &[&LCALL_100[..], &[0x00, 0x00], &END].concat()), (0x100, &f)], names).folded();
        assert_eq!(folded, "main 15\nmain;f 4\n");
    }

    #[test]
    fn a_ret_that_jumps_into_the_other_bank_enters_the_function_there() {
        // The stub pushes the return address and the target, selects bank 1, and returns into it, as 240417's stub
        // does.
        let stub = [0x90, 0x90, 0x00, 0x74, 0x40, 0xC0, 0xE0, 0x74, 0x01, 0xC0, 0xE0, 0xC0, 0x82, 0xC0, 0x83];
        let stub = [&stub[..], &[0x75, 0x96, 0x01, 0x22]].concat();
        let names = "C:   00000000 _main\nC:   00000100 _stub\nC:   00019000 _far\n";
        let back = [0x75, 0x96, 0x00, 0x22];
        let main = [&LCALL_100[..], &END].concat();
        let pieces = [(0, &main[..]), (0x100, &stub), (0x140, &back), (0xFF6B + 0x1000, &[0x00, 0x22])];
        let profile = profile(&pieces, names);
        let folded = profile.folded();
        assert!(folded.contains("main;stub;far 5\n"), "{folded}");
        assert!(folded.contains("main 7\n"), "{folded}");
    }

    #[test]
    fn a_jump_to_a_function_is_a_call_without_a_return_and_addresses_serve_as_names() {
        let pieces: [(usize, &[u8]); 3] =
            [(0, &[0x02, 0x01, 0x00]), (0x100, &[0x12, 0x02, 0x00, 0x80, 0xFE]), (0x200, &[0x22])];
        let with_names = profile(&pieces, "C:   00000100 _main\n").folded();
        assert_eq!(with_names, "c:0x0000 4\nmain 7\nmain;c:0x0200 4\n");
        assert_eq!(profile(&pieces, "").folded(), "c:0x0000 11\nc:0x0000;c:0x0200 4\n");
    }

    proptest::proptest! {
        #[test]
        fn any_code_has_a_bounded_profile_of_all_its_cycles(code in proptest::collection::vec(proptest::num::u8::ANY, 1..600)) {
            let profile = profile(&[(0, &code)], "");
            proptest::prop_assert!(profile.stack.frames().len() <= 257);
            let counted: u64 = profile.paths.iter().map(|path| path.cycles).sum();
            let folded: u64 = profile.folded().lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
            proptest::prop_assert_eq!(folded, counted);
        }
    }
}
