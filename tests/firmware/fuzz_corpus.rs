//! Replays the fuzzers' corpus through the fuzz targets' checks: every input that once found a bug. This test is not in
//! `fuzz/`, which is a separate package, so that this package's tests include it.
use std::fs;
use std::path::Path;

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

corpora! { csw information_unit sense inquiry config_block image chip symbols record #[cfg(unix)] usbredir }
