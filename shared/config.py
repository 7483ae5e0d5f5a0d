"""All settings: environment variables `DOCWELL_…`, then `docwell.toml`, then the defaults written here."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from shared.errors import ConfigurationError
from shared.hosts import parse_rules
from shared.ignored import IGNORED_FOLDERS, TEMPORARY_NAMES
from shared.prices import Price, TokenUse
from shared.source_settings import (
    NAME_PATTERN,
    ConfluenceSettings,
    ConnectionSettings,
    FolderSettings,
    Name,
    OtherSettings,
    Secrets,
    SharePointSettings,
    SourceSettings,
    Words,
)
from shared.whsec import decode_secret

__all__ = [
    "NAME_PATTERN",
    "ConfluenceSettings",
    "ConnectionSettings",
    "FolderSettings",
    "OtherSettings",
    "Settings",
    "SharePointSettings",
    "SourceSettings",
    "load_settings",
]

PREFIX = "DOCWELL_"
DEFAULT_CONFIG = "docwell.toml"

PATHS = ("home", "inbox", "embedding_model_path", "rerank_model_path")
"""Settings that are made absolute."""


class NamespaceSettings(BaseModel):
    """One `[[namespaces]]` table: what a namespace holds, in a sentence for the models that search it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: str = Field(min_length=1, max_length=300)

    @field_validator("description")
    @classmethod
    def _on_one_line(cls, text: str) -> str:
        return " ".join(text.replace("\x00", "").split()).rstrip(".")


class Settings(BaseModel):
    """Every setting, frozen. Field `embedding_model` is `DOCWELL_EMBEDDING_MODEL`, and `embedding_model` in `docwell.toml`.

    Secrets (`SecretStr`) may be given as `DOCWELL_<NAME>_FILE`, the path of a file that holds them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    home: Path = Path(".docwell")
    inbox: Path = Path("inbox")

    database_url: SecretStr | None = None
    query_database_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    embedder_url: str | None = None

    api_host: str = "127.0.0.1"
    api_port: int = Field(8080, ge=0, le=65535)
    mcp_host: str = "127.0.0.1"
    mcp_port: int = Field(8090, ge=0, le=65535)
    embedder_host: str = "127.0.0.1"
    embedder_port: int = Field(8070, ge=0, le=65535)
    api_tokens: Secrets = ()
    mcp_tokens: Secrets = ()
    mcp_allowed_hosts: Words = ()
    mcp_allowed_origins: Words = ()
    mcp_public_url: str | None = None
    mcp_jwks_url: str | None = None
    mcp_issuer: str | None = None
    mcp_audience: str | None = None
    mcp_required_scopes: Words = ()
    mcp_user_claim: str = "sub"
    mcp_groups_claim: str = "groups"
    mcp_namespaces_claim: str | None = None
    mcp_calls_per_minute: int = Field(1200, ge=0)

    embedding_provider: Literal["local", "openai"] = "local"
    embedding_base_url: str | None = None
    embedding_api_key: SecretStr | None = None
    embedding_model: str | None = None
    embedding_dimension: int | None = Field(None, ge=1, le=4000)
    embedding_model_path: Path | None = None
    embedding_query_prefix: str | None = None
    embedding_passage_prefix: str | None = None
    embedding_api_version: str | None = None
    embedding_requests_per_minute: int | None = Field(None, ge=1)
    embedding_tokens_per_minute: int | None = Field(None, ge=1)
    reindex_api_key: SecretStr | None = None

    rerank_url: str | None = None
    rerank_api_key: SecretStr | None = None
    rerank_model: str | None = None
    rerank_model_path: Path | None = None
    rerank_seconds: float = Field(2.0, gt=0)

    chunk_tokens: int = Field(480, ge=64, le=2000)
    chunk_overlap: int = Field(80, ge=0)
    max_bytes: int = Field(256 * 1024 * 1024, gt=0)
    parse_timeout_seconds: float = Field(120.0, gt=0)
    parse_memory_bytes: int = Field(2 * 1024**3, ge=256 * 1024**2)
    document_passwords: Secrets = ()
    ocr: Literal["auto", "off"] = "auto"
    ocr_languages: Words = ("eng",)
    ocr_seconds: float = Field(300.0, gt=0)
    keep_versions: int = Field(5, ge=1)
    vector_cache_days: int = Field(30, ge=0)
    vector_cache_rows: int = Field(100_000, ge=0)

    context_prefixes: Literal["off", "on"] = "off"
    context_model: str = "claude-haiku-4-5"
    context_window_tokens: int = Field(100_000, ge=2_000)
    context_batches: Literal["off", "auto", "all"] = "off"
    vision_captions: Literal["off", "on"] = "off"
    caption_model: str = "claude-haiku-4-5"
    caption_pictures: int = Field(100, ge=1, le=1_000)
    enrich_concurrency: int = Field(4, ge=1, le=64)
    enrich_seconds: float = Field(300.0, gt=0)
    enrich_daily_tokens: int | None = Field(None, ge=0)
    enrich_daily_money: Decimal | None = Field(None, ge=0)
    enrich_document_tokens: int | None = Field(None, ge=0)
    enrich_document_money: Decimal | None = Field(None, ge=0)
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: str | None = None

    ask_model: str = "claude-sonnet-5"
    ask_mcp_url: str | None = None
    ask_token: SecretStr | None = None

    webhook_secrets: Secrets = ()
    fetch_allowed_hosts: Words = ()
    fetch_private_hosts: Words = ()
    fetch_seconds: float = Field(60.0, gt=0)

    usage_log: Literal["off", "ids", "queries"] = "off"
    usage_redis_url: SecretStr | None = None
    usage_days: int = Field(90, ge=1)

    worker_concurrency: int | None = Field(None, ge=1)
    job_attempts: int = Field(5, ge=1)
    job_lease_seconds: float = Field(60.0, ge=1)
    scheduler_tick_seconds: float = Field(1.0, gt=0)

    watch_mode: Literal["auto", "native", "poll"] = "auto"
    watch_settle_seconds: float = Field(1.0, ge=0)
    watch_poll_seconds: float = Field(5.0, gt=0)
    watch_rescan_seconds: float = Field(300.0, gt=0)
    delete_grace_seconds: float = Field(2.0, ge=0)
    ignore_names: Words = TEMPORARY_NAMES
    ignore_folders: Words = IGNORED_FOLDERS

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"

    sources: tuple[SourceSettings, ...] = ()
    namespaces: tuple[NamespaceSettings, ...] = ()
    prices: Mapping[str, Price] = Field(default_factory=dict)

    @field_validator("chunk_overlap")
    @classmethod
    def _overlap_fits(cls, value: int, info: Any) -> int:
        tokens = info.data.get("chunk_tokens")
        if tokens is not None and value > tokens // 2:
            raise ValueError(f"the overlap may be at most half of chunk_tokens ({tokens})")
        return value

    @model_validator(mode="after")
    def _issuer_is_whole(self) -> Self:
        parts = (self.mcp_jwks_url, self.mcp_issuer, self.mcp_audience)
        if any(parts) and not all(parts):
            raise ValueError("mcp_jwks_url, mcp_issuer and mcp_audience belong together: without one of them any token would do")
        return self

    @model_validator(mode="after")
    def _money_can_be_counted(self) -> Self:
        if self.enrich_daily_money is None and self.enrich_document_money is None:
            return self
        kinds = {"input": "input_tokens", "output": "output_tokens"}
        cached = {"cache_read": "cache_read_tokens", "cache_write": "cache_write_tokens"}
        used = [(self.context_model, kinds | cached)] if self.context_prefixes == "on" else []
        used += [(self.caption_model, kinds)] if self.vision_captions == "on" else []
        for model, named in used:
            price = self.prices.get(model)
            if price is None or price.cost(TokenUse(**dict.fromkeys(named.values(), 1))) is None:
                *first, last = named
                raise ValueError(
                    f"a budget in money needs the price of {model}: {', '.join(first)} and {last} under"
                    f' [prices."{model}"] in docwell.toml'
                )
            if model == self.context_model and self.context_batches != "off" and price.batch is None:
                raise ValueError(
                    f'a budget in money needs to know what batches cost: batch under [prices."{model}"], 0.5 for half'
                )
        return self

    @field_validator("namespaces")
    @classmethod
    def _each_once(cls, namespaces: tuple[NamespaceSettings, ...]) -> tuple[NamespaceSettings, ...]:
        names = [one.name for one in namespaces]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the namespace {twice[0]} stands there twice: keep one")
        return namespaces

    @field_validator("rerank_model_path")
    @classmethod
    def _one_reranker(cls, value: Path | None, info: Any) -> Path | None:
        if value is not None and info.data.get("rerank_url") is not None:
            raise ValueError("rerank_url is set too: keep the endpoint or the folder")
        return value

    @field_validator("webhook_secrets")
    @classmethod
    def _are_whsec(cls, secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for secret in secrets:
            decode_secret(secret.get_secret_value())
        return secrets

    @field_validator("fetch_allowed_hosts", "fetch_private_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        parse_rules(hosts)
        return hosts

    @field_validator("ignore_names", "ignore_folders")
    @classmethod
    def _are_names(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern or "/" in pattern:
                raise ValueError(
                    f"{pattern!r} is no name: write it without `/`; paths belong into a source's `ignore` or `.docwellignore`"
                )
        return patterns


TABLES = frozenset({"sources", "namespaces", "prices"})
"""Settings that are tables of `docwell.toml`, and no environment variables."""

_COMMON = {"ANTHROPIC_API_KEY": "anthropic_api_key", "ANTHROPIC_BASE_URL": "anthropic_base_url"}
"""Variables that other programs read too, by the names under which they are known everywhere."""


def _known_variables() -> dict[str, str]:
    return {PREFIX + field.upper(): field for field in Settings.model_fields if field not in TABLES}


def secret_variables() -> dict[str, str]:
    """The variables that may hold a secret or name its file, with the setting that each is for."""
    known = (_known_variables() | _COMMON).items()
    return {name + end: field for name, field in known if _is_secret(field) for end in ("", "_FILE")}


def _is_secret(field: str) -> bool:
    return "SecretStr" in str(Settings.model_fields[field].annotation)


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return close[0] if close else known[0]


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    known = _known_variables() | _COMMON
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    # In this order a name with our prefix wins over the common one.
    for variable, raw in sorted(environment.items()):
        is_common = variable in _COMMON or variable == "ANTHROPIC_API_KEY_FILE"
        if not is_common and (not variable.startswith(PREFIX) or variable == PREFIX + "CONFIG"):
            continue
        field = known.get(variable)
        if field is not None:
            if raw != "":
                values[field], origins[field] = raw, variable
            continue
        field = known.get(variable.removesuffix("_FILE"))
        if variable.endswith("_FILE") and field is not None and _is_secret(field):
            if variable.removesuffix("_FILE") in environment:
                raise ConfigurationError(f"Both {variable.removesuffix('_FILE')} and {variable} are set: keep one of them.")
            values[field], origins[field] = _read_secret(variable, raw), variable
            continue
        raise ConfigurationError(
            f"Unknown setting {variable}. The nearest known one is {_nearest(variable, sorted(known))}.",
            code="unknown_setting",
        )
    return values, origins


def _read_secret(variable: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable} names {path}, which cannot be read: {error}.") from error


def _from_file(path: Path, *, must_exist: bool) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        if must_exist:
            raise ConfigurationError(f"DOCWELL_CONFIG names {path}, which does not exist.") from None
        return {}, {}
    except OSError as error:
        raise ConfigurationError(f"The configuration {path} cannot be read: {error}.") from error
    try:
        values = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The configuration {path} is no valid TOML: {error}.") from error
    fields = sorted(Settings.model_fields)
    for name in values:
        if name not in Settings.model_fields:
            raise ConfigurationError(
                f"Unknown setting {name} in {path}. The nearest known one is {_nearest(name, fields)}.",
                code="unknown_setting",
            )
    return values, {name: str(path) for name in values}


def load_settings(
    environment: Mapping[str, str] | None = None, *, directory: Path | None = None, **overrides: Any
) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and where each one that is not a default comes from.

    `overrides` (from the command line) win over the environment, the environment over `docwell.toml`. Relative `home`,
    `inbox` and source roots are taken from `directory` (the current one), in a file from the file's own folder.

    Raises:
        ConfigurationError: an unknown name, a value that does not fit, or a file that cannot be read.
    """
    environment = os.environ if environment is None else environment
    directory = Path.cwd() if directory is None else directory
    named = environment.get(PREFIX + "CONFIG")
    config = directory / (named or DEFAULT_CONFIG)
    values, origins = _from_file(config, must_exist=named is not None)
    for name in PATHS:
        if isinstance(values.get(name), str):
            values[name] = str(config.parent / values[name])
    for source in values.get("sources", []) if isinstance(values.get("sources"), list) else []:
        for key, value in source.items() if isinstance(source, dict) else ():
            if isinstance(value, str) and (key == "root" or key.endswith("_file")):
                source[key] = str(config.parent / Path(value).expanduser())
    from_environment, environment_origins = _from_environment(environment)
    values |= from_environment
    origins |= environment_origins
    for name, value in overrides.items():
        if value is not None:
            values[name], origins[name] = value, "command line"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, origins)) from None
    absolute = {
        name: (directory / getattr(settings, name).expanduser()).resolve()
        for name in PATHS
        if getattr(settings, name) is not None
    }
    return settings.model_copy(update=absolute), origins


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    lines = []
    for item in error.errors(include_input=False, include_url=False):
        field = str(item["loc"][0]) if item["loc"] else "settings"
        where = ".".join(str(part) for part in item["loc"])
        lines.append(f"{where} (from {origins.get(field, 'the defaults')}): {item['msg']}")
    return "A setting does not fit. " + "; ".join(lines) + "."
