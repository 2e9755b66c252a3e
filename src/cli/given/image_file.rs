//! The image in a file that the user names. Of any other file: what it is, and which command takes it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use asm2464::digest::Sha256Digest;
use asm2464::escape::Escape as _;
use asm2464::firmware::{Image, MAX_FILE_LEN, is_cut_off};
use asm2464::flash::{CONFIG_LEN, SECOND_SLOT};
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind, Named};
use asm2464_chip::code::TextKind;
use asm2464_files::file;

use crate::cli::given::user_files;
use crate::cli::words::advice_part::AdvicePart;
use crate::cli::words::errors::Advised;
use crate::cli::words::printed_command::PrintedCommand;
use crate::cli::words::worded_step::WordedStep;
use crate::failure::in_file;
use crate::fetch::{DEFAULT_IMAGE, Inside, Manifest, OPEN_IMAGE, images_in};
use crate::file_kind::{FileKind, MAX_LOOKED_AT, unpadded};
use crate::flash::backup::Backup;
use crate::flash::backup_folder;
use crate::patch::Library;
use crate::shell;

/// Reads a file whole, or the first [`MAX_LOOKED_AT`] bytes of a longer one, and looks at what it is. Leaves out the
/// padding behind an image, and says so.
///
/// # Errors
/// As for [`user_files::read`]. The folder of a backup is described.
pub fn look(path: &Path) -> Result<(Vec<u8>, FileKind), AnyFailure> {
    let mut bytes = match file::read(path, MAX_LOOKED_AT, || user_files::waits_for(path), Interrupt::of_process()) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            file::read_start(path, MAX_LOOKED_AT).map_err(|_| user_files::unread(path, MAX_LOOKED_AT, error))?
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(backup_folder(path).unwrap_or_else(|| user_files::unread(path, MAX_LOOKED_AT, error)));
        }
        Err(error) => return Err(user_files::unread(path, MAX_LOOKED_AT, error)),
    };
    let len = unpadded(&bytes).len();
    if let Some(fill) = bytes.get(len) {
        let (shown, padding) = (path.shown(), bytes.len() - len);
        errln!("{shown}: the image ends after {len} bytes; the {padding} bytes {fill:02X} behind it are left out");
        bytes.truncate(len);
    }
    let kind = FileKind::of(&bytes);
    Ok((bytes, kind))
}

/// What the user wants of the file that a command names: advice leads to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To write its image to a unit.
    Write,
    /// To patch its image.
    Patch,
    /// To take the patches out of its image.
    Unpatch,
    /// To wrap its code.
    Wrap,
    /// To know something of its image.
    Look,
    /// To write it back to a unit, as a backup.
    Restore,
}

/// Reads an image and checks its container. Of a copy of a flash, takes the image in the first slot, and says so.
///
/// # Errors
/// As for [`look`] and [`image_of`].
pub fn image(path: &Path, wish: Wish) -> Result<Image, AnyFailure> {
    let (bytes, kind) = look(path)?;
    image_of(path, &bytes, kind, wish)
}

/// Takes the image in a file that was looked at; in a copy of a flash, that of the first slot.
///
/// # Errors
/// Fails if the container is damaged, and names the known image that it was; also if the file is something else that
/// asmpatch recognises, or too long for an image.
pub fn image_of(path: &Path, bytes: &[u8], kind: FileKind, wish: Wish) -> Result<Image, AnyFailure> {
    match kind {
        FileKind::Image(image) => Ok(image),
        FileKind::Flash(copy) if let Ok(image) = copy.image() => {
            errln!("{}: {}; the image in its first slot is taken", path.shown(), copy.extent());
            Ok(image)
        }
        FileKind::DamagedImage | FileKind::CutImage | FileKind::Unknown if bytes.len() > MAX_FILE_LEN => {
            Err(user_files::unread(path, MAX_FILE_LEN, io::ErrorKind::FileTooLarge.into()))
        }
        FileKind::DamagedImage | FileKind::CutImage | FileKind::Unknown | FileKind::Empty => Image::parse(bytes)
            .map_err(|failure| {
                if let Some(advice) = against_damage(path, bytes) {
                    return Advised::with(in_file(path)(failure), advice);
                }
                let failure = match damaged(path, bytes) {
                    Some(id) => failure.naming(Named::Image(id)),
                    None => failure,
                };
                in_file(path)(failure)
            }),
        kind => Err(no_image(&kind, path, wish)),
    }
}

/// Returns what to do about a damaged image: how to make a patched one again, and what one may have been that is cut off;
/// `None` where its code's advice serves.
pub fn against_damage(path: &Path, bytes: &[u8]) -> Option<Vec<AdvicePart>> {
    if let Some(again) = patched_again(path) {
        return Some(again);
    }
    if !is_cut_off(bytes) {
        return None;
    }
    let known = crate::embedded::manifests(&[]).ok()?;
    let name = path.file_name()?.to_string_lossy();
    let meant = known.meant(&name, bytes);
    let mut advice = vec![AdvicePart::text("copy it again from where it came, whole")];
    for (place, Manifest { id, .. }) in meant.iter().enumerate() {
        let purpose = format!("{}if it was {id}, fetch that", if place == 0 { "" } else { "or " });
        advice.push(AdvicePart::Command(purpose.into(), PrintedCommand::named("download").operand(id)));
    }
    if let [Manifest { id, .. }] = &meant[..] {
        advice.push(AdvicePart::AgainWith { purpose: "then run this command with it", value: id.into() });
    }
    Some(advice)
}

/// Returns how to make a damaged patched image again, by the receipt beside it; `None` if there is none, or if its
/// patches are not all asmpatch's own.
fn patched_again(path: &Path) -> Option<Vec<AdvicePart>> {
    let receipt = user_files::receipt_of(path, None).ok().flatten()?;
    let library = crate::embedded::library().ok()?;
    let id = library.images().get(&receipt.input.sha256)?;
    let mut patch = PrintedCommand::named("patch").operand(id);
    let mut has_defaults = true;
    for own in library.iter().filter(|patch| patch.default) {
        has_defaults &= receipt.patches.iter().any(|named| named.id == own.id);
    }
    if !has_defaults {
        patch = patch.flag("no_defaults");
    }
    let mut added = Vec::new();
    for named in &receipt.patches {
        let own = library.get(&named.id)?;
        if !(has_defaults && own.default) {
            added.push(OsString::from(&named.id));
        }
    }
    if !added.is_empty() {
        patch = patch.or_with("add", added);
    }
    let patch = patch.with("output", user_files::free_name(path));
    let damaged = "bytes of it were changed after it was written; the chip's boot loader would not start it";
    Some(vec![AdvicePart::text(damaged), AdvicePart::Command("make it again, by its receipt".into(), patch)])
}

/// Returns the ID of the known image that a damaged file was, if its name or its length says so.
pub fn damaged(path: &Path, bytes: &[u8]) -> Option<String> {
    let known = crate::embedded::manifests(&[]).ok()?;
    match &known.meant(&path.file_name()?.to_string_lossy(), bytes)[..] {
        [one] => Some(one.id.clone()),
        _ => None,
    }
}

/// Returns the error for such a file in place of an image.
pub fn no_image(kind: &FileKind, path: &Path, wish: Wish) -> AnyFailure {
    let label = match kind {
        FileKind::Code(_) | FileKind::Body(_) | FileKind::Bank0 | FileKind::Bank1 => {
            Kind::BadInput.code("asmpatch::image::is_code")
        }
        FileKind::Zip | FileKind::Archive(_) | FileKind::Program => Kind::BadInput.code("asmpatch::image::is_archive"),
        FileKind::Receipt => Kind::BadInput.code("asmpatch::image::is_receipt"),
        FileKind::Pointer(_) => Kind::BadInput.code("asmpatch::image::is_pointer"),
        FileKind::Text(_) => Kind::BadInput.code("asmpatch::image::is_text"),
        FileKind::Flash(_) => Kind::BadInput.code("asmpatch::image::is_flash"),
        FileKind::Swapped { kind, .. } if matches!(**kind, FileKind::Flash(_)) => {
            Kind::BadInput.code("asmpatch::image::is_flash")
        }
        _ => Kind::BadInput.code("asmpatch::image::is_other"),
    };
    let message = format!("{} is {kind}, expected an image", path.display());
    Advised::with(Failure::new(label, message), advice_on(kind, path, wish))
}

/// Returns the error for such a file in place of code.
pub fn no_code(kind: &FileKind, path: &Path) -> AnyFailure {
    let label = Kind::BadInput.code("asmpatch::wrap::no_code");
    let message = format!("{} is {kind}, expected code", path.display());
    Advised::with(Failure::new(label, message), advice_on(kind, path, Wish::Wrap))
}

/// Returns the error for the folder of a backup in place of an image: what is in the backup, and which command takes
/// it. `None` for any other folder.
pub fn backup_folder(folder: &Path) -> Option<AnyFailure> {
    if !backup_folder::is_one(folder) {
        return None;
    }
    let label = Kind::BadInput.code("asmpatch::image::is_backup");
    let message = format!("{} is the folder of a backup, expected an image", folder.display());
    let advice = match backup_folder::load(folder) {
        Ok(backup) => {
            let unit = &backup.unit;
            let firmware = match (backup.firmware(), &unit.firmware_version) {
                (Ok(_), Some(version)) => format!("firmware {}", version.shown()),
                (Ok(image), None) => format!("{}, firmware of {} bytes", unit.state.shown(), image.file_len()),
                (Err(_), _) => "no firmware that starts".to_owned(),
            };
            let written = backup_folder::describe(folder).ok().and_then(|filed| filed.written);
            let saved = written.map_or_else(String::new, |time| format!(", saved on {}", user_files::time(time)));
            let (device, id) = (unit.device.shown(), unit.usb_id.shown());
            let (product, serial) = (unit.product.shown(), unit.serial.shown());
            let what = format!("the backup of {device}{saved}: {id} {product}, serial {serial}; {firmware}");
            let restore = PrintedCommand::named("restore").operand(folder);
            vec![AdvicePart::text(what), AdvicePart::Command("write it to the unit again".into(), restore)]
        }
        Err(error) => vec![AdvicePart::text(format!("the backup is damaged: {error}"))],
    };
    Some(Advised::with(Failure::new(label, message), advice))
}

/// Returns what to do with such a file for what the user wants; nothing where its code's advice serves.
pub fn advice_on(kind: &FileKind, path: &Path, wish: Wish) -> Vec<AdvicePart> {
    let command = |purpose: &'static str, subcommand: &str| {
        AdvicePart::Command(purpose.into(), PrintedCommand::named(subcommand).operand(path))
    };
    match kind {
        FileKind::Image(_) if wish == Wish::Restore => {
            vec![command("it has no configuration, so the unit keeps its own: write it as an image", "flash")]
        }
        FileKind::Image(_) => vec![AdvicePart::text("it needs no container"), command("see what it is", "info")],
        FileKind::Code(_) | FileKind::Body(_) => {
            let beside = path.with_extension("bin");
            let image = if beside == path { path.with_extension("image.bin") } else { beside };
            let wrap = PrintedCommand::named("wrap").operand(path).with("output", user_files::free_name(&image));
            vec![AdvicePart::Command("make an image of it".into(), wrap)]
        }
        FileKind::Zip | FileKind::Program => {
            let Ok(known) = crate::embedded::manifests(&[]) else { return Vec::new() };
            taken_out(path, kind, &images_in(path, &known, Interrupt::of_process()), wish)
        }
        FileKind::ForeignElf(_) => {
            vec![AdvicePart::text("the chip is an 8051, and SDCC builds for it: `asmpatch help firmware-authors`")]
        }
        FileKind::Archive(_) => vec![AdvicePart::text("unpack it, and name the file in it")],
        FileKind::Bank0 | FileKind::Bank1 => vec![
            AdvicePart::text("the vendor's firmware has two banks, and doesn't start with one alone: take all of it"),
            AdvicePart::Command("or fetch it".into(), PrintedCommand::named("download")),
        ],
        FileKind::BootStubApplication => vec![AdvicePart::text(
            "only the open boot stub starts it: it is linked for code address 0x3000, and lies in the flash at 0x4000. \
             asmpatch writes whole images, which begin at code address 0",
        )],
        // More than any flash has: `info` shows only what is read whole.
        FileKind::Flash(copy) if copy.bytes().len() == MAX_LOOKED_AT => Vec::new(),
        FileKind::Flash(copy) => {
            let info = command("see what is in it", "info");
            if copy.image_in(SECOND_SLOT).is_ok() && copy.image().is_err() {
                let output = user_files::free_name(&path.with_extension("slot-2.bin"));
                let take = PrintedCommand::named("info").operand(path).with("slot", "2").with("output", output);
                return vec![AdvicePart::Command("take out the image in its second slot".into(), take)];
            }
            match Backup::of_copy(copy) {
                Some(_) if copy.bytes().len() >= CONFIG_LEN => with_configuration(path),
                _ => vec![info],
            }
        }
        FileKind::Swapped { kind, group } => {
            let order = format!(
                "put the bytes in order, which are reversed in groups of {group}: objcopy's `-I binary -O binary \
                 --reverse-bytes={group}` does that"
            );
            let known = crate::embedded::manifests(&[]).ok();
            let known = match &**kind {
                FileKind::Image(image) => known.as_ref().and_then(|known| known.by_sha256(&image.sha256())),
                _ => None,
            };
            let fetch = known.map(|Manifest { id, .. }| {
                AdvicePart::Command("or fetch it again".into(), PrintedCommand::named("download").operand(id))
            });
            [AdvicePart::text(order)].into_iter().chain(fetch).collect()
        }
        FileKind::Pointer(pointer) => user_files::against_pointer(pointer, path),
        FileKind::Text(TextKind::WebPage) => vec![AdvicePart::text(
            "a server sent this page in place of the file, or a browser saved the page about it: fetch the file itself, \
             on GitHub by its `Raw`, or a known image with `download`",
        )],
        FileKind::Report => {
            vec![AdvicePart::Command("diagnose it again".into(), PrintedCommand::named("doctor").with("from", path))]
        }
        FileKind::Receipt if path.extension().is_some_and(|end| end == "toml") => {
            vec![AdvicePart::text(format!("name the image beside it: {}", shell::path(path.with_extension(""))))]
        }
        _ => Vec::new(),
    }
}

/// Returns the commands that give a unit the configuration in a copy of a flash, which has no image, with a known one.
pub fn with_configuration(copy: &Path) -> Vec<AdvicePart> {
    let flash = |image: &str| PrintedCommand::named("flash").operand(image).with("config_from", copy);
    vec![
        AdvicePart::Command("give a unit this configuration with the open firmware".into(), flash(OPEN_IMAGE)),
        AdvicePart::Command("or with the vendor's".into(), flash(DEFAULT_IMAGE)),
    ]
}

/// Returns the image in an archive or an updater if it is the only one, and none that asmpatch knows.
///
/// # Errors
/// As for [`no_image`] of any other.
pub fn only_inside(path: &Path, kind: &FileKind) -> Result<Image, AnyFailure> {
    let known = crate::embedded::manifests(&[])?;
    match images_in(path, &known, Interrupt::of_process()) {
        Inside { known, mut others } if known.is_empty() && others.len() == 1 => Ok(others.remove(0)),
        _ => Err(no_image(kind, path, Wish::Look)),
    }
}

/// Returns how to take the images out of a file, and what to do with one then. Of several that serve, the user chooses.
fn taken_out(path: &Path, kind: &FileKind, inside: &Inside<'_>, wish: Wish) -> Vec<AdvicePart> {
    let library = crate::embedded::library().ok();
    let has_patches = |sha256: &Sha256Digest| {
        library.iter().flat_map(Library::iter).any(|patch| patch.images.iter().any(|image| image.sha256 == *sha256))
    };
    let Inside { known, others } = inside;
    let serve: Vec<&&Manifest> =
        known.iter().filter(|manifest| wish != Wish::Patch || has_patches(&manifest.sha256)).collect();
    let take = |Manifest { id, .. }: &Manifest| PrintedCommand::named("download").operand(id).with("from", path);
    // What to do with an image that was taken out.
    let then = |image: &OsStr| match wish {
        Wish::Restore => {
            let flash = PrintedCommand::named("flash").operand(image);
            AdvicePart::Command("then write it, as an image: the unit keeps its own configuration".into(), flash)
        }
        // An image needs no container, and may have no patches.
        Wish::Unpatch | Wish::Wrap => {
            AdvicePart::Command("then see what it is".into(), PrintedCommand::named("info").operand(image))
        }
        _ => AdvicePart::AgainWith { purpose: "then run this command with it", value: image.to_owned() },
    };
    let versions = || others.iter().map(|image| image.version().words()).collect::<Vec<_>>().join(", ");
    match (serve.as_slice(), others.as_slice()) {
        ([], []) if known.is_empty() => vec![AdvicePart::text(
            "asmpatch finds no known image in it: unpack it, and name the image. Don't run a program to get at it",
        )],
        ([], _) if wish == Wish::Patch => {
            let ids = known.iter().map(|manifest| manifest.id.clone());
            let names: Vec<String> = ids.chain(others.iter().map(|image| image.version().words())).collect();
            let names = names.join(", ");
            let patch = AdvicePart::Run { purpose: "or patch 240417", line: "patch 240417 -o {OUT}" };
            vec![AdvicePart::text(format!("the images in it ({names}) have no patches; leave them as they are")), patch]
        }
        ([], [only]) => {
            let image = user_files::free_name(&path.with_extension("bin"));
            let out = PrintedCommand::named("info").operand(path).with("output", &image);
            let purpose =
                format!("take the image out of it, of {}, which asmpatch doesn't know", only.version().words());
            vec![AdvicePart::Command(purpose.into(), out), then(image.as_os_str())]
        }
        ([], _) => {
            let several = format!("asmpatch knows none of the images in it ({}): unpack it, and name one", versions());
            vec![match kind {
                FileKind::Zip if !cfg!(windows) => {
                    let folder = user_files::free_name(&path.with_extension("unpacked"));
                    let (zip, folder) = (shell::path(path), shell::path(folder));
                    AdvicePart::Step(WordedStep::run(several, format!("unzip {zip} -d {folder}")))
                }
                _ => AdvicePart::text(several),
            }]
        }
        ([only], _) => vec![AdvicePart::Command("take the image out of it".into(), take(only)), then(only.id.as_ref())],
        (several, _) => {
            let choose = |manifest: &&&Manifest| {
                AdvicePart::Command(format!("if you want {}, take it out", manifest.id).into(), take(manifest))
            };
            let mut advice: Vec<AdvicePart> = several.iter().map(choose).collect();
            advice.push(AdvicePart::text("then name it in place of the file"));
            advice
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use asm2464_chip::code::CodeFormat;
    use asm2464_chip::practice;

    use super::*;
    use crate::cli::words::advice_part::worded;
    use crate::cli::words::errors;
    use crate::cli::words::invocation::Invocation;

    #[test]
    fn the_printed_command_takes_any_name_and_never_overwrites_the_file() {
        let help = |path: &str, kind: FileKind| {
            let steps = worded(&advice_on(&kind, path.as_ref(), Wish::Look), &Invocation::default(), &[]);
            steps[0].line().unwrap()
        };
        let code = || FileKind::Code(CodeFormat::Elf);
        assert_eq!(help("a/f.elf", code()), "asmpatch wrap a/f.elf -o a/f.bin");
        assert_eq!(help("r.json", FileKind::Report), "asmpatch doctor --from r.json");
        assert_eq!(help("f.bin", code()), "asmpatch wrap f.bin -o f.image.bin");
        assert_eq!(help("-f", FileKind::Report), "asmpatch doctor --from=-f");
    }

    #[test]
    fn what_git_keeps_in_place_of_an_image_is_fetched_by_its_tool_or_as_the_known_image_that_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("firmware_wrapped.bin");
        let refused = |path: &Path| {
            let error = image(path, Wish::Look).unwrap_err();
            let steps = errors::steps(error.coded(), &Invocation::default());
            let commands: Vec<String> = steps.into_iter().filter_map(|step| step.line()).collect();
            (error.code(), error.to_string(), commands)
        };
        let digest = "9520fde0bf43d499c07abd0a09b74e94d8a7cc3d610f577b7a4e218ab8a378e9";
        let lfs = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 9207\n");
        fs::write(&path, lfs).unwrap();
        let git = format!("git -C {}", shell::path(folder.path()));
        let download = "asmpatch download ed4e39b".to_owned();
        let (code, message, commands) = refused(&path);
        assert_eq!(code, "asmpatch::image::is_pointer");
        assert!(message.contains("a pointer of Git LFS"), "{message}");
        assert_eq!(commands, [format!("{git} lfs pull"), download.clone()]);
        fs::write(&path, "/annex/objects/MD5E-s98016--5284e618d96ef804c06f47f3b73656b7.bin\n").unwrap();
        let annex = [format!("{git} annex get firmware_wrapped.bin"), "asmpatch download 240417".to_owned()];
        assert_eq!(refused(&path).2, annex);
        fs::write(&path, "<!DOCTYPE html><title>firmware at main</title>").unwrap();
        let (code, message, _) = refused(&path);
        assert!(code == "asmpatch::image::is_text" && message.contains("a web page"), "{message}");
        #[cfg(unix)]
        {
            let link = folder.path().join("linked.bin");
            let key = format!("SHA256E-s9207--{digest}.bin");
            std::os::unix::fs::symlink(format!(".git/annex/objects/Wx/1z/{key}/{key}"), &link).unwrap();
            let (code, message, commands) = refused(&link);
            assert!(code == "asmpatch::image::is_pointer" && message.contains("not there"), "{message}");
            assert_eq!(commands, [format!("{git} annex get linked.bin"), download]);
        }
    }

    #[test]
    fn swapped_bytes_are_put_in_order_and_an_image_is_no_copy_of_a_flash() {
        let refusal = |image: FileKind, group| {
            no_image(&FileKind::Swapped { kind: Box::new(image), group }, "f".as_ref(), Wish::Look)
        };
        let error = refusal(FileKind::Image(practice::image()), 4);
        assert_eq!(error.code(), "asmpatch::image::is_other");
        let steps = errors::steps(error.coded(), &Invocation::default());
        let first = &steps[0].purpose;
        assert!(first.contains("groups of 4") && first.contains("--reverse-bytes=4"), "{first}");
    }
}
