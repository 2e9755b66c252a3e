//! Names in an image's code: from the user's files of symbols, and of known routines.

use std::fmt;
use std::path::PathBuf;

use asm2464::escape::Escape as _;
use asm2464::firmware::{Bank, CodeAddress, Image};
use asm2464::{AnyFailure, ParseError};
use asm2464_chip::symbols::{MAX_SYMBOLS_LEN, Symbols};
use i8051::Instruction;
use serde::Serialize;

use crate::cli::given::user_files::read;
use crate::failure::in_file;

/// Parses a code address. The common area, below 0x8000, needs no `c:`.
pub(in crate::cli) fn code_address(text: &str) -> Result<CodeAddress, ParseError> {
    let Some(digits) = text.strip_prefix("0x") else { return text.parse() };
    if text.contains(':') {
        return text.parse();
    }
    let parsed = format!("c:{text}").parse();
    let is_hexadecimal = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if parsed.is_err() && is_hexadecimal {
        let message = format!("{text:?} is not in the common area, so name its bank: b0:{text} or b1:{text}");
        return Err(ParseError(message));
    }
    parsed
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct SymbolsReport {
    /// The file.
    pub(in crate::cli) file: String,
    /// Its format.
    pub(in crate::cli) format: String,
    /// How many functions it names.
    pub(in crate::cli) functions: usize,
    /// How many line records it has.
    pub(in crate::cli) lines: usize,
    /// How many symbols were left out: outside the image's code, or with a name that is not plain text.
    pub(in crate::cli) ignored: usize,
}

impl fmt::Display for SymbolsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, format, functions, lines, ignored } = self;
        write!(f, "{}: {format}, {functions} functions, {lines} lines", file.shown())?;
        if *ignored > 0 { write!(f, ", {ignored} left out") } else { Ok(()) }
    }
}

/// The names in an image's code.
#[derive(Debug, Default)]
pub(in crate::cli) struct LoadedSymbols {
    pub(in crate::cli) names: Symbols,
    /// The files that the names come from.
    pub(in crate::cli) files: Vec<SymbolsReport>,
    /// The folder of the first file that has lines.
    pub(in crate::cli) folder: String,
}

impl LoadedSymbols {
    /// Reads symbol files. If two name the same address, the first wins. Both take precedence over the image's known
    /// routines.
    pub(in crate::cli) fn read(files: &[PathBuf], image: &Image) -> Result<Self, AnyFailure> {
        let mut names = Self::default();
        for path in files {
            let bytes = read(path, MAX_SYMBOLS_LEN)?;
            let (form, mut symbols) = Symbols::parse(&bytes).map_err(in_file(path))?;
            symbols.keep_inside(image);
            let lines = symbols.lines().count();
            if lines > 0 && names.names.lines().next().is_none() {
                names.folder = path.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
            }
            names.files.push(SymbolsReport {
                file: path.display().to_string(),
                format: form.to_string(),
                functions: symbols.functions(),
                lines,
                ignored: symbols.ignored,
            });
            names.names.merge(symbols);
        }
        names.names.merge(Symbols::known(image));
        Ok(names)
    }

    /// Returns the note for a line of a trace: the function it is in, and where it leads. Empty without names.
    pub(in crate::cli) fn note(&self, at: CodeAddress, instruction: &Instruction) -> String {
        let here = self.names.label(at);
        let target = instruction.target().and_then(|target| u16::try_from(target).ok());
        // Common code runs with either bank selected, so a bank's function is named only if the code is in that bank.
        let target = target.and_then(|target| match at.bank() {
            Bank::Common if target >= 0x8000 => None,
            Bank::Bank1 => CodeAddress::fetched(1, target),
            _ => CodeAddress::fetched(0, target),
        });
        let there = target.and_then(|target| self.names.label(target));
        match (here, there) {
            (None, None) => String::new(),
            (Some(here), None) => format!("  ; {here}"),
            (here, Some(there)) => format!("  ; {} -> {there}", here.unwrap_or_default()),
        }
    }
}
