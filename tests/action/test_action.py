"""Runs each step of action.yml as GitHub's runner does, but with local files. `.ci/action` runs these tests."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import types
import unittest
from pathlib import Path
from typing import NamedTuple

import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ["ASMPATCH_BIN"])
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


class Step(NamedTuple):
    """A finished step."""

    status: int
    out: str
    summary: str
    output: dict[str, str]
    path: str


class ActionTest(unittest.TestCase):
    """A work folder with images, and a PATH with asmpatch."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-action-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/asmpatch").symlink_to(BINARY)
        self.work = self.folder / "work"
        self.work.mkdir()

    def images(self) -> Path:
        """Makes the demo's images: stock.bin, patched.bin and its receipt."""
        subprocess.run([BINARY, "demo", "--keep", self.folder / "demo"], check=True, capture_output=True)
        for name in ("stock.bin", "patched.bin", "patched.bin.toml"):
            shutil.copy(self.folder / "demo" / name, self.work / name)
        return self.work

    def step(
        self, name: str, inputs: dict[str, str], github: dict[str, str] | None = None, tools: str | None = None
    ) -> Step:
        """Runs the step with this name, with its `env` evaluated as on GitHub."""
        [step] = [step for step in ACTION["runs"]["steps"] if step["name"] == name]
        context = {f"inputs.{key}": value.get("default", "") for key, value in ACTION["inputs"].items()}
        context |= {f"inputs.{key}": value for key, value in inputs.items()}
        context |= {f"github.{key}": value for key, value in (github or {}).items()} | {"github.action_path": str(ROOT)}

        def evaluated(text: str) -> str:
            def first(match: re.Match[str]) -> str:
                return next((value for term in match[1].split("||") if (value := context.get(term.strip()))), "")

            return re.sub(r"\$\{\{(.*?)\}\}", first, text)

        files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        env = {key: evaluated(value) for key, value in step["env"].items()} | {
            key: str(path) for key, path in files.items()
        }
        env |= {
            "PATH": tools or f"{self.folder}/bin:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.folder),
            "RUNNER_OS": "Linux",
            "RUNNER_ARCH": "X64",
            "GITHUB_SERVER_URL": f"file://{self.folder}/server",
        }
        env |= {key: value for key, value in (github or {}).items() if key.isupper()}
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(bash, cwd=self.work, env=env, capture_output=True, text=True)
        output = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        text = done.stdout + done.stderr
        return Step(
            done.returncode, text, files["GITHUB_STEP_SUMMARY"].read_text(), output, files["GITHUB_PATH"].read_text()
        )


class Verify(ActionTest):
    """The step that verifies."""

    def test_valid_images_give_a_summary_and_no_annotation(self) -> None:
        self.images()
        done = self.step("Verify", {"files": "*.bin\nstock.bin\n"})
        self.assertEqual(done.status, 0, done.out)
        self.assertNotIn("::error", done.out)
        self.assertIn("2 of 2 images are valid", done.summary)
        self.assertRegex(
            done.summary, r"\| patched.bin \| practice \| .*status-0x2a12.* \| patched.bin.toml \| \d+ checks \| ok \|"
        )
        self.assertEqual(done.output["ok"], "true")
        report = json.loads(Path(done.output["report"]).read_text())
        self.assertEqual([entry["file"] for entry in report], ["patched.bin", "stock.bin"])
        schema = json.loads((ROOT / "schemas/verify.v4.json").read_text())
        Draft202012Validator(schema).validate(report)

    def test_a_damaged_image_is_annotated_and_the_others_are_still_verified(self) -> None:
        work = self.images()
        image = bytearray((work / "patched.bin").read_bytes())
        image[0x5000] ^= 0xFF
        (work / "damaged.bin").write_bytes(image)
        done = self.step("Verify", {"files": "*.bin"})
        self.assertEqual(done.status, 1, done.out)
        self.assertIn("::error file=damaged.bin,title=asmpatch%3A%3Aimage%3A%3Achecksum::", done.out)
        self.assertIn("2 of 3 images are valid", done.summary)
        self.assertEqual(done.output["ok"], "false")

    def test_an_image_that_differs_from_its_receipt_fails(self) -> None:
        work = self.images()
        shutil.copy(work / "stock.bin", work / "patched.bin")
        done = self.step("Verify", {"files": "patched.bin", "boot": "false"})
        self.assertEqual(done.status, 1, done.out)
        self.assertIn("asmpatch%3A%3Averify%3A%3Aother_receipt", done.out)
        self.assertIn("| not asked for |", done.summary)

    def test_an_image_that_no_longer_boots_names_the_failed_check(self) -> None:
        work = self.images()
        # The container is valid, so only --boot finds that the image hangs.
        self.hang(work)
        done = self.step("Verify", {"files": "hang.bin", "patch-dir": "."})
        self.assertEqual(done.status, 1, done.out)
        self.assertIn("title=verify --boot::boots and enumerates over bulk-only", done.out)
        self.assertEqual(self.step("Verify", {"files": "hang.bin", "patch-dir": ".", "boot": "false"}).status, 0)

    def hang(self, work: Path) -> None:
        """Makes hang.bin, whose first instruction jumps to itself, and the patch for it."""
        image = (work / "stock.bin").read_bytes()
        sha256 = hashlib.sha256(image).hexdigest()
        head = 'id = "hang"\ntitle = "t"\npurpose = "p"\nsource = "s"\ndefault = false\n'
        hunk = f'[[images.hunks]]\nat = "file:0x4"\nexpect = "{image[4:6].hex()}"\nnew = "80fe"\n'
        (work / "patched.bin.toml").unlink()
        (work / "hang.toml").write_text(f'{head}\n[[images]]\nsha256 = "{sha256}"\nname = "practice"\n\n{hunk}')
        command = [
            BINARY,
            "patch",
            "stock.bin",
            "-o",
            "hang.bin",
            "--no-defaults",
            "--patch-dir",
            ".",
            "--patch",
            "hang",
        ]
        subprocess.run(command, cwd=work, check=True, capture_output=True)
        (work / "hang.bin.toml").unlink()

    def test_an_unreadable_image_fails_with_the_status_of_asmpatch(self) -> None:
        (self.work / "empty.bin").write_bytes(b"")
        done = self.step("Verify", {"files": "empty.bin"})
        self.assertEqual(done.status, 3, done.out)
        self.assertIn("::error file=empty.bin,", done.out)
        self.assertFalse(json.loads(Path(done.output["report"]).read_text())[0]["ok"])

    def test_a_hostile_file_name_is_neither_a_command_nor_markup(self) -> None:
        name = "x,line=1::y|<b>`\n::error::z.bin"
        (self.work / name).write_bytes(b"\0no image")
        done = self.step("Verify", {"files": "*.bin"})
        self.assertEqual(done.status, 1, done.out)
        commands = [line for line in done.out.splitlines() if line.startswith("::")]
        self.assertEqual([line.split(" ")[0] for line in commands], ["::error"])
        self.assertIn("file=x%2Cline=1%3A%3Ay|<b>`%0A%3A%3Aerror%3A%3Az.bin,", commands[0])
        self.assertNotIn("<b>", done.summary)
        self.assertEqual(len(done.summary.splitlines()), 5)

    def test_the_summary_escapes_a_text_once_and_names_the_open_firmware(self) -> None:
        def verified(document: dict[str, object] | None, why: str = "") -> object:
            problems = [verify.Problem("asmpatch::image::crc", why)] if why else []
            return verify.Image("a.bin", None, len(problems), document, problems)

        verify = runpy.run_path(str(ROOT / "action/verify.py"))
        verify = types.SimpleNamespace(**verify)
        shown = verify.summary([verified(None, "the body's CRC & <b> | `x`")])
        self.assertIn("| the body's CRC &#38; &#60;b&#62; &#124; &#96;x&#96; |", shown)
        self.assertNotIn("x27", shown)
        open_firmware = {"product": "custom ed4e39b", "build": "ed4e39b", "usb_id": "ADD1:0001"}
        shown = verify.summary([verified({"ok": True, "image": None, "open": open_firmware, "patches": []})])
        self.assertIn("| a.bin | open firmware ed4e39b | none |", shown)

    def test_wrong_inputs_are_named(self) -> None:
        self.images()
        for inputs, why in [
            ({"files": "nothing/*.bin"}, "no file matches 'nothing/*.bin'"),
            ({"files": "  \n"}, "files names no image"),
            ({"files": "*.bin", "boot": "yes"}, "boot is 'yes', expected true or false"),
        ]:
            done = self.step("Verify", inputs)
            self.assertEqual((done.status, done.output), (2, {"ok": "false"}), done.out)
            self.assertIn(why, done.out)

    def test_without_asmpatch_the_step_says_so(self) -> None:
        self.images()
        done = self.step("Verify", {"files": "*.bin"}, tools="/usr/bin:/bin")
        self.assertEqual(done.status, 2)
        self.assertIn("asmpatch can't be started", done.out)


class Install(ActionTest):
    """The step that installs, from a release in a folder."""

    ARCHIVE = "asmpatch-x86_64-unknown-linux-musl.tar.gz"

    def release(self) -> Path:
        folder = self.folder / "server/_owner_/asmpatch/releases/download/v0.1.0"
        folder.mkdir(parents=True)
        with tarfile.open(folder / self.ARCHIVE, "w:gz") as archive:
            archive.add(BINARY.resolve(), "asmpatch")
        digest = hashlib.sha256((folder / self.ARCHIVE).read_bytes()).hexdigest()
        (folder / "SHA256SUMS").write_text(f"{'0' * 64}  other.tar.gz\n{digest}  {self.ARCHIVE}\n")
        return folder

    def install(self, version: str = "", **github: str) -> Step:
        context = {"action_repository": "_owner_/asmpatch", "action_ref": "v0.1.0"} | github
        return self.step("Install asmpatch", {"version": version}, context, tools=os.environ["PATH"])

    def test_the_tag_of_the_action_is_the_release(self) -> None:
        self.release()
        done = self.install()
        self.assertEqual(done.status, 0, done.out)
        self.assertEqual(done.path.strip(), f"{self.folder}/asmpatch")
        self.assertTrue(os.access(f"{self.folder}/asmpatch/asmpatch", os.X_OK))

    def test_the_commit_of_the_action_is_the_release_of_its_version(self) -> None:
        self.release()
        done = self.install(action_ref="0123456789abcdef0123456789abcdef01234567")
        self.assertEqual(done.status, 0, done.out)
        self.assertEqual(done.path.strip(), f"{self.folder}/asmpatch")

    def test_an_archive_with_another_digest_is_refused(self) -> None:
        with open(self.release() / self.ARCHIVE, "ab") as archive:
            archive.write(b"more")
        self.refused(self.install(), "but the release's SHA256SUMS has")
        self.assertFalse(Path(f"{self.folder}/asmpatch/asmpatch").exists())

    def test_an_archive_without_a_digest_is_refused(self) -> None:
        (self.release() / "SHA256SUMS").write_text("")
        self.refused(self.install(), "SHA256SUMS has no entry for it")

    def test_a_failed_installation_says_what_to_do(self) -> None:
        self.refused(self.install("v9.9.9"), "v9.9.9/asmpatch-x86_64-unknown-linux-musl.tar.gz can't be fetched")
        self.refused(self.install(action_ref="main"), 'no release is called "main"')
        self.refused(self.install(RUNNER_OS="FreeBSD"), "no release is built for FreeBSD on X64")
        self.refused(self.install("installed", PATH="/usr/bin:/bin"), "no asmpatch is on the PATH")
        self.refused(self.install("build", PATH="/usr/bin:/bin"), "no cargo is on the PATH")

    def refused(self, done: Step, why: str) -> None:
        self.assertEqual((done.status, done.path), (1, ""), done.out)
        self.assertIn("::error title=asmpatch was not installed::", done.out)
        self.assertIn(why, done.out)


class Files(unittest.TestCase):
    """References to the repository and to a release's archives."""

    def test_the_documents_name_the_repository_of_the_manifest(self) -> None:
        repository = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
        [owner] = re.findall(r"^https://github\.com/([^/]+/asmpatch)$", repository)
        files = [file for folder in ("docs", "ansible") for file in (ROOT / folder).rglob("*.[my]*")]
        texts = [file.read_text() for file in files if file.suffix in (".md", ".yml", ".yaml")]
        named = {
            match
            for text in texts
            for match in re.findall(r"(?:uses: |github\.com/|github:)([\w.-]+/asmpatch)\b", text)
        }
        self.assertEqual(named, {owner})

    def test_the_release_workflow_builds_every_archive_that_is_installed(self) -> None:
        targets = set(re.findall(r"archive=(\S+)\.(?:tar\.gz|zip)", (ROOT / "action/install").read_text()))
        workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
        built = {entry["target"] for entry in workflow["jobs"]["build"]["strategy"]["matrix"]["include"]}
        self.assertLessEqual(targets - {"asmpatch-$archive"}, built)


class PreCommit(ActionTest):
    """The pre-commit hook."""

    def test_the_hook_passes_valid_images_and_stops_others(self) -> None:
        work = self.images()
        (work / "bad.bin").write_bytes(b"no image")
        hooks = self.folder / "hooks"
        hooks.mkdir()
        shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
        for folder in (hooks, work):
            for command in (
                ["init", "-q"],
                ["add", "-A"],
                ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t"],
            ):
                subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
        for file, status in (("patched.bin", 0), ("bad.bin", 1)):
            env = os.environ | {
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "PRE_COMMIT_HOME": str(self.folder / "cache"),
            }
            command = ["pre-commit", "try-repo", str(hooks), "asmpatch-verify", "--files", file]
            done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
