"""Reads the sizes of Megatron's parallelism from a launch: Megatron-LM, ms-swift, Pai-Megatron-Patch."""

from gonogo.evidence.number import parse_whole_number
from gonogo.hazards.rule import Field, Launch


def first_given_option(launch: Launch, *names: str) -> Field:
    """The first of the options that is given; its value is a number or a numeric string."""
    return next((field for name in names if not (field := launch.options.get(name)).absent), Field.missing())


def integer_value(field: Field, default: int | None = 1) -> int | None:
    """The integer value of an option; ``default`` if it is not given, None if it is unknown."""
    if field.absent:
        return default
    number = field.number
    if number is None:
        number = parse_whole_number(field.string)
    return int(number) if number is not None and int(number) == number else None


def has_megatron_options(launch: Launch) -> bool:
    """Whether the options are Megatron's: no other program has any of these names."""
    return any(
        not launch.options.get(name).absent
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
    )
