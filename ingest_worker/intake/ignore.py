"""Which files of a folder are no documents: temporary and lock files, version control, and what its owner names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path

import structlog
from pathspec import GitIgnoreSpec

IGNORE_FILE = ".docwellignore"

# A file that is being written, a lock, or what a desktop leaves behind. Upper and lower case are alike.
_TEMPORARY_NAMES = (
    "~$*",  # Microsoft Office, while the document is open
    ".~lock.*#",  # LibreOffice, likewise
    ".#*",  # Emacs' lock
    "#*#",  # Emacs' autosave
    "*~",
    "*.tmp",
    "*.temp",
    "*.part",
    "*.partial",
    "*.filepart",
    "*.crdownload",
    "*.download",
    "*.opdownload",
    "*.aria2",
    "*.!qb",
    ".*.sw?",  # Vim's swap files
    ".*.swpx",
    "*.kate-swp",
    ".goutputstream-*",
    ".nfs????*",  # NFS keeps an open, deleted file under such a name
    ".fuse_hidden*",
    ".ds_store",
    "._*",  # macOS keeps attributes there on foreign file systems
    "thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
)
# Secrets that have no business in a search index.
_SECRET_NAMES = (".env", ".env.*", ".netrc", ".pgpass", ".htpasswd", "id_rsa", "id_ecdsa", "id_ed25519")
_FOLDERS = (
    # version control
    ".git",
    ".hg",
    ".svn",
    ".bzr",
    ".jj",
    "_darcs",
    "cvs",
    # wastebaskets, snapshots and other parts of a system
    ".trash",
    ".trash-*",
    ".trashes",
    "$recycle.bin",
    "system volume information",
    "lost+found",
    ".spotlight-v100",
    ".fseventsd",
    ".temporaryitems",
    ".snapshot",
    ".snapshots",
    "@eadir",
    "#recycle",
    ".stfolder",
    ".stversions",
    # what programs make and can make again
    "node_modules",
    "__pycache__",
    ".venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    # keys
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
)
# rsync writes `.name.Ab12Cd` and renames it. A suffix of six letters without a digit or capital is more likely a name.
_RSYNC_RULE = ".*.XXXXXX"
_RSYNC = r"\..+\.(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{6}\Z"

log = structlog.get_logger(__name__)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<r{number}>{fnmatch.translate(pattern)})" for number, pattern in enumerate(patterns)), re.I)


_FILE_RULES = (*_TEMPORARY_NAMES, *_SECRET_NAMES, IGNORE_FILE)
_FILE_PATTERN = _any_of(_FILE_RULES)
_RSYNC_PATTERN = re.compile(_RSYNC)
_FOLDER_PATTERN = _any_of(_FOLDERS)
# Nearly every name passes these, which cost a tenth of the patterns. A rule that is neither an ending nor a whole name begins
# with one of the marks.
_MARKS = frozenset(".#~$@")
_ENDINGS = tuple(rule[1:] for rule in _FILE_RULES if rule.startswith("*"))
_WHOLE = frozenset(rule for rule in (*_FILE_RULES, *_FOLDERS) if not set(rule) & set("*?["))


def _built_in(name: str, *, is_directory: bool) -> str | None:
    lower = name.lower()
    if lower[:1] not in _MARKS and lower not in _WHOLE and not lower.endswith(_ENDINGS):
        return None
    if is_directory:
        found = _FOLDER_PATTERN.match(name)
        return None if found is None else _FOLDERS[int((found.lastgroup or "r0")[1:])] + "/"
    found = _FILE_PATTERN.match(name)
    if found is not None:
        return _FILE_RULES[int((found.lastgroup or "r0")[1:])]
    return _RSYNC_RULE if _RSYNC_PATTERN.match(name) else None


class IgnoreRules:
    """The rules of one folder: those built in, the source's `ignore` patterns and the folder's `.docwellignore`.

    Patterns are those of `.gitignore`, seen from the folder's root; the last one that matches wins, and the owner's win over
    those built in (`!*.tmp` takes such files). As with git, nothing below an ignored folder can be taken back. Other files
    whose name begins with a dot are documents like all others.
    """

    def __init__(self, root: Path, patterns: Sequence[str] = ()) -> None:
        lines = _valid_lines([*patterns, *_ignore_file_lines(root)], root)
        self._spec = GitIgnoreSpec.from_lines(lines) if lines else None
        self._lines = lines

    def ignored_by(self, name: str, *, is_directory: bool) -> str | None:
        """The rule that ignores this entry, or None. `name` is relative to the root, with `/`; its folders are taken as fine."""
        base = name.rpartition("/")[2]
        if base == IGNORE_FILE:
            return IGNORE_FILE
        if self._spec is not None:
            found = self._spec.check_file(name + "/" if is_directory else name)
            if found.include is not None and found.index is not None:
                return self._lines[found.index] if found.include else None
        return _built_in(base, is_directory=is_directory)

    def rule_for(self, name: str, *, is_directory: bool = False) -> str | None:
        """The rule that ignores this entry or one of the folders it lies in, or None."""
        position = name.find("/")
        while position != -1:
            rule = self.ignored_by(name[:position], is_directory=True)
            if rule is not None:
                return rule
            position = name.find("/", position + 1)
        return self.ignored_by(name, is_directory=is_directory)


def _ignore_file_lines(root: Path) -> list[str]:
    path = root / IGNORE_FILE
    try:
        return path.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        log.warning(
            "ignore_file_unreadable",
            path=str(path),
            error=error.strerror,
            cure="Make it readable; until then its rules do not apply.",
        )
        return []


def _valid_lines(lines: Sequence[str], root: Path) -> list[str]:
    valid = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            log.warning(
                "ignore_pattern_invalid", root=str(root), pattern=line, error=str(error), cure="This line does not apply."
            )
            continue
        valid.append(line)
    return valid
