//! Kernels that tests run: the course page's matrix sum, and the product with its matrices packed first.

use crate::tiny_gpu::kernels::PRODUCT_AT;
use crate::tiny_gpu::{Arithmetic, BLOCK_DIM, BLOCK_INDEX, Condition, Instruction, Register, THREAD_INDEX};

/// Where [`packed_matmul`] puts them as well, where it unpacks.
pub const UNPACKED_AT: usize = 24;
/// Threads of [`matadd`]: one an element.
pub const SUM_THREADS: u8 = 8;
/// Where a sum's elements stand in data memory.
pub const SUM_AT: usize = 16;

const fn r(number: u8) -> Register {
    Register::new(number)
}

/// R0 = the thread's index among all.
const WHO: [Instruction; 2] = [
    Instruction::Compute(Arithmetic::Mul, r(0), BLOCK_INDEX, BLOCK_DIM),
    Instruction::Compute(Arithmetic::Add, r(0), r(0), THREAD_INDEX),
];

/// The sum of two matrices of 8 elements: A at 0, B at 8, the sum at 16.
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

/// The product of matrices that every thread copies first: A to 16, B to 20. With `unpacks`, every thread copies the
/// product to 24 in the end.
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
