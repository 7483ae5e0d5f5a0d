"""Cold and unchanged ingest of the 300-file corpus, beside other systems on the same machine in the same run.

Every system gets the same files, the same stub embedder and a PostgreSQL with the same settings. The others' drivers and
their virtual environments are found by PEERS (drivers) and PEERS_ENVIRONMENTS (`v-coco`, `v-lc`, `v-li`, `v-haiku`); what is
not there is left out and said so.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import PGconn, Ping

from infra.local.memory import machine_memory, memory_settings
from infra.local.placement import place
from infra.local.postgres import EmbeddedPostgres
from infra.local.provision import SERVER_SETTINGS
from tests.bench import stub_embedder
from tests.bench.figures import spread
from tests.bench.instance import ROOT, running, wait_for
from tests.ports import free_port

FILES = 300
PEERS = Path(os.environ.get("PEERS", ROOT.parent / "shared" / "bench" / "peers"))
ENVIRONMENTS = Path(os.environ.get("PEERS_ENVIRONMENTS", ROOT.parent / "peers"))
DRIVERS = {
    "CocoIndex": ("v-coco", "run_coco.py"),
    "haiku.rag": ("v-haiku", "run_haiku2.py"),
    "langchain": ("v-lc", "run_lc.py"),
    "llama-index": ("v-li", "run_li.py"),
}
_PEER_POSTGRES_PORT = 55439
_PEER_EMBEDDER_PORT = 55441


def make_corpus(folder: Path, *, seed: int = 7) -> None:
    """300 Markdown files of 12 sections with 110 words each; like the drivers' own, which is used when they are there."""
    driver = PEERS / "common.py"
    if driver.exists():
        code = f"import sys; sys.path.insert(0, {str(PEERS)!r}); import common; common.make_corpus({str(folder)!r})"
        subprocess.run([sys.executable, "-B", "-c", code], check=True)
        return
    rng = random.Random(seed)
    vocabulary = [f"term{number}" for number in range(4000)]
    for number in range(FILES):
        sections = [
            f"## Section {part}\n\n{' '.join(rng.choices(vocabulary, k=110))} ERR-{number:04d}-{part:02d} marker.\n"
            for part in range(12)
        ]
        (folder / f"doc{number:04d}.md").write_text("\n".join([f"# Document {number}\n", *sections]))


@contextmanager
def stub() -> Iterator[str]:
    """The stub embedder in a process of its own; yields its base URL."""
    port = free_port()
    process = subprocess.Popen([sys.executable, stub_embedder.__file__, str(port)])
    try:
        wait_for(lambda: is_listening(port), seconds=20, what="the stub embedder")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(10)


def docwell_cold() -> dict[str, Any]:
    """Drop the corpus into the folder of a running Docwell, wait until all is indexed; then ask for all of it again."""
    with stub() as url, running(stub_settings(url)) as made:
        files = made.folder / "corpus"
        files.mkdir()
        make_corpus(files)
        # The command's own clock: like the others' it leaves out the start of an interpreter.
        summary = made.run("ingest", str(files))["summary"]
        unchanged = made.run("ingest", str(files))["summary"]
        memory = made.peak_memory()
        floor = _copy_seconds(made.folder / "home")
    if summary["indexed"] != FILES or unchanged["unchanged"] != FILES:
        raise RuntimeError(f"not all was taken in: {summary}, {unchanged}")
    return {
        "cold_s": summary["seconds"],
        "unchanged_s": unchanged["seconds"],
        "chunks": summary["chunks"],
        "floor_s": floor,
        "memory": memory,
    }


_TABLES = ("document", "version", "chunk", "version_chunk", "chunk_terms", "vector_1")


def _copy_seconds(home: Path) -> float:
    """Seconds of a bare COPY of the same rows into the same tables, their indexes and keys in place: no ingest can be faster."""
    with psycopg.connect(EmbeddedPostgres(home).superuser_conninfo, dbname="docwell", autocommit=True) as connection:
        rows: dict[str, list[bytes]] = {}
        columns: dict[str, str] = {}
        for table in _TABLES:
            names = connection.execute(
                "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = %s::regclass"
                " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
                (f"docwell.{table}",),
            ).fetchone()
            columns[table] = str(names[0]) if names else ""
            # Vectors as an ingest writes them: not under the HNSW index yet.
            wanted = columns[table].replace(", indexed", ", false AS indexed") if table == "vector_1" else columns[table]
            query = f"COPY (SELECT {wanted} FROM docwell.{table}) TO STDOUT (FORMAT BINARY)"
            with connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
                rows[table] = [bytes(block) for block in copy]
        connection.execute("TRUNCATE docwell.document, docwell.version, docwell.chunk, docwell.vector_1 CASCADE")
        began = time.perf_counter()
        with connection.transaction():
            connection.execute("ALTER TABLE docwell.document DISABLE TRIGGER ALL")  # it and its version name each other
            for table in _TABLES:
                query = f"COPY docwell.{table} ({columns[table]}) FROM STDIN (FORMAT BINARY)"
                with connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
                    for block in rows[table]:
                        copy.write(block)
        return time.perf_counter() - began


def stub_settings(url: str) -> dict[str, str]:
    """The settings that make an instance use the stub embedder."""
    return {
        "DOCWELL_EMBEDDING_PROVIDER": "openai",
        "DOCWELL_EMBEDDING_BASE_URL": url,
        "DOCWELL_EMBEDDING_API_KEY": "stub",
        "DOCWELL_EMBEDDING_MODEL": "stub",
        "DOCWELL_EMBEDDING_DIMENSION": str(stub_embedder.DIMENSION),
    }


def compare(runs: int = 5) -> list[dict[str, Any]]:
    """All systems in turn, `runs` times, in alternating order; documents a second of the cold run."""
    results: dict[str, list[dict[str, float]]] = {}
    names = ["Docwell", *(name for name in DRIVERS if is_there(name))]
    for number in range(runs):
        for name in names if number % 2 == 0 else reversed(names):
            one = _docwell_figures() if name == "Docwell" else _peer(name)
            results.setdefault(name, []).append(one)
            print(f"  run {number + 1}: {name} {one}", file=sys.stderr, flush=True)
    rows = []
    ours = spread([one["docs/s"] for one in results["Docwell"]])["p50"]
    for name in names:
        cold = spread([one["docs/s"] for one in results[name]])
        rows.append(
            {
                "system": name,
                "docs/s p50": cold["p50"],
                "min": cold["min"],
                "max": cold["max"],
                "chunks/s p50": spread([one["chunks/s"] for one in results[name]])["p50"],
                "unchanged s p50": spread([one["unchanged_s"] for one in results[name]])["p50"]
                if "unchanged_s" in results[name][0]
                else None,
                "Docwell / this": ours / cold["p50"],
                "runs": cold["n"],
            }
        )
    floor = spread([one["floor docs/s"] for one in results["Docwell"]])
    rows.append(
        {"system": "bare COPY into our tables", "docs/s p50": floor["p50"], "min": floor["min"], "max": floor["max"],
         "Docwell / this": ours / floor["p50"], "runs": floor["n"]}
    )  # fmt: skip
    return rows + [{"system": f"{name} (not installed, left out)"} for name in DRIVERS if name not in names]


def _docwell_figures() -> dict[str, float]:
    one = docwell_cold()
    return {
        "docs/s": FILES / one["cold_s"],
        "chunks/s": one["chunks"] / one["cold_s"],
        "unchanged_s": one["unchanged_s"],
        "floor docs/s": FILES / one["floor_s"],
    }


def is_there(name: str) -> bool:
    """Whether a peer's driver and its environment are installed."""
    environment, driver = DRIVERS[name]
    return (ENVIRONMENTS / environment / "bin" / "python").exists() and (PEERS / driver).exists()


def _peer(name: str) -> dict[str, float]:
    return _figures(name, run_peer(name))


def run_peer(name: str) -> str:
    """What a peer's driver prints when it takes in the corpus and searches it, with a PostgreSQL and an embedder of its own.

    Raises:
        RuntimeError: it failed; the message holds its last words.
    """
    environment, driver = DRIVERS[name]
    with tempfile.TemporaryDirectory(prefix="docwell-peers-") as folder, _peer_postgres(Path(folder)):
        work = Path(folder) / "work"
        work.mkdir()
        for file in PEERS.glob("*.py"):
            shutil.copy(file, work)
        (work / "corpus").mkdir()
        make_corpus(work / "corpus")
        embedder = subprocess.Popen([sys.executable, "embed_server.py"], cwd=work)
        try:
            wait_for(lambda: is_listening(_PEER_EMBEDDER_PORT), seconds=20, what="the peers' embedder")
            done = subprocess.run(
                [str(ENVIRONMENTS / environment / "bin" / "python"), driver],
                cwd=work,
                env=os.environ | {"LOGFIRE_IGNORE_NO_CONFIG": "1", "HF_HUB_OFFLINE": "1"},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
        finally:
            embedder.terminate()
            embedder.wait(10)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stdout}\n{done.stderr[-2000:]}")
    return done.stdout


def _figures(name: str, output: str) -> dict[str, float]:
    cold = re.search(r"cold\D.*?([\d.]+)s ", output)
    if cold is None:
        raise RuntimeError(f"{name} gave no figures:\n{output}")
    seconds = float(cold.group(1))
    warm = re.search(r"warm\(unchanged\).*?([\d.]+)s ", output)
    figures = {"docs/s": FILES / seconds, "chunks/s": 3900 / seconds}
    return figures | ({"unchanged_s": float(warm.group(1))} if warm else {})


@contextmanager
def _peer_postgres(folder: Path) -> Iterator[None]:
    """The same PostgreSQL with the same settings, on the port and with the login that the drivers expect."""
    folder.chmod(0o711)
    home = folder / "home"
    home.mkdir(mode=0o711)
    placement = place(home)
    user = placement.account.uid if placement.account else None
    group = placement.account.gid if placement.account else None
    programs = placement.programs / "bin"
    environment = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(placement.programs / "lib")}
    subprocess.run(
        [programs / "initdb", f"--pgdata={placement.data}", "--username=postgres", "--encoding=UTF8",
         "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--auth=trust"],
        user=user, group=group, extra_groups=[] if user else None, env=environment, cwd="/", capture_output=True, check=True,
    )  # fmt: skip
    changed = (
        SERVER_SETTINGS
        | memory_settings(machine_memory())
        | {"listen_addresses": "127.0.0.1", "port": str(_PEER_POSTGRES_PORT), "unix_socket_directories": ""}
    )
    options = [part for name, value in changed.items() for part in ("-c", f"{name}={value}")]
    server = subprocess.Popen(
        [programs / "postgres", "-D", placement.data, *options],
        user=user, group=group, extra_groups=[] if user else None, env=environment, cwd="/", stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"postgresql://postgres@127.0.0.1:{_PEER_POSTGRES_PORT}/postgres"
        wait_for(lambda: PGconn.ping(url.encode()) == Ping.OK, seconds=30, what="the peers' PostgreSQL")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield
    finally:
        server.send_signal(2)
        server.wait(30)


def is_listening(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
