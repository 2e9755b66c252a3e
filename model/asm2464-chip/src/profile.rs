//! Measurements of firmware on the chip model, for firmware authors: a profile by function, line coverage.
//!
//! Each is an [`Observer`] for [`Chip::run_observed`](crate::chip::Chip::run_observed), so that a
//! run without one costs nothing. An idle firmware is executed, and its main loop observed, until the chip model
//! notices that it idles.
//!
//! [`Profile`] follows the call stack. An 8051's calls, returns and interrupts move the stack pointer by two, so the stack
//! pointer shows when a function is left: by RET, by a popped return address (the compiler's helpers for `switch` do that),
//! or by a new stack. A RET that leaves no function is a jump: the vendor's stubs enter the other bank this way.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use asm2464::firmware::{BANK_LEN, BANK1_BODY_START, CodeAddress};

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
                let caller = if frame.is_interrupt { None } else { self.at.last().copied() };
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

/// A function that was entered and not yet left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Its first address.
    pub entry: CodeAddress,
    /// The stack pointer there, after the return address was pushed.
    sp: u8,
    /// Whether it is an interrupt handler.
    pub is_interrupt: bool,
}

/// The effect of an instruction on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StackEffect {
    Call,
    Return,
    Jump,
    Push,
    Pop,
    Other,
}

impl StackEffect {
    fn of(opcode: u8) -> Self {
        match opcode {
            0x12 => Self::Call,
            0x22 | 0x32 => Self::Return,
            0x02 | 0x73 | 0x80 => Self::Jump,
            0xC0 => Self::Push,
            0xD0 => Self::Pop,
            // ACALL and AJMP have bits of the target address above these five.
            opcode if opcode & 0x1F == 0x11 => Self::Call,
            opcode if opcode & 0x1F == 0x01 => Self::Jump,
            _ => Self::Other,
        }
    }

    /// Returns the stack pointer after the instruction, unless it writes that register itself.
    fn sp_after(self, sp: u8) -> u8 {
        match self {
            Self::Call => sp.wrapping_add(2),
            Self::Return => sp.wrapping_sub(2),
            Self::Push => sp.wrapping_add(1),
            Self::Pop => sp.wrapping_sub(1),
            Self::Jump | Self::Other => sp,
        }
    }
}

/// The call stack. Stack pointers rise from frame to frame, so there are at most 257 frames.
#[derive(Debug, Clone, Default)]
pub struct CallStack {
    frames: Vec<Frame>,
    /// The stack pointer before the last instruction, and that instruction's effect on it.
    before: Option<(u8, StackEffect)>,
}

impl CallStack {
    /// Returns the frames, outermost first. The innermost one is executing.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Follows the step from the last instruction to this one. `is_entry` says where functions begin: a jump there is
    /// a call without a return.
    ///
    /// Returns the number of frames, from the outermost, that are the same as before. Those from that index on are new.
    pub fn step(&mut self, step: &Step<'_>, is_entry: impl Fn(CodeAddress) -> bool) -> usize {
        let sp = step.cpu.sp();
        let kind = StackEffect::of(step.opcode);
        let Some((sp_before, before)) = self.before.replace((sp, kind)) else {
            self.frames.push(Frame { entry: step.at, sp: 0, is_interrupt: false });
            return 0;
        };
        let is_vector = matches!(step.at.addr(), 0x03 | 0x0B | 0x13 | 0x1B | 0x23);
        let is_interrupt = is_vector && sp == before.sp_after(sp_before).wrapping_add(2);
        // Most instructions do not change the stack.
        if !is_interrupt && sp == sp_before && before == StackEffect::Other {
            return self.frames.len();
        }
        // An interrupt may come before a function's first instruction, whose address is then on the stack.
        let (at, own_sp) = match interrupted(step) {
            Some(at) if is_interrupt => (at, sp.wrapping_sub(2)),
            _ => (step.at, sp),
        };
        let depth = self.frames.len();
        let mut lowest = self.leave(own_sp);
        match before {
            StackEffect::Call => lowest = lowest.min(self.enter(at, own_sp, false)),
            StackEffect::Return if lowest == depth => lowest = lowest.min(self.enter(at, own_sp, false)),
            StackEffect::Jump if is_entry(at) => {
                if let Some(top) = self.frames.last_mut().filter(|top| top.entry != at) {
                    top.entry = at;
                    lowest = lowest.min(self.frames.len() - 1);
                }
            }
            _ => {}
        }
        if is_interrupt {
            lowest = lowest.min(self.enter(step.at, sp, true));
        }
        lowest
    }

    /// Drops the frames whose return address is no longer on the stack. Returns the number of frames that are left.
    fn leave(&mut self, sp: u8) -> usize {
        while self.frames.len() > 1 && self.frames.last().is_some_and(|top| u16::from(sp) + 2 <= u16::from(top.sp)) {
            self.frames.pop();
        }
        self.frames.len()
    }

    fn enter(&mut self, entry: CodeAddress, sp: u8, is_interrupt: bool) -> usize {
        while self.frames.len() > 1 && self.frames.last().is_some_and(|top| top.sp >= sp) {
            self.frames.pop();
        }
        self.frames.push(Frame { entry, sp, is_interrupt });
        self.frames.len() - 1
    }
}

/// Returns where the code continues after the interrupt that has just occurred.
fn interrupted(step: &Step<'_>) -> Option<CodeAddress> {
    let sp = step.cpu.sp();
    let [high, low] = [sp, sp.wrapping_sub(1)].map(|at| step.cpu.internal_ram[usize::from(at)]);
    CodeAddress::fetched(step.bank, u16::from_be_bytes([high, low]))
}

/// Counts how often each instruction was executed.
#[derive(Debug, Clone)]
pub struct Coverage {
    /// Counts by offset in the body.
    counts: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: vec![0; (BANK1_BODY_START + BANK_LEN) as usize] }
    }
}

impl Coverage {
    /// Formats the counts as an lcov tracefile, by the lines and functions of `symbols`. A line with code at several
    /// places gets the highest of their counts. `folder`, if not empty, is prepended to each file's name.
    pub fn lcov(&self, symbols: &Symbols, folder: &str) -> String {
        let mut files: BTreeMap<&str, (BTreeMap<u32, u64>, BTreeSet<_>)> = BTreeMap::new();
        for line in symbols.lines() {
            let count = self.counts.get(line.at.body_offset().0 as usize).copied().unwrap_or(0);
            let (lines, functions) = files.entry(&line.file).or_default();
            let known = lines.entry(line.line).or_default();
            *known = count.max(*known);
            functions.extend(symbols.entry(line.at).map(|name| (line.line, name, count)));
        }
        let separator = if folder.is_empty() || folder.ends_with('/') { "" } else { "/" };
        let mut text = String::new();
        for (file, (lines, mut functions)) in files {
            text += &format!("TN:\nSF:{folder}{separator}{file}\n");
            // A function gets one line: the first, if several begin at its first instruction.
            let mut seen = BTreeSet::new();
            functions.retain(|(_, name, _)| seen.insert(*name));
            text.extend(functions.iter().map(|(line, name, _)| format!("FN:{line},{name}\n")));
            text.extend(functions.iter().map(|(_, name, count)| format!("FNDA:{count},{name}\n")));
            let executed = functions.iter().filter(|(_, _, count)| *count > 0).count();
            text += &format!("FNF:{}\nFNH:{executed}\n", functions.len());
            text.extend(lines.iter().map(|(line, count)| format!("DA:{line},{count}\n")));
            let executed = lines.values().filter(|count| **count > 0).count();
            text += &format!("LF:{}\nLH:{executed}\nend_of_record\n", lines.len());
        }
        text
    }
}

impl Observer for Coverage {
    fn before(&mut self, step: &Step<'_>) {
        if let Some(count) = self.counts.get_mut(step.at.body_offset().0 as usize) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chip::{Chip, Speed};
    use crate::mcu::CodeSpace;
    use crate::spi_flash::SpiFlash;

    /// Runs code that ends with a jump to itself.
    fn profile(pieces: &[(usize, &[u8])], names: &str) -> Profile {
        let mut body = vec![0; 0x1_7ED6];
        for (at, bytes) in pieces {
            body[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        let mut chip = Chip::power_on(CodeSpace::from_body(&body), SpiFlash::erased(), Speed::Super);
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

    #[test]
    fn lines_and_functions_are_counted_as_often_as_their_code_was_executed() {
        // main calls f twice and never reaches line 9.
        let cdb = "M:a\nF:G$main$0$0(),C\nF:G$f$0$0(),C\nF:G$g$0$0(),C\nL:G$main$0$0:0\nL:G$f$0$0:10\nL:G$g$0$0:20\n\
        L:C$a.c$5$0$0:0\nL:C$a.c$6$0$0:3\nL:C$a.c$7$0$0:6\nL:C$a.c$2$0$0:10\nL:C$a.c$9$0$0:20\nL:C$b.h$1$0$0:10\n";
        let symbols = Symbols::parse(cdb.as_bytes()).unwrap().1;
        let mut body = vec![0; 0x100];
        body[..8].copy_from_slice(&[0x12, 0x00, 0x10, 0x12, 0x00, 0x10, 0x80, 0xFE]);
        body[0x10] = 0x22;
        let mut chip = Chip::power_on(CodeSpace::from_body(&body), SpiFlash::erased(), Speed::Super);
        let mut coverage = Coverage::default();
        chip.run_observed(1_000, &mut coverage);
        let expected = "TN:\nSF:src/a.c\nFN:2,f\nFN:5,main\nFN:9,g\nFNDA:2,f\nFNDA:1,main\nFNDA:0,g\nFNF:3\nFNH:2\n\
        DA:2,2\nDA:5,1\nDA:6,1\nDA:7,1\nDA:9,0\nLF:5\nLH:4\nend_of_record\n\
        TN:\nSF:src/b.h\nFN:1,f\nFNDA:2,f\nFNF:1\nFNH:1\nDA:1,2\nLF:1\nLH:1\nend_of_record\n";
        assert_eq!(coverage.lcov(&symbols, "src"), expected);
    }
}
