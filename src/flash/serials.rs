//! Serial numbers that count up, for several units of one run. Pure.

use std::collections::BTreeSet;
use std::str::FromStr;

use asm2464::firmware::ConfigField;

use super::backup::in_name;
use super::identity::{is_nobodys, is_placeholder};

/// A series of serial numbers: a text that stays, and a number at its end that counts up and keeps its width.
///
/// The number is hexadecimal if the text's last word consists of hexadecimal digits and has a letter, as `00F0`; else it
/// is the decimal digits at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SerialSeries {
    prefix: String,
    first: u128,
    width: usize,
    form: Form,
}

/// How a series' numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Hexadecimal { uppercase: bool },
}

impl Form {
    const fn radix(self) -> u32 {
        match self {
            Self::Decimal => 10,
            Self::Hexadecimal { .. } => 16,
        }
    }

    /// Returns the form of a whole word, or `None` if it is no hexadecimal number.
    fn hexadecimal(word: &str) -> Option<Self> {
        let is_hexadecimal = word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
        let uppercase = word.bytes().any(|byte| byte.is_ascii_uppercase());
        let lowercase = word.bytes().any(|byte| byte.is_ascii_lowercase());
        (is_hexadecimal && has_digit && uppercase != lowercase).then_some(Self::Hexadecimal { uppercase })
    }
}

impl FromStr for SerialSeries {
    type Err = String;

    fn from_str(start: &str) -> Result<Self, String> {
        if !ConfigField::Serial.accepts(start) {
            let most = ConfigField::Serial.range().len();
            return Err(format!("a serial number has at most {most} printable ASCII characters, as RACK-0001"));
        }
        if is_placeholder(start) {
            return Err(
                "docks of several makers have numbers like it: begin with a text of your own, as RACK-0001".to_owned()
            );
        }
        let of_word = start.len() - start.bytes().rev().take_while(u8::is_ascii_alphanumeric).count();
        let (mut prefix, mut number) = start.split_at(of_word);
        let form = Form::hexadecimal(number).unwrap_or(Form::Decimal);
        if form == Form::Decimal {
            let of_digits = start.len() - start.bytes().rev().take_while(u8::is_ascii_digit).count();
            (prefix, number) = start.split_at(of_digits);
        }
        let first = u128::from_str_radix(number, form.radix())
            .map_err(|_| "no number at its end counts up: write one as wide as the last one needs, as RACK-0001")?;
        Ok(Self { prefix: prefix.to_owned(), first, width: number.len(), form })
    }
}

impl SerialSeries {
    /// Returns the serial numbers from the first to the last of this width.
    fn numbers(&self) -> impl Iterator<Item = String> {
        let last = u128::from(self.form.radix()).pow(self.width as u32) - 1;
        let all = (self.first..=last).map(|number| self.written(number));
        // A number that identifies no unit is left out.
        all.filter(|serial| !is_nobodys(serial) && !is_placeholder(serial))
    }

    fn written(&self, number: u128) -> String {
        let Self { prefix, width, .. } = self;
        match self.form {
            Form::Decimal => format!("{prefix}{number:0width$}"),
            Form::Hexadecimal { uppercase: true } => format!("{prefix}{number:0width$X}"),
            Form::Hexadecimal { uppercase: false } => format!("{prefix}{number:0width$x}"),
        }
    }

    /// Returns the first serial number.
    pub fn start(&self) -> String {
        self.written(self.first)
    }

    /// Whether a serial number is one of the series.
    pub fn has(&self, serial: &str) -> bool {
        let Some(digits) = serial.strip_prefix(&self.prefix) else { return false };
        let number = u128::from_str_radix(digits, self.form.radix());
        number.is_ok_and(|number| number >= self.first && self.written(number) == serial)
    }

    /// Gives each unit a serial number, in their order; `None` once the series has no more. `own` are the units' serial
    /// numbers: a unit that has one of the series keeps it, so that a repeated run changes nothing. `in_use` are those of
    /// other units and of backups, which no unit gets; nor does it get one of `in_names`, written as in the name of a
    /// backup.
    pub fn assign(
        &self,
        own: &[Option<String>],
        in_use: &BTreeSet<String>,
        in_names: &BTreeSet<String>,
    ) -> Vec<Option<String>> {
        let mut taken = in_use.clone();
        let mut assigned = Vec::new();
        for serial in own {
            taken.extend(serial.clone());
            // Of several units with the same number, the first keeps it.
            let is_of_series = serial.as_ref().is_some_and(|serial| self.has(serial));
            assigned.push(if is_of_series && !assigned.contains(serial) { serial.clone() } else { None });
        }
        let is_free = |serial: &String| !taken.contains(serial) && !in_names.contains(&in_name(serial));
        let mut free = self.numbers().filter(is_free);
        for serial in assigned.iter_mut().filter(|serial| serial.is_none()) {
            *serial = free.next();
        }
        assigned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(start: &str, own: &[&str], in_use: &[&str]) -> Vec<String> {
        let series: SerialSeries = start.parse().unwrap();
        let own: Vec<_> = own.iter().map(|serial| Some((*serial).to_owned()).filter(|it| !it.is_empty())).collect();
        let in_use = in_use.iter().map(|serial| (*serial).to_owned()).collect();
        series.assign(&own, &in_use, &BTreeSet::new()).into_iter().map(Option::unwrap_or_default).collect()
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_by_their_form_and_keep_their_width() {
        for (start, second, third) in [
            ("RACK-0009", "RACK-0010", "RACK-0011"),
            ("DOCK0021", "DOCK0022", "DOCK0023"),
            ("cable09", "cable10", "cable11"),
            ("7", "8", "9"),
            ("LAB-00FE", "LAB-00FF", "LAB-0100"),
            ("0a9", "0aa", "0ab"),
            ("1EFEE3619F08", "1EFEE3619F09", "1EFEE3619F0A"),
            ("40000000000000000997", "40000000000000000998", "40000000000000000999"),
        ] {
            assert_eq!(assigned(start, &["", "", ""], &[]), [start, second, third]);
        }
    }

    #[test]
    fn a_start_that_can_not_count_up_is_refused_in_words() {
        for (start, expected) in [
            ("", "no number at its end"),
            ("RACK", "no number at its end"),
            ("RACK-", "no number at its end"),
            ("LAB-BEE", "no number at its end"),
            ("00fE", "no number at its end"),
            ("123456789012345678901", "at most 20 printable ASCII"),
            ("Größe1", "printable ASCII"),
            ("AAAABBBB0004", "docks of several makers"),
            ("AABBCCDD0031", "docks of several makers"),
        ] {
            let message = start.parse::<SerialSeries>().unwrap_err();
            assert!(message.contains(expected), "{start}: {message}");
        }
    }

    #[test]
    fn no_unit_gets_a_number_that_a_backup_or_another_unit_has() {
        let in_use = ["RACK-02", "RACK-03"];
        assert_eq!(assigned("RACK-01", &["", "", "RACK-04"], &in_use), ["RACK-01", "RACK-05", "RACK-04"]);
        assert_eq!(assigned("000", &[""], &[]), ["001"], "zeros are nobody's serial number");
    }

    #[test]
    fn a_unit_keeps_its_number_of_the_series_and_of_two_with_the_same_the_first_does() {
        assert_eq!(assigned("R-01", &["R-02", "FACTORY", "R-01"], &[]), ["R-02", "R-03", "R-01"]);
        assert_eq!(assigned("R-01", &["R-07", "R-07"], &[]), ["R-07", "R-01"]);
        // Numbers before the first, and those of another width, are none of the series.
        assert_eq!(assigned("R-05", &["R-04", "R-005"], &[]), ["R-05", "R-06"]);
    }

    #[test]
    fn a_series_ends_at_its_width() {
        assert_eq!(assigned("R-8", &["", "", ""], &[]), ["R-8", "R-9", ""]);
        assert_eq!(assigned("0fe", &["", "", ""], &[]), ["0fe", "0ff", "100"]);
        assert_eq!(assigned("fffe1", &["fffff"], &[]), ["fffff"]);
    }

    #[test]
    fn no_unit_gets_a_number_that_the_name_of_a_backup_has_with_its_signs_replaced() {
        let series: SerialSeries = "RACK 01".parse().unwrap();
        let in_names = BTreeSet::from(["RACK_01".to_owned(), "RACK_02".to_owned()]);
        assert_eq!(series.assign(&[None], &BTreeSet::new(), &in_names), [Some("RACK 03".to_owned())]);
    }

    proptest::proptest! {
        #[test]
        fn a_series_of_any_text_begins_with_it_and_fits_the_field(start: String) {
            if let Ok(series) = start.parse::<SerialSeries>() {
                assert_eq!(series.start(), start);
                assert!(series.has(&start));
                for serial in series.assign(&[None, None], &BTreeSet::new(), &BTreeSet::new()).into_iter().flatten() {
                    assert!(ConfigField::Serial.accepts(&serial) && series.has(&serial));
                }
            }
        }
    }
}
