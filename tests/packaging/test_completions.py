"""Loads the completion scripts into their shells and presses TAB. `.ci/packaging` runs these tests."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BINARY = os.environ["ASMPATCH_BIN"]
# What is typed, what is offered, and what is not.
CASES = [
    ("asmpatch ", ["flash", "doctor", "restore"], []),
    ("asmpatch pcie ", ["read", "write", "reset"], []),
    ("asmpatch config ", ["get", "set"], []),
    ("asmpatch reset --level ", ["engines", "cpu", "cable"], ["stock.bin"]),
    ("asmpatch info st", ["stock.bin"], ["other"]),
    ("asmpatch flash st", ["stock.bin"], ["other"]),
    ("asmpatch verify st", ["stock.bin"], ["other"]),
    ("asmpatch patch st", ["stock.bin"], ["other"]),
    ("asmpatch flash --receipt st", ["stock.bin"], ["other"]),
]
SECONDS = 60.0


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path, path: str) -> None:
        child, self.end = pty.fork()
        if child == 0:
            os.chdir(folder)
            settings = {"PATH": path, "TERM": "xterm", "HOME": str(folder), "COLUMNS": "200", "LINES": "50"}
            os.execvpe(command[0], command, settings)
        self.child = child

    def until(self, seen: re.Pattern[str] | None, seconds: float) -> str:
        """Reads until the pattern is on the screen, at most for this time."""
        text, ends = "", time.monotonic() + seconds
        while time.monotonic() < ends and not (seen and seen.search(text)):
            if select.select([self.end], [], [], 0.05)[0]:
                try:
                    text += os.read(self.end, 65536).decode(errors="replace")
                except OSError:
                    break
        return text

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def close(self) -> None:
        os.close(self.end)
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


def words(screen: str) -> set[str]:
    """The words on a screen, without control sequences."""
    return set(re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>(].?)|\x07|\x08", " ", screen).split())


class Completions(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="asmpatch-completions-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/asmpatch").symlink_to(BINARY)
        (self.folder / "stock.bin").touch()
        (self.folder / "other").mkdir()
        self.path = f"{self.folder}/bin:{os.environ['PATH']}"

    def script(self, shell: str) -> Path:
        file = self.folder / f"{shell}.script"
        file.write_bytes(subprocess.run([BINARY, "completions", shell], check=True, stdout=subprocess.PIPE).stdout)
        return file

    def on_a_terminal(self, command: list[str], setup: str) -> None:
        shell = Terminal(command, self.folder, self.path)
        self.addCleanup(shell.close)
        shell.type(f"{setup}; PS1='> '; echo rea'd'y\n")
        self.assertIn("ready", shell.until(re.compile(r"ready\r?\n"), SECONDS))
        for line, offered, not_offered in CASES:
            with self.subTest(line):
                shell.type(line + "\t\t")
                last = re.compile(re.escape(offered[-1])) if offered else None
                screen = shell.until(last, SECONDS if offered else 1.0) + shell.until(None, 0.3)
                self.assertLessEqual(set(offered), words(screen), screen)
                self.assertFalse(set(not_offered) & words(screen), screen)
            # Ctrl-C leaves the line.
            shell.type("\x03")
            shell.until(None, 0.2)

    def test_bash(self) -> None:
        setup = f"bind 'set show-all-if-ambiguous on'; bind 'set page-completions off'; . {self.script('bash')}"
        self.on_a_terminal(["bash", "--norc", "--noprofile", "-i"], setup)

    def test_zsh(self) -> None:
        # compinit -D writes no file; with a high LISTMAX zsh lists without a question.
        setup = f"autoload -Uz compinit; compinit -D -u; LISTMAX=1000; . {self.script('zsh')}"
        self.on_a_terminal(["zsh", "-f", "-i"], setup)

    def test_fish(self) -> None:
        script = self.script("fish")
        for line, offered, not_offered in CASES:
            with self.subTest(line):
                command = ["fish", "--no-config", "--command", f"source {script}; complete --do-complete '{line}'"]
                settings = {"PATH": self.path, "HOME": str(self.folder)}
                done = subprocess.run(command, cwd=self.folder, env=settings, stdout=subprocess.PIPE, text=True, check=True)
                found = {row.split("\t")[0].rstrip("/") for row in done.stdout.splitlines()}
                self.assertLessEqual(set(offered), found)
                self.assertFalse(set(not_offered) & found, done.stdout)


if __name__ == "__main__":
    unittest.main()
