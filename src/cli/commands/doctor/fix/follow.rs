//! Which unit a run is about, while commands restart it and hands move it.

use asm2464::AnyFailure;
use asm2464::escape::Escape as _;
use asm2464::interrupt::Interrupt;
use asm2464_host::bridge::{Location, UnitInfo};

use crate::cli::given::arguments::UnitArgs;
use crate::cli::words::ask;
use crate::unit;

/// The unit of a run. A serial number counts only at the start: commands may change it. From then on the unit is where
/// the last command left it.
#[derive(Debug)]
pub struct Followed {
    /// Where it is.
    pub location: Location,
    /// What it was when it was last examined.
    unit: UnitInfo,
    /// The units of this host before the user took it into their hands; `None` if nobody did.
    before: Option<Vec<UnitInfo>>,
}

impl Followed {
    /// Follows this unit.
    pub fn of(unit: &UnitInfo) -> Self {
        Self { location: unit.location.clone(), unit: unit.clone(), before: None }
    }

    /// Notes what the unit is now.
    pub fn is_now(&mut self, unit: &UnitInfo) {
        self.location = unit.location.clone();
        self.unit = unit.clone();
    }

    /// Notes which units there are, before the user may move one.
    pub fn leave_to_hands(&mut self, ids: &UnitArgs) {
        self.before = Some(units(ids));
    }

    /// Finds the unit after the user may have moved it: at its port or, with its serial number, at another; or the only
    /// one that has arrived, if the user says that it is the unit. Returns whether it is known which one it is. A unit
    /// that is away is known: it is looked for at its port.
    ///
    /// # Errors
    /// On Ctrl-C.
    pub fn find(&mut self, ids: &UnitArgs, can_ask: bool, interrupt: Interrupt<'_>) -> Result<bool, AnyFailure> {
        let Some(before) = self.before.take() else { return Ok(true) };
        if self.location.is_virtual() {
            return Ok(true);
        }
        match self.among(&before, &units(ids)) {
            Place::There => Ok(true),
            Place::At(unit) => {
                self.is_now(&unit);
                Ok(true)
            }
            Place::Perhaps(unit) if can_ask => {
                let question = format!("{} has arrived. Is it the same dock?", unit.to_string().shown());
                if !ask::is_yes(&question, interrupt)? {
                    return Ok(false);
                }
                self.is_now(&unit);
                Ok(true)
            }
            Place::Perhaps(_) | Place::Unknown => Ok(false),
        }
    }

    /// Judges where it is among the units `now`, of which those in `before` were there before.
    fn among(&self, before: &[UnitInfo], now: &[UnitInfo]) -> Place {
        let is_it = |unit: &&UnitInfo| (unit.id, &unit.serial) == (self.unit.id, &self.unit.serial);
        if now.iter().filter(is_it).any(|unit| unit.location == self.location) {
            return Place::There;
        }
        let was_there =
            |unit: &UnitInfo| before.iter().any(|old| (&old.location, &old.serial) == (&unit.location, &unit.serial));
        let arrived: Vec<&UnitInfo> = now.iter().filter(|unit| !was_there(unit)).collect();
        let mut same = arrived.iter().filter(|unit| !unit.serial().is_empty() && unit.serial == self.unit.serial);
        match (same.next(), same.next(), arrived.as_slice()) {
            (Some(unit), None, _) => Place::At((*unit).clone()),
            (None, None, [only]) => Place::Perhaps((*only).clone()),
            (None, None, []) => Place::There,
            _ => Place::Unknown,
        }
    }
}

/// Where a unit is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// At its port, or away.
    There,
    /// This one, by its serial number.
    At(UnitInfo),
    /// Perhaps this one, which has arrived.
    Perhaps(UnitInfo),
    /// Nobody knows.
    Unknown,
}

/// The units of this host; none if the buses can't be searched.
fn units(ids: &UnitArgs) -> Vec<UnitInfo> {
    ids.load().ok().and_then(|devices| unit::list(&devices).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::unit;

    #[test]
    fn a_unit_is_followed_by_its_serial_number_and_another_one_only_if_the_user_says_so() {
        let followed = Followed::of(&unit("3-1", "A"));
        let (a, b, c) = (unit("3-1", "A"), unit("3-2", "B"), unit("2-1", "A"));
        let before = [a.clone(), b.clone()];
        assert_eq!(followed.among(&before, &before), Place::There);
        assert_eq!(followed.among(&before, std::slice::from_ref(&b)), Place::There, "it is away");
        assert_eq!(followed.among(&before, &[b.clone(), c.clone()]), Place::At(c.clone()));
        let other = unit("3-1", "C");
        assert_eq!(followed.among(&before, &[other.clone(), b.clone()]), Place::Perhaps(other.clone()));
        assert_eq!(followed.among(&before, &[b.clone(), other, unit("4-1", "D")]), Place::Unknown);
        assert_eq!(followed.among(&before, &[b, c, unit("4-1", "A")]), Place::Unknown, "two have its serial number");
    }
}
