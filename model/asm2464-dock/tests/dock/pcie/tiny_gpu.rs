//! The tiny-gpu card behind the bridge: its BARs, its results, its errors.

use asm2464::Bdf;
use asm2464::sram::SRAM_ADDRESS;
use asm2464_chip::chip::DeviceSpec;
use asm2464_dock::gpu_card::registers::{CYCLES_MAX, CardFault, DEVICE, VENDOR};
use asm2464_dock::gpu_card::{DmaWrite, GpuJob, TinyGpu};
use asm2464_host::pcie::{Pcie, Scope};
use tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS};

use super::{Counted, Direct, function};

const TO_SRAM: DmaWrite = DmaWrite { from: PRODUCT_AT as u8, len: 4, to: SRAM_ADDRESS + 0x10, entry: None };
const JOB: GpuJob<'_> = GpuJob {
    program: &MATMUL,
    data: &[1, 2, 3, 4, 1, 2, 3, 4],
    threads: PRODUCT_THREADS,
    caches: false,
    cycle_limit: 10_000,
    send: None,
};

/// A card behind a switch.
fn behind_a_switch() -> Direct {
    let port = |at: &str| DeviceSpec { at: at.to_owned(), vendor: 0x1B21, device: 0x2461, ..DeviceSpec::default() };
    let card = DeviceSpec { vendor: VENDOR, device: DEVICE, engine: asm2464_dock::gpu_card::ENGINE, ..port("0/0/0") };
    Direct::new(&[port("0"), port("0/0"), card])
}

fn opened<'a>(engine: &'a mut Direct, patience: &'a mut Counted) -> (Pcie<'a>, TinyGpu) {
    let mut pcie = Pcie::new(engine, patience);
    let mut survey = pcie.survey(Scope::USUAL).unwrap();
    assert_eq!(TinyGpu::open(&mut pcie, &survey).unwrap_err().code(), "asm2464::tiny_gpu::no_address");
    pcie.assign(&mut survey).unwrap();
    let card = TinyGpu::open(&mut pcie, &survey).unwrap().unwrap();
    (pcie, card)
}

#[test]
fn a_card_sizes_its_bars_and_shows_its_link() {
    let (mut engine, mut patience) = (behind_a_switch(), Counted::new());
    let mut pcie = Pcie::new(&mut engine, &mut patience);
    let survey = pcie.survey(Scope::USUAL).unwrap();
    let card = function(&survey, Bdf::new(3, 0, 0));
    assert_eq!(
        card.bars.iter().map(|bar| (bar.index, bar.size)).collect::<Vec<_>>(),
        [(0, Some(16 << 20)), (2, Some(4096))]
    );
    assert_eq!(card.capabilities.express().unwrap().link.to_string(), "16 GT/s x4");
}

#[test]
fn a_cards_failure_is_reported_with_its_place() {
    let (mut engine, mut patience) = (behind_a_switch(), Counted::new());
    let (mut pcie, card) = opened(&mut engine, &mut patience);
    let mut found = |job| card.run(&mut pcie, &job).unwrap_err();
    let text = |fault| format!("the tiny-gpu at 03:00.0: {fault}");
    let endless = found(GpuJob { program: &[0x2000, 0x1401], cycle_limit: CYCLES_MAX, ..JOB });
    assert_eq!(endless.code(), "asm2464::tiny_gpu::never_ends");
    assert_eq!(
        endless.to_string(),
        "the tiny-gpu at 03:00.0: the program did not end within its cycle limit: block 0 is at word 1"
    );
    let left = CardFault::Run(tiny_gpu::RunFault::LeftProgram { block: 0, word: 5 });
    assert_eq!(found(GpuJob { program: &MATMUL[..5], ..JOB }).to_string(), text(left));
    for to in [0, SRAM_ADDRESS + 0xFFD, u64::MAX - 2] {
        let error = found(GpuJob { send: Some(DmaWrite { to, ..TO_SRAM }), ..JOB });
        assert_eq!(error.to_string(), text(CardFault::NoTarget));
    }
    let no_source = DmaWrite { len: 16 << 20, ..TO_SRAM };
    assert_eq!(found(GpuJob { send: Some(no_source), ..JOB }).to_string(), text(CardFault::NoSource));
    assert_eq!(found(GpuJob { data: &[0; 257], ..JOB }).code(), "asm2464::tiny_gpu::job");
    assert_eq!(card.run(&mut pcie, &JOB).unwrap(), 491, "the next job still runs");
}

#[test]
fn a_card_sends_only_where_it_and_every_port_above_may() {
    for (at, fault) in [
        (Bdf::new(3, 0, 0), CardFault::NotMaster),
        (Bdf::new(2, 0, 0), CardFault::NoTarget),
        (Bdf::new(1, 0, 0), CardFault::NoTarget),
        (Bdf::ROOT, CardFault::NoTarget),
    ] {
        let (mut engine, mut patience) = (behind_a_switch(), Counted::new());
        let (mut pcie, card) = opened(&mut engine, &mut patience);
        pcie.config_write(at, 0x04, 0x02, 0x03).unwrap();
        let job = GpuJob { send: Some(TO_SRAM), ..JOB };
        let error = card.run(&mut pcie, &job).unwrap_err();
        assert_eq!(error.to_string(), format!("the tiny-gpu at {}: {fault}", card.at), "{at}");
        pcie.config_write(at, 0x04, 0x06, 0x03).unwrap();
        assert_eq!(card.run(&mut pcie, &job).unwrap(), 491);
    }
}

#[test]
fn a_reset_card_and_another_device_are_not_taken_for_a_working_card() {
    let (mut engine, mut patience) = (behind_a_switch(), Counted::new());
    let (mut pcie, card) = opened(&mut engine, &mut patience);
    pcie.hot_reset().unwrap();
    let code = card.run(&mut pcie, &JOB).unwrap_err().code();
    assert!(code.starts_with("asm2464::pcie::"), "{code}");
    let bars = vec![super::bar(16 << 20, true, true), super::bar(4096, false, false)];
    let other = DeviceSpec { at: "0".to_owned(), vendor: VENDOR, device: DEVICE, bars, ..DeviceSpec::default() };
    let (mut engine, mut patience) = (Direct::new(&[other]), Counted::new());
    let mut pcie = Pcie::new(&mut engine, &mut patience);
    let mut survey = pcie.survey(Scope::USUAL).unwrap();
    pcie.assign(&mut survey).unwrap();
    let error = TinyGpu::open(&mut pcie, &survey).unwrap_err();
    assert_eq!(error.code(), "asm2464::tiny_gpu::other_device");
    assert!(
        error.to_string().contains("01:00.0 has tiny-gpu's IDs, and its registers begin with 0x00000000"),
        "{error}"
    );
}
