"""Which drives (document libraries) a source is made of."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from ingest_worker.sources.sharepoint.answers import NotThere
from ingest_worker.sources.sharepoint.client import READS, Graph, Json
from shared.errors import ConfigurationError, TransientError
from shared.source_settings import SharePointSettings

_SELECT = "id,name,webUrl,sharePointIds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A library. `name` leads the path of each document; `site` is the site's address without scheme, when it is known."""

    drive_id: str
    name: str
    site: str | None


def find_drives(graph: Graph, settings: SharePointSettings) -> tuple[Drive, ...]:
    """The drives that the settings name, in a fixed order; those of a site are looked up anew, as libraries come and go.

    Raises:
        ConfigurationError: a drive, the site or a library that is named is not there.
    """
    return _by_id(graph, settings.drives) if settings.site is None else _of_site(graph, settings)


def _by_id(graph: Graph, ids: tuple[str, ...]) -> tuple[Drive, ...]:
    found: list[Drive] = []
    for drive_id in dict.fromkeys(ids):
        try:
            # Not every drive has the property, so it is asked for with the others, and does without.
            one = graph.get(f"/drives/{quote(drive_id, safe='!')}?$select={_SELECT}", what=f"drive {drive_id}")
        except NotThere as error:
            raise ConfigurationError(
                f"There is no drive {drive_id} that the application can see. Correct `drives`, or grant {READS}.", code="no_drive"
            ) from error
        found.append(_drive(one, fallback=drive_id, site=None))
    names = [drive.name for drive in found]
    # Two libraries called Documents, of two sites: their paths must not meet.
    return tuple(
        drive if names.count(drive.name) == 1 else Drive(drive_id=drive.drive_id, name=_apart(drive), site=drive.site)
        for drive in found
    )


def _apart(drive: Drive) -> str:
    return f"{drive.name} ({(drive.site or drive.drive_id).rsplit('/', 1)[-1]} {drive.drive_id[-6:]})"


def _of_site(graph: Graph, settings: SharePointSettings) -> tuple[Drive, ...]:
    host, path = parse_site(settings.site or "")
    where = f"/sites/{host}:{quote(path)}" if path else f"/sites/{host}"
    try:
        site = graph.get(f"{where}?$select=id,webUrl", what=f"site {host}{path}")
    except NotThere as error:
        raise ConfigurationError(
            f"There is no site {host}{path} that the application can see. Correct `site`, or grant Sites.Read.All.",
            code="no_site",
        ) from error
    site_id = site.get("id")
    if not isinstance(site_id, str):
        raise TransientError(f"The answer for site {host}{path} has no id. It is tried again.", code="bad_answer")
    drives: list[Drive] = []
    for page in graph.pages(
        f"/sites/{quote(site_id, safe=',')}/drives?$select={_SELECT}",
        what=f"the libraries of {host}{path}",
        needs="Sites.Read.All",
    ):
        drives += [
            _drive(one, fallback=str(one.get("id")), site=f"{host}{path}") for one in page if isinstance(one.get("id"), str)
        ]
    if settings.libraries:
        wanted = {name.casefold(): name for name in settings.libraries}
        missing = [name for folded, name in wanted.items() if folded not in {drive.name.casefold() for drive in drives}]
        if missing:
            raise ConfigurationError(
                f"The site {host}{path} has no library {', '.join(missing)}. It has: "
                f"{', '.join(sorted(drive.name for drive in drives)) or 'none'}. Correct `libraries`.",
                code="no_library",
            )
        drives = [drive for drive in drives if drive.name.casefold() in wanted]
    return tuple(sorted(drives, key=lambda drive: drive.drive_id))


def _drive(one: Json, *, fallback: str, site: str | None) -> Drive:
    name = one.get("name")
    ids = one.get("sharePointIds")
    url = ids.get("siteUrl") if isinstance(ids, dict) else None
    if site is None and isinstance(url, str) and urlsplit(url).hostname:
        parts = urlsplit(url)
        site = f"{(parts.hostname or '').lower()}{unquote(parts.path).rstrip('/')}"
    shown = str(name).replace("/", "-").strip() if isinstance(name, str) and name.strip() else fallback
    drive_id = one.get("id")
    return Drive(drive_id=drive_id if isinstance(drive_id, str) else fallback, name=shown, site=site)


def parse_site(text: str) -> tuple[str, str]:
    """Host and path of a site, written as `HOST:/sites/NAME`, `HOST/sites/NAME` or its address; the path of a root site is empty.

    Raises:
        ConfigurationError: it is neither.
    """
    parts = urlsplit(text if "://" in text else f"https://{text.replace(':/', '/', 1)}")
    path = unquote(parts.path).rstrip("/")
    if not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(
            f"`site` is {text!r}: write HOST:/sites/NAME (contoso.sharepoint.com:/sites/marketing), or the site's address.",
            code="bad_site",
        )
    return parts.hostname.lower(), path
