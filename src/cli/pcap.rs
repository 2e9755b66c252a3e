//! `--pcap`.

use std::path::{Path, PathBuf};

use crate::pcap::{Capture, CaptureError};

/// Where the USB traffic of virtual units goes.
#[derive(Debug, Clone, clap::Args)]
pub struct PcapArgs {
    /// Record a virtual bridge's USB traffic into this file (pcapng, for Wireshark). Replaces an earlier capture, and
    /// no other file.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

impl PcapArgs {
    /// Begins the capture, where one is asked for.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn start(&self) -> Result<Recording<'_>, CaptureError> {
        let begin = |path| Capture::create(path).map(|capture| (capture, path));
        Ok(Recording(self.pcap.as_deref().map(begin).transpose()?))
    }
}

/// A capture under way, or none. Its end says what is missing in the file.
#[derive(Debug)]
pub struct Recording<'a>(Option<(Capture, &'a Path)>);

impl Recording<'_> {
    /// The capture.
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
