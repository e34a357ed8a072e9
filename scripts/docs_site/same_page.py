"""A hook of MkDocs: the switch of languages leads from each page to the same one in the other language."""

from __future__ import annotations

import re
from typing import Any


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Set the addresses of the switch, relative to the page: the Chinese site lies in ``zh`` of the English one."""
    address = page.file.dest_uri
    output = re.sub(r'<link rel="alternate"[^>]*>\s*', "", output)  # of these, its script looks for a map of each site
    up = "../" * (address.count("/") + (config.theme["language"] == "zh"))
    output = output.replace('href="#language-en"', f'href="{up}{address}"')
    return output.replace('href="#language-zh"', f'href="{up}zh/{address}"')
