"""Each process knows the secrets that it uses, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.privilege import NEEDED_BY, environment_for, settings_for
from shared.config import load_settings, secret_variables

SOURCE = """
database_url = "postgresql://docwell:theirs@db/docwell"
query_database_url = "postgresql://docwell_query:reads@db/docwell"
anthropic_api_key = "sk-ant"
[[sources]]
name = "wiki"
type = "confluence"
base_url = "https://wiki.example.com"
deployment = "data_center"
api_token = "pat"
"""


def test_it_is_decided_for_every_secret_who_needs_it() -> None:
    assert set(secret_variables().values()) == NEEDED_BY.keys()


@pytest.mark.parametrize(
    ("service", "kept"),
    [
        ("api", {"database_url"}),
        ("watch", {"database_url"}),
        ("worker", {"database_url", "anthropic_api_key"}),
        ("scheduler", {"database_url", "anthropic_api_key"}),
        ("mcp", {"query_database_url"}),
        ("embedder", set()),
    ],
)
def test_what_the_settings_file_tells_is_forgotten_where_it_is_not_used(tmp_path: Path, service: str, kept: set[str]) -> None:
    (tmp_path / "docwell.toml").write_text(SOURCE)
    told, _ = load_settings({}, directory=tmp_path)
    own = settings_for(service, told)
    assert {name for name in NEEDED_BY if getattr(own, name)} == kept
    assert bool(own.sources) == (service not in {"mcp", "embedder"})


@pytest.mark.parametrize(
    ("service", "variables", "kept"),
    [
        (
            "embedder",
            {"PGPASSWORD": "x", "OTEL_EXPORTER_OTLP_HEADERS": "x", "DOCWELL_API_TOKENS_FILE": "x", "LANG": "C"},
            ["LANG"],
        ),
        ("api", {"PGPASSWORD": "x", "DOCWELL_API_TOKENS_FILE": "x"}, ["PGPASSWORD", "DOCWELL_API_TOKENS_FILE"]),
        ("api", {"ANTHROPIC_API_KEY_FILE": "x"}, []),
        # The only address is the owner's: the server takes the role that reads.
        ("mcp", {"DOCWELL_DATABASE_URL": "postgresql://o@db/d", "PGPASSWORD": "x"}, ["DOCWELL_DATABASE_URL", "PGPASSWORD"]),
        ("mcp", {"DOCWELL_QUERY_DATABASE_URL": "postgresql://r:own@db/d", "PGPASSWORD": "x"}, ["DOCWELL_QUERY_DATABASE_URL"]),
    ],
)
def test_what_others_read_of_the_environment_goes_to_those_who_call_them(
    tmp_path: Path, service: str, variables: dict[str, Any], kept: list[str]
) -> None:
    ours = {name: value for name, value in variables.items() if name.endswith("DATABASE_URL")}
    settings, _ = load_settings(ours, directory=tmp_path)
    assert list(environment_for(service, variables, settings)) == kept
