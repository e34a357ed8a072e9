"""A hook of MkDocs: the switch of languages leads from each page to the same one in the other language.

And the search, which the theme leaves without a name, gets one for who has pages read aloud. In a page that was opened
as a file a browser starts no worker: the search gets a frame to run in (iframe-worker 1.0.4, MIT; the theme's own
plugin for this fetches it from elsewhere).
"""

from __future__ import annotations

import re
from typing import Any


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Set the addresses of the switch, relative to the page: the Chinese site lies in ``zh`` of the English one."""
    address = page.file.dest_uri
    output = re.sub(r'<link rel="alternate"[^>]*>\s*', "", output)  # of these, its script looks for a map of each site
    up = "../" * (address.count("/") + (config.theme["language"] == "zh"))
    name = "搜索" if config.theme["language"] == "zh" else "Search"
    shim = f'<script src="{"../" * address.count("/")}iframe-worker.js"></script>'
    output = output.replace("</head>", f"{shim}</head>", 1)
    output = output.replace('role="dialog"', f'role="dialog" aria-label="{name}"')
    output = output.replace('href="#language-en"', f'href="{up}{address}"')
    return output.replace('href="#language-zh"', f'href="{up}zh/{address}"')
