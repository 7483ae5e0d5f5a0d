"""From hints to looks: each hint is followed by a look at the file, and the look is given to the settler."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import structlog

from ingest_worker.catalogue.left_out import Cause
from ingest_worker.intake.events import Hint, HintKind
from ingest_worker.intake.ignore import IGNORE_FILE, IgnoreRules
from ingest_worker.intake.names import NameRules
from ingest_worker.intake.observe import Kind, Look, Viewer
from ingest_worker.intake.report import SweepReport
from ingest_worker.intake.settle import Settler
from ingest_worker.intake.tally import Tally
from ingest_worker.intake.walk import walk
from shared.paths import document_path

log = structlog.get_logger(__name__)

_MOST_REMEMBERED = 1000


class Noticer:
    """Keeps what the hints of one folder came to. `lost` says that only a sweep can tell the rest."""

    def __init__(
        self,
        source: str,
        root: Path,
        real_root: str,
        patterns: tuple[str, ...],
        settler: Settler,
        names: NameRules | None = None,
    ) -> None:
        self._source = source
        self._root = root
        self._real_root = real_root
        self._patterns = patterns
        self._names = names
        self._settler = settler
        self._refused: set[str] = set()
        self._view = Viewer(real_root)
        self.rules = IgnoreRules(root, patterns, names)
        self.lost = False
        self.rules_changed = False
        self.folders_gone: set[str] = set()
        # Paths at which several files stand whose names read alike, as the newest sweep found them: it chooses among them.
        self.doubles: frozenset[str] = frozenset()

    def at(self, real_root: str) -> None:
        """The folder is at this path now, its links resolved."""
        self._real_root = real_root

    def reload_rules(self) -> IgnoreRules:
        """Read `.docwellignore` again."""
        self.rules = IgnoreRules(self._root, self._patterns, self._names)
        return self.rules

    def follow_sweep(self, report: SweepReport) -> None:
        """Keep what only a sweep sees: files whose names read alike."""
        if report.walked:
            entries = report.tally.entries.items()
            self.doubles = frozenset(document_path(path) for path, why in entries if why.cause is Cause.SAME_NAME)

    def follow(self, hints: Iterable[Hint], now: float) -> None:
        """Look at what the hints name. A name that is named often is looked at once."""
        self._view = Viewer(self._real_root)
        files: dict[str, tuple[bool, str]] = {}
        for hint in hints:
            if IGNORE_FILE in (hint.name, hint.old):
                self.rules_changed = True
            match hint.kind:
                case HintKind.WRITTEN | HintKind.SEEN:
                    written, old = files.get(hint.name, (False, ""))
                    files[hint.name] = (written or hint.kind is HintKind.WRITTEN, old)
                case HintKind.MOVED:
                    written, old = files.get(hint.old, (True, ""))
                    files[hint.old] = (written, "")
                    files[hint.name] = (True, old or hint.old)
                case HintKind.FOLDER:
                    self._scan(hint.name, "", now)
                case HintKind.FOLDER_MOVED:
                    self._scan(hint.name, hint.old, now)
                    self.folders_gone.add(hint.old)
                case HintKind.FOLDER_GONE:
                    self.folders_gone.add(hint.name)
                case HintKind.LOST:
                    self.lost = True
                case HintKind.LIMIT | HintKind.WAKE:
                    pass
        for name, (written, old) in files.items():
            self.look_at(name, now, written=written, old=old)

    def look_at(self, name: str, now: float, *, written: bool, old: str = "") -> None:
        """Look at one file and tell the settler. `old` is the name it was renamed from."""
        if self.rules.problem is None and self.rules.rule_for(name) is None:
            self._tell(name, self._view.look(name), now, written=written, old=old)

    def _tell(self, name: str, found: Look, now: float, *, written: bool, old: str = "") -> None:
        path = document_path(name)
        if found.kind is Kind.HIDDEN or path in self.doubles:
            self.lost = True
            return
        if path != name and self._view.look(path).kind is Kind.FILE:
            return  # a double of that file, which is the document
        if found.kind is Kind.OUTSIDE:
            self._refuse(name)
        origin = document_path(old) if old and self.rules.rule_for(old) is None else None
        if not self._settler.saw(path, name, found.signature, now, moved_from=origin, written=written):
            self.lost = True

    def _scan(self, folder: str, old: str, now: float) -> None:
        """Look at all files of a folder that appeared; `old` is where it was, if it moved."""
        if self.rules.problem is not None or self.rules.rule_for(folder, is_directory=True) is not None:
            return
        if self._view.look(folder).kind is not Kind.FOLDER:
            return
        tally = Tally()
        for found in walk(self._real_root, self.rules, tally, below=folder):
            before = old + found.name[len(folder) :] if old else ""
            if before:
                self.look_at(before, now, written=True)
            self.look_at(found.name, now, written=bool(before), old=before)
        if tally.unreadable:
            self.lost = True
        for path, why in tally.entries.items():
            if why.cause is Cause.LINK:
                self._refuse(path)

    def _refuse(self, name: str) -> None:
        if name in self._refused:
            return
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused.clear()
        self._refused.add(name)
        log.warning(
            "link_refused",
            source=self._source,
            file=document_path(name),
            reason="links to folders, and links that leave the source's folder, are not followed",
        )
