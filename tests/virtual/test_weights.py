"""Loading without weights, held against loading with them: the same names, shapes, dtypes, and keys reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from confined import runs_of
from virtual.saved_models import LOAD, MODELS, header, real_loads, really, save
from virtual_worker import answers, run


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """All models, loaded for real and in one rehearsal: (folder, real, virtual)."""
    root = tmp_path_factory.mktemp("models") / "user"
    for cls in MODELS:
        save(cls, root / cls)
    real = dict(zip(MODELS, real_loads([(cls, root / cls / "full", {}) for cls in MODELS]), strict=True))
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
    made = runs_of(root).written(root / cls / "config" / "model.safetensors")
    assert header(made) == header(root / cls / "full" / "model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


@pytest.mark.slow
def test_missing_unexpected_and_mismatched_keys_are_reported_as_really(folder: Path) -> None:
    """A classifier loaded from a language model, another vocabulary, and other dtypes, devices and shards."""
    save("Qwen2ForCausalLM", folder)
    really(
        """
        import pathlib, shutil, sys, torch, transformers
        folder = pathlib.Path(sys.argv[1])
        full = transformers.Qwen2ForCausalLM.from_pretrained(folder / "full")
        full.save_pretrained(folder / "shards", max_shard_size="20KB")
        (folder / "bin").mkdir()
        torch.save(full.state_dict(), folder / "bin" / "pytorch_model.bin")
        shutil.copy(folder / "full" / "config.json", folder / "bin")
        transformers.Qwen2ForCausalLM.from_pretrained(folder / "full").save_pretrained(folder / "full", variant="fp16")
        """,
        str(folder),
    )
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
    expected = real_loads([(cls, folder / ("full" if where == "config" else where), kw) for cls, where, kw in cases])
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
    from gonogo.virtual.weights.torch_archive import ArchiveRecord, write_archive

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
            [ArchiveRecord("data.pkl", len(data), data), ArchiveRecord("data/0", 4 * 10**10, None),
             ArchiveRecord("version", 2, b"3\n")],
            sparse=True,
        )  # fmt: skip
    found = answers(
        folder,
        """
        from safetensors.torch import load_file
        answer(safe=described(load_file("big.safetensors").items()), pt=described(torch.load("big.pt").items()),
               rss=peak_kib())
        """,
    )
    assert found["safe"] == {"w": [[10**10], "torch.float32", "cpu"]}
    assert found["pt"] == {"w": [[10**10], "torch.float32", "cuda:0"]}
    assert found["rss"] < 2 << 20


def test_private_interfaces_are_where_they_were() -> None:
    from gonogo.virtual.weights import private_serialization

    assert private_serialization.missing_interfaces() == []


def test_a_program_without_weights_or_network_errors_runs_on(folder: Path) -> None:
    """Reading a file that is not there is the program's own error."""
    done = run(folder, "torch.load('nothing.pt')")
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr.splitlines()[-1]
    assert "'nothing.pt'" in done.stderr.splitlines()[-1]
