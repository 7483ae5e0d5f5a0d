"""The routes that tell what deliveries of the generic webhook came to."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from ingest_worker.api.addresses import REST
from ingest_worker.api.answers import PROBLEMS, Limit, answer, services
from ingest_worker.api.caller import caller
from ingest_worker.catalogue.asking import storable
from ingest_worker.catalogue.delivery_listing import DeliveryStatus, get_delivery, list_deliveries, unknown_delivery
from ingest_worker.intake.deliveries import GENERIC

router = APIRouter(prefix="/v1", tags=["webhooks"], responses=PROBLEMS)


@router.get("/deliveries")
def list_some(
    request: Request,
    status: Annotated[list[DeliveryStatus] | None, Query(description="May be repeated.")] = None,
    namespace: str | None = None,
    limit: Limit = 100,
    cursor: str | None = None,
) -> Response:
    """Deliveries of the generic webhook within thirty days, newest first, with what each came to."""
    caller(request).check_list(namespace)
    with services(request).pool.connection() as connection:
        found = list_deliveries(
            connection, GENERIC, statuses=status or (), namespace=storable(namespace), cursor=cursor, limit=limit
        )
    return answer({"deliveries": found.rows, "next_cursor": found.next_cursor})


@router.get(f"/deliveries/{{delivery_id:{REST}}}")
def get_one(request: Request, delivery_id: Annotated[str, Path(min_length=1, max_length=256, pattern="^[!-~]+$")]) -> Response:
    """One delivery and what it came to."""
    with services(request).pool.connection() as connection:
        found = get_delivery(connection, GENERIC, delivery_id)
    if not caller(request).sees(found.namespace or ""):
        raise unknown_delivery(delivery_id)
    return answer(found)
