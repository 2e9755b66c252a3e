//! The ASM2464PD's 8051: emulation and disassembly.
