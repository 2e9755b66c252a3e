"""Tests the Ansible role on local hosts with virtual units. `.ci/fleet` runs these tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

BINARY = os.environ["ASMPATCH_BIN"]
# A unit of one of the 22 hosts loses its power half-way. Another host sets its units' serial numbers.
HOSTS = [f"host{number:02}" for number in range(1, 23)]
BROKEN, NUMBERED, COUNTED = "host07", "host03", "host05"
SOME = {"host01", NUMBERED, COUNTED, BROKEN}
PLAY = [{"hosts": "all", "gather_facts": False, "roles": ["asmpatch.fleet.flash"]}]
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass
class Run:
    """A finished play."""

    status: int
    out: str
    report: str

    def hosts(self, column: int) -> set[str]:
        """Returns the hosts with a count above zero in a column of the recap."""
        return {row[0] for row in RECAP.findall(self.out) if int(row[column]) > 0}

    @property
    def changed(self) -> set[str]:
        return self.hosts(2)

    @property
    def failed(self) -> set[str]:
        return self.hosts(4)

    def row(self, *cells: str) -> str:
        """Finds the report's only row with these cells."""
        rows = [line for line in self.report.splitlines() if all(f"| {cell} " in line for cell in cells)]
        assert len(rows) == 1, f"{cells} in {self.report}"
        return rows[0]


class Fleet:
    """Hosts in a temporary folder, and a play that runs the role on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([BINARY, "demo", "--keep", folder / "demo"], check=True, capture_output=True)
        (folder / "play.json").write_text(json.dumps(PLAY))

    def unit(self, host: str, name: str, scenario: str = "") -> dict[str, str]:
        """Makes a virtual unit and returns its entry for `asmpatch_units`."""
        path = self.folder / host / name
        path.mkdir(parents=True, exist_ok=True)
        (path / "bridge.toml").write_text(scenario)
        return {"device": f"virtual:{path}"}

    def run(self, hosts: dict[str, dict[str, Any]], *options: str) -> Run:
        """Runs the role on hosts with these variables."""
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "asmpatch_binary": BINARY,
            "asmpatch_image": str(self.folder / "demo/patched.bin"),
            "asmpatch_directory": f"{self.folder}/{{{{ inventory_hostname }}}}",
        }
        (self.folder / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
        command = ["ansible-playbook", "-i", "inventory.json", "play.json", "--forks", "4", *options]
        env = os.environ | {"ANSIBLE_PIPELINING": "1"}
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=900)
        report = self.folder / "asmpatch-report.md"
        return Run(done.returncode, done.stdout + done.stderr, report.read_text() if report.exists() else "")

    def contents(self) -> dict[Path, str]:
        """Digests every file of the hosts."""
        files = [path for path in self.folder.glob("host*/**/*") if path.is_file()]
        return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class WholeFleet(unittest.TestCase):
    """Check mode, a run that fails on one unit, the run that recovers it, a run with nothing to do."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-fleet-")
        cls.addClassCleanup(folder.cleanup)
        fleet = Fleet(Path(folder.name))
        hosts: dict[str, dict[str, Any]] = {
            host: {"asmpatch_units": [fleet.unit(host, "a"), fleet.unit(host, "b")]} for host in HOSTS
        }
        for number, unit in enumerate(hosts[NUMBERED]["asmpatch_units"]):
            unit["serial"] = f"RACK1-{number:04}"
        hosts[COUNTED]["asmpatch_serials"] = "RACK5-0009"
        # The power fails after the first part of the firmware. By then the unit has its requested serial number.
        fleet.unit(BROKEN, "b", "power-loss-after = 70000\n")
        hosts[BROKEN]["asmpatch_units"][1]["serial"] = "RACK2-0001"

        # A dry run would create the virtual units' missing flash files, so make them first.
        every = [
            option
            for host in hosts.values()
            for unit in host["asmpatch_units"]
            for option in ("--device", unit["device"])
        ]
        subprocess.run([BINARY, "list", *every], check=True, capture_output=True)
        cls.before = fleet.contents()
        # Check mode and the last run use only some hosts, because Ansible takes 0.3 s for each task on a host.
        some = ["--limit", ",".join(SOME)]
        cls.check = fleet.run(hosts, "--check", "--diff", *some)
        cls.after_check = fleet.contents()
        cls.first = fleet.run(hosts)
        fleet.unit(BROKEN, "b")
        cls.second = fleet.run(hosts)
        cls.third = fleet.run(hosts, *some)
        cls.backups = sorted(path.parent for path in fleet.folder.glob("host*/backups/*/backup.toml"))
        listed = json.loads(
            subprocess.run([BINARY, "list", "--json", *every], check=True, capture_output=True).stdout
        )
        schema = Path(__file__).resolve().parents[2] / "schemas/list.v4.json"
        Draft202012Validator(json.loads(schema.read_text())).validate(listed)
        cls.units = listed["units"]

    def test_check_mode_tells_what_would_change_and_writes_nothing(self) -> None:
        self.assertEqual(self.check.status, 0, self.check.out)
        self.assertEqual(self.check.changed, SOME)
        self.assertEqual(self.after_check, self.before)
        self.assertIn("8 to be written", self.check.report)

    def test_the_diff_shows_what_a_unit_is_and_becomes(self) -> None:
        for line in ["-usb-id: 174C:2464", "+usb-id: ADD1:0001", '+serial: "RACK1-0001"']:
            self.assertIn(line, self.check.out)

    def test_one_unit_that_loses_its_power_stops_no_other(self) -> None:
        self.assertEqual(self.first.failed, {BROKEN}, self.first.out)
        self.assertEqual(self.first.changed, set(HOSTS) - {BROKEN})
        self.assertIn("43 written, 0 to be written, 0 already up to date, 1 failed", self.first.report)
        self.assertIn("**failed**: the unit disappeared", self.first.row(BROKEN, f"virtual:{self.of(BROKEN, 'b')}"))

    def test_the_report_has_the_command_that_recovers_the_unit_by_hand(self) -> None:
        self.assertRegex(self.first.report, rf"`asmpatch flash \S*/{BROKEN}/patched.bin .*--config-from \S+ ")

    def test_the_next_run_recovers_it_and_writes_nothing_else(self) -> None:
        self.assertEqual(self.second.status, 0, self.second.out)
        self.assertEqual(self.second.changed, {BROKEN})
        self.assertIn("1 written, 0 to be written, 43 already up to date, 0 failed", self.second.report)
        self.assertIn("recovered with", self.second.row(BROKEN, f"virtual:{self.of(BROKEN, 'b')}"))

    def test_a_run_with_nothing_to_do_changes_nothing(self) -> None:
        self.assertEqual((self.third.status, self.third.changed), (0, set()), self.third.out)
        self.assertIn("8 already up to date", self.third.report)

    def test_every_unit_has_its_own_serial_number_and_a_backup(self) -> None:
        serials = [unit["serial"] for unit in self.units]
        self.assertEqual(len(set(serials)), 44)
        self.assertLessEqual({"RACK1-0000", "RACK1-0001", "RACK2-0001", "RACK5-0009", "RACK5-0010"}, set(serials))
        self.assertEqual({unit["usb_id"] for unit in self.units}, {"ADD1:0001"})
        self.assertEqual(len(self.backups), 44)
        for unit in self.units:
            self.assertIn(f"| {unit['serial']} |", self.second.report)

    def of(self, host: str, name: str) -> Path:
        [device] = [unit["device"] for unit in self.units if f"/{host}/{name}" in unit["device"]]
        return Path(device.removeprefix("virtual:"))


class BadInput(unittest.TestCase):
    """Hosts on which nothing can be written: each reports the reason, and the others continue."""

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-fleet-")
        cls.addClassCleanup(folder.cleanup)
        cls.fleet = fleet = Fleet(Path(folder.name))
        busy, erased = fleet.unit("host-busy", "u"), 'factory = "no-image"'
        hosts: dict[str, dict[str, Any]] = {
            "host-good": {"asmpatch_units": [fleet.unit("host-good", "u")]},
            "host-no-binary": {
                "asmpatch_units": [fleet.unit("host-no-binary", "u")],
                "asmpatch_binary": "asmpatch-is-not-here",
            },
            "host-other-binary": {
                "asmpatch_units": [fleet.unit("host-other-binary", "u")],
                "asmpatch_binary": "/bin/echo",
            },
            "host-no-unit": {"asmpatch_units": [fleet.unit("host-no-unit", "u", 'state = "absent"')]},
            "host-no-port": {},
            "host-empty": {"asmpatch_units": []},
            "host-busy": {"asmpatch_units": [busy]},
            "host-lost": {"asmpatch_units": [fleet.unit("host-lost", "u", erased)]},
            "host-allowed": {
                "asmpatch_units": [fleet.unit("host-allowed", "u", erased)],
                "asmpatch_allow": ["no-backup", "clone-identity"],
            },
            "host-away": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9},
        }
        for host in hosts.values():
            for unit in host.get("asmpatch_units", []):
                subprocess.run([BINARY, "list", "--device", unit["device"]], capture_output=True)
        socket = fleet.folder / "socket"
        command = [BINARY, "virtual", "serve", "--listen", f"unix:{socket}", "--device", busy["device"]]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                while not socket.exists() and server.poll() is None:
                    time.sleep(0.05)
                before = fleet.contents()
                cls.run_of_all = fleet.run(hosts)
                after = fleet.contents()
            finally:
                server.terminate()
        cls.written = {
            path.relative_to(fleet.folder).parts[0]
            for path in after
            if path.name == "flash.bin" and after[path] != before.get(path)
        }
        twice = {
            host: {"asmpatch_units": [fleet.unit(host, "v") | {"serial": "TWICE"}]} for host in ("host-1", "host-2")
        }
        before = fleet.contents()
        cls.run_of_twice = fleet.run(twice)
        cls.twice_is_untouched = before == fleet.contents()

    def assert_refused(self, host: str, why: str) -> None:
        self.assertIn(host, self.run_of_all.failed, self.run_of_all.out)
        self.assertNotIn(host, self.run_of_all.changed)
        self.assertNotIn(host, self.written)
        self.assertRegex(self.run_of_all.row(host), why)
        self.assertRegex(self.run_of_all.out, why)

    def test_a_host_without_a_fault_is_written_whatever_the_others_are(self) -> None:
        self.assertEqual(self.written, {"host-good", "host-allowed"})
        self.assertFalse({"host-good", "host-allowed"} & self.run_of_all.failed)

    def test_a_host_without_the_binary(self) -> None:
        self.assert_refused("host-no-binary", "asmpatch-is-not-here is not on this host: install the asmpatch package")
        self.assertIn("`asmpatch_binary` in the role", self.run_of_all.row("host-no-binary"))

    def test_the_report_counts_each_failure_that_it_lists(self) -> None:
        failed = self.run_of_all.report.count("**failed**") + self.run_of_all.report.count("**not reached**")
        self.assertGreater(failed, 7)
        self.assertIn(f", {failed} failed.", self.run_of_all.report)

    def test_a_binary_that_is_another_program(self) -> None:
        self.assert_refused("host-other-binary", "/bin/echo is not asmpatch")

    def test_a_host_without_a_unit(self) -> None:
        self.assert_refused("host-no-unit", "is not on the bus")

    def test_a_host_without_a_bridge_on_usb(self) -> None:
        self.assert_refused("host-no-port", r"asmpatch::(usb::unavailable|unit::none)")

    def test_an_empty_list_of_units_is_not_every_unit(self) -> None:
        self.assert_refused("host-empty", "`units` is empty")

    def test_a_unit_in_use(self) -> None:
        self.assert_refused("host-busy", "in use")

    def test_a_boot_loader_without_a_backup_of_its_own(self) -> None:
        self.assert_refused("host-lost", "is certain to be this unit's")

    def test_a_boot_loader_without_a_backup_is_written_where_that_is_allowed(self) -> None:
        self.assertIn("| written", self.run_of_all.row("host-allowed"))

    def test_a_host_that_can_not_be_reached(self) -> None:
        self.assertIn("not reached", self.run_of_all.row("host-away"))

    def test_one_serial_number_for_two_units_of_the_fleet(self) -> None:
        self.assertNotEqual(self.run_of_twice.status, 0)
        self.assertIn("several units the same serial number: TWICE, TWICE", self.run_of_twice.out)
        self.assertTrue(self.twice_is_untouched)


if __name__ == "__main__":
    unittest.main()
