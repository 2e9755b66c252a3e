//! Logical units: their numbers, and REPORT LUNS's list of them.
//!
//! Source: SAM-5, 4.7 (LUN forms); SPC-4, 6.33 (REPORT LUNS); BOT, 5.1 (bCBWLUN, 4 bits).

use std::collections::BTreeSet;

use crate::ParseError;

/// Number of a logical unit, as both transports can name it: 0 to 15. A dock with several bays has one for each bay.
#[derive(
    Debug,
    Default,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    derive_more::Display,
    serde::Serialize,
    serde::Deserialize,
)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[display("LUN {_0}")]
#[serde(try_from = "u8", into = "u8")]
pub struct Lun(u8);

impl Lun {
    /// The logical unit that takes the vendor's commands.
    pub const ZERO: Self = Self(0);
    /// How many numbers there are.
    pub const COUNT: u8 = 16;
}

impl From<Lun> for u8 {
    fn from(lun: Lun) -> Self {
        lun.0
    }
}

impl TryFrom<u8> for Lun {
    type Error = ParseError;

    fn try_from(number: u8) -> Result<Self, ParseError> {
        if number < Self::COUNT { Ok(Self(number)) } else { Err(ParseError(format!("LUN {number}: the last is 15"))) }
    }
}

/// Bytes before REPORT LUNS's list.
const HEADER_LEN: usize = 8;
/// Bytes of one of its entries.
const ENTRY_LEN: usize = 8;
/// First byte of an entry of the first level whose second byte is the number: peripheral addressing on bus 0, and
/// flat-space addressing.
const PERIPHERAL: u8 = 0x00;
const FLAT_SPACE: u8 = 0x40;
/// How many bytes of REPORT LUNS's answer asmpatch requests: enough for every [`Lun`].
pub const REPORT_LUNS_LEN: u32 = (HEADER_LEN + ENTRY_LEN * Lun::COUNT as usize) as u32;

/// Parses REPORT LUNS's answer. Returns each logical unit once, in order. How an entry is addressed doesn't matter:
/// Bulk-Only has nothing but the number, and a unit that takes another form of it refuses what is asked.
///
/// # Errors
/// The answer ends before its list, or the list names a logical unit that can't be asked.
pub fn listed_luns(data: &[u8]) -> Result<Vec<Lun>, ParseError> {
    let (Some(list_len), Some(list)) = (data.first_chunk(), data.get(HEADER_LEN..)) else {
        let found = data.len();
        return Err(ParseError(format!("a list of LUNs has at least {HEADER_LEN} bytes; the unit sent {found}")));
    };
    let listed = u32::from_be_bytes(*list_len) as usize / ENTRY_LEN;
    let mut luns = BTreeSet::new();
    let mut found = 0;
    for entry in list.chunks_exact(ENTRY_LEN).take(listed) {
        found += 1;
        let lun = match *entry {
            [PERIPHERAL | FLAT_SPACE, number, 0, 0, 0, 0, 0, 0] => Lun::try_from(number).ok(),
            _ => None,
        };
        let Some(lun) = lun else {
            let entry = crate::digest::to_hex(entry, " ");
            return Err(ParseError(format!("the unit lists the LUN {entry}, which asmpatch can't ask")));
        };
        luns.insert(lun);
    }
    if found < listed {
        return Err(ParseError(format!("the unit lists {listed} LUNs; the list ends after {found}")));
    }
    Ok(luns.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(listed: u32, entries: &[[u8; 8]]) -> Vec<u8> {
        [&(listed * 8).to_be_bytes()[..], &[0; 4], &entries.concat()].concat()
    }

    fn entry(number: u8) -> [u8; 8] {
        [0, number, 0, 0, 0, 0, 0, 0]
    }

    #[test]
    fn four_bays_are_four_luns_and_what_follows_the_list_is_none() {
        let four: Vec<[u8; 8]> = [2, 0, 1, 3, 3].map(entry).into();
        let found = listed_luns(&answer(5, &four)).unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["LUN 0", "LUN 1", "LUN 2", "LUN 3"]);
        assert_eq!(listed_luns(&answer(1, &[entry(0), entry(1)])), Ok(vec![Lun::ZERO]));
        assert_eq!(listed_luns(&answer(0, &[])), Ok(vec![]));
    }

    #[test]
    fn a_lun_in_flat_space_is_its_number() {
        let flat = [0, 3].map(|number| [0x40, number, 0, 0, 0, 0, 0, 0]);
        assert_eq!(listed_luns(&answer(3, &[flat[0], flat[1], entry(3)])), Ok(vec![Lun(0), Lun(3)]));
    }

    #[test]
    fn a_list_that_is_cut_off_or_names_a_lun_out_of_reach_is_an_error() {
        assert!(listed_luns(&[0; 7]).is_err());
        assert!(listed_luns(&answer(3, &[entry(0), entry(1)])).is_err());
        assert!(listed_luns(&answer(u32::MAX / 8, &[entry(0)])).is_err());
        assert!(listed_luns(&answer(1, &[entry(16)])).is_err());
        assert!(listed_luns(&answer(1, &[[0x40, 16, 0, 0, 0, 0, 0, 0]])).is_err());
        assert!(listed_luns(&answer(1, &[[0x41, 1, 0, 0, 0, 0, 0, 0]])).is_err());
        assert!(listed_luns(&answer(1, &[[0, 1, 0, 1, 0, 0, 0, 0]])).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_answer_gives_at_most_sixteen_luns_each_once(data: Vec<u8>, listed: u8, numbers: Vec<u8>) {
            let _ = listed_luns(&data);
            let entries: Vec<[u8; 8]> = numbers.iter().copied().map(entry).collect();
            if let Ok(luns) = listed_luns(&answer(listed.into(), &entries)) {
                proptest::prop_assert!(luns.len() <= 16 && luns.is_sorted_by(|one, other| one < other));
                proptest::prop_assert!(luns.iter().all(|lun| numbers.contains(&u8::from(*lun))));
            }
        }
    }
}
