"""The dispatch mode: serves every operator of the program with virtual tensors.

Once an operator has run with operands of given shapes, strides, dtypes and devices, its result is cached (shape,
strides, dtype, device, or which operand it is), and the next such call is a look-up. Views are always computed by the
meta kernel, since they have to share storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gonogo.finding import Text, translated
from gonogo.virtual import private
from gonogo.virtual.dispatch.kernel_checks import check_generator, check_operands, to_kernel_error
from gonogo.virtual.dispatch.placement import common_device, foreach_devices
from gonogo.virtual.dispatch.schema import Operator
from gonogo.virtual.dispatch.views import ViewCache, run_native_view
from gonogo.virtual.memory.blas_workspaces import BlasWorkspaces
from gonogo.virtual.memory.tracking import MemoryRecord
from gonogo.virtual.tensor import CPU, META, Spec, VirtualTensor, make_alias, new_virtual, resolve_device
from gonogo.virtual.unsupported import UnsupportedOperator
from gonogo.virtual.values import contents, propagation, real
from gonogo.virtual.values.assumptions import Ledger
from gonogo.virtual.values.plain_operands import StandIns

aten = torch.ops.aten
Handler = Callable[["VirtualMode", Any, Any, dict[str, Any]], Any]
HANDLERS: dict[Any, Handler] = {}
"""Operators for which shapes aren't enough; registered by the modules that implement them (``data_dependent.py``
etc.)."""
NAMESPACE_HANDLERS: dict[str, Handler] = {}

_INPLACE, _FRESH, _SEVERAL, _NOTHING, _SLOW = range(5)
_NO_KWARGS: dict[str, Any] = {}
_MAX_WRITABLE_BYTES = 1 << 30
"""Storages filled with a single number are expanded up to this size if the program may write to them through
NumPy."""


class VirtualMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of a rehearsal. ``memory`` counts storages, ``ledger`` records assumptions."""

    def __init__(self, memory: MemoryRecord, ledger: Ledger) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = memory
        self.ledger = ledger
        self.operators = 0
        self.current: Any = None
        """The operator that ran last."""
        self.uses_meta = False
        """True if the program created a meta tensor itself."""
        self.next_tokens: Callable[[int, int], list[int] | None] | None = None
        """During generation: returns a token per row, given the number of rows and of classes."""
        self.workspaces: BlasWorkspaces | None = None
        """cuBLAS workspaces; None on an Ascend NPU, which has none."""
        self.on_failure: Callable[[BaseException, Any, Any, Any], None] | None = None
        self._known_operators: dict[int, Operator] = {}
        """Keyed by id, since hashing an overload calls a Python function."""
        self._results: dict[Any, Any] = {}
        self._views = ViewCache()
        self.stand_ins = StandIns(memory, self, self.run)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping each call in a check for torch.compile, which costs several microseconds per
        operator."""
        return False

    def known_operators(self) -> Iterable[Operator]:
        """Every operator that has run so far."""
        return self._known_operators.values()

    def cached_specs(self) -> Iterator[tuple[Operator, list[Spec]]]:
        """Operators whose results depend only on shapes, with the tensor specs of each cached call."""
        for key in list(self._results):
            yield key[0], [part for part in key if type(part) is Spec]

    # -- the operator ------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Serve one operator."""
        if types and (len(types) > 1 or types[0] is not VirtualTensor) and private.has_foreign_dispatch(tuple(types)):
            return NotImplemented  # a DTensor's: its operators arrive here again, on local tensors
        self.operators += 1
        self.current = func
        try:
            operator = self._known_operators.get(id(func))
            if operator is None:
                operator = self._register_operator(func)
            if operator.handler is not None:
                check_operands(func, args)
                out = operator.handler(self, func, args, kwargs or {})
                if any(value.__class__ is VirtualTensor and value.cell.chosen for value in args):
                    propagation.propagate_choice(out)
                return out
            out = self.run(operator, args, kwargs or _NO_KWARGS)
            if operator.writes_lists:
                private.increment_versions(args[0])
            if operator.multiplies and self.workspaces is not None:
                self.workspaces.allocate_for_operator(operator.name, args, out)
            return out
        except Exception as error:
            if self.on_failure is not None:
                self.on_failure(error, func, args, kwargs or {})
            raise

    def _register_operator(self, func: Any) -> Operator:
        handler = HANDLERS.get(func) or NAMESPACE_HANDLERS.get(func.namespace)
        operator = self._known_operators[id(func)] = Operator(func, handler)
        return operator

    def operator(self, func: Any) -> Operator:
        """What is known about ``func``: its handler, schema and flags."""
        return self._known_operators.get(id(func)) or self._register_operator(func)

    def run(self, operator: Operator, args: Any, kwargs: dict[str, Any]) -> Any:
        """Serve an operator by its shapes, and compute values if those of all operands are known."""
        if operator.view_of_first and type(args[0]) is VirtualTensor:
            return self._views.view_of(operator, args)
        tensors: list[VirtualTensor] = []
        key: list[Any] = [operator, torch.get_default_dtype()]  # for tensors created without a dtype
        plain = self._collect_operands(args, key, tensors)
        if kwargs:
            for name, value in kwargs.items():
                key.append(name)
                plain = self._collect_operands((value,), key, tensors) or plain
        if plain:
            return self.stand_ins.run(operator, args, kwargs)
        if operator.view and tensors:
            return self._run_view(operator, args, kwargs, tensors)
        try:
            signature = tuple(key)
            result = self._results.get(signature)
        except TypeError:  # an unhashable argument (a generator, a script object)
            signature, result = None, None
        if result is None:
            return self._run_first_time(operator, args, kwargs, tensors, signature)
        kind, detail = result
        if kind == _SLOW:
            return self._run_first_time(operator, args, kwargs, tensors, None)
        if kind == _INPLACE:
            out = args[detail] if isinstance(detail, int) else kwargs[detail]
        elif kind == _FRESH:
            out = self._new_tensor(*detail)
        elif kind == _SEVERAL:
            make, made = detail
            out = make(self._new_tensor(*one) for one in made)
        else:
            out = None
        propagation.propagate_values(self.ledger, operator, args, kwargs, tensors, out)
        return out

    def _collect_operands(self, arguments: Any, key: list[Any], tensors: list[VirtualTensor]) -> bool:
        """Append the arguments' part of the cache key, and the virtual tensors; returns True if one is a plain
        tensor."""
        plain = False
        for value in arguments:
            kind = type(value)
            if kind is VirtualTensor:
                tensors.append(value)
                key.append(value._spec or value.spec)
            elif kind is list or kind is tuple:
                key.append(len(value))
                plain = self._collect_operands(value, key, tensors) or plain
            elif isinstance(value, VirtualTensor):  # an instance of a library's subclass (see subclasses.py)
                tensors.append(value)
                key.append(value._spec or value.spec)
            elif isinstance(value, torch.Tensor):
                plain = True
            else:
                key.append(value)
                if kind is float or kind is bool:
                    key.append(kind)
        return plain

    def _new_tensor(self, spec: Spec, nbytes: int) -> VirtualTensor:
        tensor = new_virtual(spec.shape, spec.strides, spec.dtype, spec.device)
        tensor._spec = spec
        tensor.cell = self.memory.new_cell(spec.device, nbytes)
        return tensor

    # -- the first time ----------------------------------------------------------------------------------------------

    def _run_first_time(
        self, operator: Operator, args: Any, kwargs: dict[str, Any], tensors: list[VirtualTensor], signature: Any
    ) -> Any:
        func = operator.func
        if operator.composite:
            with self:
                return func.decompose(*args, **kwargs)
        if operator.data_dependent:
            return self._run_data_dependent(operator, args, kwargs, tensors)
        wanted = kwargs.get("device")
        device = resolve_device(wanted) if wanted is not None else None
        if device is not None and device.type == "meta":  # the program explicitly asks for a meta tensor
            self.uses_meta = True
            return self._run_on_meta(func, args, kwargs)[0]
        devices = foreach_devices(args) if operator.foreach else None
        if device is None:
            device = devices[0] if devices else common_device(func, tensors, args) if tensors else CPU
        check_operands(func, args)
        check_generator(kwargs.get("generator"), device, tensors)
        stand_ins: dict[int, VirtualTensor] = {}
        if operator.inplace_view:
            raw = run_native_view(func, args, kwargs)
            for tensor in tensors:
                tensor._spec = None
        else:
            try:
                raw, stand_ins = self._run_on_meta(func, args, kwargs)
            except NotImplementedError as error:
                return self._run_without_meta_kernel(operator, args, kwargs, tensors, error)
        out, result = self._wrap(raw, device, devices, args, kwargs, stand_ins)
        if operator.inplace_view:  # the values stay where they are in the storage
            return out
        if signature is not None and result[0] != _SLOW:
            self._results[signature] = result
        propagation.propagate_values(self.ledger, operator, args, kwargs, tensors, out)
        return out

    def _run_on_meta(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[int, VirtualTensor]]:
        """Run the meta kernel on plain meta tensors of the same shapes.

        Returns its result and, by storage, the virtual tensor that each plain one stood for.
        """
        stand_ins: dict[int, tuple[torch.Tensor, VirtualTensor]] = {}
        plain_args = _substitute_stand_ins(args, stand_ins)
        plain_kwargs = {name: _substitute_stand_ins((value,), stand_ins)[0] for name, value in kwargs.items()}
        if "device" in kwargs or (not stand_ins and any(a.name == "device" for a in func._schema.arguments)):
            plain_kwargs["device"] = META
        try:
            raw = private.run_on_meta(func, plain_args, plain_kwargs)
        except RuntimeError as error:
            if (kernel_error := to_kernel_error(error, plain_args)) is error:
                raise
            raise kernel_error from None
        return raw, {private.storage_key(plain): virtual for plain, virtual in stand_ins.values()}

    def _wrap(
        self, raw: Any, device: torch.device, devices: Any, args: Any, kwargs: Any, stand_ins: dict[int, VirtualTensor]
    ) -> tuple[Any, tuple[int, Any]]:
        """Wrap a meta kernel's result in virtual tensors; also returns what to cache."""
        if raw is None:
            return None, (_NOTHING, None)
        if isinstance(raw, VirtualTensor):
            return raw, (_SLOW, None)
        if isinstance(raw, torch.Tensor):
            self._check_strided(raw)
            written = stand_ins.get(private.storage_key(raw))
            if written is not None:
                if _is_view_of(raw, written):
                    with private.DisableTorchDispatch():
                        part = private.as_strided(written, raw.shape, raw.stride(), raw.storage_offset())
                        return make_alias(part, written), (_SLOW, None)
                return written, (_INPLACE, _argument_position(written, args, kwargs))
            fresh = self._spec_and_bytes(raw, device)
            return self._new_tensor(*fresh), (_FRESH, fresh)
        if isinstance(raw, list | tuple) and raw and all(_has_new_storage(item, stand_ins) for item in raw):
            several = [self._spec_and_bytes(t, devices[i] if devices else device) for i, t in enumerate(raw)]
            make = list if isinstance(raw, list) else tuple
            return make(self._new_tensor(*one) for one in several), (_SEVERAL, (make, several))
        if isinstance(raw, list | tuple):
            wrapped = [self._wrap(item, device, None, args, kwargs, stand_ins)[0] for item in raw]
            return (wrapped if isinstance(raw, list) else tuple(wrapped)), (_SLOW, None)
        return raw, (_SLOW, None)

    def _spec_and_bytes(self, raw: torch.Tensor, device: torch.device) -> tuple[Spec, int]:
        """The arguments with which :meth:`_new_tensor` creates a virtual tensor like ``raw``."""
        self._check_strided(raw)
        return Spec.of(raw.shape, raw.stride(), raw.dtype, device), raw.untyped_storage().nbytes()

    def _check_strided(self, raw: torch.Tensor) -> None:
        if raw.layout is not torch.strided:
            raise UnsupportedOperator(
                str(self.current),
                translated("the operator's result is a sparse tensor, which a rehearsal does not support"),
            )

    def _run_without_meta_kernel(
        self, operator: Operator, args: Any, kwargs: Any, tensors: list[VirtualTensor], error: NotImplementedError
    ) -> Any:
        decomposition = private.decompositions().get(operator.func)
        if decomposition is not None:
            with self:
                return decomposition(*args, **kwargs)
        if tensors and all(contents.is_known(t) for t in tensors):
            known = contents.compute_values(operator.func, args, kwargs, 0, tensors)
            if known is not None:
                return self.wrap_real(known, common_device(operator.func, tensors, args))
        words = str(error).partition("\n")[0]  # torch's own message
        raise UnsupportedOperator(str(operator.func), Text(words, words)) from error

    def _run_data_dependent(self, operator: Operator, args: Any, kwargs: Any, tensors: list[VirtualTensor]) -> Any:
        device = common_device(operator.func, tensors, args)
        if tensors and all(contents.is_known(t) for t in tensors):
            known = contents.compute_values(operator.func, args, kwargs, 0, tensors)
            if known is not None:
                return self.wrap_real(known, device)
        returns = operator.func._schema.returns
        if len(returns) == 1 and str(returns[0].type) == "bool":
            return self.ledger.assume_branch(
                translated("the result of {name} for unknown values").format(name=operator.name)
            )
        raise UnsupportedOperator(
            str(operator.func), translated("the shape of the operator's result depends on values that are not known")
        )

    # -- views -------------------------------------------------------------------------------------------------------

    def _run_view(self, operator: Operator, args: Any, kwargs: Any, tensors: list[VirtualTensor]) -> Any:
        base = tensors[0]
        if operator.func.overloadpacket is torch.ops.aten.to:  # in inference mode, ``to`` arrives undecomposed
            return operator.func.decompose(*args, **kwargs)
        raw = run_native_view(operator.func, args, kwargs)
        if type(raw) is torch.Tensor:
            if private.storage_key(raw) == private.storage_key(base):
                return make_alias(raw, base)
            return self._unshared_result(operator, raw, args, kwargs, tensors)
        if isinstance(raw, list | tuple):
            return type(raw)(make_alias(item, base) for item in raw)
        return raw

    def _unshared_result(
        self, operator: Operator, raw: Any, args: Any, kwargs: Any, tensors: list[VirtualTensor]
    ) -> Any:
        """The result of an operator that may return a view, but made a copy this time."""
        out = self._new_tensor(*self._spec_and_bytes(raw, common_device(operator.func, tensors, args)))
        propagation.propagate_values(self.ledger, operator, args, kwargs, tensors, out)
        return out

    # -- values, for callers that read them --------------------------------------------------------------------------

    def virtualise(self, real: torch.Tensor) -> VirtualTensor:
        """The virtual counterpart of a real CPU tensor."""
        return self.stand_ins.stand_in_for(real)

    def wrap_real(self, real_value: Any, device: torch.device) -> Any:
        """Wrap real results in virtual tensors on ``device``, keeping their values."""
        if isinstance(real_value, torch.Tensor):
            out = self._new_tensor(*self._spec_and_bytes(real_value, device))
            contents.set_values(out, real_value)
            return out
        if isinstance(real_value, list | tuple):
            return type(real_value)(self.wrap_real(item, device) for item in real_value)
        return real_value

    def known_values(self, tensor: VirtualTensor) -> torch.Tensor | None:
        """A real CPU tensor with the tensor's values, sharing memory with it, or None if they are unknown."""
        with private.without_dispatch_modes():
            return contents.read_values(tensor)

    def values_or_assumed(self, tensor: VirtualTensor, for_write: bool = False) -> torch.Tensor:
        """The values, or zeros with an assumption recorded if they are unknown.

        With ``for_write``, elements get memory of their own, so that writes to the result reach the tensor.
        """
        if for_write:
            with private.without_dispatch_modes():
                contents.expand_uniform(tensor, most=_MAX_WRITABLE_BYTES)
        known = self.known_values(tensor)
        if known is not None:
            if tensor.cell.chosen:
                self.ledger.assume(contents.CHOSEN_NUMBER, "chosen_number")
            return known
        self.ledger.assume(translated("unknown values that the program reads are zero"), "zeros")
        with private.without_dispatch_modes():
            return real.zeros(tensor.shape, dtype=tensor.dtype)

    def pinned_copy(self, tensor: VirtualTensor) -> VirtualTensor:
        """A copy of a CPU tensor in page-locked memory."""
        copy = self.virtualise(tensor.detach().clone())  # tensors of a data pipeline are real
        self.memory.device(CPU).pin(copy.cell)
        return copy


def _is_view_of(raw: torch.Tensor, operand: VirtualTensor) -> bool:
    """True if a kernel returned a view of an operand (FSDP2's operators do), rather than the operand, resized or
    unchanged."""
    taken = contents.storage_bytes(operand)
    if not operand.storage_offset():  # only then is its stand-in exactly as large as the tensor's extent
        spans = 1 + sum((size - 1) * stride for size, stride in zip(operand.shape, operand.stride(), strict=True))
        taken = spans * operand.element_size() if operand.numel() else 0
    if private.storage_bytes(raw) != taken:
        return False
    same = (operand.shape, operand.stride(), operand.storage_offset())
    return (raw.shape, raw.stride(), raw.storage_offset()) != same and raw.dtype == operand.dtype


def _has_new_storage(raw: Any, stand_ins: dict[int, VirtualTensor]) -> bool:
    return isinstance(raw, torch.Tensor) and private.storage_key(raw) not in stand_ins


def _substitute_stand_ins(arguments: Any, stand_ins: dict[int, tuple[torch.Tensor, VirtualTensor]]) -> Any:
    out = []
    for value in arguments:
        if isinstance(value, VirtualTensor):
            known = stand_ins.get(id(value))
            if known is None:
                offset = value.storage_offset()
                if offset:
                    storage = real.meta(contents.storage_bytes(value) // value.element_size(), dtype=value.dtype)
                    plain = storage.as_strided(value.shape, value.stride(), offset)
                else:
                    plain = real.meta_strided(value.shape, value.stride(), dtype=value.dtype)
                known = stand_ins[id(value)] = (plain, value)
            value = known[0]
        elif isinstance(value, list | tuple):
            value = _substitute_stand_ins(value, stand_ins)
        out.append(value)
    return tuple(out) if isinstance(arguments, tuple) else out


def _argument_position(tensor: VirtualTensor, args: Any, kwargs: dict[str, Any]) -> int | str:
    for index, value in enumerate(args):
        if value is tensor:
            return index
    return next(name for name, value in kwargs.items() if value is tensor)
