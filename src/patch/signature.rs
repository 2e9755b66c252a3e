//! Signatures: code with wildcards, by which a patch finds its place in an image that it has no hunks for.

use std::str::FromStr;

use asm2464::firmware::{Bank, BodyOffset, Image};
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

use super::hunk::{Hunk, HunkAddress};

/// The fewest bytes of a signature that are no wildcards. With less, code would match by chance.
const MIN_FIXED: usize = 6;
/// The most bytes of a signature. No routine is longer.
const MAX_LEN: usize = 256;

/// Bytes and wildcards, written `80 06 12 ?? ??`. White space doesn't count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Option<u8>>);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits: Vec<char> = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let byte = |pair: &[char]| match *pair {
            ['?', '?'] => Ok(None),
            [high, low] => match (high.to_digit(16), low.to_digit(16)) {
                (Some(high), Some(low)) => Ok(Some((high << 4 | low) as u8)),
                _ => Err(format!("{:?} is neither two hexadecimal digits nor ??", String::from_iter(pair))),
            },
            _ => Err("odd number of hexadecimal digits".to_owned()),
        };
        digits.chunks(2).map(byte).collect::<Result<_, _>>().map(Self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Pattern {
    /// Whether these bytes, of the pattern's length, match.
    fn matches(&self, bytes: &[u8]) -> bool {
        self.0.iter().zip(bytes).all(|(wanted, found)| wanted.is_none_or(|wanted| wanted == *found))
    }

    /// Every place in a body where the pattern matches, ascending.
    fn places(&self, body: &[u8]) -> Vec<usize> {
        let windows = body.windows(self.0.len().max(1)).enumerate();
        windows.filter(|(_, bytes)| self.matches(bytes)).map(|(at, _)| at).collect()
    }

    /// The pattern's bytes, with those of `found` for its wildcards.
    fn filled(&self, found: &[u8]) -> Vec<u8> {
        self.0.iter().zip(found).map(|(byte, found)| byte.unwrap_or(*found)).collect()
    }

    fn fixed(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

/// Code that a patch looks for and what it puts there. The wildcards stay what they are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The area that the code must be in.
    #[serde(deserialize_with = "bank")]
    pub bank: Bank,
    /// The unpatched code.
    pub code: Pattern,
    /// The patched code: as long, with wildcards at the same places.
    pub new: Pattern,
    /// A note on the code, for people.
    #[serde(default)]
    pub note: Option<String>,
}

fn bank<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bank, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "c" => Ok(Bank::Common),
        "b0" => Ok(Bank::Bank0),
        "b1" => Ok(Bank::Bank1),
        other => Err(de::Error::custom(format!("a bank is \"c\", \"b0\" or \"b1\", {other:?} is not"))),
    }
}

/// Reasons a signature has no place in an image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotLocated {
    /// The code is nowhere in the image.
    #[error("its code is not in the image")]
    Nowhere,
    /// The code is in several places, so none is known to be the right one.
    #[error("its code is in {} places, not in one: {}", .0.len(), list(.0))]
    Several(Vec<HunkAddress>),
    /// The code is in another area than it must be.
    #[error("its code is at {at}, not in {}", area(*.bank))]
    OtherBank {
        /// The place.
        at: HunkAddress,
        /// The area that it must be in.
        bank: Bank,
    },
}

/// The most places that are listed.
const MAX_LISTED: usize = 8;

fn list(places: &[HunkAddress]) -> String {
    let shown: Vec<String> = places.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = if places.len() > MAX_LISTED { " and more" } else { "" };
    format!("{}{more}", shown.join(", "))
}

const fn area(bank: Bank) -> &'static str {
    match bank {
        Bank::Common => "the common area",
        Bank::Bank0 => "bank 0",
        Bank::Bank1 => "bank 1",
    }
}

impl Signature {
    /// What is wrong with the definition; `None` if nothing is.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let (code, new) = (&self.code.0, &self.new.0);
        let is_open = |pattern: &[Option<u8>]| pattern.first() == Some(&None) || pattern.last() == Some(&None);
        if self.code.fixed() < MIN_FIXED {
            return Some("has fewer than 6 bytes that are no wildcards");
        }
        if code.len() > MAX_LEN {
            return Some("has more than 256 bytes");
        }
        if is_open(code) {
            return Some("begins or ends with a wildcard");
        }
        if code.len() != new.len() || code.iter().zip(new).any(|(code, new)| code.is_none() != new.is_none()) {
            return Some("has new code of another length, or with wildcards at other places");
        }
        (code == new).then_some("has new code that is the old one")
    }

    /// Finds the code, which must be in the image exactly once, in its bank.
    ///
    /// # Errors
    /// [`NotLocated`].
    pub fn locate(&self, image: &Image) -> Result<Hunk, NotLocated> {
        self.place(&self.code, image)
    }

    /// Finds the patched code, as [`Signature::locate`] finds the unpatched one. `None` too if the unpatched code is
    /// there: the patch would have changed it.
    pub(super) fn locate_patched(&self, image: &Image) -> Option<Hunk> {
        if !self.code.places(image.body()).is_empty() {
            return None;
        }
        self.place(&self.new, image).ok()
    }

    fn place(&self, pattern: &Pattern, image: &Image) -> Result<Hunk, NotLocated> {
        let address = |at: usize| HunkAddress::from(BodyOffset(at as u32));
        let places = pattern.places(image.body());
        let at = match places[..] {
            [] => return Err(NotLocated::Nowhere),
            [at] => at,
            _ => return Err(NotLocated::Several(places.into_iter().map(address).collect())),
        };
        let end = at + pattern.0.len();
        let bank_of = |at: usize| BodyOffset(at as u32).code_address().map(|address| address.bank());
        if [at, end - 1].map(bank_of) != [Some(self.bank); 2] {
            return Err(NotLocated::OtherBank { at: address(at), bank: self.bank });
        }
        let found = &image.body()[at..end];
        Ok(Hunk {
            at: address(at),
            expect: self.code.filled(found),
            new: self.new.filled(found),
            instruction: None,
            note: self.note.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status() -> Signature {
        toml::from_str(
            "bank = 'c'\ncode = '80 06 12 ?? ?? 12 ?? ?? 7f 0a 22'\nnew = '80 06 12 ?? ?? 12 ?? ?? 7f 05 22'",
        )
        .unwrap()
    }

    /// An image of zeros with the status code at these places.
    fn image(places: &[usize]) -> Image {
        let mut body = vec![0; 0x1_7ED6];
        for at in places {
            body[*at..*at + 11].copy_from_slice(&[0x80, 6, 0x12, 0x1B, 0x3B, 0x12, 0x1C, 0x3A, 0x7F, 0x0A, 0x22]);
        }
        Image::from_body(body).unwrap()
    }

    #[test]
    fn code_that_is_there_once_in_its_bank_is_found_and_keeps_its_operands() {
        let hunk = status().locate(&image(&[0x2A05])).unwrap();
        assert_eq!(hunk.at.to_string(), "c:0x2A05 (file 0x02a09)");
        assert_eq!(hunk.new, [0x80, 6, 0x12, 0x1B, 0x3B, 0x12, 0x1C, 0x3A, 0x7F, 0x05, 0x22]);
        let mut patched = image(&[0x2A05]);
        assert!(patched.replace(hunk.at.body_offset(), &hunk.new));
        assert_eq!(status().locate(&patched), Err(NotLocated::Nowhere));
        assert_eq!(status().locate_patched(&patched), Some(hunk));
        assert_eq!(status().locate_patched(&image(&[0x2A05])), None);
    }

    #[test]
    fn no_place_two_places_and_another_bank_are_refused_with_what_was_found() {
        let refused = |places: &[usize]| status().locate(&image(places)).unwrap_err().to_string();
        assert_eq!(refused(&[]), "its code is not in the image");
        let both = "c:0x2A05 (file 0x02a09), b0:0x9000 (file 0x09004)";
        assert_eq!(refused(&[0x2A05, 0x9000]), format!("its code is in 2 places, not in one: {both}"));
        assert_eq!(refused(&[0x9000]), "its code is at b0:0x9000 (file 0x09004), not in the common area");
        // Code that runs from the common area into bank 0 is in neither.
        assert!(matches!(status().locate(&image(&[0x7FFA])), Err(NotLocated::OtherBank { .. })));
        // A place that is patched beside one that is not: which one the patch was made at can't be told.
        let mut half = image(&[0x2A05, 0x3000]);
        assert!(half.replace(BodyOffset(0x2A05 + 9), &[0x05]));
        assert_eq!(status().locate_patched(&half), None);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, expected) in [
            ("80 0", "odd number"),
            ("8g", "\"8g\" is neither"),
            ("?0", "neither"),
            ("é0", "neither"),
            ("80 ??\n 7f", ""),
        ] {
            match text.parse::<Pattern>() {
                Ok(pattern) => assert!(expected.is_empty() && pattern.0.len() == 3, "{text}"),
                Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{text}: {why}"),
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_an_error(text: String) {
            let _ = text.parse::<Pattern>();
        }

        /// What the matcher finds is what a search by hand finds: at each place, byte by byte.
        #[test]
        fn every_match_is_found_and_nothing_else(
            body in proptest::collection::vec(0u8..3, 0..300),
            pattern in proptest::collection::vec(proptest::option::of(0u8..3), 1..6),
        ) {
            let text: String = pattern.iter().map(|byte| byte.map_or("??".to_owned(), |byte| format!("{byte:02X}"))).collect();
            let parsed: Pattern = text.parse().unwrap();
            let mut expected = Vec::new();
            for at in 0..body.len() {
                let mut is_match = at + pattern.len() <= body.len();
                for (offset, wanted) in pattern.iter().enumerate() {
                    is_match = is_match && (wanted.is_none() || body.get(at + offset).copied() == *wanted);
                }
                if is_match {
                    expected.push(at);
                }
            }
            prop_assert_eq!(parsed.places(&body), expected);
        }

        /// Wherever the code is, what is put there comes out again, and no other byte changes.
        #[test]
        fn a_located_change_is_undone(at in 0usize..0x1_7EC0, operands: [u8; 4]) {
            let mut stock = image(&[at]);
            prop_assume!(stock.replace(BodyOffset(at as u32 + 3), &operands[..2]));
            prop_assume!(stock.replace(BodyOffset(at as u32 + 6), &operands[2..]));
            if let Ok(hunk) = status().locate(&stock) {
                let mut patched = stock.clone();
                prop_assert!(patched.replace(hunk.at.body_offset(), &hunk.new));
                let changed = patched.body().iter().zip(stock.body()).filter(|(new, old)| new != old).count();
                prop_assert_eq!(changed, 1);
                let undo = status().locate_patched(&patched).unwrap();
                prop_assert!(patched.replace(undo.at.body_offset(), &undo.expect));
                prop_assert_eq!(patched, stock);
            }
        }
    }
}
