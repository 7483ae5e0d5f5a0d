"""The tables `[[sources]]` of `docwell.toml`: a folder, or a connection to where documents are kept.

Every secret `x` may be given as `x_file`, the path of a file that holds it. An unknown key is an error that names the nearest.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    field_validator,
    model_validator,
)

# A `[[sources]]` name, and a namespace: what fits in a URL, a path and a label without quoting.
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"

RESERVED = {"push": "what is pushed", "manual": "what `docwell ingest` is given"}
"""Sources that are there by themselves. Documents of another source under such a name would be mixed with theirs."""

LONGEST_CLIENT_STATE = 128
"""Characters that Microsoft Graph takes of a `clientState`."""


def split_words(value: object) -> object:
    """A text as its parts between commas; anything else as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Secrets = Annotated[tuple[SecretStr, ...], BeforeValidator(split_words)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class _Table(BaseModel):
    """What every table has."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Name
    namespace: Name = "default"
    tags: Words = ()
    readers: Words | None = None
    max_bytes: int | None = Field(None, gt=0)
    enrich: bool = True
    """Off: nothing of its text is sent to a paid service."""
    embed: Literal["auto", "anyway"] = "auto"
    """`anyway`: an embedding model gets its text though `enrich` is off."""

    @model_validator(mode="before")
    @classmethod
    def _read_secret_files(cls, table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        values = dict(table)
        files = {f"{name}_file": name for name in cls._secrets()}
        for key in list(values):
            if key in files:
                if files[key] in values:
                    raise ValueError(f"both {files[key]} and {key} are set: keep one of them")
                values[files[key]] = _read_secret(key, values.pop(key))
            elif key not in cls.model_fields and cls.model_config.get("extra") == "forbid":
                known = [*cls.model_fields, *files]
                nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
                raise ValueError(f"unknown key {key}; the nearest known one is {nearest[0]}")
        return values

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name in RESERVED and cls is not PushSettings:
            raise ValueError(f"{name} is the source of {RESERVED[name]}: give this one another name")
        return name

    @classmethod
    def _secrets(cls) -> list[str]:
        return [name for name, field in cls.model_fields.items() if "SecretStr" in str(field.annotation)]


def _read_secret(key: str, path: object) -> str:
    try:
        return Path(str(path)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{key} names {path}, which cannot be read: {error}") from None


class FolderSettings(_Table):
    """A folder that is watched."""

    type: Literal["folder"] = "folder"
    root: Path
    ignore: Words = ()


class PushSettings(_Table):
    """What is pushed to the API or by the generic webhook. It says only what may leave: all else comes with each document."""

    type: Literal["push"]
    name: Literal["push"]

    @model_validator(mode="after")
    def _says_nothing_of_documents(self) -> Self:
        told = sorted(self.model_fields_set & {"namespace", "tags", "readers", "max_bytes"})
        if told:
            instead = "set DOCWELL_MAX_BYTES" if told == ["max_bytes"] else "each document that is pushed brings its own"
            raise ValueError(f"{', '.join(told)} cannot be set for what is pushed: {instead}")
        return self


class ConnectionSettings(_Table):
    """A source that is asked over the network. What a connector needs beside this stands in a class of its own.

    `rate`: requests a second, on the average. `sync_seconds`: how often it is asked what has changed; `full_sync_seconds`: how
    often for everything, which finds what no change tells of. With `permissions` its documents are open to those only who may
    read them at the source.
    """

    type: str
    rate: float = Field(5.0, gt=0)
    sync_seconds: float = Field(120.0, gt=0)
    full_sync_seconds: float = Field(86_400.0, gt=0)
    permissions: bool = True

    scope: ClassVar[tuple[str, ...]] = ()
    """Keys that decide what there is at the source: when they change, everything has to be looked at again."""

    @property
    def limiter(self) -> str:
        """Sources with the same text share their rate and their pauses: the account that the other side counts."""
        return f"{self.type}:{self.name}"

    @property
    def event_secrets(self) -> tuple[SecretStr, ...]:
        """What proves that an event comes from the source; each of them is valid."""
        return ()

    @property
    def address(self) -> str:
        """Where the source is, for people; it holds no secret."""
        return self.limiter


def _checked_url(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urlsplit(value.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("write an address such as https://wiki.example.com, without user, query or fragment")
    return value.strip().rstrip("/")


Url = Annotated[str, BeforeValidator(lambda value: _checked_url(value) if isinstance(value, str) else value)]


class ConfluenceSettings(ConnectionSettings):
    """Confluence Cloud or Data Center.

    `base_url` is what stands before `/rest` or `/api`: `https://SITE.atlassian.net/wiki`, or a Data Center's own address. Cloud
    takes `username` (an e-mail address) with an API token; Data Center an access token alone, or `username` with a password as
    `api_token`. `spaces` are keys; none: every space, personal ones only with `personal_spaces`.
    """

    type: Literal["confluence"]
    deployment: Literal["cloud", "data_center"] = "cloud"
    base_url: Url
    username: str | None = None
    api_token: SecretStr
    spaces: Words = ()
    personal_spaces: bool = False
    blogs: bool = True
    attachments: bool = True
    webhook_secrets: Secrets = ()

    scope: ClassVar[tuple[str, ...]] = (
        "deployment",
        "base_url",
        "username",
        "spaces",
        "personal_spaces",
        "blogs",
        "attachments",
        "permissions",
    )

    @model_validator(mode="after")
    def _cloud_needs_a_user(self) -> Self:
        if self.deployment == "cloud" and self.username is None:
            raise ValueError("Confluence Cloud needs username (the e-mail address that the API token belongs to)")
        return self

    @property
    def address(self) -> str:
        """The site, and the spaces where they are named."""
        return f"{self.base_url} ({', '.join(self.spaces)})" if self.spaces else self.base_url

    @property
    def limiter(self) -> str:
        """The site."""
        return f"confluence:{urlsplit(self.base_url).netloc.lower()}"

    @property
    def event_secrets(self) -> tuple[SecretStr, ...]:
        """Cloud: the tokens in the webhook's address. Data Center: the secrets that it signs with."""
        return self.webhook_secrets


class SharePointSettings(ConnectionSettings):
    """Document libraries of SharePoint or OneDrive, over Microsoft Graph.

    Either `drives` (drive ids), or `site` (`HOST:/sites/NAME`, or the site's address) with all of its libraries or those that
    `libraries` names. With `public_url`, the address under which Microsoft reaches Docwell's API, changes are told at once;
    `client_state` are the secrets that come with them: the first one is used for what is asked for from now on.
    """

    type: Literal["sharepoint"]
    tenant_id: str = Field(pattern=r"^[A-Za-z0-9.-]+$")
    client_id: str = Field(min_length=1)
    client_secret: SecretStr
    drives: Words = ()
    site: str | None = None
    libraries: Words = ()
    organization_links: bool = False
    """Whether a link that everybody in the organisation may follow opens a document to `group:organization`."""
    public_url: Url | None = None
    client_state: Secrets = ()
    graph_url: Url = "https://graph.microsoft.com/v1.0"
    login_url: Url = "https://login.microsoftonline.com"

    scope: ClassVar[tuple[str, ...]] = (
        "tenant_id",
        "drives",
        "site",
        "libraries",
        "organization_links",
        "graph_url",
        "permissions",
    )

    @field_validator("client_state")
    @classmethod
    def _fits(cls, states: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if any(len(state.get_secret_value()) > LONGEST_CLIENT_STATE for state in states):
            raise ValueError(f"a client state has at most {LONGEST_CLIENT_STATE} characters")
        return states

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if bool(self.drives) == (self.site is not None):
            raise ValueError("give either drives or site")
        if self.libraries and self.site is None:
            raise ValueError("libraries are those of a site: give site too")
        if self.public_url is not None and not self.client_state:
            raise ValueError("public_url needs client_state: without it anybody could send notifications")
        return self

    @property
    def address(self) -> str:
        """The site with the libraries that are named, or the drives."""
        places = ", ".join(self.libraries or self.drives)
        where = self.site or f"tenant {self.tenant_id}"
        return f"{where} ({places})" if places else where

    @property
    def limiter(self) -> str:
        """The tenant: what it throttles are all calls of all of its drives."""
        return f"sharepoint:{self.tenant_id.lower()}"

    @property
    def event_secrets(self) -> tuple[SecretStr, ...]:
        """The client states."""
        return self.client_state


class OtherSettings(ConnectionSettings):
    """A source of another maker. `options` are the keys that are not common to all sources, as they stand in the table.

    They may hold secrets: nothing prints them. Those of the usual names (`token`, `password`) may come from files, as
    `token_file`; paths under other keys that end in `_file` are absolute.
    """

    type: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    options: Mapping[str, Any] = Field(default_factory=dict, repr=False, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _set_options_apart(cls, table: Any) -> Any:
        if not isinstance(table, Mapping) or "options" in table:
            return table
        common = {key: value for key, value in table.items() if key in cls.model_fields}
        options = {key: value for key, value in table.items() if key not in cls.model_fields}
        for name in _USUAL_SECRETS:
            path = options.pop(f"{name}_file", None)
            if path is not None:
                options[name] = _read_secret(f"{name}_file", path)
        return {**common, "options": options}

    @property
    def address(self) -> str:
        """What stands under a usual key, without what could be a secret in it: the user, and all behind the path."""
        told = next((value for key in _USUAL_ADDRESSES if isinstance(value := self.options.get(key), str)), None)
        if told is None:
            return self.limiter
        parts = urlsplit(told)
        return (
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme and parts.netloc else self.limiter
        )

    @classmethod
    def _secrets(cls) -> list[str]:
        return []


_USUAL_ADDRESSES = ("url", "base_url", "address", "endpoint")
_USUAL_SECRETS = frozenset({"token", "api_token", "password", "secret", "client_secret", "api_key"})

BUILT_IN = ("folder", "confluence", "sharepoint", "push")
"""Types that come with Docwell."""


_CLASSES: dict[str, type[_Table]] = {
    "folder": FolderSettings,
    "confluence": ConfluenceSettings,
    "sharepoint": SharePointSettings,
    "push": PushSettings,
}


def secret_keys(kind: str) -> frozenset[str]:
    """The keys of a type's table that hold secrets. Of a type of another maker: those that sound so."""
    if kind not in _CLASSES:
        return _USUAL_SECRETS
    return frozenset(_CLASSES[kind]._secrets())  # noqa: SLF001 - of a class of this module


def plain_keys(kind: str) -> frozenset[str]:
    """The keys of a type's table that hold a number or a truth value; of a type of another maker those common to all sources."""
    fields = _CLASSES.get(kind, OtherSettings).model_fields
    return frozenset(name for name, field in fields.items() if field.annotation in _PLAIN)


_PLAIN = (bool, int, float, int | None)


def _type_of(table: Any) -> str:
    kind = table.get("type", "folder") if isinstance(table, Mapping) else getattr(table, "type", "folder")
    return kind if kind in BUILT_IN else "other"


SourceSettings = Annotated[
    Annotated[FolderSettings, Tag("folder")]
    | Annotated[ConfluenceSettings, Tag("confluence")]
    | Annotated[SharePointSettings, Tag("sharepoint")]
    | Annotated[PushSettings, Tag("push")]
    | Annotated[OtherSettings, Tag("other")],
    Discriminator(_type_of),
]
"""One `[[sources]]` table, by its `type`; without one it is a folder."""
