"""What the documents say of commands, settings, errors and files holds in the code."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from infra.cli import make_app
from ingest_worker.parse.languages import BY_EXTENSION, BY_NAME
from shared.config import TABLES, FolderSettings, Settings

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PACKAGES = ("shared", "ingest_worker", "query_server", "infra")

_ROW = re.compile(r"^\| `(?P<variable>DOCWELL_[A-Z_]+)` \| (?P<default>[^|]+?) \|", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(?P<code>[^`\n]+)`(?!`)")


def _settings_rows(document: Path) -> dict[str, str]:
    return {row["variable"]: row["default"].strip("`") for row in _ROW.finditer(document.read_text(encoding="utf-8"))}


def _defaults() -> dict[str, str]:
    found = {}
    for name, field in Settings.model_fields.items():
        value = field.default
        if name not in TABLES:
            said = ",".join(value) if isinstance(value, tuple) else str(value)
            found[f"DOCWELL_{name.upper()}"] = "none" if value is None or value == () else said
    return found


def test_the_settings_page_names_every_setting_with_its_default_and_no_other() -> None:
    assert _settings_rows(ROOT / "docs" / "settings.md") == _defaults()


def test_the_readme_names_only_settings_that_exist_with_their_defaults() -> None:
    rows = _settings_rows(ROOT / "README.md")
    assert rows
    assert rows.items() <= _defaults().items()


def test_every_variable_that_a_document_names_is_a_setting() -> None:
    fields = Settings.model_fields.items()
    secrets = {f"DOCWELL_{name.upper()}_FILE" for name, field in fields if "Secret" in str(field.annotation)}
    for_compose = set(re.findall(r"^#?(DOCWELL_[A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    known = _defaults().keys() | secrets | for_compose | {"DOCWELL_CONFIG"}
    for document in DOCUMENTS:
        named = set(re.findall(r"\bDOCWELL_[A-Z_]*[A-Z]\b", document.read_text(encoding="utf-8")))
        assert named <= known, document.name


def test_the_keys_of_a_source_in_the_settings_page_are_those_that_it_takes() -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    block = next(fence["body"] for fence in _FENCE.finditer(text) if "[[sources]]" in fence["body"])
    assert set(re.findall(r"^(\w+) =", block, re.MULTILINE)) == FolderSettings.model_fields.keys() - {"type"}


# --- commands


def _snippets(document: Path) -> Iterator[str]:
    text = document.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        if fence["language"] in ("", "sh", "console"):
            yield from fence["body"].replace("\\\n", " ").splitlines()
    yield from (found["code"] for found in _INLINE.finditer(_FENCE.sub("", text)))


def _words(snippet: str) -> list[str]:
    try:
        return shlex.split(snippet.removeprefix("$ "), comments=True)
    except ValueError:
        return []


def _docwell_calls() -> list[tuple[str, list[str]]]:
    calls = []
    for document in DOCUMENTS:
        for snippet in _snippets(document):
            words = _words(snippet)
            for position, word in enumerate(words):
                if word == "docwell" or word.endswith("/bin/docwell"):
                    before = words[:position]
                    is_called = all("=" in one for one in before) or before[-1:] == ["--"] or "exec" in before or "run" in before
                    if is_called and re.fullmatch(r"-?[a-z-]+", "".join(words[position + 1 : position + 2])):
                        calls.append((document.name, words[position + 1 :]))
                    break
    return calls


def test_every_docwell_command_in_a_document_exists_with_the_options_it_shows() -> None:
    calls = _docwell_calls()
    assert len(calls) > 20
    whole: Any = typer.main.get_command(make_app())
    for document, words in calls:
        command = whole
        rest = list(words)
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            name = rest.pop(0)
            assert name in command.commands, f"{document}: docwell {' '.join(words)}"
            command = command.commands[name]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        asked = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"}
        assert asked <= known | {"--help"}, f"{document}: docwell {' '.join(words)}"


def test_the_commands_that_errors_name_exist() -> None:
    missing = set()
    whole: Any = typer.main.get_command(make_app())
    for message in _messages():
        for named in re.findall(r"`docwell ([a-z][^`]*)`", message):
            command = whole
            for word in named.split():
                if not hasattr(command, "commands") or word.startswith("-"):
                    break
                command = command.commands.get(word)
                if command is None:
                    missing.add(named.rstrip(" …"))
                    break
    assert missing == set()


def test_every_make_target_in_a_document_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        for snippet in _snippets(document):
            words = _words(snippet)
            if words[:1] == ["make"] and len(words) > 1:
                assert words[1] in targets, f"{document.name}: {snippet}"


# --- links, files, claims


def _anchors(document: Path) -> set[str]:
    # As GitHub makes them: lower case, punctuation dropped, spaces to hyphens.
    titles = (found["title"] for found in _HEADING.finditer(_FENCE.sub("", document.read_text(encoding="utf-8"))))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    for found in _LINK.finditer(_FENCE.sub("", document.read_text(encoding="utf-8"))):
        target, _, anchor = found["target"].partition("#")
        if "://" in target:
            continue
        led_to = document.parent / target if target else document
        assert led_to.exists(), found["target"]
        if anchor:
            assert anchor in _anchors(led_to), found["target"]


def test_every_decision_record_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    for record in folder.glob("[0-9]*.md"):
        title = record.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(". ")[2]
        assert f"[{title}]({record.name})" in index


def test_the_readme_counts_languages_no_higher_than_the_grammars_in_use() -> None:
    claimed = re.search(r"more than (\d+) languages", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert claimed is not None
    assert len({*BY_EXTENSION.values(), *BY_NAME.values()}) > int(claimed[1])


def _messages() -> list[str]:
    """Every text that the code can say, with `…` where a value goes in."""
    messages = []
    for package in PACKAGES:
        for module in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    messages.append(re.sub(r"\{[^{}]*\}", "…", node.value))
                elif isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                    messages.append("".join(str(part) for part in parts))
    return messages


def test_every_error_that_the_troubleshooting_page_is_keyed_by_is_one_that_the_code_can_say() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    keys = re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    assert len(keys) > 10
    messages = [*_messages(), (ROOT / "compose.yaml").read_text(encoding="utf-8")]
    for key in keys:
        assert any(key.strip("… ") in message for message in messages), key
