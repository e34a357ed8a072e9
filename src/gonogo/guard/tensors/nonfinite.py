"""Finds the first module or gradient that is NaN or Inf; opt-in, since every check waits for the GPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gonogo.evidence.guarded.records import NonFiniteRecord
from gonogo.guard.common.faults import harmless

if TYPE_CHECKING:
    from gonogo.guard.common.state import RankState

_GUARD_PART = "values that are not finite"


def look_for_nonfinite(state: RankState, model: Any) -> None:
    """Look at every module's output and every gradient from now on, until something is found."""
    state.search = NonfiniteCheck(state, model)


class NonfiniteCheck:
    """Checks outputs, the loss and gradients for NaN and Inf.

    An activation alone proves nothing (masks contain infinities): it is reported only once the loss or a gradient of
    the same step is not finite either.
    """

    def __init__(self, state: RankState, model: Any) -> None:
        self._state = state
        self._suspect: NonFiniteRecord | None = None
        self._handles: list[Any] = [model.register_forward_pre_hook(self._clear_suspect)]
        for name, module in model.named_modules():
            self._handles.append(module.register_forward_hook(self._output_of(name), with_kwargs=True))
        if not _scales_loss(state.engine):
            for name, parameter in model.named_parameters():
                if parameter.requires_grad:
                    self._handles.append(parameter.register_hook(self._gradient_hook(name)))

    def _clear_suspect(self, module: Any, arguments: Any) -> None:
        self._suspect = None

    def _output_of(self, name: str) -> Any:
        @harmless(_GUARD_PART)
        def check_output(module: Any, arguments: Any, named: Any, output: Any) -> None:
            if self._suspect is not None or not self._handles:
                return
            found = next((one for one in _tensors_in(output) if not _is_finite(one)), None)
            if found is None:
                return
            inputs = all(_is_finite(one) for one in _tensors_in((arguments, named)))
            own = next((p for p, value in module.named_parameters(recurse=False) if not _is_finite(value)), None)
            parameter = None if own is None else f"{name}.{own}" if name else own
            path = name or type(module).__name__
            self._suspect = self._nonfinite_record("activation", found, path, type(module).__name__, parameter, inputs)

        return check_output

    def _gradient_hook(self, name: str) -> Any:
        @harmless(_GUARD_PART)
        def check_gradient(gradient: Any) -> None:
            if self._handles and not _is_finite(gradient):
                module = name.rpartition(".")[0]
                self._write(self._nonfinite_record("gradient", gradient, module or None, None, name, None))

        return check_gradient

    @harmless(_GUARD_PART)
    def check_loss(self, loss: Any) -> None:
        """Check the loss of a step."""
        if self._handles and isinstance(loss, sys.modules["torch"].Tensor) and not _is_finite(loss):
            self._write(self._nonfinite_record("loss", loss, None, None, None, None))

    def _write(self, nonfinite: NonFiniteRecord) -> None:
        """Record the first suspicious activation, if any, then the loss or gradient that is not finite."""
        for record in (self._suspect, nonfinite):
            if record is not None and self._state.writer is not None:
                self._state.writer.put(record)
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _nonfinite_record(
        self,
        nonfinite_value: Any,
        value: Any,
        module: str | None,
        kind: str | None,
        parameter: str | None,
        inputs: bool | None,
    ) -> NonFiniteRecord:
        value = value.detach()
        return NonFiniteRecord(
            time.time(),
            step=self._state.step,
            what=nonfinite_value,
            module=module,
            module_class=kind,
            parameter=parameter,
            inputs_finite=inputs,
            nan=int(value.isnan().sum()),
            infinite=int(value.isinf().sum()),
            elements=value.numel(),
            dtype=str(value.dtype).removeprefix("torch."),
        )


def _scales_loss(engine: Any) -> bool:
    """Whether gradients are scaled and may overflow on purpose, as with fp16's dynamic loss scale."""
    return engine is not None and bool(engine.fp16_enabled())


def _tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4:
        inner = value.values() if hasattr(value, "values") else value if isinstance(value, list | tuple) else ()
        for one in list(inner):
            yield from _tensors_in(one, depth + 1)


def _is_finite(value: Any) -> bool:
    torch: Any = sys.modules["torch"]
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return True
    if not value.numel() or value.device.type == "meta" or value.is_sparse:
        return True
    return bool(torch.isfinite(value.detach()).all())
