//! Sends one vendor request to endpoint 0 of the device at a port, for scripts: open firmware has no other interface.
//!
//! `lab/vm/run` uses it to read and write XDATA of a virtual unit.
//!
//! ```text
//! control PORT read REQUEST VALUE INDEX LENGTH    prints the data in hexadecimal
//! control PORT write REQUEST VALUE INDEX [DATA]   DATA in hexadecimal
//! ```
//!
//! Numbers are hexadecimal, LENGTH is decimal.

#![allow(clippy::print_stdout, reason = "the data is what it is run for")]

use std::error::Error;
use std::time::Duration;

use rusb::{Device, DeviceHandle, GlobalContext};

const READ: u8 = 0xC0;
const WRITE: u8 = 0x40;
const TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [port, "read", request, value, index, length] => {
            let mut data = vec![0; length.parse()?];
            let (request, value, index) = setup(request, value, index)?;
            let len = open(port)?.read_control(READ, request, value, index, &mut data, TIMEOUT)?;
            let text: Vec<String> = data[..len].iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{}", text.join(" "));
        }
        [port, "write", request, value, index, ref data @ ..] => {
            let digits = data.concat();
            let data = (0..digits.len() / 2)
                .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16))
                .collect::<Result<Vec<u8>, _>>()?;
            let (request, value, index) = setup(request, value, index)?;
            open(port)?.write_control(WRITE, request, value, index, &data, TIMEOUT)?;
        }
        _ => return Err("usage: control PORT read|write REQUEST VALUE INDEX [LENGTH|DATA]".into()),
    }
    Ok(())
}

fn setup(request: &str, value: &str, index: &str) -> Result<(u8, u16, u16), Box<dyn Error>> {
    let word = |text| u16::from_str_radix(text, 16);
    Ok((u8::from_str_radix(request, 16)?, word(value)?, word(index)?))
}

/// Opens the device at a port path such as 3-1.2.
fn open(port: &str) -> Result<DeviceHandle<GlobalContext>, Box<dyn Error>> {
    let is_there = |device: &Device<GlobalContext>| {
        let ports = device.port_numbers().unwrap_or_default();
        let ports: Vec<String> = ports.iter().map(u8::to_string).collect();
        format!("{}-{}", device.bus_number(), ports.join(".")) == port
    };
    let devices = rusb::devices()?;
    let device = devices.iter().find(is_there).ok_or_else(|| format!("nothing is at port {port}"))?;
    Ok(device.open()?)
}
