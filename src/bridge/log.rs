//! The log of commands and control requests for `-vv`: the request, its result, its first bytes and its time.

use std::fmt;
use std::time::Duration;

use tracing::{Level, debug, enabled};

use super::open::OpenJob;
use super::workload::{Completion, Job, JobData};
use crate::scsi::ScsiStatus;

/// Maximum number of data bytes to show.
const SHOWN: usize = 16;

/// Whether this log is enabled.
pub(super) fn is_on() -> bool {
    enabled!(Level::DEBUG)
}

/// Logs an answered command. `buffer` begins with its data.
pub(super) fn answered(job: &Job, completion: &Completion, buffer: &[u8], elapsed: Duration) {
    if !is_on() {
        return;
    }
    let Completion { transferred, status, sense } = *completion;
    let data = buffer.get(..transferred).unwrap_or_default();
    debug!(
        "{}: {}, {}, {}",
        job.cdb,
        ShownStatus(status, sense),
        Moved(DataDirection::of(job), data),
        Milliseconds(elapsed)
    );
}

/// Logs a control request or bulk transfer that succeeded. `name` is its name, or that of the request it belongs to.
pub(super) fn moved(name: &dyn fmt::Display, job: OpenJob, data: &[u8], elapsed: Duration) {
    if !is_on() {
        return;
    }
    let time = Milliseconds(elapsed);
    match job {
        OpenJob::Control(command) => {
            let sent = command.data().unwrap_or_default();
            let moved = match (command.is_read(), command.len()) {
                (true, _) => Moved(DataDirection::In, data),
                (false, 0) => Moved(DataDirection::None, &[]),
                (false, len) => Moved(DataDirection::Out, sent.get(..len).unwrap_or_default()),
            };
            debug!("{name}, setup {}: {moved}, {time}", FirstBytes(&command.setup()));
        }
        OpenJob::BulkIn(_) => debug!("{name}: {}, {time}", Moved(DataDirection::In, data)),
        OpenJob::BulkOut(len) => debug!("{name}: {len} bytes out, {time}"),
    }
}

/// Direction of the data.
#[derive(Clone, Copy)]
enum DataDirection {
    None,
    In,
    Out,
}

impl DataDirection {
    const fn of(job: &Job) -> Self {
        match job.data {
            JobData::None => Self::None,
            JobData::In(_) => Self::In,
            JobData::Out(_) => Self::Out,
        }
    }
}

struct ShownStatus(ScsiStatus, Option<crate::scsi::Sense>);

impl fmt::Display for ShownStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (ScsiStatus::Good, _) => f.write_str("GOOD"),
            (ScsiStatus::CheckCondition, Some(sense)) => write!(f, "CHECK CONDITION {sense}"),
            (ScsiStatus::CheckCondition, None) => f.write_str("CHECK CONDITION without sense data"),
            (ScsiStatus::Busy, _) => f.write_str("BUSY"),
            (ScsiStatus::Other(status), _) => write!(f, "status {status:#04x}"),
        }
    }
}

struct Moved<'a>(DataDirection, &'a [u8]);

impl fmt::Display for Moved<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(way, data) = *self;
        match way {
            DataDirection::None => return f.write_str("no data"),
            DataDirection::In => write!(f, "{} bytes in", data.len())?,
            DataDirection::Out => write!(f, "{} bytes out", data.len())?,
        }
        if data.is_empty() { Ok(()) } else { write!(f, ": {}", FirstBytes(data)) }
    }
}

/// Shows the first bytes in hexadecimal.
struct FirstBytes<'a>(&'a [u8]);

impl fmt::Display for FirstBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{byte:02x}", if index == 0 { "" } else { " " })?;
        }
        if self.0.len() > SHOWN { f.write_str(" ...") } else { Ok(()) }
    }
}

struct Milliseconds(Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_data_the_first_bytes_are_shown() {
        assert_eq!(Moved(DataDirection::None, &[]).to_string(), "no data");
        assert_eq!(Moved(DataDirection::In, &[0xAB, 1]).to_string(), "2 bytes in: ab 01");
        assert_eq!(Moved(DataDirection::In, &[]).to_string(), "0 bytes in");
        let shown = Moved(DataDirection::Out, &[7; 65_536]).to_string();
        assert_eq!(shown, format!("65536 bytes out: {} ...", ["07"; SHOWN].join(" ")));
        assert_eq!(Milliseconds(Duration::from_micros(1234)).to_string(), "1.234 ms");
    }
}
