//! What a GPU runtime does with a unit that runs open firmware, through `asm2464-host` alone. The firmware is the open
//! variant of the practice image, which has no streams, the open image that `ASMPATCH_OPEN_IMAGE` names, and a newer
//! one if `ASMPATCH_OPEN_NEW_IMAGE` names it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asm2464::firmware::Image;
use asm2464::interrupt::Interrupt;
use asm2464::scsi::XdataAddress;
use asm2464::sram::{
    FENCE, FENCE_ADDRESS, SRAM_ADDRESS, SRAM_LEN, SRAM_SECTOR_LEN, SRAM_SLOT_LEN, VENDOR_COMPLETIONS_PAGE,
};
use asm2464::tlp::Tlp;
use asm2464::{AnyFailure, Coded as _};
use asm2464_dock::gpu_card::TinyGpu;
use asm2464_dock::virtual_unit::{ControlAnswer, Scenario, SharedUnit, VirtualPipes, VirtualUnit};
use asm2464_host::bridge::open::OpenCommand;
use asm2464_host::bridge::{BusSpeed, ControlError, ControlPipes, Endpoint, OpenBridge};
use asm2464_host::bridge::{PipeError, Pipes, Reaped, TransferEnd, TransferId};
use asm2464_host::pcie::{Bar, Entry, NoTime, Pcie, Scope};

use crate::chip_images::pattern;

/// Pipes on which something happens once this many transfers have come back.
struct Cut {
    pipes: VirtualPipes,
    left: Arc<AtomicUsize>,
    happens: fn(&SharedUnit, &mut Reaped),
    unit: SharedUnit,
}

impl Pipes for Cut {
    fn streams(&self) -> u16 {
        self.pipes.streams()
    }

    fn add_transfer(&mut self, capacity: usize) -> Result<TransferId, PipeError> {
        self.pipes.add_transfer(capacity)
    }

    fn reserve(&mut self, transfer: TransferId, capacity: usize) -> Result<(), PipeError> {
        self.pipes.reserve(transfer, capacity)
    }

    fn buffer(&mut self, transfer: TransferId) -> &mut [u8] {
        self.pipes.buffer(transfer)
    }

    fn submit(&mut self, transfer: TransferId, endpoint: Endpoint, stream: u16, len: usize) -> Result<(), PipeError> {
        self.pipes.submit(transfer, endpoint, stream, len)
    }

    fn reap(&mut self, timeout: Duration) -> Result<Option<Reaped>, PipeError> {
        let mut reaped = self.pipes.reap(timeout)?;
        if let Some(reaped) = &mut reaped
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
        {
            (self.happens)(&self.unit, reaped);
        }
        Ok(reaped)
    }

    fn cancel(&mut self, transfer: TransferId) {
        self.pipes.cancel(transfer);
    }

    fn clear_halt(&mut self, endpoint: Endpoint) -> Result<(), PipeError> {
        self.pipes.clear_halt(endpoint)
    }

    fn mass_storage_reset(&mut self, timeout: Duration) -> Result<(), PipeError> {
        self.pipes.mass_storage_reset(timeout)
    }

    fn reset_port(&mut self) -> Result<(), PipeError> {
        self.pipes.reset_port()
    }
}

impl ControlPipes for Cut {
    fn submit_control(&mut self, transfer: TransferId) -> Result<(), PipeError> {
        self.pipes.submit_control(transfer)
    }
}

fn images() -> Vec<Image> {
    let mut images = vec![crate::chip_images::open()];
    images.extend(std::env::var_os("ASMPATCH_OPEN_NEW_IMAGE").map(|_| crate::chip_images::new_open()));
    images
}

struct Dock {
    unit: SharedUnit,
    bridge: OpenBridge,
    /// Set to n, something happens when the nth transfer comes back.
    left: Arc<AtomicUsize>,
}

impl Dock {
    fn new(image: Option<&Image>, scenario: &str, happens: fn(&SharedUnit, &mut Reaped)) -> Self {
        let scenario = Scenario::parse(scenario).unwrap();
        let file = image.map(Image::to_file);
        let unit = VirtualUnit::in_memory(scenario, b"runtime", file.as_deref()).unwrap();
        let unit = SharedUnit::new(unit);
        unit.lock().reset_by_host(0);
        let pipes = VirtualPipes::open(&unit).unwrap();
        let left = Arc::default();
        let cut = Cut { pipes, left: Arc::clone(&left), happens, unit: unit.clone() };
        Self { unit, bridge: OpenBridge::new(Box::new(cut), BusSpeed::Super), left }
    }

    fn plain(image: &Image, scenario: &str) -> Self {
        Self::new(Some(image), scenario, |_, _| {})
    }

    /// Brings the link up and gives the card its addresses.
    fn card(&mut self) -> (TinyGpu, Bar) {
        self.bridge.bring_link_up(Duration::from_secs(10), Interrupt::never()).unwrap();
        let mut patience = NoTime;
        let mut pcie = Pcie::new(&mut self.bridge, &mut patience);
        let mut survey = pcie.survey(Scope::USUAL).unwrap();
        pcie.assign(&mut survey).unwrap();
        let card = TinyGpu::open(&mut pcie, &survey).unwrap().unwrap();
        let function = survey.functions.iter().find(|function| function.at == card.at).unwrap();
        (card, function.bars[0])
    }
}

const CARD: &str = "behind = 'tiny-gpu'";

fn read_back(bridge: &mut OpenBridge, card: &TinyGpu, buffer: &mut [u8]) -> Result<(), AnyFailure> {
    bridge.sram_read(0, buffer, |bridge, entry| card.complete(&mut Pcie::new(bridge, &mut NoTime), entry))
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn the_link_comes_up_within_its_deadline_or_the_error_has_its_state() {
    for image in images() {
        let mut dock = Dock::plain(&image, CARD);
        dock.bridge.pcie_power(false).unwrap();
        dock.bridge.bring_link_up(Duration::from_secs(10), Interrupt::never()).unwrap();
        assert!(dock.bridge.link().unwrap().is_up);

        let mut dock = Dock::plain(&image, "behind = 'nothing'");
        let begun = Instant::now();
        let error = dock.bridge.bring_link_up(Duration::from_millis(300), Interrupt::never()).unwrap_err();
        assert!(matches!(error, ControlError::LinkDown { ltssm: 0, .. }), "{error}");
        assert!(begun.elapsed() >= Duration::from_millis(300));
        assert!(dock.bridge.xdata_read(XdataAddress::main(0), &mut [0]).is_ok(), "it goes on");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn bar_memory_is_written_and_read_at_any_offset_and_length() {
    for image in images() {
        let mut dock = Dock::plain(&image, CARD);
        let (_, bar) = dock.card();
        let bridge = &mut dock.bridge;
        let mut expected = pattern(0x2000, 1);
        bridge.memory_write(bar.at(0, expected.len()).unwrap(), &expected).unwrap();
        for (nth, (offset, len)) in
            [(0, 1), (3, 1), (1, 3), (4, 4), (2, 4), (7, 8), (8, 8), (5, 1030), (0xFFF, 0x1001)].into_iter().enumerate()
        {
            let data = pattern(len, nth as u32 + 2);
            bridge.memory_write(bar.at(offset as u64, len).unwrap(), &data).unwrap();
            expected[offset..offset + len].copy_from_slice(&data);
            let mut found = vec![0; len];
            bridge.memory_read(bar.at(offset as u64, len).unwrap(), &mut found).unwrap();
            assert!(found == data, "{len} bytes at {offset:#x}");
        }
        let mut found = vec![0; expected.len()];
        bridge.memory_read(bar.address, &mut found).unwrap();
        assert!(found == expected, "nothing beside was written");
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn f2_moves_all_of_the_sram_both_ways_wherever_its_completions_page_is() {
    for image in images() {
        let mut dock = Dock::plain(&image, CARD);
        let (card, _) = dock.card();
        for page in [None, Some(VENDOR_COMPLETIONS_PAGE)] {
            if let Some(page) = page {
                dock.bridge.set_completions_page(page).unwrap();
            }
            for len in [SRAM_SECTOR_LEN, SRAM_SLOT_LEN + SRAM_SECTOR_LEN, SRAM_LEN] {
                let data = pattern(len, len as u32);
                dock.bridge.sram_write(0, &data).unwrap();
                let mut found = vec![0; len];
                read_back(&mut dock.bridge, &card, &mut found).unwrap();
                assert!(found == data, "{page:x?} {len}");
            }
        }
        for (first_slot, len) in [(0, 0), (0, 511), (31, SRAM_SLOT_LEN + SRAM_SECTOR_LEN), (32, SRAM_SECTOR_LEN)] {
            assert!(dock.bridge.sram_write(first_slot, &vec![0; len]).is_err());
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn data_longer_than_a_units_stream_limit_are_split_and_one_request_above_it_hangs_the_unit() {
    const ADDRESS: u64 = 0x1000_0000;
    let scenario = format!("{CARD}\nstream-limit = 1048576");
    for image in images() {
        let mut dock = Dock::plain(&image, &scenario);
        let data = pattern((1 << 20) + 4, 0);
        dock.bridge.set_timeout(Duration::from_millis(500));
        dock.bridge.stream_write(ADDRESS, &data).unwrap();
        dock.bridge.link().unwrap();

        let stream = OpenCommand::StreamWrite { address: ADDRESS, dwords: data.len() as u32 / 4 };
        dock.bridge.request(stream).unwrap();
        dock.bridge.bulk_out(&data).unwrap();
        for _ in 0..2 {
            let error = dock.bridge.link().unwrap_err();
            assert!(matches!(error, ControlError::Timeout { .. }), "{error}");
            dock.bridge.reset_port().unwrap();
        }
        let mut unit = dock.unit.lock();
        unit.unplug();
        unit.plug_in();
        let state = OpenCommand::XdataRead { from: XdataAddress::main(0xB450), len: 1 };
        assert!(matches!(unit.control(state.setup(), &[]), ControlAnswer::Done(_)));
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_fence_that_the_gpu_writes_is_seen_by_e4_and_what_e5_writes_there_by_the_gpu() {
    for image in images() {
        let mut dock = Dock::plain(&image, CARD);
        let (card, _) = dock.card();
        let mut fences = [0; 32];
        let writes =
            |dock: &mut Dock, entry| card.complete(&mut Pcie::new(&mut dock.bridge, &mut NoTime), entry).unwrap();
        writes(&mut dock, Entry { to: FENCE_ADDRESS, bytes: [7; 16], command_at: None });
        dock.bridge.xdata_read(FENCE, &mut fences).unwrap();
        assert_eq!(fences, [[7; 16], [0; 16]].concat()[..]);

        let clear: Vec<_> = (0..16).map(|at| (FENCE.plus(at), 0)).collect();
        dock.bridge.xdata_exchange(&clear, FENCE, &mut fences).unwrap();
        assert_eq!(fences, [0; 32]);
        // The card reads the fence until it is not 0, and then writes beside it.
        writes(&mut dock, Entry { to: FENCE_ADDRESS + 16, bytes: [9; 16], command_at: Some(FENCE_ADDRESS) });
        dock.bridge.xdata_read(FENCE, &mut fences).unwrap();
        assert_eq!(fences, [0; 32]);
        dock.bridge.xdata_write(FENCE, 0x5A).unwrap();
        dock.bridge.xdata_read(FENCE, &mut fences).unwrap();
        assert_eq!((fences[0], &fences[16..24]), (0x5A, &[9; 8][..]));
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_window_has_arrived_once_its_sentinel_is_read_and_one_that_nobody_takes_is_an_error() {
    let sentinel = NonZeroU32::new(0x1234_5678).unwrap();
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&sentinel.get().to_le_bytes());
    for image in images() {
        let mut dock = Dock::plain(&image, CARD);
        let (card, _) = dock.card();
        for (first_slot, len) in [(0, SRAM_SECTOR_LEN), (8, 0x4_0000 - SRAM_SECTOR_LEN)] {
            let (data, start) = (pattern(len, 3), usize::from(first_slot) * SRAM_SLOT_LEN);
            // The card reads the dword behind the data until it is not 0, and then writes the fence.
            let sentinel_at = Some(SRAM_ADDRESS + (start + len) as u64);
            let entry = Entry { to: FENCE_ADDRESS, bytes, command_at: sentinel_at };
            card.complete(&mut Pcie::new(&mut dock.bridge, &mut NoTime), entry).unwrap();
            dock.bridge.set_timeout(Duration::from_secs(60));
            dock.bridge.sram_write_taken(first_slot, &data, sentinel).unwrap();
            assert!(dock.unit.lock().data_buffer_mut()[start..][..len] == data);

            dock.bridge.set_timeout(Duration::from_millis(200));
            let error = dock.bridge.sram_write_taken(first_slot, &data, sentinel).unwrap_err();
            assert!(matches!(error, ControlError::NotTaken { found: 0, .. }), "{error}");
        }
    }
}

/// What a runtime asks of a unit.
type Call = (&'static str, fn(&mut OpenBridge, &TinyGpu, Bar) -> Result<(), AnyFailure>);

/// Calls that every build answers.
const CALLS: [Call; 4] = [
    ("E4", |bridge, _, _| Ok(bridge.xdata_read(XdataAddress::SRAM_WINDOW, &mut [0; 4096])?)),
    ("E5", |bridge, _, _| Ok(bridge.xdata_write_all(&[(XdataAddress::SRAM_WINDOW, 7); 50])?)),
    ("TLPs", |bridge, _, bar| {
        let reads: Vec<Tlp> = (0..40).map(|at| Tlp::memory_read(bar.address + 4 * at)).collect();
        Ok(bridge.tlps(&reads).map(drop)?)
    }),
    ("attempts", |bridge, _, bar| {
        let read = |bridge: &mut OpenBridge| bridge.dword(&Tlp::memory_read(bar.address));
        Ok(bridge.attempt(10, Duration::from_millis(1), read).map(drop)?)
    }),
];

/// Calls that need F2, F3 or F0's streams.
const OPEN_CALLS: [Call; 7] = [
    ("link", |bridge, _, _| {
        bridge.pcie_power(false)?;
        Ok(bridge.bring_link_up(Duration::from_secs(5), Interrupt::never())?)
    }),
    ("memory out", |bridge, _, bar| Ok(bridge.memory_write(bar.address + 1, &[7; 0x1_0000])?)),
    ("memory in", |bridge, _, bar| Ok(bridge.memory_read(bar.address + 1, &mut [0; 0x1_0000])?)),
    ("F2 out", |bridge, _, _| Ok(bridge.sram_write(0, &vec![7; SRAM_LEN])?)),
    ("F2 in", |bridge, card, _| read_back(bridge, card, &mut vec![0; SRAM_LEN])),
    ("check", |bridge, _, _| Ok(bridge.check_bulk()?)),
    ("strobes", |bridge, _, _| Ok(bridge.strobe_engines()?)),
];

/// Unplugs units at the first transfer of a call, in the middle of it, and after its end.
fn unplug_amid(image: Option<&Image>, scenario: &str, calls: &[Call]) {
    for (name, call) in calls {
        let mut ended = 0;
        for (depth, transfers) in [1, 4].into_iter().flat_map(|depth| [1, 2, 3, 5, 8, 21, 34].map(|nth| (depth, nth))) {
            let mut dock = Dock::new(image, scenario, |unit, _| unit.lock().unplug());
            let (card, bar) = dock.card();
            dock.bridge.set_depth(depth);
            dock.left.store(transfers, Ordering::Relaxed);
            let outcome = call(&mut dock.bridge, &card, bar);
            let is_gone = !dock.unit.lock().is_attached();
            if let Err(error) = outcome {
                // A call that had waited for its deadline would have another code.
                assert_eq!(error.code(), "asm2464::control::disconnected", "{name}, {transfers}: {error}");
                ended += 1;
            }
            assert!(!is_gone || dock.bridge.link().is_err(), "{name}, {transfers}: the next call");
        }
        assert!(ended > 0, "{name} was never interrupted");
    }
}

#[test]
fn a_unit_that_is_unplugged_amid_a_call_is_an_error_and_never_a_hang() {
    unplug_amid(None, &format!("factory = 'open'\n{CARD}"), &CALLS);
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn a_unit_with_open_firmware_that_is_unplugged_amid_any_call_is_an_error_and_never_a_hang() {
    for image in images() {
        unplug_amid(Some(&image), CARD, &CALLS);
        unplug_amid(Some(&image), CARD, &OPEN_CALLS);
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn another_attempt_after_a_broken_transfer_moves_every_byte() {
    for image in images() {
        for transfers in [1, 2, 3] {
            let mut dock = Dock::new(Some(&image), CARD, |_, reaped| {
                reaped.end = TransferEnd::Failed(PipeError::Other("the wire".to_owned()));
            });
            let (_, bar) = dock.card();
            let data = pattern(0x3_0000, transfers as u32);
            let pause = Duration::from_millis(1);
            dock.left.store(transfers, Ordering::Relaxed);
            assert!(dock.bridge.memory_write(bar.address, &pattern(0x3_0000, 99)).is_err());
            dock.left.store(transfers, Ordering::Relaxed);
            dock.bridge.attempt(3, pause, |bridge| bridge.memory_write(bar.address, &data)).unwrap();
            let mut found = vec![0; data.len()];
            dock.left.store(transfers, Ordering::Relaxed);
            dock.bridge.attempt(3, pause, |bridge| bridge.memory_read(bar.address, &mut found)).unwrap();
            assert!(found == data, "{transfers}");
            dock.left.store(transfers, Ordering::Relaxed);
            let read = |bridge: &mut OpenBridge| bridge.dword(&Tlp::memory_read(bar.address));
            let first = dock.bridge.attempt(3, pause, read).unwrap();
            assert_eq!(first.to_le_bytes(), data[..4]);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn where_no_device_answers_a_single_read_says_so_and_a_stream_reads_ff() {
    const NOBODY: u64 = 0x7000_0000;
    for image in images() {
        let mut dock = Dock::plain(&image, CARD);
        let _ = dock.card();
        let error = dock.bridge.dword(&Tlp::memory_read(NOBODY)).unwrap_err();
        assert_eq!(error.code(), "asm2464::pcie::unsupported");
        let mut found = [0x5A; 64];
        dock.bridge.stream_read(NOBODY, &mut found).unwrap();
        assert_eq!(found, [0xFF; 64]);
    }
}
