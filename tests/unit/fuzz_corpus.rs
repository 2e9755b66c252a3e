//! Runs arbitrary code on the chip model, and the fuzz targets' checks on their corpus: every input that once found a
//! bug. The tests are not in `fuzz/`, which is a separate package, so that this package's tests include them.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use crate::wire_checks;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        check(&input);
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

macro_rules! corpora {
    ($($(#[$only:meta])? $target:ident)*) => {
        $(
            $(#[$only])?
            #[test]
            fn $target() {
                replay(stringify!($target), wire_checks::$target);
            }
        )*
    };
}

corpora! { csw information_unit sense inquiry config_block image file_kind chip symbols #[cfg(unix)] usbredir }

/// A piece of a program.
#[derive(Debug, Clone)]
enum Piece {
    /// MOV DPTR; MOV A; MOVX @DPTR,A
    Write(u16, u8),
    /// MOV DPTR; MOVX A,@DPTR
    Read(u16),
    /// MOV direct,#
    Sfr(u8, u8),
    /// Arbitrary bytes.
    Bytes(Vec<u8>),
}

impl Piece {
    fn code(&self) -> Vec<u8> {
        match self {
            Self::Write(addr, value) => {
                let [high, low] = addr.to_be_bytes();
                vec![0x90, high, low, 0x74, *value, 0xF0]
            }
            Self::Read(addr) => {
                let [high, low] = addr.to_be_bytes();
                vec![0x90, high, low, 0xE0]
            }
            Self::Sfr(at, value) => vec![0x75, *at, *value],
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

fn register() -> impl Strategy<Value = u16> {
    let known: Vec<u16> = asm2464_chip::chip::registers()
        .flat_map(|(_, register)| register.first..=register.last.min(register.first + 8))
        .collect();
    prop_oneof![4 => proptest::sample::select(known), 1 => any::<u16>()]
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        6 => (register(), prop_oneof![any::<u8>(), Just(0x02), Just(0x0F), Just(0xFF)])
            .prop_map(|(addr, value)| Piece::Write(addr, value)),
        3 => register().prop_map(Piece::Read),
        1 => (0x80u8.., any::<u8>()).prop_map(|(at, value)| Piece::Sfr(at, value)),
        1 => proptest::collection::vec(any::<u8>(), 1..8).prop_map(Piece::Bytes),
    ]
}

/// Fuzz input: the code, then the same number of bytes for the host.
fn input(mut code: Vec<u8>, mut host: Vec<u8>) -> Vec<u8> {
    let half = code.len().max(host.len());
    code.resize(half, 0);
    host.resize(half, 0x55);
    code.extend(host);
    code
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_bytes_from_reset(data in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        wire_checks::chip(&data);
    }

    #[test]
    fn random_bytes_to_every_register(
        pieces in proptest::collection::vec(piece(), 1..200),
        host in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        // Interrupts are on, and their vectors return.
        let mut code = vec![0x02, 0x00, 0x30];
        code.resize(0x30, 0x32);
        code.extend([0x75, 0xA8, 0x85]);
        code.extend(pieces.iter().flat_map(Piece::code));
        code.extend([0x02, 0x00, 0x30]);
        wire_checks::chip(&input(code, host));
    }
}
