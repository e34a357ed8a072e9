"""What a training costs: a user's own table of prices, held against the times of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from gonogo.evidence.document.yaml_file import YamlFile
from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.evidence.environment.instances import rented
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Text, planned, translated
from gonogo.finding.errors import UserError

MAX_SLOWDOWN = 2.0
"""Of the estimated time: half the speed, for data loading, Python and the network, which the roofline leaves out."""
_TOKENS = 1_000_000_000
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


class Price(msgspec.Struct, frozen=True):
    """What one GPU costs an hour; ``lowest`` and ``highest`` are the same where the table has one figure."""

    lowest: float
    highest: float
    currency: str


def tokens_of(text: str | None) -> int:
    """The tokens of ``300M``, ``1.5B`` or ``2000000``; a billion where nothing is said. Raises UserError."""
    if text is None:
        return _TOKENS
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    try:
        tokens = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        tokens = 0.0
    if not 1 <= tokens < inf:
        raise UserError(translated("--tokens {text}: write a number, for example 300M or 1.5B").format(text=repr(text)))
    return round(tokens)


def read_price(path: Path, gpus: str | None, accelerator: str) -> Price:
    """The price of the accelerators of ``--gpus`` in a table (YAML or JSON).

    ``p5.48xlarge: 98.32`` is an hour of that instance, ``H100-80G: [2.1, 4]`` an hour of a GPU; ``currency: CNY``
    names what they are in. The instance's price wins where ``gpus`` names one. Raises UserError.
    """
    file = YamlFile(SourceFile.read(path))
    if not file.readable:
        why = next((problem.message for problem in file.problems), translated("unreadable"))
        raise _price_error(path, why)
    found = rented(gpus) if gpus is not None else None
    prices: dict[str, tuple[float, float]] = {}
    currency = ""
    for name in file.names():
        value = file.get(name).value
        if name == "currency":
            currency = str(value)
        else:
            prices[name] = _range(path, name, value)
    for name, price in prices.items():
        other = rented(name)
        if found is not None and other is not None and other[0] == found[0]:
            return Price(price[0] / found[0].count, price[1] / found[0].count, currency)
    for name, price in prices.items():
        if rented(name) is None and find_accelerator(name).name == accelerator:
            return Price(*price, currency)
    wanted = accelerator if found is None else f"{found[0].name} / {accelerator}"
    raise _price_error(
        path,
        translated("it has no price for {wanted}, only for {known}").format(
            wanted=wanted, known=", ".join(prices) or translated("nothing")
        ),
    )


def costs(
    price: Price, tokens: int, choices: Sequence[planned.StrategySummary], gpus: int, fastest: float
) -> tuple[planned.Cost, ...]:
    """Hours and money of training on so many tokens, for each strategy.

    ``gpus``: of all nodes, if a strategy names no other number; ``fastest``: the share of the estimated time that it
    takes a machine that does all that its maker states.
    """
    found = []
    for choice in choices:
        count = choice.gpus * choice.nodes if isinstance(choice, planned.SolutionSummary) else gpus
        hours = tokens / (choice.tokens_per_second_per_gpu * count) / 3600
        fast, slow = hours * fastest, hours * MAX_SLOWDOWN
        found.append(
            planned.Cost(
                choice.strategy,
                fast,
                slow,
                fast * count * price.lowest,
                slow * count * price.highest,
                choice.strategy_zh,
            )
        )
    return tuple(found)


def with_costs(plan: planned.Plan, price: Price, tokens: int) -> planned.Plan:
    """The plan with what its strategies cost."""
    speed = find_accelerator(plan.accelerator).speed
    assert speed is not None
    found = costs(price, tokens, plan.fitting, plan.gpus * plan.nodes, speed.matmul_share)
    return msgspec.structs.replace(plan, tokens=tokens, currency=price.currency, costs=found)


def _range(path: Path, name: str, value: Any) -> tuple[float, float]:
    figures = value if isinstance(value, list) and len(value) == 2 else [value, value]
    if any(isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one < inf for one in figures):
        raise _price_error(
            path, translated("`{name}` is not a price: write a number, or [lowest, highest]").format(name=name)
        )
    low, high = sorted(float(one) for one in figures)
    return low, high


def _price_error(path: Path, reason: Text) -> UserError:
    return UserError(translated("--price {path}: {why}").format(path=path, why=reason))
