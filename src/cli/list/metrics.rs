//! `list --prometheus`: the list as metrics. docs/monitoring.md describes them.

use super::ListedUnit;
use crate::prometheus::{Exposition, Sample};

/// Adds what the list shows about each unit.
pub fn add(metrics: &mut Exposition, rows: &[ListedUnit]) {
    let of_unit = |value: fn(&ListedUnit) -> Option<f64>| {
        rows.iter().filter_map(move |row| Some(Sample::new(value(row)?).with("device", &row.unit.location)))
    };
    metrics.gauge("asmpatch_units", "Bridges on the system.", [Sample::new(rows.len() as f64)]);
    metrics.gauge(
        "asmpatch_unit_info",
        "A bridge: where it is, who it says it is, what runs on it.",
        rows.iter().map(|row| {
            Sample::new(1.0)
                .with("device", &row.unit.location)
                .with("usb_id", row.unit.id)
                .with("serial", row.unit.serial.as_deref().unwrap_or_default())
                .with("state", row.unit.state)
                .with("runs", &row.runs)
                .with("firmware", row.firmware.as_deref().unwrap_or_default())
                .with("behind", row.behind.as_deref().unwrap_or_default())
                .with("driver", row.unit.driver.as_deref().unwrap_or_default())
        }),
    );
    metrics.gauge(
        "asmpatch_unit_link_speed_bytes_per_second",
        "Signalling rate of the USB link: 6e7 is 480 Mbit/s, 6.25e8 is 5 Gbit/s, 1.25e9 is 10 Gbit/s and up.",
        of_unit(|row| row.unit.speed.bits_per_second().map(|bits| bits as f64 / 8.0)),
    );
    metrics.gauge(
        "asmpatch_unit_firmware_read",
        "Whether what runs on the bridge could be read.",
        of_unit(|row| Some(f64::from(u8::from(row.firmware_unread.is_none())))),
    );
    metrics.gauge(
        "asmpatch_unit_notes",
        "Notes on the bridge: a slow link, a shared serial number, an SSD behind it.",
        of_unit(|row| Some(row.notes.len() as f64)),
    );
}
