//! The udev rules that let a user open a dock.

use asm2464::firmware::UsbId;

use crate::devices::Devices;

/// Path of the rules file on a Linux system.
pub const RULES_PATH: &str = "/etc/udev/rules.d/70-asmpatch.rules";

/// Returns a udev rules file that lets the user at the machine open every known unit.
///
/// The number in its name is below 73, because systemd's `73-seat-late.rules` acts on the `uaccess` tag.
pub fn udev_rules(devices: &Devices) -> String {
    let rule = |id: UsbId| {
        format!(
            "SUBSYSTEM==\"usb\", ATTR{{idVendor}}==\"{:04x}\", ATTR{{idProduct}}==\"{:04x}\", MODE=\"0660\", TAG+=\"uaccess\"\n",
            id.vendor, id.product
        )
    };
    let rules: String = devices.ids().map(rule).collect();
    format!("# Lets whoever sits at this machine open an ASM2464PD dock with asmpatch, without being root.\n{rules}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_rule_for_each_identity_in_the_kernels_spelling() {
        let mut devices = Devices::of_repository().unwrap();
        devices.name("1234:ABCD".parse().unwrap());
        let rules = udev_rules(&devices);
        for id in devices.ids() {
            let spelled = format!("ATTR{{idVendor}}==\"{:04x}\", ATTR{{idProduct}}==\"{:04x}\"", id.vendor, id.product);
            assert_eq!(rules.matches(&spelled).count(), 1);
        }
        assert_eq!(rules.lines().count(), 1 + devices.ids().count());
    }
}
