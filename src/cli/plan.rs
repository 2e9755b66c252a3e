//! A patch plan as text: every hunk with its addresses, bytes and instructions.

use crate::patch::{HunkOnImage, PatchOnImage};
use asm2464::digest::to_hex;
use asm2464::escape::Escape as _;
use asm2464_chip::disasm::Line;

use super::table;

/// Prints the hunks: place in the file and in code, bytes and instructions, before and after.
pub fn print_hunks(patches: &[PatchOnImage<'_>]) {
    for (patch, hunk) in patches.iter().flat_map(|patch| patch.hunks.iter().map(move |hunk| (patch, hunk))) {
        let HunkOnImage { file_offset, address, expected, new, before, after } = hunk;
        let address = address.map(|address| format!(", {address}")).unwrap_or_default();
        outln!("  {}: {:#07x} in the file{address}", patch.id.shown(), file_offset.0);
        let blocks = [
            ("expected", byte_lines(expected)),
            ("new", byte_lines(new)),
            ("before", instruction_lines(before)),
            ("after", instruction_lines(after)),
        ];
        table::print_labelled(4, blocks.into_iter().flat_map(|(name, lines)| table::under(name, shortened(lines))));
    }
}

/// The most lines of a hunk's bytes or instructions that are shown.
const SHOWN: usize = 8;

/// Cuts lines that would fill the screen.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let left = lines.len().saturating_sub(SHOWN);
    // The line that counts the others takes a line itself.
    if left > 1 {
        lines.truncate(SHOWN);
        lines.push(format!("... {left} more lines; --json has them all"));
    }
    lines
}

/// Runs of this many zeros or NOPs, or more, are counted instead of listed.
const FOLDED: usize = 8;
/// Bytes on a line.
const BYTES_A_LINE: usize = 16;

/// Formats bytes as lines. A run of zeros becomes a line with their number.
fn byte_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        let len = if zeros >= FOLDED {
            lines.push(format!("{zeros} zero bytes"));
            zeros
        } else {
            let folds = |at: &usize| rest[*at..].iter().take(FOLDED).filter(|byte| **byte == 0).count() == FOLDED;
            let len = (1..rest.len().min(BYTES_A_LINE)).find(folds).unwrap_or(rest.len().min(BYTES_A_LINE));
            lines.push(to_hex(&rest[..len], " "));
            len
        };
        rest = &rest[len..];
    }
    lines
}

/// Formats instructions as lines. A run of NOPs becomes a line with the number of zero bytes.
fn instruction_lines(lines: &[Line]) -> Vec<String> {
    let is_nop = |line: &Line| line.bytes.iter().all(|byte| *byte == 0);
    let runs = lines.chunk_by(|a, b| is_nop(a) && is_nop(b));
    runs.flat_map(|run| match run {
        [first, .., _] if run.len() >= FOLDED => {
            vec![format!("{} {} zero bytes", first.at, run.iter().map(|line| line.bytes.len()).sum::<usize>())]
        }
        _ => run.iter().map(|line| format!("{} {}", line.at, line.text)).collect(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{Bank, CodeAddress};
    use asm2464_chip::disasm::disassemble_in;
    use asm2464_chip::practice;

    use super::*;

    #[test]
    fn runs_of_zeros_and_of_nops_are_counted() {
        let image = practice::image();
        let mut code = vec![0; 358];
        assert_eq!(byte_lines(&code), ["358 zero bytes"]);
        let at = CodeAddress::new(Bank::Bank1, 0xEF4F).unwrap();
        assert_eq!(instruction_lines(&disassemble_in(&image, &code, at)), ["b1:0xEF4F 358 zero bytes"]);
        // MOV R7,#5 in the middle of the NOPs.
        (code[100], code[101]) = (0x7F, 5);
        assert_eq!(byte_lines(&code), ["100 zero bytes", "7f 05", "256 zero bytes"]);
        let lines = instruction_lines(&disassemble_in(&image, &code, at));
        assert_eq!(lines, ["b1:0xEF4F 100 zero bytes", "b1:0xEFB3 mov r7, #0x05", "b1:0xEFB5 256 zero bytes"]);
    }

    #[test]
    fn long_code_is_cut_and_says_so() {
        let lines = |count: usize| (0..count).map(|line| line.to_string()).collect::<Vec<_>>();
        assert_eq!(shortened(lines(9)), lines(9));
        let cut = shortened(lines(194));
        assert_eq!((&cut[..8], cut[8].as_str()), (&lines(8)[..], "... 186 more lines; --json has them all"));
        assert_eq!(cut.len(), 9);
    }

    #[test]
    fn a_few_zeros_are_listed_and_no_byte_is_lost() {
        assert_eq!(byte_lines(&[0; 7]), ["00 00 00 00 00 00 00"]);
        let bytes: Vec<u8> = (1..=20).collect();
        assert_eq!(byte_lines(&bytes).concat().replace(' ', "").len(), 40);
        assert_eq!(byte_lines(&[]), [""; 0]);
    }
}
