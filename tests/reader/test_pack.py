"""``gonogo diagnose --format pack``: what is in it, what is not, and that it never grows over its limit."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.diagnose.pack.budget import PackSection, lay_out_sections
from gonogo.diagnose.pack.pack import MAX_TOKENS, ReaderPack, make_reader_pack
from gonogo.diagnose.pack.privacy import NameRedactor
from gonogo.diagnose.pack.tokens import count_tokens
from gonogo.finding import Text

OPTIONS = ("--format", "pack", "--lang", "en")
CASES = sorted((Path(__file__).parents[1] / "hazards").glob("*/bad*.log"))


def pack(path: Path, **given: Path | None) -> ReaderPack:
    failure = read_failure([str(path)], **given)  # type: ignore[arg-type]
    return make_reader_pack(failure.log, failure.report(), failure.files)


@pytest.mark.parametrize("path", CASES[::40], ids=lambda path: path.parent.name)
def test_every_pack_is_within_its_limit_and_has_the_error(path: Path) -> None:
    made = pack(path)
    assert made.tokens == count_tokens(made.text) <= MAX_TOKENS
    failure = read_failure([str(path)])
    for error in failure.log.errors[:1]:
        assert error.message.partition("\n")[0][:40] in made.text or "<" in made.text
    for language in ("en", "zh"):
        assert (
            count_tokens(make_reader_pack(failure.log, failure.report(), failure.files, language=language).text)
            <= MAX_TOKENS
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_log_of_any_size_makes_a_pack_of_bounded_size(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    lines = []
    for number in range(3000):
        rank = chosen.randrange(64)
        lines.append(f"[rank{rank}]: RuntimeError: {'x' * chosen.randrange(900)} {number} 错误 {chosen.random()}")
        lines.append(f'[rank{rank}]:   File "/a/{chosen.randrange(9)}/b.py", line {number}, in f{number}')
    (tmp_path / "a.log").write_text("\n".join(lines))
    assert pack(tmp_path / "a.log").tokens <= MAX_TOKENS


def test_it_says_what_failed_where_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "def collate(batch,\n            key='answer'):\n" + "    pass\n" * 20 + "    return batch[key]\n"
    )
    (tmp_path / "launch.sh").write_text("torchrun --nproc_per_node 4 train.py --remove_unused_columns True\n")
    (tmp_path / "a.log").write_text(
        "remove_unused_columns: True\nlearning_rate: 3e-5\n"
        "[rank2]: Traceback (most recent call last):\n"
        f'[rank2]:   File "{tmp_path}/train.py", line 23, in collate\n[rank2]:     return batch[key]\n'
        "[rank2]: KeyError: 'answer'\n"
        "[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "diagnose", "a.log", *OPTIONS, "--", "bash", "launch.sh"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = done.stdout
    assert "1. root, a.log:6, rank 2: KeyError: 'answer'" in said
    assert "cascade, a.log:7, rank 0" in said
    assert ">   23     return batch[key]" in said  # the source around the failing frame, and the function's head
    assert "     1 def collate(batch," in said
    assert "torchrun --nproc_per_node 4 train.py" in said
    assert said.rindex("remove_unused_columns: True") > said.index("## Settings")
    assert "2 of 4 processes" in said
    assert str(tmp_path) not in said


def test_source_of_another_release_is_not_shown(tmp_path: Path) -> None:
    import msgspec

    path = Path(msgspec.__file__).with_name("_utils.py")
    lines = path.read_text().splitlines()
    number, code = next((n, line) for n, line in enumerate(lines, 1) if line.startswith("    return "))
    log = "Traceback (most recent call last):\n"
    log += '  File "/x/site-packages/msgspec/_utils.py", line {}, in f\n    {}\nTypeError: no\n'
    (tmp_path / "same.log").write_text(log.format(number, code.strip()))
    (tmp_path / "other.log").write_text(log.format(number, "return something_of_another_release(1)"))
    assert f"> {number:4}" in pack(tmp_path / "same.log").text
    assert "as installed here" not in pack(tmp_path / "other.log").text


PRIVATE = """\
/home/alice/acme/train.py --data /mnt/acme-secret/corpus/a.jsonl
  File "/home/alice/verl/verl/trainer/ppo/ray_trainer.py", line 3, in fit
  File "/opt/conda/envs/alice/lib/python3.11/site-packages/torch/nn/modules/module.py", line 5, in f
  File "/opt/conda/envs/x/lib/python3.11/runpy.py", line 9, in g
gpu-node-17:812:990 [0] NCCL INFO Bootstrap : Using eth0:10.20.30.40<0>
  host      : trainer-3.prod.cluster.local
MASTER_ADDR=head-node-1 alice@gpu-node-17 bob@acme.com wandb: Currently logged in as: al1ce-w
https://wandb.ai/alice/acme https://github.com/pytorch/pytorch/issues/1 https://git.acme.corp/x
fe80::1ff:fe23:4567:890a C:\\Users\\alice\\train.py HF_TOKEN=hf_abcdefghijklmnopqrstuvwx12
alice's job on gpu-node-17 failed at 10:20:31, cudnn 9.1.0.70, nvidia-cublas-cu12==12.1.3.1
"""


def test_private_names_are_replaced_each_by_one_name_throughout() -> None:
    privacy = NameRedactor(PRIVATE.splitlines())
    said = [privacy.redact_text(line) for line in PRIVATE.splitlines()]
    whole = "\n".join(said)
    for private in (
        "alice",
        "acme",
        "gpu-node-17",
        "10.20.30.40",
        "trainer-3",
        "head-node-1",
        "al1ce",
        "hf_abc",
        "fe80:",
        "bob",
    ):
        assert private not in whole, private
    assert "verl/trainer/ppo/ray_trainer.py" in said[1]
    assert "site-packages/torch/nn/modules/module.py" in said[2]
    assert "python3.11/runpy.py" in said[3]
    assert "https://github.com/pytorch/pytorch/issues/1" in said[7]
    assert said[9].endswith("failed at 10:20:31, cudnn 9.1.0.70, nvidia-cublas-cu12==12.1.3.1")
    host = said[4].partition(":")[0]
    assert host.startswith("<host")
    assert host in said[6]
    assert host in said[9]


def test_tokens_are_counted_upwards() -> None:
    assert count_tokens("") == 0
    assert count_tokens("a") == 1
    assert count_tokens("transformers") == 3
    assert count_tokens("16333") == 5
    assert count_tokens("a\n    b") == 4
    assert count_tokens("错误") == 4


def test_sections_share_what_is_left() -> None:
    large, small = PackSection(Text("Large", "大"), 50), PackSection(Text("Small", "小"), 50)
    for number in range(200):
        large.add(number, f"line {number} of many words")
    small.add(0, "one line")
    text = lay_out_sections("head", [large, small], 400, "en")
    assert count_tokens(text) <= 400
    assert "one line" in text
    assert text.index("line 0 of") < text.index("line 1 of")
    assert "[left out for length: " in text
    assert count_tokens(text) > 300


def test_json_has_the_pack_only_where_it_is_asked_for() -> None:
    for options, there in ((["--with-pack"], True), ([], False)):
        done = subprocess.run(
            [sys.executable, "-m", "gonogo", "diagnose", "-", "--format", "json", *options],
            input="RuntimeError: no such thing\n", capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ("pack" in json.loads(done.stdout)) == there
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "check", "--format", "pack", "--lang", "en", "."],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "must be one of" in done.stderr


def test_source_of_a_package_whose_distribution_has_another_name(tmp_path: Path) -> None:
    import yaml

    lines = Path(yaml.__file__).with_name("loader.py").read_text().splitlines()
    number, code = next((n, line) for n, line in enumerate(lines, 1) if line.strip().startswith("Reader.__init__("))
    frame = (
        'Traceback (most recent call last):\n  File "{}/yaml/loader.py", line {}, in __init__\n    {}\nTypeError: no\n'
    )
    (tmp_path / "a.log").write_text(frame.format("/x/site-packages", number, code.strip()))
    said = pack(tmp_path / "a.log").text
    assert f"> {number:4}" in said
    assert "as installed here" in said


def test_source_of_a_framework_that_was_run_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "verl" / "trainer").mkdir(parents=True)
    (site / "verl-0.9.1.dist-info").mkdir()
    (site / "verl-0.9.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: verl\nVersion: 0.9.1\n")
    (site / "verl" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (site / "verl" / "trainer" / "x.py").write_text("def fit(batch):\n    return batch.meta['timing']\n")
    monkeypatch.syspath_prepend(str(site))
    log = 'Traceback (most recent call last):\n  File "/root/verl/verl/trainer/x.py", line 2, in fit\n    {}\n'
    log += "KeyError: 1\n"
    (tmp_path / "same.log").write_text(log.format("return batch.meta['timing']"))
    (tmp_path / "other.log").write_text(log.format("return batch.meta_info['timing']"))
    said = pack(tmp_path / "same.log").text
    assert ">    2     return batch.meta['timing']" in said
    assert "verl 0.9.1 as installed here" in said
    assert "as installed here" not in pack(tmp_path / "other.log").text
