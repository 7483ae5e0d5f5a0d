"""Whoever works in the folder, and pushes: carries out deeds, and says in the ledger what was done."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from tests.faults.ledger import Entry, Ledger
from tests.faults.plan import Deed, DeedStep
from tests.faults.texts import ENDINGS, render, word_of

PUSHED_EVERY = 6
"""Each so-many-th document is pushed over HTTP instead of being written into the folder."""
_RETRY_SECONDS = 0.1


class Writer:
    """One person's hands. `api_url` is asked for at each push, since ports may change over a restart."""

    def __init__(self, inbox: Path, ledger: Ledger, api_url: str, *, note: Callable[[str], None], stop: threading.Event) -> None:
        self._inbox = inbox
        self._ledger = ledger
        self._api_url = api_url
        self._note = note
        self._stop = stop
        self._client = httpx.Client(timeout=10.0, trust_env=False)
        self.done: dict[Deed, int] = {}

    def carry_out(self, step: DeedStep) -> None:
        """Do one deed, if there is a document that it fits."""
        if step.deed is Deed.CREATE:
            self._create()
        else:
            fitting = self._fitting(step.deed)
            if not fitting:
                return
            self._change(step.deed, fitting[int(step.draw * len(fitting))])
        self.done[step.deed] = self.done.get(step.deed, 0) + 1

    def close(self) -> None:
        self._client.close()

    def _fitting(self, deed: Deed) -> Sequence[Entry]:
        entries = [entry for entry in self._ledger.all() if not entry.moving]
        if deed is Deed.RECREATE:
            return [entry for entry in entries if entry.leaving]
        here = [entry for entry in entries if not entry.leaving]
        if deed in {Deed.MOVE, Deed.EDIT_AND_MOVE, Deed.TOUCH}:
            return [entry for entry in here if not entry.pushed]
        return here

    def _create(self) -> None:
        number = len(self._ledger) + 1
        ending = ENDINGS[number % len(ENDINGS)]
        folder = f"f{number % 5}/" if number % 2 else ""
        entry = Entry(number=number, ending=ending, path=f"{folder}{word_of(number)}.{ending}", pushed=number % PUSHED_EVERY == 0)
        self._note(f"create: {entry.word} {entry.path}")
        self._ledger.add(entry)
        self._write(entry)

    def _change(self, deed: Deed, entry: Entry) -> None:
        number = entry.number
        self._note(f"{deed.value}: {entry.word} r{entry.written} {entry.path}")
        if deed in {Deed.EDIT, Deed.BURST}:
            for _ in range(1 if deed is Deed.EDIT else 4):
                entry = self._ledger.change(number, written=entry.written + 1)
                self._write(entry)
        elif deed is Deed.RECREATE:
            entry = self._ledger.change(number, written=entry.written + 1, born=entry.written + 1, leaving=False)
            self._write(entry)
        elif deed is Deed.DELETE:
            self._ledger.change(number, leaving=True)
            self._remove(entry)
        elif deed is Deed.TOUCH:
            os.utime(self._inbox / entry.path)
        else:
            if deed is Deed.EDIT_AND_MOVE:
                entry = self._ledger.change(number, written=entry.written + 1)
                self._write(entry)
            folder, _, name = entry.path.rpartition("/")
            new = f"{'g' if folder != 'g' else 'h'}{entry.written % 3}/{name}"
            (self._inbox / new).parent.mkdir(exist_ok=True)
            self._ledger.change(number, path=new, moving=True, redone=entry.served < entry.written)
            (self._inbox / entry.path).rename(self._inbox / new)

    def _write(self, entry: Entry) -> None:
        data = render(entry.number, entry.written, entry.ending)
        if entry.pushed:
            self._until_accepted("PUT", entry, data)
            return
        path = self._inbox / entry.path
        path.parent.mkdir(exist_ok=True)
        if entry.written % 2:
            path.write_bytes(data)  # as a program that writes in place
        else:
            draft = path.with_name(f".{path.name}.tmp")
            draft.write_bytes(data)  # as an editor that replaces
            draft.rename(path)

    def _remove(self, entry: Entry) -> None:
        if entry.pushed:
            self._until_accepted("DELETE", entry, None)
        else:
            (self._inbox / entry.path).unlink()

    def _until_accepted(self, method: str, entry: Entry, data: bytes | None) -> None:
        """A client that tries until it is told that it was taken: from then on nothing may be lost."""
        url = f"{self._api_url}/v1/documents/default/{entry.path}"
        while not self._stop.is_set():
            try:
                answer = self._client.request(method, url, content=data)
            except httpx.TransportError:
                answer = None
            if answer is not None and (answer.is_success or (method == "DELETE" and answer.status_code == 404)):
                return
            if answer is not None and answer.status_code < 500:
                raise AssertionError(f"{method} {url} answered {answer.status_code}: {answer.text}")
            self._stop.wait(_RETRY_SECONDS)
