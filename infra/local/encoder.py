"""The encoder of multilingual-e5-small as an ONNX graph: token ids in, one normalised vector per text out.

Weights are int8 with one scale per output, kept to 7 bits: on processors without VNNI instructions, products of 8-bit pairs
overflow the 16-bit sums and every machine gives other vectors. Activations are quantised at run time with one scale per
token. ONNX Runtime's own dynamic quantisation takes one scale for the whole batch; then a text's vector depends on the texts
beside it, and is farther from the float model (mean cosine 0.9966 against 0.9988).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from infra.local.q4 import BLOCK, Q4File

_CONTRIB = "com.microsoft"
_WEIGHT_RANGE = 63
_ACTIVATION_RANGE = 127


def encoder_model(source: Q4File) -> onnx.ModelProto:
    """The graph: `input_ids` and `attention_mask` (int64, batch x tokens) give `embedding` (float32, batch x hidden)."""
    builder = _Builder(source)
    hidden = source.dimensions.hidden
    builder.embed_tokens()
    for layer in range(source.dimensions.layers):
        builder.encode_layer(layer)
    builder.pool()
    graph = helper.make_graph(
        builder.nodes,
        "multilingual-e5-small",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "tokens"]),
        ],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", hidden])],
        builder.constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(_CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class _Builder:
    """Nodes and constants in the order in which they run; `state` names the tensor of hidden states so far."""

    def __init__(self, source: Q4File) -> None:
        self.source = source
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.state = ""
        self.constant("axis_1", np.array([1], np.int64))
        self.constant("axis_2", np.array([2], np.int64))
        self.constant("index_0", np.array([0], np.int64))
        self.constant("unit_scale", np.array(1 / _ACTIVATION_RANGE, np.float32))
        self.constant("unit_zero", np.array(_ACTIVATION_RANGE + 1, np.uint8))
        self.constant("tiny", np.array(1e-12, np.float32))

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, *, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        return output

    def embed_tokens(self) -> None:
        """Word, position and token type embeddings, normalised. Words stay 4-bit: 250,000 rows are most of the model."""
        size = self.source.dimensions
        codes, scales = self.source.blocks("emb.word", size.vocabulary, size.hidden)
        packed = (codes[..., 0::2] | (codes[..., 1::2] << 4)).reshape(size.vocabulary, size.hidden // 2)
        self.node(
            "GatherBlockQuantized",
            [self.constant("word.codes", packed), "input_ids", self.constant("word.scales", scales)],
            "words",
            domain=_CONTRIB,
            gather_axis=0,
            quantize_axis=1,
            block_size=BLOCK,
            bits=4,
        )
        # Every token has type 0, so its embedding can be added to the positions here.
        token_type = self.source.vector("emb.type").reshape(-1, size.hidden)[0]
        positions = self.source.vector("emb.pos").reshape(-1, size.hidden) + token_type
        self.node("Shape", ["input_ids"], "shape")
        self.node("Slice", ["shape", "axis_1", "axis_2", "index_0"], "length")
        self.node("Slice", [self.constant("positions", positions), "index_0", "length", "index_0"], "places")
        self.node("Add", ["words", "places"], "placed")
        self.state = self.node(
            "LayerNormalization",
            ["placed", self._vector("emb.ln.w"), self._vector("emb.ln.b")],
            "embedded",
            axis=-1,
            epsilon=size.epsilon,
        )
        self.node("Cast", ["attention_mask"], "key_mask", to=TensorProto.INT32)

    def encode_layer(self, layer: int) -> None:
        size = self.source.dimensions
        prefix = f"l{layer}."
        joint = [self.source.matrix(f"{prefix}{part}.w", size.hidden, size.hidden) for part in "qkv"]
        bias = [self.source.vector(f"{prefix}{part}.b") for part in "qkv"]
        projected = self._linear(self.state, np.concatenate(joint), np.concatenate(bias), f"{prefix}qkv")
        parts = [f"{prefix}{part}" for part in "qkv"]
        self.nodes.append(helper.make_node("Split", [projected], parts, axis=-1))
        attended = self.node(
            "MultiHeadAttention", [*parts, "", "key_mask"], f"{prefix}attended", domain=_CONTRIB, num_heads=size.heads
        )
        self._add_and_normalise(self._stored_linear(attended, f"{prefix}ao", size.hidden, size.hidden), f"{prefix}aln")
        inner = self._stored_linear(self.state, f"{prefix}fi", size.feed_forward, size.hidden)
        active = self.node("Gelu", [inner], f"{prefix}gelu", domain=_CONTRIB)
        self._add_and_normalise(self._stored_linear(active, f"{prefix}fo", size.hidden, size.feed_forward), f"{prefix}oln")

    def pool(self) -> None:
        """The mean over real tokens, scaled to length 1."""
        self.node("Cast", ["attention_mask"], "weights_flat", to=TensorProto.FLOAT)
        self.node("Unsqueeze", ["weights_flat", "axis_2"], "weights")
        self.node("Mul", [self.state, "weights"], "weighted")
        self.node("ReduceSum", ["weighted", "axis_1"], "total", keepdims=0)
        self.node("ReduceSum", ["weights", "axis_1"], "count", keepdims=0)
        self.node("Div", ["total", "count"], "mean")
        self.node("LpNormalization", ["mean"], "embedding", axis=-1, p=2)

    def _vector(self, name: str) -> str:
        return self.constant(name, self.source.vector(name))

    def _stored_linear(self, state: str, name: str, outputs: int, inputs: int) -> str:
        return self._linear(state, self.source.matrix(f"{name}.w", outputs, inputs), self.source.vector(f"{name}.b"), name)

    def _linear(self, state: str, weights: npt.NDArray[np.float32], bias: npt.NDArray[np.float32], name: str) -> str:
        """`state @ weights.T + bias` in int8. Each token is divided by its largest magnitude, quantised, and scaled back."""
        scales = np.maximum(np.abs(weights).max(axis=1), 1e-9) / _WEIGHT_RANGE
        codes = np.round(weights / scales[:, None]).astype(np.int8).T
        self.node("Abs", [state], f"{name}.abs")
        self.node("ReduceMax", [f"{name}.abs"], f"{name}.peak", axes=[-1], keepdims=1)
        self.node("Max", [f"{name}.peak", "tiny"], f"{name}.row")
        self.node("Div", [state, f"{name}.row"], f"{name}.unit")
        self.node("QuantizeLinear", [f"{name}.unit", "unit_scale", "unit_zero"], f"{name}.in")
        self.node(
            "MatMulIntegerToFloat",
            [
                f"{name}.in",
                self.constant(f"{name}.codes", codes),
                "unit_scale",
                self.constant(f"{name}.scales", scales.astype(np.float32)),
                "unit_zero",
                self.constant(f"{name}.zeros", np.zeros(len(scales), np.int8)),
            ],
            f"{name}.product",
            domain=_CONTRIB,
        )
        self.node("Mul", [f"{name}.product", f"{name}.row"], f"{name}.scaled")
        return self.node("Add", [f"{name}.scaled", self.constant(f"{name}.bias", bias)], f"{name}.out")

    def _add_and_normalise(self, update: str, name: str) -> None:
        self.state = self.node(
            "SkipLayerNormalization",
            [self.state, update, self._vector(f"{name}.w"), self._vector(f"{name}.b")],
            f"{name}.out",
            domain=_CONTRIB,
            epsilon=self.source.dimensions.epsilon,
        )
