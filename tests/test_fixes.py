"""Fixes carried out: whole or not at all, once, and nowhere but in the files they were made for."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gonogo.check.fixes import apply_edits_to, apply_plan, diff_of_plan, plan_fixes, unified_diff, with_diffs
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Applicability, Certainty, Edit, Finding, Fix, Severity, Text, UserError

SAFE, UNSAFE, MANUAL = Applicability.SAFE, Applicability.UNSAFE, Applicability.MANUAL


def edit(path: str, old: str, new: str) -> Edit:
    data = Path(path).read_bytes()
    start = data.index(old.encode())
    return Edit(path, start, start + len(old.encode()), old.encode(), new.encode())


def finding(*edits: Edit, applicability: Applicability = SAFE, hazard: str = "one") -> Finding:
    text = Text("t", "题")
    fix = Fix(text, applicability, edits=edits)
    return Finding(hazard, Certainty.CERTAIN, Severity.ERROR, text, text, fixes=(fix,))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_bytes(b'{"a": 1,\r\n "b": "\xe4\xbd\xa0"}')
    return tmp_path


def test_several_edits_of_one_file(here: Path) -> None:
    plan = plan_fixes([finding(edit("a.json", "1", "2")), finding(edit("a.json", "你", "他"))], unsafe=False)
    assert apply_plan(plan, [here]) == (("a.json",), ())
    assert Path("a.json").read_bytes() == '{"a": 2,\r\n "b": "他"}'.encode()


def test_unsafe_fixes_only_when_asked_for_and_manual_ones_never() -> None:
    for applicability, unsafe, count in ((SAFE, False, 1), (UNSAFE, False, 0), (UNSAFE, True, 1), (MANUAL, True, 0)):
        plan = plan_fixes([finding(edit("a.json", "1", "2"), applicability=applicability)], unsafe=unsafe)
        assert len(plan.fixes) == count


def test_of_two_fixes_for_one_place_the_first_is_carried_out_and_the_other_told(here: Path) -> None:
    first, second = finding(edit("a.json", "1", "2")), finding(edit("a.json", '1,\r\n "b"', "x"), hazard="two")
    plan = plan_fixes([first, second], unsafe=False)
    assert [one.hazard for one in plan.not_applied] == ["two"]
    apply_plan(plan, [here])
    assert b'"a": 2,' in Path("a.json").read_bytes()


def test_two_insertions_at_one_place_are_a_conflict() -> None:
    one, other = (Edit("a.json", 1, 1, b"", text) for text in (b"x", b"y"))
    assert len(plan_fixes([finding(one), finding(other)], unsafe=False).not_applied) == 1
    assert not plan_fixes([finding(one), finding(one)], unsafe=False).not_applied


def test_a_fix_of_two_files_is_whole_or_not_at_all(here: Path) -> None:
    Path("b.txt").write_text("deepspeed==0.14.2\n")
    plan = plan_fixes([finding(edit("a.json", "1", "2"), edit("b.txt", "0.14.2", "0.14.4"))], unsafe=False)
    Path("b.txt").write_text("deepspeed==0.15.0\n")
    with pytest.raises(UserError, match=r"b\.txt changed"):
        apply_plan(plan, [here])
    assert b'"a": 1' in Path("a.json").read_bytes()


def test_a_read_only_file_is_left_unless_that_is_allowed(here: Path) -> None:
    Path("b.txt").write_text("deepspeed==0.14.2\n")
    os.chmod("a.json", 0o444)
    both = finding(edit("a.json", "1", "2"), edit("b.txt", "0.14.2", "0.14.4"))
    alone = finding(edit("b.txt", "deepspeed", "DeepSpeed"), hazard="two")
    plan = plan_fixes([both, alone], unsafe=False)
    written, refused = apply_plan(plan, [here])
    assert written == ("b.txt",)
    assert [(one.hazard, one.path) for one in refused] == [("one", "a.json")]
    assert "the file is read-only: run chmod u+w a.json" in refused[0].why.en
    assert b'"a": 1' in Path("a.json").read_bytes()
    assert Path("b.txt").read_text() == "DeepSpeed==0.14.2\n"  # and nothing of the fix that was refused

    asked: list[str] = []
    plan = plan_fixes([finding(edit("a.json", "1", "2"))], unsafe=False)
    assert apply_plan(plan, [here], lambda path: not asked.append(path)) == (("a.json",), ())  # type: ignore[func-returns-value]
    assert asked == ["a.json"]
    assert b'"a": 2' in Path("a.json").read_bytes()
    assert stat.S_IMODE(os.stat("a.json").st_mode) == 0o444


CONFIG = b'{"zero_optimization": {"stage": 2}, "train_batch_size": 8,}'


def test_without_a_terminal_a_read_only_file_is_one_line(here: Path) -> None:
    Path("ds.json").write_bytes(CONFIG)
    os.chmod("ds.json", 0o444)
    done = subprocess.run(
        [sys.executable, "-m", "gonogo", "check", "--fix", "ds.json"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert Path("ds.json").read_bytes() == CONFIG
    assert [line for line in done.stderr.splitlines() if "read-only" in line] == done.stderr.splitlines()
    assert len(done.stderr.splitlines()) == 1
    assert "ds.json" in done.stderr


@pytest.mark.parametrize(("answer", "changed"), [(b"y\n", True), (b"\n", False), (b"n\n", False)])
def test_on_a_terminal_it_is_asked(here: Path, answer: bytes, changed: bool) -> None:
    Path("ds.json").write_bytes(CONFIG)
    os.chmod("ds.json", 0o444)
    terminal, side = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "gonogo", "check", "--fix", "ds.json"], stdin=side, stderr=side, stdout=subprocess.PIPE
    )
    os.close(side)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(terminal, 4096)
    assert Path("ds.json").read_bytes() == CONFIG
    assert b"ds.json is read-only" in said
    os.write(terminal, answer)
    child.communicate(timeout=120)
    os.close(terminal)
    assert (Path("ds.json").read_bytes() != CONFIG) is changed


def test_a_diff_of_a_part_is_the_files(here: Path) -> None:
    old = b"".join(b"line %d\n" % number for number in range(500))
    for new in (
        old.replace(b"line 250\n", b"other\n"),
        b"first\n" + old,
        old + b"last",
        old[:-9],
        old[9:],
        b"",
        old * 2,
    ):
        Path("file").write_bytes(old)
        Path("diff").write_text(unified_diff("file", old, new))
        if new != old:
            subprocess.run(["patch", "-p1", "-s", "-i", "diff"], check=True)
        assert (Path("file").read_bytes() if Path("file").exists() else b"") == new


def test_diffs_of_long_lines_are_left_to_diff(here: Path) -> None:
    long = b"x = 1; " * 20_000
    Path("t.py").write_bytes(long)
    shown = with_diffs([finding(Edit("t.py", 0, 1, b"x", b"y"))], {"t.py": long})
    assert shown[0].fixes[0].diff == ""
    assert shown[0].fixes[0].edits


def test_a_fix_that_rewrites_hundreds_of_lines_is_not_offered(here: Path) -> None:
    old = b"    loss = loss + 0.0 * term\n" * 1000
    data = old + b"step()\n"
    fixes = (*finding(Edit("t.py", 0, len(old), old, b"")).fixes, *finding(Edit("t.py", 0, 29, old[:29], b"")).fixes)
    (shown,) = with_diffs([msgspec.structs.replace(finding(), fixes=fixes)], {"t.py": data})
    assert [len(fix.edits[0].before) for fix in shown.fixes] == [29]


def test_the_mode_stays_and_a_link_within_the_tree_stays_a_link(here: Path) -> None:
    Path("real").mkdir()
    Path("real/run.sh").write_text("export A=1\n")
    os.chmod("real/run.sh", 0o751)
    Path("run.sh").symlink_to("real/run.sh")
    assert apply_plan(plan_fixes([finding(edit("run.sh", "1", "2"))], unsafe=False), [here]) == (("run.sh",), ())
    assert Path("run.sh").is_symlink()
    assert Path("real/run.sh").read_text() == "export A=2\n"
    assert stat.S_IMODE(Path("real/run.sh").stat().st_mode) == 0o751


def test_a_link_out_of_the_tree_is_not_followed(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "config.json"
    outside.write_text('{"a": 1}')
    Path("link.json").symlink_to(outside)
    written, refused = apply_plan(plan_fixes([finding(edit("link.json", "1", "2"))], unsafe=False), [here])
    assert written == ()
    assert str(outside) in refused[0].why.en
    assert outside.read_text() == '{"a": 1}'


def test_a_folder_that_cannot_be_written_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_values: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    plan = plan_fixes([finding(edit("a.json", "1", "2"))], unsafe=False)
    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(UserError, match=r"can't write a\.json: No space left on device"):
        apply_plan(plan, [here])
    assert b'"a": 1' in Path("a.json").read_bytes()


def test_the_diff_is_one_that_patch_takes(here: Path) -> None:
    Path("no_end.txt").write_text("one\ntwo\nthree")
    before = {name: Path(name).read_bytes() for name in ("a.json", "no_end.txt")}
    plan = plan_fixes([finding(edit("a.json", "1", "2")), finding(edit("no_end.txt", "three", "four"))], unsafe=False)
    diff = diff_of_plan(plan)
    subprocess.run(["git", "apply", "--check", "-"], input=diff.encode(), check=True, cwd=here)
    subprocess.run(["git", "apply", "-"], input=diff.encode(), check=True, cwd=here)
    for name, edits in plan.edits.items():
        assert Path(name).read_bytes() == apply_edits_to(before[name], edits)


def test_each_fix_shows_its_own_diff() -> None:
    source = SourceFile.read("a.json")
    (shown,) = with_diffs([finding(edit("a.json", "1", "2"))], {"a.json": source.data})
    assert '-{"a": 1,' in shown.fixes[0].diff
    assert '+{"a": 2,' in shown.fixes[0].diff
