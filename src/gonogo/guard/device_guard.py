"""`gonogo.DeviceGuard`: names the tensor on the wrong device before torch fails on it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from gonogo.guard.tensors.devices import check_named


class DeviceGuard:
    """Watches the devices of a model's inputs and weights while it is active.

    ``model`` is a ``torch.nn.Module``, a DeepSpeed engine or a DDP wrapper. Use it around the training loop::

        with gonogo.DeviceGuard(model):
            train()

    or call :meth:`attach` and :meth:`detach` yourself. Before the forward of each of torch's own layers (``Linear``,
    ``Embedding`` …) its tensor arguments are compared with its weights, and if they are on different devices,
    :class:`gonogo.MixedDevicesError` is raised with the module's path and a table. Any other exception that leaves
    the ``with`` block gets a note: the module, the tensors of the line that failed with their devices and parameter
    names, and for ZeRO-3 the state of the parameters. Costs a few microseconds per layer, and never waits for the
    GPU.
    """

    def __init__(self, model: Any) -> None:
        import torch

        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"DeviceGuard: a torch.nn.Module or a DeepSpeed engine is needed, not {type(model).__name__}"
            )
        wrapped = type(model).__name__ in ("DeepSpeedEngine", "PipelineEngine", "DistributedDataParallel")
        self.model: Any = model.module if wrapped else model
        self._handles: list[Any] = []

    def attach(self) -> DeviceGuard:
        """Start watching; does nothing if it already does."""
        if not self._handles:
            for name, module in self.model.named_modules():
                if type(module).__module__.startswith("torch.nn.modules.") and _is_layer(module):
                    hook = _DeviceCheckHook(name or type(module).__name__)
                    self._handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        return self

    def detach(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> DeviceGuard:
        return self.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()
        if isinstance(error, Exception) and not hasattr(error, "_gonogo_noted"):
            from gonogo.guard.common.faults import harmless

            harmless("exceptions")(_annotate_error)(error, self.model)


def _annotate_error(error: Exception, model: Any) -> None:
    import os

    from gonogo.finding.language import language_of_locale
    from gonogo.guard.rank.exceptions import annotate, failure_context
    from gonogo.guard.tensors.modules import Names

    rank = f"rank {os.environ.get('RANK', '0')}"
    annotate(error, failure_context(error, model, Names(model)), (rank,), language_of_locale(os.environ))


def _is_layer(module: Any) -> bool:
    """Whether a module has weights of its own to compute with."""
    return any(value is not None for value in (*module._parameters.values(), *module._buffers.values()))


class _DeviceCheckHook:
    """Forward pre-hook that checks one layer's devices; DeepSpeed has gathered the layer's weights by then."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        import torch

        inputs = [(f"input {index}", value) for index, value in enumerate(arguments)] + list(named.items())
        own = (*module._parameters.items(), *module._buffers.items())
        found = [(name, value) for name, value in inputs if isinstance(value, torch.Tensor)]
        weights = [(f"{self._name}.{name}", value) for name, value in own if value is not None]
        if not found or not weights:
            return
        devices = {value.device for _, value in (*weights, *found)}
        if len(devices) > 1:
            home = next((str(device) for device in devices if device.type != "cpu"), None)
            check_named([*found, *weights], home, f"{self._name} ({type(module).__name__}): ")
