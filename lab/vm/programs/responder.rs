//! Serves the plain responder (lab/benches/plain) to a virtual machine over usbredir.
//!
//! `lab/vm/measure` compares hosts on it. A unit that runs firmware on the chip model is too slow to show a
//! difference.
//!
//! ```text
//! responder unix:PATH [COMMAND_US]    sends each status at least COMMAND_US microseconds after its command
//! ```

#[cfg(unix)]
#[path = "../../benches/plain/mod.rs"]
mod plain;

use std::error::Error;

#[cfg(not(unix))]
fn main() -> Result<(), Box<dyn Error>> {
    Err("there are no Unix sockets here".into())
}

#[cfg(unix)]
fn main() -> Result<(), Box<dyn Error>> {
    use asm2464_dock::virtual_unit::usbredir::{Listener, serve};

    use asmpatch::cli::interrupt;

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, command_us) = match &arguments[..] {
        [address] => (address, 0),
        [address, command_us] => (address, command_us.parse()?),
        _ => return Err("usage: responder unix:PATH [COMMAND_US]".into()),
    };
    let mut unit = plain::responder(command_us)?;
    let listener = Listener::bind(&address.parse()?)?;
    serve(&mut unit, &listener, false, interrupt::install(), &mut |_| {})?;
    Ok(())
}
