"""A reranker in this process: a small model that is built here, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from infra.doctor import look_at_reranker
from query_server.retrieve.rerank import OnDemand, RerankFailed
from query_server.retrieve.rerank_local import LocalReranker
from query_server.retrieve.rerank_open import open_reranking
from shared.config import Settings, load_settings
from shared.errors import ConfigurationError
from tests.asking import DIMENSION, MODEL, add, serving
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus, text_chunk
from tests.reranking import fill, paths, warned


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url, dimension=DIMENSION, fingerprint=MODEL.key) as found:
        yield found


@pytest.fixture(params=[1, 2], ids=["one class", "two classes"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_cross_encoder(tmp_path / "model", classes=request.param)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "question"]


def make_cross_encoder(folder: Path, *, classes: int) -> Path:
    """A model that counts `good` in the second text and takes off `bad`; the first text and the padding count nothing."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))],
    )
    tokenizer.enable_padding()
    tokenizer.save(str(folder / "tokenizer.json"))
    worth = np.zeros((len(WORDS), 1), np.float32)
    worth[WORDS.index("good")], worth[WORDS.index("bad")], worth[WORDS.index("[PAD]")] = 1.0, -1.0, 100.0
    spread = np.array([[1.0]] if classes == 1 else [[0.0, 1.0]], np.float32)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    nodes = [
        helper.make_node("Gather", ["worth", "input_ids"], ["values"]),
        helper.make_node("Mul", ["attention_mask", "token_type_ids"], ["second"]),
        helper.make_node("Cast", ["second"], ["weights"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weights", "last"], ["wide"]),
        helper.make_node("Mul", ["values", "wide"], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "middle"], ["sums"], keepdims=0),
        helper.make_node("MatMul", ["sums", "spread"], ["logits"]),
    ]
    constants = {"worth": worth, "spread": spread, "last": np.array([2]), "middle": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "cross-encoder",
        inputs,
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(folder / "model.onnx"))
    return folder


def _local(folder: Path, **options: Any) -> LocalReranker:
    return LocalReranker(folder, **{"threads": 1, "limit_seconds": 30.0} | options)


def test_a_model_reads_the_pairs_as_its_tokenizer_says(model: Path) -> None:
    texts = ["bad", "good", "good good", "neither", "", "good " * 100 + "bad"]
    found = _local(model).scores("good question good", texts)
    assert found == pytest.approx([1 / (1 + np.exp(-value)) for value in (-1, 1, 2, 0, 0, 99)])


def test_a_text_longer_than_the_model_reads_is_cut(model: Path) -> None:
    [long, short] = _local(model).scores("question", ["neither " * 2000 + "good", "good"])
    assert (long, short) == (pytest.approx(0.5), pytest.approx(0.731, abs=1e-3))
    assert _local(model).scores("question " * 2000, ["good"]) == [pytest.approx(0.731, abs=1e-3)]


def test_a_model_stops_when_its_time_is_over(model: Path) -> None:
    times = iter([0.0, 0.5, 5.0])
    with pytest.raises(RerankFailed, match="longer than 1 s"):
        _local(model, limit_seconds=1.0, monotonic=lambda: next(times)).scores("question", ["good " * 500] * 50)


def test_a_search_with_a_model_of_ones_own(corpus: Corpus, database: Database, model: Path) -> None:
    for name, text in (("a.md", "alpha bad"), ("b.md", "alpha good good"), ("c.md", "alpha good")):
        add(corpus, name, text_chunk(text))
    settings, _ = load_settings({"DOCWELL_RERANK_MODEL_PATH": str(model)})
    reranking = open_reranking(settings.model_copy(update={"rerank_seconds": 30.0}), patient=True)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        answer = service.search("alpha")
    assert (paths(answer), warned(answer)) == (["b.md", "c.md", "a.md"], [])


def test_files_that_are_missing_or_no_model_are_named(tmp_path: Path, model: Path) -> None:
    with pytest.raises(ConfigurationError, match="DOCWELL_RERANK_MODEL_PATH"):
        _local(tmp_path)
    (model / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ConfigurationError, match=r"model\.onnx cannot be loaded"):
        _local(model)


def test_a_search_whose_model_is_missing_answers_and_says_so(corpus: Corpus, database: Database, tmp_path: Path) -> None:
    fill(corpus, 2)
    settings, _ = load_settings({"DOCWELL_RERANK_MODEL_PATH": str(tmp_path)})
    reranking = open_reranking(settings, patient=True)
    with serving(database, reranking=OnDemand(lambda: reranking)) as service:
        answer = service.search("alpha")
    assert len(answer["results"]) == 2
    assert "is missing" in warned(answer)[0]


def test_it_is_off_unless_it_is_set_and_only_one_can_be(tmp_path: Path) -> None:
    assert open_reranking(load_settings({})[0], patient=False) is None
    with pytest.raises(ConfigurationError, match="rerank_url is set too"):
        load_settings({"DOCWELL_RERANK_URL": "http://127.0.0.1:1", "DOCWELL_RERANK_MODEL_PATH": str(tmp_path)})


def test_the_doctor_asks_the_reranker_that_is_set(tmp_path: Path) -> None:
    assert list(look_at_reranker(Settings())) == []
    [away] = look_at_reranker(Settings(rerank_url="http://127.0.0.1:1/rerank"))
    assert (away.check, away.status) == ("reranker", "failed")
    assert "cannot be reached" in away.finding
    assert "DOCWELL_RERANK_URL" in (away.cure or "")
    [missing] = look_at_reranker(Settings(rerank_model_path=tmp_path))
    assert (missing.status, "DOCWELL_RERANK_MODEL_PATH" in (missing.cure or "")) == ("failed", True)
