"""BM25 as Robertson and Zaragoza write it (The Probabilistic Relevance Framework, 2009), with Lucene's positive idf."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

K1 = 1.2
B = 0.75


def idf(document_frequency: int, documents: int) -> float:
    """ln(1 + (N - df + 0.5) / (df + 0.5)): never negative, also for a term that stands in most documents."""
    return math.log(1 + (documents - document_frequency + 0.5) / (document_frequency + 0.5))


def inverse_frequencies(numbers: list[int], frequencies: Mapping[int, int], documents: int) -> npt.NDArray[np.float64]:
    """The idf of each term, shape (terms,). A term that is in no document has the highest of all."""
    return np.array([idf(min(frequencies.get(number, 0), documents), documents) for number in numbers], dtype=np.float64)


def scores(
    counts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    average_length: float,
) -> npt.NDArray[np.float64]:
    """BM25 of each document, shape (documents,).

    `counts` has shape (documents, terms), `lengths` (documents,) in terms, `weights` (terms,): the idf times the weight of the
    term in the query.
    """
    normalised = K1 * (1 - B + B * lengths / average_length) if average_length > 0 else np.full(lengths.shape, K1)
    saturated: npt.NDArray[np.float64] = counts * (K1 + 1) / (counts + normalised[:, None])
    result: npt.NDArray[np.float64] = saturated @ weights
    return result
