"""compose.yaml passes on every setting that a person may set, and `.env.example` names it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from infra.privilege import NEEDED_BY
from shared.config import TABLES, Settings, load_settings, secret_variables

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    name: service.get("environment", {}) for name, service in COMPOSE["services"].items() if name not in {"postgres", "redis"}
}
NAMED = set(re.findall(r"^#?(DOCWELL_[A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))

NOT_PASSED_ON = {
    "DOCWELL_HOME": "the image has its own",
    "DOCWELL_DATABASE_URL": "compose knows where its PostgreSQL is",
    "DOCWELL_QUERY_DATABASE_URL": "the same",
    "DOCWELL_REDIS_URL": "compose knows where its Redis is",
    "DOCWELL_USAGE_REDIS_URL": "the same; its password is a variable",
    "DOCWELL_EMBEDDER_URL": "compose knows where its embedder is",
    **{f"DOCWELL_{name}_{part}": "inside of a container" for name in ("API", "MCP", "EMBEDDER") for part in ("HOST", "PORT")},
    "DOCWELL_EMBEDDING_MODEL_PATH": "a folder, which needs a mount of its own",
    "DOCWELL_RERANK_MODEL_PATH": "the same",
    **{f"DOCWELL_ASK_{name}": "docwell ask runs where a person types it" for name in ("MODEL", "MCP_URL", "TOKEN")},
}
"""Settings that compose decides, or that mean nothing in a container, and why."""

SHARED = re.compile("DOCWELL_(EMBEDDING|CHUNK|CONTEXT|CAPTION|VISION|ENRICH|OCR|VECTOR)_(?!API_KEY)")
"""What the process that plans and tells has to know like those that do the work."""


def test_every_setting_is_passed_on_under_its_name_or_has_a_reason_not_to_be() -> None:
    settings = {f"DOCWELL_{name.upper()}" for name in Settings.model_fields if name not in TABLES}
    passed = {
        variable
        for environment in ENVIRONMENTS.values()
        for variable, value in environment.items()
        if str(value).startswith("${" + variable + ":") or variable == "DOCWELL_INBOX"
    }
    assert settings - passed == NOT_PASSED_ON.keys()
    assert (passed & settings) - NAMED == set(), "the .env.example lacks them"


def test_workers_the_watcher_and_the_api_know_the_same_of_models_and_passages() -> None:
    found = {
        name: {variable: value for variable, value in environment.items() if SHARED.match(variable)}
        for name, environment in ENVIRONMENTS.items()
    }
    assert found["worker"] == found["api"] == found["watcher"]
    assert found["mcp"].items() <= found["worker"].items()
    assert {name for name in found["worker"] if name.startswith("DOCWELL_EMBEDDING")} == found["mcp"].keys()


def test_no_container_gets_a_secret_that_its_process_does_not_use() -> None:
    secret = secret_variables()
    process = {"watcher": "watch", "migrate": "api"}  # migrate makes the schema as the owner, for the reader too
    for name, environment in ENVIRONMENTS.items():
        fields = {secret[variable] for variable in environment if variable in secret}
        mine = {field for field, services in NEEDED_BY.items() if process.get(name, name) in services}
        assert fields - mine <= ({"query_database_url"} if name == "migrate" else set()), name


def test_what_asks_sources_and_models_has_a_way_out_and_what_keeps_data_has_none() -> None:
    networks = COMPOSE["networks"]
    ways_out = {name for name, network in networks.items() if not (network or {}).get("internal")}
    out = {name for name, service in COMPOSE["services"].items() if ways_out & set(service["networks"])}
    assert out == {"api", "mcp", "worker", "watcher", "scheduler"}


def test_what_is_not_set_is_the_default_and_the_settings_file_that_containers_get_sets_nothing() -> None:
    config = {"DOCWELL_CONFIG": str(ROOT / "infra" / "docker" / "docwell.toml")}
    assert load_settings(config)[1] == {}
    for environment in ENVIRONMENTS.values():
        unset = {name: str(value) for name, value in environment.items() if name.startswith("DOCWELL_")}
        unset = {name: re.sub(r"\$\{\w+(?::-([^}]*)|:[?][^}]*)?\}", r"\1", value) for name, value in unset.items()} | config
        _, origins = load_settings({name: value for name, value in unset.items() if value})
        decided = {name.removeprefix("DOCWELL_").lower() for name in NOT_PASSED_ON} | {"inbox", "log_format", "watch_mode"}
        assert origins.keys() <= decided | {"embedding_provider", "rerank_seconds", "usage_log"}
