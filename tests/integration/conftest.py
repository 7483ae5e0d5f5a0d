"""What several modules share: sites that are asked, stand-ins of paid models, and the parser in its cage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from infra.local.redis import EmbeddedRedis
from ingest_worker.parse.cage import CageLimits, ParserCage
from shared.usage import STREAM
from tests import pictures
from tests.anthropic_contexts import describe
from tests.anthropic_stand_in import StandIn as AnthropicStandIn
from tests.anthropic_stand_in import anthropic_stand_in
from tests.confluence_asking import Office
from tests.confluence_stand_in import StandIn, confluence
from tests.confluence_wiki import Hands
from tests.conftest import Database, passable_folder
from tests.graph_drives import StandInDrive
from tests.graph_stand_in import StandInGraph, one_library
from tests.shop import BatchShop, open_shop
from tests.studio import Studio, open_studio
from tests.v1_embeddings import Server, embeddings_server


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def server() -> Iterator[Server]:
    """A service of embeddings."""
    with embeddings_server() as running:
        yield running


@pytest.fixture(scope="module")
def usage_redis() -> Iterator[EmbeddedRedis]:
    """A Redis with the login of the query server, which may add to its stream."""
    with passable_folder() as folder:
        redis_server = EmbeddedRedis(folder / "home")
        redis_server.start()
        yield redis_server
        redis_server.stop()


@pytest.fixture
def broker(usage_redis: EmbeddedRedis) -> Iterator[redis.Redis]:
    """As the ingest side sees it, with an empty stream."""
    with redis.Redis.from_url(usage_redis.url) as client:
        client.delete(STREAM)
        yield client


@pytest.fixture(scope="module")
def running() -> Iterator[AnthropicStandIn]:
    with anthropic_stand_in() as service:
        yield service


@pytest.fixture
def model(running: AnthropicStandIn) -> AnthropicStandIn:
    """A model that describes passages, as on its first day."""
    running.clear()
    running.otherwise = describe
    return running


@pytest.fixture
def ordering(database: Database, tmp_path: Path, cage: ParserCage, model: AnthropicStandIn) -> Iterator[BatchShop]:
    """A worker that orders contexts in batches, and one who looks after them."""
    with open_shop(database.url, tmp_path, cage, model, context_batches="all") as shop:
        yield BatchShop(shop=shop)


@pytest.fixture
def studio(database: Database, tmp_path: Path, cage: ParserCage) -> Iterator[Studio]:
    with (
        anthropic_stand_in(otherwise=pictures.describe) as model,
        open_studio(database.url, tmp_path, cage, model) as found,
    ):
        yield found


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
