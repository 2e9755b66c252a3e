"""Reads the metrics of `list` and `doctor` with Prometheus' own client library. `.ci/fleet` runs these tests."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

BINARY = os.environ["ASMPATCH_BIN"]


class Metrics(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-metrics-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def unit(self, name: str, scenario: str) -> str:
        (self.folder / name).mkdir()
        (self.folder / name / "bridge.toml").write_text(scenario)
        return f"virtual:{name}"

    def measured(self, *words: str, status: int) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """Runs a command and returns each metric's values by label."""
        file = self.folder / "asmpatch.prom"
        command = [BINARY, *words, "--prometheus", file]
        done = subprocess.run(command, cwd=self.folder, capture_output=True)
        self.assertEqual(done.returncode, status)
        text = file.read_text()
        self.assertEqual(file.stat().st_mode & 0o444, 0o444, "node_exporter is another user")
        families = list(text_string_to_metric_families(text))
        found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in families:
            self.assertTrue(family.documentation and family.type == "gauge", family)
            self.assertNotIn(family.name, found, "one family a name")
            values = {frozenset(sample.labels.items()): sample.value for sample in family.samples}
            self.assertEqual(len(values), len(family.samples), "no two values with the same labels")
            found[family.name] = values
        self.assertEqual(text.count("# TYPE "), len(families))
        [when] = found["asmpatch_last_run_timestamp_seconds"].values()
        self.assertLess(abs(when - time.time()), 60)
        return found

    def test_a_list_of_units(self) -> None:
        hostile = 'A"B\\C'
        named = ["--device", self.unit("a", f"serial = '{hostile}'\n"), "--device", self.unit("b", "speed = 'high'\n")]
        found = self.measured("list", *named, status=0)
        self.assertEqual(list(found["asmpatch_units"].values()), [2])
        self.assertEqual(set(found["asmpatch_last_run_success"].values()), {1})
        serials = {dict(labels).get("serial") for labels in found["asmpatch_unit_info"]}
        self.assertIn(hostile, serials)
        speeds = found["asmpatch_unit_link_speed_bytes_per_second"]
        self.assertEqual(speeds[frozenset({("device", "virtual:b")})], 60_000_000)

    def test_the_page_of_a_unit_and_a_run_that_fails_after_it(self) -> None:
        device = self.unit("a", "")
        found = self.measured("doctor", "--device", device, status=1)
        self.assertEqual(set(found["asmpatch_doctor_runtime_can_start"].values()), {0})
        verdicts: dict[str, dict[str, float]] = {}
        for labels, value in found["asmpatch_doctor_check"].items():
            names = dict(labels)
            verdicts.setdefault(names["check"], {})[names["verdict"]] = value
        for check, values in verdicts.items():
            self.assertEqual(sorted(values.values()), [0, 0, 0, 1], check)
        self.assertEqual((verdicts["firmware"]["bad"], verdicts["USB"]["good"]), (1, 1))
        for values in (found["asmpatch_doctor_request_median_seconds"], found["asmpatch_doctor_request_max_seconds"]):
            self.assertTrue(values and all(0 < value < 10 for value in values.values()))

        (self.folder / "a/bridge.toml").write_text("state = 'absent'\n")
        found = self.measured("doctor", "--device", device, status=4)
        self.assertEqual(set(found), {"asmpatch_last_run_success", "asmpatch_last_run_timestamp_seconds"})
        self.assertEqual(list(found["asmpatch_last_run_success"].values()), [0])


if __name__ == "__main__":
    unittest.main()
