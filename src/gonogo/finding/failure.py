"""The facts of a failure in a log: what was raised first, where, and what its message refers to."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Quantity(msgspec.Struct, frozen=True):
    """A number with its unit, as the message writes it (``"35.97 GiB"``). ``value`` is in bytes or seconds."""

    value: float
    unit: str
    text: str


class PackageMention(msgspec.Struct, frozen=True):
    """A package in a message: the version that it reports as installed, and the one that it requires."""

    name: str
    version: str = ""
    required: str = ""


class Message(msgspec.Struct, frozen=True):
    """The parsed message of an exception. Fields are empty if it doesn't contain them.

    ``form`` is the kind of message, if Python or torch always words it the same way:
    ``unexpected_keyword``, ``missing_arguments``, ``argument_count``, ``no_attribute``, ``not_importable``,
    ``no_module``, ``undefined_symbol``, ``missing_key``, ``state_dict``, ``not_divisible``, ``size_mismatch``,
    ``no_file``. ``subject`` is then what the message is about (the function called, the class, the module, the
    library) and ``names`` are the names in it (keywords, attributes, keys).
    """

    text: str
    form: str = ""
    subject: str = ""
    names: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    """For a state dict, the unexpected keys; ``names`` are the missing ones."""
    packages: tuple[PackageMention, ...] = ()
    symbols: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Options, environment variables and keys of configs."""
    paths: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    numbers: tuple[int, ...] = ()
    """Integers that have no unit and aren't part of a shape."""


class CodePlace(msgspec.Struct, frozen=True):
    """A frame, and the owner of its code.

    ``owner``: ``package`` (installed), ``clone`` (a known framework's sources, run from a folder), ``python`` (the
    standard library), ``user`` (all else). ``package`` is the distribution's name (``ms-swift``), ``release`` its
    version if the log or the environment states it, ``module`` the dotted path in it.
    """

    path: str
    line: int
    function: str
    code: str
    owner: str
    package: str = ""
    release: str = ""
    module: str = ""


class RaisedException(msgspec.Struct, frozen=True):
    """An exception, with its frames outermost first. ``log`` and ``line`` locate its last line."""

    type: str
    message: Message
    frames: tuple[CodePlace, ...]
    log: str
    line: int
    ranks: tuple[int, ...] = ()
    time: float | None = None


class LoggedCollective(msgspec.Struct, frozen=True):
    """A collective in which a rank waited until the timeout; fields that the line doesn't state are None."""

    rank: int | None
    operation: str
    sequence: int | None
    elements_in: int | None
    elements_out: int | None
    timeout_seconds: float | None
    elapsed_seconds: float | None
    group: str
    log: str
    line: int
    enqueued: int | None = None
    """The sequence number of the last collective that the rank has enqueued."""
    completed: int | None = None
    """The sequence number of the last one that completed."""


class NativeSymbol(msgspec.Struct, frozen=True):
    """A symbol of compiled code: in a crash's stack, or one that a library can't resolve."""

    symbol: str
    library: str
    log: str
    line: int


class FailureFacts(msgspec.Struct, frozen=True):
    """The facts of a failure in a log, without any judgement."""

    chain: tuple[RaisedException, ...] = ()
    """The exceptions of the first failure in the order in which they were raised: the last one ended the program."""
    at: CodePlace | None = None
    """Where the last exception of the chain was raised."""
    your_line: CodePlace | None = None
    """The innermost line of code that belongs neither to a package nor to a known framework."""
    root_rank: int | None = None
    """The rank that torchrun names as the first to fail."""
    collectives: tuple[LoggedCollective, ...] = ()
    native: tuple[NativeSymbol, ...] = ()
    exit_codes: tuple[int, ...] = ()
    versions: Mapping[str, str] = {}
    """Versions of the packages involved, from the log or a file given beside it."""
