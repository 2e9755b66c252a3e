//! Files that users name in place of an image: what they are, and which command takes them.

use std::path::Path;

use crate::failure::Failure;
use crate::flash::backup_folder;
use crate::patch::Receipt;
use crate::shell;
use asm2464::Kind;
use asm2464_chip::code::{CodeFormat, TextKind};
use derive_more::Display;

/// What is in the place of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum OtherKind {
    /// Intel HEX or ELF.
    #[display("{_0}")]
    Code(CodeFormat),
    /// A zip archive.
    #[display("a zip archive")]
    Zip,
    /// A program for Windows, such as a vendor's updater.
    #[display("a Windows program")]
    Program,
    /// The receipt of a patched image.
    #[display("the receipt of an image")]
    Receipt,
    /// Any other text.
    #[display("{_0}")]
    Text(TextKind),
    /// A folder that `asmpatch backup` made.
    #[display("the folder of a backup")]
    Backup,
}

impl OtherKind {
    /// Recognises a file that is not an image by its first bytes; `None` for what may be a damaged image.
    pub fn of_file(start: &[u8]) -> Option<Self> {
        let is_receipt = |text: &[u8]| str::from_utf8(text).is_ok_and(|text| Receipt::parse("", text).is_ok());
        match CodeFormat::of(start) {
            format @ (CodeFormat::IntelHex | CodeFormat::Elf) => Some(Self::Code(format)),
            CodeFormat::Raw if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") => Some(Self::Zip),
            CodeFormat::Raw if start.starts_with(b"MZ") => Some(Self::Program),
            CodeFormat::Raw if is_receipt(start) => Some(Self::Receipt),
            CodeFormat::Raw => TextKind::of(start).map(Self::Text),
        }
    }

    /// Recognises the folder of a backup; `None` for any other folder.
    pub fn of_folder(folder: &Path) -> Option<Self> {
        folder.join(backup_folder::MANIFEST).is_file().then_some(Self::Backup)
    }

    /// Returns the error for such a file in place of an image.
    pub fn refusal(self, path: &Path) -> Failure {
        let label = match self {
            Self::Code(_) => Kind::BadInput.code("asmpatch::image::is_code"),
            Self::Zip | Self::Program => Kind::BadInput.code("asmpatch::image::is_archive"),
            Self::Receipt => Kind::BadInput.code("asmpatch::image::is_receipt"),
            Self::Text(_) => Kind::BadInput.code("asmpatch::image::is_text"),
            Self::Backup => Kind::BadInput.code("asmpatch::image::is_backup"),
        };
        Failure::new(label, format!("{} is {self}, expected an image", path.display())).helped(self.help(path))
    }

    /// Names the command that takes such a file.
    fn help(self, path: &Path) -> Option<String> {
        let named = shell::path(path);
        match self {
            Self::Code(_) => {
                let image = shell::path(path.with_extension("bin"));
                let image = if image == named { shell::path(path.with_extension("image.bin")) } else { image };
                Some(format!("make an image of it: `asmpatch wrap {named} -o {image}`"))
            }
            Self::Zip | Self::Program => Some(format!(
                "if the vendor's firmware is in it, this takes it out: `asmpatch download --from {named} -o stock.bin`"
            )),
            Self::Backup => Some(format!("write it to the unit again: `asmpatch restore {named}`")),
            Self::Receipt if path.extension().is_some_and(|end| end == "toml") => {
                Some(format!("name the image beside it: {}", shell::path(path.with_extension(""))))
            }
            Self::Receipt | Self::Text(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use asm2464_chip::practice;

    use super::*;

    #[test]
    fn a_damaged_image_is_taken_for_nothing_else() {
        for image in [practice::image(), practice::open_image()] {
            let file = image.to_file();
            assert_eq!(OtherKind::of_file(&file), None);
            assert_eq!(OtherKind::of_file(&file[..file.len() / 2]), None);
            assert_eq!(OtherKind::of_file(image.body()), None);
        }
        assert_eq!(OtherKind::of_file(b""), None);
    }

    #[test]
    fn the_printed_command_takes_any_name_and_never_overwrites_the_file() {
        let help = |path: &str, kind: OtherKind| kind.help(path.as_ref()).unwrap();
        let code = OtherKind::Code(CodeFormat::Elf);
        assert!(help("a/f.elf", code).contains("wrap a/f.elf -o a/f.bin`"));
        assert!(help("f.bin", code).contains("wrap f.bin -o f.image.bin`"));
        assert!(help("-f", OtherKind::Zip).contains(&format!("--from {} ", shell::path("-f"))));
    }

    proptest::proptest! {
        #[test]
        fn recognising_any_bytes_never_panics(start: Vec<u8>) {
            let _ = OtherKind::of_file(&start);
        }
    }
}
