//! Single commands of the flash, on a unit whose firmware and flash controller are the chip model's.

use std::cell::Cell;
use std::time::Duration;

use asm2464::firmware::FlashAddress;
use asm2464_chip::mcu::SpiFlash as _;
use asm2464_dock::virtual_bridge::{Scenario, VirtualBridge, VirtualPort};
use asm2464_host::bridge::open::OpenRequest;
use asm2464_host::bridge::{Endpoint, Port as _};

use super::*;

const SECTOR: FlashAddress = FlashAddress(0x1_F000);
const LEN: usize = 0x80;

fn port(scenario: &str) -> VirtualPort {
    let scenario = Scenario::parse(&format!("factory = \"open\"\n{scenario}")).unwrap();
    VirtualPort::new("unit", VirtualBridge::in_memory(scenario, b"unit", None).unwrap())
}

fn flash(port: &mut VirtualPort) -> RegisterFlash<OpenBridge> {
    RegisterFlash::new(port.open_control().unwrap()).unwrap()
}

fn cells(port: &VirtualPort, at: FlashAddress, len: usize) -> Vec<u8> {
    port.unit().lock().flash().get(at, len).unwrap().to_vec()
}

fn page(seed: u8) -> [u8; LEN] {
    std::array::from_fn(|at| (at as u8).wrapping_mul(7) ^ seed)
}

#[test]
fn a_sector_is_read_erased_and_programmed_at_either_speed() {
    for speed in ["", "speed = \"high\"\n"] {
        let mut port = port(speed);
        let mut flash = flash(&mut port);
        let first = FlashAddress(0);
        assert!(flash.read_sector(first).unwrap()[..] == cells(&port, first, SECTOR_LEN));
        for seed in [1, 2] {
            flash.erase(SECTOR).unwrap();
            flash.program(SECTOR, &page(seed)).unwrap();
            flash.program(FlashAddress(SECTOR.0 + 0x80), &page(seed ^ 0x55)).unwrap();
            let found = cells(&port, SECTOR, SECTOR_LEN);
            assert_eq!(found[..LEN], page(seed), "{speed}");
            assert_eq!(found[LEN..2 * LEN], page(seed ^ 0x55), "{speed}");
            assert!(found[2 * LEN..].iter().all(|byte| *byte == 0xFF));
            assert!(flash.read_sector(SECTOR).unwrap()[..] == found);
        }
    }
}

#[test]
fn bits_are_cleared_without_an_erase_and_nothing_else_changes() {
    let mut port = port("");
    let mut flash = flash(&mut port);
    let before = cells(&port, FlashAddress(0), SECTOR_LEN);
    let (at, mask) = Slot::invalidation();
    flash.clear_bits(at, &mask).unwrap();
    let after = cells(&port, FlashAddress(0), SECTOR_LEN);
    assert_eq!(after[0x100..0x104], [0; 4]);
    assert_eq!((&after[..0x100], &after[0x104..]), (&before[..0x100], &before[0x104..]));
}

#[test]
fn a_flash_that_takes_its_time_is_waited_for() {
    let mut port = port("[timing]\nerase-sector-ms = 60\nprogram-page-us = 5000\n");
    let mut flash = flash(&mut port);
    let begun = Instant::now();
    flash.erase(SECTOR).unwrap();
    flash.program(SECTOR, &page(3)).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(65));
    assert_eq!(cells(&port, SECTOR, LEN), page(3));
}

#[test]
fn block_protection_is_cleared_or_named() {
    let mut clearable = port("[flash]\nprotection = \"clearable\"\n");
    let mut flash_ = flash(&mut clearable);
    assert!(matches!(flash_.program(SECTOR, &page(1)), Err(RegisterError::Differs { at: SECTOR, .. })));
    flash_.unprotect().unwrap();
    flash_.program(SECTOR, &page(1)).unwrap();

    let mut held = port("[flash]\nprotection = \"for-good\"\n");
    assert_eq!(flash(&mut held).unprotect(), Err(RegisterError::Protected { status: 0x1C, tries: 5 }));
}

#[test]
fn a_sector_that_does_not_erase_is_named() {
    let mut port = port("[flash]\nstuck-sector = 0x1F000\n");
    let mut flash = flash(&mut port);
    flash.program(SECTOR, &[0x0F; LEN]).unwrap();
    assert_eq!(flash.erase(SECTOR), Err(RegisterError::NotErased { at: SECTOR, count: LEN }));
    flash.erase(FlashAddress(0x1_E000)).unwrap();
}

#[test]
fn a_read_that_goes_wrong_now_and_then_is_repeated_and_one_that_always_does_is_an_error() {
    let mut sometimes = port("[flash]\nunstable-reads = 3\n");
    let expected = cells(&sometimes, FlashAddress(0x100), SECTOR_LEN);
    let mut flash_ = flash(&mut sometimes);
    for _ in 0..6 {
        assert!(flash_.read_sector(FlashAddress(0x100)).unwrap()[..] == expected);
    }
    let mut always = port("[flash]\nunstable-reads = 1\n");
    let at = FlashAddress(0x2000);
    assert_eq!(flash(&mut always).read_sector(at).map(drop), Err(RegisterError::Unstable(at)));
}

/// Shortens E4 from the eighth on, within the data of the first reading.
fn short_answers(times: u32) -> String {
    format!("[[fault]]\nkind = \"short-data\"\nopcode = 0xE4\nnth = 8\ntimes = {times}\n")
}

#[test]
fn a_short_answer_is_read_again_and_one_that_stays_short_is_an_error() {
    let mut once = port(&short_answers(1));
    let expected = cells(&once, FlashAddress(0x100), SECTOR_LEN);
    assert!(flash(&mut once).read_sector(FlashAddress(0x100)).unwrap()[..] == expected);
    let mut always = port(&short_answers(10_000));
    let error = flash(&mut always).read_sector(SECTOR).unwrap_err();
    assert!(matches!(error, RegisterError::Control(ControlError::Short { .. })), "{error:?}");
    let mut gone = port("[[fault]]\nkind = \"disconnect\"\nopcode = 0xE5\nnth = 40\n");
    let error = flash(&mut gone).read_sector(SECTOR).unwrap_err();
    assert!(matches!(error, RegisterError::Control(ControlError::Disconnected { .. })), "{error:?}");
}

/// A unit that is slow on each request, with its own clock.
#[derive(Debug)]
struct Slow {
    unit: OpenBridge,
    a_request: Duration,
    clock: Cell<Instant>,
    requests: usize,
}

impl Slow {
    fn flash(port: &mut VirtualPort, a_request: Duration) -> RegisterFlash<Self> {
        let unit = port.open_control().unwrap();
        RegisterFlash::new(Self { unit, a_request, clock: Cell::new(Instant::now()), requests: 0 }).unwrap()
    }

    fn take(&mut self, requests: usize) {
        self.requests += requests;
        self.clock.set(self.clock.get() + self.a_request * requests as u32);
    }
}

impl RegisterAccess for Slow {
    fn exchange(&mut self, bytes: &[(u16, u8)], from: u16, into: &mut [u8]) -> Result<(), ControlError> {
        self.take(bytes.len() + into.len().div_ceil(255));
        self.unit.exchange(bytes, from, into)
    }

    fn write(&mut self, bytes: &[(u16, u8)]) -> Result<(), ControlError> {
        self.take(bytes.len());
        self.unit.write(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.take(1);
        self.unit.send(bytes)
    }

    fn speed(&self) -> Speed {
        self.unit.speed()
    }

    fn now(&self) -> Instant {
        self.clock.get()
    }
}

#[test]
fn a_unit_that_answers_slowly_for_ever_is_given_up_when_the_time_is_over() {
    let mut port = port("");
    // Each answer arrives within its own deadline.
    let mut flash = Slow::flash(&mut port, Duration::from_secs(4));
    let begun = flash.session.deadline.at - BUDGET;
    let mut outcome = Ok(());
    for at in Slot::sectors().take_while(|_| outcome.is_ok()).collect::<Vec<_>>() {
        outcome = outcome.and_then(|()| flash.read_sector(at).map(drop));
    }
    assert_eq!(outcome, Err(RegisterError::OutOfTime(BUDGET)));
    let Slow { clock, requests, .. } = flash.into_registers();
    // What was in progress at the deadline ended first: a transaction and its data.
    assert!(clock.get() < begun + BUDGET + Duration::from_secs(4 * 40), "{requests}");
    assert!(requests < 200, "{requests}");
}

#[test]
fn the_time_goes_on_over_a_new_connection() {
    let mut port = port("");
    let mut session = Slow::flash(&mut port, Duration::from_secs(4)).session;
    let mut flash = Slow::flash(&mut port, Duration::from_secs(4));
    flash.read_sector(SECTOR).unwrap();
    session.deadline.at -= BUDGET;
    flash.session = session;
    assert_eq!(flash.read_sector(SECTOR).map(drop), Err(RegisterError::OutOfTime(BUDGET)));
    assert_eq!(flash.erase(SECTOR), Err(RegisterError::OutOfTime(BUDGET)));
}

#[test]
fn once_progress_is_expected_only_its_lack_ends_the_work() {
    let mut port = port("");
    let mut flash = Slow::flash(&mut port, Duration::from_secs(1));
    let begun = flash.registers().now();
    flash.expect_progress();
    for at in Slot::sectors() {
        flash.read_sector(at).unwrap();
        flash.progressed();
    }
    assert!(flash.registers().now() > begun + 2 * BUDGET);
    let mut outcome = Ok(());
    for at in Slot::sectors().take_while(|_| outcome.is_ok()).collect::<Vec<_>>() {
        outcome = outcome.and_then(|()| flash.read_sector(at).map(drop));
    }
    assert_eq!(outcome, Err(RegisterError::NoProgress(BUDGET)));
}

/// A unit that counts how many bytes it gets over its bulk pipe at once.
#[derive(Debug)]
struct Counted {
    unit: OpenBridge,
    sent: Vec<usize>,
}

impl RegisterAccess for Counted {
    fn exchange(&mut self, bytes: &[(u16, u8)], from: u16, into: &mut [u8]) -> Result<(), ControlError> {
        self.unit.exchange(bytes, from, into)
    }

    fn write(&mut self, bytes: &[(u16, u8)]) -> Result<(), ControlError> {
        self.unit.write(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.sent.push(bytes.len());
        self.unit.send(bytes)
    }

    fn speed(&self) -> Speed {
        self.unit.speed()
    }
}

#[test]
fn pages_are_as_long_as_what_lands_at_the_speed_of_the_link() {
    for (speed, sent) in [("super", vec![128; 2]), ("high", vec![64; 4])] {
        let mut port = port(&format!("speed = \"{speed}\"\n[flash]\nbulk-out-lands = 64\n"));
        let unit = port.open_control().unwrap();
        let mut flash = RegisterFlash::new(Counted { unit, sent: Vec::new() }).unwrap();
        flash.erase(SECTOR).unwrap();
        flash.program(SECTOR, &page(5)).unwrap();
        flash.program(FlashAddress(SECTOR.0 + 0x80), &page(6)).unwrap();
        assert_eq!(cells(&port, SECTOR, 2 * LEN), [page(5), page(6)].concat(), "{speed}");
        assert_eq!(flash.into_registers().sent, sent, "{speed}");
    }
}

#[test]
fn from_the_first_difference_on_pages_go_byte_by_byte() {
    let mut port = port("speed = \"high\"\n[flash]\nbulk-out-lands = 20\n");
    let unit = port.open_control().unwrap();
    let mut flash = RegisterFlash::new(Counted { unit, sent: Vec::new() }).unwrap();
    flash.erase(SECTOR).unwrap();
    flash.program(SECTOR, &page(5)).unwrap();
    assert_eq!(cells(&port, SECTOR, LEN), page(5), "no byte of it was ever wrong");
    let session = flash.session;
    let sent = flash.into_registers().sent;
    assert_eq!(sent, [64]);
    let mut flash = RegisterFlash::resume(port.open_control().unwrap(), session).unwrap();
    flash.program(FlashAddress(SECTOR.0 + 0x80), &page(6)).unwrap();
    assert!(!flash.session.has_bulk, "not tried again over a new connection");
}

#[test]
fn a_stale_first_byte_is_never_taken_for_the_status_the_id_or_the_flashs_content() {
    for every in [1, 2, 3, 7] {
        let stale = format!("[flash]\nprotection = \"clearable\"\nstale-first-byte = {every}\n");
        let mut port = port(&(stale + "[timing]\nerase-sector-ms = 20\nprogram-page-us = 3000\n"));
        let mut flash = flash(&mut port);
        assert_eq!(flash.protection(), Ok(0x1C), "{every}");
        flash.unprotect().unwrap();
        flash.erase(SECTOR).unwrap();
        // As a status, its first byte says "ready" and "protected".
        for number in 0..8 {
            let mut page = page(number);
            page[0] = 0x1C;
            let at = FlashAddress(SECTOR.0 + 0x80 * u32::from(number));
            let begun = Instant::now();
            flash.program(at, &page).unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(3), "{every}: it was waited for");
            assert_eq!(cells(&port, at, LEN), page, "{every}");
            assert_eq!(flash.protection(), Ok(0), "{every}");
        }
        let (at, mask) = Slot::invalidation();
        let before = cells(&port, FlashAddress(0), SECTOR_LEN);
        flash.clear_bits(at, &mask).unwrap();
        let after = flash.read_sector(FlashAddress(0)).unwrap();
        assert_eq!(after[..], [&before[..0x100], &[0; 4], &before[0x104..]].concat(), "{every}");
    }
}

#[test]
fn clearing_the_protection_keeps_the_status_registers_other_bits_and_it_is_put_back() {
    let mut port = port("");
    port.unit().lock().flash_mut().set_status(0x2C);
    let mut flash = flash(&mut port);
    let protection = flash.protection().unwrap();
    assert_eq!(protection, 0x0C);
    flash.unprotect().unwrap();
    assert_eq!(port.unit().lock().flash().status(), 0x20);
    flash.protect(protection).unwrap();
    assert_eq!(port.unit().lock().flash().status(), 0x2C);
}

/// A unit whose bulk pipe hangs, or whose flash is missing.
#[derive(Debug)]
struct Broken {
    unit: OpenBridge,
    has_flash: bool,
    sent: usize,
}

impl RegisterAccess for Broken {
    fn exchange(&mut self, bytes: &[(u16, u8)], from: u16, into: &mut [u8]) -> Result<(), ControlError> {
        self.unit.exchange(bytes, from, into)?;
        if !self.has_flash && from == 0x7000 {
            into.fill(0xFF);
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[(u16, u8)]) -> Result<(), ControlError> {
        self.unit.write(bytes)
    }

    fn send(&mut self, _: &[u8]) -> Result<(), ControlError> {
        self.sent += 1;
        Err(ControlError::BulkTimeout {
            request: OpenRequest::Bulk(Endpoint::DataOut),
            deadline: Duration::ZERO,
            answers: true,
        })
    }

    fn speed(&self) -> Speed {
        self.unit.speed()
    }
}

#[test]
fn a_unit_whose_bulk_pipe_hangs_gets_its_pages_byte_by_byte() {
    let mut port = port("");
    let unit = port.open_control().unwrap();
    let mut flash = RegisterFlash::new(Broken { unit, has_flash: true, sent: 0 }).unwrap();
    flash.program(SECTOR, &page(1)).unwrap();
    flash.program(FlashAddress(SECTOR.0 + 0x80), &page(2)).unwrap();
    assert_eq!(cells(&port, SECTOR, 2 * LEN), [page(1), page(2)].concat());
    assert_eq!(flash.into_registers().sent, 1, "it is not tried again");
}

#[test]
fn a_unit_whose_flash_does_not_answer_is_not_taken_for_one_with_an_empty_flash() {
    let unit = port("").open_control().unwrap();
    let error = RegisterFlash::new(Broken { unit, has_flash: false, sent: 0 }).unwrap_err();
    assert_eq!(error, RegisterError::NoFlash([0xFF; 3]));
}
