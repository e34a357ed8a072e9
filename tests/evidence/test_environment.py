"""Environments: what a package's version is, whether it is within a specifier, and what lies over what."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.environment.reading import read_environment
from gonogo.evidence.environment.this_machine import inspect_this_machine
from gonogo.evidence.source_file import SourceFile


def environment_of(text: str, path: str = "requirements.txt") -> Environment:
    return read_environment(SourceFile(path, text.encode()))


def changed(environment: Environment, name: str, specifier: str) -> str:
    edit = environment.replacing_version(name, specifier)
    assert edit is not None
    place = environment.place(name)
    assert place is not None
    data = place.source.data
    assert data[edit.start : edit.end] == edit.before
    return (data[: edit.start] + edit.after + data[edit.end :]).decode()


REQUIREMENTS = """# what we train with
--extra-index-url https://download.pytorch.org/whl/cu118
torch==2.1.0
deepspeed>=0.14,<0.15 ; python_version >= "3.8"   # offload
flash_attn [cuda] >= 2.0
accelerate
old==1.0; python_version < "3.8"
transformers @ git+https://github.com/huggingface/transformers@v4.41.0
-e git+https://github.com/huggingface/peft.git@main#egg=peft
git+https://github.com/huggingface/trl.git
https://example.org/bitsandbytes-0.43.1-py3-none-manylinux_2_24_x86_64.whl
numpy==1.26.4 \\
    --hash=sha256:aaaa
not a requirement at all
"""


def test_requirements() -> None:
    environment = environment_of(REQUIREMENTS)
    assert environment.version("Torch") == Version("2.1.0")
    assert environment.cuda.value == "11.8"
    assert environment.version("deepspeed") is None
    assert environment.field("deepspeed").unknown
    assert environment.within("deepspeed", "<0.16") is True
    assert environment.within("deepspeed", ">=0.14.2") is None
    assert environment.within("deepspeed", "<0.14") is False
    assert environment.within("flash-attn", ">=1") is True
    assert environment.within("accelerate", ">=0") is None
    assert environment.has("accelerate") is True
    assert "old" not in environment.packages
    assert environment.version("transformers") == Version("4.41.0")
    assert environment.version("peft") is None
    assert environment.has("peft") is True
    assert environment.has("trl") is True
    assert environment.version("bitsandbytes") == Version("0.43.1")
    assert environment.within("nothing", ">=1") is None
    assert not environment.is_known_absent("nothing")
    place = environment.place("deepspeed")
    assert place is not None
    assert (place.line, place.text) == (4, "deepspeed>=0.14,<0.15")
    with pytest.raises(ValueError, match="no specifier"):
        environment.within("torch", "nonsense")


def test_versions_are_replaced_where_they_stand() -> None:
    environment = environment_of(REQUIREMENTS)
    after = changed(environment, "deepspeed", "==0.14.4")
    assert 'deepspeed==0.14.4 ; python_version >= "3.8"   # offload\n' in after
    assert "flash_attn [cuda] >=2.5\n" in changed(environment, "flash-attn", ">=2.5")
    assert "\naccelerate>=1\n" in changed(environment, "accelerate", ">=1")
    assert environment.replacing_version("numpy", "==2.0") is None, "its hash would be another"
    assert environment.replacing_version("peft", "==0.11") is None
    assert environment.replacing_version("nothing", "==1") is None


def test_what_is_included(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.txt").write_text("torch==2.3.0\n-r requirements.txt\n")
    (tmp_path / "pins.txt").write_text("deepspeed==0.14.2\npeft==0.11\n")
    (tmp_path / "requirements.txt").write_text("-r base.txt\n-c pins.txt\ndeepspeed\n-r /etc/passwd\n-r missing.txt\n")
    environment = read_environment(SourceFile.read(tmp_path / "requirements.txt"))
    assert environment.version("torch") == Version("2.3.0")
    assert environment.version("deepspeed") == Version("0.14.2")
    assert environment.has("peft") is None, "a constraint installs nothing"
    edit = environment.replacing_version("deepspeed", "==0.14.4")
    assert edit is not None
    assert edit.path.endswith("pins.txt")
    assert environment.packages.keys() == {"torch", "deepspeed"}


def test_a_freeze_is_all_there_is() -> None:
    lines = [f"package{n:02}=={n}.0" for n in range(25)]
    environment = environment_of("\n".join(lines))
    assert environment.complete
    assert environment.is_known_absent("torch")
    assert environment.field("torch").absent
    assert not environment_of("\n".join(reversed(lines))).complete
    assert not environment_of("\n".join([*lines, "zlib>=1"])).complete


def test_json_of_versions() -> None:
    environment = environment_of('{"torch": "2.1.0+cu118",\n "deepspeed": "0.14.2", "x": null, "y": ">=1"}', "v.json")
    assert environment.version("deepspeed") == Version("0.14.2")
    assert environment.cuda.value == "11.8"
    assert '"deepspeed": "0.14.4"' in changed(environment, "deepspeed", "==0.14.4")
    assert environment.replacing_version("deepspeed", ">=0.14.4") is None
    assert environment.within("y", ">=0.5") is True
    assert not environment.complete
    listed = environment_of('[{"name": "torch", "version": "2.1.0"}]', "list.json")
    assert listed.version("torch") == Version("2.1.0")
    assert listed.is_known_absent("deepspeed")


def test_one_lies_over_the_other() -> None:
    low = environment_of('[{"name": "torch", "version": "2.1.0+cu118"}, {"name": "peft", "version": "0.1"}]', "l.json")
    high = environment_of("torch==2.3.0+cu121")
    both = high.merged_over(low)
    assert both.version("torch") == Version("2.3.0+cu121")
    assert both.cuda.value == "12.1"
    assert both.has("peft") is True
    assert not both.complete
    assert low.merged_over(high).packages.keys() == {"torch", "peft"}
    assert low.merged_over(high).complete
    assert Environment.unknown().merged_over(low) == low


def test_this_interpreter() -> None:
    environment = inspect_this_machine()
    assert environment.complete
    assert environment.version("packaging") is not None
    assert environment.python.known
    assert environment.is_known_absent("no-such-package")
