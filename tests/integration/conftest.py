"""Sites that several modules ask: a library of SharePoint, and Confluence as Cloud and as Data Center."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.confluence_asking import Office
from tests.confluence_stand_in import StandIn, confluence
from tests.confluence_wiki import Hands
from tests.graph_drives import StandInDrive
from tests.graph_stand_in import StandInGraph, one_library


@pytest.fixture
def graph() -> Iterator[StandInGraph]:
    """A tenant with one site that has one library."""
    with one_library() as serving:
        yield serving


@pytest.fixture
def drive(graph: StandInGraph) -> StandInDrive:
    return graph.sites[0].drives[0]


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture(params=["cloud", "data_center"])
def site(request: pytest.FixtureRequest, hands: Hands) -> Iterator[StandIn]:
    with confluence(request.param, hands) as listening:
        yield listening


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client() as opened:
        yield opened


@pytest.fixture
def office(site: StandIn) -> Office:
    return Office(site)


@pytest.fixture
def dc() -> Iterator[StandIn]:
    with confluence("data_center", Hands()) as listening:
        yield listening


@pytest.fixture
def office_dc(dc: StandIn) -> Office:
    return Office(dc)
