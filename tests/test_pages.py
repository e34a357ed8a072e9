"""The pages of hazards: what is wrong in one is a line that says so, and a new one counts at the next call."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from gonogo.cli.explain import find_hazard
from gonogo.finding import UserError
from gonogo.hazards import pack
from gonogo.hazards.build_cache import toml_values
from gonogo.hazards.index import all_hazards
from gonogo.hazards.loader import load_hazard
from gonogo.hazards.log_rule import LoggedHazard
from gonogo.hazards.page import HazardPage, read_page
from gonogo.judge.similar.index import ThreadIndex

ROOT = Path(__file__).parent.parent
PAGE = """\
+++
title.en = "The frobnicator stops"
title.zh = "frobnicator 停止"
log_words = ["frobnicator stopped"]

[[signs]]
says = ['frobnicator stopped at (?P<step>\\d+)', "@stops"]
certainty = "certain"
frames = [["@folders", "frob/"]]

[shared]
stops = 'frobnicator will not go on'
folders = ["one/", "two/"]
+++

# English

The frobnicator stops.

## What happens
It stops.

## Why
It is `worn` out,
and old.

## Example
```python
frobnicate()  # wrong
```

## Cure
- Replace `frob` by
  another
- Or wait

## When it is safe
Never.

## Sources
- https://example.com/frob: a thread

# 中文

frobnicator 停止。

## 现象
它停止。

## 原因
它已经磨损，
而且旧了。

## 解决办法
- 换掉 `frob`，
  用另一个
- 或等待

## 何时安全
从不。

## 来源
- 一个讨论
"""
SIGNS = PAGE[PAGE.index("[[signs]]") : PAGE.index("+++\n\n# English")]


def read(text: str = PAGE, *, has_code: bool = False) -> HazardPage:
    return read_page(text, "frobnicator-stops", "loop", has_code=has_code)


def check(text: str) -> None:
    page = read(text)
    page.check_head(load_hazard(page).declares)


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        check(text)
    assert "\n" not in str(caught.value)
    assert caught.value.text.zh != caught.value.text.en
    return str(caught.value)


def test_what_a_page_declares_is_the_hazard() -> None:
    hazard = load_hazard(read())
    assert isinstance(hazard, LoggedHazard)
    assert (hazard.name, hazard.theme, hazard.sources) == ("frobnicator-stops", "loop", ("https://example.com/frob",))
    (sign,) = hazard.signs
    assert sign.says is not None
    assert sign.says.text == r"frobnicator stopped at (?P<step>\d+)|frobnicator will not go on"
    assert sign.frames == (("one/", "two/", "frob/"),)


def test_cause_and_cures_are_the_pages_own_where_its_head_has_none() -> None:
    hazard = load_hazard(read())
    assert isinstance(hazard, LoggedHazard)
    assert hazard.cause.en == "The frobnicator stops. It is `worn` out, and old."
    assert hazard.cause.zh == "frobnicator 停止。它已经磨损，而且旧了。"
    assert [cure.en for cure in hazard.cures] == ["Replace frob by another", "Or wait"]
    assert [cure.zh for cure in hazard.cures] == ["换掉 frob，用另一个", "或等待"]
    own = PAGE.replace("[[signs]]", 'cause.en = "By {step}"\ncause.zh = "到 {step}"\n\n[[signs]]', 1)
    hazard = load_hazard(read(own))
    assert isinstance(hazard, LoggedHazard)
    assert hazard.cause.en == "By {step}"


def test_the_chinese_page_has_the_example_and_the_addresses_of_the_english_one() -> None:
    page = read()
    assert "## 示例\n```python\nfrobnicate()  # wrong\n```\n\n## 解决办法\n" in page.text("zh")
    assert page.text("zh").endswith("## 来源\n- https://example.com/frob：一个讨论")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("log_words", "log_word", "log_word: a page has no such key here; the known keys are title, fallback,"),
        (
            'certainty = "certain"',
            'certanty = "certain"',
            "signs[0].certanty: a page has no such key here; the known keys are says,",
        ),
        ('title.zh = "frobnicator 停止"\n', "", "title.zh: this key is missing"),
        ('"frobnicator 停止"', '" "', "title.zh: this text is empty"),
        ('title.en = "The frobnicator stops"\ntitle.zh = "frobnicator 停止"\n', "", "title: this key is missing"),
        ('"certain"', '"sure"', "signs[0].certainty: Invalid enum value 'sure'"),
        ("(?P<step>\\d+)", "(?P<step>\\d+", "signs[0].says: RE2 takes no such pattern"),
        ("(?P<step>\\d+)", "(?=\\d+)", "signs[0].says: RE2 takes no such pattern"),
        ("['frobnicator stopped", "[7, 'frobnicator stopped", "signs[0].says: Expected a pattern"),
        ("@stops", "@halts", "signs.says: @halts is not in [shared]"),
        ('["frobnicator stopped"]', "frobnicator", "+++: not valid TOML: "),
        (SIGNS, "", "+++: it declares nothing to look for"),
        ("# 中文\n", "", "+++: a page is a head between two +++ lines"),
        ("+++\n\n# English", "\n\n# English", "+++: a page is a head between two +++ lines"),
        (
            "## 原因\n",
            "",
            "# 中文: the sections of this part must be ## 现象, ## 原因, ## 解决办法, ## 何时安全, ## 来源",
        ),
        ("## Why\n", "", "# English: the sections of this part must be ## What happens, ## Why,"),
        ("frobnicator 停止。\n\n##", "\n##", "# 中文: this part must begin with a line"),
        ("- 一个讨论\n", "- 一个讨论\n- 又一个\n", "## Sources: the English part lists 1 sources"),
        ("- https://example.com/frob: a thread", "- somewhere", "## Sources: the English part lists 0 sources"),
        ("- 或等待\n", "", "## Cure: 2 items in English, 1 in Chinese"),
        ("- Or wait", "- Or set {}", "## Cure: this section has a brace"),
        ("而且旧了", "而且{旧}了", "## Why: this section has a brace"),
    ],
)
def test_a_bad_page_is_one_line_that_names_file_key_and_way_out(old: str, new: str, said: str) -> None:
    assert old in PAGE
    assert refused(PAGE.replace(old, new, 1)).startswith(f"hazards/loop/frobnicator_stops.md: {said}")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ('keys = ["a"]', "wrong: this key is missing"),
        (
            'keys = ["a"]\nwrong = { abov = 1 }',
            "wrong.abov: a page has no such key here; the known keys are above, below,",
        ),
        ('keys = ["a"]\nwrong = true\nstages = [4]', "stages[0]: Invalid enum value 4"),
        ('keys = ["a"]\nwrong = true\nchange.to = 1', "change.title: this key is missing"),
        ('versions = [["numpy", ">=2"]]', "install: this key is missing"),
        ('package = "torch"', "effect: this key is missing"),
        ('packages = ["triton"]\neffect.en = "it fails"', "effect.zh: this key is missing"),
        ('refusal.says = "no"\nsigns = 1', "signs: Expected `array`, got `int`"),
    ],
)
def test_each_kind_of_page_is_checked(declared: str, said: str) -> None:
    text = PAGE.replace(SIGNS, f"{declared}\n").replace('log_words = ["frobnicator stopped"]\n', "")
    assert refused(text).startswith(f"hazards/loop/frobnicator_stops.md: {said}")


def test_all_pages_are_as_they_should_be() -> None:
    """Every pattern compiles, every text has both languages, and code stands under its page's name."""
    assert pack.build_pack().rows.keys() == {hazard.name for hazard in all_hazards()}


def test_where_a_class_has_its_own_what_its_page_says_is_not_taken() -> None:
    (hazard,) = (one for one in all_hazards() if one.name == "ds-optimizer-unknown")
    assert "{value}" in hazard.cause.en  # type: ignore[attr-defined]


class Checkout:
    """A copy of gonogo's source, as a clone has it, with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "clone"
        shutil.copytree(ROOT / "src" / "gonogo", self.root / "src" / "gonogo")
        (self.root / "tests" / "hazards").mkdir(parents=True)
        self.cache = folder / "cache"
        self.log = folder / "run.log"
        self.log.write_text("Traceback (most recent call last):\n  File \"frob/a.py\", line 1, in f\n"
                            "RuntimeError: frobnicator stopped at 7\n")  # fmt: skip

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "XDG_CACHE_HOME": str(self.cache)}
        command = [sys.executable, "-m", "gonogo", *arguments, "--lang", "en"]
        return subprocess.run(
            command, env=environment, cwd=self.log.parent, capture_output=True, text=True, timeout=300, check=False
        )

    def add(self, name: str = "frobnicator_stops.md", text: str = PAGE) -> Path:
        path = self.root / "src" / "gonogo" / "hazards" / "loop" / name
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_hazard_is_found_by_the_name_that_it_had() -> None:
    formerly = Counter(name for hazard in all_hazards() for name in (hazard.name, *hazard.formerly))
    assert [name for name, count in formerly.items() if count > 1] == []
    assert find_hazard("ranks-part-at-collective").name == "ranks-part-at-collective"


@pytest.mark.slow
def test_a_new_page_counts_at_the_next_call_and_a_removed_one_no_more(checkout: Checkout) -> None:
    assert "frobnicator-stops" not in checkout.run("diagnose", "run.log").stdout
    path = checkout.add()
    assert "error[frobnicator-stops]" in checkout.run("diagnose", "run.log").stdout
    path.write_text(PAGE.replace("frobnicator stopped at", "frobnicator paused at"), encoding="utf-8")
    assert "frobnicator-stops" not in checkout.run("diagnose", "run.log").stdout
    path.unlink()
    assert "no hazard with this name" in checkout.run("explain", "frobnicator-stops").stderr


@pytest.mark.slow
def test_a_new_page_with_code_counts_at_the_next_call(checkout: Checkout) -> None:
    assert checkout.run("hazards", "--new", "loop-frob", "--code").returncode == 0
    code = checkout.root / "src" / "gonogo" / "hazards" / "loop" / "loop_frob.py"
    code.write_text(
        code.read_text(encoding="utf-8").replace("TODO.function", "torch.set_num_threads"), encoding="utf-8"
    )
    (checkout.log.parent / "train.py").write_text("import torch\ntorch.set_num_threads(4)\n")
    assert "loop-frob" in checkout.run("check", "train.py").stdout


@pytest.mark.slow
def test_a_bad_page_stops_a_call_with_one_line(checkout: Checkout) -> None:
    checkout.add(text=PAGE.replace("certainty", "certanty"))
    done = checkout.run("check", ".")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "gonogo: hazards/loop/frobnicator_stops.md: signs[0].certanty: a page has no such key"
    )
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("Frob-Stops.md", PAGE, "name the page like zero3_moe_hang.md"),
        ("zero3_moe_hang.md", PAGE, "has the same name"),
        ("frob_stops.py", "", "there is no page frob_stops.md next to it"),
    ],
)
def test_a_file_that_is_no_hazards_is_one_line(checkout: Checkout, name: str, text: str, said: str) -> None:
    checkout.add(name, text)
    done = checkout.run("hazards")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


def test_code_without_a_class_of_the_pages_name_is_one_line(checkout: Checkout) -> None:
    checkout.add()
    checkout.add("frobnicator_stops.py", "class Other: ...\n")
    assert "it has no class FrobnicatorStops(Hazard)" in checkout.run("hazards").stderr


def test_where_nothing_can_be_kept_all_works_the_same(checkout: Checkout) -> None:
    checkout.add()
    checkout.cache.write_text("no folder")
    assert "error[frobnicator-stops]" in checkout.run("diagnose", "run.log").stdout


@pytest.mark.slow
def test_a_kept_file_that_is_broken_is_made_anew(checkout: Checkout) -> None:
    checkout.run("hazards")
    (kept,) = checkout.cache.rglob("*.msgpack")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    assert checkout.run("explain", "zero3-moe-hang").returncode == 0
    assert kept.read_bytes() == whole


@pytest.mark.slow
def test_processes_that_start_together_find_the_same(checkout: Checkout) -> None:
    checkout.add()
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: checkout.run("diagnose", "run.log"), range(4)))
    assert all("error[frobnicator-stops]" in one.stdout for one in done)
    kept = sorted(path.name.partition(".")[2] for path in checkout.cache.rglob("*") if path.is_file())
    assert kept == ["pages.msgpack", "rules.msgpack"]  # nothing is left half made


class TestNew:
    @pytest.mark.slow
    def test_a_page_and_a_failing_case_are_laid_out(self, checkout: Checkout) -> None:
        done = checkout.run("hazards", "--new", "zero3-frob")
        assert done.returncode == 0, done.stderr
        made = [line.removeprefix("created ") for line in done.stdout.splitlines() if line.startswith("created ")]
        assert made == [
            "src/gonogo/hazards/zero3/zero3_frob.md",
            "tests/hazards/zero3-frob/bad.log",
            "tests/hazards/zero3-frob/good.log",
        ]
        assert all((checkout.root / path).is_file() for path in made)
        assert "TODO" in checkout.run("explain", "zero3-frob").stdout
        found = checkout.run("diagnose", str(checkout.root / made[1])).stdout
        assert "zero3-frob" not in found.replace(made[1], "")

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("zero3-moe-hang",), "already exists (hazards/zero3/zero3_moe_hang.md)"),
            (("Zero3_Frob",), "a hazard's name is words in lower case with hyphens"),
            (("../frob",), "a hazard's name is words in lower case with hyphens"),
            (("frob",), "--theme NAME: must be one of autograd,"),
            (("frob", "--theme", "froth"), "--theme froth: must be one of autograd,"),
            (("",), "a hazard's name is words in lower case with hyphens"),
        ],
    )
    def test_a_name_or_theme_that_will_not_do_is_one_line(
        self, checkout: Checkout, arguments: tuple[str, ...], said: str
    ) -> None:
        done = checkout.run("hazards", "--new", *arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert said in done.stderr

    def test_what_is_there_is_not_written_over(self, checkout: Checkout) -> None:
        case = checkout.root / "tests" / "hazards" / "zero3-frob" / "bad.log"
        case.parent.mkdir()
        case.write_text("mine")
        done = checkout.run("hazards", "--new", "zero3-frob")
        assert (done.returncode, case.read_text()) == (2, "mine")
        assert not list(checkout.root.rglob("zero3_frob.md"))

    def test_an_installed_gonogo_has_no_place_for_it(self, checkout: Checkout) -> None:
        hazards = checkout.root / "src" / "gonogo" / "hazards"
        (hazards / "pages.msgpack").write_bytes(msgspec.msgpack.encode(pack.build_pack()))
        for page in hazards.rglob("*.md"):
            page.unlink()
        done = checkout.run("hazards", "--new", "zero3-frob")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "is an installed gonogo" in done.stderr
        assert checkout.run("explain", "zero3-moe-hang").returncode == 0  # read from the one file
        assert not checkout.cache.exists()


def test_a_wheel_has_what_a_checkout_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The build hook, with the one class of hatchling's that it needs."""
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = type("BuildHookInterface", (), {"root": str(ROOT)})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    monkeypatch.syspath_prepend(str(ROOT / "src"))
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["BuiltFiles"]()
    data: dict[str, dict[str, str]] = {"force_include": {}}
    hook.initialize("editable", data)
    assert data == {"force_include": {}}
    hook.initialize("standard", data)
    files = {target: Path(source) for source, target in data["force_include"].items()}
    tables = {"gonogo/diagnose/explanations/rules.msgpack", "gonogo/diagnose/explanations/topics.msgpack"}
    assert files.keys() == {"gonogo/hazards/pages.msgpack", "gonogo/judge/similar/cases.msgpack", *tables}
    for table in tables:
        assert files[table].read_bytes() == toml_values((ROOT / "src" / table).with_suffix(".toml"))
    packed = msgspec.msgpack.decode(files["gonogo/hazards/pages.msgpack"].read_bytes(), type=pack.HazardPack)
    assert packed.rows.keys() == {hazard.name for hazard in all_hazards()}
    assert ThreadIndex(files["gonogo/judge/similar/cases.msgpack"].read_bytes()).threads
    hook.finalize("standard", data, "")
    assert not any(path.exists() for path in files.values())
