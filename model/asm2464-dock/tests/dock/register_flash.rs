//! Single operations on the flash of a unit whose firmware runs on the chip model.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use asm2464::firmware::FlashAddress;
use asm2464::flash::{BUDGET, JedecId, PAGE_LEN, RegisterAccess, RegisterError, RegisterFlash, SECTOR_LEN};
use asm2464::scsi::XdataAddress;
use asm2464_dock::virtual_unit::{Scenario, VirtualPort, VirtualUnit};
use asm2464_host::bridge::open::OpenRequest;
use asm2464_host::bridge::{ControlError, Endpoint, OpenBridge, Port as _};

const SECTOR: FlashAddress = FlashAddress(0x1_F000);
/// Buffer of the flash controller.
const BUFFER: XdataAddress = XdataAddress::main(0x7000);
/// Starts a transaction; bit 0 is set until it has ended.
const START: XdataAddress = XdataAddress::main(0xC8A9);
const LEN: usize = PAGE_LEN;

fn port(scenario: &str) -> VirtualPort {
    let scenario = Scenario::parse(&format!("factory = \"open\"\n{scenario}")).unwrap();
    VirtualPort::new("unit", VirtualUnit::in_memory(scenario, b"unit", None).unwrap())
}

fn flash(port: &mut VirtualPort) -> RegisterFlash<OpenBridge> {
    RegisterFlash::new(port.open_control().unwrap()).unwrap()
}

fn cells(port: &VirtualPort, at: FlashAddress, len: usize) -> Vec<u8> {
    port.unit().lock().flash().get(at, len).unwrap().to_vec()
}

/// The sectors of the first slot.
fn sectors() -> impl Iterator<Item = FlashAddress> {
    (0..0x2_0000).step_by(SECTOR_LEN).map(FlashAddress)
}

/// The flash address of the image's length, and a page that clears it.
fn cleared_length() -> (FlashAddress, [u8; PAGE_LEN]) {
    let mut page = [0xFF; PAGE_LEN];
    page[..4].fill(0);
    (FlashAddress(0x100), page)
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
    let (at, mask) = cleared_length();
    flash.clear_bits(at, &mask).unwrap();
    let after = cells(&port, FlashAddress(0), SECTOR_LEN);
    assert_eq!(after[0x100..0x104], [0; 4]);
    assert_eq!((&after[..0x100], &after[0x104..]), (&before[..0x100], &before[0x104..]));
}

#[test]
fn a_slow_flash_is_waited_for() {
    let mut port = port("[timing]\nerase-sector-ms = 60\nprogram-page-us = 5000\n");
    let mut flash = flash(&mut port);
    let begun = Instant::now();
    flash.erase(SECTOR).unwrap();
    flash.program(SECTOR, &page(3)).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(65));
    assert_eq!(cells(&port, SECTOR, LEN), page(3));
}

#[test]
fn a_read_that_sometimes_fails_is_repeated_and_one_that_always_fails_is_an_error() {
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
    assert!(matches!(error, RegisterError::Access(ControlError::Short { .. })), "{error:?}");
    let mut gone = port("[[fault]]\nkind = \"disconnect\"\nopcode = 0xE5\nnth = 40\n");
    let error = flash(&mut gone).read_sector(SECTOR).unwrap_err();
    assert!(matches!(error, RegisterError::Access(ControlError::Disconnected { .. })), "{error:?}");
}

/// A unit whose accesses are counted. It may be slow, with its own clock, and broken.
#[derive(Debug)]
struct Watched {
    unit: OpenBridge,
    /// The time that each request takes, and the clock that it advances.
    slow: Option<(Duration, Rc<Cell<Duration>>)>,
    pipe_hangs: bool,
    has_flash: bool,
    /// How often a transaction is still busy when it is looked at.
    busy: Rc<Cell<usize>>,
    requests: usize,
    /// The bytes of each transfer on the bulk pipe.
    sent: Vec<usize>,
}

impl Watched {
    fn open(port: &mut VirtualPort) -> Self {
        let unit = port.open_control().unwrap();
        Self {
            unit,
            slow: None,
            pipe_hangs: false,
            has_flash: true,
            busy: Rc::default(),
            requests: 0,
            sent: Vec::new(),
        }
    }

    fn slow(port: &mut VirtualPort, per_request: Duration, clock: &Rc<Cell<Duration>>) -> Self {
        Self { slow: Some((per_request, Rc::clone(clock))), ..Self::open(port) }
    }

    fn take(&mut self, requests: usize) {
        self.requests += requests;
        if let Some((per_request, clock)) = &self.slow {
            clock.set(clock.get() + *per_request * requests as u32);
        }
    }
}

impl RegisterAccess for Watched {
    type Error = ControlError;

    fn exchange(
        &mut self,
        writes: &[(XdataAddress, u8)],
        from: XdataAddress,
        into: &mut [u8],
    ) -> Result<(), ControlError> {
        self.take(writes.len() + into.len().div_ceil(255));
        self.unit.exchange(writes, from, into)?;
        if !self.has_flash && from == BUFFER {
            into.fill(0xFF);
        }
        if from == START && self.busy.get() > 0 {
            self.busy.set(self.busy.get() - 1);
            into[0] |= 1;
        }
        Ok(())
    }

    fn write(&mut self, writes: &[(XdataAddress, u8)]) -> Result<(), ControlError> {
        self.take(writes.len());
        self.unit.write(writes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.take(1);
        self.sent.push(bytes.len());
        if self.pipe_hangs {
            let request = OpenRequest::Bulk(Endpoint::DataOut);
            return Err(ControlError::BulkTimeout { request, deadline: Duration::ZERO, answers: true });
        }
        self.unit.send(bytes)
    }

    fn is_gone(error: &ControlError) -> bool {
        OpenBridge::is_gone(error)
    }

    fn is_super_speed(&self) -> bool {
        self.unit.is_super_speed()
    }

    fn now(&mut self) -> Duration {
        self.slow.as_ref().map_or_else(|| self.unit.now(), |(_, clock)| clock.get())
    }

    fn pause(&mut self, time: Duration) {
        match &self.slow {
            Some((_, clock)) => clock.set(clock.get() + time),
            None => self.unit.pause(time),
        }
    }
}

#[test]
fn a_transaction_that_takes_its_time_is_awaited_and_one_that_does_not_end_is_an_error() {
    let mut port = port("");
    let watched = Watched::slow(&mut port, Duration::from_millis(10), &Rc::default());
    let busy = Rc::clone(&watched.busy);
    let mut flash = RegisterFlash::new(watched).unwrap();
    busy.set(20);
    assert_eq!(flash.protection(), Ok(0));
    busy.set(usize::MAX);
    assert!(matches!(flash.protection(), Err(RegisterError::Controller { deadline, .. }) if deadline.as_secs() == 1));
}

#[test]
fn a_page_over_what_is_not_erased_differs_in_the_bytes_that_lack_their_bits() {
    let mut port = port("");
    let mut flash = flash(&mut port);
    let at = FlashAddress(SECTOR.0 + 0x100);
    flash.erase(SECTOR).unwrap();
    flash.program(at, &[0; LEN]).unwrap();
    let mut page = [0; LEN];
    page[..3].fill(1);
    assert!(matches!(flash.program(at, &page), Err(RegisterError::Differs { count: 3, .. })));
}

#[test]
fn work_on_a_slow_unit_ends_with_an_error_at_the_time_limit() {
    let mut port = port("");
    // Each answer arrives within its own deadline.
    let clock = Rc::default();
    let mut watched = Watched::slow(&mut port, Duration::from_secs(4), &clock);
    let mut flash = RegisterFlash::new(&mut watched).unwrap();
    let mut outcome = Ok(());
    for at in sectors().take_while(|_| outcome.is_ok()).collect::<Vec<_>>() {
        outcome = outcome.and_then(|()| flash.read_sector(at).map(drop));
    }
    assert_eq!(outcome, Err(RegisterError::OutOfTime(BUDGET)));
    let requests = watched.requests;
    // The work in progress at the deadline ends first: a transaction and its data.
    assert!(clock.get() < BUDGET + Duration::from_secs(4 * 40), "{requests}");
    assert!(requests < 200, "{requests}");
}

#[test]
fn the_time_limit_continues_over_a_new_connection() {
    let mut port = port("");
    let clock = Rc::default();
    let mut open = || Watched::slow(&mut port, Duration::ZERO, &clock);
    let session = RegisterFlash::new(open()).unwrap().session();
    clock.set(BUDGET / 2);
    let mut flash = RegisterFlash::resume(open(), session).unwrap();
    flash.read_sector(SECTOR).unwrap();
    clock.set(BUDGET);
    assert_eq!(flash.read_sector(SECTOR).map(drop), Err(RegisterError::OutOfTime(BUDGET)));
    assert_eq!(flash.erase(SECTOR), Err(RegisterError::OutOfTime(BUDGET)));
    assert_eq!(RegisterFlash::resume(open(), session).map(drop), Err(RegisterError::OutOfTime(BUDGET)));
    RegisterFlash::new(open()).unwrap().read_sector(SECTOR).unwrap();
}

#[test]
fn once_progress_is_expected_only_a_lack_of_it_ends_the_work() {
    let mut port = port("");
    let clock: Rc<Cell<Duration>> = Rc::default();
    let mut flash = RegisterFlash::new(Watched::slow(&mut port, Duration::from_secs(1), &clock)).unwrap();
    let begun = clock.get();
    flash.expect_progress();
    for at in sectors() {
        flash.read_sector(at).unwrap();
        flash.progressed();
    }
    assert!(clock.get() > begun + 2 * BUDGET);
    let mut outcome = Ok(());
    for at in sectors().take_while(|_| outcome.is_ok()).collect::<Vec<_>>() {
        outcome = outcome.and_then(|()| flash.read_sector(at).map(drop));
    }
    assert_eq!(outcome, Err(RegisterError::NoProgress(BUDGET)));
}

#[test]
fn a_page_is_as_long_as_the_bulk_data_that_arrive_at_the_links_speed() {
    for (speed, sent) in [("super", vec![128; 2]), ("high", vec![64; 4])] {
        let mut port = port(&format!("speed = \"{speed}\"\n[flash]\nbulk-out-lands = 64\n"));
        let mut watched = Watched::open(&mut port);
        let mut flash = RegisterFlash::new(&mut watched).unwrap();
        flash.erase(SECTOR).unwrap();
        flash.program(SECTOR, &page(5)).unwrap();
        flash.program(FlashAddress(SECTOR.0 + 0x80), &page(6)).unwrap();
        assert_eq!(watched.sent, sent, "{speed}");
        assert_eq!(cells(&port, SECTOR, 2 * LEN), [page(5), page(6)].concat(), "{speed}");
    }
}

#[test]
fn from_the_first_difference_on_pages_go_byte_by_byte() {
    let mut port = port("speed = \"high\"\n[flash]\nbulk-out-lands = 20\n");
    let mut watched = Watched::open(&mut port);
    let mut flash = RegisterFlash::new(&mut watched).unwrap();
    flash.erase(SECTOR).unwrap();
    flash.program(SECTOR, &page(5)).unwrap();
    let session = flash.session();
    assert_eq!(watched.sent, [64]);
    assert_eq!(cells(&port, SECTOR, LEN), page(5), "no byte of it was ever wrong");
    let mut watched = Watched::open(&mut port);
    let mut flash = RegisterFlash::resume(&mut watched, session).unwrap();
    flash.program(FlashAddress(SECTOR.0 + 0x80), &page(6)).unwrap();
    assert_eq!(watched.sent, [0; 0], "not tried again over a new connection");
}

#[test]
fn a_stale_first_byte_is_never_taken_for_the_status_the_id_or_what_the_flash_holds() {
    for every in [1, 2, 3, 7] {
        let stale = format!("[flash]\nprotection = \"clearable\"\nstale-first-byte = {every}\n");
        let mut port = port(&(stale + "[timing]\nerase-sector-ms = 20\nprogram-page-us = 3000\n"));
        let mut flash = flash(&mut port);
        assert_eq!(flash.protection(), Ok(0x1C), "{every}");
        flash.unprotect().unwrap();
        flash.erase(SECTOR).unwrap();
        // Read as a status, the page's first byte says "ready" and "protected".
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
        let (at, mask) = cleared_length();
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

#[test]
fn a_unit_whose_bulk_pipe_hangs_gets_its_pages_byte_by_byte() {
    let mut port = port("");
    let mut hanging = Watched { pipe_hangs: true, ..Watched::open(&mut port) };
    let mut flash = RegisterFlash::new(&mut hanging).unwrap();
    flash.program(SECTOR, &page(1)).unwrap();
    flash.program(FlashAddress(SECTOR.0 + 0x80), &page(2)).unwrap();
    assert_eq!(hanging.sent.len(), 1, "it is not tried again");
    assert_eq!(cells(&port, SECTOR, 2 * LEN), [page(1), page(2)].concat());
}

#[test]
fn a_unit_whose_flash_does_not_answer_is_not_taken_for_one_with_an_empty_flash() {
    let missing = Watched { has_flash: false, ..Watched::open(&mut port("")) };
    let error = RegisterFlash::new(missing).unwrap_err();
    assert_eq!(error, RegisterError::NoFlash(JedecId([0xFF; 3])));
}

#[test]
fn a_new_budget_counts_from_when_it_is_set() {
    let mut port = port("");
    let clock: Rc<Cell<Duration>> = Rc::default();
    let mut flash = RegisterFlash::new(Watched::slow(&mut port, Duration::ZERO, &clock)).unwrap();
    let (set_at, budget) = (BUDGET - Duration::from_secs(1), Duration::from_secs(10));
    clock.set(set_at);
    flash.set_budget(budget);
    clock.set(set_at + budget - Duration::from_secs(1));
    flash.read_sector(SECTOR).unwrap();
    clock.set(set_at + budget);
    assert_eq!(flash.read_sector(SECTOR).map(drop), Err(RegisterError::OutOfTime(budget)));
}

#[test]
fn protection_that_cannot_be_set_again_is_an_error() {
    let mut held = port("[flash]\nprotection = \"for-good\"\n");
    let unprotected = RegisterError::Unprotected { status: 0x1C, protection: 0x04 };
    assert_eq!(flash(&mut held).protect(0x04), Err(unprotected));
}

#[test]
fn a_status_register_that_is_already_right_is_not_written_and_its_lock_stays() {
    let mut port = port("[flash]\nprotection = \"clearable\"\n");
    port.unit().lock().flash_mut().set_status(0x9C);
    let mut watched = Watched::open(&mut port);
    RegisterFlash::new(&mut watched).unwrap().unprotect().unwrap();
    let begun = watched.requests;
    assert_eq!(port.unit().lock().flash().status(), 0x80, "bit 7 locks the register");
    let mut watched = Watched::open(&mut port);
    RegisterFlash::new(&mut watched).unwrap().unprotect().unwrap();
    assert!(watched.requests < begun - 6, "only the status is read");
}

#[test]
fn the_controllers_set_up_keeps_the_other_bits_of_its_register() {
    const SET_UP: XdataAddress = XdataAddress::main(0xCA81);
    for before in [0x54, 0x55] {
        let mut port = port("");
        let mut unit = port.open_control().unwrap();
        unit.write(&[(SET_UP, before)]).unwrap();
        let mut found = [0];
        RegisterFlash::new(&mut unit).unwrap();
        unit.exchange(&[], SET_UP, &mut found).unwrap();
        assert_eq!(found, [0x55]);
    }
}
