"""Operators whose result depends on values: exact if the values are known, otherwise with an assumption recorded."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import torch

from gonogo.evidence.rehearsal.record import UNKNOWN_MASK_ASSUMPTION
from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.dispatch.placement import common_device
from gonogo.virtual.mode import HANDLERS, Handler, VirtualMode
from gonogo.virtual.tensor import Spec, VirtualTensor
from gonogo.virtual.values import contents, propagation, real
from gonogo.virtual.values.assumptions import FINITE_ASSUMPTION

aten = torch.ops.aten
profiler = torch.ops.profiler
_UNKNOWN_MASK = Text(UNKNOWN_MASK_ASSUMPTION, "未知的掩码选中所有元素")


def _register_handler(*operators: Any) -> Callable[[Handler], Handler]:
    def register_for_operators(handler: Handler) -> Handler:
        for operator in operators:
            HANDLERS[operator] = handler
        return handler

    return register_for_operators


def _run_on_real_values(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The real result if all operands are known, else None."""
    tensors = [t for t in _nested_tensors((*args, *kwargs.values())) if isinstance(t, VirtualTensor)]
    if not tensors or not all(contents.is_known(t) for t in tensors):
        return None
    return contents.compute_values(func, args, kwargs, 0, tensors)


def _nested_tensors(arguments: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in arguments:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _nested_tensors(value)
    return found


def _virtualise_arguments(mode: VirtualMode, args: Any) -> Any:
    return tuple(mode.virtualise(a) if isinstance(a, torch.Tensor) and a.device.type != "meta" else a for a in args)


@_register_handler(aten._local_scalar_dense.default)
def _read_scalar(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if not isinstance(tensor, VirtualTensor):
        return func(*args)
    known = contents.read_values(tensor)
    if known is not None:
        if tensor.cell.chosen:
            mode.ledger.assume(contents.CHOSEN_NUMBER, "chosen_number")
        return known.item()
    if tensor.dtype == torch.bool:
        return mode.ledger.assume_branch(translated("a condition that depends on unknown values"))
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return mode.ledger.assume_number(translated("a number computed from unknown values"))
    mode.ledger.assume(translated("an integer computed from unknown values is 1"), "number")
    return 1


@_register_handler(aten._amp_foreach_non_finite_check_and_unscale_.default)
def _check_unscaled_gradients(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> None:
    """The check of a gradient scaler: gradients are assumed to be finite, so the step is taken."""
    found = contents.read_values(args[1])
    before = None if found is None else found.clone()
    mode.run(mode.operator(func), args, kwargs)
    if before is not None:
        mode.ledger.assume(FINITE_ASSUMPTION, "finite")
        contents.set_values(args[1], before)


@_register_handler(aten.nonzero.default, aten.nonzero_numpy.default, aten.argwhere.default)
def _nonzero(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Unknown masks are assumed to be True everywhere, which gives the largest possible result."""
    (tensor,) = _virtualise_arguments(mode, args)
    known = _run_on_real_values(mode, func, (tensor,), {})
    if known is None:
        mode.ledger.assume(_UNKNOWN_MASK)
        if tensor.numel() > (1 << 24):
            shape = torch.Size((tensor.numel(), tensor.dim()))
            return mode._new_tensor(Spec.of(shape, (1, shape[0]), torch.int64, tensor._device), shape.numel() * 8)
        known = func(real.ones(tensor.shape, dtype=torch.bool))
    return mode.wrap_real(known, tensor._device)


@_register_handler(aten.masked_select.default)
def _masked_select(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, mask = _virtualise_arguments(mode, args)
    shape = torch.broadcast_shapes(tensor.shape, mask.shape) or (1,)  # type: ignore[no-untyped-call]
    with mode:
        return aten.index.Tensor(tensor.expand(shape), [mask.expand(shape)])


@_register_handler(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default, aten.index_put_.default,
          aten._index_put_impl_.default)  # fmt: skip
def _index(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Convert boolean indices to integer ones, as ATen does, so that their number is exact or an assumption is
    recorded."""
    if all(not _is_mask(i) for i in args[1]) or not any(isinstance(t, VirtualTensor) for t in _nested_tensors(args)):
        return mode.run(mode.operator(func), args, kwargs)
    common_device(func, [t for t in _nested_tensors(args) if isinstance(t, VirtualTensor)], args)
    indices: list[Any] = []
    for index in args[1]:
        if _is_mask(index):
            positions = _nonzero(mode, aten.nonzero.default, (index,), {})
            with mode:
                indices += list(positions.unbind(1))
        else:
            indices.append(index)
    with mode:
        return func(args[0], indices, *args[2:], **kwargs)


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


@_register_handler(
    aten._unique2.default, aten._unique.default, aten.unique_dim.default, aten.unique_consecutive.default
)
def _unique(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The elements of an unknown tensor are assumed to be distinct."""
    args = _virtualise_arguments(mode, args)
    known = _run_on_real_values(mode, func, args, kwargs)
    if known is None:
        mode.ledger.assume(translated("elements with unknown values are distinct"))
        known = func(real.arange(args[0].numel()).reshape(args[0].shape).to(args[0].dtype), *args[1:], **kwargs)
    return mode.wrap_real(known, args[0]._device)


@_register_handler(aten.repeat_interleave.Tensor, aten.bincount.default)
def _unique_counts(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Unknown counts are assumed to be one each, and unknown classes to be all the same."""
    if not any(isinstance(t, VirtualTensor) for t in _nested_tensors(args)):
        return func(*args, **kwargs)
    args = _virtualise_arguments(mode, args)
    device = common_device(func, [a for a in args if isinstance(a, VirtualTensor)], args)
    known = _run_on_real_values(mode, func, args, kwargs)
    if known is None:
        mode.ledger.assume(translated("each unknown count is one"))
        stand_in = real.ones if func is aten.repeat_interleave.Tensor else real.zeros
        args = [stand_in(a.shape, dtype=a.dtype) if isinstance(a, VirtualTensor) else a for a in args]
        known = func(*args, **kwargs)
    return mode.wrap_real(known, device)


@_register_handler(aten.histc.default)
def _histogram(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Integers are counted in float64, since only accelerators have the kernel; unknown values are assumed to be
    equal."""
    if not isinstance(args[0], VirtualTensor):
        return func(*args, **kwargs)
    tensor, *others = args
    known = contents.read_values(tensor)
    if known is None:
        mode.ledger.assume(translated("unknown values are all in one class"))
        known = real.zeros(tensor.shape, dtype=tensor.dtype)
    if tensor._device.type != "cpu" and not tensor.dtype.is_floating_point:
        known = known.to(torch.float64)
    return mode.wrap_real(func(known, *others, **kwargs).to(tensor.dtype), tensor._device)


_SELECTION_OPERATORS = {
    aten.topk.default, aten.sort.default, aten.sort.stable, aten.argsort.default, aten.argsort.stable,
    aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim, aten.multinomial.default,
}  # fmt: skip

_TOKEN_OPERATORS = {aten.argmax.default, aten.multinomial.default}


@_register_handler(*_SELECTION_OPERATORS)
def _select_by_scores(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Selections by unknown scores (experts, tokens) cycle through all choices: valid, evenly spread, distinct."""
    out = mode.run(mode.operator(func), args, kwargs)
    indices = out[1] if isinstance(out, list | tuple) else out
    scores = args[0]
    if not isinstance(indices, VirtualTensor) or contents.is_known(indices) or indices.cell.nbytes > (8 << 20):
        return out
    if mode.next_tokens is not None and func in _TOKEN_OPERATORS and scores.dim() == 2:
        written = mode.next_tokens(indices.numel(), scores.shape[-1])
        if written is not None:
            known = torch.frombuffer(array("q", written), dtype=torch.int64)
            contents.set_values(indices, known.reshape(indices.shape).to(indices.dtype))
            propagation.propagate_choice(indices)
            return out
    propagation.propagate_choice(indices)
    mode.ledger.assume(translated("choices among unknown scores are evenly spread"), "scores")
    if func in (aten.argmax.default, aten.argmin.default) and (len(args) < 2 or args[1] is None):
        contents.set_values(indices, real.zeros(indices.shape, dtype=indices.dtype))
        return out
    dim = _selection_dim(func, args, kwargs) % max(scores.dim(), 1)
    classes = scores.shape[dim] if scores.dim() else 1
    keeps = indices.dim() == scores.dim()
    chosen = indices.shape[dim] if keeps and indices.dim() else 1
    rows = indices.numel() // max(chosen, 1)
    around = (real.arange(rows * chosen) % max(classes, 1)).reshape(rows, chosen)
    if keeps and indices.dim():
        moved = [indices.shape[d] for d in range(indices.dim()) if d != dim] + [chosen]
        around = around.reshape(moved).movedim(-1, dim)
    else:
        around = around.reshape(indices.shape)
    contents.set_values(indices, around.to(indices.dtype).contiguous())
    return out


def _selection_dim(func: Any, args: Any, kwargs: Any) -> int:
    position = {aten.topk.default: 2, aten.sort.stable: 2, aten.argsort.stable: 2}.get(func, 1)
    if func is aten.multinomial.default:
        return -1
    if func in (aten.sort.stable, aten.argsort.stable):
        return int(kwargs.get("dim", -1))
    dim = args[position] if len(args) > position else kwargs.get("dim", -1)
    return -1 if dim is None else int(dim)


@_register_handler(aten._use_cudnn_ctc_loss.default, aten._use_cudnn_ctc_loss.Tensor)
def _use_cudnn_ctc_loss(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> bool:
    """Always False: cuDNN requires 32-bit targets, concatenated on the CPU, while PyTorch's own kernel takes any."""
    return False


@_register_handler(aten._ctc_loss.default, aten._ctc_loss.Tensor)
def _ctc_loss(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The loss per sample, and the alignment table, as wide as the longest target (or its maximum, if unknown)."""
    probabilities, targets, _, lengths = args[:4]
    operands = [t for t in args[:4] if isinstance(t, torch.Tensor)]
    if not any(isinstance(t, VirtualTensor) for t in operands):
        return func(*args, **kwargs)
    if isinstance(lengths, torch.Tensor):
        known = contents.read_values(mode.virtualise(lengths))
        if known is None:
            mode.ledger.assume(translated("targets of unknown length are as long as possible"))
            longest = targets.shape[-1]
        else:
            longest = int(known.max())
    else:
        longest = max(lengths)
    steps, rows, _ = probabilities.shape if probabilities.dim() == 3 else (probabilities.shape[0], 1, 0)
    device = mode.virtualise(probabilities)._device
    with mode:
        losses = torch.empty((rows,), dtype=probabilities.dtype, device=device)
        return losses, torch.empty((rows, steps, 2 * longest + 1), dtype=probabilities.dtype, device=device)


@_register_handler(aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor)
def _ctc_loss_backward(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    if not any(isinstance(t, VirtualTensor) for t in args):
        return func(*args, **kwargs)
    with mode:
        return torch.empty_like(args[1])


@_register_handler(aten.equal.default)
def _compare_equal(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    if not any(isinstance(t, VirtualTensor) for t in args):
        return func(*args)
    left, right = _virtualise_arguments(mode, args)
    common_device(func, [left, right], args)
    if left.shape != right.shape:
        return False
    known = _run_on_real_values(mode, func, (left, right), {})
    if known is not None:
        return known
    if left.dtype.is_floating_point and contents.is_known(left) != contents.is_known(right):
        mode.ledger.assume(translated("floating-point numbers of unknown value equal none that is given"), "number")
        return False
    mode.ledger.assume(translated("tensors with unknown values are equal"), "number")
    return True


@_register_handler(aten._assert_async.msg, aten._assert_async.default)
def _assert_async(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    known = contents.read_values(args[0]) if isinstance(args[0], VirtualTensor) else args[0]
    if known is None:
        mode.ledger.assume(translated("an assertion on unknown values holds"))
        return None
    return func(known, *args[1:])


@_register_handler(
    profiler._record_function_enter_new.default,
    profiler._record_function_exit._RecordFunction,
    profiler._record_function_enter.default,
    profiler._record_function_exit.default,
)
def _record_function(mode: VirtualMode, func: Any, args: Any, kwargs: Any) -> Any:
    with private.DisableTorchDispatch():
        return func(*args, **kwargs)
