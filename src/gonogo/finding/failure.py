"""The facts of a failure, as a log tells them: what was raised first and where, and what its message names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Quantity(msgspec.Struct, frozen=True):
    """A number with its unit, as the message writes it (``"35.97 GiB"``). ``value`` is in bytes or seconds."""

    value: float
    unit: str
    text: str


class PackageMention(msgspec.Struct, frozen=True):
    """A package that a message names: the version that it says is there, and the one that it asks for."""

    name: str
    version: str = ""
    required: str = ""


class Message(msgspec.Struct, frozen=True):
    """What an exception says, taken apart. What it does not name is empty.

    ``form`` is the kind of statement where it is one that Python or torch words alike everywhere:
    ``unexpected_keyword``, ``missing_arguments``, ``argument_count``, ``no_attribute``, ``not_importable``,
    ``no_module``, ``undefined_symbol``, ``missing_key``, ``state_dict``, ``not_divisible``, ``size_mismatch``,
    ``no_file``. ``subject`` is then what the statement is about (the function called, the class, the module, the
    library) and ``names`` are the names in it (keywords, attributes, keys).
    """

    text: str
    form: str = ""
    subject: str = ""
    names: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    """Of a state dict the keys that nothing takes; ``names`` are those that are missing."""
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
    """Whole numbers that have no unit and stand in no shape."""


class CodePlace(msgspec.Struct, frozen=True):
    """A frame, and whose code it is.

    ``owner``: ``package`` (installed), ``clone`` (a known framework's sources, run from a folder), ``python`` (its own
    library), ``user`` (all else). ``package`` is the distribution's name (``ms-swift``), ``release`` its version
    where the log or the environment tells it, ``module`` the dotted path in it.
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
    """An exception, with its frames outermost first. ``log`` and ``line`` say where its last line stands."""

    type: str
    message: Message
    frames: tuple[CodePlace, ...]
    log: str
    line: int
    ranks: tuple[int, ...] = ()
    time: float | None = None


class LoggedCollective(msgspec.Struct, frozen=True):
    """A collective in which a rank waited until the timeout; None where the line does not say."""

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
    """The number of the last collective that the rank has called."""
    completed: int | None = None
    """The number of the last one that came to its end."""


class NativeSymbol(msgspec.Struct, frozen=True):
    """A symbol of compiled code: of a crash's stack, or one that a library misses."""

    symbol: str
    library: str
    log: str
    line: int


class FailureFacts(msgspec.Struct, frozen=True):
    """What a log tells of a failure, without any judgement."""

    chain: tuple[RaisedException, ...] = ()
    """The exceptions of the first failure in the order in which they were raised: the last one ended the program."""
    at: CodePlace | None = None
    """Where the last of the chain was raised."""
    your_line: CodePlace | None = None
    """The innermost line of code that is neither a package's nor a known framework's."""
    root_rank: int | None = None
    """The rank that torchrun names as the first to fail."""
    collectives: tuple[LoggedCollective, ...] = ()
    native: tuple[NativeSymbol, ...] = ()
    exit_codes: tuple[int, ...] = ()
    versions: Mapping[str, str] = {}
    """Versions that the log, or a file given beside it, tells of the packages in question."""
