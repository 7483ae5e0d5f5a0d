"""The doctor: looks at everything that has to fit, and gives each finding its cure."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from infra.doctor_database import look_into_database
from infra.doctor_remote import look_at_remotes
from infra.findings import Finding, failed, fine, skipped, warning
from infra.local.runtime import ServiceState, service_states
from shared.config import Settings
from shared.database import connect
from shared.errors import DocwellError, ServiceUnavailable

PYTHONS = ((3, 11), (3, 12))
_PACKAGES = ("psycopg", "pgvector", "celery", "redis", "fastapi", "uvicorn", "mcp", "pypdfium2", "tree-sitter", "tokenizers")
_ENOUGH_DISK = 2 * 1024**3
_LITTLE_DISK = 256 * 1024**2
_ENOUGH_WATCHES = 65_536
_INOTIFY = Path("/proc/sys/fs/inotify")


def examine(settings: Settings) -> Iterator[Finding]:
    """Every check in turn. None of them raises: what stops one is its finding."""
    yield from look_at_python(sys.version_info[:2], _installed)
    yield look_at_disk("disk of the home", settings.home)
    yield look_at_inotify(_INOTIFY)
    yield look_at_services(service_states(settings.home))
    yield _look_at_model(settings)
    yield from look_at_reranker(settings)
    yield _look_at_broker(settings)
    yield from _look_at_database(settings)


def look_at_python(version: tuple[int, int], installed: Callable[[str], str | None]) -> Iterator[Finding]:
    """The interpreter, and the packages that the processes need; `installed` gives a package's version or None."""
    name = ".".join(map(str, version))
    if version in PYTHONS:
        yield fine("python", f"Python {name}.")
    else:
        yield failed("python", f"Python {name} is none that Docwell is tested with.", "Use Python 3.11 or 3.12: `make install`.")
    versions = {package: installed(package) for package in _PACKAGES}
    missing = [package for package, found in versions.items() if found is None]
    if missing:
        yield failed("packages", f"Not installed: {', '.join(missing)}.", "Run `make install`.")
    else:
        yield fine("packages", ", ".join(f"{package} {found}" for package, found in versions.items()) + ".")


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def look_at_disk(name: str, folder: Path) -> Finding:
    """Free space where `folder` is, or would be."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    said = f"{free / 1024**3:.1f} GiB are free at {existing}."
    cure = "Free some space, or set DOCWELL_HOME to a folder on another disk. An index takes some three times its documents."
    if free < _LITTLE_DISK:
        return failed(name, said, cure)
    return warning(name, said, cure) if free < _ENOUGH_DISK else fine(name, said)


def look_at_inotify(folder: Path) -> Finding:
    """How many folders this user may watch; `folder` is the kernel's (Linux)."""
    try:
        watches = int((folder / "max_user_watches").read_text(encoding="ascii"))
        instances = int((folder / "max_user_instances").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return skipped("inotify", "This system has no inotify; folders are watched by other means.")
    said = f"{watches:,} folders and {instances:,} watchers at a time."
    if watches < _ENOUGH_WATCHES or instances < 64:
        return warning(
            "inotify",
            f"Only {said} Folders beyond that are polled.",
            f"sudo sysctl fs.inotify.max_user_watches={4 * _ENOUGH_WATCHES} fs.inotify.max_user_instances=512",
        )
    return fine("inotify", said)


def look_at_services(found: Sequence[ServiceState]) -> Finding:
    """What `docwell up` runs; one that crashes time and again is a failure, one that is started again a warning."""
    if not found:
        return skipped("services", "`docwell up` does not run here; who else runs them looks after them.")
    lame = [one for one in found if one.state != "running"]
    if not lame:
        again = [f"{one.name} was started again {one.restarts} times" for one in found if one.restarts]
        return fine("services", f"{len(found)} run{'; ' if again else ''}{', '.join(again)}.")
    said = "; ".join(
        f"{one.name} is {one.state} ({one.last_exit or 'no end yet'}, started again {one.restarts} times)" for one in lame
    )
    cure = f"The end of {' and of '.join(one.log for one in lame)} says why."
    return (failed if any(one.state == "failing" for one in lame) else warning)("services", f"{said}.", cure)


def _look_at_model(settings: Settings) -> Finding:
    from shared.embedding.bundled import MODEL_FILE, TOKENIZER_FILE, bundled_model_dir

    if settings.embedding_provider != "local":
        return fine("model files", f"The model is at {settings.embedding_base_url or 'its provider'}; none is needed here.")
    folder = settings.embedding_model_path or bundled_model_dir()
    missing = [name for name in (MODEL_FILE, TOKENIZER_FILE) if not os.access(folder / name, os.R_OK)]
    if missing:
        said = f"{' and '.join(missing)} cannot be read in {folder}."
        if settings.embedder_url is not None:
            return warning("model files", said + " The embedder that runs answers for it.", "Run `make install`.")
        return failed("model files", said, "Run `make install`, or correct DOCWELL_EMBEDDING_MODEL_PATH.")
    return fine("model files", f"{folder} is complete.")


def look_at_reranker(settings: Settings) -> Iterator[Finding]:
    """Whether the reranker that is set judges two passages; nothing where none is. A search goes on without it, unnoticed."""
    if not settings.rerank_url and settings.rerank_model_path is None:
        return
    from query_server.retrieve.rerank_open import open_reranker

    name = "DOCWELL_RERANK_URL" if settings.rerank_url else "DOCWELL_RERANK_MODEL_PATH"
    cure = f"Correct or unset {name}; until then passages stand in the order of the fusion."
    try:
        reranker = open_reranker(settings)
        began = time.perf_counter()
        reranker.scores("What is this?", ["A passage.", "Another one."])
        seconds = time.perf_counter() - began
    except DocwellError as error:
        yield failed("reranker", str(error), cure)
        return
    said = f"It judged two passages in {seconds:.2f} s; a search gives it {settings.rerank_seconds:g} s for fifty."
    if seconds > settings.rerank_seconds:
        yield warning("reranker", said, "Take a smaller model, or raise DOCWELL_RERANK_SECONDS.")
    else:
        yield fine("reranker", said)


def _look_at_broker(settings: Settings) -> Finding:
    from ingest_worker.api.health import broker_answers

    if settings.redis_url is None:
        return failed("broker", "No broker is set.", "Set DOCWELL_REDIS_URL, or start everything with `docwell up`.")
    if broker_answers(settings):
        return fine("broker", "Redis answers.")
    return failed(
        "broker",
        "Redis does not answer. Documents are still accepted; they wait.",
        "Start it (`docwell up` brings its own), or correct DOCWELL_REDIS_URL.",
    )


def _look_at_database(settings: Settings) -> Iterator[Finding]:
    if settings.database_url is None:
        yield failed("database", "No database is set.", "Set DOCWELL_DATABASE_URL, or start everything with `docwell up`.")
        return
    try:
        with connect(settings.database_url.get_secret_value(), name="docwell-doctor", autocommit=True) as connection:
            yield fine("database", f"PostgreSQL {connection.info.server_version // 10000} answers.")
            yield from look_into_database(connection, lambda: _configured_fingerprint(settings), settings)
            yield from look_at_remotes(settings, connection)
    except ServiceUnavailable as error:
        yield failed("database", str(error), "Start it with `make run` (or `docwell up`), or correct DOCWELL_DATABASE_URL.")


def _configured_fingerprint(settings: Settings) -> str:
    """The key of the model that this installation would embed with; may load it."""
    from shared.embedding.open import open_embedder

    return open_embedder(settings).fingerprint.key
