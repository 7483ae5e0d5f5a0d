"""`docwell doctor`: each finding with its cure."""

from __future__ import annotations

import typer

from infra.cli import output
from infra.cli.context import settings
from shared.config import load_settings
from shared.errors import ServiceUnavailable


def doctor(as_json: output.JsonOption = False) -> None:
    """Check versions, extensions, roles, the embedding model, the broker, the disk and the index.

    Exit 1 when one fails, 3 when nothing runs.
    """
    from infra.doctor import examine

    runs = True
    try:
        found = settings()
    except ServiceUnavailable:
        runs = False
        # Nothing runs: the rest can be looked at all the same, and the database's finding says how to start it.
        found, _ = load_settings()
    findings = []
    for finding in examine(found):
        findings.append(finding)
        if not as_json:
            print(f"{finding.status:<8}{finding.check}: {output.plain(finding.finding)}")
            if finding.cure is not None:
                print(f"        cure: {output.plain(finding.cure)}")
    failures = sum(finding.status == "failed" for finding in findings)
    if as_json:
        output.print_json({"ok": failures == 0, "checks": findings})
    if failures:
        raise typer.Exit(1 if runs else 3)
