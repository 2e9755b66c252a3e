//! Kernels: the matrix product and the matrix sum of the course page, and a product that packs its matrices first.
//!
//! The product's matrices are 2 by 2, row by row, of bytes: A at 0, B at 4, their product at 8. All arithmetic is
//! modulo 256.

use crate::isa::Arithmetic::{Add, Div, Mul, Sub};
use crate::isa::Instruction::{self, Branch, Compare, Compute, Const, Load, Return, Store};
use crate::isa::{BLOCK_DIM, BLOCK_INDEX, Nzp, THREAD_INDEX, ThreadRegister, assemble};

/// Threads of a product: one per element.
pub const PRODUCT_THREADS: u8 = 4;
/// Address of a product's elements in data memory.
pub const PRODUCT_AT: usize = 8;
/// Address to which [`packed_matmul`] copies the product if it unpacks.
pub const UNPACKED_AT: usize = 24;
/// Threads of [`matadd`]: one per element.
pub const SUM_THREADS: u8 = 8;
/// Address of a sum's elements in data memory.
pub const SUM_AT: usize = 16;

/// The product kernel, with the course page's machine words.
pub const MATMUL: [u16; 28] = [
    0b0101_0000_1101_1110,
    0b0011_0000_0000_1111,
    0b1001_0001_0000_0001,
    0b1001_0010_0000_0010,
    0b1001_0011_0000_0000,
    0b1001_0100_0000_0100,
    0b1001_0101_0000_1000,
    0b0110_0110_0000_0010,
    0b0101_0111_0110_0010,
    0b0100_0111_0000_0111,
    0b1001_1000_0000_0000,
    0b1001_1001_0000_0000,
    0b0101_1010_0110_0010,
    0b0011_1010_1010_1001,
    0b0011_1010_1010_0011,
    0b0111_1010_1010_0000,
    0b0101_1011_1001_0010,
    0b0011_1011_1011_0111,
    0b0011_1011_1011_0100,
    0b0111_1011_1011_0000,
    0b0101_1100_1010_1011,
    0b0011_1000_1000_1100,
    0b0011_1001_1001_0001,
    0b0010_0000_1001_0010,
    0b0001_1000_0000_1100,
    0b0011_1001_0101_0000,
    0b1000_0000_1001_1000,
    0b1111_0000_0000_0000,
];

/// Computes the product of two such matrices on the host.
pub fn host_product(a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
    std::array::from_fn(|at| {
        let (row, column) = (at / 2, at % 2);
        (0..2).fold(0_u8, |sum, k| sum.wrapping_add(a[2 * row + k].wrapping_mul(b[2 * k + column])))
    })
}

/// R0 = the thread's index among all.
const GLOBAL_INDEX: [Instruction; 2] =
    [Compute(Mul, R[0], BLOCK_INDEX, BLOCK_DIM), Compute(Add, R[0], R[0], THREAD_INDEX)];

/// The registers R0 to R12.
const R: [ThreadRegister; 13] = {
    let mut registers = [ThreadRegister::new(0); 13];
    let mut number = 1;
    while number < registers.len() {
        registers[number] = ThreadRegister::new(number as u8);
        number += 1;
    }
    registers
};

/// The sum of two matrices of 8 elements: A at 0, B at 8, the sum at 16.
pub fn matadd() -> Vec<u16> {
    let body = [
        Const(R[1], 0),
        Const(R[2], 8),
        Const(R[3], SUM_AT as u8),
        Compute(Add, R[4], R[1], R[0]),
        Load(R[4], R[4]),
        Compute(Add, R[5], R[2], R[0]),
        Load(R[5], R[5]),
        Compute(Add, R[6], R[4], R[5]),
        Compute(Add, R[7], R[3], R[0]),
        Store(R[7], R[6]),
        Return,
    ];
    assemble([&GLOBAL_INDEX[..], &body].concat())
}

/// The product of matrices that every thread copies first: A to 16, B to 20. With `unpacks`, every thread copies the
/// product to 24 at the end.
pub fn packed_matmul(unpacks: bool) -> Vec<u16> {
    const PACKED_A: u8 = 16;
    const PACKED_B: u8 = 20;
    let mut kernel = copies(0, PACKED_A, 8);
    kernel.extend([Const(R[3], PACKED_A), Const(R[4], PACKED_B), Const(R[5], PRODUCT_AT as u8)]);
    kernel.extend(GLOBAL_INDEX);
    kernel.extend([
        Const(R[1], 1),
        Const(R[2], 2),
        Compute(Div, R[6], R[0], R[2]),
        Compute(Mul, R[7], R[6], R[2]),
        Compute(Sub, R[7], R[0], R[7]),
        Const(R[8], 0),
        Const(R[9], 0),
    ]);
    let again = kernel.len() as u8;
    kernel.extend([
        Compute(Mul, R[10], R[6], R[2]),
        Compute(Add, R[10], R[10], R[9]),
        Compute(Add, R[10], R[10], R[3]),
        Load(R[10], R[10]),
        Compute(Mul, R[11], R[9], R[2]),
        Compute(Add, R[11], R[11], R[7]),
        Compute(Add, R[11], R[11], R[4]),
        Load(R[11], R[11]),
        Compute(Mul, R[12], R[10], R[11]),
        Compute(Add, R[8], R[8], R[12]),
        Compute(Add, R[9], R[9], R[1]),
        Compare(R[9], R[2]),
        Branch(Nzp::N, again),
        Compute(Add, R[9], R[5], R[0]),
        Store(R[9], R[8]),
    ]);
    if unpacks {
        kernel.extend(copies(PRODUCT_AT as u8, UNPACKED_AT as u8, 4));
    }
    kernel.push(Return);
    assemble(kernel)
}

/// Copies bytes of data memory.
fn copies(from: u8, to: u8, count: u8) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    for at in 0..count {
        instructions.extend([Const(R[3], from + at), Load(R[0], R[3]), Const(R[4], to + at), Store(R[4], R[0])]);
    }
    instructions
}
