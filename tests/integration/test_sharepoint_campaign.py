"""People edit libraries while Graph fails by chance: whoever follows them knows in the end what is there.

More seeds: `SHAREPOINT_SEEDS=500`.
"""

from __future__ import annotations

import os

import pytest

from tests.graph_asking import Mirror, asking, seen, truth
from tests.graph_editing import People
from tests.graph_stand_in import StandInGraph, standing_in


def campaign(seed: int) -> StandInGraph:
    """A tenant whose services differ with the seed."""
    graph = StandInGraph(seed)
    site = graph.site()
    for number, name in enumerate(("Documents", "Plans")):
        drive = graph.drive(site, name)
        bits = seed >> (2 * number)
        drive.facets = bool(bits & 1)
        drive.marks_new_sharing_only = bool(seed & 1)
        drive.tells_descendants = bool(bits & 2)
        drive.tells_sharing = bool(seed & 4)
        drive.ctag_in_delta = bool(seed & 8)
        drive.page_size = 2 + seed % 5
    return graph


@pytest.mark.parametrize("seed", range(int(os.environ.get("SHAREPOINT_SEEDS", "6"))))
def test_a_mirror_is_like_the_libraries_in_the_end(seed: int) -> None:
    graph = campaign(seed)
    people = People(graph.sites[0].drives, seed)
    people.work(30)
    mirror = Mirror()
    with standing_in(graph):
        for turn in range(3):
            # A source that was restarted knows nothing but the cursor.
            with asking(graph, site="contoso.sharepoint.com:/sites/marketing") as source:
                graph.fault_rate = 0.1
                for _ in range(2):
                    mirror.sync_until_done(source, between=lambda: people.work(1))
                    people.work(8)
                if turn == 1:
                    graph.sites[0].drives[seed % 2].forget_tokens()
                graph.fault_rate = 0.0
                mirror.sync(source)
                assert seen(mirror, permissions=False) == truth(graph, permissions=False)
                mirror.list_all(source)
                mirror.sync(source)
                assert seen(mirror) == truth(graph)
    assert graph.leaked == []
