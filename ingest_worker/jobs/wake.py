"""Wake workers through Celery. A message carries nothing but «there is work»; losing it costs a scheduler's tick."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

WORK = "docwell.work"

Wake = Callable[[int], None]
"""Says that so many jobs are due. Never raises: the rows are safe, and the scheduler wakes again."""

log = structlog.get_logger(__name__)


def celery_wake(app: Celery, *, most: int) -> Wake:
    """A `Wake` that sends as many messages as there are jobs, at most `most`: a woken worker works until nothing is due."""

    def wake(due: int) -> None:
        for _ in range(min(due, most)):
            try:
                app.send_task(WORK, ignore_result=True, retry=False)
            except (OperationalError, RedisError, OSError) as error:
                log.warning("broker_unreachable", error=str(error), cure="The jobs wait; work goes on when Redis is back.")
                return

    return wake
