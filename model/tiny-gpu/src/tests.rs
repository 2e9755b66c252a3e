//! Tests of programs: how many cycles they take, how they end, and what is refused.

use proptest::prelude::*;

use super::isa::{BLOCK_DIM, Instruction, THREAD_INDEX, assemble};
use super::kernels::{
    MATMUL, PRODUCT_AT, PRODUCT_THREADS, SUM_AT, SUM_THREADS, UNPACKED_AT, host_product, matadd, packed_matmul,
};
use super::*;

const LIMIT: u64 = 10_000;
const MATRICES: [u8; 8] = [1, 2, 3, 4, 1, 2, 3, 4];
/// The machine without caches, with the memories of the machine with caches.
const PLAIN_SLOW: Design = Design { has_caches: false, ..Design::CACHED };
const CACHED_FAST: Design = Design { has_caches: true, ..Design::PLAIN };

fn ran(design: Design, program: &[u16], data: &[u8], threads: u8) -> (u64, [u8; DATA_LEN]) {
    let mut machine = Machine::new(design, program, data, threads).unwrap();
    let cycles = machine.run(LIMIT).unwrap();
    (cycles, machine.data)
}

fn sums() -> Vec<u8> {
    (0..8).chain(0..8).collect()
}

#[test]
fn the_course_pages_words_take_the_course_pages_cycles() {
    for (design, product_cycles, sum_cycles) in [(Design::PLAIN, 491, 178), (Design::CACHED, 706, 270)] {
        let (cycles, data) = ran(design, &MATMUL, &MATRICES, PRODUCT_THREADS);
        assert_eq!((cycles, &data[PRODUCT_AT..][..4]), (product_cycles, &[7, 10, 15, 22][..]));
        let (cycles, data) = ran(design, &matadd(), &sums(), SUM_THREADS);
        assert_eq!((cycles, &data[SUM_AT..][..8]), (sum_cycles, &[0, 2, 4, 6, 8, 10, 12, 14][..]));
    }
}

#[test]
fn caches_cost_cycles_if_memory_is_fast_and_save_cycles_in_loops_if_it_is_slow() {
    // R1 counts to 100.
    let counts = [0x9001, 0x9264, 0x3110, 0x2012, 0x1802, 0xF000];
    let cycles = |design| {
        let product = ran(design, &MATMUL, &MATRICES, PRODUCT_THREADS).0;
        (product, ran(design, &matadd(), &sums(), SUM_THREADS).0, ran(design, &counts, &[], 1).0)
    };
    assert_eq!(cycles(Design::PLAIN), (491, 178, 3338));
    assert_eq!(cycles(CACHED_FAST), (566, 211, 3645));
    assert_eq!(cycles(PLAIN_SLOW), (696, 280, 4853));
    assert_eq!(cycles(Design::CACHED), (706, 270, 3675));
}

#[test]
fn the_packed_product_is_the_same_and_is_unpacked_on_request() {
    let cycles: Vec<_> = [Design::PLAIN, Design::CACHED]
        .into_iter()
        .flat_map(|design| [false, true].map(|unpacks| (design, unpacks)))
        .map(|(design, unpacks)| {
            let (cycles, data) = ran(design, &packed_matmul(unpacks), &MATRICES, PRODUCT_THREADS);
            assert_eq!((&data[..8], &data[16..24]), (&MATRICES[..], &MATRICES[..]));
            assert_eq!(data[PRODUCT_AT..][..4], [7, 10, 15, 22]);
            let unpacked = if unpacks { [7, 10, 15, 22] } else { [0; 4] };
            assert_eq!(data[UNPACKED_AT..][..4], unpacked);
            cycles
        })
        .collect();
    assert_eq!(cycles, [955, 1187, 1390, 1730]);
}

#[test]
fn the_last_block_may_have_fewer_threads_and_a_run_without_threads_ends_at_once() {
    for threads in (0..20).chain([251, 255]) {
        // Each thread stores its index at the address of that index.
        let program = [0b0101_0000_1101_1110, 0b0011_0000_0000_1111, 0x8000, 0xF000];
        for design in [Design::PLAIN, Design::CACHED] {
            let (cycles, data) = ran(design, &program, &[0xFF; DATA_LEN], threads);
            let expected = std::array::from_fn(|at| if at < usize::from(threads) { at as u8 } else { 0xFF });
            assert_eq!(data, expected, "{threads}");
            assert!(threads > 0 || cycles < 5);
        }
    }
}

#[test]
fn a_program_that_does_not_end_is_stopped_and_says_where_it_is() {
    let branches_to_itself = [0x2000, 0x1401];
    let mut machine = Machine::new(Design::PLAIN, &branches_to_itself, &[], 4).unwrap();
    assert_eq!(machine.run(1000), Err(RunFault::NeverEnds { block: 0, word: 1 }));
}

#[test]
fn a_program_that_leaves_its_memory_is_stopped() {
    for (program, word) in [(&[0x0000, 0x0000][..], 2), (&[0x2000, 0x1480][..], 0x80), (&[], 0), (&[0; 256][..], 256)] {
        let mut machine = Machine::new(Design::CACHED, program, &[], 1).unwrap();
        assert_eq!(machine.run(100_000), Err(RunFault::LeftProgram { block: 0, word }));
    }
}

#[test]
fn a_program_or_data_longer_than_its_memory_is_refused() {
    assert_eq!(Machine::new(Design::PLAIN, &[0; 257], &[], 1).unwrap_err(), RunFault::TooLong);
    assert_eq!(Machine::new(Design::PLAIN, &[], &[0; 257], 1).unwrap_err(), RunFault::TooLong);
}

#[test]
fn registers_that_identify_a_thread_cannot_be_changed() {
    let program = assemble([
        Instruction::Const(THREAD_INDEX, 9),
        Instruction::Store(THREAD_INDEX, BLOCK_DIM),
        Instruction::Return,
    ]);
    let (_, data) = ran(Design::PLAIN, &program, &[], 3);
    assert_eq!(data[..4], [4, 4, 4, 0]);
}

proptest! {
    #[test]
    fn the_machine_finds_the_hosts_product(a: [u8; 4], b: [u8; 4]) {
        let data: Vec<u8> = a.into_iter().chain(b).collect();
        for design in [Design::PLAIN, Design::CACHED] {
            for program in [&MATMUL[..], &packed_matmul(true)] {
                let (_, data) = ran(design, program, &data, PRODUCT_THREADS);
                prop_assert_eq!(&data[PRODUCT_AT..][..4], &host_product(a, b)[..]);
            }
        }
    }

    #[test]
    fn caches_change_cycles_and_nothing_else(
        accesses in proptest::collection::vec((0_u8..16, any::<bool>()), 0..40), seed: [u8; 32]
    ) {
        // Each thread has 16 addresses of its own, 16 apart: the threads share cache lines and evict each other's.
        let mut program = vec![0x50DE, 0x300F, 0x9800 | 16];
        for (at, stores) in accesses {
            // R1 = R0 + 16 * at; then R2 += [R1], or [R1] = R2.
            program.extend([0x9300 | u16::from(at), 0x5338, 0x3103]);
            program.extend(if stores { [0x8012, 0x3220] } else { [0x7410, 0x3224] });
        }
        program.push(0xF000);
        let data: Vec<u8> = seed.iter().cycle().copied().take(DATA_LEN).collect();
        for threads in [3, 8] {
            let plain = ran(Design::PLAIN, &program, &data, threads).1;
            prop_assert_eq!(plain, ran(Design::CACHED, &program, &data, threads).1);
            prop_assert_eq!(plain, ran(CACHED_FAST, &program, &data, threads).1);
            prop_assert_eq!(plain, ran(PLAIN_SLOW, &program, &data, threads).1);
        }
    }

    #[test]
    fn any_program_ends_or_is_stopped(program in proptest::collection::vec(any::<u16>(), 0..256), threads: u8) {
        for design in [Design::PLAIN, Design::CACHED] {
            let mut machine = Machine::new(design, &program, &[7; DATA_LEN], threads).unwrap();
            let _ = machine.run(2_000);
        }
    }
}
