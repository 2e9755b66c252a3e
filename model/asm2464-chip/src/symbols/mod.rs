//! Names and source lines of firmware code, from the linker's files: SDCC's `.map` and `.cdb`, and ELF.
//!
//! These files are untrusted input: everything in them is checked against code space and against the image, bounded,
//! and shown only if it is plain text. Addresses are the CPU's, with 1 in bits 16 to 23 for bank 1, as SDCC writes
//! banked code.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use asm2464::firmware::{Bank, CodeAddress, Image, known_routines};
use asm2464::{Failure, Kind, text};
use derive_more::Display;

use crate::code::{elf_functions, from_elf_address};

/// The longest symbol file that is read, in bytes.
pub const MAX_SYMBOLS_LEN: usize = 16 << 20;
/// Maximum number of line records in a file.
const MAX_LINES: usize = 500_000;
/// The longest name, in characters.
const MAX_NAME: usize = 255;
/// Maximum length, in bytes, that is assumed for a function of unknown length.
const REACH: u16 = 0x1000;

/// The format of a symbol file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum SymbolsForm {
    /// The map that SDCC's linker writes.
    #[display("sdld map")]
    Map,
    /// SDCC's debugging information.
    #[display("SDCC .cdb")]
    Cdb,
    /// ELF for EM_8051.
    #[display("ELF")]
    Elf,
}

/// The extent of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// To its last instruction, which begins at this address.
    To(CodeAddress),
    /// To the next function.
    Open,
    /// Its entry only: the bytes after it may belong to another function.
    Entry,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FunctionSymbol {
    name: String,
    extent: Extent,
}

/// The compiler's own symbol for a function: its scope, which is `G` for a global one, and its name.
type CompilerSymbol<'a> = (&'a str, &'a str);

/// A line of source, and the code that begins it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file's name, without its folder.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// Its first instruction.
    pub at: CodeAddress,
}

/// Names of functions and source lines, by address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Symbols {
    functions: BTreeMap<CodeAddress, FunctionSymbol>,
    lines: BTreeSet<SourceLine>,
    /// How many symbols were left out: outside code, outside the image, or with a name that is not plain text.
    pub ignored: usize,
}

impl Symbols {
    /// Returns the known routines of an image of this version.
    pub fn known(image: &Image) -> Self {
        let mut symbols = Self::default();
        for routine in known_routines(image.version()) {
            symbols.add_function(routine.at, routine.name, Extent::Entry);
        }
        symbols
    }

    /// Parses a file in any of the formats.
    ///
    /// # Errors
    /// The file has none of the formats, or does not follow its own, with codes that begin with `asm2464::symbols::` or
    /// `asm2464::elf::`.
    pub fn parse(file: &[u8]) -> Result<(SymbolsForm, Self), Failure> {
        if file.starts_with(b"\x7FELF") {
            return Ok((SymbolsForm::Elf, Self::from_elf(file)?));
        }
        let text = text::decode(file).unwrap_or_else(|_| String::from_utf8_lossy(file));
        if is_cdb(&text) {
            Ok((SymbolsForm::Cdb, parse_cdb(&text)?))
        } else if is_map(&text) {
            Ok((SymbolsForm::Map, parse_map(&text)?))
        } else {
            let message = "this is not an sdld map, an SDCC .cdb file or an ELF file";
            Err(Failure::new(Kind::BadInput.code("asm2464::symbols::unknown_form"), message))
        }
    }

    fn from_elf(file: &[u8]) -> Result<Self, Failure> {
        let mut symbols = Self::default();
        for (address, len, name) in elf_functions(file)? {
            let Some(at) = from_elf_address(address, Bank::Common) else {
                symbols.ignored += 1;
                continue;
            };
            let end = len.checked_sub(1).and_then(|len| from_elf_address(address.checked_add(len)?, Bank::Common));
            let end = end.filter(|end| end.bank() == at.bank() && *end >= at);
            symbols.add_function(at, name, end.map_or(Extent::Open, Extent::To));
        }
        Ok(symbols)
    }

    /// Adds the contents of `other`. If both name an address, keeps the name in `self`.
    pub fn merge(&mut self, other: Self) {
        for (at, function) in other.functions {
            let extent = function.extent;
            let known = self.functions.entry(at).or_insert(function);
            if let Extent::To(_) = extent {
                known.extent = extent;
            }
        }
        self.lines.extend(other.lines);
        self.ignored += other.ignored;
    }

    /// Removes names and lines at addresses where `image` has no code.
    pub fn keep_inside(&mut self, image: &Image) {
        let before = self.functions.len() + self.lines.len();
        self.functions.retain(|at, _| image.code(*at).is_some());
        self.lines.retain(|line| image.code(line.at).is_some());
        self.ignored += before - self.functions.len() - self.lines.len();
    }

    /// Returns how many functions have a name.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Returns the source lines, by file, line and address.
    pub fn lines(&self) -> impl Iterator<Item = &SourceLine> {
        self.lines.iter()
    }

    /// Whether a function begins at `at`.
    pub fn is_entry(&self, at: CodeAddress) -> bool {
        self.functions.contains_key(&at)
    }

    /// Returns the name of the function that begins at `at`.
    pub fn entry(&self, at: CodeAddress) -> Option<&str> {
        self.functions.get(&at).map(|function| function.name.as_str())
    }

    /// Returns the functions, by address.
    pub fn entries(&self) -> impl Iterator<Item = (CodeAddress, &str)> {
        self.functions.iter().map(|(at, function)| (*at, function.name.as_str()))
    }

    /// Returns `name` or `name+0x12` if `at` is in a function with a name.
    pub fn label(&self, at: CodeAddress) -> Option<String> {
        let (entry, FunctionSymbol { name, extent }) = self.functions.range(..=at).next_back()?;
        if entry.bank() != at.bank() {
            return None;
        }
        let offset = at.addr().checked_sub(entry.addr())?;
        let is_inside = match *extent {
            Extent::To(end) => at <= end,
            Extent::Open => offset < REACH,
            Extent::Entry => offset == 0,
        };
        if !is_inside {
            return None;
        }
        Some(if offset == 0 { name.clone() } else { format!("{name}+{offset:#x}") })
    }

    fn add_function(&mut self, at: CodeAddress, name: &str, extent: Extent) {
        if !is_plain(name) {
            self.ignored += 1;
            return;
        }
        let function = FunctionSymbol { name: name.to_owned(), extent };
        self.functions.entry(at).or_insert(function);
    }

    /// Sets the ends of functions by the compiler's symbols.
    fn end_functions(
        &mut self,
        starts: &BTreeMap<CompilerSymbol<'_>, CodeAddress>,
        ends: &[(CompilerSymbol<'_>, CodeAddress)],
    ) {
        for (symbol, end) in ends {
            let Some(at) = starts.get(symbol) else { continue };
            if end.bank() == at.bank()
                && end >= at
                && let Some(function) = self.functions.get_mut(at)
            {
                function.extent = Extent::To(*end);
            }
        }
    }

    fn add_line(&mut self, file: &str, line: u32, at: CodeAddress) -> Result<(), Failure> {
        // Accept a bare name only: the source file is looked for beside the symbols.
        let is_name = is_plain(file) && !file.contains(['/', '\\']) && file != "." && file != "..";
        if !is_name || line == 0 {
            self.ignored += 1;
        } else if self.lines.len() == MAX_LINES {
            let message = format!("it has more than {MAX_LINES} line records");
            return Err(Failure::new(Kind::BadInput.code("asm2464::symbols::too_many"), message));
        } else {
            self.lines.insert(SourceLine { file: file.to_owned(), line, at });
        }
        Ok(())
    }
}

/// The error of a line that does not follow its file's format. Lines count from 1.
fn malformed_line(line: usize, reason: &str) -> Failure {
    Failure::new(Kind::BadInput.code("asm2464::symbols::malformed"), format!("line {line}: {reason}"))
}

/// Whether a name can appear as it is in a folded stack, in lcov and on a terminal.
fn is_plain(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
}

/// Returns a C function's name from the linker's, which has an underscore before it.
fn c_name(symbol: &str) -> &str {
    symbol.strip_prefix('_').filter(|name| !name.is_empty()).unwrap_or(symbol)
}

fn place(address: u32) -> Option<CodeAddress> {
    from_elf_address(address.into(), Bank::Common)
}

// Reads the map of SDCC's linker, `sdld`: a table for each area, with a line `C:   0000007B  _main   MODULE` for each
// of its symbols. Source: sdld V03.00's output.
//
// With `--debug` it also has the compiler's own symbols: `G$main$0$0` for a function, `Fmodule$helper$0$0` for a
// static one, each with an `X` before it at its last instruction. `A$...` and `C$...` are lines, which the `.cdb` has
// too.

/// Areas whose symbols are not functions: the linker's constants, tables, initial values.
const NO_CODE: [&str; 3] = ["CONST", "XINIT", "."];
/// Absolute areas, which hold no functions either. Each module has its own.
const ABSOLUTE: &str = "CABS";

fn is_map(text: &str) -> bool {
    text.lines().take(50).any(|line| line.starts_with("ASxxxx Linker") || line.starts_with("Area   "))
}

fn parse_map(text: &str) -> Result<Symbols, Failure> {
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
        let malformed = |reason| malformed_line(index + 1, reason);
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
fn key(symbol: &str) -> Option<CompilerSymbol<'_>> {
    let (rest, block) = symbol.rsplit_once('$')?;
    let (key, level) = rest.rsplit_once('$')?;
    let (scope, name) = key.split_once('$')?;
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let is_scope = scope == "G" || (scope.starts_with('F') && scope.len() > 1);
    (is_scope && !name.is_empty() && is_number(block) && is_number(level)).then_some((scope, name))
}

// Reads SDCC's debugging information, `.cdb`: one record per line. `F:` declares a function; `L:` gives the address of
// a symbol or a source line. Source: SDCC's manual, "CDB file format", and SDCC 4.2's output.
//
// `L:G$main$0$0:7B` is where a function begins, `L:XG$main$0$0:9E` its last instruction, `L:C$a.c$8$1_0$6:9E` line 8
// of a.c, `L:A$start$97:0` line 97 of start.asm. Linker records have the address in hexadecimal.

fn is_cdb(text: &str) -> bool {
    let is_record = |line: &str| {
        let bytes = line.as_bytes();
        bytes.len() > 2 && bytes[1] == b':' && b"MFSTL".contains(&bytes[0])
    };
    text.lines().next().is_some_and(is_record)
}

fn parse_cdb(text: &str) -> Result<Symbols, Failure> {
    let mut symbols = Symbols::default();
    // The linker's records usually come last, but the format does not demand it.
    let functions: HashSet<CompilerSymbol<'_>> = text.lines().filter_map(function).collect();
    let (mut starts, mut ends) = (BTreeMap::new(), Vec::new());
    let mut assembly: Vec<(&str, u32, CodeAddress)> = Vec::new();
    let mut compiled: HashSet<&str> = HashSet::new();
    for (index, record) in text.lines().enumerate() {
        let Some(record) = record.strip_prefix("L:") else { continue };
        let malformed = |reason| malformed_line(index + 1, reason);
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
