//! Reads of the SRAM by its DMA on the vendor's firmware with the status patch, completed by a GPU behind the bridge.
//! `ASMPATCH_VENDOR_IMAGE` and `ASMPATCH_VENDOR_231204_IMAGE` name the images.

use std::time::Duration;

use asm2464::AnyFailure;
use asm2464::scsi::{Command, ScsiStatus, XdataAddress};
use asm2464::sram::SRAM_ADDRESS;
use asm2464_dock::gpu_card::registers::{RAN, SENT, STATUS};
use asm2464_dock::gpu_card::{DmaWrite, GpuJob, TinyGpu};
use asm2464_dock::virtual_unit::{SharedUnit, VirtualPort};
use asm2464_host::bridge::{Behind, Bridge, CommandError, Port as _, Storage, TransportKind};
use asm2464_host::pcie::{Entry, NoTime, Pcie, Scope, VendorTlp};
use tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS, host_product};

use crate::read16;
use crate::unit::rig::{self, A, B, counted, opened};

const CARD: &str = "behind = \"tiny-gpu\"\n";
const SECTOR: usize = 512;
const SECOND: Duration = Duration::from_secs(1);

struct Unit {
    bridge: Bridge,
    shared: SharedUnit,
    card: Option<TinyGpu>,
}

fn port(scenario: &str) -> VirtualPort {
    rig::unit(scenario, Some(&crate::chip_images::patched()))
}

/// A unit over UAS with its card assigned, initialised as by a GPU runtime.
fn unit(scenario: &str) -> Unit {
    initialised(port(scenario))
}

fn initialised(mut port: VirtualPort) -> Unit {
    let shared = port.unit().clone();
    let mut bridge = port.open_over(Some(TransportKind::UasStreams)).unwrap();
    bridge.inquiry().unwrap();
    let card = opened(&mut VendorTlp::new(&mut bridge));
    bridge.initialise().unwrap();
    Unit { bridge, shared, card }
}

/// Makes the card write a completion entry.
fn tell(bridge: &mut Bridge, card: TinyGpu, entry: Entry) -> Result<(), AnyFailure> {
    let mut engine = VendorTlp::new(bridge);
    card.complete(&mut Pcie::new(&mut engine, &mut NoTime), entry)
}

/// The status in the card's registers.
fn status(bridge: &mut Bridge, card: TinyGpu) -> u32 {
    let mut engine = VendorTlp::new(bridge);
    let mut patience = NoTime;
    let mut pcie = Pcie::new(&mut engine, &mut patience);
    let survey = pcie.survey(Scope::READ_ONLY).unwrap();
    let function = survey.functions.iter().find(|function| function.at == card.at).unwrap();
    let registers = function.bars.iter().find(|bar| bar.index == 2).unwrap().address;
    let mut status = [0; 4];
    pcie.memory_read(registers + u64::from(STATUS), &mut status).unwrap();
    u32::from_le_bytes(status)
}

impl Unit {
    fn fill(&self, seed: usize) {
        for (at, byte) in self.shared.lock().data_buffer_mut().iter_mut().enumerate() {
            *byte = ((at * 7 + at / 512 * 3 + seed) % 251) as u8;
        }
    }

    fn sram(&self, from: usize, len: usize) -> Vec<u8> {
        self.shared.lock().data_buffer_mut()[from..from + len].to_vec()
    }

    fn read16(&mut self, sectors: usize) -> Result<Vec<u8>, AnyFailure> {
        let (card, mut data) = (self.card, vec![0; sectors * SECTOR]);
        read16::read_sram(&mut self.bridge, &mut data, SECOND, |bridge, entry| match card {
            Some(card) => tell(bridge, card, entry),
            None => Ok(()),
        })?;
        Ok(data)
    }

    /// Reads the SRAM's first `len` bytes by E4, at most 4096.
    fn e4(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        for (at, piece) in data.chunks_mut(255).enumerate() {
            self.bridge.xdata_read(XdataAddress::main(0xF000 + 255 * at as u16), piece).unwrap();
        }
        data
    }

    /// Checks that INQUIRY, E4 and WRITE(16) work.
    fn works(&mut self) {
        assert_eq!(self.e4(4).len(), 4);
        assert!(self.bridge.inquiry().is_ok());
        let data: Vec<u8> = (0..4096).map(|at| (at % 239) as u8).collect();
        self.bridge.write16(0, &data).unwrap();
        assert!(self.e4(4096) == data);
        self.bridge.free_slots(data.len()).unwrap();
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_gpus_result_comes_by_read16_as_it_comes_by_e4() {
    for len in [SECTOR, 4096] {
        let mut unit = unit(CARD);
        let card = unit.card.unwrap();
        let data: Vec<u8> = A.into_iter().chain(B).collect();
        let job = GpuJob {
            program: &MATMUL,
            data: &data,
            threads: PRODUCT_THREADS,
            caches: false,
            cycle_limit: 10_000,
            send: None,
        };
        let run = |bridge: &mut Bridge, entry| {
            let send = Some(DmaWrite { from: 0, len: len as u32, to: SRAM_ADDRESS, entry });
            let mut engine = VendorTlp::new(bridge);
            card.run(&mut Pcie::new(&mut engine, &mut NoTime), &GpuJob { send, ..job }).map(drop)
        };
        let mut by_read16 = vec![0xEE; len];
        read16::read_sram(&mut unit.bridge, &mut by_read16, SECOND, |bridge, entry| run(bridge, Some(entry))).unwrap();
        assert_eq!(by_read16[PRODUCT_AT..][..4], host_product(A, B));
        assert_eq!(unit.e4(len), by_read16);
        assert_eq!(status(&mut unit.bridge, card), RAN | SENT);
        unit.works();
    }
}

/// The completion queue has 32 entries, so it wraps, and its phase bit changes.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn reads_of_every_length_follow_each_other_and_writes_in_any_order() {
    let mut unit = unit(CARD);
    for round in 0..3 {
        for sectors in [1, 3, 8, 32, 33, 128] {
            unit.fill(round * 7 + sectors);
            let expected = unit.sram(0, sectors * SECTOR);
            assert!(unit.read16(sectors).unwrap() == expected, "{round}: READ(16), {sectors}");
        }
        unit.works();
        // A read clears what a WRITE(16) leaves.
        unit.bridge.write16(0, &[round as u8; 1024]).unwrap();
        assert!(unit.read16(2).unwrap() == [round as u8; 1024]);
    }
}

/// 231204 keeps one of the counters elsewhere, and its queues where 240417 has them.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_231204_IMAGE"]
fn patched_231204_is_read_by_read16_with_its_own_counters() {
    let image = crate::chip_images::patched_231204();
    let mut unit = initialised(rig::unit(CARD, Some(&image)));
    for round in 0..3 {
        for sectors in [1, 8, 33, 128] {
            unit.fill(round * 7 + sectors);
            let expected = unit.sram(0, sectors * SECTOR);
            assert!(unit.read16(sectors).unwrap() == expected, "{round}: READ(16), {sectors}");
        }
        unit.works();
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read16_says_what_initialisation_it_lacks() {
    let mut port = port(CARD);
    let shared = port.unit().clone();
    let mut bridge = port.open_over(Some(TransportKind::UasStreams)).unwrap();
    bridge.inquiry().unwrap();
    let card = opened(&mut VendorTlp::new(&mut bridge));
    let mut unit = Unit { bridge, shared, card };
    let error = unit.read16(8).unwrap_err();
    assert_eq!(error.code(), "lab::read16::not_initialised");
    assert!(error.to_string().ends_with("XDATA 0x054b is 0x00, expected 0x20"), "{error}");
    assert_eq!(Storage::ask(&mut unit.bridge).unwrap().behind(), Behind::NoMedium);
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn without_a_device_that_completes_the_unit_is_freed_and_works_once_it_is_initialised_again() {
    for scenario in ["", CARD] {
        let mut unit = unit(scenario);
        let card = unit.card.take();
        let error = unit.read16(8).unwrap_err();
        assert_eq!(error.code(), "lab::read16::no_completion", "{error}");
        assert!(error.to_string().ends_with("within 1s"), "{error}");
        assert!(unit.bridge.inquiry().is_ok());
        let write = unit.bridge.write16(0, &[0; 512]);
        assert!(matches!(write, Err(CommandError::CheckCondition { .. })), "no longer initialised: {write:?}");
        unit.bridge.initialise().unwrap();
        unit.works();

        if let Some(card) = card {
            // A USB port reset keeps bus numbers and addresses.
            unit.card = Some(card);
            unit.fill(9);
            let expected = unit.sram(0, 4096);
            assert!(unit.read16(8).unwrap() == expected);
        }
    }
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_failed_request_to_the_device_leaves_a_working_unit() {
    let mut unit = unit(CARD);
    let card = unit.card.unwrap();
    let refuse =
        |bridge: &mut Bridge, entry: Entry| tell(bridge, card, Entry { to: 0x0070_0000, command_at: None, ..entry });
    let mut data = [0; SECTOR];
    let error = read16::read_sram(&mut unit.bridge, &mut data, SECOND, refuse).unwrap_err();
    assert!(error.to_string().contains("no device accepts"), "{error}");
    unit.works();
    assert!(unit.read16(1).is_ok());
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn other_transports_and_lengths_are_refused_before_anything_is_sent() {
    let mut high = port(&format!("speed = \"high\"\n{CARD}"));
    let mut bot = port(CARD);
    let bridges = [high.open_over(Some(TransportKind::UasStreams)).unwrap(), bot.open().unwrap()];
    let answered = |_: &mut Bridge, _| -> Result<(), AnyFailure> { panic!("the device must not be asked") };
    for mut bridge in bridges {
        let mut data = [0; SECTOR];
        let error = read16::read_sram(&mut bridge, &mut data, SECOND, answered).unwrap_err();
        assert_eq!(error.code(), "lab::read16::transport", "{error}");
        assert!(bridge.inquiry().is_ok());
    }
    let mut unit = unit(CARD);
    for len in [0, 511, 513, 129 * SECTOR] {
        let error = read16::read_sram(&mut unit.bridge, &mut vec![0; len], SECOND, answered).unwrap_err();
        assert_eq!(error.code(), "lab::read16::length", "{len}");
    }
}

/// The figures in docs/lab/performance.md: commands, and instructions, which may differ by a tenth.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn commands_and_instructions_are_those_that_docs_performance_has() {
    let rows = [(1, 420_320), (8, 420_255), (128, 420_367)];
    let mut unit = unit(CARD);
    let shared = unit.shared.clone();
    unit.read16(1).unwrap();
    let mut wrong = String::new();
    for (sectors, instructions) in rows {
        let found = counted(&shared, || unit.read16(sectors).unwrap()).1;
        let is_near = 10 * found.instructions.abs_diff(instructions) <= instructions;
        if found.commands != 148 || !is_near {
            wrong += &format!("{sectors}: {found:?}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A READ(16) of no sectors succeeds on every firmware except one with the patch read16-sram.
#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn a_read_of_no_sectors_succeeds_and_the_unit_still_works() {
    let mut unit = unit(CARD);
    let nothing = asm2464_host::bridge::DataPhase::None;
    let ended = unit.bridge.execute(Command::Read16 { lba: 0, blocks: 0 }, nothing, SECOND).unwrap();
    assert_eq!((ended.status, ended.transferred), (ScsiStatus::Good, 0));
    unit.works();
    assert!(unit.read16(8).is_ok());
}
