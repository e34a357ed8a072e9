"""Saving runs its real path, raises what it would, writes next to nothing, and can be read back."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch
from confined import runs_of
from virtual_worker import answers

from gonogo.virtual.weights.saving import _stream_path
from gonogo.virtual.weights.torch_archive import (
    ArchiveRecord,
    archive_records,
    names_in_archive,
    omitted_records,
    restore_holes,
    write_archive,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def on_disk(folder: Path) -> tuple[int, int]:
    """Bytes that the files that were written take on the disk, and the bytes that they say they have."""
    files = runs_of(folder).files()
    return sum(path.stat().st_blocks for path in files) * 512, sum(path.stat().st_size for path in files)


def test_the_file_of_a_stream_is_known_through_what_wraps_it(tmp_path: Path) -> None:
    class Wrapper(io.IOBase):
        def __init__(self, raw: object) -> None:
            self.raw = raw

    with open(tmp_path / "x.pt", "wb") as file:
        assert _stream_path(file) == _stream_path(Wrapper(Wrapper(file))) == str(tmp_path / "x.pt")
    assert _stream_path(io.BytesIO()) == _stream_path(Wrapper(io.BytesIO())) == ""


@pytest.mark.slow
def test_collections_are_as_usual_from_the_first_loaded_file_on(folder: Path) -> None:
    """A converter has no parameters: what it has loaded, and drops, would else be counted up to its end."""
    found = answers(
        folder,
        """
        import gc, torch
        torch.save({"a": torch.empty(1 << 20)}, "a.pt")
        gc.set_threshold(100_000, 50, 100)  # as while frameworks are imported
        torch.load("a.pt")
        answer(threshold=gc.get_threshold()[0])
        """,
    )
    assert found["threshold"] < 100_000


@pytest.mark.slow
def test_torch_save_and_load(folder: Path) -> None:
    found = answers(
        folder,
        """
        import io, torch
        large = torch.empty(1 << 28, device="cuda:0", dtype=torch.bfloat16)
        small = torch.arange(4)
        bias = torch.nn.Parameter(torch.empty(1 << 20), requires_grad=True)
        bias.tag = "kept"
        state = {"large": large, "view": large[: 1 << 20].view(1024, 1024).t(), "small": small, "bias": bias, "step": 3,
                 "numbers": torch.tensor([1.5, 2.5], device="cuda:0"), "names": ["a", ("b", 1)],
                 "float8": torch.empty(1 << 20, device="cuda:0", dtype=torch.float8_e4m3fn)}
        torch.save(state, "state.pt")
        answer(size=os.path.getsize("state.pt"))
        def read(**kwargs):
            t = torch.load("state.pt", **kwargs)
            return {"of": described((k, v) for k, v in t.items() if isinstance(v, torch.Tensor)), "step": t["step"],
                    "names": str(t["names"]), "small": t["small"].tolist(), "numbers": t["numbers"].tolist(),
                    "stride": list(t["view"].stride()), "grad": t["bias"].requires_grad,
                    "tag": getattr(t["bias"], "tag", 0),
                    "parameter": isinstance(t["bias"], torch.nn.Parameter),
                    "shares": t["view"].untyped_storage().data_ptr() == t["large"].untyped_storage().data_ptr()}
        answer(back=read(weights_only=False), on_cpu=read(map_location="cpu", weights_only=False))
        buffer = io.BytesIO()
        torch.save({"large": large, "small": small}, buffer)
        answer(buffered=len(buffer.getvalue()))
        buffer.seek(0)
        again = torch.load(buffer, weights_only=True)
        answer(again=described(again.items()), small=again["small"].tolist())
        with open("by_handle.pt", "wb") as f:
            torch.save(large, f)
        with open("by_handle.pt", "rb") as f:
            answer(handle=described([("large", torch.load(f))]))
        def unpicklable():
            class Local:
                pass
            return {"x": lambda: 0}, {"x": Local()}, {"x": open("state.pt", "rb")}
        failures = []
        for bad in unpicklable():
            try:
                torch.save(bad, "bad.pt")
            except Exception as error:
                failures.append(type(error).__name__)
        try:
            torch.save({}, "nowhere/x.pt")
        except Exception as error:
            failures.append(type(error).__name__)
        try:
            torch.save({}, 5)
        except Exception as error:
            failures.append(type(error).__name__)
        answer(failures=failures)
        """,
    )
    shapes = {
        "large": [[1 << 28], "torch.bfloat16", "cuda:0"], "view": [[1024, 1024], "torch.bfloat16", "cuda:0"],
        "small": [[4], "torch.int64", "cpu"], "bias": [[1 << 20], "torch.float32", "cpu"],
        "numbers": [[2], "torch.float32", "cuda:0"], "float8": [[1 << 20], "torch.float8_e4m3fn", "cuda:0"],
    }  # fmt: skip
    back = found["back"]
    assert back["of"] == shapes
    assert back["step"] == 3
    assert back["names"] == "['a', ('b', 1)]"
    assert back["small"] == [0, 1, 2, 3]
    assert back["numbers"] == [1.5, 2.5]
    assert back["stride"] == [1, 1024]
    assert back["grad"]
    assert back["parameter"]
    assert back["tag"] == "kept"
    assert back["shares"]
    assert {name: where for name, (_, _, where) in found["on_cpu"]["of"].items()} == dict.fromkeys(shapes, "cpu")
    assert found["size"] > 1 << 29
    assert found["buffered"] < 10_000
    assert found["again"]["large"] == shapes["large"]
    assert found["small"] == [0, 1, 2, 3]
    assert found["handle"] == {"large": shapes["large"]}
    assert found["failures"][:3] == ["AttributeError", "AttributeError", "TypeError"], "as pickle says of them"
    assert found["failures"][3] in ("FileNotFoundError", "RuntimeError")
    assert found["failures"][4] == "AttributeError"
    blocks, said = on_disk(folder)
    assert blocks < 8 << 20
    assert said > 1 << 29


@pytest.mark.slow
def test_safetensors_checks_what_it_checks(folder: Path) -> None:
    found = answers(
        folder,
        """
        from safetensors import safe_open
        from safetensors.torch import load, load_file, save, save_file, save_model
        large = torch.empty(4096, 4096, device="cuda:0", dtype=torch.bfloat16)
        save_file({"large": large, "known": torch.arange(3)}, "a.safetensors", metadata={"format": "pt"})
        with safe_open("a.safetensors", "pt", device="cuda:0") as f:
            answer(keys=sorted(f.keys()), metadata=f.metadata(), known=f.get_tensor("known").tolist(),
                   large=described([("large", f.get_tensor("large"))]))
        errors = []
        for bad in ({"a": large, "b": large}, {"a": large.t()}, {"a": 3}, {"a": large, "b": large[:10]}):
            try:
                save_file(bad, "bad.safetensors")
            except Exception as error:
                errors.append(type(error).__name__ + ": " + str(error)[:60])
        answer(errors=errors)
        save_file({"a": torch.empty(8, 8, device="cuda:0"), "b": torch.empty(8, 8, device="cuda:0")}, "b.safetensors")
        data = save({"x": torch.arange(5), "y": torch.empty(100, 100)})
        answer(bytes=len(data), x=load(data)["x"].tolist())
        model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300)).cuda()
        model[1].weight = model[0].weight
        save_model(model, "m.safetensors")
        answer(model=sorted(load_file("m.safetensors")))
        """,
    )
    assert found["keys"] == ["known", "large"]
    assert found["metadata"] == {"format": "pt"}
    assert found["known"] == [0, 1, 2]
    assert found["large"] == {"large": [[4096, 4096], "torch.bfloat16", "cuda:0"]}
    assert len(found["errors"]) == 4
    assert "share memory" in found["errors"][0]
    assert "non contiguous" in found["errors"][1]
    assert "expected torch.Tensor" in found["errors"][2]
    assert "share memory" in found["errors"][3]
    assert found["bytes"] > 40_000
    assert found["x"] == [0, 1, 2, 3, 4]
    assert len(found["model"]) == 3


@pytest.mark.very_slow
def test_save_pretrained_tied_sharded_and_read_again(folder: Path) -> None:
    """A model trained from a config: saved in shards as transformers does, and loaded from what was saved."""
    import transformers

    config = transformers.Qwen2Config(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=50_000, tie_word_embeddings=True, architectures=["Qwen2ForCausalLM"], dtype="bfloat16",
    )  # fmt: skip
    config.save_pretrained(folder / "model")
    found = answers(
        folder,
        """
        import transformers, shutil
        model = transformers.AutoModelForCausalLM.from_pretrained("model").cuda()
        before = session.memory.device(torch.device("cpu"))
        loaded = before.peak
        model.save_pretrained("out", max_shard_size="50MB")
        answer(files=sorted(os.listdir("out")), peak=before.peak, loaded=loaded)
        again, info = transformers.AutoModelForCausalLM.from_pretrained("out", output_loading_info=True)
        answer(missing=sorted(info["missing_keys"]), tied=again.lm_head.weight is again.model.embed_tokens.weight,
               same=described(again.state_dict().items()) == described(model.cpu().state_dict().items()))
        shutil.copytree("out", "best"); os.rename("best", "moved")
        answer(copied=os.path.getsize("moved/" + sorted(os.listdir("moved"))[3]), wrote=session.saved_bytes)
        """,
    )
    shards = [name for name in found["files"] if name.endswith(".safetensors")]
    assert len(shards) > 3
    assert "model.safetensors.index.json" in found["files"]
    assert found["missing"] == []
    assert found["tied"]
    assert found["same"]
    largest = 50_000 * 1024 * 2
    assert largest <= found["peak"] < 2 * largest, "one shard at a time is copied to the host"
    blocks, said = on_disk(folder)
    assert blocks < 4 << 20
    assert said > found["wrote"] > 100 << 20


TRAIN = """
import json, os, sys, torch, transformers
from datasets import Dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("model")
rows = [{"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4], "attention_mask": [1, 1, 1, 1]}] * 64
resume = sys.argv[1] if len(sys.argv) > 1 else None
args = TrainingArguments("out", per_device_train_batch_size=1, max_steps=2 if resume is None else 4, save_steps=1,
                         logging_steps=1, report_to=[], bf16=True, deepspeed="ds.json", save_total_limit=2)
class Told(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        print("ANSWER " + json.dumps({"began_at": state.global_step}))
    def on_step_end(self, args, state, control, **kwargs):
        print("ANSWER " + json.dumps({"ended_at": state.global_step}))
trainer = Trainer(model=model, args=args, train_dataset=Dataset.from_list(rows), callbacks=[Told()])
trainer.train(resume_from_checkpoint=resume)
trainer.save_model("final")
"""


@pytest.mark.very_slow
def test_a_trainer_saves_and_resumes_from_what_deepspeed_saved(folder: Path) -> None:
    """ZeRO-3 through the Trainer: checkpoints each step, the gathered model, and a run that takes up where it was."""
    import json

    import transformers

    config = transformers.Qwen2Config(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=2000, architectures=["Qwen2ForCausalLM"], dtype="bfloat16", bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    config.save_pretrained(folder / "model")
    (folder / "ds.json").write_text(
        json.dumps(
            {
                "train_batch_size": "auto",
                "train_micro_batch_size_per_gpu": "auto",
                "bf16": {"enabled": "auto"},
                "gradient_accumulation_steps": "auto",
                "gradient_clipping": "auto",
                "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
            }
        )
    )
    (folder / "train.py").write_text(TRAIN)
    program = """
        import runpy, glob
        from gonogo.virtual.hooks.lifecycle import RehearsalComplete
        sys.argv = ["train.py", *{arguments}]
        try:
            runpy.run_path("train.py", run_name="__main__")
        except (RehearsalComplete, SystemExit):
            pass
        """
    found = answers(
        folder,
        program.format(arguments=[])
        + """
        answer(saved=sorted(os.listdir("out")), final=sorted(os.listdir("final")) if os.path.isdir("final") else [],
               states=sorted(glob.glob("out/checkpoint-*/global_step*/*")), latest=open(
               sorted(glob.glob("out/checkpoint-*"))[-1] + "/latest").read())
        """,
        world=4,
    )
    assert found["saved"][-1].startswith("checkpoint-")
    assert any("zero_pp_rank_0_mp_rank_00_optim_states.pt" in path for path in found["states"])
    assert found["latest"].startswith("global_step")
    assert "model.safetensors" in found["final"]
    assert (found["began_at"], found["ended_at"]) == (0, 2)
    resumed = answers(folder, program.format(arguments=["out/checkpoint-2"]), world=4)
    assert (resumed["began_at"], resumed["ended_at"]) == (2, 4)
    blocks, _ = on_disk(folder)
    assert blocks < 16 << 20
    assert sorted(path.name for path in folder.iterdir()) == ["ds.json", "model", "train.py"]


@pytest.mark.slow
def test_distributed_checkpoint(folder: Path) -> None:
    found = answers(
        folder,
        """
        import torch.distributed as dist, torch.distributed.checkpoint as dcp
        state = {"w": torch.empty(1 << 24), "b": torch.arange(8.0)}
        dcp.save(state, checkpoint_id="dcp", no_dist=True)
        target = {"w": torch.zeros(1 << 24), "b": torch.zeros(8)}
        dcp.load(target, checkpoint_id="dcp", no_dist=True)
        answer(b=target["b"].tolist(), w=described([("w", target["w"])]), files=sorted(os.listdir("dcp")))
        """,
    )
    assert found["b"] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert found["w"] == {"w": [[1 << 24], "torch.float32", "cpu"]}
    assert on_disk(folder)[0] < 1 << 20


def test_an_archive_is_as_long_as_torch_writes_it() -> None:
    """Many small archives in a file (torch.distributed.checkpoint) would otherwise be short by half."""
    real = io.BytesIO()
    torch.save({"a": torch.arange(8.0)}, real)
    names = names_in_archive(io.BytesIO(real.getvalue()))
    with zipfile.ZipFile(real) as archive:
        pickled, data = archive.read("archive/data.pkl"), archive.read("archive/data/0")
    written = io.BytesIO()
    records = archive_records(pickled, [ArchiveRecord("data/0", len(data), data)], names)
    assert write_archive(written, "archive", records, sparse=True) == len(written.getvalue()) == len(real.getvalue())
    written.seek(0)
    assert torch.load(written)["a"].tolist() == list(range(8))


def test_archive_is_one_that_torch_reads(tmp_path: Path) -> None:
    """Holes read as zeros by torch itself, also in an archive of more than 4 GiB; a stream's archive is expanded."""
    path = tmp_path / "real.pt"
    torch.save({"a": torch.arange(10), "b": torch.ones(1000)}, path)
    with zipfile.ZipFile(path) as archive:
        records = [
            ArchiveRecord(
                name.partition("/")[2], archive.getinfo(name).file_size,
                None if name.endswith("data/1") else archive.read(name),
            )
            for name in archive.namelist()
        ]  # fmt: skip
    records.insert(1, ArchiveRecord("data/large", 5 << 30, None))
    with (tmp_path / "holes.pt").open("wb") as file:
        length = write_archive(file, "holes", records, sparse=True)
    assert length == (tmp_path / "holes.pt").stat().st_size > 5 << 30
    assert (tmp_path / "holes.pt").stat().st_blocks * 512 < 1 << 20
    read = torch.load(tmp_path / "holes.pt", mmap=True)
    assert read["a"].tolist() == list(range(10))
    assert read["b"].sum() == 0
    stream = io.BytesIO()
    write_archive(stream, "stream", records, sparse=False)
    stream.seek(0)
    omitted = omitted_records(stream)
    assert omitted == {"data/large": 5 << 30, "data/1": 4000}
    stream.seek(0)
    restore_holes(stream, str(tmp_path / "expanded.pt"), omitted)
    again = torch.load(tmp_path / "expanded.pt", mmap=True)
    assert again["a"].tolist() == list(range(10))
    assert again["b"].shape == (1000,)
