//! Panics in the middle of a run, with several commands in flight if the transport allows it. The unit must still go
//! back to the system's driver.
//!
//! `lab/vm/run` compares the driver before and after.
//!
//! ```text
//! panic_in_flight PORT bot|uas
//! ```

use std::error::Error;
use std::time::Duration;

use asm2464::TransportKind;
use asm2464::scsi::{Command, Lun, XdataAddress};
use asm2464_host::bridge::{CommandEnd, Job, JobData, Workload};
use asmpatch::devices::Devices;
use asmpatch::unit::{self, Selector};

const LEN: u8 = 255;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Endless E4 reads. Panics at the hundredth answer.
struct Endless {
    answers: u32,
}

impl Workload for Endless {
    fn buffer_len(&self) -> usize {
        LEN.into()
    }

    fn next(&mut self, _buffer: &mut [u8]) -> Option<Job> {
        let command = Command::XdataRead { from: XdataAddress::main(0x7000), len: LEN.into() };
        Some(Job { lun: Lun::ZERO, cdb: command.cdb(), data: JobData::In(LEN.into()), id: 0 })
    }

    fn complete(&mut self, _job: &Job, _completion: &CommandEnd, _data: &[u8], _elapsed: Duration) -> bool {
        self.answers += 1;
        assert!(self.answers < 100, "a panic with commands in flight, as asked for");
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, transport] = &arguments[..] else {
        return Err("usage: panic_in_flight PORT bot|uas".into());
    };
    let choice = match transport.as_str() {
        "bot" => TransportKind::BulkOnly,
        "uas" => TransportKind::Uas,
        other => return Err(format!("{other:?} is no transport").into()),
    };
    let selector: Selector = port.parse()?;
    let known = Devices::shipped().into();
    let mut bridge = unit::choose(&known, Some(&selector), None)?.port().open_over(Some(choice))?;
    let transport = bridge.transport_mut();
    let depth = transport.max_depth();
    transport.run(&mut Endless { answers: 0 }, depth, TIMEOUT)?;
    Ok(())
}
