"""Rollout servers: what vLLM's and SGLang's answer over HTTP, with nobody at the other end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session
from gonogo.virtual.rollout.meeting import WEIGHT_SYNC_GROUP
from gonogo.virtual.unsupported import UnsupportedOperator

SGLANG = "http://localhost:8998"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with virtual_session(tmp_path) as session:
        yield session


def generate(**asked: Any) -> Any:
    import requests

    return requests.post(f"{SGLANG}/generate", json=asked, timeout=5)


@pytest.mark.slow
def test_sglang_writes_with_the_tokens_of_the_prompts(session: Session) -> None:
    sampling = {"temperature": 0.8, "max_new_tokens": 8, "stop_token_ids": [2]}
    first, second, *others = generate(
        input_ids=[[5, 6, 7], [8, 9], [5, 6]], sampling_params=sampling, return_logprob=True
    ).json()
    assert len(others) == 1
    assert len(first["output_ids"]) == 8
    assert first["meta_info"]["finish_reason"] == {"type": "length", "length": 8}
    assert [token for _, token, _ in first["meta_info"]["output_token_logprobs"]] == first["output_ids"]
    assert set(first["output_ids"]) <= {5, 6, 7, 8, 9}
    assert second["output_ids"] == [2]
    assert second["meta_info"]["finish_reason"] == {"type": "stop", "matched": 2}
    with pytest.raises(UnsupportedOperator, match="'text'"):
        first["text"]  # there is no tokenizer that the rehearsal knows of
    alone = generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 4, "n": 1}).json()
    assert alone["meta_info"]["prompt_tokens"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"temperature": -1.0}, "temperature must be a non-negative finite number, got -1.0."),
        ({"top_p": 0.0}, "top_p must be in (0, 1], got 0.0."),
        ({"top_k": 0}, "top_k must be -1 (disable) or at least 1, got 0."),
        ({"repetition_penalty": 3.0}, "repetition_penalty must be in (0, 2] (1.0 = no penalty), got 3.0."),
        ({"max_new_tokens": 4, "min_new_tokens": 8}, "min_new_tokens must be in [0, max_new_tokens(4)], got 8."),
    ],
)
def test_sglang_refuses_in_its_own_words(session: Session, asked: dict[str, Any], words: str) -> None:
    import requests

    answer = generate(input_ids=[[5, 6]], sampling_params=asked)
    assert answer.json()["error"]["message"] == words
    with pytest.raises(requests.HTTPError, match="400 Client Error: Bad Request"):
        answer.raise_for_status()


@pytest.mark.slow
def test_sglang_reads_weights_from_disk_and_needs_no_vllm(session: Session) -> None:
    import requests

    done = requests.post(f"{SGLANG}/update_weights_from_disk", json={"model_path": "/weights"}, timeout=5)
    assert (done.status_code, done.json()["success"]) == (200, True)
    assert requests.get(f"{SGLANG}/health_generate", timeout=5).status_code == 200
    told = [assumption.what for assumption in session.ledger.entries()]
    assert any("a rollout server is up at http://localhost:8998" in what for what in told)
    assert not any("vLLM" in what for what in told)


@pytest.mark.slow
def test_what_sglang_is_not_known_to_take_is_no_verdict(session: Session) -> None:
    with pytest.raises(UnsupportedOperator, match="best"):
        generate(input_ids=[[5, 6]], sampling_params={"best": 1})
    with pytest.raises(UnsupportedOperator, match="this form of request"):
        generate(inputs="of another server")


VLLM = "http://localhost:8000"


def post(path: str) -> Any:
    import requests

    return requests.post(f"{VLLM}{path}", json={"prompts": [[5]], "max_tokens": 2}, timeout=5)


def communicator() -> Any:
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator

    return PyNcclCommunicator(device=0)


@pytest.mark.slow
def test_a_request_that_waits_for_its_own_thread_is_never_answered(session: Session) -> None:
    import torch

    post("/init_weight_transfer_engine")
    with pytest.raises(RuntimeError, match="answered only when the trainer joins the group"):
        communicator()
    WEIGHT_SYNC_GROUP.reset()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(post, "/init_weight_transfer_engine")
        group = communicator()
        asked.result()
        for _ in range(2):
            asked = threads.submit(post, "/update_weights")
            group.broadcast(torch.ones(4, device="cuda"))
            asked.result()
        post("/finish_weight_update")
    post("/update_weights")
    with pytest.raises(RuntimeError, match="answered only when the trainer broadcasts the weights"):
        group.broadcast(torch.ones(4, device="cuda"))


@pytest.mark.slow
def test_a_server_that_answers_at_once_has_to_be_sent_what_it_was_told(session: Session) -> None:
    import torch

    post("/init_communicator")
    group = communicator()
    for _ in range(3):
        post("/update_named_param")
        group.broadcast(torch.ones(4, device="cuda"))
    post("/generate")
    post("/update_named_param")
    with pytest.raises(RuntimeError, match="waits in /update_named_param for weights that are not broadcast"):
        post("/generate")
    group.broadcast(torch.ones(4, device="cuda"))
    with pytest.raises(RuntimeError, match="no server was asked to receive"):
        post("/generate")
    group.broadcast(torch.ones(4, device="cuda"))
    with pytest.raises(RuntimeError, match="before /update_named_param asks"):
        post("/update_named_param")


@pytest.mark.slow
def test_a_group_that_the_server_was_not_asked_to_join(session: Session) -> None:
    communicator()
    with pytest.raises(RuntimeError, match="not asked to join"):
        post("/generate")
    with pytest.raises(RuntimeError, match="joins before /init_communicator asks"):
        post("/init_communicator")
    communicator()
    post("/generate")  # with several groups nothing is compared
