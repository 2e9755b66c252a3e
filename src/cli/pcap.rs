//! The `--pcap` option, which records a unit's USB traffic.

use std::path::{Path, PathBuf};

use asm2464_dock::pcap::{Capture, CaptureError};

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
