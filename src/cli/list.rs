//! `asmpatch list`.

use comfy_table::{Table, presets};
use serde::Serialize;

use super::flash::SSD_LOST;
use super::known::PatchDirs;
use super::pcap::PcapArgs;
use super::{Context, print};
use crate::bridge::{Behind, Speed, UnitInfo};
use crate::escape::Escape as _;
use crate::failure::{AnyFailure, Exit};
use crate::fetch::Manifests;
use crate::flash::access::Access;
use crate::flash::identity::shared_serials;
use crate::flash::observe::Running;
use crate::flash::plan::is_readable;
use crate::interrupt;
use crate::patch::Library;
use crate::pcap::Capture;
use crate::unit::{self, OpenError, Selector};

/// List every bridge on the system.
///
/// Nothing that is in use is disturbed: what runs on a unit, and what is behind it, is asked only of a unit that no kernel
/// driver holds, or, with --probe, of every unit whose disk nothing uses.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Take units from their kernel driver for a moment to read their firmware.
    #[arg(long)]
    probe: bool,

    /// Show only this unit: a port path as in 3-1.2, a serial number, or a virtual bridge in a folder, which is listed
    /// only where it is named. May be given more than once.
    #[arg(long = "device", value_name = "PORT|SERIAL|virtual[:DIR]")]
    devices: Vec<Selector>,

    #[command(flatten)]
    pcap: PcapArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// One line of the list.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    unit: UnitInfo,
    /// The version, where it could be read.
    firmware: Option<String>,
    /// What runs, as far as it shows: the identity tells nothing of it.
    runs: String,
    /// What is behind the bridge, where it could be asked.
    behind: Option<String>,
    /// Why they could not.
    firmware_unread: Option<String>,
    /// What the user should know.
    notes: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// Where USB can't be used, or a named unit is not there.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let recording = args.pcap.start()?;
    let units = if args.devices.is_empty() { unit::list()? } else { unit::named(&args.devices)? };
    let library = PatchDirs::default().load(&Manifests::load(&[])?)?;
    // A unit that is asked for its version is given back before Ctrl-C ends the command.
    let interrupt = interrupt::install();
    let mut rows = Vec::new();
    for unit in units {
        interrupt.check()?;
        rows.push(row(unit, args.probe, recording.capture(), &library));
    }
    note_shared_serials(&mut rows);
    if args.json {
        print::json(&rows);
    } else if rows.is_empty() {
        outln!("no ASM2464PD bridge is connected");
    } else {
        outln!("{}", table(&rows));
        for row in &rows {
            if let Some(reason) = &row.firmware_unread {
                outln!("{}: firmware not read: {}", row.unit.location.to_string().shown(), reason.shown());
            }
            row.notes.iter().for_each(|note| outln!("{}: {note}", row.unit.location));
        }
    }
    Ok(Exit::Done)
}

fn row(unit: UnitInfo, probe: bool, capture: Option<&Capture>, library: &Library) -> Row {
    let running = match unit.driver.as_ref().filter(|_| !probe) {
        Some(driver) => Err(format!("the kernel's {driver} driver holds the unit; --probe takes it for a moment")),
        None => running(&unit, capture),
    };
    let mut notes = Vec::new();
    if unit.speed == Speed::High {
        notes.push(format!("the link is at 480 Mbit/s: `asmpatch reset --device {}` trains it anew", unit.location));
    }
    let (firmware, runs, behind, firmware_unread) = match running {
        Ok(running) => {
            if matches!(running.behind, Behind::Ssd(_)) {
                notes.push(format!("the SSD {SSD_LOST}"));
            }
            if running.behind.is_initialised() {
                notes.push(format!(
                    "to the kernel's driver it has a disk now, whose first block Linux waits 30 s for: \
                     `asmpatch reset --device {}` undoes the initialisation; docs/recovery.md says how to keep the driver off",
                    unit.location
                ));
            }
            let version = running.version.map(|version| version.to_string());
            let behind = is_readable(running.state).then(|| running.behind.to_string());
            (version, running.runs(library).to_string(), behind, None)
        }
        Err(reason) => (None, unit.state.to_string(), None, Some(reason)),
    };
    Row { unit, firmware, runs, behind, firmware_unread, notes }
}

/// Two units with one serial number can't be told apart by it.
fn note_shared_serials(rows: &mut [Row]) {
    let serials: Vec<(String, String)> =
        rows.iter().map(|row| (row.unit.location.to_string(), row.unit.serial.clone().unwrap_or_default())).collect();
    let shared = shared_serials(serials.iter().map(|(device, serial)| (device.as_str(), serial.as_str())));
    for (serial, devices) in shared {
        for row in rows.iter_mut().filter(|row| row.unit.serial.as_deref() == Some(serial)) {
            let others: Vec<&str> =
                devices.iter().copied().filter(|device| *device != row.unit.location.to_string()).collect();
            row.notes.push(format!(
                "{} has the serial number {serial} too: `asmpatch flash FILE --serial TEXT --device {}` gives this unit \
                 its own",
                others.join(", "),
                row.unit.location
            ));
        }
    }
}

fn running(unit: &UnitInfo, capture: Option<&Capture>) -> Result<Running, String> {
    let selector: Selector = unit.location.to_string().parse().unwrap_or_else(|never| match never {});
    let capture = capture.filter(|_| unit.is_virtual());
    let mut port = unit::port(Some(&selector), capture).map_err(|error: OpenError| error.to_string())?;
    let mut access = Access::open(&mut *port).map_err(|error| error.to_string())?;
    Running::of(&mut access, unit.state).map_err(|error| error.to_string())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["device", "ID", "runs", "version", "behind", "serial", "speed", "driver", "product"]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for Row { unit, firmware, runs, behind, .. } in rows {
        table.add_row([
            unit.location.to_string().shown().to_string(),
            unit.id.to_string(),
            runs.clone(),
            or_dash(firmware),
            or_dash(behind).shown().to_string(),
            or_dash(&unit.serial).shown().to_string(),
            unit.speed.to_string(),
            or_dash(&unit.driver),
            format!("{} {}", unit.manufacturer, unit.product).trim().shown().to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Location;
    use crate::firmware::{BridgeState, UsbId};

    fn row(folder: &str, serial: &str) -> Row {
        let unit = UnitInfo {
            location: Location::Virtual(folder.into()),
            id: UsbId::PATCHED,
            state: BridgeState::Vendor,
            manufacturer: String::new(),
            product: String::new(),
            serial: Some(serial.to_owned()),
            speed: Speed::Super,
            driver: None,
        };
        let runs = String::new();
        Row { unit, firmware: None, runs, behind: None, firmware_unread: None, notes: Vec::new() }
    }

    #[test]
    fn units_that_share_a_serial_number_are_reported_with_the_cure() {
        let mut rows = [row("a", "AAAABBBB0060"), row("b", "MINE"), row("c", "AAAABBBB0060")];
        note_shared_serials(&mut rows);
        let [a, b, c] = rows.map(|row| row.notes.concat());
        assert!(a.starts_with("virtual:c has the serial number AAAABBBB0060 too") && a.contains("--serial"), "{a}");
        assert!(c.starts_with("virtual:a has"), "{c}");
        assert_eq!(b, "");
    }
}
