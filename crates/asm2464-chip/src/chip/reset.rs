//! What registers hold at power-on, as recordings of real chips show it.

use std::sync::LazyLock;

use crate::mcu::XdataMemory;

/// Address and value, of the main page.
static RESET_VALUES: LazyLock<Vec<(u16, u8)>> = LazyLock::new(|| {
    let rows = include_str!("reset.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let mut fields = row.split(' ');
        let addr = u16::from_str_radix(fields.next()?, 16).ok()?;
        Some((addr, u8::from_str_radix(fields.next()?, 16).ok()?))
    })
    .collect()
});

/// Sets the registers that do not power on as 0.
pub(super) fn load(memory: &mut XdataMemory) {
    let page = memory.main_mut();
    for (addr, value) in RESET_VALUES.iter() {
        page[usize::from(*addr)] = *value;
    }
}

/// What a register holds at power-on.
pub(super) fn value(addr: u16) -> u8 {
    RESET_VALUES.iter().find(|(at, _)| *at == addr).map_or(0, |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_a_register_once() {
        let rows = include_str!("reset.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(RESET_VALUES.len(), rows);
        assert!(RESET_VALUES.is_sorted_by(|before, next| before.0 < next.0 && next.0 >= 0x9000));
        assert_eq!((value(0xE795), value(0x9000)), (0x3B, 0));
    }
}
