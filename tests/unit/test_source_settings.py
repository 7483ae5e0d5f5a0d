"""The tables `[[sources]]`: each type takes its own keys, secrets come from files and are shown to nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.config import (
    ConfluenceSettings,
    FolderSettings,
    OtherSettings,
    SharePointSettings,
    load_settings,
)
from shared.errors import ConfigurationError

WIKI = 'name = "wiki"\ntype = "confluence"\nbase_url = "https://acme.example.net/wiki/"\nusername = "bot@acme.example"\n'
LIBRARY = 'name = "library"\ntype = "sharepoint"\ntenant_id = "t"\nclient_id = "c"\nclient_secret = "hush"\n'


def _load(folder: Path, *tables: str) -> Any:
    (folder / "docwell.toml").write_text("".join(f"[[sources]]\n{table}\n" for table in tables))
    return load_settings({}, directory=folder)[0].sources


def _refusal(folder: Path, table: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        _load(folder, table)
    return str(caught.value)


def test_each_table_is_of_the_type_that_it_names_and_a_folder_without_one(tmp_path: Path) -> None:
    sources = _load(
        tmp_path,
        'name = "docs"\nroot = "docs"',
        WIKI + 'api_token = "hush"\nspaces = ["ENG", "HR"]',
        LIBRARY + 'site = "acme.example.com:/sites/eng"',
        'name = "notes"\ntype = "notes-server"\nurl = "https://notes.example"\ntoken = "hush"',
    )
    assert [type(one) for one in sources] == [FolderSettings, ConfluenceSettings, SharePointSettings, OtherSettings]
    assert (sources[1].base_url, sources[1].spaces) == ("https://acme.example.net/wiki", ("ENG", "HR"))
    assert sources[3].options == {"url": "https://notes.example", "token": "hush"}


def test_a_secret_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    (tmp_path / "hooks").write_text("new,old\n")
    (wiki,) = _load(tmp_path, WIKI + 'api_token_file = "token"\nwebhook_secrets_file = "hooks"')
    assert wiki.api_token.get_secret_value() == "from a file"
    assert [one.get_secret_value() for one in wiki.event_secrets] == ["new", "old"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (WIKI + 'api_tokn = "hush"', "unknown key api_tokn; the nearest known one is api_token"),
        (WIKI + 'api_token = "hush"\nspace = "A"', "unknown key space; the nearest known one is spaces"),
        ('name = "docs"\nrot = "docs"', "unknown key rot; the nearest known one is root"),
        (WIKI + 'api_token_file = "nowhere"', "api_token_file names"),
        (WIKI + 'api_token = "hush"\napi_token_file = "token"', "both api_token and api_token_file are set"),
        (WIKI.replace("https://acme", "acme") + 'api_token = "hush"', "write an address"),
        (WIKI.replace("https://acme", "https://bot:hush@acme") + 'api_token = "hush"', "without user"),
        (WIKI.replace("username", "#username") + 'api_token = "hush"', "Confluence Cloud needs username"),
        (LIBRARY, "give either drives or site"),
        (LIBRARY + 'drives = "d"\npublic_url = "https://docs.acme.example"', "public_url needs client_state"),
        (LIBRARY + f'drives = "d"\nclient_state = "{"hush" * 40}"', "at most 128 characters"),
        ('name = "notes"\ntype = "Notes"\ntoken = "hush"', "type"),
        ('name = "push"\ntype = "push"\nreaders = ["user:ann"]', "readers cannot be set for what is pushed: each document"),
        ('name = "push"\ntype = "push"\nmax_bytes = 5', "set DOCWELL_MAX_BYTES"),
        ('name = "inlet"\ntype = "push"', "Input should be 'push'"),
        ('name = "push"\nroot = "docs"', "push is the source of what is pushed: give this one another name"),
        (WIKI.replace('"wiki"', '"manual"') + 'api_token = "hush"', "manual is the source of what `docwell ingest` is given"),
    ],
)
def test_what_does_not_fit_is_said_without_telling_a_secret(tmp_path: Path, table: str, said: str) -> None:
    refusal = _refusal(tmp_path, table)
    assert said in refusal
    assert "hush" not in refusal


def test_no_secret_of_a_source_is_printed_or_dumped(tmp_path: Path) -> None:
    sources = _load(
        tmp_path,
        WIKI + 'api_token = "hush"\nwebhook_secrets = ["hush"]',
        LIBRARY + 'drives = "d"\nclient_state = "hush"',
        'name = "notes"\ntype = "notes"\ntoken = "hush"\nurl = "https://bot:hush@notes.example/n?token=hush"',
    )
    for source in sources:
        assert "hush" not in f"{source!r} {source} {source.model_dump()} {json.dumps(source.model_dump(mode='json'))}"
    told = ["https://acme.example.net/wiki", f"tenant {sources[1].tenant_id} (d)", "https://notes.example/n"]
    assert [source.address for source in sources] == told


def test_sources_of_one_account_share_its_limit(tmp_path: Path) -> None:
    token = 'api_token = "hush"\n'
    first, second, other, library = _load(
        tmp_path,
        WIKI + token + 'spaces = "A"',
        WIKI.replace('"wiki"', '"other"') + token + 'spaces = "B"',
        WIKI.replace('"wiki"', '"third"').replace("acme.example.net", "elsewhere.example.net") + token,
        LIBRARY + 'drives = "d"',
    )
    assert first.limiter == second.limiter
    assert len({first.limiter, other.limiter, library.limiter}) == 3
