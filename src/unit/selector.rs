//! The selection of a unit.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use asm2464_host::bridge::{Location, PortPath, UnitInfo};
use derive_more::Display;

/// The name of a unit: a port path, a serial number, `virtual[:DIR]`, or `replay:FILE`.
#[derive(Debug, Clone, PartialEq, Eq, Display)]
pub enum Selector {
    /// `3-1.2`.
    Port(PortPath),
    /// Anything else: a serial number.
    Serial(String),
    /// `virtual:DIR`, or `virtual` for the one in the user's data folder.
    #[display("virtual{}", _0.as_ref().map(|dir| format!(":{}", dir.display())).unwrap_or_default())]
    Virtual(Option<PathBuf>),
    /// `replay:FILE`: a doctor's report.
    #[display("replay:{}", _0.display())]
    Replay(PathBuf),
}

impl Selector {
    /// Whether it selects this unit. A virtual unit is opened by its folder and a record by its file,
    /// not searched for.
    pub fn matches(&self, unit: &UnitInfo) -> bool {
        match self {
            Self::Port(port) => unit.location == Location::Port(port.clone()),
            Self::Serial(serial) => unit.serial.as_deref() == Some(serial),
            Self::Virtual(_) | Self::Replay(_) => false,
        }
    }
}

impl FromStr for Selector {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(file) = text.strip_prefix("replay:").filter(|file| !file.is_empty()) {
            return Ok(Self::Replay(file.into()));
        }
        Ok(match text.strip_prefix("virtual") {
            Some("") => Self::Virtual(None),
            Some(dir) if dir.starts_with(':') => {
                Self::Virtual(Some(PathBuf::from(&dir[1..])).filter(|dir| !dir.as_os_str().is_empty()))
            }
            _ => match text.parse() {
                Ok(port) => Self::Port(port),
                Err(_) => Self::Serial(text.to_owned()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_port_serial_folder_or_record() {
        let of = |text: &str| text.parse::<Selector>().unwrap();
        assert_eq!(of("3-1.2"), Selector::Port("3-1.2".parse().unwrap()));
        assert_eq!(of("AAAABBBB0060"), Selector::Serial("AAAABBBB0060".to_owned()));
        assert_eq!(of("virtual"), Selector::Virtual(None));
        assert_eq!(of("virtual:"), Selector::Virtual(None));
        assert_eq!(of("virtual:/tmp/unit"), Selector::Virtual(Some("/tmp/unit".into())));
        assert_eq!(of("replay:unit.json"), Selector::Replay("unit.json".into()));
        assert_eq!(of("replay:unit.json").to_string(), "replay:unit.json");
        assert_eq!(of("replay:"), Selector::Serial("replay:".to_owned()));
        assert_eq!(of("virtuality"), Selector::Serial("virtuality".to_owned()));
    }
}
