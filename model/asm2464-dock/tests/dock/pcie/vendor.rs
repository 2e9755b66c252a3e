//! TLPs through the registers of the chip's engine, with one late completion.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use asm2464::firmware::BridgeState;
use asm2464::scsi::ScsiStatus;
use asm2464_chip::chip::{self, Fabric, TlpRequest};
use asm2464_host::bridge::{Bridge, CommandEnd, Transport, TransportError, TransportKind, Workload};
use asm2464_host::pcie::{Pcie, Scope, Survey, VendorTlp};

use super::{Counted, gpu_behind_switches};

const BYTE_ENABLES: usize = 0xB217;
const DATA: usize = 0xB220;
const COMPLETION: usize = 0xB22A;
const FIRE: usize = 0xB254;
const STATUS: usize = 0xB296;
const COMPLETED: u8 = 0x02;
const SENT: u8 = 0x04;

/// E4 and E5 of a unit with its engine directly at the root port.
struct Registers {
    page: Vec<u8>,
    fabric: Fabric,
    /// Number of the request whose completion is late, from 1.
    late: usize,
    requests: usize,
    /// A completion that has not arrived, and the number of reads until it does.
    on_its_way: Option<(chip::TlpCompletion, u32)>,
    commands: usize,
    waits: usize,
}

impl Registers {
    fn new(late: usize) -> Self {
        let fabric = Fabric::of_devices(&gpu_behind_switches()).unwrap();
        let mut page = vec![0; 0x1_0000];
        page[0xB450] = 0x78;
        Self { page, fabric, late, requests: 0, on_its_way: None, commands: 0, waits: 0 }
    }

    fn write(&mut self, at: usize, value: u8) {
        match at {
            STATUS => self.page[STATUS] &= !value,
            FIRE => self.fire(),
            _ => self.page[at] = value,
        }
    }

    fn fire(&mut self) {
        let dword = |at: usize| u32::from_be_bytes(self.page[at..at + 4].try_into().unwrap());
        let (at, value) = (chip::ConfigAddress::of_request(dword(0xB218)), dword(DATA));
        let request = match self.page[0xB210] {
            0x04 | 0x05 => TlpRequest::ConfigRead(at),
            0x44 | 0x45 => TlpRequest::ConfigWrite(at, value, self.page[BYTE_ENABLES]),
            other => panic!("{other:#x}"),
        };
        self.requests += 1;
        self.page[STATUS] |= SENT;
        let completion = self.fabric.request(request).unwrap();
        // A completion that is still on its way is lost: the registers belong to the new request.
        self.on_its_way = Some((completion, if self.requests == self.late { 3 } else { 0 }));
        self.look();
    }

    fn look(&mut self) {
        let Some((completion, left)) = &mut self.on_its_way else { return };
        if *left > 0 {
            *left -= 1;
            return;
        }
        let (status, data) = match completion {
            chip::TlpCompletion::Data(data) => (0, *data),
            chip::TlpCompletion::Done => (0, 0),
            chip::TlpCompletion::UnsupportedRequest => (1, u32::MAX),
            other => panic!("{other:?}"),
        };
        self.page[DATA..DATA + 4].copy_from_slice(&data.to_be_bytes());
        self.page[COMPLETION] = status << 5;
        self.page[STATUS] |= COMPLETED;
        self.on_its_way = None;
    }
}

/// The registers as a bridge's transport, which the test looks at afterwards.
struct Wire(Arc<Mutex<Registers>>);

impl Transport for Wire {
    fn kind(&self) -> TransportKind {
        TransportKind::UasStreams
    }

    fn max_depth(&self) -> usize {
        31
    }

    fn run(&mut self, workload: &mut dyn Workload, _: usize, _: Duration) -> Result<(), TransportError> {
        let mut registers = self.0.lock().unwrap();
        registers.waits += 1;
        let mut buffer = vec![0; workload.buffer_len()];
        while let Some(job) = workload.next(&mut buffer) {
            registers.commands += 1;
            let cdb = job.cdb.as_slice();
            let at = usize::from(u16::from_be_bytes([cdb[3], cdb[4]]));
            let mut transferred = 0;
            if cdb[0] == 0xE5 {
                registers.write(at, cdb[1]);
            } else {
                transferred = usize::from(cdb[1]);
                buffer[..transferred].copy_from_slice(&registers.page[at..at + transferred]);
                registers.look();
            }
            let completion = CommandEnd { transferred, status: ScsiStatus::Good, sense: None };
            if !workload.complete(&job, &completion, &buffer[..transferred], Duration::ZERO) {
                break;
            }
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), TransportError> {
        Ok(())
    }
}

fn survey(late: usize) -> (Survey, Registers) {
    let registers = Arc::new(Mutex::new(Registers::new(late)));
    let mut bridge = Bridge::new(Box::new(Wire(registers.clone())), BridgeState::Vendor);
    let found = Pcie::new(&mut VendorTlp::new(&mut bridge), &mut Counted::new()).survey(Scope::USUAL).unwrap();
    drop(bridge);
    (found, Arc::into_inner(registers).unwrap().into_inner().unwrap())
}

#[test]
fn a_late_completion_of_any_request_changes_nothing() {
    let (expected, registers) = survey(0);
    assert_eq!((expected.functions.len(), expected.notes.len()), (6, 0));
    for late in 1..=registers.requests {
        let (found, with_one_late) = survey(late);
        assert_eq!(found, expected, "{late}");
        assert!(with_one_late.waits > registers.waits, "{late}");
    }
}

#[test]
fn a_survey_of_five_devices_takes_few_commands_and_fewer_waits() {
    let (_, Registers { requests, commands, waits, .. }) = survey(0);
    assert!(requests <= 290 && commands <= 1_750 && waits <= 65, "{requests} {commands} {waits}");
}
