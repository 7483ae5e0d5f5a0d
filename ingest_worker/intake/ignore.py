"""Which files of a folder are no documents: temporary and lock files, version control, and what its owner names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from pathspec import GitIgnoreSpec

from ingest_worker.intake.names import NameRules, Rule, make_name_rules
from shared.paths import readable

IGNORE_FILE = ".docwellignore"

_THE_FILE_ITSELF = Rule(IGNORE_FILE, "built in: it holds rules, and only the one in the source's own folder counts")

log = structlog.get_logger(__name__)


class IgnoreRules:
    """The rules of one folder: names that are never documents, the source's `ignore` patterns and its `.docwellignore`.

    Patterns are those of `.gitignore`, seen from the folder's root; the last one that matches wins, and the owner's win over
    the rules of names (`!*.tmp` takes such files). As with git, nothing below an ignored folder can be taken back. Other files
    whose name begins with a dot are documents like all others.

    `problem` says why the rules are not known: the folder's file cannot be read. Then nothing of the folder may be taken.
    """

    def __init__(self, root: Path, patterns: Sequence[str] = (), names: NameRules | None = None) -> None:
        lines, self.problem = _read_ignore_file(root)
        own = [Rule(line, "`ignore` of the source") for line in _valid_lines(patterns, root)]
        self._lines = [*own, *(Rule(line, IGNORE_FILE) for line in _valid_lines(lines, root))]
        self._spec = GitIgnoreSpec.from_lines(self._lines) if self._lines else None
        self._names = names or make_name_rules()

    def ignored_by(self, name: str, *, is_directory: bool) -> Rule | None:
        """The rule that ignores this entry, or None. `name` is relative to the root, with `/`; its folders are taken as fine."""
        base = name[name.rfind("/") + 1 :]
        if base == IGNORE_FILE:
            return _THE_FILE_ITSELF
        if self._spec is not None:
            found = self._spec.check_file(name + "/" if is_directory else name)
            if found.include is not None and found.index is not None:
                return self._lines[found.index] if found.include else None
        return self._names.rule_for(base, is_directory=is_directory)

    def rule_for(self, name: str, *, is_directory: bool = False) -> Rule | None:
        """The rule that ignores this entry or one of the folders it lies in, or None."""
        position = name.find("/")
        while position != -1:
            rule = self.ignored_by(name[:position], is_directory=True)
            if rule is not None:
                return rule
            position = name.find("/", position + 1)
        return self.ignored_by(name, is_directory=is_directory)


def _read_ignore_file(root: Path) -> tuple[list[str], str | None]:
    """The lines of the folder's rules, and why they cannot be read."""
    path = root / IGNORE_FILE
    try:
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines(), None
    except (FileNotFoundError, NotADirectoryError):
        return [], None
    except OSError as error:
        why = error.strerror or type(error).__name__
        return [], f"{path} cannot be read ({why}), so its rules are not known. Make it a readable file, or remove it."


def _valid_lines(lines: Sequence[str], root: Path) -> list[str]:
    valid = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            log.warning(
                "ignore_pattern_invalid",
                root=readable(str(root)),
                pattern=readable(line),
                error=readable(str(error)),
                cure="This line does not apply.",
            )
            continue
        valid.append(line)
    return valid
