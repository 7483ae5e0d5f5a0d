"""The bundled model in this process."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shared.embedding.bundled import MANIFEST_FILE, MODEL_FILE, TOKENIZER_FILE, bundled_model_dir
from shared.embedding.local import LocalEmbedder
from shared.embedding.protocol import Role
from shared.errors import ConfigurationError

PASSAGES = [
    "Die Kündigungsfrist beträgt drei Monate zum Monatsende und muss schriftlich erklärt werden.",
    "Die Mitochondrien erzeugen den größten Teil der Energie einer Zelle.",
    "Für den Teig werden 500 Gramm Mehl, ein Würfel Hefe und lauwarmes Wasser verknetet.",
]


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder(bundled_model_dir(), threads=2)


def test_vectors_have_the_promised_shape_type_and_length(embedder: LocalEmbedder) -> None:
    vectors = embedder.embed(PASSAGES, Role.PASSAGE)
    assert vectors.shape == (3, embedder.fingerprint.dimension) == (3, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_texts_give_no_vectors(embedder: LocalEmbedder) -> None:
    assert embedder.embed([], Role.PASSAGE).shape == (0, 384)


def test_an_english_question_is_nearest_to_its_german_answer(embedder: LocalEmbedder) -> None:
    questions = ["How long is the notice period of the contract?", "Where does a cell get its energy?", "How do I make dough?"]
    similarity = embedder.embed(questions, Role.QUERY) @ embedder.embed(PASSAGES, Role.PASSAGE).T
    assert similarity.argmax(axis=1).tolist() == [0, 1, 2]


def test_a_vector_does_not_depend_on_the_texts_beside_it(embedder: LocalEmbedder) -> None:
    texts = [*PASSAGES, "kurz", "每天需要多少蛋白质？", "def cancel(self) -> None:\n    self.open = False", PASSAGES[0] * 4]
    together = embedder.embed(texts, Role.PASSAGE)
    alone = np.concatenate([embedder.embed([text], Role.PASSAGE) for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.99999


def test_query_and_passage_are_embedded_differently(embedder: LocalEmbedder) -> None:
    query, passage = (embedder.embed(PASSAGES[:1], role)[0] for role in (Role.QUERY, Role.PASSAGE))
    assert float(query @ passage) < 0.999


def test_nothing_of_a_text_longer_than_the_window_is_lost(embedder: LocalEmbedder) -> None:
    filler = "Der Zug fährt um acht Uhr in Hamburg ab und kommt am Mittag in Köln an. " * 60
    without = embedder.embed([filler], Role.PASSAGE)[0]
    changed = embedder.embed([filler + PASSAGES[1] * 12], Role.PASSAGE)[0]
    wanted = embedder.embed(["Where does a cell get its energy?"], Role.QUERY)[0]
    assert float(wanted @ changed) > float(wanted @ without) + 0.01
    assert np.linalg.norm(changed) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("text", ["", " \n\t", "\x00", "\ufdfa" * 600, "a" * 5000, "\ud800".encode("utf-8", "replace").decode()])
def test_strange_texts_have_a_vector_of_length_one_too(embedder: LocalEmbedder, text: str) -> None:
    vector = embedder.embed([text], Role.PASSAGE)[0]
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)


def test_many_short_texts_keep_their_order(embedder: LocalEmbedder) -> None:
    texts = [f"item {number}" + " x" * (number % 7) for number in range(300)]
    vectors = embedder.embed(texts, Role.PASSAGE)
    picked = [0, 1, 255, 256, 299]
    alone = np.concatenate([embedder.embed([texts[index]], Role.PASSAGE) for index in picked])
    assert (vectors[picked] * alone).sum(axis=1).min() > 0.99999


def test_a_folder_without_description_is_told_apart_by_its_files(embedder: LocalEmbedder, tmp_path: Path) -> None:
    own = tmp_path / "my-model"
    own.mkdir()
    for name in (MODEL_FILE, TOKENIZER_FILE):
        (own / name).symlink_to(bundled_model_dir() / name)
    other = LocalEmbedder(own, threads=1)
    assert other.fingerprint.model == "my-model"
    assert other.fingerprint.key != embedder.fingerprint.key
    similar = other.embed(PASSAGES, Role.PASSAGE) * embedder.embed(PASSAGES, Role.PASSAGE)
    assert similar.sum(axis=1).min() > 0.99999


def test_files_that_do_not_match_their_description_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / MODEL_FILE).symlink_to(bundled_model_dir() / MODEL_FILE)
    shutil.copy(bundled_model_dir() / TOKENIZER_FILE, folder)
    description = json.loads((bundled_model_dir() / MANIFEST_FILE).read_text())
    description["files"][TOKENIZER_FILE] = "0" * 64
    (folder / MANIFEST_FILE).write_text(json.dumps(description))
    with pytest.raises(ConfigurationError, match="damaged or replaced"):
        LocalEmbedder(folder, threads=1)


def test_a_missing_model_names_the_command_that_builds_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="make install"):
        LocalEmbedder(tmp_path)


def test_a_file_that_is_no_model_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / MODEL_FILE).write_bytes(b"not a graph")
    with pytest.raises(ConfigurationError, match=r"model\.onnx"):
        LocalEmbedder(tmp_path)


def test_nothing_is_asked_of_the_network_at_import_or_by_the_local_model() -> None:
    code = (
        "import sys\n"
        "from ingest_worker.parse import sandbox\n"
        "sys.addaudithook(sandbox._refuse)\n"
        "import infra.cli, infra.local.up, ingest_worker.jobs.worker, ingest_worker.jobs.scheduler, query_server.assembly\n"
        "infra.cli.make_app()\n"
        "from shared.config import Settings\n"
        "from shared.embedding.open import open_embedder\n"
        "from shared.embedding.protocol import Role\n"
        "from shared.tokens import load_token_counter\n"
        "assert load_token_counter().count('two words') >= 2\n"
        "assert open_embedder(Settings()).embed(['a'], Role.QUERY).shape == (1, 384)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
