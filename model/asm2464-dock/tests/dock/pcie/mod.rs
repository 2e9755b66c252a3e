//! The PCIe library on the chip model's devices, without firmware in between.

mod layout;
mod survey;
mod tiny_gpu;
mod vendor;

use asm2464::Bdf;
use asm2464::scsi::XdataAddress;
use asm2464::sram::SRAM_ADDRESS;
use asm2464::tlp::{Completion, CompletionStatus, Tlp, TlpKind};
use asm2464_chip::chip::{self, BarSpec, DeviceSpec, Fabric, HostMemory, TlpRequest};
use asm2464_host::pcie::{Function, Patience, Pcie, PcieError, Survey, TlpEngine};

/// An engine directly at the root port.
struct Direct {
    fabric: Fabric,
    sram: Sram,
    requests: usize,
}

/// Memory that devices reach: 4 KiB from 0x00200000 on.
struct Sram(Vec<u8>);

impl HostMemory for Sram {
    fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn write(&mut self, address: u64, data: &[u8]) -> bool {
        let at = address.checked_sub(SRAM_ADDRESS).and_then(|at| usize::try_from(at).ok());
        let cells = at.and_then(|at| self.0.get_mut(at..at.checked_add(data.len())?));
        cells.map(|cells| cells.copy_from_slice(data)).is_some()
    }
}

impl Direct {
    fn new(devices: &[DeviceSpec]) -> Self {
        Self { fabric: Fabric::of_devices(devices).unwrap(), sram: Sram(vec![0; 0x1000]), requests: 0 }
    }
}

impl TlpEngine for Direct {
    fn tlps(&mut self, tlps: &[Tlp]) -> Result<Vec<Option<Completion>>, PcieError> {
        let carry = |tlp: &Tlp| {
            self.requests += 1;
            let place = chip::ConfigAddress::of_request(tlp.address as u32);
            let request = match tlp.kind {
                TlpKind::ConfigRead0 | TlpKind::ConfigRead1 => TlpRequest::ConfigRead(place),
                TlpKind::ConfigWrite0 | TlpKind::ConfigWrite1 => TlpRequest::ConfigWrite(place, tlp.value, tlp.enables),
                TlpKind::MemoryRead => TlpRequest::MemoryRead(tlp.address),
                TlpKind::MemoryWrite => TlpRequest::MemoryWrite(tlp.address, tlp.value, tlp.enables),
            };
            let (status, data) = match self.fabric.carry(request, &mut self.sram)? {
                chip::TlpCompletion::Data(data) => (CompletionStatus::Success, data),
                chip::TlpCompletion::Done => (CompletionStatus::Success, 0),
                chip::TlpCompletion::UnsupportedRequest => (CompletionStatus::UnsupportedRequest, u32::MAX),
                chip::TlpCompletion::Retry => (CompletionStatus::ConfigRetry, u32::MAX),
                chip::TlpCompletion::Never => (CompletionStatus::TimedOut, u32::MAX),
            };
            Some(Completion { status, data })
        };
        Ok(tlps.iter().map(carry).collect())
    }

    fn xdata_read(&mut self, from: XdataAddress, buffer: &mut [u8]) -> Result<(), PcieError> {
        if from.addr == 0xB450 {
            buffer[0] = if self.fabric.is_link_up() { 0x78 } else { 0x01 };
        } else {
            let at = usize::from(from.addr - 0xF000);
            buffer.copy_from_slice(&self.sram.0[at..at + buffer.len()]);
        }
        Ok(())
    }

    fn xdata_write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), PcieError> {
        writes.iter().for_each(|(at, value)| self.sram.0[usize::from(at.addr - 0xF000)] = *value);
        Ok(())
    }
}

/// Adds up the waits, in milliseconds. Stops the work after a number of functions.
struct Counted {
    waited: u64,
    goes_on: usize,
}

impl Counted {
    const fn new() -> Self {
        Self { waited: 0, goes_on: usize::MAX }
    }
}

impl Patience for Counted {
    fn wait(&mut self, milliseconds: u64) {
        self.waited += milliseconds;
    }

    fn goes_on(&mut self) -> bool {
        self.goes_on = self.goes_on.saturating_sub(1);
        self.goes_on > 0
    }
}

fn device(at: &str, id: u16) -> DeviceSpec {
    DeviceSpec { at: at.to_owned(), vendor: 0x1002, device: id, ..DeviceSpec::default() }
}

const fn bar(bytes: u64, is_64: bool, prefetchable: bool) -> BarSpec {
    BarSpec { bytes, is_64, prefetchable }
}

/// A GPU of two functions behind two switches, on bus 4, as owners of units found it.
fn gpu_behind_switches() -> Vec<DeviceSpec> {
    let gpu = DeviceSpec {
        class: 0x03_00_00,
        bars: vec![bar(16 << 30, true, true), bar(2 << 20, true, true), bar(512 << 10, false, false)],
        ..device("0/0/0/0", 0x744C)
    };
    let audio =
        DeviceSpec { class: 0x04_03_00, bars: vec![bar(16 << 10, false, false)], ..device("0/0/0/0.1", 0xAB30) };
    vec![device("0", 0x2461), device("0/0", 0x1478), device("0/0/0", 0x1479), gpu, audio]
}

/// Runs `work` on these devices. Returns its result and the requests that it sent.
fn on<T>(devices: &[DeviceSpec], work: impl FnOnce(&mut Pcie<'_>) -> T) -> (T, usize) {
    let (mut engine, mut patience) = (Direct::new(devices), Counted::new());
    let found = work(&mut Pcie::new(&mut engine, &mut patience));
    (found, engine.requests)
}

fn function(survey: &Survey, at: Bdf) -> &Function {
    survey.functions.iter().find(|function| function.at == at).unwrap()
}

#[test]
fn memory_is_read_and_written_byte_by_byte_at_its_ends() {
    let gpu = DeviceSpec { bars: vec![bar(4096, false, false)], ..device("0", 1) };
    on(&[gpu], |pcie| {
        pcie.config_write(Bdf::ROOT, 0x18, 0x01_01_00, 0x0F).unwrap();
        pcie.config_write(Bdf::ROOT, 0x20, 0x1000_1000, 0x0F).unwrap();
        pcie.config_write(Bdf::ROOT, 0x04, 2, 0x03).unwrap();
        let gpu = Bdf::new(1, 0, 0);
        pcie.config_write(gpu, 0x10, 0x1000_0000, 0x0F).unwrap();
        pcie.config_write(gpu, 0x04, 2, 0x03).unwrap();
        pcie.memory_write(0x1000_0000, &[0xEE; 700]).unwrap();
        let data: Vec<u8> = (0..251).collect();
        pcie.memory_write(0x1000_0003, &data).unwrap();
        let mut found = [0; 300];
        pcie.memory_read(0x1000_0001, &mut found).unwrap();
        assert!(found[..2] == [0xEE; 2] && found[2..253] == data[..] && found[253..] == [0xEE; 47]);
        let mut one = [0];
        pcie.memory_read(0x1000_0005, &mut one).unwrap();
        assert_eq!(one, [2]);
        assert!(pcie.memory_read(0x2000_0000, &mut one).unwrap_err().to_string().contains("unsupported request"));
        assert!(pcie.memory_read(u64::MAX, &mut [0; 2]).is_err());
        pcie.memory_read(0x2000_0000, &mut []).unwrap();
    });
}

#[test]
fn the_sram_can_be_accessed_only_within_its_window() {
    on(&[], |pcie| {
        pcie.sram_write(0xFF0, &[7; 16]).unwrap();
        let mut found = [0; 32];
        pcie.sram_read(0xFE0, &mut found).unwrap();
        assert!(found[..16] == [0; 16] && found[16..] == [7; 16]);
        assert!(pcie.sram_read(0xFF0, &mut [0; 17]).is_err());
        assert!(pcie.sram_write(usize::MAX, &[0]).is_err());
        pcie.sram_write(0x1000, &[]).unwrap();
    });
}
