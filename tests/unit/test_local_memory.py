"""How much memory the embedded PostgreSQL takes."""

from __future__ import annotations

import pytest

from infra.local.memory import machine_memory, memory_settings

GIB = 1024**3


@pytest.mark.parametrize(
    ("memory", "buffers", "cache"),
    [
        pytest.param(0, "256MB", "512MB", id="nobody says how much there is"),
        pytest.param(2 * GIB, "256MB", "682MB", id="a small machine"),
        pytest.param(8 * GIB, "512MB", "2730MB", id="a laptop"),
        pytest.param(256 * GIB, "1024MB", "87381MB", id="a large server"),
    ],
)
def test_a_sixteenth_of_the_memory_is_taken_between_two_bounds(memory: int, buffers: str, cache: str) -> None:
    assert memory_settings(memory) == {"shared_buffers": buffers, "effective_cache_size": cache}


def test_this_machine_has_memory() -> None:
    assert machine_memory() > 256 * 1024**2
