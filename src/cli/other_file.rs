//! Files that users name in place of an image: what they are, and which command takes them.

use std::path::Path;
use std::time::SystemTime;

use crate::failure::Failure;
use crate::file_kind::FileKind;
use crate::flash::backup_folder;
use crate::flash::flash_copy::CopyExtent;
use crate::shell;
use asm2464::Kind;
use asm2464::escape::Escape as _;

/// Returns the error for such a file in place of an image.
pub fn no_image(kind: &FileKind, path: &Path) -> Failure {
    let label = match kind {
        FileKind::Code(_) | FileKind::Body(_) => Kind::BadInput.code("asmpatch::image::is_code"),
        FileKind::Zip | FileKind::Archive(_) | FileKind::Program => Kind::BadInput.code("asmpatch::image::is_archive"),
        FileKind::Receipt => Kind::BadInput.code("asmpatch::image::is_receipt"),
        FileKind::Text(_) => Kind::BadInput.code("asmpatch::image::is_text"),
        FileKind::Flash(_) | FileKind::Swapped { .. } => Kind::BadInput.code("asmpatch::image::is_flash"),
        _ => Kind::BadInput.code("asmpatch::image::is_other"),
    };
    Failure::new(label, format!("{} is {kind}, expected an image", path.display())).helped(command_for(kind, path))
}

/// Returns the error for such a file in place of code.
pub fn no_code(kind: &FileKind, path: &Path) -> Failure {
    let label = Kind::BadInput.code("asmpatch::wrap::no_code");
    let message = format!("{} is {kind}, expected code", path.display());
    Failure::new(label, message).helped(command_for(kind, path))
}

/// Returns the error for the folder of a backup in place of an image: what is in the backup, and which command takes
/// it. `None` for any other folder.
pub fn backup_folder(folder: &Path) -> Option<Failure> {
    let manifest = folder.join(backup_folder::MANIFEST);
    if !manifest.is_file() {
        return None;
    }
    let label = Kind::BadInput.code("asmpatch::image::is_backup");
    let message = format!("{} is the folder of a backup, expected an image", folder.display());
    let command = format!("write it to the unit again: `asmpatch restore {}`", shell::path(folder));
    let help = match backup_folder::load(folder) {
        Ok(backup) => {
            let unit = &backup.unit;
            let firmware = match (backup.firmware(), &unit.firmware_version) {
                (Ok(_), Some(version)) => format!("firmware {}", version.shown()),
                (Ok(image), None) => format!("{}, firmware of {} bytes", unit.state.shown(), image.file_len()),
                (Err(_), _) => "no firmware that starts".to_owned(),
            };
            let written = backup_folder::describe(folder).ok().and_then(|filed| filed.written);
            let saved = written.map_or_else(String::new, |time| format!(", saved on {}", day(time)));
            let (device, id) = (unit.device.shown(), unit.usb_id.shown());
            let (product, serial) = (unit.product.shown(), unit.serial.shown());
            format!("the backup of {device}{saved}: {id} {product}, serial {serial}; {firmware}\n{command}")
        }
        Err(error) => format!("the backup is damaged: {error}"),
    };
    Some(Failure::new(label, message).helped(help))
}

/// The day, in UTC.
pub fn day(time: SystemTime) -> String {
    let date = humantime::format_rfc3339_seconds(time).to_string();
    date.split('T').next().unwrap_or_default().to_owned()
}

/// Names the command that takes such a file.
fn command_for(kind: &FileKind, path: &Path) -> Option<String> {
    let named = shell::path(path);
    let help = match kind {
        FileKind::Image(_) => format!("it needs no container: `asmpatch info {named}` shows what it is"),
        FileKind::Code(_) | FileKind::Body(_) => {
            let image = shell::path(path.with_extension("bin"));
            let image = if image == named { shell::path(path.with_extension("image.bin")) } else { image };
            format!("make an image of it: `asmpatch wrap {named} -o {image}`")
        }
        FileKind::Zip | FileKind::Program => format!(
            "if the vendor's firmware is in it, this takes it out: `asmpatch download --from {named} -o stock.bin`"
        ),
        FileKind::Flash(copy) => match copy.extent() {
            CopyExtent::Whole => format!(
                "see what is in it: `asmpatch info {named}`; write its configuration and firmware to a unit: `asmpatch \
                 restore {named}`"
            ),
            CopyExtent::Page => {
                format!("give a unit this configuration with an image: `asmpatch flash IMAGE --config-from {named}`")
            }
            CopyExtent::Part => format!("see what is in it: `asmpatch info {named}`"),
            CopyExtent::Larger => return None,
        },
        FileKind::Report => format!("`asmpatch doctor --from {named}` diagnoses it again"),
        FileKind::Receipt if path.extension().is_some_and(|end| end == "toml") => {
            format!("name the image beside it: {}", shell::path(path.with_extension("")))
        }
        _ => return None,
    };
    Some(help)
}

#[cfg(test)]
mod tests {
    use asm2464_chip::code::CodeFormat;

    use super::*;

    #[test]
    fn the_printed_command_takes_any_name_and_never_overwrites_the_file() {
        let help = |path: &str, kind: FileKind| command_for(&kind, path.as_ref()).unwrap();
        let code = || FileKind::Code(CodeFormat::Elf);
        assert!(help("a/f.elf", code()).contains("wrap a/f.elf -o a/f.bin`"));
        assert!(help("r.json", FileKind::Report).contains("doctor --from r.json`"));
        assert!(help("f.bin", code()).contains("wrap f.bin -o f.image.bin`"));
        assert!(help("-f", FileKind::Zip).contains(&format!("--from {} ", shell::path("-f"))));
    }
}
