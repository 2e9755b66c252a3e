//! Proof of what a unit runs, by its behaviour.
//!
//! A CPU reset proves nothing by itself: on silicon the old code seems to stay in memory, although one source says that
//! the reset loads it again. Stock and patched firmware have the same version, so that proves nothing either. Only
//! behaviour that differs between the old and the written code is a proof, if it can be tested without harm.

use asm2464::Kind;
use derive_more::Display;
use serde::Serialize;

use super::error::FlashError;
use super::plan::FlashPlan;
use crate::unit::facts::{Behaviour, differing};

impl Behaviour {
    /// Behaviour of the firmware in a plan.
    pub fn of_plan(plan: &FlashPlan) -> Self {
        let only = Self::only(plan.becomes());
        match &plan.open {
            Some(open) => Self { build: Some(open.product.clone()), ..only },
            None => Self { version: plan.version, e4_extension: plan.e4_extension, ..only },
        }
    }

    /// Returns the error if a unit should behave like `self` and behaves like `found`; `None` if nothing known differs.
    pub fn contradiction(&self, found: &Self) -> Option<FlashError> {
        let builds = match self.state == found.state {
            true => differing(self.build.clone(), found.build.clone()),
            false => Some((self.state.to_string(), found.state.to_string())),
        };
        if let Some((expected, found)) = builds {
            let label = Kind::Device.code("asmpatch::flash::build");
            return Some(FlashError::other(label, format!("the unit runs {found:?}, the image is {expected:?}")));
        }
        if let Some((expected, found)) = differing(self.version, found.version) {
            let label = Kind::Device.code("asmpatch::flash::version");
            return Some(FlashError::other(label, format!("the unit runs version {found}, the image is {expected}")));
        }
        let (expected, _) = differing(self.e4_extension, found.e4_extension)?;
        let label = Kind::Device.code("asmpatch::flash::behaviour");
        let differs = match expected {
            true => "returns none, while the image returns all",
            false => "returns all, while the image returns none",
        };
        Some(FlashError::other(label, format!("E4 of 256 bytes {differs}: the unit doesn't run what was written")))
    }
}

/// Whether a unit runs what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schemas", schemars(rename = "Runs"))]
pub enum StartedCode {
    /// It does.
    #[display("it runs what was written")]
    Written,
    /// It still runs the code from before.
    #[display("it still runs the old firmware")]
    Before,
    /// No available test can tell.
    #[display("old and new firmware behave alike, so asmpatch can't tell which one runs")]
    Unknown,
}

impl StartedCode {
    /// Judges a unit that has restarted without a power cycle, from its behaviour `before`, the behaviour of the
    /// `written` code, and its behaviour `now`.
    pub fn judge(before: &Behaviour, written: &Behaviour, now: &Behaviour) -> Self {
        if written.contradiction(now).is_some() {
            Self::Before
        } else if before.contradiction(now).is_some() {
            Self::Written
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use asm2464::firmware::{BridgeState, FirmwareVersion, Image};
    use asm2464_chip::practice;
    use asm2464_host::bridge::Port as _;

    use super::super::access::Access;
    use super::*;
    use crate::image::{Rewritable, samples};
    use crate::tests::virtual_port;

    fn of(version: u8, e4_extension: Option<bool>) -> Behaviour {
        let version = Some(FirmwareVersion([version; 6]));
        Behaviour { version, e4_extension, ..Behaviour::only(BridgeState::Vendor) }
    }

    #[test]
    fn only_what_differs_before_and_after_tells_what_runs() {
        let (short, long, mute) = (of(1, Some(false)), of(1, Some(true)), of(1, None));
        let (short, long, mute) = (|| short.clone(), || long.clone(), || mute.clone());
        let open =
            |build: &str| Behaviour { build: Some(build.to_owned()), ..Behaviour::only(BridgeState::OpenFirmware) };
        for (before, written, now, runs) in [
            (short(), long(), long(), StartedCode::Written),
            (short(), long(), short(), StartedCode::Before),
            (long(), short(), short(), StartedCode::Written),
            (long(), short(), long(), StartedCode::Before),
            (short(), short(), short(), StartedCode::Unknown),
            (long(), long(), long(), StartedCode::Unknown),
            (short(), mute(), short(), StartedCode::Unknown),
            (mute(), long(), long(), StartedCode::Unknown),
            (short(), open("custom 1"), open("custom 1"), StartedCode::Written),
            (open("custom 1"), short(), short(), StartedCode::Written),
            (open("custom 1"), short(), open("custom 1"), StartedCode::Before),
            (open("custom 1"), open("custom 2"), open("custom 2"), StartedCode::Written),
            (open("custom 1"), open("custom 1"), open("custom 1"), StartedCode::Unknown),
            (of(1, None), of(2, None), of(2, None), StartedCode::Written),
            (of(1, None), of(2, None), of(1, None), StartedCode::Before),
        ] {
            assert_eq!(StartedCode::judge(&before, &written, &now), runs, "{before}; {written}; {now}");
        }
    }

    #[test]
    fn a_plan_and_a_unit_behave_by_the_kind_of_their_firmware() {
        let mut port = virtual_port("factory = 'open'");
        let attached = port.attached().unwrap();
        let open = Behaviour { build: Some(attached.product.clone()), ..Behaviour::only(BridgeState::OpenFirmware) };
        let shown = Behaviour::of_unit(Access::open(&mut port).unwrap().bridge(), &attached);
        assert_eq!(shown, Ok(open.clone()));
        let plan = |image: &Image| {
            let proof = samples::proof(image, Rewritable::Yes);
            FlashPlan::flash(attached.clone(), [None, None], None, None, &proof, |_| Ok(())).unwrap()
        };
        assert_eq!(Behaviour::of_plan(&plan(&practice::open_image())), open);
        let mut vendor = plan(&practice::image());
        vendor.e4_extension = Some(true);
        let version = Some(practice::image().version());
        let expected = Behaviour { version, e4_extension: Some(true), ..Behaviour::only(BridgeState::Vendor) };
        assert_eq!(Behaviour::of_plan(&vendor), expected);
    }
}
