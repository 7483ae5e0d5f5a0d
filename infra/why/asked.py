"""The stages of a question: visible, passing the filters, ranked, and shown or cut."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from infra.why.stage import Stage, ok, stopped, unknown
from ingest_worker.catalogue.listing import DocumentRow
from query_server.access import LOCAL, Principal
from query_server.retrieve.explain import CutOff
from query_server.retrieve.trace import DEEP, Showing, Standing, Traced
from shared.errors import PermanentError

VISIBLE, FILTERS, RANKED, CUT = "visible", "filters", "ranked", "cut"

EVERYONE = "everyone"


def principal_of(name: str) -> Principal:
    """Whose eyes `--as` means: `user:NAME`, `group:NAME`, or `everyone` for somebody of no name and no group.

    Raises:
        PermanentError: `bad_argument`, it is none of these.
    """
    if not name:
        return LOCAL
    if name == EVERYONE:
        return Principal(name=EVERYONE, namespaces=None, names=frozenset())
    kind, _, rest = name.partition(":")
    if kind not in {"user", "group"} or not rest:
        raise PermanentError(f"{name!r} is nobody: write user:NAME, group:NAME or everyone.", code="bad_argument")
    return Principal(name=name, namespaces=None, names=frozenset({name}))


def visible(document: DocumentRow, source_type: str, principal: Principal, traced: Traced) -> Stage:
    """Whether the principal may see it; `source_type` decides who gives a document its readers."""
    readers = ", ".join(document.readers or ())
    open_to = "open to everybody who may see its namespace" if document.readers is None else f"for {readers or 'nobody'}"
    said = f"It is {open_to} ({document.namespace})."
    if principal is LOCAL:
        return ok(VISIBLE, said, "Commands on this machine see everything; --as asks for somebody else.")
    if traced.visible:
        return ok(VISIBLE, said, f"{principal.name} sees it.")
    return stopped(
        VISIBLE,
        said,
        f"{principal.name} does not see it.",
        cure=_let_in(document, source_type, principal),
    )


def _let_in(document: DocumentRow, source_type: str, principal: Principal) -> str:
    everyone = principal.name == EVERYONE
    kind, _, name = principal.name.partition(":")
    match source_type:
        case "push" if everyone:
            return "Push it again without `groups`, or ask as one of its readers."
        case "push" if kind == "group":
            return f"Push it again with {name} among its `groups`, or ask as one of its readers."
        case "push":
            return f"Ask as one of its readers, or push it again with a group among its `groups` that {name} is in."
        case "confluence" | "sharepoint":
            return f"Its readers are those of {source_type}: give the right to see it there, and wait for the next sync."
    if everyone:
        return f"Ask as one of its readers, or take `readers` off source {document.source}."
    return f"Add {principal.name} to its readers (`readers` of source {document.source}), or ask as one of them."


def filters(given: Mapping[str, object], traced: Traced) -> Stage:
    """Whether it passes each filter."""
    if not traced.fits:
        return ok(FILTERS, "None was given.") if traced.visible else unknown(FILTERS, "What is not visible passes no filter.")
    refused = [name for name, fits in traced.fits.items() if not fits]
    if not refused:
        return ok(FILTERS, f"It passes {', '.join(traced.fits)}.")
    said = [f"{name} {given[name]!r} leaves it out." for name in refused]
    return stopped(FILTERS, *said, cure=f"Ask without {' and '.join(f'`--{_option(name)}`' for name in refused)}.")


def _option(name: str) -> str:
    return {"tags": "tag"}.get(name, name.replace("_", "-"))


def ranked(traced: Traced, *, asked: bool) -> Stage:
    """Its rank and value in each leg, and in the ranking."""
    if not asked:
        return unknown(RANKED, "No question was given.", cure="Add --query to see its rank.")
    ranks = traced.ranks
    if not all(traced.fits.values()):
        return unknown(RANKED, "The filters leave it out before anything is ranked.")
    if ranks is None:
        return unknown(RANKED, "Nothing of it is in sight to be ranked.")
    evidence = [_said(standing) for standing in ranks.standings]
    if ranks.problem is not None:
        evidence.append(f"The semantic leg did not look: {ranks.problem}")
    if ranks.fused_rank is not None:
        evidence.append(f"Its best chunk is number {ranks.fused_rank} of the {ranks.ranked} that were ranked.")
        return ok(RANKED, *evidence)
    if any(standing.rank is not None and standing.rank <= standing.depth for standing in ranks.standings):
        return ok(RANKED, *evidence)
    return stopped(
        RANKED, *evidence, cure="Ask in words that stand in it, or narrow the question by --path, --namespace, --source or --tag."
    )


def _said(standing: Standing) -> str:
    measure = "BM25" if standing.leg == "keyword" else "cosine"
    if standing.rank is not None:
        of = f"at least {standing.hits}" if standing.hits >= DEEP else f"{standing.hits}"
        reach = "" if standing.rank <= standing.depth else f"; only the first {standing.depth} go on"
        return f"{standing.leg}: rank {standing.rank} of {of} ({measure} {standing.value}), by {standing.passage}{reach}."
    if standing.value is not None:
        return (
            f"{standing.leg}: beyond the first {standing.hits} ({measure} {standing.value} by {standing.passage}; the last one"
            f" that goes on has {standing.border})."
        )
    if standing.leg == "keyword":
        return "keyword: it holds none of the question's words."
    return f"{standing.leg}: it has no vector that was compared."


def cut(query: str, traced: Traced) -> Stage:
    """Whether it is among the passages that are shown."""
    ranks = traced.ranks
    if ranks is None or not all(traced.fits.values()):
        return unknown(CUT, "Without a rank there is no cut.")
    if not ranks.cut_off.supported:
        return _no_match(query, ranks.cut_off)
    showing = ranks.showing
    if showing.place is None:
        return stopped(
            CUT,
            f"It is not among the {showing.passages} passages of the answer.",
            cure="Ask in words that stand in it, or narrow the question by --path, --namespace, --source or --tag.",
        )
    role = {
        "merged": f"It goes on the passage {showing.passage}.",
        "collapsed": f"The passage {showing.passage} says the same and stands for it.",
        "twin": f"The same text stands in {showing.passage}, which is shown first; it comes after all other passages.",
    }.get(showing.role or "", f"It is the passage {showing.passage}.")
    where = f"Place {showing.place} of {showing.passages} passages."
    if showing.place <= showing.shown and showing.text_cut:
        cure = f"`docwell search {shlex.quote(query)} --max-tokens 20000` shows all of it."
        return ok(CUT, where, role, "Its text is longer than max_tokens: only a part of it is shown.", cure=cure)
    if showing.place <= showing.shown:
        return ok(CUT, where, role)
    return _not_on_the_page(query, showing, where, role)


def _not_on_the_page(query: str, showing: Showing, where: str, role: str) -> Stage:
    asks = f"docwell search {shlex.quote(query)}"
    if showing.place is not None and showing.place <= showing.limit:
        return stopped(
            CUT,
            where,
            role,
            f"{showing.dropped} passages did not fit into max_tokens.",
            cure=f"`{asks} --max-tokens 20000`, or go on with the answer's cursor.",
        )
    beyond = showing.place is not None and showing.place > 50
    return stopped(
        CUT,
        where,
        role,
        f"The answer shows {showing.limit} passages.",
        cure=f"Go on with the cursor of `{asks} --limit 50`." if beyond else f"`{asks} --limit {showing.place}`",
    )


def _no_match(query: str, found: CutOff) -> Stage:
    if found.absent:
        return stopped(
            CUT,
            f"The question is {' and '.join(found.absent)} and nothing else, which no passage in sight holds: it is no_match.",
            f"The best share of its parts that a passage holds is {found.best_coverage}; {found.needed_coverage} is needed.",
            cure="Write it as the document does, or ask in words.",
        )
    said = f"The best share of the question's weight is {found.best_coverage}; {found.needed_coverage} is needed."
    if found.evidence is not None:
        said = (
            f"The best evidence is {found.evidence} (similarity {found.best_similarity} and {found.coverage_weight} times the"
            f" share of the question's words, {found.best_coverage}); {found.relevant_from} is needed."
        )
    return stopped(
        CUT,
        "Nothing that was found is about the question, so the answer is no_match.",
        said,
        cure=f"Ask in words of the document, put a name that it holds in quotes, or look for words alone:"
        f" `docwell search {shlex.quote(query)} --mode keyword`.",
    )
