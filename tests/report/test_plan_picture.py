"""The memory picture of a plan: its bars are as long as what they stand for, in an SVG and in a PNG."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import asdict, replace

from gonogo.finding import Text, UserError
from gonogo.finding.trials.planned import Model, Plan, SolutionSummary, StrategySummary, StrategyTooLarge
from gonogo.report import drawing
from gonogo.report.trials import plan_picture
from gonogo.report.trials.plan_picture import COLOURS, MAX_FITTING, check_picture, draw_plan, write_picture

GIB = 1 << 30
NOTHING = Text("", "")
SVG = "{http://www.w3.org/2000/svg}"


def choice(name: str, reserved: float, *, band: float = 0.03, **categories: float) -> StrategyTooLarge:
    """A strategy with what makes it either kind: what fits has no use for the rest."""
    by_category = {part: round(gib * GIB) for part, gib in categories.items()}
    return StrategyTooLarge(
        strategy=name, zero_stage=2, offload_optimizer="none", offload_parameters="none", small_buckets=False,
        gradient_checkpointing=True, micro_batch=2, gradient_accumulation=4, source="rehearsed",
        allocated_bytes=sum(by_category.values()), reserved_bytes=round(reserved * GIB), band=band,
        host_bytes_of_node=0, nvme_bytes_of_node=0, by_category=by_category, seconds_of_step=1.0,
        tokens_per_second_per_gpu=3412.3, limit="compute", limit_said=NOTHING, why=(), shortfall=NOTHING, would_fit=(),
    )  # fmt: skip


def plan(fitting: Sequence[StrategySummary], too_large: Sequence[StrategyTooLarge], solve: str = "") -> Plan:
    return Plan(
        model=Model("qwen", "Qwen2ForCausalLM", 7_600_000_000, 7_600_000_000, 28), accelerator="A100-80G", gpus=8,
        nodes=1, capacity_bytes=80 * GIB, host_memory_bytes=None, seq_len=4096, tune="full", global_batch=64,
        solve=solve, fitting=tuple(fitting), too_large=tuple(too_large), seconds=1.0,
    )  # fmt: skip


def bars(svg: str) -> dict[float, list[tuple[str, float]]]:
    """By the height that it stands at: each bar's parts, as colour and width."""
    found: dict[float, list[tuple[str, float]]] = {}
    for box in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        if box.get("height") == "24.0" and box.get("fill") in COLOURS.values():
            found.setdefault(float(box.get("y", 0)), []).append((box.get("fill", ""), float(box.get("width", 0))))
    return found


FITS = choice("ZeRO-2", 50, parameters=20, optimizer=10, activations=10)


def test_bar_is_divided_as_the_memory_is() -> None:
    (bar,) = bars(drawing.as_svg(draw_plan(plan([FITS], []), "en"))).values()
    whole = sum(width for _, width in bar)
    shares = {colour: width / whole for colour, width in bar}
    assert shares == pytest.approx(
        {COLOURS["parameters"]: 20 / 80, COLOURS["optimizer"]: 10 / 80, COLOURS["activations"]: 10 / 80,
         COLOURS["reserve"]: 10 / 80, COLOURS["free"]: 30 / 80}, abs=0.002,
    )  # fmt: skip


def test_what_does_not_fit_reaches_beyond_the_line() -> None:
    too_large = choice("ZeRO-0", 100, parameters=60, optimizer=40)
    svg = drawing.as_svg(draw_plan(plan([FITS], [too_large]), "en"))
    fitting, beyond = bars(svg).values()
    assert sum(width for _, width in beyond) / sum(width for _, width in fitting) == pytest.approx(100 / 80, abs=0.01)
    lines = [line for line in ElementTree.fromstring(svg).iter(f"{SVG}line") if line.get("stroke-dasharray")]
    end = float(lines[0].get("x1", 0))
    assert end == pytest.approx(24 + sum(width for _, width in fitting), abs=0.5)
    assert "does not fit" in svg
    assert "100.0 GiB" in svg


def test_endless_bar_stays_on_the_picture() -> None:
    drawn = draw_plan(plan([], [choice("ZeRO-0", 4000, parameters=4000)]), "en")
    for box in drawn.shapes:
        if isinstance(box, drawing.Box):
            assert box.x + box.width <= drawn.width


def test_what_lacks_host_memory_is_no_bar() -> None:
    assert not bars(drawing.as_svg(draw_plan(plan([], [choice("ZeRO-3, optimizer on CPU", 20, parameters=20)]), "en")))


def test_what_was_solved_for_is_told() -> None:
    fits = {name: value for name, value in asdict(FITS).items() if name in StrategySummary.__struct_fields__}
    solved = plan([SolutionSummary(**fits, solved=12288, at_limit=False, gpus=8, nodes=1)], [], "seq-len")
    assert "12,288" in drawing.as_svg(draw_plan(solved, "en"))


def test_no_more_bars_than_can_be_read() -> None:
    assert len(bars(drawing.as_svg(draw_plan(plan([FITS] * 30, []), "en")))) == MAX_FITTING


def test_names_are_no_markup() -> None:
    hostile = plan([replace(FITS, strategy="<script>alert(1)</script>&\x1b[31m")], [])
    hostile = replace(hostile, model=replace(hostile.model, model_class='"/><image href="x">'))
    svg = drawing.as_svg(draw_plan(hostile, "en"))
    names = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
    assert names == {"svg", "title", "rect", "text", "line"}
    assert "\x1b" not in svg


@pytest.mark.parametrize(("language", "said"), [("en", "reserved, unused"), ("zh", "已保留未使用")])
def test_svg_speaks_both_languages(language: str, said: str, tmp_path: Path) -> None:
    write_picture(plan([FITS], []), tmp_path / "picture.svg", language)
    assert said in (tmp_path / "picture.svg").read_text(encoding="utf-8")


def test_png_shows_what_the_svg_shows(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    assert write_picture(plan([FITS], []), tmp_path / "picture.png", "en") is None
    drawn = draw_plan(plan([FITS], []), "en")
    shown = image.open(io.BytesIO((tmp_path / "picture.png").read_bytes()))
    assert shown.size == (drawn.width * 2, drawn.height * 2)
    for box in drawn.shapes:
        if isinstance(box, drawing.Box):
            middle = (round((box.x + box.width / 2) * 2), round((box.y + box.height / 2) * 2))
            assert "#{:02x}{:02x}{:02x}".format(*shown.getpixel(middle)) == box.fill


def test_png_without_a_chinese_font_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setattr(plan_picture, "chinese_font", lambda: None)
    told = write_picture(plan([FITS], []), tmp_path / "picture.png", "zh")
    assert told is not None
    assert "没有中文字体" in told.zh
    write_picture(plan([FITS], []), tmp_path / "english.png", "en")
    assert (tmp_path / "picture.png").read_bytes() == (tmp_path / "english.png").read_bytes()
    assert write_picture(plan([FITS], []), tmp_path / "picture.svg", "zh") is None


def test_known_chinese_font_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_FONT_FOLDERS", (str(tmp_path),))
    drawing.chinese_font.cache_clear()
    assert drawing.chinese_font() is None
    (tmp_path / "opentype").mkdir()
    (tmp_path / "opentype" / "NotoSansCJK-Regular.ttc").touch()
    drawing.chinese_font.cache_clear()
    assert drawing.chinese_font() == tmp_path / "opentype" / "NotoSansCJK-Regular.ttc"
    drawing.chinese_font.cache_clear()


def test_other_suffix_is_refused() -> None:
    with pytest.raises(UserError, match=r"--picture memory.jpg: give a file name that ends in .svg or .png"):
        check_picture(Path("memory.jpg"))


def test_missing_folder_is_told_first(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        check_picture(tmp_path / "none" / "memory.svg")


def test_without_pillow_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r"pip install -e \S+\[picture\]'?; or give an .svg file"):
        check_picture(tmp_path / "memory.png")
    check_picture(tmp_path / "memory.svg")
