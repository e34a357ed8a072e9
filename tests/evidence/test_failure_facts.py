"""The facts of a failure: what was raised first and where, whose code that is, and what the message names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.evidence.failure.failure_facts import failure_facts
from gonogo.evidence.failure.message import parse_message
from gonogo.evidence.failure.native import cxx11_string_abi, demangled_name
from gonogo.evidence.log.code_owner import code_owner_of_path
from gonogo.evidence.log.failure_log import FailureLog, read_logs
from gonogo.evidence.log.source import find_log_sources
from gonogo.evidence.setup import Setup
from gonogo.finding.failure import Message, PackageMention


def log_of(tmp_path: Path, text: str) -> FailureLog:
    path = tmp_path / "run.log"
    path.write_text(text)
    return read_logs(find_log_sources([str(path)])[0], [], Setup())


class TestOwner:
    @pytest.mark.parametrize(
        ("path", "owner", "package", "module"),
        [
            ("/v/lib/python3.11/site-packages/trl/trainer/sft_trainer.py", "package", "trl", "trl.trainer.sft_trainer"),
            ("/v/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "package", "flash-attn", None),
            ("/root/verl/verl/workers/fsdp_workers.py", "clone", "verl", "verl.workers.fsdp_workers"),
            ("/w/ms-swift/swift/trainers/mixin.py", "clone", "ms-swift", "swift.trainers.mixin"),
            ("/opt/Megatron-LM/megatron/core/parallel_state.py", "clone", "megatron-core", None),
            ("/opt/Megatron-Bridge/src/megatron/bridge/training/pretrain.py", "clone", "megatron-bridge", None),
            ("/root/slime/slime/backends/megatron_utils/actor.py", "clone", "slime", None),
            ("/w/Pai-Megatron-Patch/toolkits/convert.py", "clone", "pai-megatron-patch", None),
            ("/usr/lib/python3.10/contextlib.py", "python", "", None),
            # A user's own folders may have the same names as a framework's.
            ("/home/me/project/train.py", "user", "", None),
            ("/home/me/swift/train.py", "user", "", None),
            ("/home/me/verl/my_reward.py", "user", "", None),
            ("train.py", "user", "", None),
        ],
    )
    def test_of_a_path(self, path: str, owner: str, package: str, module: str | None) -> None:
        found = code_owner_of_path(path)
        assert (found.owner, found.package) == (owner, package)
        assert module is None or found.module == module

    def test_an_egg_tells_its_release(self) -> None:
        found = code_owner_of_path(
            "/v/lib/python3.10/site-packages/deepspeed-0.14.2-py3.10.egg/deepspeed/runtime/engine.py"
        )
        assert (found.package, found.release) == ("deepspeed", "0.14.2")


class TestMessage:
    @pytest.mark.parametrize(
        ("text", "form", "subject", "names"),
        [
            ("f() got an unexpected keyword argument 'token'", "unexpected_keyword", "f", ("token",)),
            (
                "seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'",
                *("missing_arguments", "seed_worker", ("num_workers", "rank")),
            ),
            ("A.log() takes 2 positional arguments but 3 were given", "argument_count", "A.log", ("2", "3")),
            ("'Mesh' object has no attribute '_names'", "no_attribute", "Mesh", ("_names",)),
            ("module 'te' has no attribute 'pytorch'", "no_attribute", "te", ("pytorch",)),
            ("cannot import name 'A' from 'b.c' (/x/b/c.py)", "not_importable", "b.c", ("A",)),
            ("No module named 'a.b'", "no_module", "a.b", ()),
            ("4 is not divisible by 8", "not_divisible", "", ()),
            ("size mismatch for a.weight: copying", "size_mismatch", "", ()),
            ("the loss is nan", "", "", ()),
        ],
    )
    def test_statements(self, text: str, form: str, subject: str, names: tuple[str, ...]) -> None:
        message = parse_message("RuntimeError", text)
        assert (message.form, message.subject, message.names) == (form, subject, names)

    def test_a_key_error_is_a_key(self) -> None:
        assert parse_message("KeyError", "'chosen_labels'").names == ("chosen_labels",)
        assert parse_message("ValueError", "'chosen_labels'").form == ""

    def test_a_state_dict_has_two_lists(self) -> None:
        message = parse_message(
            "RuntimeError",
            "Error(s) in loading state_dict for Net:\n"
            '\tMissing key(s) in state_dict: "module.a.weight", "module.b.bias".\n'
            '\tUnexpected key(s) in state_dict: "a.weight", "b.bias".',
        )
        assert message.form == "state_dict"
        assert message.subject == "Net"
        assert message.names == ("module.a.weight", "module.b.bias")
        assert message.unexpected == ("a.weight", "b.bias")

    @pytest.mark.parametrize(
        ("text", "packages"),
        [
            (
                "transformers>=4.41.2,<=4.45.0 is required for a normal functioning of this module, but found "
                "transformers==4.45.2.",
                (PackageMention("transformers", "4.45.2", ">=4.41.2,<=4.45.0"),),
            ),
            ("Using FSDP2 requires torch>=2.6.0", (PackageMention("torch", "", ">=2.6.0"),)),
            ("you have flash_attn 2.3.6 which is incompatible", (PackageMention("flash-attn", "2.3.6", ""),)),
            ("size == 4 and rank >= 2", ()),
        ],
    )
    def test_packages(self, text: str, packages: tuple[PackageMention, ...]) -> None:
        assert parse_message("ImportError", text).packages == packages

    def test_sizes_and_numbers_are_told_apart(self) -> None:
        message = parse_message(
            "RuntimeError",
            "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.10 GiB; ran for 600012 "
            "milliseconds; shape torch.Size([2, 32, 23]) and (4096x1024), batch 16 on cuda:3 in torch.bfloat16",
        )
        assert [(one.value, one.unit) for one in message.quantities] == [
            (2.5 * 2**30, "bytes"),
            (pytest.approx(79.1 * 2**30), "bytes"),
            (pytest.approx(600.012), "seconds"),
        ]
        assert message.shapes == ((2, 32, 23), (4096, 1024))
        assert message.numbers == (3, 16)
        assert message.devices == ("cuda:3",)
        assert message.dtypes == ("bfloat16",)

    def test_a_hostile_message_takes_no_time(self) -> None:
        for text in ("(" * 50_000, "a_" * 50_000, "1, " * 50_000, '"' * 50_000, "x>=1," * 20_000):
            assert isinstance(parse_message("RuntimeError", text), Message)


class TestFacts:
    def test_the_chain_is_in_order_of_time(self, tmp_path: Path) -> None:
        facts = failure_facts(
            log_of(
                tmp_path,
                'Traceback (most recent call last):\n  File "/v/site-packages/vllm/v1/a.py", line 3, in forward\n'
                "    f()\nValueError: first\n\n"
                "The above exception was the direct cause of the following exception:\n\n"
                'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in main\n    run()\n'
                '  File "/root/verl/verl/workers/actor.py", line 5, in run\n    g()\nRuntimeError: second\n',
            )
        )
        assert [one.type for one in facts.chain] == ["ValueError", "RuntimeError"]
        assert facts.at is not None
        assert (facts.at.owner, facts.at.package) == ("clone", "verl")
        assert facts.your_line is not None
        assert facts.your_line.path == "/home/me/train.py"

    def test_the_rank_that_torchrun_names_failed_first(self, tmp_path: Path) -> None:
        facts = failure_facts(
            log_of(
                tmp_path,
                "[rank0]: ValueError: a consequence in rank 0\n[rank3]: KeyError: 'answer'\n"
                "Root Cause (first observed failure):\n[0]:\n  host      : h\n  rank      : 3 (local_rank: 3)\n"
                "  exitcode  : 1 (pid: 5)\n",
            )
        )
        assert [one.type for one in facts.chain] == ["KeyError"]
        assert facts.root_rank == 3

    def test_the_earliest_by_the_clock(self, tmp_path: Path) -> None:
        text = (
            "[rank0]:2026-01-01 10:00:05,000 ValueError: later\n[rank1]:2026-01-01 10:00:01,000 KeyError: 'earlier'\n"
        )
        assert [one.type for one in failure_facts(log_of(tmp_path, text)).chain] == ["KeyError"]

    def test_a_message_of_several_lines_is_whole(self, tmp_path: Path) -> None:
        text = (
            "ValueError: Target module Gemma4ClippableLinear(\n  (linear): Linear(in_features=1152)\n) is not "
            "supported. Currently, only `torch.nn.Linear` is.\n"
        )
        facts = failure_facts(log_of(tmp_path, text))
        assert "is not supported. Currently" in facts.chain[0].message.text

    def test_a_release_comes_from_what_the_log_tells(self, tmp_path: Path) -> None:
        text = (
            "trl==0.12.1\nTraceback (most recent call last):\n"
            '  File "/v/site-packages/trl/a.py", line 1, in f\n    x\nKeyError: 1\n'
        )
        facts = failure_facts(log_of(tmp_path, text))
        assert facts.at is not None
        assert facts.at.release == "0.12.1"
        assert facts.versions == {"trl": "0.12.1"}

    def test_collectives_by_rank(self, tmp_path: Path) -> None:
        line = (
            "[rank{rank}]:[E1 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=41, OpType={call}, NumelIn=8, NumelOut=64, Timeout(ms)=600000) ran for 600012 "
            "milliseconds before timing out.\n"
            "[rank{rank}]:[E1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either "
            "an error or timeout) detected by watchdog at work: 41, last enqueued NCCL work: 43, last completed NCCL "
            "work: 40.\n"
        )
        text = line.format(rank=2, call="ALLREDUCE") + line.format(rank=5, call="_ALLGATHER_BASE")
        calls = failure_facts(log_of(tmp_path, text)).collectives
        assert [(one.rank, one.operation, one.sequence) for one in calls] == [
            (2, "ALLREDUCE", 41),
            (5, "_ALLGATHER_BASE", 41),
        ]
        assert (calls[0].elements_in, calls[0].elements_out, calls[0].timeout_seconds) == (8, 64, 600.0)
        assert (calls[0].enqueued, calls[0].completed) == (43, 40)

    def test_symbols_of_compiled_code(self, tmp_path: Path) -> None:
        text = "ImportError: /v/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs\n"
        (symbol,) = failure_facts(log_of(tmp_path, text)).native
        assert symbol.library == "/v/flash_attn_2_cuda.so"
        assert demangled_name(symbol.symbol) == "c10::Error"
        assert cxx11_string_abi(symbol.symbol) == "old"
        assert cxx11_string_abi("_ZN3c105ErrorC2ENSt7__cxx1112basic_stringIcE") == "new"
        assert cxx11_string_abi("_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib") == ""
        assert demangled_name("ncclGroupEnd") == "ncclGroupEnd"

    def test_nothing_failed(self, tmp_path: Path) -> None:
        facts = failure_facts(log_of(tmp_path, "{'loss': 2.1, 'epoch': 0.1}\n"))
        assert facts.chain == ()
        assert facts.at is None
