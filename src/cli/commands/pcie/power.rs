//! `pcie off` and `pcie on`: PCIe's power, which open firmware switches by F3.

use std::fmt::Display;
use std::time::Duration;

use asm2464::escape::Escape as _;
use asm2464::firmware::BridgeState;
use asm2464::interrupt::Interrupt;
use asm2464::{AnyFailure, Failure, Kind};
use asm2464_host::bridge::{ControlError, Port};
use asm2464_host::pcie::Link;
use serde::Serialize;

use crate::cli::given::arguments::PortArgs;
use crate::cli::words::{interrupt, print};
use crate::unit::facts::HostState;

/// How long the link may take to go down or up. Scripts of owners wait as long.
const LINK_DEADLINE: Duration = Duration::from_secs(3);

/// Options of both.
#[derive(Debug, clap::Args)]
pub(super) struct PowerArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    port: PortArgs,
}

/// PCIe's power, after it was switched.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::cli) struct PowerJson<'a> {
    /// The unit's port, as `--device` takes it.
    device: &'a str,
    /// Whether it is on. If it is off, the link is down, and the supply may be cut.
    on: bool,
    /// The link below the bridge.
    link: Link,
}

impl print::Document for PowerJson<'_> {}

/// Switches PCIe's power off or on, and waits for the link.
///
/// # Errors
/// Fails if no unit is found, it runs other firmware, a runtime holds its lock, or the link does not follow.
pub(super) fn switch(args: &PowerArgs, on: bool) -> Result<(), AnyFailure> {
    let interrupt = interrupt::install();
    let (_recording, mut port) = args.port.open()?;
    let location = port.location();
    let device = location.to_string();
    let link = switched(&mut *port, &HostState::of(&location), on, interrupt)?;
    if args.json {
        print::json(&PowerJson { device: &device, on, link });
        return Ok(());
    }
    let (device, ltssm) = (device.shown(), link.ltssm);
    if on {
        outln!("{device}: PCIe is on and the link is up (LTSSM {ltssm:#04x})");
    } else {
        outln!("{device}: PCIe is off and the link is down (LTSSM {ltssm:#04x}): the supply may be cut");
    }
    Ok(())
}

/// Switches PCIe's power of the unit at a port, unless `host` says that a GPU runtime holds its lock. Returns the link.
fn switched(port: &mut dyn Port, host: &HostState, on: bool, interrupt: Interrupt<'_>) -> Result<Link, AnyFailure> {
    let (device, state) = (port.location().to_string(), port.attached()?.state);
    if state != BridgeState::OpenFirmware {
        return Err(no_power_switch(&device, &format!("the unit runs its {state}")).into());
    }
    if let Some(held) = host.lock_holder() {
        let label = Kind::Refused.code("asmpatch::pcie::runtime");
        return Err(Failure::new(label, format!("{device}: {held}")).into());
    }
    let mut unit = port.open_control()?;
    if on {
        return match unit.bring_link_up(LINK_DEADLINE, interrupt) {
            Ok(()) => Ok(unit.link()?),
            Err(error @ ControlError::LinkDown { .. }) => Err(stays_down(&device, &error).into()),
            Err(error) => Err(error.into()),
        };
    }
    match unit.take_link_down(LINK_DEADLINE, interrupt) {
        Ok(link) => in_detect(link, &device),
        Err(ControlError::Stalled { .. }) => {
            Err(no_power_switch(&device, "this build of the open firmware has no F3").into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The failure of a link that is down although nothing keeps PCIe switched off.
pub(super) fn stays_down(device: &str, why: &dyn Display) -> Failure {
    Failure::new(Kind::Device.code("asmpatch::pcie::stays_down"), format!("{device}: {why}"))
}

/// The link after F3, if no device is linked: only then may the supply be cut.
fn in_detect(link: Link, device: &str) -> Result<Link, AnyFailure> {
    if link.is_in_detect() {
        return Ok(link);
    }
    let message = format!(
        "{device}: this build keeps the PCIe link up: {LINK_DEADLINE:?} after F3, XDATA 0xB450 reads {:#04x}",
        link.ltssm
    );
    Err(Failure::new(Kind::Device.code("asmpatch::pcie::stays_up"), message).into())
}

/// The failure of a unit whose firmware has no request for PCIe's power.
fn no_power_switch(device: &str, why: &str) -> Failure {
    let message = format!("{device}: {why}, so PCIe's power can't be switched");
    Failure::new(Kind::Refused.code("asmpatch::pcie::no_power_switch"), message)
}

#[cfg(test)]
mod tests {
    use asm2464_host::usb::sysfs::Process;

    use super::*;
    use crate::tests::virtual_port;

    #[test]
    fn a_unit_is_left_alone_while_a_runtime_holds_its_lock() {
        let holder = Process { pid: 41, command: "python3".to_owned() };
        let locked = HostState { locks: vec![("/tmp/am_usb:3-7.lock".into(), holder)], ..HostState::default() };
        for on in [true, false] {
            let mut port = virtual_port("factory = 'open'\n");
            let mut switch = |host| switched(&mut port, host, on, Interrupt::never());
            let refused = switch(&locked).unwrap_err();
            assert_eq!((refused.kind(), refused.coded().code()), (Kind::Refused, "asmpatch::pcie::runtime"));
            let expected = "virtual:unit: process 41 (python3) holds /tmp/am_usb:3-7.lock, a GPU runtime's lock on the \
                            unit";
            assert_eq!(refused.to_string(), expected);
            // Without the lock, the firmware is asked.
            let code = switch(&HostState::default()).err().map(|error| error.coded().code().to_owned());
            assert_ne!(code.as_deref(), Some("asmpatch::pcie::runtime"), "{on}");
        }
    }

    #[test]
    fn only_a_link_in_detect_lets_the_supply_be_cut() {
        // Detect ends with 0x01; in 0x10 a device is still asked, in 0x48 it leaves, 0x78 is up.
        for (ltssm, may_be_cut) in [(0x00, true), (0x01, true), (0x10, false), (0x48, false), (0x78, false)] {
            let link = in_detect(Link { ltssm, is_up: ltssm == 0x78 }, "3-1.2");
            let code = link.map_err(|error| error.coded().code().to_owned());
            let expected = if may_be_cut { Ok(ltssm) } else { Err("asmpatch::pcie::stays_up".to_owned()) };
            assert_eq!(code.map(|link| link.ltssm), expected);
        }
    }
}
