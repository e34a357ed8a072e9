"""A drawing of rectangles, lines and text that renders identically as SVG and as PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Literal

import msgspec

from gonogo.finding import UserError, translated
from gonogo.finding.install import install_hint

SUFFIXES = (".svg", ".png")
_SCALE = 2
"""PNG pixels per unit, so that it is sharp on high-resolution screens."""
_FONTS = "system-ui, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
_CHINESE_FONTS = (
    "NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "SourceHanSansSC-Regular.otf", "NotoSansSC-Regular.ttf",
    "wqy-microhei.ttc", "wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "DroidSansFallback.ttf", "PingFang.ttc",
    "STHeiti Light.ttc", "Hiragino Sans GB.ttc", "msyh.ttc", "simhei.ttf", "simsun.ttc",
)  # fmt: skip
_FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts", "/Library/Fonts",
                 "/System/Library/Fonts", "C:/Windows/Fonts")  # fmt: skip


class Box(msgspec.Struct, frozen=True):
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    tooltip: str = ""
    outline: str = ""


class Words(msgspec.Struct, frozen=True):
    """One line of text; ``y`` is its baseline."""

    x: float
    y: float
    text: str
    size: float = 13
    bold: bool = False
    fill: str = "#1f2328"
    anchor: Literal["start", "middle", "end"] = "start"


class Line(msgspec.Struct, frozen=True):
    """A straight line between two points."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str
    width: float = 1
    dashed: bool = False


class Drawing(msgspec.Struct, frozen=True):
    """Shapes from back to front on white; ``title`` describes the drawing in words."""

    width: float
    height: float
    title: str
    shapes: Sequence[Box | Words | Line]


def as_svg(drawing: Drawing) -> str:
    """Render the drawing as an SVG document."""
    size = f'width="{drawing.width:g}" height="{drawing.height:g}" viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{escape(_FONTS)}">',
        f"<title>{escape(drawing.title)}</title>",
        f'<rect width="{drawing.width:g}" height="{drawing.height:g}" fill="#ffffff"/>',
        *(_shape_to_svg(shape) for shape in drawing.shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _shape_to_svg(shape: Box | Words | Line) -> str:
    if isinstance(shape, Box):
        outline = f' stroke="{shape.outline}"' if shape.outline else ""
        tooltip = f"<title>{escape(shape.tooltip)}</title>" if shape.tooltip else ""
        place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
        return f'<rect {place} fill="{shape.fill}"{outline}>{tooltip}</rect>'
    if isinstance(shape, Words):
        weight = ' font-weight="600"' if shape.bold else ""
        place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:g}" text-anchor="{shape.anchor}"'
        return f'<text {place} fill="{shape.fill}"{weight}>{escape(shape.text)}</text>'
    dashes = ' stroke-dasharray="4 3"' if shape.dashed else ""
    place = f'x1="{shape.x1:.1f}" y1="{shape.y1:.1f}" x2="{shape.x2:.1f}" y2="{shape.y2:.1f}"'
    return f'<line {place} stroke="{shape.stroke}" stroke-width="{shape.width:g}"{dashes}/>'


def as_png(drawing: Drawing) -> bytes:
    """Render the drawing as a PNG. Raises UserError if Pillow can't be used; see :func:`check_png`."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (round(drawing.width * _SCALE), round(drawing.height * _SCALE)), "#ffffff")
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _paint_shape(canvas, shape)
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return data.getvalue()


def _paint_shape(canvas: Any, shape: Box | Words | Line) -> None:
    if isinstance(shape, Box):
        left, top = shape.x * _SCALE, shape.y * _SCALE
        right, bottom = (shape.x + shape.width) * _SCALE - 1, (shape.y + shape.height) * _SCALE - 1
        if right >= left and bottom >= top:
            canvas.rectangle((left, top, right, bottom), fill=shape.fill, outline=shape.outline or None)
    elif isinstance(shape, Words):
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        place = (shape.x * _SCALE, shape.y * _SCALE)
        font = _load_font(round(shape.size * _SCALE), shape.text.isascii())
        thick = {"stroke_width": 1, "stroke_fill": shape.fill} if shape.bold else {}
        canvas.text(place, shape.text, fill=shape.fill, font=font, anchor=anchor, **thick)
    else:
        for start, end in _dash_segments(shape):
            canvas.line((*start, *end), fill=shape.stroke, width=round(shape.width * _SCALE))


def _dash_segments(line: Line) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    x1, y1, x2, y2 = (value * _SCALE for value in (line.x1, line.y1, line.x2, line.y2))
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    drawn, step = (4 * _SCALE, 7 * _SCALE) if line.dashed else (length, length)
    at = 0.0
    while at < length:
        start, end = at / length, min(at + drawn, length) / length
        yield ((x1 + (x2 - x1) * start, y1 + (y2 - y1) * start), (x1 + (x2 - x1) * end, y1 + (y2 - y1) * end))
        at += step


@cache
def _load_font(size: int, ascii_only: bool) -> Any:
    from PIL import ImageFont

    chinese = None if ascii_only else chinese_font()
    return ImageFont.load_default(size) if chinese is None else ImageFont.truetype(str(chinese), size)


@cache
def chinese_font() -> Path | None:
    """A font on this machine that has Chinese glyphs; None if none of the known ones is installed."""
    for folder in _FONT_FOLDERS:
        found = {path.name: path for path in Path(folder).expanduser().rglob("*.[to]t[cf]")}
        for name in _CHINESE_FONTS:
            if name in found:
                return found[name]
    return None


def check_suffix(path: Path, option: str) -> None:
    """Raise UserError if the file is neither SVG nor PNG, or if it is a PNG and Pillow can't be used."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(
            translated("{option} {path}: give a file name that ends in .svg or .png").format(option=option, path=path)
        )
    if suffix == ".png":
        check_png(option, path)


def check_png(option: str, path: Path) -> None:
    """Raise UserError if Pillow is missing or too old to draw with."""
    try:
        from PIL import features
    except ImportError:
        features = None  # type: ignore[assignment]
    if features is None or not features.check("freetype2"):
        raise UserError(
            translated(
                "{option} {path}: drawing a PNG needs Pillow, which is not installed: {install}; or give an .svg "
                "file, which needs nothing extra"
            ).format(option=option, path=path, install=install_hint("picture"))
        )
