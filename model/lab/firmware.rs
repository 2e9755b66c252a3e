//! Executes firmware: single routines on the 8051, and whole images on the chip model, from reset.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

#[path = "../../tests/chip_images/mod.rs"]
mod chip_images;

/// Makes two tests of each check: with the practice image, and with the vendor's.
macro_rules! on_both_images {
    ($($check:ident)*) => {
        mod practice {
            $(
                #[test]
                fn $check() {
                    super::$check(&asm2464_chip::practice::image());
                }
            )*
        }

        mod vendor {
            $(
                #[test]
                #[ignore = "needs ASMPATCH_VENDOR_IMAGE"]
                fn $check() {
                    super::$check(&crate::chip_images::vendor());
                }
            )*
        }
    };
}

mod firmware {
    mod both_images;
    mod chip_wire;
    mod e4;
    mod machine;
    mod open_chip;
    mod patches;
    mod registers;
    mod vendor_boot;
    mod vendor_chip_dma;
    mod vendor_code;
    mod vendor_drive;
    mod vendor_e4_chip;
    mod vendor_early_ends;
    mod vendor_firmware;
    mod vendor_read16;
}
