"""Loading without weights, held against loading with them: the same names, shapes, dtypes, and keys reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual_worker import answers, run

TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 128}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen2ForCausalLM": ("Qwen2Config", TINY),
    "LlamaForCausalLM": ("LlamaConfig", {**TINY, "tie_word_embeddings": True}),
    "MixtralForCausalLM": ("MixtralConfig", {**TINY, "num_local_experts": 4}),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", {**TINY, "num_experts": 4, "moe_intermediate_size": 16, "head_dim": 8}),
    "GptOssForCausalLM": ("GptOssConfig", {**TINY, "num_local_experts": 4, "head_dim": 8}),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", {**TINY, "head_dim": 8}),
    "T5ForConditionalGeneration": (
        "T5Config", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 128},
    ),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 128, "n_positions": 64},
    ),
    "BertForMaskedLM": ("BertConfig", BERT),
    "Qwen2_5_VLForConditionalGeneration": (
        "Qwen2_5_VLConfig",
        {"text_config": {**TINY, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}},
         "vision_config": {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2,
                           "out_hidden_size": 32, "fullatt_block_indexes": [1]}},
    ),
}  # fmt: skip

LOAD = """
import transformers
def loaded(cls, folder, **kwargs):
    model, info = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True, **kwargs)
    return {"state": described(model.state_dict().items()), "buffers": described(model.named_buffers()),
            "training": model.training, **{key: sorted(map(str, value)) for key, value in info.items()}}
"""


def real_load(cls: str, folder: Path, **kwargs: Any) -> dict[str, Any]:
    """What :data:`LOAD` says of the real model."""
    import transformers

    model, info = getattr(transformers, cls).from_pretrained(folder, output_loading_info=True, **kwargs)

    def described(tensors: Any) -> dict[str, Any]:
        return {name: [list(t.shape), str(t.dtype), str(t.device)] for name, t in tensors}

    return {
        "state": described(model.state_dict().items()),
        "buffers": described(model.named_buffers()),
        "training": model.training,
        **{key: sorted(map(str, value)) for key, value in info.items()},
    }


def header(path: Path) -> dict[str, Any]:
    """A safetensors file's names, dtypes and shapes."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        described = json.loads(file.read(length))
    described.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"]) for name, entry in described.items()}


def save(cls: str, folder: Path, **changes: Any) -> None:
    """A tiny model saved for real in ``folder/full``, and its config alone in ``folder/config``."""
    import transformers

    config_class, arguments = MODELS[cls]
    config = getattr(transformers, config_class)(**{**arguments, **changes})
    torch.manual_seed(0)
    getattr(transformers, cls)(config).to(torch.bfloat16).save_pretrained(folder / "full")
    (folder / "config").mkdir()
    shutil.copy(folder / "full" / "config.json", folder / "config")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """All models, loaded for real and in one rehearsal: (folder, real, virtual)."""
    root = tmp_path_factory.mktemp("models") / "user"
    real = {}
    for cls in MODELS:
        save(cls, root / cls)
        real[cls] = real_load(cls, root / cls / "full")
    before = sorted(str(path) for path in root.rglob("*"))
    program = LOAD + f"for cls in {list(MODELS)!r}:\n    for kind in ('full', 'config'):\n"
    program += "        answer(**{f'{cls}/{kind}': loaded(cls, f'{cls}/{kind}')})\n"
    virtual = answers(root, program)
    assert sorted(str(path) for path in root.rglob("*")) == before
    return root, real, virtual


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", "config"])
@pytest.mark.parametrize("cls", list(MODELS))
def test_same_as_a_real_load(compared: tuple[Path, dict[str, Any], dict[str, Any]], cls: str, kind: str) -> None:
    """With the weight files there and with the config alone."""
    _, real, virtual = compared
    assert virtual[f"{cls}/{kind}"] == real[cls]
    assert virtual[f"{cls}/{kind}"]["missing_keys"] == []


@pytest.mark.slow
@pytest.mark.parametrize("cls", list(MODELS))
def test_checkpoint_is_what_save_pretrained_writes(
    compared: tuple[Path, dict[str, Any], dict[str, Any]], cls: str
) -> None:
    root, _, _ = compared
    made = root.parent / "user-scratch" / "files" / str(root / cls / "config" / "model.safetensors").lstrip("/")
    assert header(made) == header(root / cls / "full" / "model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.mark.slow
def test_missing_unexpected_and_mismatched_keys_are_reported_as_really(folder: Path) -> None:
    """A classifier loaded from a language model, another vocabulary, and other dtypes, devices and shards."""
    save("Qwen2ForCausalLM", folder)
    import transformers

    full = transformers.Qwen2ForCausalLM.from_pretrained(folder / "full")
    full.save_pretrained(folder / "shards", max_shard_size="20KB")
    torch.save(full.state_dict(), folder / "pytorch_model.bin")
    (folder / "bin").mkdir()
    shutil.copy(folder / "full" / "config.json", folder / "bin")
    shutil.move(folder / "pytorch_model.bin", folder / "bin")
    transformers.Qwen2ForCausalLM.from_pretrained(folder / "full").save_pretrained(folder / "full", variant="fp16")
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("Qwen2ForCausalLM", "full", {"variant": "fp16"}), ("Qwen2ForCausalLM", "config", {"variant": "fp16"}),
        ("Qwen2ForSequenceClassification", "full", {"num_labels": 3}),
        ("Qwen2ForSequenceClassification", "config", {"num_labels": 3}),
        ("Qwen2ForCausalLM", "full", {"vocab_size": 100, "ignore_mismatched_sizes": True}),
        ("Qwen2ForCausalLM", "config", {"vocab_size": 100, "ignore_mismatched_sizes": True}),
        ("Qwen2ForCausalLM", "full", {"num_hidden_layers": 1, "dtype": "float32"}),
        ("Qwen2ForCausalLM", "config", {"num_hidden_layers": 1, "dtype": "float16"}),
        ("Qwen2Model", "full", {}), ("Qwen2Model", "config", {}), ("Qwen2ForCausalLM", "shards", {}),
        ("Qwen2ForCausalLM", "bin", {"dtype": "float32"}),
    ]  # fmt: skip
    expected = [real_load(cls, folder / ("full" if where == "config" else where), **kw) for cls, where, kw in cases]
    program = LOAD + f"answer(cases=[loaded(cls, where, **kw) for cls, where, kw in {cases!r}])"
    for case, found, wanted in zip(cases, answers(folder, program)["cases"], expected, strict=True):
        assert found == wanted, case
    assert any("score.weight" in key for key in expected[3]["missing_keys"])
    assert expected[6]["unexpected_keys"]
    assert expected[5]["mismatched_keys"]


@pytest.mark.slow
def test_device_map_puts_weights_on_the_accelerator_and_counts_them(folder: Path) -> None:
    save("Qwen2ForCausalLM", folder)
    found = answers(
        folder,
        """
        import transformers
        before = live("cpu")
        on_cpu = transformers.AutoModelForCausalLM.from_pretrained("full")
        answer(mapped=live("cpu") - before)
        as_float = transformers.AutoModelForCausalLM.from_pretrained("config", dtype=torch.float32)
        answer(copied=live("cpu") - before, floats=4 * sum(p.numel() for p in as_float.parameters()))
        model = transformers.AutoModelForCausalLM.from_pretrained("config", device_map={"": 0})
        answer(devices=sorted({str(p.device) for p in model.parameters()}), live=live("cuda:0"),
               bytes=sum(p.numel() * p.element_size() for p in model.parameters()))
        auto = transformers.AutoModelForCausalLM.from_pretrained("config", device_map="auto")
        answer(auto=sorted({str(d) for d in auto.hf_device_map.values()}),
               on=sorted({str(p.device) for p in auto.parameters()}))
        """,
        world=2,
    )
    assert found["mapped"] < 1000, "pages of the mapped file are not the host's memory; buffers are"
    assert found["floats"] <= found["copied"] <= found["floats"] + 1000
    assert found["devices"] == ["cuda:0"]
    assert found["bytes"] <= found["live"] <= found["bytes"] + 1024
    assert found["auto"] == ["0", "1"]
    assert found["on"] == ["cuda:0", "cuda:1"]


@pytest.mark.slow
def test_small_tensors_of_real_files_have_their_values(folder: Path) -> None:
    import safetensors.torch

    tensors = {
        "scale": torch.tensor(3.5), "ids": torch.arange(5), "large": torch.ones(200, 200), "half": torch.ones(2).half(),
    }  # fmt: skip
    safetensors.torch.save_file(tensors, folder / "t.safetensors", metadata={"format": "pt", "who": "me"})
    torch.save({**tensors, "step": 7, "view": tensors["ids"][1:3], "nested": [tensors["ids"]]}, folder / "t.pt")
    state = torch.random.get_rng_state()
    torch.save({"cpu": state, "python": (1, 2)}, folder / "rng.pth")
    found = answers(
        folder,
        """
        from safetensors import safe_open
        from safetensors.torch import load_file
        with safe_open("t.safetensors", "pt", device="cuda:0") as f:
            answer(keys=sorted(f.keys()), metadata=f.metadata(), slice=list(f.get_slice("large")[:, 10:30].shape),
                   scale=f.get_tensor("scale").item(), on=str(f.get_tensor("large").device),
                   lazy=f.get_slice("ids")[2:].tolist())
        answer(loaded=described(sorted(load_file("t.safetensors").items())))
        t = torch.load("t.pt")
        answer(step=t["step"], ids=t["ids"].tolist(), view=t["view"].tolist(), large=described([("large", t["large"])]),
               shared=t["nested"][0] is t["ids"] or t["nested"][0].data_ptr() == t["ids"].data_ptr())
        t["ids"][1] = 9
        answer(after=t["view"].tolist())
        answer(moved=str(torch.load("t.pt", map_location=lambda storage, where: storage.cuda(0))["large"].device),
               meta=str(torch.load("t.pt", map_location="meta")["large"].device))
        torch.random.set_rng_state(torch.load("rng.pth")["cpu"])
        answer(state=torch.random.get_rng_state().tolist()[:64])
        with open("t.pt", "rb") as f:
            answer(from_file=torch.load(f)["ids"].tolist())
        """,
    )
    assert found["keys"] == ["half", "ids", "large", "scale"]
    assert found["metadata"] == {"format": "pt", "who": "me"}
    assert found["slice"] == [200, 20]
    assert found["scale"] == 3.5
    assert found["on"] == "cuda:0"
    assert found["lazy"] == [2, 3, 4]
    assert found["loaded"]["half"] == [[2], "torch.float16", "cpu"]
    assert found["ids"] == found["from_file"] == [0, 1, 2, 3, 4]
    assert found["view"] == [1, 2]
    assert found["after"] == [9, 2], "tensors of one storage share it"
    assert found["shared"]
    assert found["large"] == {"large": [[200, 200], "torch.float32", "cpu"]}
    assert found["moved"] == "cuda:0"
    assert found["meta"] == "meta"
    assert found["state"] == state.tolist()[:64]


@pytest.mark.slow
def test_large_files_are_never_read(folder: Path) -> None:
    """A file of 40 GB that has no bytes on the disk, and whose reading would take all memory."""
    from gonogo.virtual.torch_archive import Record, write_archive

    big = torch.empty(0)
    torch.save({"w": big}, folder / "probe.pt")
    with (folder / "big.safetensors").open("wb") as file:
        text = json.dumps({"w": {"dtype": "F32", "shape": [10**10], "data_offsets": [0, 4 * 10**10]}}).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 4 * 10**10)
    import io
    import pickle

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return ("storage", torch.FloatStorage, "0", "cuda:0", 10**10) if obj is Pickler else None

        def reducer_override(self, obj: object) -> object:
            if isinstance(obj, torch.Tensor):
                return torch._utils._rebuild_tensor_v2, (Pickler, 0, (10**10,), (1,), False, {})
            return NotImplemented

    buffer = io.BytesIO()
    Pickler(buffer, protocol=2).dump({"w": big})
    with (folder / "big.pt").open("wb") as archive:
        data = buffer.getvalue()
        write_archive(
            archive, "big",
            [Record("data.pkl", len(data), data), Record("data/0", 4 * 10**10, None), Record("version", 2, b"3\n")],
            holes=True,
        )  # fmt: skip
    found = answers(
        folder,
        """
        import resource
        from safetensors.torch import load_file
        answer(safe=described(load_file("big.safetensors").items()), pt=described(torch.load("big.pt").items()),
               rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        """,
    )
    assert found["safe"] == {"w": [[10**10], "torch.float32", "cpu"]}
    assert found["pt"] == {"w": [[10**10], "torch.float32", "cuda:0"]}
    assert found["rss"] < 2 << 20


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
def test_models_that_are_not_here_are_said_in_one_line(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text('{"model_type": "qwen2",')
    found = answers(
        folder,
        """
        import transformers
        from gonogo.errors import UserError
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
    wanted = real_load("Qwen2ForCausalLM", folder / "full")
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
    made = (
        folder.parent
        / "user-scratch"
        / "files"
        / str(folder / "adapter-config" / "adapter_model.safetensors").lstrip("/")
    )
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
        import resource, time, deepspeed, transformers
        from transformers.integrations import HfDeepSpeedConfig
        deepspeed.init_distributed()
        held = HfDeepSpeedConfig({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
                                  "bf16": {"enabled": True}})
        start = time.monotonic()
        model, info = transformers.AutoModelForCausalLM.from_pretrained("q72", output_loading_info=True)
        answer(seconds=time.monotonic() - start, rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
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
    written = [path for path in (folder.parent / "user-scratch").rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks for path in written) * 512 < 4 << 20
    assert sum(path.stat().st_size for path in written) > 135 << 30


def test_private_interfaces_are_where_they_were() -> None:
    from gonogo.virtual import private_serialization

    assert private_serialization.check() == []


def test_a_program_without_weights_or_network_errors_runs_on(folder: Path) -> None:
    """Reading a file that is not there is the program's own error."""
    done = run(folder, "torch.load('nothing.pt')")
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr.splitlines()[-1]
    assert "'nothing.pt'" in done.stderr.splitlines()[-1]
