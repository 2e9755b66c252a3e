//! A GPU behind a bridge, reached through the firmware on the chip model. A kernel is loaded over USB and PCIe and
//! runs; its result comes back by memory reads, or by the GPU's own write into the SRAM. The firmware is the practice
//! image, and the vendor's and the open one if `ASMPATCH_VENDOR_IMAGE` and `ASMPATCH_OPEN_IMAGE` name them.

use asm2464::sram::SRAM_ADDRESS;
use asm2464_dock::gpu_card::registers::CardFault;
use asm2464_dock::gpu_card::{DmaWrite, GpuJob, TinyGpu};
use asm2464_dock::virtual_unit::{FirmwareCounts, SharedUnit};
use asm2464_host::bridge::{Bridge, OpenBridge, Port, TransportKind};
use asm2464_host::pcie::{NoTime, Pcie, Scope, TlpEngine, VendorTlp};
use tiny_gpu::kernels::{MATMUL, PRODUCT_AT, PRODUCT_THREADS, host_product};

use crate::unit::rig::{A, B, counted, opened, trained, unit};

const CARD: &str = "behind = \"tiny-gpu\"";
const SECTOR: usize = 512;

fn data() -> Vec<u8> {
    A.into_iter().chain(B).collect()
}

fn job(data: &[u8]) -> GpuJob<'_> {
    GpuJob { program: &MATMUL, data, threads: PRODUCT_THREADS, caches: false, cycle_limit: 10_000, send: None }
}

fn to_sram(from: usize, len: usize) -> DmaWrite {
    DmaWrite { from: from as u8, len: len as u32, to: SRAM_ADDRESS, entry: None }
}

/// Commands and instructions for a result of `len` bytes.
#[derive(Debug)]
struct Row {
    len: usize,
    /// The job itself. Its result stays in the card.
    job: FirmwareCounts,
    /// Additional cost of the card's own write and of reading the SRAM by E4.
    by_dma: FirmwareCounts,
    /// Cost of memory reads.
    by_reads: FirmwareCounts,
}

/// One firmware's figures in docs/lab/performance.md: the job, then for each length the card's own write and memory reads.
/// Each is a number of commands and of instructions. Instructions may differ by a tenth, because transports differ.
struct Documented {
    job: Spent,
    rows: [(usize, Spent, Spent); 3],
}

type Spent = (u64, u64);

const VENDOR: Documented = Documented {
    job: (198, 506_014),
    rows: [
        (4, (50, 127_731), (8, 21_790)),
        (256, (51, 141_994), (323, 934_408)),
        (4096, (66, 358_519), (5_138, 14_876_548)),
    ],
};

const OPEN: Documented = Documented {
    job: (28, 11_707),
    rows: [(4, (7, 2_995), (2, 727)), (256, (8, 10_336), (128, 46_528)), (4096, (23, 122_131), (2_048, 744_448))],
};

impl Documented {
    fn check(&self, rows: &[Row]) {
        for (row, (len, by_dma, by_reads)) in rows.iter().zip(self.rows) {
            assert_eq!(row.len, len);
            check(row.job, self.job);
            check(row.by_dma, by_dma);
            check(row.by_reads, by_reads);
        }
    }
}

fn check(found: FirmwareCounts, (commands, instructions): Spent) {
    let is_near = 10 * found.instructions.abs_diff(instructions) <= instructions;
    assert!(found.commands == commands && is_near, "{found:?}, expected {commands} and {instructions}");
}

/// Computes the product and reads `len` bytes back both ways.
fn row(engine: &mut dyn TlpEngine, unit: &SharedUnit, card: &TinyGpu, len: usize) -> Row {
    let mut patience = NoTime;
    let mut pcie = Pcie::new(engine, &mut patience);
    let data = data();
    let from = if len == 4 { PRODUCT_AT } else { 0 };
    let (cycles, alone) = counted(unit, || card.run(&mut pcie, &job(&data)).unwrap());
    let sends = GpuJob { send: Some(to_sram(from, len)), ..job(&data) };
    let (same_cycles, with_send) = counted(unit, || card.run(&mut pcie, &sends).unwrap());
    assert_eq!((cycles, same_cycles), (491, 491));
    let (mut by_dma, mut by_reads) = (vec![0; len], vec![0; len]);
    let ((), by_e4) = counted(unit, || pcie.sram_read(0, &mut by_dma).unwrap());
    let ((), reads) = counted(unit, || card.read(&mut pcie, from as u8, &mut by_reads).unwrap());
    assert!(by_dma == by_reads);
    assert_eq!(by_dma[PRODUCT_AT - from..][..4], host_product(A, B));
    let more = |part: fn(FirmwareCounts) -> u64| part(with_send) - part(alone) + part(by_e4);
    let by_dma = FirmwareCounts { commands: more(|work| work.commands), instructions: more(|work| work.instructions) };
    Row { len, job: alone, by_dma, by_reads: reads }
}

/// Checks that the card is found, computes, sends, and reports errors.
fn examine(engine: &mut dyn TlpEngine, unit: &SharedUnit) -> Vec<Row> {
    let card = opened(engine).unwrap();
    let rows = [4, 256, 4096].map(|len| row(engine, unit, &card, len));
    let mut patience = NoTime;
    let mut pcie = Pcie::new(engine, &mut patience);
    let data = data();
    let cached = GpuJob { caches: true, ..job(&data) };
    assert_eq!(card.run(&mut pcie, &cached).unwrap(), 706);
    let fails = |pcie: &mut Pcie<'_>, job: GpuJob<'_>, fault: CardFault| {
        let error = card.run(pcie, &job).unwrap_err();
        assert_eq!(error.to_string(), format!("the tiny-gpu at {}: {fault}", card.at));
    };
    let endless = GpuJob { program: &[0x2000, 0x1401], ..job(&data) };
    fails(&mut pcie, endless, CardFault::Run(tiny_gpu::RunFault::NeverEnds { block: 0, word: 1 }));
    let lost = GpuJob { program: &MATMUL[..3], ..job(&data) };
    fails(&mut pcie, lost, CardFault::Run(tiny_gpu::RunFault::LeftProgram { block: 0, word: 3 }));
    let nowhere = DmaWrite { to: 0x0070_0000, ..to_sram(0, 4) };
    fails(&mut pcie, GpuJob { send: Some(nowhere), ..job(&data) }, CardFault::NoTarget);
    pcie.config_write(card.at, 0x04, 0x02, 0x03).unwrap();
    let forbidden = GpuJob { send: Some(to_sram(0, 4)), ..job(&data) };
    fails(&mut pcie, forbidden, CardFault::NotMaster);
    rows.into()
}

fn examine_vendor(mut bridge: Bridge, unit: &SharedUnit) -> Vec<Row> {
    let rows = examine(&mut VendorTlp::new(&mut bridge), unit);
    assert!(bridge.inquiry().is_ok(), "it goes on");
    rows
}

#[test]
fn through_the_practice_image_a_product_comes_back_both_ways() {
    let mut port = unit(CARD, None);
    let shared = port.unit().clone();
    port.open().unwrap();
    let rows = examine_vendor(port.open_over(Some(TransportKind::UasStreams)).unwrap(), &shared);
    let commands = rows.iter().map(|row| (row.len, row.job.commands, row.by_dma.commands, row.by_reads.commands));
    assert!(commands.eq([(4, 198, 50, 8), (256, 198, 51, 323), (4096, 198, 66, 5138)]), "{rows:?}");
}

#[test]
#[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
fn through_the_vendors_firmware_it_is_the_same_stock_or_patched_over_both_transports() {
    for (image, is_uas, is_initialised) in [
        (crate::chip_images::vendor(), false, false),
        (crate::chip_images::vendor(), true, false),
        (crate::chip_images::patched(), true, true),
    ] {
        let mut port = unit(CARD, Some(&image));
        let shared = port.unit().clone();
        let mut bridge = port.open().unwrap();
        if is_uas {
            bridge = port.open_over(Some(TransportKind::UasStreams)).unwrap();
        }
        if is_initialised {
            bridge.initialise().unwrap();
        }
        VENDOR.check(&examine_vendor(trained(bridge), &shared));
    }
}

#[test]
#[ignore = "needs ASMPATCH_OPEN_IMAGE"]
fn through_open_firmware_the_result_comes_by_f2_as_well_once_the_card_has_written_its_entry() {
    let mut port = unit(CARD, Some(&crate::chip_images::open()));
    let shared = port.unit().clone();
    let mut open = port.open_control().unwrap();
    let rows = examine(&mut open, &shared);
    OPEN.check(&rows);

    let card = opened(&mut open).unwrap();
    let data = data();
    let mut patience = NoTime;
    for sectors in [1, 8, 32] {
        let mut came = vec![0; sectors * SECTOR];
        let ((), whole) = counted(&shared, || {
            let run = |open: &mut OpenBridge, entry| {
                let send = Some(DmaWrite { entry: Some(entry), ..to_sram(0, sectors * SECTOR) });
                card.run(&mut Pcie::new(open, &mut NoTime), &GpuJob { send, ..job(&data) }).map(drop)
            };
            open.sram_read(0, &mut came, run).unwrap();
        });
        let by_f2 = whole - rows[0].job;
        // The count doesn't depend on the length. Most instructions are the main loop's, while it waits.
        // The first read also asks for the page where completions are awaited, and whether the DMA is idle.
        let commands = if sectors == 1 { 13 } else { 11 };
        assert!(by_f2.commands == commands && by_f2.instructions < 60_000, "{by_f2:?}");
        assert_eq!(came[PRODUCT_AT..][..4], host_product(A, B));
        assert_eq!(came[..8], data);
        let at = Pcie::new(&mut open, &mut patience).survey(Scope::READ_ONLY).unwrap();
        let memory = at.functions.iter().find(|function| function.at == card.at).unwrap().bars[0].address;
        let mut streamed = vec![0; sectors * SECTOR];
        let ((), stream) = counted(&shared, || open.stream_read(memory + 0x400, &mut streamed).unwrap());
        if sectors == 8 {
            check(by_f2, (11, 25_170));
            check(stream, (1, 55_473));
        }
        assert!(streamed == came);
    }
}
