//! Drives a unit that runs open firmware: reads its memory, lists the devices behind it, moves 1 MiB into its SRAM.
//!
//! Takes the first unit on this machine's buses; with the arguments `virtual IMAGE`, a unit in software
//! that runs this image of the open firmware.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use asm2464::firmware::UsbId;
use asm2464::scsi::XdataAddress;
use asm2464::sram::SRAM_LEN;
use asm2464_dock::virtual_bridge::{Scenario, VirtualBridge, VirtualPort};
use asm2464_host::bridge::OpenBridge;
use asm2464_host::pcie::{NoTime, Pcie, Scope, class_name};
use asm2464_host::usb::{self, KnownUnits};

fn main() -> Result<(), Box<dyn Error>> {
    let mut unit = match std::env::args().nth(1).as_deref() {
        Some("virtual") => in_software(&std::env::args().nth(2).ok_or("virtual: name an image")?)?,
        _ => usb::control(
            usb::discover(&Arc::new(KnownUnits::of([UsbId::PATCHED])))?.first().ok_or("no unit is connected")?,
        )?,
    };

    let mut version = [0; 6];
    unit.xdata_read(XdataAddress::VERSION, &mut version)?;
    println!("version {version:02x?}");

    for function in Pcie::new(&mut unit, &mut NoTime).survey(Scope::USUAL)?.functions {
        println!(
            "{} {:04x}:{:04x} {}",
            function.at,
            function.vendor,
            function.device,
            class_name(function.class).unwrap_or("device")
        );
    }

    // The whole SRAM, twice.
    unit.sram_write(0, &[0x5A; SRAM_LEN])?;
    unit.sram_write(0, &[0xA5; SRAM_LEN])?;
    Ok(())
}

fn in_software(image: &str) -> Result<OpenBridge, Box<dyn Error>> {
    let image = std::fs::read(image)?;
    let unit = VirtualBridge::in_memory(Scenario::parse("behind = \"gpu\"")?, b"serial", Some(&image))?;
    Ok(VirtualPort::new("unit", unit).control()?)
}
