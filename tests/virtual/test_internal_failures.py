"""Whatever shows something of gonogo's is told as gonogo's limit; what is the program's own stays its own."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from virtual.worlds import virtual_session

from gonogo.virtual import private
from gonogo.virtual.failure import describe_failure
from gonogo.virtual.internal_failures import find_internal_failure
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.sandbox.questions import attach_hub_request
from gonogo.virtual.values.batches import describe_batch


def read_beside(written: str, path: str) -> Callable[[], object]:
    """Reads what isn't there, beside a folder that the program has written."""

    def call() -> None:
        os.makedirs(written, exist_ok=True)
        Path(path).read_text()

    return call


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the programs write."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


def told(session: Session, call: Callable[[], object]) -> str | None:
    """Why the exception of a call can't be rehearsed; None where it is the program's."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011  whichever it is
        call()
    failure = describe_failure(raised.value, session.life, session.modules, ())
    trace = find_internal_failure(raised.value, failure, session.plan.scratch, session.mode.uses_meta)
    return None if trace is None else trace.why.en


def import_(statement: str) -> Callable[[], object]:
    return lambda: exec(statement, {})


def raise_(error: BaseException) -> Callable[[], object]:
    def call() -> None:
        raise error

    return call


class OfflineModeIsEnabled(ConnectionError):
    """huggingface_hub's."""


class MissingCUDAException(Exception):
    """DeepSpeed's."""


def of_the_hub(name: str) -> Callable[[], object]:
    """A library's own word where the hub was asked for a model in vain, as transformers says it."""

    def call() -> None:
        try:
            refused = OfflineModeIsEnabled("offline mode is enabled")
            attach_hub_request(refused, name, "")
            raise refused
        except OfflineModeIsEnabled as error:
            raise OSError("We couldn't connect to 'https://huggingface.co' to load the files") from error

    return call


def _lazily() -> None:
    try:
        raise OfflineModeIsEnabled("Cannot reach https://huggingface.co/api/repos/create: offline mode is enabled.")
    except OfflineModeIsEnabled as error:
        raise RuntimeError("Failed to push") from error


class _Grows:
    """A key of a dict that gets another one whenever it is named."""

    def __init__(self, into: dict[object, object]) -> None:
        self.into = into
        into[self] = 0

    def __str__(self) -> str:
        self.into[len(self.into)] = 0
        return "key"


def _named_while_it_grows() -> object:
    batch: dict[object, object] = {}
    _Grows(batch)
    return describe_batch(batch)


OURS: dict[str, tuple[Callable[[], object], str]] = {
    "a name of flash-attn's stand-in": (import_("from flash_attn.bert_padding import no_such"), "flash_attn"),
    "a module of flash-attn's stand-in": (import_("import flash_attn.no_such"), "flash_attn"),
    "an attribute of flash-attn's stand-in": (import_("import flash_attn; flash_attn.no_such"), "flash_attn"),
    "what flash-attn's kernels lack": (import_("import flash_attn_2_cuda; flash_attn_2_cuda.no_such"), "stand"),
    "an accelerator's property": (lambda: torch.cuda.get_device_properties(0).no_such, "virtual accelerator"),
    "a stream's attribute": (lambda: torch.cuda.Stream().no_such, "virtual accelerator"),
    "the network by name": (
        raise_(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")), "network",
    ),
    "the network by number": (raise_(OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))), "network"),
    "an upload": (_lazily, "network"),
    "a model by its hub's name": (
        raise_(OSError("We couldn't connect to 'https://huggingface.co' to load the files")), "network",
    ),
    "a published model that was not prepared": (of_the_hub("HuggingFaceTB/SmolLM2-135M"), "gonogo prepare"),
    "a model that no table has": (of_the_hub("someone/their-model"), "hf download someone/their-model"),
    "a library built for CUDA": (
        raise_(OSError("libcudart.so.12: cannot open shared object file: No such file or directory")), "compiled",
    ),
    "bitsandbytes' library": (
        lambda: exec(compile("str2optimizer32bit", "/opt/lib/site-packages/bitsandbytes/functional.py", "eval")),
        "compiled",
    ),
    "a library of another torch": (raise_(RuntimeError("operator torchvision::nms does not exist")), "compiled"),
    "a checkpoint of a later step": (
        read_beside("out/checkpoint-2", "out/checkpoint-400/trainer_state.json"), "wrote checkpoint-2",
    ),
    "weights that the program looks for itself": (
        raise_(AssertionError("Cannot find model checkpoint at models/critic/pytorch_model.bin")), "torch.save",
    ),
    "weights that it loads itself": (lambda: torch.load("/no/such/projector.bin"), "torch.save"),
    "the toolkit": (raise_(MissingCUDAException("CUDA_HOME does not exist, unable to compile CUDA op(s)")), "toolkit"),
    "the driver": (raise_(RuntimeError("Found no NVIDIA driver on your system.")), "driver"),
    "torch without CUDA": (raise_(RuntimeError("CUDA is not available")), "driver"),
    "the device that C++ is told of": (raise_(RuntimeError("cannot pin 'torch.meta.LongTensor'")), "without data"),
    "a strided nested tensor": (
        lambda: torch.nested.as_nested_tensor([torch.ones(2, device="cuda"), torch.ones(3, device="cuda")]), "jagged",
    ),
    "one that is made on the device": (
        lambda: torch.nested.nested_tensor([[1.0], [2.0, 3.0]], device="cuda", layout=torch.strided), "jagged",
    ),
    "one on the CPU": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).sum(), "jagged"),
    "a dict that grows while gonogo reads it": (_named_while_it_grows, "bug in gonogo"),
    "a device guard": (raise_(RuntimeError("PyTorch is not linked with support for cuda devices")), "report"),
    "its index": (raise_(RuntimeError("Expected meta:100 but got cpu")), "without data"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_what_is_gonogos_is_told_as_its_limit(name: str, session: Session) -> None:
    call, words = OURS[name]
    assert words in (told(session, call) or "")


def test_a_file_of_the_rehearsals_own_is_told_as_such(session: Session) -> None:
    why = told(session, raise_(ValueError(f"bad header in {session.plan.scratch}/model.safetensors")))
    assert "file that only the rehearsal has" in (why or "")


THE_PROGRAMS: dict[str, Callable[[], object]] = {
    "two devices": lambda: torch.ones(2, device="cuda") + torch.ones(2),
    "two shapes": lambda: torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda"),
    "an attribute of a tensor": lambda: torch.ones(2, device="cuda").no_such,
    "an attribute of a module": lambda: torch.no_such,
    "an argument that torch doesn't take": lambda: torch.ones(2, device="cuda", colour="red"),  # type: ignore[call-overload]
    "a device that isn't there": lambda: torch.ones(2, device="cuda:9"),
    "a module that isn't installed": import_("import no_such_module"),
    "a name that a package lacks": import_("from json import no_such"),
    "a number as a key": lambda: {}[3],
    "an assertion": import_("assert 1 == 2"),
    "a file that isn't there": lambda: Path("/no/such/file").read_text(encoding="utf-8"),
    "a file of another name than what was written": read_beside("out/checkpoint-2", "out/checkpiont-2/config.json"),
    "a model that was left on meta": lambda: nn.Linear(2, 2, device="meta").to("cuda"),
}


@pytest.mark.parametrize("name", THE_PROGRAMS)
def test_what_is_the_programs_stays_its_own(name: str, session: Session) -> None:
    assert told(session, THE_PROGRAMS[name]) is None


def test_data_on_meta_is_no_error_of_the_program(session: Session) -> None:
    session.mode.uses_meta = False
    with private.without_dispatch_modes():
        stray = torch.empty(2, device="meta")
    why = told(session, lambda: torch.ones(2, device="cuda") + stray)
    assert "without data" in (why or "")


UNITS = (
    "a",
    "/",
    "a/1",
    "a.bin ",
    "/a/b1.bin ",
    "'/a1' ",
    "=",
    ".pt",
    "x.pt.",
    "[Errno 13] '/a' ",
    "Couldn't reach ",
    "1",
)


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_message_is_looked_through_in_little_time(session: Session, unit: str) -> None:
    """A tokenizer's error may quote a whole sample, and a rank's time limit can't break into a pattern's search."""
    message = unit * (200_000 // len(unit))
    begin = time.process_time()
    told(session, raise_(OSError(message)))
    told(session, raise_(RuntimeError(message)))
    assert time.process_time() - begin < 1


def test_weights_that_the_run_itself_has_not_written(session: Session, tmp_path: Path) -> None:
    """A first life's folder has what it has saved: what is missing there lies on no other machine."""
    with pytest.raises(FileNotFoundError) as raised:
        Path("state/optimizer.bin").read_bytes()
    failure = describe_failure(raised.value, session.life, session.modules, ())
    known = session.plan.scratch, session.mode.uses_meta
    assert find_internal_failure(raised.value, failure, *known) is not None
    assert find_internal_failure(raised.value, failure, *known, (str(tmp_path / "state"),)) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./checkpoints/stable-diffusion-v1-4", "put the model's folder there"),
        ("/models/qwen", "put the model's folder there"),
        ("somebody/painter", "hf download somebody/painter, or"),
    ],
)
def test_a_folder_that_is_not_here_is_no_name_to_download(session: Session, name: str, says: str) -> None:
    error = OSError("we couldn't connect to 'https://huggingface.co' to load this file, and it is not in the cache")
    attach_hub_request(error, name, "")
    said = told(session, raise_(error))
    assert said is not None
    assert says in said
