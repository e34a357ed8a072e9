"""Models whose weights, or which themselves, are not on this machine: what is loaded, and what is said."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
from confined import runs_of
from virtual.saved_models import LOAD, TINY, header, real_loads, save
from virtual_worker import answers

from gonogo.virtual.weights import skeleton
from gonogo.virtual.weights.generated_weights import GeneratedWeights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.mark.slow
def test_weights_that_are_not_here_are_there_on_each_rank(folder: Path) -> None:
    (folder / "model").mkdir()
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **TINY}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    found = answers(
        folder,
        """
        import transformers
        os.environ["RANK"] = "1"
        torch.distributed.init_process_group("nccl")
        model, info = transformers.AutoModelForCausalLM.from_pretrained("model", output_loading_info=True)
        answer(rank=torch.distributed.get_rank(), missing=sorted(info["missing_keys"]))
        """,
        world=2,
    )
    assert found == {"rank": 1, "missing": []}


@pytest.mark.slow
def test_files_of_weights_that_the_program_opens_itself(folder: Path) -> None:
    """nanoVLM asks the hub's client for them, fsdp_qlora transformers' ``cached_file``; others look into a snapshot."""
    model = folder / "gonogo-prepared" / "models" / "one"
    model.mkdir(parents=True)
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **TINY}
    (model / "config.json").write_text(json.dumps(config))
    (model.parents[1] / "prepared.json").write_text(json.dumps({"models": {"some/one": "models/one"}}))
    found = answers(
        folder,
        """
        import huggingface_hub, safetensors.torch
        from huggingface_hub.utils import EntryNotFoundError
        from transformers.utils import hub
        def has(file):
            try:
                return bool(huggingface_hub.hf_hub_download(repo_id="some/one", filename=file))
            except EntryNotFoundError:
                return False
        has_others = [has(file) for file in ("model.safetensors.index.json", "model.gguf", "adapter_model.safetensors")]
        state = safetensors.torch.load_file(hub.cached_file("some/one", "model.safetensors"))
        old = torch.load(huggingface_hub.hf_hub_download("some/one", "pytorch_model.bin"), map_location="cpu")
        without = os.listdir(huggingface_hub.snapshot_download("some/one", allow_patterns="*.json", local_dir="few"))
        answer(has_others=has_others, state=described(state.items()), same=described(old.items()) ==
               described(state.items()), without=sorted(without), whole=os.listdir(
               huggingface_hub.snapshot_download("some/one")))
        """,
        prepared=str(model.parents[1]),
    )
    import transformers

    real = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TINY))
    assert found["has_others"] == [False] * 3
    assert found["same"]
    assert {name: shape for name, (shape, _, _) in found["state"].items()} == {
        name: list(tensor.shape) for name, tensor in real.state_dict().items()
    }
    assert "model.safetensors" in found["whole"]


def test_a_checkpoint_is_made_beside_a_huggingface_hub_that_can_not_split_it(monkeypatch, tmp_path: Path) -> None:
    """Before 0.22 transformers split checkpoints itself; the lack was taken for one of the program's."""
    import transformers.modeling_utils as modeling

    def shard_checkpoint(state: dict, max_shard_size: str, weights_name: str) -> tuple[dict, None]:
        return {weights_name: state}, None

    monkeypatch.setitem(sys.modules, "huggingface_hub", ModuleType("huggingface_hub"))
    monkeypatch.setattr(modeling, "shard_checkpoint", shard_checkpoint, raising=False)
    skeleton._write_with_safetensors(torch.nn.Linear(2, 3), str(tmp_path))
    assert set(header(tmp_path / "model.safetensors")) - {"__metadata__"} == {"weight", "bias"}


def test_a_checkpoint_is_made_where_huggingface_hub_compares_sizes_as_numbers(monkeypatch, tmp_path: Path) -> None:
    """0.22 does not read ``5GB``: the weights were left out, and a program that converts them found none."""
    import huggingface_hub

    split = huggingface_hub.split_torch_state_dict_into_shards

    def of_022(state: dict, filename_pattern: str, max_shard_size: int) -> object:
        assert all(tensor.nbytes <= max_shard_size for tensor in state.values())
        return split(state, filename_pattern=filename_pattern, max_shard_size=max_shard_size)

    monkeypatch.setattr(huggingface_hub, "split_torch_state_dict_into_shards", of_022)
    skeleton._write_with_safetensors(torch.nn.Linear(2, 3), str(tmp_path))
    assert set(header(tmp_path / "model.safetensors")) - {"__metadata__"} == {"weight", "bias"}


def test_ranks_that_are_rehearsed_together_make_them_once(tmp_path: Path) -> None:
    """One that tidied up before its own were in place took away those that another was reading."""
    made, weights = tmp_path / "made", tmp_path / "model.safetensors"

    def make() -> str | None:
        if weights.exists():
            return None
        time.sleep(0.1)
        weights.touch()
        with made.open("a") as file:
            file.write("x")
        return "made"

    def rank(told: Path) -> None:
        GeneratedWeights(str(tmp_path / "scratch"), True, lambda said: told.write_text(said) and None).run_once(
            str(weights), make
        )

    ranks = [tmp_path / f"rank{number}" for number in range(6)]
    processes = [multiprocessing.get_context("fork").Process(target=rank, args=(told,)) for told in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert made.read_text() == "x"
    assert [told.read_text() for told in ranks] == ["made"] * 6


def test_weights_that_are_here_are_told_of_by_none(tmp_path: Path) -> None:
    said: list[str] = []
    GeneratedWeights(str(tmp_path), True, said.append).run_once(str(tmp_path / "model.safetensors"), lambda: None)
    assert said == []


def test_a_copy_of_a_folder_is_used_where_it_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rank finds the copy that the first one made."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    folder = str(tmp_path / "model")
    made = GeneratedWeights(str(tmp_path / "scratch"), True, lambda said: None)
    assert made.writable_folder(folder) == made.current_folder(folder) == folder
    assert sorted(os.listdir(folder)) == ["config.json"]
    opened = os.open

    def refused(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith(folder) and flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", refused)
    copy = made.writable_folder(folder)
    assert os.path.basename(copy) == "model"
    assert Path(copy, "config.json").read_text() == "{}"
    assert (
        made.writable_folder(folder)
        == made.writable_folder(copy)
        == made.current_folder(folder)
        == made.current_folder(copy)
        == copy
    )
    assert GeneratedWeights(made.scratch, True, made.tell).current_folder(folder) == copy
    monkeypatch.undo()
    unconfined = GeneratedWeights(str(tmp_path / "other"), False, made.tell)
    assert unconfined.writable_folder(folder) != folder, "what is really the user's is left alone"


def test_a_model_is_built_on_meta_by_a_transformers_that_has_no_contexts_for_it(monkeypatch) -> None:
    """Before 4.50 ``get_init_context`` was no method of a model."""
    import transformers

    monkeypatch.delattr(transformers.PreTrainedModel, "get_init_context")
    config = transformers.Qwen2Config(**TINY, dtype="bfloat16")
    with skeleton.isolated_model_build():
        model = skeleton.build_on_meta(transformers.Qwen2ForCausalLM, config, "")
    assert {(str(p.device), str(p.dtype)) for p in model.parameters()} == {("meta", "torch.bfloat16")}


@pytest.mark.very_slow
def test_weights_that_are_not_here_under_a_zero3_that_a_framework_insists_on(folder: Path) -> None:
    """axolotl has transformers always say yes to it, beside the configuration that says so."""
    (folder / "model").mkdir()
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **TINY}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    found = answers(
        folder,
        """
        import deepspeed, transformers
        from transformers.integrations import HfDeepSpeedConfig
        deepspeed.init_distributed()
        held = HfDeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})
        transformers.modeling_utils.is_deepspeed_zero3_enabled = lambda: True
        transformers.integrations.deepspeed.is_deepspeed_zero3_enabled = lambda: True
        model, info = transformers.AutoModelForCausalLM.from_pretrained("model", output_loading_info=True)
        answer(missing=sorted(info["missing_keys"]), parted=all(hasattr(p, "ds_id") for p in model.parameters()),
               zero3=transformers.modeling_utils.is_deepspeed_zero3_enabled())
        """,
        world=2,
    )
    assert found == {"missing": [], "parted": True, "zero3": True}


@pytest.mark.slow
def test_models_that_are_not_here_are_said_in_one_line(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text('{"model_type": "qwen2",')
    found = answers(
        folder,
        """
        import transformers
        from gonogo.finding import UserError
        for name in ("Qwen/Qwen2-72B", "/data/models/Qwen2-72B", "./models/x", "empty", "broken"):
            try:
                transformers.AutoModelForCausalLM.from_pretrained(name)
            except OSError as error:
                answer(**{name: error.text.en if isinstance(error, UserError) else str(error)})
        """,
    )
    assert "hf download Qwen/Qwen2-72B" in found["Qwen/Qwen2-72B"]
    assert "/data/models/Qwen2-72B is not on this machine" in found["/data/models/Qwen2-72B"]
    assert "./models/x is not on this machine" in found["./models/x"]
    assert "empty has no config.json" in found["empty"]
    assert "config.json" in found["broken"]


@pytest.mark.slow
def test_hub_names_whose_config_is_in_the_cache(folder: Path) -> None:
    """The snapshot has the config only, the index without shards, or git-lfs pointers; the hub said 'no such file'."""
    save("Qwen2ForCausalLM", folder)
    config = (folder / "full" / "config.json").read_text()
    for name, extra in {
        "only": {},
        "index": {"model.safetensors.index.json": None},
        "lfs": {"model.safetensors": None},
    }.items():
        cache = folder / "hf" / "hub" / f"models--org--{name}"
        snapshot = cache / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text("a" * 40)
        (snapshot / "config.json").write_text(config)
        if "model.safetensors" in extra:
            (snapshot / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
        elif extra:
            index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
            (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
        missing = cache / ".no_exist" / ("a" * 40)
        missing.mkdir(parents=True)
        (missing / "model.safetensors").touch()
    [wanted] = real_loads([("Qwen2ForCausalLM", folder / "full", {})])
    program = (
        LOAD
        + "for name in ('only', 'index', 'lfs'):\n    answer(**{name: loaded('AutoModelForCausalLM', 'org/' + name)})"
    )
    found = answers(folder, program)
    assert found == {"only": wanted, "index": wanted, "lfs": wanted}


@pytest.mark.slow
def test_custom_code_in_the_model_folder(folder: Path) -> None:
    model = folder / "custom"
    model.mkdir()
    (model / "configuration_own.py").write_text(
        "from transformers import PretrainedConfig\n"
        "class OwnConfig(PretrainedConfig):\n    model_type = 'own'\n"
        "    def __init__(self, width=8, **kw):\n        self.width = width\n        super().__init__(**kw)\n"
    )
    (model / "modeling_own.py").write_text(
        "import torch\nfrom transformers import PreTrainedModel\nfrom .configuration_own import OwnConfig\n"
        "class OwnModel(PreTrainedModel):\n    config_class = OwnConfig\n"
        "    def __init__(self, config):\n        super().__init__(config)\n"
        "        self.layer = torch.nn.Linear(config.width, 2 * config.width)\n"
        "        self.register_buffer('table', torch.zeros(config.width))\n        self.post_init()\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
    )
    config = {"model_type": "own", "width": 16, "architectures": ["OwnModel"], "torch_dtype": "bfloat16"}
    config["auto_map"] = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    (model / "config.json").write_text(json.dumps(config))
    program = LOAD + "answer(**loaded('AutoModel', 'custom', trust_remote_code=True))"
    found = answers(folder, program)
    assert found["state"] == {
        "layer.weight": [[32, 16], "torch.bfloat16", "cpu"],
        "layer.bias": [[32], "torch.bfloat16", "cpu"],
        "table": [[16], "torch.bfloat16", "cpu"],
    }
    assert found["missing_keys"] == found["unexpected_keys"] == []


@pytest.mark.slow
def test_folders_that_can_not_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Landlock: the weights are made in a copy, and what is loaded bears the name that was asked for."""
    import peft

    model = folder / "gonogo-prepared" / "models" / "one"
    model.mkdir(parents=True)
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **TINY}
    (model / "config.json").write_text(json.dumps(config))
    (model.parents[1] / "prepared.json").write_text(json.dumps({"models": {"some/one": "models/one"}}))
    (folder / "store").mkdir()
    (folder / "store" / "config.json").write_text(json.dumps(config))
    (folder / "store" / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"x": "nowhere.bin"}}))
    adapter = peft.LoraConfig(r=4, target_modules=["q_proj"], base_model_name_or_path="store", task_type="CAUSAL_LM")
    adapter.save_pretrained(folder / "adapter")
    monkeypatch.setenv("GONOGO_CONFINEMENT", "landlock")
    found = answers(
        folder,
        """
        import huggingface_hub, peft, transformers
        def loaded(name):
            model, info = transformers.AutoModelForCausalLM.from_pretrained(name, output_loading_info=True)
            return model, [sorted(info["missing_keys"]), model.name_or_path, model.config._name_or_path]
        base, store = loaded("store")
        answer(store=store, prepared=loaded("some/one")[1], again=loaded("store")[1], through=loaded("adapter")[1])
        tuned = peft.PeftModel.from_pretrained(base, "adapter", is_trainable=True)
        own, _ = loaded("store")
        own.load_adapter("adapter")
        answer(tuned=sum("lora" in name for name, _ in tuned.named_parameters()),
               own=sum("lora" in name for name, _ in own.named_parameters()),
               events=[event for event in session.events if "has no weights here" in event])
        file = huggingface_hub.hf_hub_download("some/one", "model.safetensors")
        whole = huggingface_hub.snapshot_download("some/one")
        answer(files=[os.path.isfile(file), sorted(os.listdir(whole))], listed=sorted(os.listdir("store")))
        """,
        prepared=str(folder / "gonogo-prepared"),
    )
    assert found["store"] == found["again"] == found["through"] == [[], "store", "store"]
    assert found["prepared"] == [[], "some/one", "some/one"]
    assert found["tuned"] == found["own"] == 2 * TINY["num_hidden_layers"]
    assert [event.partition(" has")[0] for event in found["events"]] == ["store", "some/one", "the adapter adapter"]
    assert found["files"] == [True, ["config.json", "model.safetensors"]]
    assert found["listed"] == ["config.json", "pytorch_model.bin.index.json"]


@pytest.mark.very_slow
def test_adapters_with_their_config_alone(folder: Path) -> None:
    """LoRA on a language model: saved for real, then loaded by peft, and by transformers, without the weights."""
    import peft
    import transformers

    save("Qwen2ForCausalLM", folder)
    base = transformers.Qwen2ForCausalLM.from_pretrained(folder / "full")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"])
    tuned = peft.get_peft_model(base, config)
    tuned.save_pretrained(folder / "adapter")
    again = peft.PeftModel.from_pretrained(
        transformers.Qwen2ForCausalLM.from_pretrained(folder / "full"), folder / "adapter", is_trainable=True
    )
    expected = {name: [list(t.shape), str(t.dtype), str(t.device)] for name, t in again.state_dict().items()}
    (folder / "adapter-config").mkdir()
    adapter = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    adapter["base_model_name_or_path"] = str(folder / "config")
    (folder / "adapter-config" / "adapter_config.json").write_text(json.dumps(adapter))
    found = answers(
        folder,
        """
        import peft, transformers
        for kind in ("adapter", "adapter-config"):
            base = transformers.AutoModelForCausalLM.from_pretrained("config")
            model = peft.PeftModel.from_pretrained(base, kind, is_trainable=True)
            answer(**{kind: described(model.state_dict().items())})
        model, info = transformers.AutoModelForCausalLM.from_pretrained("adapter-config", output_loading_info=True)
        answer(own=sorted(n for n, _ in model.named_parameters() if "lora" in n), missing=sorted(info["missing_keys"]))
        direct = peft.AutoPeftModelForCausalLM.from_pretrained("adapter-config")
        answer(auto=described(direct.state_dict().items()))
        """,
        world=1,
    )
    assert found["adapter"] == found["adapter-config"] == expected
    assert found["auto"].keys() == expected.keys()
    assert len(found["own"]) == 8
    assert found["missing"] == []
    made = runs_of(folder).written(folder / "adapter-config" / "adapter_model.safetensors")
    assert header(made) == header(folder / "adapter" / "adapter_model.safetensors")


@pytest.mark.slow
def test_full_size_under_zero3_takes_seconds_and_little_memory(folder: Path) -> None:
    """A 72B Qwen2 from its config alone, partitioned over eight ranks."""
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "hidden_size": 8192,
        "intermediate_size": 29568, "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
        "vocab_size": 152064, "tie_word_embeddings": False,
    }  # fmt: skip
    (folder / "q72").mkdir()
    (folder / "q72" / "config.json").write_text(json.dumps(config))
    found = answers(
        folder,
        """
        import time, deepspeed, transformers
        from transformers.integrations import HfDeepSpeedConfig
        deepspeed.init_distributed()
        held = HfDeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
                                  "bf16": {"enabled": True}})
        start = time.process_time()
        model, info = transformers.AutoModelForCausalLM.from_pretrained("q72", output_loading_info=True)
        answer(seconds=time.process_time() - start, rss=peak_kib(),
               missing=sorted(info["missing_keys"]), parameters=sum(p.ds_numel for p in model.parameters()),
               live=live("cuda:0"))
        """,
        world=8,
    )
    assert found["parameters"] == 72_706_203_648
    assert found["missing"] == []
    assert 0.99 < found["live"] / (72_706_203_648 * 2 / 8) < 1.01
    assert found["seconds"] < 30
    assert found["rss"] < 1 << 20, "KiB"
    written = runs_of(folder).files()
    assert sum(path.stat().st_blocks for path in written) * 512 < 4 << 20
    assert sum(path.stat().st_size for path in written) > 135 << 30
