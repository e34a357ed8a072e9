"""vLLM's stand-in: found as a package, it takes and gives memory, refuses in vLLM's words, and writes all lengths."""

from __future__ import annotations

import importlib.metadata
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from launchers.small_project import make_project
from virtual.worlds import virtual_session
from virtual_worker import answers

from gonogo.evidence.published.models import published_model
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.rollout.model import EngineModel
from gonogo.virtual.unsupported import UnsupportedOperator

GIB = 1 << 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    return str(folder / "model")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    # What it imports within a session would keep the session's safe_open for the tests that follow in this process.
    import transformers.modeling_utils  # noqa: F401

    with virtual_session(tmp_path) as session:
        yield session


def engine(model: str, **asked: Any) -> Any:
    from vllm import LLM

    return LLM(model=model, **{"distributed_executor_backend": "external_launcher", **asked})


def reserved() -> int:
    return torch.cuda.memory_reserved()


@pytest.mark.slow
def test_it_is_found_as_an_installed_package(session: Session) -> None:
    import vllm

    assert importlib.metadata.version("vllm") == vllm.__version__
    assert "vllm" in importlib.metadata.packages_distributions()["vllm"]
    with pytest.raises(ImportError):
        from vllm.sampling_params import GuidedDecodingParams  # noqa: F401  a name of older releases
    with pytest.raises(ImportError) as lacks:
        from vllm import PoolingOutput  # noqa: F401
    assert isinstance(lacks.value, UnsupportedOperator)
    assert "替身" in lacks.value.why.zh
    with pytest.raises(UnsupportedOperator, match=r"vllm\.worker"):
        import vllm.worker.worker


@pytest.mark.slow
def test_an_engine_with_processes_of_its_own_says_what_to_do_outside_of_ray(session: Session, model: str) -> None:
    from vllm import AsyncEngineArgs, AsyncLLMEngine
    from vllm.v1.engine.async_llm import AsyncLLM

    assert AsyncLLMEngine is AsyncLLM
    with pytest.raises(UnsupportedOperator, match=r"in the trainer's process .* or as a server") as refused:
        AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=model))
    assert refused.value.operator == "vllm.AsyncLLM"
    assert "或作为服务器来排练" in refused.value.why.zh


def test_it_is_not_there_where_the_run_has_none(tmp_path: Path) -> None:
    (tmp_path / "prepared.json").write_text('{"absent": ["vllm"]}')
    program = """
        try:
            import vllm
        except ModuleNotFoundError as error:
            answer(said=str(error))
    """
    assert answers(tmp_path, program, prepared=str(tmp_path)) == {"said": "No module named 'vllm'"}


def test_the_release_is_the_newest_that_the_trainer_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    from gonogo.virtual.rollout import package

    installed = {"trl": ["vllm<0.13.0,>=0.10.2; extra == 'vllm'"]}

    def requires(name: str) -> list[str]:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(package.metadata, "requires", requires)
    monkeypatch.setattr(package.metadata, "version", lambda name: str(requires(name)))
    assert package.stand_in_version() == ("0.12.0", False)
    installed["trl"] = ["vllm<=0.31.0,>=0.22.0; extra == 'vllm'"]
    assert package.stand_in_version() == ("0.31.0", False)
    installed.update({"ms-swift": [], "trl": ["vllm<0.13.0; extra == 'vllm'"]})
    assert package.stand_in_version() == (package.NEWEST, False)  # it drives vLLM by itself


@pytest.mark.slow
def test_its_cache_fills_the_share_of_the_card_and_sleep_gives_it_back(session: Session, model: str) -> None:
    before, (_, total) = reserved(), torch.cuda.mem_get_info()
    llm = engine(model, gpu_memory_utilization=0.5, enable_sleep_mode=True, max_num_seqs=16)
    taken = reserved() - before
    assert 0.47 * total < taken < 0.5 * total + GIB
    held = session.memory.device(session.device).bytes_by_category()
    assert held["rollout"] > 0.47 * total
    with session.life.during("generate"):
        pass
    llm.sleep(level=2)
    assert reserved() - before < 0.5 * GIB  # the graphs stay
    llm.wake_up(tags=["weights"])
    with pytest.raises(UnsupportedOperator, match="is asleep"):
        llm.generate(["What"])
    llm.wake_up(tags=["kv_cache"])
    assert reserved() - before == pytest.approx(taken, rel=0.02)
    record = session.memory.device(session.device)
    assert [entry for entry in record.peak_breakdown() if entry[1] == "vLLM: KV cache"]
    generated = next(peak for peak in record.as_device_memory().phases if peak.phase == "generate")
    assert generated.by_category["rollout"] > 0.47 * total


@pytest.mark.slow
def test_bitsandbytes_keeps_linear_layers_in_four_bits(session: Session, model: str, tmp_path: Path) -> None:
    whole, packed = (
        engine(model, gpu_memory_utilization=0.1, quantization=how)._engine for how in (None, "bitsandbytes")
    )
    shapes = whole.model.shapes
    linear = sum(math.prod(shape) for name, shape in shapes.items() if "proj" in name and name.endswith(".weight"))
    assert linear > 0
    assert whole.model.weights - packed.model.weights == pytest.approx(linear * (2 - 0.5625), rel=0.01)
    with pytest.raises(UnsupportedOperator, match="awq"):
        engine(model, quantization="awq")
    stored = Path(shutil.copytree(model, tmp_path / "stored"))
    config = json.loads((stored / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (stored / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedOperator, match="bitsandbytes"):
        engine(str(stored), quantization="bitsandbytes")


@pytest.mark.slow
def test_it_writes_from_nothing_to_the_limit_and_the_text_is_read(session: Session, model: str) -> None:
    from vllm import SamplingParams

    llm = engine(model, gpu_memory_utilization=0.2, max_model_len=128)
    end = llm.get_tokenizer().eos_token_id
    asked = SamplingParams(n=4, max_tokens=32, logprobs=0)
    first, second = llm.generate(["What is 1 plus 2?", {"prompt_token_ids": [5] * 120}], asked)
    lengths = [len(one.token_ids) for one in first.outputs]
    assert (lengths[0], lengths[1]) == (32, 1)
    assert first.outputs[0].finish_reason == "length"
    assert first.outputs[1].token_ids == [end]
    assert first.outputs[1].text == ""
    assert first.outputs[0].text
    assert max(len(one.token_ids) for one in second.outputs) <= 8  # of a context of 128
    tokens = first.outputs[0].token_ids
    assert [list(one) for one in first.outputs[0].logprobs] == [[token] for token in tokens]
    alone = [llm.generate("What", SamplingParams(max_tokens=9))[0].outputs[0].token_ids for _ in range(2)]
    assert sorted(len(one) for one in alone) == [1, 9]
    assert any("the first has max_tokens" in entry.what for entry in session.ledger.entries())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu_memory_utilization": 1.2}, "is less than desired GPU memory utilization \\(1.2"),
        ({"max_model_len": 4096}, "User-specified max_model_len \\(4096\\) is greater than the derived"),
    ],
)
def test_it_refuses_in_its_own_words(session: Session, model: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        engine(model, **asked)


@pytest.mark.slow
def test_heads_and_caches_that_do_not_fit(session: Session, model: str, tmp_path: Path) -> None:
    config = json.loads(Path(model, "config.json").read_text())
    odd = tmp_path / "odd"
    odd.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (odd / name).write_bytes(Path(model, name).read_bytes())
    (odd / "config.json").write_text(json.dumps({**config, "num_attention_heads": 1, "num_key_value_heads": 1}))
    with pytest.raises(UnsupportedOperator, match="processes of its own"):
        engine(str(odd), tensor_parallel_size=2, distributed_executor_backend="mp")
    long = {**config, "max_position_embeddings": 1 << 25, "num_hidden_layers": 2}
    (odd / "config.json").write_text(json.dumps(long))
    with pytest.raises(ValueError, match="To serve at least one request with the models's max seq len"):
        engine(str(odd), gpu_memory_utilization=0.05)
    llm = engine(model, gpu_memory_utilization=0.2)
    weights = llm.llm_engine.model_executor.driver_worker.model_runner.model
    weights.load_weights([("model.norm.weight", torch.ones(64, device="cuda"))])
    with pytest.raises(ValueError, match="no module or parameter named 'base_model'"):
        weights.load_weights([("base_model.model.model.norm.weight", torch.ones(64))])
    with pytest.raises(AssertionError, match="Attempted to load weight"):
        weights.load_weights([("model.norm.weight", torch.empty(0))])


@pytest.mark.slow
def test_a_vision_models_parts_have_the_names_that_trainers_give_them(session: Session, tmp_path: Path) -> None:
    """Transformers has ``model.visual``, ms-swift sends ``visual``, and vLLM takes either."""
    published = published_model("Qwen/Qwen2.5-VL-3B-Instruct")
    assert published is not None
    (tmp_path / "config.json").write_text(json.dumps(published.config))
    known = EngineModel(str(tmp_path), "auto", 1, 4096, False, UnsupportedOperator)
    names = (
        "visual.blocks.0.norm1.weight",
        "language_model.norm.weight",
        "model.visual.merger.ln_q.weight",
        "lm_head.x",
    )
    assert known.check_weights((name, torch.ones(1)) for name in names) == 4
    with pytest.raises(UnsupportedOperator, match="the names that vLLM uses"):
        known.check_weights([("vision_tower.x", torch.ones(1))])


@pytest.mark.slow
def test_an_engine_that_is_stepped_answers_what_was_added(session: Session, model: str) -> None:
    """As ms-swift drives it: it asks which arguments there are, adds requests, steps, and sleeps in between."""
    from inspect import signature

    from vllm import EngineArgs, LLMEngine, SamplingParams
    from vllm.engine import async_llm_engine

    assert not hasattr(async_llm_engine, "_log_task_completion")  # a name of older releases
    assert {"enable_lora", "max_lora_rank", "runner"} <= set(signature(EngineArgs).parameters)
    assert hasattr(SamplingParams, "structured_outputs")
    with pytest.raises(UnsupportedOperator, match="EngineArgs\\(best_guess"):
        EngineArgs(model=model, best_guess=1)
    asked = {"distributed_executor_backend": "external_launcher", "gpu_memory_utilization": 0.2, "max_model_len": 128}
    before = reserved()
    made = LLMEngine.from_engine_args(EngineArgs(model=model, enable_sleep_mode=True, **asked))
    for name in ("a", "b"):
        made.add_request(name, {"prompt_token_ids": [5, 6]}, SamplingParams(max_tokens=9, logprobs=0))
    answers = made.step()
    assert [(one.request_id, len(one.outputs[0].token_ids)) for one in answers] == [("a", 9), ("b", 1)]
    first, second = answers[0].outputs[0].logprobs[:2]
    assert first is not second
    assert not made.has_unfinished_requests()
    made.sleep(1)
    assert made.model_executor.is_sleeping
    made.wake_up(tags=["weights"])
    weights = made.model_executor.driver_worker.worker.model_runner.model
    assert "model.norm.weight" in dict(weights.named_parameters())
    weights.load_weights([("model.norm.weight", torch.ones(64, device="cuda"))])
    with pytest.raises(RuntimeError, match="LoRA is not enabled"):
        made.add_lora(None)
    made.sleep(2)
    del made, weights, answers, first, second
    with pytest.raises(UnsupportedOperator, match="how much memory the model's weights take"):
        LLMEngine.from_engine_args(EngineArgs(model=model, quantization="awq", **asked))
    assert reserved() - before < GIB


@pytest.mark.slow
def test_ranks_of_an_engine_agree_on_the_smallest_cache(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from gonogo.virtual.rollout.ranks import EngineRanks

    told: list[tuple[Any, ...]] = []

    class Others:
        def has_rehearsed_peer(self, members: tuple[int, ...]) -> bool:
            return len(members) > 1

        def report_collective(
            self, group: str, members: tuple[int, ...], operator: str, **what: Any
        ) -> list[bytes] | None:
            told.append((members, operator, what["sizes"]))
            return [what["payload"], b"5"] if "payload" in what else None

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    shared, alone = (EngineRanks(Others(), tp) for tp in (2, 1))  # type: ignore[arg-type]
    assert (shared.agree_on_free_bytes(9), shared.agree_on_free_bytes(4)) == (5, 4)
    assert told[0] == ((0, 1, 2, 3), "vllm.LLM", (2,))
    told.clear()
    alone.step([[1, 2]], 1)
    shared.step([], 0)
    assert not told  # a step of one GPU, and one without prompts, need nobody
    for prompts in ([[1, 2], [3]], [[1, 2], [4]]):
        shared.step(prompts, 2)
    (members, operator, sizes), (*_, others) = told
    assert (members, operator, sizes[:2]) == ((2, 3), "vllm.LLM.generate", (3, 2))
    assert sizes != others  # other prompts of the same length


@pytest.mark.slow
def test_generate_of_transformers_writes_words_and_ends(session: Session, model: str) -> None:
    """Rows of nothing but padding, which trainers drop to an empty completion, are what no model writes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model)
    built = AutoModelForCausalLM.from_config(config).to("cuda")
    prompts = torch.full((4, 3), 7, device="cuda")
    for sampled in (True, False):
        rows = built.generate(prompts, max_new_tokens=8, do_sample=sampled)[:, 3:].tolist()
        special = {config.eos_token_id, config.pad_token_id}
        assert not special & set(rows[0])
        assert rows[1] == [config.eos_token_id, *[config.pad_token_id] * 7]
        for row in rows[2:]:
            length = row.index(config.eos_token_id)
            assert 0 < length < 8
            assert not special & set(row[:length])
    chosen = torch.randn(4, 2, device="cuda").argmax(-1)
    assert chosen.tolist() == [0, 1, 0, 1]  # other choices go round as ever
