//! Kernels that tests run: the course page's matrix sum, and the product with its matrices packed first.

use crate::tiny_gpu::kernels::PRODUCT_AT;

/// Address to which [`packed_matmul`] copies the product if it unpacks.
pub const UNPACKED_AT: usize = 24;
/// Threads of [`matadd`]: one per element.
pub const SUM_THREADS: u8 = 8;
/// Address of a sum's elements in data memory.
pub const SUM_AT: usize = 16;

const ADD: u16 = 3;
const SUB: u16 = 4;
const MUL: u16 = 5;
const DIV: u16 = 6;
const RETURN: u16 = 0xF000;
pub const BLOCK_INDEX: u16 = 13;
pub const BLOCK_DIM: u16 = 14;
pub const THREAD_INDEX: u16 = 15;

const fn compute(operation: u16, rd: u16, left: u16, right: u16) -> u16 {
    operation << 12 | rd << 8 | left << 4 | right
}

/// Continues at a word if the last comparison found a difference.
const fn branch_n(target: usize) -> u16 {
    1 << 12 | 4 << 9 | target as u16
}

const fn compare(left: u16, right: u16) -> u16 {
    compute(2, 0, left, right)
}

const fn load(rd: u16, address: u16) -> u16 {
    compute(7, rd, address, 0)
}

pub const fn store(address: u16, value: u16) -> u16 {
    compute(8, 0, address, value)
}

pub const fn constant(rd: u16, value: u16) -> u16 {
    compute(9, rd, 0, value)
}

/// R0 = the thread's index among all.
const GLOBAL_INDEX: [u16; 2] = [compute(MUL, 0, BLOCK_INDEX, BLOCK_DIM), compute(ADD, 0, 0, THREAD_INDEX)];

/// The sum of two matrices of 8 elements: A at 0, B at 8, the sum at 16.
pub fn matadd() -> Vec<u16> {
    let body = [
        constant(1, 0),
        constant(2, 8),
        constant(3, SUM_AT as u16),
        compute(ADD, 4, 1, 0),
        load(4, 4),
        compute(ADD, 5, 2, 0),
        load(5, 5),
        compute(ADD, 6, 4, 5),
        compute(ADD, 7, 3, 0),
        store(7, 6),
        RETURN,
    ];
    [&GLOBAL_INDEX[..], &body].concat()
}

/// The product of matrices that every thread copies first: A to 16, B to 20. With `unpacks`, every thread copies the
/// product to 24 at the end.
pub fn packed_matmul(unpacks: bool) -> Vec<u16> {
    const PACKED_A: u16 = 16;
    const PACKED_B: u16 = 20;
    let copies = |from: u16, to: u16, count: u16| {
        (0..count).flat_map(move |at| [constant(3, from + at), load(0, 3), constant(4, to + at), store(4, 0)])
    };
    let mut kernel: Vec<_> = copies(0, PACKED_A, 8).collect();
    kernel.extend([constant(3, PACKED_A), constant(4, PACKED_B), constant(5, PRODUCT_AT as u16)]);
    kernel.extend(GLOBAL_INDEX);
    kernel.extend([
        constant(1, 1),
        constant(2, 2),
        compute(DIV, 6, 0, 2),
        compute(MUL, 7, 6, 2),
        compute(SUB, 7, 0, 7),
        constant(8, 0),
        constant(9, 0),
    ]);
    let again = kernel.len();
    kernel.extend([
        compute(MUL, 10, 6, 2),
        compute(ADD, 10, 10, 9),
        compute(ADD, 10, 10, 3),
        load(10, 10),
        compute(MUL, 11, 9, 2),
        compute(ADD, 11, 11, 7),
        compute(ADD, 11, 11, 4),
        load(11, 11),
        compute(MUL, 12, 10, 11),
        compute(ADD, 8, 8, 12),
        compute(ADD, 9, 9, 1),
        compare(9, 2),
        branch_n(again),
        compute(ADD, 9, 5, 0),
        store(9, 8),
    ]);
    if unpacks {
        kernel.extend(copies(PRODUCT_AT as u16, UNPACKED_AT as u16, 4));
    }
    kernel.push(RETURN);
    kernel
}
