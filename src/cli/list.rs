//! `asmpatch list`.

use comfy_table::{Table, presets};
use serde::Serialize;

use super::{Context, print};
use crate::bridge::UnitInfo;
use crate::failure::{AnyFailure, Exit};
use crate::firmware::BridgeState;
use crate::interrupt;
use crate::unit::{self, OpenError, Selector, TransportChoice};

/// List every bridge on the system.
///
/// Nothing that is in use is disturbed: the firmware's version is read only from a unit that no kernel driver holds,
/// or, with --probe, from every unit whose disk nothing uses.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Take units from their kernel driver for a moment to read the firmware's version.
    #[arg(long)]
    probe: bool,

    /// Show only this unit: a port path as in 3-1.2, a serial number, or a virtual bridge in a folder, which is listed
    /// only where it is named. May be given more than once.
    #[arg(long = "device", value_name = "PORT|SERIAL|virtual[:DIR]")]
    devices: Vec<Selector>,

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
    /// Why it could not.
    firmware_unread: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// Where USB can't be used, or a named unit is not there.
pub fn run(args: &Args, _context: &Context) -> Result<Exit, AnyFailure> {
    let units = if args.devices.is_empty() { unit::list()? } else { unit::named(&args.devices)? };
    // A unit that is asked for its version is given back before Ctrl-C ends the command.
    let interrupt = interrupt::install();
    let mut rows = Vec::new();
    for unit in units {
        interrupt.check()?;
        rows.push(row(unit, args.probe));
    }
    if args.json {
        print::json(&rows);
    } else if rows.is_empty() {
        outln!("no ASM2464PD bridge is connected");
    } else {
        outln!("{}", table(&rows));
        for row in &rows {
            if let Some(reason) = &row.firmware_unread {
                outln!("{}: firmware version not read: {reason}", row.unit.location);
            }
        }
    }
    Ok(Exit::Done)
}

fn row(unit: UnitInfo, probe: bool) -> Row {
    if let Some(driver) = unit.driver.as_ref().filter(|_| !probe) {
        let reason = format!("the kernel's {driver} driver holds the unit; --probe takes it for a moment");
        return Row { unit, firmware: None, firmware_unread: Some(reason) };
    }
    match firmware(&unit) {
        Ok(version) => Row { unit, firmware: Some(version), firmware_unread: None },
        Err(reason) => Row { unit, firmware: None, firmware_unread: Some(reason) },
    }
}

/// Bulk-Only: every state speaks it, and nothing has to be set up for six bytes.
fn firmware(unit: &UnitInfo) -> Result<String, String> {
    if unit.state != BridgeState::Vendor {
        return Err(format!("the {} tells none", unit.state));
    }
    let selector: Selector = unit.location.to_string().parse().unwrap_or_else(|never| match never {});
    let mut opened = unit::open(Some(&selector), TransportChoice::Bot).map_err(|error: OpenError| error.to_string())?;
    opened.bridge().firmware_version().map(|version| version.to_string()).map_err(|error| error.to_string())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["device", "ID", "state", "firmware", "serial", "speed", "driver", "product"]);
    for Row { unit, firmware, .. } in rows {
        table.add_row([
            unit.location.to_string(),
            unit.id.to_string(),
            unit.state.to_string(),
            firmware.clone().unwrap_or_else(|| "-".to_owned()),
            unit.serial.clone().unwrap_or_else(|| "-".to_owned()),
            unit.speed.to_string(),
            unit.driver.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{} {}", unit.manufacturer, unit.product).trim().to_owned(),
        ]);
    }
    table
}
