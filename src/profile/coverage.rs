//! Line coverage: which source lines were executed, in lcov's format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::firmware::{BANK_LEN, BANK1_BODY_START, CodeAddress};
use crate::mcu::{Observer, Step};
use crate::symbols::Symbols;

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
    /// Returns how often the instruction at `at` was executed.
    pub fn count(&self, at: CodeAddress) -> u64 {
        self.counts.get(at.body_offset().0 as usize).copied().unwrap_or(0)
    }

    /// Formats the counts as an lcov tracefile, by the lines and functions of `symbols`. A line with code at several
    /// places gets the highest of their counts. `folder`, if not empty, is prepended to each file's name.
    pub fn lcov(&self, symbols: &Symbols, folder: &str) -> String {
        let mut files: BTreeMap<&str, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut functions: BTreeMap<&str, BTreeSet<(u32, &str, u64)>> = BTreeMap::new();
        for line in symbols.lines() {
            let count = self.count(line.at);
            let known = files.entry(&line.file).or_default().entry(line.line).or_default();
            *known = (*known).max(count);
            if let Some(name) = symbols.entry(line.at) {
                functions.entry(&line.file).or_default().insert((line.line, name, count));
            }
        }
        let mut text = String::new();
        let mut put = |line: std::fmt::Arguments<'_>| {
            // Writing into a String can't fail.
            let _ = writeln!(text, "{line}");
        };
        for (file, lines) in &files {
            put(format_args!("TN:"));
            let separator = if folder.is_empty() || folder.ends_with('/') { "" } else { "/" };
            put(format_args!("SF:{folder}{separator}{file}"));
            // A function gets one line: the first, if several begin at its first instruction.
            let mut seen = BTreeSet::new();
            let functions: Vec<_> =
                functions.get(file).into_iter().flatten().filter(|(_, name, _)| seen.insert(*name)).collect();
            for (line, name, _) in &functions {
                put(format_args!("FN:{line},{name}"));
            }
            for (_, name, count) in &functions {
                put(format_args!("FNDA:{count},{name}"));
            }
            put(format_args!("FNF:{}", functions.len()));
            put(format_args!("FNH:{}", functions.iter().filter(|(_, _, count)| *count > 0).count()));
            for (line, count) in lines {
                put(format_args!("DA:{line},{count}"));
            }
            put(format_args!("LF:{}", lines.len()));
            put(format_args!("LH:{}", lines.values().filter(|count| **count > 0).count()));
            put(format_args!("end_of_record"));
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
    use super::*;
    use crate::chip::{Chip, Speed};
    use crate::mcu::{CodeSpace, MemoryFlash};

    #[test]
    fn lines_and_functions_are_counted_as_often_as_their_code_was_executed() {
        // main calls f twice and never reaches line 9.
        let cdb = "M:a\nF:G$main$0$0(),C\nF:G$f$0$0(),C\nF:G$g$0$0(),C\nL:G$main$0$0:0\nL:G$f$0$0:10\nL:G$g$0$0:20\n\
            L:C$a.c$5$0$0:0\nL:C$a.c$6$0$0:3\nL:C$a.c$7$0$0:6\nL:C$a.c$2$0$0:10\nL:C$a.c$9$0$0:20\nL:C$b.h$1$0$0:10\n";
        let symbols = Symbols::parse(cdb.as_bytes()).unwrap().1;
        let mut body = vec![0; 0x100];
        body[..8].copy_from_slice(&[0x12, 0x00, 0x10, 0x12, 0x00, 0x10, 0x80, 0xFE]);
        body[0x10] = 0x22;
        let mut chip = Chip::power_on(CodeSpace::from_body(&body), MemoryFlash::erased(), Speed::Super);
        let mut coverage = Coverage::default();
        chip.run_observed(1_000, &mut coverage);
        let expected = "TN:\nSF:src/a.c\nFN:2,f\nFN:5,main\nFN:9,g\nFNDA:2,f\nFNDA:1,main\nFNDA:0,g\nFNF:3\nFNH:2\n\
            DA:2,2\nDA:5,1\nDA:6,1\nDA:7,1\nDA:9,0\nLF:5\nLH:4\nend_of_record\n\
            TN:\nSF:src/b.h\nFN:1,f\nFNDA:2,f\nFNF:1\nFNH:1\nDA:1,2\nLF:1\nLH:1\nend_of_record\n";
        assert_eq!(coverage.lcov(&symbols, "src"), expected);
    }
}
