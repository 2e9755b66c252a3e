//! The log of commands and control requests for `-vv`: the request, its result, its first bytes and its time.

use std::fmt::Display;
use std::time::Duration;

use asm2464::digest::to_hex;
use asm2464::scsi::{Lun, ScsiStatus, Sense};
use tracing::{Level, debug, enabled};

use super::open::OpenJob;
use super::pipes::Endpoint;
use super::transport::{CommandEnd, Job, JobData};

/// Maximum number of data bytes to show.
const SHOWN: usize = 16;

/// Whether this log is enabled.
pub(super) fn is_on() -> bool {
    enabled!(Level::DEBUG)
}

/// Logs an answered command. `buffer` begins with its data.
pub(super) fn answered(job: &Job, completion: &CommandEnd, buffer: &[u8], elapsed: Duration) {
    if !is_on() {
        return;
    }
    let CommandEnd { transferred, status, sense } = *completion;
    let data = buffer.get(..transferred).unwrap_or_default();
    let moved = match job.data {
        JobData::None => "no data".to_owned(),
        JobData::In(_) => data_words("in", data),
        JobData::Out(_) => data_words("out", data),
    };
    let status = status_words(status, sense);
    let place = if job.lun == Lun::ZERO { String::new() } else { format!(" to {}", job.lun) };
    debug!("{}{place}: {status}, {moved}, {}", job.cdb, milliseconds(elapsed));
}

/// Logs a control request or bulk transfer that succeeded. `name` is its name, or that of the request it belongs to.
pub(super) fn moved(name: &dyn Display, job: OpenJob, data: &[u8], elapsed: Duration) {
    if !is_on() {
        return;
    }
    let time = milliseconds(elapsed);
    match job {
        OpenJob::Control(command) => {
            let sent = command.data().unwrap_or_default();
            let moved = match (command.is_read(), command.len()) {
                (true, _) => data_words("in", data),
                (false, 0) => "no data".to_owned(),
                (false, len) => data_words("out", sent.get(..len).unwrap_or_default()),
            };
            debug!("{name}, setup {}: {moved}, {time}", first_bytes(&command.setup()));
        }
        OpenJob::Bulk(Endpoint::DataIn, _) => debug!("{name}: {}, {time}", data_words("in", data)),
        OpenJob::Bulk(_, len) => debug!("{name}: {len} bytes out, {time}"),
    }
}

fn status_words(status: ScsiStatus, sense: Option<Sense>) -> String {
    match (status, sense) {
        (ScsiStatus::Good, _) => "GOOD".to_owned(),
        (ScsiStatus::CheckCondition, Some(sense)) => format!("CHECK CONDITION {sense}"),
        (ScsiStatus::CheckCondition, None) => "CHECK CONDITION without sense data".to_owned(),
        (ScsiStatus::Busy, _) => "BUSY".to_owned(),
        (ScsiStatus::Other(status), _) => format!("status {status:#04x}"),
    }
}

fn data_words(way: &str, data: &[u8]) -> String {
    let bytes = if data.is_empty() { String::new() } else { format!(": {}", first_bytes(data)) };
    format!("{} bytes {way}{bytes}", data.len())
}

/// Shows the first bytes in hexadecimal.
fn first_bytes(bytes: &[u8]) -> String {
    let shown = to_hex(&bytes[..bytes.len().min(SHOWN)], " ");
    if bytes.len() > SHOWN { shown + " ..." } else { shown }
}

fn milliseconds(elapsed: Duration) -> String {
    format!("{:.3} ms", elapsed.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_long_data_the_first_bytes_are_shown() {
        assert_eq!(data_words("in", &[0xAB, 1]), "2 bytes in: ab 01");
        assert_eq!(data_words("in", &[]), "0 bytes in");
        let shown = data_words("out", &[7; 65_536]);
        assert_eq!(shown, format!("65536 bytes out: {} ...", ["07"; SHOWN].join(" ")));
        assert_eq!(milliseconds(Duration::from_micros(1234)), "1.234 ms");
    }
}
