//! A kernel of the course page: the matrix product.
//!
//! Matrices are 2 by 2, row by row, of bytes: A at 0, B at 4, their product at 8. All arithmetic is modulo 256.

/// Threads of a product: one per element.
pub const PRODUCT_THREADS: u8 = 4;
/// Address of a product's elements in data memory.
pub const PRODUCT_AT: usize = 8;

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
