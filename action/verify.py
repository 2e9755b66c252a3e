"""Verifies images with asmpatch. Writes annotations, a job summary, and a report on all images.

Reads the inputs of action.yml as ASMPATCH_*, and GitHub's variables. Ends with the worst of asmpatch's exit statuses (1 a
check failed, 3 bad input, 6 the system failed), or with 2 if an input of the action is wrong.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """A problem with an image: asmpatch's code and message."""

    code: str
    message: str


class Image(NamedTuple):
    """An image that was verified."""

    file: str
    receipt: str | None
    status: int
    document: dict[str, Any] | None
    problems: list[Problem]


class WrongInput(Exception):
    """An input of the action is wrong."""


def flag(name: str) -> bool:
    """Reads an input that is true or false."""
    text = os.environ.get(f"ASMPATCH_{name}", "false")
    if text not in ("true", "false"):
        raise WrongInput(f"{name.lower()} is {text!r}, expected true or false")
    return text == "true"


def images() -> list[str]:
    """Expands the input `files`, each file once."""
    patterns = [line.strip() for line in os.environ.get("ASMPATCH_FILES", "").splitlines() if line.strip()]
    found: dict[str, None] = {}
    for pattern in patterns:
        # A file's name may look like a pattern.
        matches = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern, recursive=True))
        files = [path for path in matches if os.path.isfile(path)]
        if not files:
            raise WrongInput(f"no file matches {pattern!r}")
        found |= dict.fromkeys(files)
    if not found:
        raise WrongInput("files names no image")
    return list(found)


def options() -> list[str]:
    """Returns the options of `asmpatch verify` that all images share."""
    named = [("--image", os.environ.get("ASMPATCH_IMAGE")), ("--patch-dir", os.environ.get("ASMPATCH_PATCH_DIR"))]
    chosen = [f"{option}={value}" for option, value in named if value]
    return chosen + (["--boot"] if flag("BOOT") else [])


def verify(file: str, chosen: list[str]) -> Image:
    """Verifies one image, with its receipt if there is one."""
    receipt = f"{file}.toml" if os.path.isfile(f"{file}.toml") else None
    command = ["asmpatch", "verify", "--json", *chosen, *([f"--receipt={receipt}"] if receipt else []), "--", file]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise WrongInput(f"asmpatch can't be started: {error}") from None
    try:
        printed = json.loads(done.stdout)
    except ValueError:
        printed = []
    if isinstance(printed, dict):
        said = printed["error"]
        return Image(file, receipt, done.returncode or 1, None, [Problem(said["code"], said["message"])])
    if not printed:
        why = done.stderr.strip() or f"it ended with {done.returncode}"
        # The status is negative if a signal ended the process.
        return Image(file, receipt, done.returncode if done.returncode > 0 else 4, None, [Problem("asmpatch", why)])
    status = max(done.returncode, 0 if printed[0]["ok"] else 1)
    return Image(file, receipt, status, printed[0], problems(printed[0]))


def problems(document: dict[str, Any]) -> list[Problem]:
    """Lists the problems in a document of `asmpatch verify --json`."""
    if document["ok"]:
        return []
    found = [Problem(finding["code"], finding["message"]) for finding in document["findings"]]
    boot = document.get("booted") or {"ok": True, "checks": []}
    failed = [check for check in boot["checks"] if not check["ok"]]
    for check in failed:
        found.append(Problem("verify --boot", f"{check['what']} over {check['transport']}: {check['found']}"))
    if not boot["ok"] and not failed and not document["findings"]:
        found.append(Problem("verify --boot", "nothing could be checked"))
    return found or [Problem("asmpatch", "the image fails, and asmpatch doesn't say why")]


def annotation(problem: Problem, file: str | None = None) -> str:
    """Formats a workflow command that shows a problem, at its file if any. Escapes the text as GitHub expects."""

    def escaped(text: str, more: str = "") -> str:
        return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)

    at = f"file={escaped(file, ':,')}," if file else ""
    return f"::error {at}title={escaped(problem.code, ':,')}::{escaped(problem.message)}"


def cell(text: str) -> str:
    """Escapes text for a cell of a Markdown table."""
    text = " ".join(text.split())
    return "".join(f"&#{ord(c)};" if c in "&<>|`*_[]\\~#@" else c for c in text)


def origin(document: dict[str, Any]) -> str:
    """Names what an image is made from: a known image, or the open firmware by its build."""
    if build := document.get("open"):
        return f"open firmware {build['build']}"
    return document.get("image") or "unknown"


def summary(all_images: list[Image]) -> str:
    """Formats the job summary."""
    failed = sum(1 for image in all_images if image.status)
    lines = [f"### asmpatch: {len(all_images) - failed} of {len(all_images)} images are valid", ""]
    lines += ["| image | made from | patches | receipt | booted | result |", "| --- | --- | --- | --- | --- | --- |"]
    for image in all_images:
        document = image.document or {}
        booted = document.get("booted")
        cells = [
            image.file,
            origin(document),
            ", ".join(patch["id"] for patch in document.get("patches", [])) or "none",
            image.receipt or "none",
            "not asked for" if booted is None else f"{len(booted['checks'])} checks" if booted["ok"] else "failed",
            "ok" if not image.status else "; ".join(problem.message for problem in image.problems),
        ]
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def unread(image: Image) -> dict[str, Any]:
    """Makes the report's entry for an image that asmpatch could not read."""
    return {"file": image.file, "ok": False, "findings": [problem._asdict() for problem in image.problems]}


def append(variable: str, text: str) -> None:
    """Adds text to one of GitHub's files."""
    with open(os.environ[variable], "a", encoding="utf-8") as file:
        file.write(text)


def main() -> int:
    """Runs the step."""
    try:
        chosen = options()
        all_images = [verify(file, chosen) for file in images()]
    except WrongInput as wrong:
        print(annotation(Problem("asmpatch verified nothing", str(wrong))))
        append("GITHUB_OUTPUT", "ok=false\n")
        return 2
    for image in all_images:
        for problem in image.problems:
            print(annotation(problem, image.file))
        print(f"{'FAILED' if image.status else 'ok'}: {ascii(image.file)}")
    report = Path(os.environ["RUNNER_TEMP"], "asmpatch-report.json")
    # asmpatch's documents, and entries for images that it could not read.
    entries = [image.document or unread(image) for image in all_images]
    report.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    append("GITHUB_STEP_SUMMARY", summary(all_images))
    worst = max(image.status for image in all_images)
    append("GITHUB_OUTPUT", f"ok={'false' if worst else 'true'}\nreport={report}\n")
    return worst


if __name__ == "__main__":
    sys.exit(main())
