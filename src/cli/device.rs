//! The options that select a unit and record its traffic, shared by every command that talks to one.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use crate::failure::AnyFailure;
use crate::unit::{self, Selector, Unit};
use asm2464::TransportKind;
use asm2464::escape::Escape as _;
use asm2464_dock::pcap::{Capture, CaptureError};
use asm2464_host::bridge::Port;
use clap::ValueEnum;

use super::known::KnownUnits;
use crate::cli::interrupt;

/// The value of `--device`.
pub const UNIT: &str = "PORT|SERIAL|virtual[:DIR]";

/// Selects a unit.
#[derive(Debug, Clone, clap::Args)]
pub struct PortArgs {
    /// The unit: a port path as in 3-1.2, a serial number, or a virtual unit in a folder. With one unit
    /// connected it can be left out.
    #[arg(long, value_name = UNIT, env = "ASMPATCH_DEVICE")]
    pub device: Option<Selector>,

    #[command(flatten)]
    /// The IDs that are taken for units.
    pub ids: KnownUnits,

    #[command(flatten)]
    /// Where its traffic is recorded.
    pub pcap: PcapArgs,
}

impl PortArgs {
    /// Opens the unit's port and starts the capture of its traffic if one is requested. The capture must outlive the
    /// port.
    ///
    /// # Errors
    /// [`unit::ConnectError`]; also fails if a device file is wrong or the capture can't be written.
    pub fn open(&self) -> Result<(Recording<'_>, Box<dyn Port>), AnyFailure> {
        let recording = self.pcap.start()?;
        let port = self.port(recording.capture())?;
        Ok((recording, port))
    }

    /// Opens the unit's port; `capture` records it.
    ///
    /// # Errors
    /// [`unit::ConnectError`]; also fails if a device file is wrong.
    pub fn port(&self, capture: Option<&Capture>) -> Result<Box<dyn Port>, AnyFailure> {
        let devices = self.ids.load()?;
        Ok(opened(self.device.as_ref(), |device| unit::port(&devices, device, capture))?)
    }

    /// Selects the unit; `capture` records it. From here on Ctrl-C only sets a flag, so that the unit is
    /// always released.
    ///
    /// # Errors
    /// [`unit::ConnectError`]; also fails if a device file is wrong.
    pub fn choose(&self, capture: Option<&Capture>) -> Result<Unit, AnyFailure> {
        interrupt::install();
        let devices = self.ids.load()?;
        Ok(opened(self.device.as_ref(), |device| unit::choose(&devices, device, capture))?)
    }
}

/// Opens what the selector names. Says on a terminal that this has made a new virtual unit: its name may be mistyped.
///
/// # Errors
/// As for `open`.
pub fn opened<'a, T, E>(
    selector: Option<&'a Selector>,
    open: impl FnOnce(Option<&'a Selector>) -> Result<T, E>,
) -> Result<T, E> {
    let new = unit::new_virtual(selector).filter(|_| std::io::stderr().is_terminal());
    let opened = open(selector)?;
    if let Some(dir) = new {
        errln!("a new virtual unit in {}", dir.shown());
    }
    Ok(opened)
}

/// The value of `--transport`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum TransportArg {
    /// UAS where the unit offers it, else Bulk-Only.
    #[default]
    Auto,
    /// Bulk-Only, which a unit speaks in every state.
    Bot,
    /// UAS: an error where the unit does not offer it.
    Uas,
}

impl From<TransportArg> for Option<TransportKind> {
    fn from(wanted: TransportArg) -> Self {
        match wanted {
            TransportArg::Auto => None,
            TransportArg::Bot => Some(TransportKind::BulkOnly),
            TransportArg::Uas => Some(TransportKind::Uas),
        }
    }
}

/// Selects a unit and its transport.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    #[command(flatten)]
    /// The unit.
    pub port: PortArgs,

    /// How commands are carried.
    #[arg(long, value_enum, default_value_t)]
    pub transport: TransportArg,
}

/// The option that says where USB traffic is recorded.
#[derive(Debug, Clone, clap::Args)]
pub struct PcapArgs {
    /// Record the unit's USB traffic into this file (pcapng, for Wireshark). The file has everything that moves: serial
    /// number, firmware, data. Replaces an earlier capture, and no other file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl PcapArgs {
    /// Starts the capture if one is requested.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn start(&self) -> Result<Recording<'_>, CaptureError> {
        let begin = |path| Capture::create(path).map(|capture| (capture, path));
        Ok(Recording(self.pcap.as_deref().map(begin).transpose()?))
    }
}

/// A running capture, or none. Dropping it reports packets that are missing in the file.
#[derive(Debug)]
pub struct Recording<'a>(Option<(Capture, &'a Path)>);

impl Recording<'_> {
    /// Returns the capture, if there is one.
    pub fn capture(&self) -> Option<&Capture> {
        self.0.as_ref().map(|(capture, _)| capture)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let Some((capture, path)) = &self.0 else { return };
        let summary = capture.finish();
        if summary.dropped > 0 || summary.failure.is_some() {
            let why = summary.failure.as_deref().unwrap_or("the disk was too slow");
            let (dropped, received, path) = (summary.dropped, summary.received, path.display());
            errln!("asmpatch: {path} lacks {dropped} of {received} events on the bus: {why}");
        }
    }
}
