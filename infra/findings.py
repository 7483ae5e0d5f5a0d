"""What the doctor found: one value for each check."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`status` is `ok`, `warning` (works, but not for long or not well), `failed` or `skipped`; the last three say more.

    `cure` is what to do, for warnings and failures.
    """

    check: str
    status: str
    finding: str
    cure: str | None = None


def fine(check: str, finding: str) -> Finding:
    """As it should be."""
    return Finding(check=check, status="ok", finding=finding)


def warning(check: str, finding: str, cure: str) -> Finding:
    """It works; not well, or not for long."""
    return Finding(check=check, status="warning", finding=finding, cure=cure)


def failed(check: str, finding: str, cure: str) -> Finding:
    """It does not work."""
    return Finding(check=check, status="failed", finding=finding, cure=cure)


def skipped(check: str, finding: str) -> Finding:
    """It could not be looked at, or is not there to be looked at."""
    return Finding(check=check, status="skipped", finding=finding)
