//! The instructions of a hunk, before and after patching.

use asm2464::firmware::{BodyOffset, Image};
use asm2464_chip::disasm::{Line, disassemble_in};

use super::hunk::Hunk;

/// The longest instruction of the 8051, in bytes.
const LONGEST: usize = 3;

/// The instructions that a hunk changes, before and after.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Instructions {
    /// In the unpatched image.
    pub before: Vec<Line>,
    /// In the patched image.
    pub after: Vec<Line>,
}

impl Instructions {
    /// Disassembles a hunk in both images, from its first instruction to the end of its last.
    pub fn of(hunk: &Hunk, unpatched: &Image, patched: &Image) -> Self {
        let lines = |image: &Image| {
            let start = hunk.instruction.map_or(hunk.at.body_offset(), |at| at.body_offset());
            let end = hunk.range().end;
            let last = (end + LONGEST - 1).min(image.body().len());
            let (Some(at), Some(code)) = (start.code_address(), image.body().get(start.0 as usize..last)) else {
                return Vec::new();
            };
            let mut lines = disassemble_in(image, code, at);
            lines.retain(|line| line.at.body_offset() < BodyOffset(end as u32));
            lines
        };
        Self { before: lines(unpatched), after: lines(patched) }
    }
}

#[cfg(test)]
mod tests {
    use asm2464::digest::Sha256Digest;
    use asm2464_chip::practice;

    use super::super::{Library, PatchSet, Selection};
    use super::*;

    #[test]
    fn a_hunk_inside_an_instruction_shows_the_whole_instruction() {
        let library = Library::of_repository().unwrap();
        let image = practice::image();
        let digest = Sha256Digest(image.sha256());
        let set = PatchSet::resolve(&library, &Selection::default(), &image, digest).unwrap();
        let patched = set.apply().unwrap().image;
        let (_, hunk) = set.hunks().next().unwrap();
        let shown = Instructions::of(hunk, &image, &patched);
        let text = |lines: &[Line]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
        assert_eq!(text(&shown.before), ["mov r7, #0x0A"]);
        assert_eq!(text(&shown.after), ["mov r7, #0x05"]);
    }
}
