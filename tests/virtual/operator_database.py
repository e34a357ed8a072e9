"""Calls of torch's own database of operators, modules and optimizers on a device: what each gives, a line of JSON each.

    python operator_database.py cpu|cuda

Run for real on the CPU, and as it is on virtual accelerators. A call is told by the shapes and dtypes of what it
returns and of the gradients of what it was given, or by the kind of error.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db
from torch.utils._pytree import tree_flatten

DTYPES = (torch.float32, torch.bfloat16)
SAMPLES = 3
DEVICE = sys.argv[1]


def tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in tree_flatten(value)[0] if isinstance(one, torch.Tensor)]


def told(value: Any) -> list[Any]:
    return [[list(one.shape), str(one.dtype)] for one in tensors(value)]


def run(call: Any, leaves: list[torch.Tensor]) -> list[Any]:
    """What the call returns, and the gradients of the leaves after a backward through all that has one."""
    out = call()
    parts = [torch.view_as_real(one) if one.is_complex() else one for one in tensors(out) if one.requires_grad]
    if parts:
        torch.stack([(part.float() * 2).sum() for part in parts]).sum().backward()
    return [told(out), [told(leaf.grad) for leaf in leaves]]


def operators() -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    for op in op_db:
        for dtype in DTYPES:
            if dtype not in op.supported_dtypes("cuda") or op.name.startswith("sparse."):
                continue  # a sparse operand can't be rehearsed
            torch.manual_seed(0)
            grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
            samples = op.sample_inputs(DEVICE, dtype, requires_grad=grad)
            for number, sample in enumerate(itertools.islice(samples, SAMPLES)):
                given = (sample.input, sample.args, sample.kwargs)
                leaves = [one for one in tensors(given) if one.requires_grad and one.is_leaf]
                name = f"{op.name}.{op.variant_test_name}".removesuffix(".")
                yield f"{name} {dtype} {number}", lambda o=op, s=sample: o(s.input, *s.args, **s.kwargs), leaves


def modules() -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    for info in module_db:
        if "Lazy" in info.name:
            continue
        for dtype, training in itertools.product(DTYPES, (True, False)):
            torch.manual_seed(0)
            inputs = info.module_inputs_func(info, device=DEVICE, dtype=dtype, requires_grad=True, training=training)
            for number, given in enumerate(itertools.islice(inputs, SAMPLES)):
                made, passed = given.constructor_input, given.forward_input
                module = info.module_cls(*made.args, **made.kwargs).to(device=DEVICE, dtype=dtype).train(training)
                leaves = list(module.parameters())
                if passed is not None:
                    kind = "training" if training else "evaluation"
                    yield (
                        f"{info.name} {kind} {dtype} {number}",
                        lambda m=module, p=passed: m(*p.args, **p.kwargs),
                        leaves,
                    )


def optimizers() -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    for info in optim_db:
        for number, given in enumerate(info.optim_inputs_func(device=DEVICE)):
            weights = [torch.nn.Parameter(torch.ones(4, 4, device=DEVICE)) for _ in range(2)]
            optimizer = info.optim_cls(weights, **given.kwargs)
            yield f"{info.optim_cls.__name__} float32 {number}", lambda o=optimizer, w=weights: stepped(o, w), []


def stepped(optimizer: Any, weights: list[torch.Tensor]) -> Any:
    """The state after a step, by key."""

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.stack([(weight @ weight).sum() for weight in weights]).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return sorted(optimizer.state[weights[0]].items())


def main() -> None:
    warnings.filterwarnings("ignore")
    for name, call, leaves in itertools.chain(operators(), modules(), optimizers()):
        try:
            answer: Any = run(call, leaves)
        except Exception as error:
            answer = type(error).__name__
        print("@", json.dumps([name, answer]), flush=True)


main()
