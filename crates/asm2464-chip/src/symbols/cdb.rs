//! Reads SDCC's debugging information, `.cdb`: one record per line. `F:` declares a function; `L:` gives the address of
//! a symbol or a source line. Source: SDCC's manual, "CDB file format", and SDCC 4.2's output.
//!
//! `L:G$main$0$0:7B` is where a function begins, `L:XG$main$0$0:9E` its last instruction, `L:C$a.c$8$1_0$6:9E` line 8
//! of a.c, `L:A$start$97:0` line 97 of start.asm. Linker records have the address in hexadecimal.

use std::collections::{BTreeMap, HashSet};

use asm2464::firmware::CodeAddress;

use super::map::key;
use super::{CompilerSymbol, Extent, Symbols, SymbolsError, place};

pub(super) fn is_cdb(text: &str) -> bool {
    let is_record = |line: &str| {
        let bytes = line.as_bytes();
        bytes.len() > 2 && bytes[1] == b':' && b"MFSTL".contains(&bytes[0])
    };
    text.lines().next().is_some_and(is_record)
}

pub(super) fn parse(text: &str) -> Result<Symbols, SymbolsError> {
    let mut symbols = Symbols::default();
    // The linker's records usually come last, but the format does not demand it.
    let functions: HashSet<CompilerSymbol<'_>> = text.lines().filter_map(function).collect();
    let (mut starts, mut ends) = (BTreeMap::new(), Vec::new());
    let mut assembly: Vec<(&str, u32, CodeAddress)> = Vec::new();
    let mut compiled: HashSet<&str> = HashSet::new();
    for (index, record) in text.lines().enumerate() {
        let Some(record) = record.strip_prefix("L:") else { continue };
        let malformed = |reason| SymbolsError::Malformed { line: index + 1, reason };
        let (symbol, address) = record.rsplit_once(':').ok_or_else(|| malformed("a linker record has no address"))?;
        let address = u32::from_str_radix(address.trim_end(), 16)
            .map_err(|_| malformed("a linker record's address is no hexadecimal number of 32 bits"))?;
        let mut parts = symbol.split('$');
        let kind = parts.next().unwrap_or_default();
        let is_line = matches!(kind, "A" | "C");
        let start = key(symbol).filter(|key| functions.contains(key));
        let end = symbol.strip_prefix('X').and_then(key).filter(|key| functions.contains(key));
        if !is_line && start.is_none() && end.is_none() {
            continue;
        }
        let Some(at) = place(address) else {
            symbols.ignored += 1;
            continue;
        };
        if let Some(key) = start {
            symbols.add_function(at, key.1, Extent::Open);
            starts.insert(key, at);
        } else if let Some(key) = end {
            ends.push((key, at));
        } else {
            let file = parts.next().unwrap_or_default();
            let line = parts.next().and_then(|line| line.parse().ok());
            let line = line.ok_or_else(|| malformed("a line record has no line number"))?;
            if kind == "C" {
                compiled.insert(file.rsplit_once('.').map_or(file, |(stem, _)| stem));
                symbols.add_line(file, line, at)?;
            } else {
                assembly.push((file, line, at));
            }
        }
    }
    symbols.end_functions(&starts, &ends);
    // Skip assembly that the compiler generated, which is no source.
    for (module, line, at) in assembly {
        if !compiled.contains(module) {
            symbols.add_line(&format!("{module}.asm"), line, at)?;
        }
    }
    Ok(symbols)
}

/// Returns scope and name of the function that a record declares.
fn function(record: &str) -> Option<CompilerSymbol<'_>> {
    let (symbol, _) = record.strip_prefix("F:")?.split_once('(')?;
    key(symbol)
}
