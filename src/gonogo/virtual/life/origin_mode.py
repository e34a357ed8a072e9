"""The dispatch mode of a rehearsal that tracks which state is copied where: see ``origins.py``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gonogo.virtual import origins
from gonogo.virtual.collectives.exchange import C10dCall, flatten_tensors
from gonogo.virtual.life.averages import Averages
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.tensor import VirtualTensor

_virtual_dispatch = VirtualMode.__torch_dispatch__
OriginRule = Callable[[Any, Any, Any, Any], None]
"""(operator, arguments, keyword arguments, result)."""
_MAX_MIXED_STATES = 64
"""Results of more states are activations, not weights."""
BATCH = "batch"
"""The first word of the label of what was read from the training data."""


class OriginMode(VirtualMode):  # type: ignore[no-untyped-call]
    """Propagates origins whenever an operator copies."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.on_batch_used: Callable[[str], None] | None = None
        """Called once, with the batch that the next operator on batch data uses."""
        self.averages: Averages | None = None
        """Told of each operator, where a life's averages of its weights are followed."""
        self.mixed_kinds: frozenset[str] = frozenset()
        """The kinds of origins that computed results inherit from their inputs: when weights are loaded or merged, not
        in training."""
        self._rules: dict[int, OriginRule | None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator as ``VirtualMode`` does, and propagate origins."""
        if self.on_batch_used is not None:
            self._detect_batch_use(args)
        sent = _labels_before_collective(func, args) if func.namespace == "c10d" else None
        if self.averages is not None:
            self.averages.before_operator(func, args, kwargs or {})
        out = _virtual_dispatch(self, func, types, args, kwargs)
        if out is NotImplemented:
            return out
        self._propagate_origins(func, args, kwargs, out, sent)
        if self.averages is not None:
            self.averages.after_operator(func, args, out)
        return out

    def _propagate_origins(self, func: Any, args: Any, kwargs: Any, out: Any, sent: _SentPieces | None) -> None:
        if sent is not None:
            _label_received(func, args, sent)
            return
        try:
            rule = self._rules[id(func)]
        except KeyError:
            rule = self._rules[id(func)] = _origin_rule(func)
        if rule is not None:
            rule(func, args, kwargs or {}, out)
        elif self.mixed_kinds:
            _label_result(func, args, kwargs or {}, out, self.mixed_kinds)
        if self.mixed_kinds and func in _random_operators():
            _label_random_result(out)

    def _detect_batch_use(self, args: Any) -> None:
        for tensor in _virtual_tensors(args):
            for _, _, label in tensor.cell.origins or ():
                if label[0] == BATCH:
                    callback, self.on_batch_used = self.on_batch_used, None
                    if callback is not None:
                        callback(label[1])
                    return


def _virtual_tensors(values: Any) -> Iterable[VirtualTensor]:
    return (tensor for tensor in flatten_tensors(values) if isinstance(tensor, VirtualTensor))


_COPY_OPERATORS = frozenset(
    {
        *("clone", "_to_copy", "lift_fresh_copy", "detach_copy", "alias_copy", "view_copy", "_reshape_copy"),
        *(
            "_unsafe_view",
            "constant_pad_nd",
            "index_select",
            "index",
            "embedding",
            "gather",
            "narrow_copy",
            "slice_copy",
        ),
        *("select_copy", "expand_copy", "permute_copy", "t_copy", "transpose_copy", "repeat", "flip", "roll"),
        *("_pin_memory", "to_dense", "contiguous", "squeeze_copy", "unsqueeze_copy", "as_strided_copy"),
        *("all_gather_into_tensor", "all_to_all_single", "broadcast", "wait_tensor"),
    }
)
"""Operators whose result is their first operand, or parts of it."""
_OVERWRITING_OPERATORS = frozenset(
    {"zero_", "fill_", "normal_", "uniform_", "random_", "exponential_", "bernoulli_", "arange_"}
)
_WRITING_OPERATORS = frozenset({"copy_", "index_copy_", "index_put_", "scatter_", "masked_scatter_", "slice_scatter"})
_NAMESPACES = frozenset({"aten", "_c10d_functional", "_c10d_functional_autograd"})


def _origin_rule(func: Any) -> OriginRule | None:
    namespace, _, name = func._schema.name.partition("::")
    if namespace == "fsdp":
        return {"all_gather_copy_in": _gather_copy_in, "split_with_sizes_copy": _split_origins}.get(name)
    if namespace not in _NAMESPACES:
        return None
    if name == "copy_":
        return _copy_origins_to_target
    if name in _COPY_OPERATORS:
        return _copy_origins_to_result
    if name in _OVERWRITING_OPERATORS:
        return _clear_origins
    if name in ("cat", "stack", "concat"):
        return _join_origins_of_concatenated
    if name == "_foreach_copy_":
        return _copy_origins_of_each
    if name in ("_foreach_zero_",):
        return _clear_origins
    if name in ("split_with_sizes_copy", "split_copy", "unbind_copy"):
        return _split_origins
    return _add_written_origins if name in _WRITING_OPERATORS else None


@functools.cache
def _random_operators() -> frozenset[Any]:
    """The overloads that draw random numbers."""
    names = (
        *("normal_", "uniform_", "random_", "exponential_", "bernoulli_", "cauchy_", "log_normal_", "geometric_"),
        *("randn", "rand", "randint", "normal", "bernoulli", "randn_like", "rand_like", "randint_like"),
    )
    packets = [getattr(torch.ops.aten, name) for name in names]
    return frozenset(getattr(packet, name) for packet in packets for name in packet.overloads())


def _label_random_result(out: Any) -> None:
    """Label a result as drawn at random, and remove its earlier labels."""
    for result in _virtual_tensors([out]):
        start, end = origins.span_of(result)
        if origins.is_dense(result):
            origins.set_pieces(result.cell, start, end, [(0, end - start, origins.DRAWN)])


def _label_result(func: Any, args: Any, kwargs: Any, out: Any, kinds: frozenset[str]) -> None:
    """Label a computed result with all its inputs' states; which byte comes from which is not tracked."""
    given = [*_virtual_tensors(args), *_virtual_tensors(kwargs.values())]
    labels = [(0, 1, label) for tensor in given for _, _, label in origins.pieces_in(tensor) if label[0] in kinds]
    labels = list(dict.fromkeys(labels))
    if not 0 < len(labels) <= _MAX_MIXED_STATES:
        return
    cells = [tensor.cell for tensor in given]
    for result in _virtual_tensors([out]):
        if func._schema.is_mutable or not any(result.cell is cell for cell in cells):  # else it is a view
            start, end = origins.span_of(result)
            origins.set_pieces(result.cell, start, end, origins.spread_labels(labels, end - start), keep_existing=True)


def _copy_origins_to_target(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    target, source = args[0], args[1]
    if not isinstance(target, VirtualTensor):
        return
    if isinstance(source, VirtualTensor):
        origins.copy_origins(target, source)
    else:
        origins.clear_labels(target)


def _copy_origins_to_result(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    sources = list(_virtual_tensors(args[:1]))
    if sources and isinstance(out, VirtualTensor) and out.cell is not sources[0].cell:
        origins.copy_origins(out, sources[0])
        if func.namespace != "aten" and out.cell.origins:
            out.cell.origins = origins.drop_shard_labels(out.cell.origins)


def _clear_origins(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    for tensor in _virtual_tensors(args[:1]):
        origins.clear_labels(tensor)


def _join_origins_of_concatenated(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    if isinstance(out, VirtualTensor):
        dim = args[1] if len(args) > 1 else kwargs.get("dim", 0)
        origins.join_origins(out, list(_virtual_tensors(args[:1])), concatenated=dim == 0 and out.is_contiguous())


def _copy_origins_of_each(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    for target, source in zip(args[0], args[1], strict=False):
        _copy_origins_to_target(func, (target, source), {}, None)


def _add_written_origins(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    target, *rest = args
    if isinstance(target, VirtualTensor):
        start, end = origins.span_of(target)
        pieces = [piece for source in _virtual_tensors(rest) for piece in origins.pieces_in(source)]
        if pieces:
            origins.set_pieces(target.cell, start, end, origins.spread_labels(pieces, end - start), keep_existing=True)


def _split_origins(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Split a tensor into separate ones, either returned or written to ``out``."""
    (source, *_) = (*_virtual_tensors(args[:1]), None)
    if source is None:
        return
    for part in (*_virtual_tensors(kwargs.get("out", ())), *_virtual_tensors(out)):
        start, end = origins.span_of(part)
        origins.set_pieces(part.cell, start, end, origins.spread_labels(origins.pieces_in(source), end - start))


def _gather_copy_in(func: Any, args: Any, kwargs: Any, out: Any) -> None:
    """FSDP2's copy of its shards into the all-gather buffer."""
    results = list(_virtual_tensors(out))
    if results:
        origins.join_origins(results[0], list(_virtual_tensors(args[:1])), concatenated=True)


# -- collectives ------------------------------------------------------------

_SentPieces = tuple[C10dCall, list[list[origins.Piece]]]
_GATHER_OPERATORS = frozenset(
    {"allgather_", "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_"}
)


def _labels_before_collective(func: Any, args: Any) -> _SentPieces | None:
    """What the ranks' tensors held before a collective that passes contents on."""
    name = func._schema.name.removeprefix("c10d::")
    if name not in _GATHER_OPERATORS and name not in ("broadcast_", "scatter_", "gather_", "recv_", "alltoall_base_"):
        return None
    try:
        operation = C10dCall(func, args, None)
    except KeyError:
        return None
    return operation, [origins.pieces_in(tensor) for tensor in _virtual_tensors(operation.inputs)]


def _label_received(func: Any, args: Any, sent: _SentPieces) -> None:
    operation, held = sent
    outputs = list(_virtual_tensors(operation.outputs))
    name = operation.name
    if name in ("broadcast_", "scatter_", "recv_"):
        root = operation.root if name != "recv_" else operation.peer
        if root is not None and root == operation.mine:
            if name == "broadcast_":
                return  # the root keeps its contents
            _label_outputs(outputs, [held[operation.mine % max(len(held), 1)]] if held else [])
            return
        if not any(tensor.cell.origins for tensor in outputs) and not any(held):
            number = operation.members[root] if root is not None and root < len(operation.members) else root
            _mark_received(outputs, str(number))
            return
        number = operation.members[root] if root is not None and root < len(operation.members) else root
        _mark_received(outputs, str(number))
        return
    if name == "gather_" and not outputs:
        return
    if name in _FLAT_GATHERS and len({_state_part(label) for one in held for _, _, label in one}) > 1:
        _set_slot_origins(operation, outputs, held)
        return
    _label_outputs(outputs, held)


_FLAT_GATHERS = ("_allgather_base_", "allgather_into_tensor_coalesced_")


def _state_part(label: origins.Label) -> origins.Label:
    """The part of a label by which states are told apart; contents of the model's own files have none."""
    return label[:1] if label[0] == "base" else label[:3]


def _set_slot_origins(
    operation: C10dCall, outputs: list[VirtualTensor], pieces_by_rank: list[list[origins.Piece]]
) -> None:
    """If a buffer mixes several states, only this rank's slot is known; the rest is labelled as sent by other
    ranks."""
    size = max(len(operation.members), 1)
    for tensor, pieces in zip(outputs, pieces_by_rank, strict=False):
        start, end = origins.span_of(tensor)
        slot = (end - start) // size
        for number, rank in enumerate(operation.members):
            at = start + number * slot
            sent = pieces if number == operation.mine else [(0, slot, ("rank", "", str(rank), ""))]
            origins.set_pieces(tensor.cell, at, at + slot, sent)


def _mark_received(outputs: list[VirtualTensor], rank: str) -> None:
    for tensor in outputs:
        start, end = origins.span_of(tensor)
        origins.set_pieces(tensor.cell, start, end, [(0, end - start, ("rank", "", rank, ""))])


def _label_outputs(outputs: list[VirtualTensor], pieces_by_rank: list[list[origins.Piece]]) -> None:
    """Label each output with what the ranks sent: this rank's own states, of which the others hold other shards."""
    pieces = origins.drop_shard_labels([piece for one in pieces_by_rank for piece in one])
    for tensor in outputs:
        start, end = origins.span_of(tensor)
        if pieces or tensor.cell.origins:
            origins.set_pieces(tensor.cell, start, end, origins.spread_labels(pieces, end - start))
