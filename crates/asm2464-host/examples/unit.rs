//! Brings a unit's PCIe link up, reads its state, lists the devices behind it, and moves 1 MiB into its SRAM.
//!
//! Without arguments it uses the first connected unit with open firmware; with `virtual IMAGE`, a unit in software
//! that runs this image.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]
use std::{env, error::Error, fs, time::Duration};

use asm2464::{firmware::BridgeState, interrupt::Interrupt, sram::SRAM_LEN, tlp::LTSSM};
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::{OpenBridge, Port as _};
use asm2464_host::pcie::{Pcie, Scope};
use asm2464_host::usb::{self, KnownUnits};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut unit = match arguments[..] {
        [] => connected()?,
        ["virtual", image] => in_software(&fs::read(image)?)?,
        _ => return Err("usage: unit [virtual IMAGE]".into()),
    };

    unit.bring_link_up(Duration::from_secs(10), Interrupt::never())?;
    let mut state = [0];
    unit.xdata_read(LTSSM, &mut state)?;
    println!("PCIe link: {:#04x}", state[0]);
    for function in Pcie::new(&mut unit, &mut Interrupt::never()).survey(Scope::USUAL)?.functions {
        println!("{function}");
    }

    unit.sram_write(0, &[0x5A; SRAM_LEN])?;
    unit.sram_write(0, &[0xA5; SRAM_LEN])?;
    Ok(())
}

fn connected() -> Result<OpenBridge, Box<dyn Error>> {
    let found = usb::discover(&KnownUnits::shipped().into())?;
    let open = found.iter().find(|unit| unit.info.state == BridgeState::OpenFirmware);
    Ok(usb::control(open.ok_or("no unit with open firmware is connected")?)?)
}

fn in_software(image: &[u8]) -> Result<OpenBridge, Box<dyn Error>> {
    let unit = VirtualUnit::in_memory(Scenario::parse("behind = \"gpu\"")?, b"serial number", Some(image))?;
    Ok(VirtualPort::new("virtual", unit).open_control()?)
}
