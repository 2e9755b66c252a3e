#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: the asmpatch developers
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Drives `asmpatch flash` on one host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: flash
short_description: Write firmware to ASM2464PD docks
version_added: "0.1.0"
description:
  - Runs C(asmpatch flash) for the units of a host. Leaves a unit alone that already has the image and its configuration.
  - Backs up every unit before writing it, and reads it back afterwards.
  - In check mode runs C(asmpatch flash --dry-run), which writes nothing.
  - A unit that is refused or fails does not stop the others. The task fails at the end and names each such unit.
author:
  - The asmpatch developers (@asmpatch)
options:
  image:
    description: The image on the host.
    type: path
    required: true
  receipt:
    description:
      - The receipt that C(asmpatch patch) wrote for the image.
      - Without it, C(asmpatch) uses the file named like O(image) followed by C(.toml), if there is one.
    type: path
  units:
    description:
      - The units to write. Without it, all connected units.
    type: list
    elements: dict
    suboptions:
      device:
        description:
          - The unit as C(--device) takes it, a port path, a serial number or C(virtual:DIR).
          - If you give the unit a serial number, name it by its port path, which stays the same.
        type: str
        required: true
      serial:
        description: The serial number that the unit gets, at most 20 printable ASCII characters.
        type: str
  serials:
    description:
      - The serial number with which the units' numbers begin, as in V(RACK1-0001). Each unit gets the next one; a unit that has
        one of the series keeps it. C(asmpatch flash --help) describes how they count.
      - Excludes serial numbers in O(units).
    type: str
  binary:
    description: The program's path, or its name in E(PATH).
    type: str
    default: asmpatch
  backup_dir:
    description: The folder on the host that keeps the backups.
    type: path
    required: true
  recover:
    description:
      - Whether a unit that an earlier run left in its boot loader gets the image and the configuration blocks of its own backup.
      - The backup is the newest in O(backup_dir) with the unit's serial number, or the one taken at its port before an earlier
        run gave it the serial number that it shows. If such backups have different USB4 identities, they may belong to
        different units, and none of them is used.
    type: bool
    default: true
  allow:
    description:
      - Allows what C(asmpatch) otherwise refuses. Each is the option of that name, which C(asmpatch flash --help) describes.
      - V(no-backup) is for units that can give no backup and have none. All others are still backed up. A unit at whose port
        another backup was taken, or that shows a serial number in its boot loader, also needs V(clone-identity). That unit's USB4
        identity is lost.
    type: list
    elements: str
    choices: [unproven, other-line, clone-identity, no-backup]
    default: []
attributes:
  check_mode:
    description: Can run in check mode and tell what would change.
    support: full
  diff_mode:
    description: Shows each unit before and after.
    support: full
"""

EXAMPLES = r"""
- name: Write every unit of the host
  asmpatch.fleet.flash:
    image: /var/lib/asmpatch/patched.bin
    backup_dir: /var/lib/asmpatch/backups

- name: Write two units and give each its serial number
  asmpatch.fleet.flash:
    image: /var/lib/asmpatch/patched.bin
    backup_dir: /var/lib/asmpatch/backups
    units:
      - device: 3-1.2
        serial: RACK1-0001
      - device: 4-1
        serial: RACK1-0002

- name: Write every unit of the host and number them
  asmpatch.fleet.flash:
    image: /var/lib/asmpatch/patched.bin
    backup_dir: /var/lib/asmpatch/backups
    serials: RACK1-0001
"""

RETURN = r"""
units:
  description: One document per unit, as C(asmpatch flash --json) prints it.
  returned: when asmpatch examined units
  type: list
  elements: dict
  sample:
    - device: 3-1.2
      ok: true
      changed: true
      before: {usb_id: "174C:2464", firmware: "240417, unpatched", serial: 1EFEE3619F08}
      after: {usb_id: "ADD1:0001", firmware: "240417, with status-0x2a12", serial: 1EFEE3619F08}
      backup: /var/lib/asmpatch/backups/asmpatch-backup-1EFEE3619F08-2a2dba9b
  contains:
    recovered_from:
      description: The backup whose configuration blocks the unit got.
      returned: when the unit was in its boot loader
      type: str
commands:
  description: The commands that were run.
  returned: when asmpatch was found
  type: list
  elements: list
asmpatch_version:
  description: The program's version.
  returned: when asmpatch was found
  type: str
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule

# In `asmpatch flash --json`: the error code of a unit that gives no backup, and the state of a unit in its boot loader.
NO_BACKUP = "asmpatch::flash::no_backup"
BOOT_LOADER = "boot-loader"


class Failed(Exception):
    """Asmpatch stopped before it looked at a unit."""


class Flasher:
    """The `asmpatch flash` commands of one task."""

    def __init__(self, module: AnsibleModule, binary: str) -> None:
        self.module = module
        self.commands: list[list[str]] = []
        params = module.params
        self.start = [binary, "flash", "--json", "--dry-run" if module.check_mode else "--yes"]
        self.start += ["--backup-dir", params["backup_dir"]]
        if params["receipt"]:
            self.start += ["--receipt", params["receipt"]]
        # --no-backup is added later, for units that need it.
        self.start += ["--" + name for name in params["allow"] if name != "no-backup"]

    def run(self, options: list[str]) -> list[dict]:
        """Runs one command and returns each unit's document."""
        command = self.start + options + ["--", self.module.params["image"]]
        self.commands.append(command)
        status, out, err = self.module.run_command(command)
        try:
            printed = json.loads(out)
        except ValueError:
            raise Failed("`%s` ended with %d: %s" % (" ".join(command), status, (err or out).strip())) from None
        if isinstance(printed, dict):
            raise Failed(sentence(printed["error"]))
        return printed

    def write(self, devices: list[str], serial: str | None = None) -> list[dict]:
        """Writes units. Tries those again that give no backup, as recover() describes."""
        named = ["--device=" + device for device in devices]
        series = ["--serials=" + self.module.params["serials"]] if self.module.params["serials"] else []
        units = self.run(named + (["--serial=" + serial] if serial else ["--all"] + series))
        # A second try is for one unit, so it names the number that the unit got.
        chosen = [(unit.get("plan") or {}).get("serial") if series else serial for unit in units]
        return [self.recover(unit, number) for unit, number in zip(units, chosen)]

    def recover(self, unit: dict, serial: str | None) -> dict:
        """Writes a unit that was refused because it gives no backup, if it has one or needs none.

        Returns any other unit's document unchanged.
        """
        seen, error = unit.get("before") or {}, unit.get("error") or {}
        if error.get("code") != NO_BACKUP:
            return unit
        backup = None
        if seen.get("state") == BOOT_LOADER and self.module.params["recover"]:
            backup = sure_backup(error)
            if backup is None:
                error["message"] += "; no backup in %s is certain to be this unit's" % self.module.params["backup_dir"]
        if backup is None and "no-backup" not in self.module.params["allow"]:
            return unit
        more = ["--config-from", backup] if backup else []
        more += ["--serial=" + serial] if serial else []
        try:
            [written] = self.run(["--device=" + unit["device"], "--no-backup"] + more)
        except Failed as failure:
            error["message"] += "; a second try: %s" % failure
            return unit
        return dict(written, recovered_from=backup) if backup else written


def sure_backup(error: dict) -> str | None:
    """Returns the earlier backup that asmpatch is certain is this unit's own, if there is one."""
    sure = [step for step in error.get("recovery") or [] if "backup" in step and "question" not in step]
    return sure[0]["backup"] if sure else None


def sentence(error: dict) -> str:
    """Formats an asmpatch error in one line."""
    return " ".join(("%s [%s]. %s" % (error["message"], error["code"], error.get("help") or "")).split())


def would_change(unit: dict) -> bool:
    """Whether a unit was written, or would be in a dry run."""
    return bool(unit.get("changed") or (unit.get("dry_run") and (unit.get("plan") or {}).get("write")))


def difference(unit: dict) -> dict:
    """Formats a unit before and after, for Ansible's diff mode."""
    before, plan = unit.get("before") or {}, unit.get("plan") or {}
    rows = [
        ("firmware", before.get("firmware"), plan.get("firmware")),
        ("usb-id", before.get("usb_id"), plan.get("usb_id")),
    ]
    rows += [(change["field"], change["from"], change["to"]) for change in plan.get("changes", [])]
    is_shown = would_change(unit)
    return {
        "before_header": unit["device"],
        "after_header": unit["device"],
        "before": "".join("%s: %s\n" % (name, old) for name, old, new in rows if is_shown),
        "after": "".join("%s: %s\n" % (name, new) for name, old, new in rows if is_shown),
    }


def main() -> None:
    """Runs the module."""
    unit = {"device": {"type": "str", "required": True}, "serial": {"type": "str"}}
    allowed = ["unproven", "other-line", "clone-identity", "no-backup"]
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "path", "required": True},
            "receipt": {"type": "path"},
            "units": {"type": "list", "elements": "dict", "options": unit},
            "serials": {"type": "str"},
            "binary": {"type": "str", "default": "asmpatch"},
            "backup_dir": {"type": "path", "required": True},
            "recover": {"type": "bool", "default": True},
            "allow": {"type": "list", "elements": "str", "choices": allowed, "default": []},
        },
        supports_check_mode=True,
    )
    asked, name = module.params["units"], module.params["binary"]
    binary = module.get_bin_path(name)
    if binary is None:
        module.fail_json(
            msg="%s is not on this host: install the asmpatch package, or name the program in `binary`, which is"
            " `asmpatch_binary` in the role" % name
        )
    if asked == []:
        module.fail_json(
            msg="`units` is empty (`asmpatch_units` in the role): name the units, or leave it out to write every one"
        )
    if module.params["serials"] and any(unit["serial"] for unit in asked or []):
        module.fail_json(
            msg="`serials` numbers every unit, and a unit in `units` has a `serial` of its own (`asmpatch_serials` and"
            " `asmpatch_units` in the role): give one of both"
        )
    # The variable would act as --device and leave out other units.
    os.environ.pop("ASMPATCH_DEVICE", None)
    version = module.run_command([binary, "--version"])[1].strip()
    if not version.startswith("asmpatch "):
        module.fail_json(msg="%s is not asmpatch: its --version says %r" % (binary, version[:200]))

    flasher = Flasher(module, binary)
    units: list[dict] = []
    failures: list[str] = []
    # --serial takes one unit. Units without a serial number are written together.
    plain = [unit["device"] for unit in asked or [] if not unit["serial"]]
    jobs = [(plain, None)] if plain or asked is None else []
    jobs += [([unit["device"]], unit["serial"]) for unit in asked or [] if unit["serial"]]
    for devices, serial in jobs:
        try:
            units += flasher.write(devices, serial)
        except Failed as failure:
            failures.append(str(failure))
    failures += ["%s: %s" % (unit["device"], sentence(unit["error"])) for unit in units if not unit["ok"]]

    result = {
        "changed": any(would_change(unit) for unit in units),
        "units": units,
        "commands": flasher.commands,
        "asmpatch_version": version,
        "diff": [difference(unit) for unit in units],
    }
    if failures:
        module.fail_json(msg="; ".join(failures), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
