"""The README's pictures: pages of two examples' rehearsals, photographed in a real Chromium.

    python benchmarks/pictures.py

Writes docs/pictures/*.png. Wants Debian's chromium, or another that `chromium` starts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
SHOWN = [
    ("slam_omni_dummy_loss", "finding.png", "article:visible", "light", 0),
    ("qwen_72b_zero3_offload", "memory.png", "section:visible:has(.over-time)", "light", 0),
]
"""Example, picture, the part of the page, colours, and which of the charts' devices (the accelerator, the host)."""


def page_of(example: str, folder: Path) -> Path:
    """The page of an example's rehearsal."""
    page = folder / f"{example}.html"
    words = ["rehearse", "--gpus", "8xH100-80G", "--host-memory", "2T", "--format", "html", "--output", str(page)]
    command = [sys.executable, "-m", "gonogo", *words, "--", "bash", "launch.sh"]
    subprocess.run(command, cwd=ROOT / "examples" / example, check=False)
    return page


def main() -> None:
    """Make them anew."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for example, picture, part, colours, device in SHOWN:
            page = browser.new_page(viewport={"width": 1000, "height": 900}, color_scheme=colours)
            page.goto(page_of(example, Path(scratch)).as_uri())
            shown = page.locator(part).first
            if page.locator(".chooser:visible").count():
                page.locator(".chooser:visible select").select_option(str(device))
            shown.screenshot(path=PICTURES / picture)
            print(PICTURES / picture)


if __name__ == "__main__":
    main()
