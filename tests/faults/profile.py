"""How hard to look: seeds and sizes for continuous integration, and for the long run of `make faults`."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings

SEED = "FAULTS_SEED"
MINUTES = "FAULTS_MINUTES"
SHORT_SECONDS = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """One campaign's seed, and how long things are broken, in seconds. `explore`: new examples each time, and many more."""

    seed: int
    seconds: float
    explore: bool


def chosen_effort() -> Effort:
    """From the environment: FAULTS_SEED, and FAULTS_MINUTES for a long run. Without them: short, and the same each time."""
    minutes = os.environ.get(MINUTES)
    if minutes is None:
        return Effort(seed=int(os.environ.get(SEED, "7")), seconds=SHORT_SECONDS, explore=False)
    seed = os.environ.get(SEED)
    # A long run explores: its seed is printed, and given back to repeat what it found.
    return Effort(seed=int(seed) if seed else random.SystemRandom().randrange(10**6), seconds=60 * float(minutes), explore=True)


def machine_settings(*, examples: int, steps: int) -> settings:
    """The size of a state machine's search; twenty times as many examples, new ones each time, in a long run."""
    effort = chosen_effort()
    return settings(
        max_examples=examples * (20 if effort.explore else 1),
        stateful_step_count=steps,
        derandomize=not effort.explore,
        database=None,
        deadline=None,
        # Shrinking is worth its time; tracing every line of psycopg for an explanation is not.
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
