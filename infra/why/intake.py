"""The stages before a job: is it in scope, was it seen, did it come to rest."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

from psycopg import Connection

from infra.why.stage import Stage, Verdict, ok, stopped, unknown
from infra.why.subject import Subject
from ingest_worker.catalogue.erasures import erased_reason, find_erasure
from ingest_worker.catalogue.json_form import utc_text
from ingest_worker.catalogue.listing import DocumentRow
from ingest_worker.catalogue.overview import SourceRow
from ingest_worker.intake.ignore import IGNORE_FILE, IgnoreRules
from ingest_worker.intake.names import Rule, name_rules
from ingest_worker.intake.observe import Kind, Look, Viewer, look_at_root
from ingest_worker.intake.read import read_file
from ingest_worker.intake.tally import EMPTY, OUTSIDE, SPECIAL
from ingest_worker.intake.watching import folder_sources
from ingest_worker.parse.registry import detect
from shared.config import Settings
from shared.errors import DocwellError

IN_SCOPE, SEEN, SETTLED = "in scope", "seen", "settled"

_LEFT_OUT: LiteralString = """
    SELECT l.path, l.rule, l.found_at FROM docwell.left_out l JOIN docwell.source s USING (source_id)
    WHERE s.name = %(source)s
      AND (l.path = %(path)s OR (right(l.path, 1) = '/' AND starts_with(%(path)s, l.path)))
    ORDER BY length(l.path) LIMIT 1
"""
_HELD: LiteralString = "SELECT held_at FROM docwell.held_delete WHERE document_id = %s"
_READ: LiteralString = "SELECT size, modified_ns FROM docwell.document WHERE document_id = %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Judges the stages of intake for one subject. `now` is the time in seconds, as files carry it."""

    connection: Connection[Any]
    settings: Settings
    subject: Subject
    now: Callable[[], float] = time.time

    def in_scope(self) -> Stage:
        """Whether a source takes it, and if not, the rule, limit or refusal that keeps it out."""
        document, source = self.subject.document, self.subject.source
        if source is None:
            return self._nowhere()
        if source.removed_at is not None:
            cure = f"Put `{source.name}` back into `[[sources]]` of docwell.toml and start `docwell up` again."
            return stopped(IN_SCOPE, f"Its source {source.name} was taken out at {utc_text(source.removed_at)}.", cure=cure)
        if document is not None and document.state == "excluded":
            return stopped(
                IN_SCOPE, "A person excluded it.", cure=f"`docwell documents include {document.document_id}` takes it back."
            )
        judged = self._in_folder(source) if source.type == "folder" else self._taken_by_hand(source)
        if document is None or document.state != "skipped" or judged.verdict is Verdict.STOPPED:
            return judged
        reason = f" ({document.reason_code}): {document.reason}" if document.reason else "."
        return stopped(
            IN_SCOPE,
            f"It was looked at and is left out{reason}",
            cure=_cure_in(document.reason) or "Mend what the reason names; the next change or sweep takes it.",
        )

    def _nowhere(self) -> Stage:
        roots = self.connection.execute("SELECT name, root FROM docwell.source WHERE root IS NOT NULL ORDER BY name").fetchall()
        listed = "; ".join(f"{name}: {root}" for name, root in roots) or "none"
        if self.subject.name is None:
            return stopped(
                IN_SCOPE,
                f"No document, no entry that was left out and no file answers to {self.subject.asked!r}.{self.subject.hint}",
                f"The folders of sources: {listed}.",
                cure=f"Put it into {self.settings.inbox}, or take it by `docwell ingest FILE`; `docwell documents list` shows"
                " what is there.",
            )
        return stopped(
            IN_SCOPE,
            f"{self.subject.name} lies in no source's folder.",
            f"The folders of sources: {listed}.",
            cure=f"Copy it into {self.settings.inbox}, take it by `docwell ingest {self.subject.name}`, or make its folder one of"
            " the `[[sources]]` in docwell.toml.",
        )

    def _taken_by_hand(self, source: SourceRow) -> Stage:
        if source.type == "manual" and self.subject.file is not None and not self.subject.file.exists():
            return ok(
                IN_SCOPE,
                f"It was named to `docwell ingest`; {self.subject.file} is not there any more, and what was read of it stays.",
            )
        how = {"manual": "It was named to `docwell ingest`", "push": "It was pushed"}.get(source.type, "Its source reports it")
        return ok(IN_SCOPE, f"{how} (source {source.name}); no rule leaves such documents out.")

    def _in_folder(self, source: SourceRow) -> Stage:
        name, path = self.subject.name or "", self.subject.path or ""
        known = self.connection.execute(_LEFT_OUT, {"source": source.name, "path": path}).fetchone()
        swept = () if known is None else (f"The newest sweep left out {known[0]}: {known[1]} (since {utc_text(known[2])})",)
        root = look_at_root(Path(source.root or ""))
        if root.problem is not None:
            where = f"The folder {source.root} of source {source.name} cannot be looked at from here: {root.problem}"
            if known is not None:
                return stopped(IN_SCOPE, *swept, where, cure="Change the rule or the reason that is named.")
            return unknown(IN_SCOPE, where, cure="Mount it, or run this where the watcher runs.")
        rules = IgnoreRules(Path(root.path), self._patterns(source), name_rules(self.settings))
        if rules.problem is not None:
            return stopped(IN_SCOPE, rules.problem, cure="Nothing of the source is taken until its rules can be read.")
        found = Viewer(root.path).look(name.rstrip("/"))
        rule = rules.rule_for(name.rstrip("/"), is_directory=found.kind is Kind.FOLDER)
        if rule is not None:
            return stopped(IN_SCOPE, f"The rule {rule.explained} ignores it.", *swept, cure=_cure_of(rule, name, root.path))
        return self._judge(source, root.path, found, known, swept)

    def _judge(self, source: SourceRow, root: str, found: Look, known: Any, swept: tuple[str, ...]) -> Stage:
        document, file = self.subject.document, f"{root}/{self.subject.name}"
        reasons = {Kind.OUTSIDE: OUTSIDE.rule, Kind.OTHER: SPECIAL.rule, Kind.FOLDER: "It is a folder: name a file in it."}
        if found.kind in reasons:
            return stopped(IN_SCOPE, reasons[found.kind], *swept, cure="See the reason.")
        if found.kind is Kind.HIDDEN:
            return unknown(IN_SCOPE, f"{file} cannot be looked at by this user.", cure="Give the user permission.")
        if found.kind is Kind.GONE:
            return self._gone(source, file)
        size = found.signature.size if found.signature is not None else 0
        if size == 0 and document is None:
            return stopped(IN_SCOPE, EMPTY.rule, *swept, cure="Nothing to do until it has content.")
        limit = source.max_bytes if source.max_bytes is not None else self.settings.max_bytes
        named = "DOCWELL_MAX_BYTES" if source.max_bytes is None else f"`max_bytes` of source {source.name}"
        if size > limit:
            return stopped(IN_SCOPE, f"It has {size:,} bytes; the limit is {limit:,}.", cure=f"Raise {named} and restart.")
        if document is None and known is not None:
            return stopped(
                IN_SCOPE, *swept, cure="Change what the reason names; then `docwell sources sync " + source.name + "`."
            )
        refused = self._refused(source, Path(file), limit) if document is None else None
        if refused is not None:
            return refused
        return ok(IN_SCOPE, f"{file} is in the folder of source {source.name}, and no rule, limit or type leaves it out.")

    def _gone(self, source: SourceRow, file: str) -> Stage:
        document = self.subject.document
        if document is None:
            return stopped(IN_SCOPE, f"There is no file {file}.", cure="Put it there; the watcher takes it.")
        held = self.connection.execute(_HELD, (document.document_id,)).fetchone()
        if held is not None:
            return ok(
                IN_SCOPE,
                f"Its file {file} is gone; the deletion is held since {utc_text(held[0])}, and it is still served.",
                cure=f"Bring the folder back, or let it go by `docwell sources approve-deletes {source.name}`.",
            )
        return stopped(
            IN_SCOPE,
            f"Its file {file} is gone, so it goes with the next sweep, or went.",
            cure="Put the file back into its place.",
        )

    def _refused(self, source: SourceRow, file: Path, limit: int) -> Stage | None:
        """Whether its bytes are of a kind that is not taken, or were erased; of a file that is no document yet."""
        try:
            content = read_file(file, max_bytes=limit)
            detect(str(self.subject.path), content.data)
        except DocwellError as error:
            cure = _cure_in(str(error)) or "Store its text in a format that is read; the README lists them."
            return stopped(IN_SCOPE, f"It will not be read ({error.code}): {error}", cure=cure)
        erasure = find_erasure(
            self.connection,
            source=source.name,
            namespace=source.namespace or "",
            path=str(self.subject.path),
            sha256=content.sha256,
        )
        if erasure is None:
            return None
        return stopped(IN_SCOPE, erased_reason(erasure), cure=f"`docwell erase --lift {erasure}` lets it in again.")

    def _patterns(self, source: SourceRow) -> tuple[str, ...]:
        return next((one.ignore for one in folder_sources(self.settings) if one.name == source.name), ())

    def seen(self, in_scope: Stage) -> Stage:
        """Whether a sweep, an event or a request made it a document."""
        document, source = self.subject.document, self.subject.source
        swept = self._sweeps(source)
        if document is not None and document.state != "deleted":
            return ok(SEEN, f"It is a document since {utc_text(document.created_at)}.", *swept)
        if document is not None:
            why = document.reason or "its file was gone, or somebody deleted it"
            return stopped(
                SEEN, f"It was deleted at {utc_text(document.changed_at)}: {why}.", *swept, cure=self._back_again(document)
            )
        if in_scope.verdict is Verdict.STOPPED or source is None:
            return unknown(SEEN, "Nobody looks for what is not in scope.")
        if source.paused:
            return stopped(SEEN, f"Source {source.name} is paused.", cure=f"`docwell sources resume {source.name}`")
        if not source.watched:
            return stopped(SEEN, f"No watcher looks after source {source.name}.", *swept, cure="Start it: `docwell up`.")
        return stopped(
            SEEN, "No sweep and no event has brought it yet.", *swept, cure=f"`docwell sources sync {source.name} --wait`"
        )

    def _back_again(self, document: DocumentRow) -> str:
        """How a deleted document comes back: a file that is in its folder only has to be looked at."""
        kind = self.subject.source.type if self.subject.source is not None else ""
        sync = f"`docwell sources sync {document.source} --wait`"
        file = self.subject.file
        there = file is not None and file.exists()
        match kind:
            case "folder" if there:
                return f"Its file is in its folder, and the next sweep takes it: {sync} does not wait for that."
            case "folder":
                return f"Put the file back; then {sync}."
            case "manual" if there:
                return f"`docwell ingest {shlex.quote(str(file))}` takes it again."
            case "manual":
                return "Put the file back; then `docwell ingest` it again."
            case "push":
                return "Push it again."
        return f"If it is there at its source, {sync} brings it back."

    def _sweeps(self, source: SourceRow | None) -> tuple[str, ...]:
        if source is None or source.type != "folder":
            return ()
        swept = "was never looked through whole"
        if source.newest_sweep is not None:
            swept = f"was last looked through whole at {utc_text(source.newest_sweep)}"
        said = [f"Source {source.name} {swept}; its watcher {'runs' if source.watched else 'does not run'}."]
        if source.sweep_error:
            said.append(f"The newest sweep failed: {source.sweep_error}")
        return tuple(said)

    def settled(self) -> Stage:
        """Whether the file rests, and is the one that was read."""
        document, source = self.subject.document, self.subject.source
        if source is None or source.type != "folder" or source.root is None:
            return ok(SETTLED, "Only files of watched folders have to come to rest.") if source else unknown(SETTLED, "No file.")
        found = Viewer(look_at_root(Path(source.root)).path).look((self.subject.name or "").rstrip("/"))
        if found.kind is not Kind.FILE or found.signature is None:
            return unknown(SETTLED, "There is no file to look at.")
        age = self.now() - found.touched_ns / 1e9
        rest = self.settings.watch_settle_seconds
        if age < rest:
            said = f"It was written {max(age, 0.0):.1f} s ago, and is taken when it has rested for {rest:g} s."
            cure = "Nothing to do but wait. A file that never rests is never read: lower DOCWELL_WATCH_SETTLE_SECONDS."
            served = document is not None and document.searchable
            return ok(SETTLED, said, cure=cure) if served else stopped(SETTLED, said, cure=cure)
        if document is not None:
            row = self.connection.execute(_READ, (document.document_id,)).fetchone()
            if row is not None and row[1] is not None and tuple(row) != (found.signature.size, found.signature.modified_ns):
                return ok(
                    SETTLED,
                    "It rests, but was changed after it was read: what was read before is searched until it is read again.",
                    cure=f"`docwell sources sync {source.name} --wait`",
                )
        return ok(SETTLED, f"It has not changed for {_ago(age)}.")


def _cure_of(rule: Rule, name: str, root: str) -> str:
    if rule.origin == "`ignore` of the source":
        return "Take the pattern out of `ignore` of this source in docwell.toml, and restart the watcher."
    if rule.origin == IGNORE_FILE:
        return f"Take the line out of {root}/{IGNORE_FILE}; the watcher notices."
    if str(rule) == IGNORE_FILE:
        return "It is no document; only what it names matters."
    if str(rule).endswith("/"):
        return f"Add the line `!{rule}` to {root}/{IGNORE_FILE}."
    return f"Add the line `!{name}` to {root}/{IGNORE_FILE}, or rename it."


def _cure_in(reason: str | None) -> str | None:
    """The last sentence of a reason is what to do, where there is more than one."""
    sentences = (reason or "").rstrip().rstrip(".").split(". ")
    return f"{sentences[-1]}." if len(sentences) > 1 else None


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
