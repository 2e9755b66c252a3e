//! The configuration file: values of options for every run.
//!
//! The file's values become the options' defaults, so that the command line and the environment take precedence.
//! docs/formats.md describes its keys.

use std::env;
use std::ffi::OsString;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf, is_separator};

use crate::failure::AnyFailure;
use asm2464::firmware::UsbId;
use asm2464_dock::files::toml_file::{self, TomlError};
use clap::ValueEnum;
use clap::builder::OsStringValueParser;
use etcetera::BaseStrategy as _;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::input::{self, InputError};

/// Allowed values of `--timeout`, in seconds.
pub const TIMEOUT_S: RangeInclusive<u64> = 1..=3600;

/// When to colour the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, derive_more::Display)]
#[serde(rename_all = "lowercase")]
#[display(rename_all = "lowercase")]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// If one of these is set, it decides about colours, and the file does not.
const COLOR_VARIABLES: [&str; 3] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"];

/// The options that select the configuration file.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Configuration file")]
pub struct ConfigFile {
    /// Read the values of options from this TOML file instead of asmpatch/config.toml in the platform's configuration
    /// folder. Options and environment variables take precedence over it. docs/formats.md describes its keys.
    #[arg(id = "config_file", long = "config", global = true, value_name = "FILE", env = "ASMPATCH_CONFIG")]
    #[arg(value_parser = OsStringValueParser::new())]
    file: Option<OsString>,

    /// Read no configuration file; an empty ASMPATCH_CONFIG does the same.
    #[arg(long, global = true)]
    no_config: bool,
}

/// The contents of a configuration file. The keys are the names of options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    color: Option<ColorChoice>,
    usb_id: Vec<UsbId>,
    devices_dir: Vec<Folder>,
    patch_dir: Vec<Folder>,
    manifest_dir: Vec<Folder>,
    backup_dir: Option<Folder>,
    cache_dir: Option<Folder>,
    #[serde(deserialize_with = "timeout")]
    download_timeout: Option<u64>,
}

/// A folder named in the file: `~` is the home folder, and a relative path starts at the file's folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Folder(PathBuf);

impl TryFrom<String> for Folder {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with(is_separator)) else {
            return if text.is_empty() { Err("expected a folder".to_owned()) } else { Ok(Self(text.into())) };
        };
        let home = etcetera::home_dir().map_err(|error| format!("no home folder for `~`: {error}"))?;
        Ok(Self(home.join(rest.trim_start_matches(is_separator))))
    }
}

/// Reads how long a server may be silent, in seconds.
fn timeout<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    let (seconds, range) = (u64::deserialize(value)?, TIMEOUT_S);
    let wrong = || format!("{seconds} seconds, expected {} to {}", range.start(), range.end());
    if range.contains(&seconds) { Ok(Some(seconds)) } else { Err(D::Error::custom(wrong())) }
}

impl Settings {
    /// Reads the file that the command line, the environment or the platform names. Only the platform's file may be
    /// missing.
    ///
    /// # Errors
    /// Fails if the file can't be read, is not TOML, or has an unknown key or value.
    pub fn load(file: &ConfigFile) -> Result<Self, AnyFailure> {
        let (path, may_be_missing) = match &file.file {
            _ if file.no_config => return Ok(Self::default()),
            Some(path) if path.is_empty() => return Ok(Self::default()),
            Some(path) => (PathBuf::from(path), false),
            None => match etcetera::choose_base_strategy() {
                Ok(strategy) => (strategy.config_dir().join("asmpatch").join("config.toml"), true),
                // Without a home folder, there is no file to read.
                Err(_) => return Ok(Self::default()),
            },
        };
        match input::read_text(&path) {
            Ok(text) => Ok(Self::parse(&path, &text).map_err(|error| *error)?),
            Err(error) if may_be_missing && is_missing(&path, &error) => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Box<TomlError>> {
        let mut settings: Self = toml_file::parse(&path.display().to_string(), text)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let lists = [&mut settings.devices_dir, &mut settings.patch_dir, &mut settings.manifest_dir];
        let single = [&mut settings.backup_dir, &mut settings.cache_dir];
        for folder in lists.into_iter().flatten().chain(single.into_iter().flatten()) {
            folder.0 = base.join(&folder.0);
        }
        Ok(settings)
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns where backups go, unless something else says so.
    pub fn backup_dir(&self) -> Option<&Path> {
        self.backup_dir.as_ref().map(|folder| &*folder.0)
    }

    /// Returns where images are kept, unless something else says so.
    pub fn cache_dir(&self) -> Option<&Path> {
        self.cache_dir.as_ref().map(|folder| &*folder.0)
    }

    /// Returns the command with the settings as the options' defaults, for it and its subcommands.
    pub fn defaults_of(&self, command: clap::Command) -> clap::Command {
        let name = command.get_name().to_owned();
        command
            .mut_args(|arg| match self.default_of(&name, arg.get_long().unwrap_or_default()) {
                values if values.is_empty() => arg,
                values => arg.default_values(values),
            })
            .mut_subcommands(|below| self.defaults_of(below))
    }

    /// Returns the values of a command's option; empty if the file does not set it.
    fn default_of(&self, command: &str, option: &str) -> Vec<OsString> {
        let paths = |folders: &[Folder]| folders.iter().map(|folder| folder.0.clone().into()).collect();
        match option {
            "color" if COLOR_VARIABLES.iter().all(|name| env::var_os(name).is_none_or(|value| value.is_empty())) => {
                self.color.iter().map(|choice| choice.to_string().into()).collect()
            }
            "usb-id" => self.usb_id.iter().map(|id| id.to_string().into()).collect(),
            "devices-dir" => paths(&self.devices_dir),
            "patch-dir" => paths(&self.patch_dir),
            "manifest-dir" => paths(&self.manifest_dir),
            "cache-dir" => paths(self.cache_dir.as_slice()),
            "timeout" if command == "download" => {
                self.download_timeout.iter().map(|seconds| seconds.to_string().into()).collect()
            }
            // --backup-dir gets no default: `backup` takes it or -o, and ASMPATCH_BACKUP_DIR takes precedence over the
            // file.
            _ => Vec::new(),
        }
    }
}

/// Whether the file does not exist, or this user can't tell because it would be in somebody else's home folder.
fn is_missing(path: &Path, error: &InputError) -> bool {
    let InputError::Read { source, .. } = error else { return false };
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        io::ErrorKind::PermissionDenied => path.symlink_metadata().is_err(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;
    use crate::cli::Cli;

    fn parse(text: &str) -> Result<Settings, Box<TomlError>> {
        Settings::parse(Path::new("/etc/lab/config.toml"), text)
    }

    /// Parses a command line and returns an option's values.
    fn value(settings: &Settings, line: &str, id: &str) -> Vec<String> {
        let mut matches = settings.defaults_of(Cli::command()).try_get_matches_from(line.split(' ')).unwrap();
        assert!(Cli::from_arg_matches(&matches).is_ok(), "{line}");
        while let Some((_, below)) = matches.remove_subcommand() {
            matches = below;
        }
        let raw = matches.get_raw(id).into_iter().flatten();
        raw.map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_the_file_sets_holds_for_every_command_that_has_the_option_until_the_command_line_says_otherwise() {
        let settings = parse("usb-id = [\"1234:ABCD\", \"1234:abce\"]\ndownload-timeout = 90\n").unwrap();
        for line in ["asmpatch list", "asmpatch flash x", "asmpatch config get", "asmpatch pcie"] {
            assert_eq!(value(&settings, line, "usb_ids"), ["1234:ABCD", "1234:ABCE"], "{line}");
        }
        assert_eq!(value(&settings, "asmpatch list --usb-id 174C:2464", "usb_ids"), ["174C:2464"]);
        assert_eq!(value(&settings, "asmpatch download", "timeout"), ["90"]);
        assert_eq!(value(&settings, "asmpatch download --timeout 5", "timeout"), ["5"]);
        assert_eq!(value(&settings, "asmpatch bench", "timeout"), ["2"]);
    }

    #[test]
    fn each_key_but_that_of_the_backups_reaches_an_option() {
        let text = "color = \"never\"\nusb-id = [\"1234:ABCD\"]\ndevices-dir = [\"d\"]\npatch-dir = [\"p\"]\n\
                    manifest-dir = [\"m\"]\ncache-dir = \"c\"\ndownload-timeout = 7\nbackup-dir = \"b\"\n";
        let settings = parse(text).unwrap();
        for (line, id, expected) in [
            ("asmpatch list", "device_dirs", "/etc/lab/d"),
            ("asmpatch list", "usb_ids", "1234:ABCD"),
            ("asmpatch patch x -o y", "dirs", "/etc/lab/p"),
            ("asmpatch download", "manifest_dir", "/etc/lab/m"),
        ] {
            let found = value(&settings, line, id);
            // Compare as paths, because the separator depends on the system.
            assert!(found.iter().map(Path::new).eq([Path::new(expected)]), "{line}: {found:?}");
        }
        assert_eq!(settings.backup_dir(), Some(Path::new("/etc/lab/b")));
        assert_eq!(settings.cache_dir(), Some(Path::new("/etc/lab/c")));
    }

    #[test]
    fn a_folder_begins_at_the_files_folder_at_the_root_or_at_home() {
        let settings = parse("patch-dir = [\"mine\", \"/opt/patches\", \"~/patches\", \"~x\"]").unwrap();
        let home = etcetera::home_dir().unwrap();
        let found: Vec<&Path> = settings.patch_dir.iter().map(|folder| &*folder.0).collect();
        let expected = ["/etc/lab/mine".into(), "/opt/patches".into(), home.join("patches"), "/etc/lab/~x".into()];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_wrong_in_the_file_is_said() {
        for (text, expected) in [
            ("usb-ids = []", "unknown field `usb-ids`, expected one of `color`, `usb-id`, `devices-dir`"),
            ("color = \"sometimes\"", "unknown variant `sometimes`"),
            ("usb-id = \"1234:ABCD\"", "invalid type: string"),
            ("usb-id = [\"1234\"]", "\"1234\" is not a USB ID"),
            ("backup-dir = \"\"", "expected a folder"),
            ("download-timeout = 0", "0 seconds, expected 1 to 3600"),
            ("color = \"never\"\ncolor = \"never\"", "duplicate key"),
            ("color", "expected"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with("/etc/lab/config.toml: ") && message.contains(expected), "{message}");
        }
        assert!(parse("").unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_never_panics(text: String) {
            let _ = parse(&text);
        }
    }
}
