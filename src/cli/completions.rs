//! The `asmpatch completions` command: prints or writes a shell's completion script.

use std::path::PathBuf;

use crate::bench::Path;
use crate::failure::{AnyFailure, Failure};
use asm2464::Kind;
use asm2464::firmware::{ConfigField, FieldKind};
use asm2464_dock::files::atomic;
use asm2464_dock::files::file;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::{Generator as _, Shell};

use super::context::Context;
use super::errors::Exit;
use super::print;

/// Print a completion script for a shell, or write it into a folder.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  asmpatch completions bash ~/.local/share/bash-completion/completions\n  asmpatch completions zsh > /usr/share/zsh/site-functions/_asmpatch"
)]
pub struct Args {
    /// The shell.
    shell: Shell,

    /// Write the script into this folder, created if missing, under the name that the shell looks for.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// Fails if the folder can't be created or written.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let script = script(args.shell, super::command())?;
    match &args.dir {
        Some(dir) => {
            file::make_folder(dir).map_err(|cause| {
                let label = Kind::BadInput.code("asmpatch::completions::folder");
                Failure::new(label, format!("cannot make the folder {}", dir.display())).because(cause)
            })?;
            atomic::write(&dir.join(args.shell.file_name("asmpatch")), script.as_bytes())?;
        }
        None => print::whole(&script),
    }
    Ok(Exit::Done)
}

/// The values that the scripts offer, beside options and files. The commands take others, too.
struct Offers {
    images: Vec<String>,
    known_images: Vec<String>,
    patches: Vec<String>,
    fields: Vec<String>,
    edits: Vec<String>,
    paths: Vec<String>,
}

impl Offers {
    fn load() -> Result<Self, AnyFailure> {
        let (manifests, patches) = (crate::embedded::manifests(&[])?, crate::embedded::patches()?);
        let names = |fields: &mut dyn Iterator<Item = &ConfigField>, end: &str| {
            fields.map(|field| format!("{}{end}", field.name())).collect()
        };
        Ok(Self {
            images: manifests.iter().map(|manifest| manifest.id.clone()).collect(),
            known_images: patches.images().values().cloned().collect(),
            patches: patches.iter().map(|patch| patch.id.clone()).collect(),
            fields: names(&mut ConfigField::ALL.iter(), ""),
            edits: names(&mut ConfigField::ALL.iter().filter(|field| field.kind() == FieldKind::Text), "="),
            paths: Path::ALL.iter().map(|path| path.name().to_owned()).collect(),
        })
    }

    /// Makes the values known to clap's generators.
    fn add_to(&self, command: Command) -> Command {
        let offer = |command: Command, arg: &'static str, values: &[String]| {
            let values = PossibleValuesParser::new(values.to_vec());
            command.mut_arg(arg, |arg| arg.value_parser(values))
        };
        command
            .mut_subcommand("bench", |bench| offer(bench, "paths", &self.paths))
            .mut_subcommand("download", |download| offer(download, "image", &self.images))
            .mut_subcommand("patch", |patch| offer(patch, "add", &self.patches))
            .mut_subcommand("verify", |verify| offer(verify, "image", &self.known_images))
            .mut_subcommand("config", |config| {
                config
                    .mut_subcommand("get", |get| offer(get, "field", &self.fields))
                    .mut_subcommand("set", |set| offer(set, "edits", &self.edits))
            })
    }

    /// Returns lines for fish: clap's script for it offers nothing for positional arguments.
    fn fish_lines(&self) -> String {
        let line = |condition: &str, values: &[String]| {
            format!("complete -c asmpatch -n \"{condition}\" -f -a \"{}\"\n", values.join(" "))
        };
        let of = |command: &str| format!("__fish_asmpatch_using_subcommand {command}");
        let config = |action: &str| format!("{}; and __fish_seen_subcommand_from {action}", of("config"));
        line(&of("download"), &self.images) + &line(&config("get"), &self.fields) + &line(&config("set"), &self.edits)
    }
}

/// Returns the completion script.
fn script(shell: Shell, command: Command) -> Result<String, AnyFailure> {
    let offers = Offers::load()?;
    let mut command = offers.add_to(command);
    if shell == Shell::Zsh {
        command = with_escaped_names(command);
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "asmpatch", &mut script);
    let script = with_units(shell, &String::from_utf8_lossy(&script));
    Ok(if shell == Shell::Fish { script + &offers.fish_lines() } else { script })
}

/// Escapes the colons in the names of values, such as `VID:PID`: to zsh an unescaped one ends the name.
fn with_escaped_names(command: Command) -> Command {
    let escaped = |arg: Arg| match arg.get_value_names() {
        Some([name, ..]) if name.contains(':') => {
            let name = name.replace(':', "\\:");
            arg.value_name(name)
        }
        _ => arg,
    };
    command.mut_args(escaped).mut_subcommands(with_escaped_names)
}

/// The shell command that prints the connected units' ports, also those that ASMPATCH_DEVICE doesn't name.
const UNITS: &str =
    r#"env -u ASMPATCH_DEVICE asmpatch list --json 2>/dev/null | sed -n 's/^ *"device": "\(.*\)",*$/\1/p'"#;

/// Makes a script offer the connected units for `--device`, if the shell can: clap's scripts offer files. The command
/// `virtual` takes no connected unit.
fn with_units(shell: Shell, script: &str) -> String {
    let lines = |edit: &mut dyn FnMut(&str) -> String| script.lines().map(|line| edit(line) + "\n").collect::<String>();
    match shell {
        Shell::Bash => {
            const FILES: &str = r#"COMPREPLY=($(compgen -f "${cur}"))"#;
            const CONNECTED: &str = r#"COMPREPLY=($(compgen -W "$(_asmpatch_units) virtual" -- "${cur}"))"#;
            let (mut is_virtual, mut is_device) = (false, false);
            let edited = lines(&mut |line| {
                // A command's part begins with its name.
                if line.starts_with("        asmpatch__") {
                    is_virtual = line.contains("subcmd__virtual");
                }
                let offers_units = is_device && !is_virtual;
                is_device = line.trim() == "--device)";
                if offers_units { line.replace(FILES, CONNECTED) } else { line.to_owned() }
            });
            format!("_asmpatch_units() {{\n    {UNITS}\n}}\n\n{edited}")
        }
        Shell::Zsh => {
            let edited = lines(&mut |line| {
                let offers_units = line.contains("--device=[") && line.contains(":PORT|SERIAL");
                if offers_units { line.replace(":_default'", ":_asmpatch_units'") } else { line.to_owned() }
            });
            let units = format!("\n_asmpatch_units() {{\n    compadd -- ${{(f)\"$({UNITS})\"}} virtual\n}}\n");
            edited.replacen('\n', &format!("\n{units}"), 1)
        }
        Shell::Fish => {
            let edited = lines(&mut |line| {
                let offers_units = line.contains(" -l device ") && !line.contains("using_subcommand virtual");
                if offers_units { format!("{line} -f -a '(__asmpatch_units)'") } else { line.to_owned() }
            });
            format!("function __asmpatch_units\n    {UNITS}\n    echo virtual\nend\n\n{edited}")
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_offers_patches_images_fields_paths_and_connected_units() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell, crate::cli::command()).unwrap();
            for offered in ["e4-length-16", "240417", "serial=", "t10-vendor", "config-read", "asmpatch list --json"] {
                assert!(script.contains(offered), "{shell}: {offered}");
            }
            let uses = script.matches("asmpatch_units").count();
            assert!(uses > 5, "{shell}: {uses}");
        }
    }

    #[test]
    fn no_colon_ends_the_name_of_a_value_in_zsh() {
        let script = script(Shell::Zsh, crate::cli::command()).unwrap();
        assert!(script.contains(r"]:PORT|SERIAL|virtual[\:DIR]|replay\:FILE:_asmpatch_units'"), "--device");
        assert!(script.contains(r"]:VID\:PID:"), "--usb-id");
        assert!(script.contains(r"]:virtual\:DIR:"), "virtual serve --device");
    }
}
