//! Line coverage: which source lines were executed, in lcov's format.

use std::collections::{BTreeMap, BTreeSet};

use asm2464::firmware::{BANK_LEN, BANK1_BODY_START};

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
