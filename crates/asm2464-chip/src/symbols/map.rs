//! Reads the map of SDCC's linker, `sdld`: a table for each area, with a line `C:   0000007B  _main   MODULE` for each
//! of its symbols. Source: sdld V03.00's output.
//!
//! With `--debug` it also has the compiler's own symbols: `G$main$0$0` for a function, `Fmodule$helper$0$0` for a
//! static one, each with an `X` before it at its last instruction. `A$...` and `C$...` are lines, which the `.cdb` has
//! too.

use std::collections::BTreeMap;

use asm2464::firmware::CodeAddress;

use super::{CompilerSymbol, Extent, Symbols, SymbolsError, c_name, place};

/// Areas whose symbols are not functions: the linker's constants, tables, initial values.
const NO_CODE: [&str; 3] = ["CONST", "XINIT", "."];
/// Absolute areas, which hold no functions either. Each module has its own.
const ABSOLUTE: &str = "CABS";

pub(super) fn is_map(text: &str) -> bool {
    text.lines().take(50).any(|line| line.starts_with("ASxxxx Linker") || line.starts_with("Area   "))
}

pub(super) fn parse(text: &str) -> Result<Symbols, SymbolsError> {
    let mut symbols = Symbols::default();
    let mut statics: Vec<(&str, CodeAddress)> = Vec::new();
    let (mut starts, mut ends) = (BTreeMap::new(), Vec::new());
    let mut has_code = true;
    for (index, line) in text.lines().enumerate() {
        if let Some(area) = area(line) {
            has_code = !NO_CODE.contains(&area) && !area.starts_with(ABSOLUTE);
            continue;
        }
        let Some(rest) = line.strip_prefix("C:").filter(|rest| rest.starts_with(' ')) else { continue };
        let mut words = rest.split_ascii_whitespace();
        let malformed = |reason| SymbolsError::Malformed { line: index + 1, reason };
        let address = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
        let address = address.ok_or_else(|| malformed("expected an address in hexadecimal after `C:`"))?;
        let name = words.next().ok_or_else(|| malformed("expected a name behind the address"))?;
        if !has_code || name.starts_with("A$") || name.starts_with("C$") {
            continue;
        }
        let Some(at) = place(address) else {
            symbols.ignored += 1;
            continue;
        };
        match name.strip_prefix('X').and_then(key) {
            Some(key) => ends.push((key, at)),
            None => match key(name) {
                Some(key) => {
                    starts.insert(key, at);
                    if key.0 != "G" {
                        statics.push((key.1, at));
                    }
                }
                None => symbols.add_function(at, c_name(name), Extent::Open),
            },
        }
    }
    for (name, at) in statics {
        symbols.add_function(at, name, Extent::Open);
    }
    symbols.end_functions(&starts, &ends);
    Ok(symbols)
}

/// Returns the name of the area whose table begins here: the line has its name, address and size.
fn area(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().filter(|name| line.starts_with(name))?;
    // The absolute area's name is `.  .ABS.`.
    let mut next = words.next()?;
    if next == ".ABS." {
        next = words.next()?;
    }
    let size = words.next()?;
    let is_number = |word: &str| word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_number(next) && is_number(size)).then_some(name)
}

/// Parses the compiler's own symbol for a function: `G` and `main` from `G$main$0$0`.
pub(super) fn key(symbol: &str) -> Option<CompilerSymbol<'_>> {
    let (rest, block) = symbol.rsplit_once('$')?;
    let (key, level) = rest.rsplit_once('$')?;
    let (scope, name) = key.split_once('$')?;
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let is_scope = scope == "G" || (scope.starts_with('F') && scope.len() > 1);
    (is_scope && !name.is_empty() && is_number(block) && is_number(level)).then_some((scope, name))
}
