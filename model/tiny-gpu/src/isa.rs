//! The instruction set: 11 instructions in words of 16 bits, the operation in the upper four.
//!
//! Source: adam-maj/tiny-gpu, `src/decoder.sv`; the course page, whose machine words the tests decode.

/// One of a thread's 16 registers: R0 to R12, then three read-only ones that identify the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadRegister(u8);

/// Index of the thread's block.
pub const BLOCK_INDEX: ThreadRegister = ThreadRegister(13);
/// Threads per block.
pub const BLOCK_DIM: ThreadRegister = ThreadRegister(14);
/// Index of the thread in its block.
pub const THREAD_INDEX: ThreadRegister = ThreadRegister(15);

impl ThreadRegister {
    /// R0 to R15, by the lower four bits of a number.
    pub const fn new(number: u8) -> Self {
        Self(number & 0x0F)
    }

    /// Its number, 0 to 15.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether an instruction may write it.
    pub const fn is_writable(self) -> bool {
        self.0 < BLOCK_INDEX.0
    }
}

/// The result of a CMP: bit 2 "n", bit 1 "z", bit 0 "p", as a branch tests them.
///
/// The machine subtracts unsigned, so "n" is set if the two differ, and "p" is never set. Source: adam-maj/tiny-gpu,
/// `src/alu.sv`: a difference of unsigned registers, compared with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Nzp(u8);

impl Nzp {
    /// "n": they differ.
    pub const N: Self = Self(4);
    /// "z": they are equal.
    pub const Z: Self = Self(2);

    /// Compares two registers.
    pub const fn of(left: u8, right: u8) -> Self {
        if left == right { Self::Z } else { Self::N }
    }

    /// Whether the two have a bit in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Arithmetic on two registers, modulo 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient without remainder. Division by 0 gives 255 (chosen here: the hardware description leaves it undefined).
    Div,
}

impl Arithmetic {
    /// Computes the result.
    pub fn apply(self, left: u8, right: u8) -> u8 {
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Sub => left.wrapping_sub(right),
            Self::Mul => left.wrapping_mul(right),
            Self::Div => left.checked_div(right).unwrap_or(u8::MAX),
        }
    }
}

/// A decoded instruction. Every word decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Does nothing. Operations 10 to 14 are undefined, and also do nothing.
    Nop,
    /// Continues at this word of the program if the last CMP found one of these conditions.
    Branch(Nzp, u8),
    /// Compares two registers.
    Compare(ThreadRegister, ThreadRegister),
    /// Computes: destination, left, right.
    Compute(Arithmetic, ThreadRegister, ThreadRegister, ThreadRegister),
    /// Loads a register from the address in another register.
    Load(ThreadRegister, ThreadRegister),
    /// Stores the second register at the address in the first.
    Store(ThreadRegister, ThreadRegister),
    /// Sets a register.
    Const(ThreadRegister, u8),
    /// Ends the thread's block.
    Return,
}

impl From<u16> for Instruction {
    fn from(word: u16) -> Self {
        let nibble = |shift: u32| ThreadRegister::new((word >> shift) as u8);
        let (rd, rs, rt) = (nibble(8), nibble(4), nibble(0));
        let compute = |what| Self::Compute(what, rd, rs, rt);
        match word >> 12 {
            1 => Self::Branch(Nzp((word >> 9) as u8 & 0x07), word as u8),
            2 => Self::Compare(rs, rt),
            3 => compute(Arithmetic::Add),
            4 => compute(Arithmetic::Sub),
            5 => compute(Arithmetic::Mul),
            6 => compute(Arithmetic::Div),
            7 => Self::Load(rd, rs),
            8 => Self::Store(rs, rt),
            9 => Self::Const(rd, word as u8),
            15 => Self::Return,
            _ => Self::Nop,
        }
    }
}

impl Instruction {
    /// Encodes the instruction. The inverse of `Instruction::from`.
    pub const fn word(self) -> u16 {
        const fn pack(operation: u16, rd: u8, low: u8) -> u16 {
            operation << 12 | (rd as u16) << 8 | low as u16
        }
        match self {
            Self::Nop => 0,
            Self::Branch(condition, target) => pack(1, condition.0 << 1, target),
            Self::Compare(left, right) => pack(2, 0, left.0 << 4 | right.0),
            Self::Compute(what, rd, left, right) => {
                let operation = match what {
                    Arithmetic::Add => 3,
                    Arithmetic::Sub => 4,
                    Arithmetic::Mul => 5,
                    Arithmetic::Div => 6,
                };
                pack(operation, rd.0, left.0 << 4 | right.0)
            }
            Self::Load(rd, address) => pack(7, rd.0, address.0 << 4),
            Self::Store(address, value) => pack(8, 0, address.0 << 4 | value.0),
            Self::Const(rd, value) => pack(9, rd.0, value),
            Self::Return => 0xF000,
        }
    }
}

/// Encodes a program.
pub fn assemble(program: impl IntoIterator<Item = Instruction>) -> Vec<u16> {
    program.into_iter().map(Instruction::word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_what_the_course_page_writes_beside_it() {
        use Arithmetic::{Add, Div, Mul};
        use Instruction::{Branch, Compare, Compute, Const, Load, Return, Store};
        let r = ThreadRegister::new;
        for (word, meaning) in [
            (0b0101_0000_1101_1110, Compute(Mul, r(0), BLOCK_INDEX, BLOCK_DIM)),
            (0b0011_0000_0000_1111, Compute(Add, r(0), r(0), THREAD_INDEX)),
            (0b1001_0001_0000_0001, Const(r(1), 1)),
            (0b0110_0110_0000_0010, Compute(Div, r(6), r(0), r(2))),
            (0b0111_1010_1010_0000, Load(r(10), r(10))),
            (0b0010_0000_1001_0010, Compare(r(9), r(2))),
            (0b0001_1000_0000_1100, Branch(Nzp::N, 12)),
            (0b1000_0000_1001_1000, Store(r(9), r(8))),
            (0b1111_0000_0000_0000, Return),
        ] {
            assert_eq!(Instruction::from(word), meaning, "{word:#018b}");
        }
    }

    #[test]
    fn every_word_decodes_and_its_instruction_encodes_to_an_equal_one() {
        for word in 0..=u16::MAX {
            let instruction = Instruction::from(word);
            assert_eq!(Instruction::from(instruction.word()), instruction, "{word:#06x}");
        }
        assert_eq!([0xA123, 0xE000, 0x0FFF].map(Instruction::from), [Instruction::Nop; 3]);
    }

    #[test]
    fn arithmetic_is_modulo_256_and_division_by_zero_gives_255() {
        use Arithmetic::{Add, Div, Mul, Sub};
        assert_eq!([Add.apply(200, 100), Sub.apply(1, 2), Mul.apply(16, 17), Div.apply(7, 0)], [44, 255, 16, 255]);
    }
}
