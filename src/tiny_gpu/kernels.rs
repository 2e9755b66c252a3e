//! Kernels of the course page: matrix product, matrix sum, and a product that packs its matrices first.
//!
//! Matrices are 2 by 2, row by row, of bytes: A at 0, B at 4, their product at 8. All arithmetic is modulo 256.

use super::isa::{Arithmetic, BLOCK_DIM, BLOCK_INDEX, Condition, Instruction, Register, THREAD_INDEX};

/// Threads of a product: one per element.
pub const PRODUCT_THREADS: u8 = 4;
/// Address of a product's elements in data memory.
pub const PRODUCT_AT: usize = 8;
/// Address of the second copy that [`packed_matmul`] writes if it unpacks.
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

const fn r(number: u8) -> Register {
    Register::new(number)
}

/// R0 = the thread's index among all threads.
const WHO: [Instruction; 2] = [
    Instruction::Compute(Arithmetic::Mul, r(0), BLOCK_INDEX, BLOCK_DIM),
    Instruction::Compute(Arithmetic::Add, r(0), r(0), THREAD_INDEX),
];

/// Returns the kernel for the sum of two matrices of 8 elements: A at 0, B at 8, the sum at 16.
pub fn matadd() -> Vec<u16> {
    use Arithmetic::Add;
    use Instruction::{Compute, Const, Load, Return, Store};
    let body = [
        Const(r(1), 0),
        Const(r(2), 8),
        Const(r(3), SUM_AT as u8),
        Compute(Add, r(4), r(1), r(0)),
        Load(r(4), r(4)),
        Compute(Add, r(5), r(2), r(0)),
        Load(r(5), r(5)),
        Compute(Add, r(6), r(4), r(5)),
        Compute(Add, r(7), r(3), r(0)),
        Store(r(7), r(6)),
        Return,
    ];
    words(WHO.into_iter().chain(body))
}

/// Returns the kernel for a product whose matrices every thread copies first: A to 16, B to 20. With `unpacks`, every
/// thread finally copies the product to 24.
pub fn packed_matmul(unpacks: bool) -> Vec<u16> {
    use Arithmetic::{Add, Div, Mul, Sub};
    use Instruction::{Branch, Compare, Compute, Const, Load, Return, Store};
    const PACKED_A: u8 = 16;
    const PACKED_B: u8 = 20;
    let copies = |from: u8, to: u8, count: u8| {
        (0..count)
            .flat_map(move |at| [Const(r(3), from + at), Load(r(0), r(3)), Const(r(4), to + at), Store(r(4), r(0))])
    };
    let mut kernel: Vec<_> = copies(0, PACKED_A, 8).collect();
    kernel.extend([Const(r(3), PACKED_A), Const(r(4), PACKED_B), Const(r(5), PRODUCT_AT as u8)]);
    kernel.extend(WHO);
    kernel.extend([
        Const(r(1), 1),
        Const(r(2), 2),
        Compute(Div, r(6), r(0), r(2)),
        Compute(Mul, r(7), r(6), r(2)),
        Compute(Sub, r(7), r(0), r(7)),
        Const(r(8), 0),
        Const(r(9), 0),
    ]);
    let again = kernel.len() as u8;
    kernel.extend([
        Compute(Mul, r(10), r(6), r(2)),
        Compute(Add, r(10), r(10), r(9)),
        Compute(Add, r(10), r(10), r(3)),
        Load(r(10), r(10)),
        Compute(Mul, r(11), r(9), r(2)),
        Compute(Add, r(11), r(11), r(7)),
        Compute(Add, r(11), r(11), r(4)),
        Load(r(11), r(11)),
        Compute(Mul, r(12), r(10), r(11)),
        Compute(Add, r(8), r(8), r(12)),
        Compute(Add, r(9), r(9), r(1)),
        Compare(r(9), r(2)),
        Branch(Condition::N, again),
        Compute(Add, r(9), r(5), r(0)),
        Store(r(9), r(8)),
    ]);
    if unpacks {
        kernel.extend(copies(PRODUCT_AT as u8, UNPACKED_AT as u8, 4));
    }
    kernel.push(Return);
    words(kernel)
}

fn words(kernel: impl IntoIterator<Item = Instruction>) -> Vec<u16> {
    kernel.into_iter().map(Instruction::word).collect()
}

/// Computes the product of two such matrices on the host.
pub fn host_product(a: [u8; 4], b: [u8; 4]) -> [u8; 4] {
    std::array::from_fn(|at| {
        let (row, column) = (at / 2, at % 2);
        (0..2).fold(0_u8, |sum, k| sum.wrapping_add(a[2 * row + k].wrapping_mul(b[2 * k + column])))
    })
}
