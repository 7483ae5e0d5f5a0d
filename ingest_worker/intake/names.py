"""Rules about the names of files and folders, put together so that a name that none of them means costs next to nothing."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from shared.config import Settings
from shared.ignored import IGNORED_FOLDERS, SECRET_FOLDERS, SECRET_NAMES, TEMPORARY_NAMES
from shared.paths import readable

# rsync writes `.name.Ab12Cd` and renames it. A suffix of six letters without a digit or capital is more likely a name.
_RSYNC_RULE = ".*.XXXXXX"
_RSYNC = re.compile(r"\..+\.(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{6}\Z")
_WILDCARDS = frozenset("*?[")


class Rule(str):
    """The pattern that ignores an entry. `origin` says where it stands, so that a person can change it."""

    __slots__ = ("origin",)
    origin: str

    def __new__(cls, pattern: str, origin: str) -> Rule:
        """A rule of this pattern."""
        rule = super().__new__(cls, pattern)
        rule.origin = origin
        return rule

    @property
    def explained(self) -> str:
        """The pattern and where it stands, on one line."""
        return readable(f"{self} ({self.origin})")


_RSYNC_TEMPORARY = Rule(_RSYNC_RULE, "built in: what rsync is writing")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """Patterns of names as of `fnmatch`, upper and lower case alike.

    `marks`, `endings` and `whole` say at a tenth of the patterns' cost that no rule means a name: each rule is a whole name, an
    ending, or begins with a mark. `fits_all`: one is none of these, so every name goes to the patterns.
    """

    files: tuple[Rule, ...]
    folders: tuple[Rule, ...]
    file_pattern: re.Pattern[str]
    folder_pattern: re.Pattern[str]
    marks: frozenset[str]
    endings: tuple[str, ...]
    whole: frozenset[str]
    fits_all: bool

    def rule_for(self, name: str, *, is_directory: bool) -> Rule | None:
        """The rule that ignores an entry of this name (no path), or None."""
        lower = name.lower()
        if not (lower[0] in self.marks or lower in self.whole or lower.endswith(self.endings) or self.fits_all):
            return None
        if is_directory:
            return _matched(self.folder_pattern, self.folders, name)
        return _matched(self.file_pattern, self.files, name) or (_RSYNC_TEMPORARY if _RSYNC.match(name) else None)


def _matched(pattern: re.Pattern[str], rules: Sequence[Rule], name: str) -> Rule | None:
    found = pattern.match(name)
    return None if found is None or found.lastgroup is None else rules[int(found.lastgroup[1:])]


def name_rules(settings: Settings) -> NameRules:
    """The rules that these settings mean."""
    return make_name_rules(settings.ignore_names, settings.ignore_folders)


@lru_cache(maxsize=8)
def make_name_rules(names: tuple[str, ...] = TEMPORARY_NAMES, folders: tuple[str, ...] = IGNORED_FOLDERS) -> NameRules:
    """Rules of these patterns, and of those for secrets, which always apply."""
    by_origin = (
        *((name, "DOCWELL_IGNORE_NAMES") for name in names),
        *((name, "built in, since it holds secrets") for name in SECRET_NAMES),
    )
    folders_by_origin = (
        *((name, "DOCWELL_IGNORE_FOLDERS") for name in folders),
        *((name, "built in, since it holds keys") for name in SECRET_FOLDERS),
    )
    patterns = [pattern.lower() for pattern, _ in (*by_origin, *folders_by_origin)]
    wild = [pattern for pattern in patterns if _WILDCARDS & set(pattern)]
    endings = [pattern for pattern in wild if pattern[0] == "*" and not _WILDCARDS & set(pattern[1:])]
    others = [pattern for pattern in wild if pattern not in endings]
    return NameRules(
        files=tuple(Rule(pattern, origin) for pattern, origin in by_origin),
        folders=tuple(Rule(pattern + "/", origin) for pattern, origin in folders_by_origin),
        file_pattern=_any_of([pattern for pattern, _ in by_origin]),
        folder_pattern=_any_of([pattern for pattern, _ in folders_by_origin]),
        # The dot stands for rsync's names.
        marks=frozenset({".", *(pattern[0] for pattern in others)}) - _WILDCARDS,
        endings=tuple(pattern[1:] for pattern in endings),
        whole=frozenset(patterns) - set(wild),
        fits_all=any(pattern[0] in _WILDCARDS for pattern in others),
    )


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<r{number}>{fnmatch.translate(pattern)})" for number, pattern in enumerate(patterns)), re.I)
