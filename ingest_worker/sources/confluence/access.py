"""Who may read a page: those who may read its space, and whom each restriction on the way down to it lets through.

Confluence asks a person at each level whether they, or a group of theirs, are named there. We only know names, so what comes
out is the readers that pass every level for certain: never more than Confluence lets in, at times fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest_worker.sources.confluence.model import Level

Members = Callable[[str], Level | None]
"""The members of a group by its name, as `user:NAME`; None: not known."""

Groups = Callable[[str], Level]
"""The groups that a `user:NAME` is in, as `group:NAME`, as far as they are told."""

_GROUP = "group:"


def passing(levels: Sequence[Level], members: Members, groups_of: Groups) -> Level:
    """The readers who pass each of these levels (at least one).

    A group that is named at every level passes as a whole. Of other groups those members pass who are named at each of the
    other levels, by themselves or by a group that they are in. A group whose members are not known is not looked into; whether
    somebody is in it is asked person by person.
    """
    if len(levels) == 1:
        return levels[0]
    common = frozenset.intersection(*levels)
    # Whoever passes is named at each level, so the level with the fewest groups to look into knows them all.
    narrow = min(levels, key=lambda level: (len(_groups(level) - common), len(level)))
    people = {one for one in narrow if not one.startswith(_GROUP)}
    for group in _groups(narrow) - common:
        people |= members(group.removeprefix(_GROUP)) or frozenset()
    return common | {one for one in people - common if all(_is_named(one, level, members, groups_of) for level in levels)}


def _is_named(person: str, level: Level, members: Members, groups_of: Groups) -> bool:
    if person in level:
        return True
    unknown = set()
    for group in sorted(_groups(level)):
        found = members(group.removeprefix(_GROUP))
        if found is None:
            unknown.add(group)
        elif person in found:
            return True
    return bool(unknown) and bool(unknown & groups_of(person))


def _groups(level: Level) -> Level:
    return frozenset(one for one in level if one.startswith(_GROUP))
