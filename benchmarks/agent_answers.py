"""What gonogo costs a coding agent: tokens of the list of MCP tools, and of each command's answer, short and in detail.

    python benchmarks/agent_answers.py

The list is that of `gonogo mcp`; the reports are those of `tests/report/expected`. Tokens are counted by cl100k_base
and o200k_base (`pip install bpe-openai`), and by gonogo's own count, which counts rather too many.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from gonogo.cli.mcp.server import make_server, truncate_to_limit
from gonogo.cli.mcp.short_answer import as_json, short_report
from gonogo.cli.serving.folders import Folders
from gonogo.diagnose.pack.tokens import count_tokens
from gonogo.finding import Text

REPORTS = Path(__file__).parents[1] / "tests" / "report" / "expected"


def counted(text: str) -> str:
    """One column for each tokenizer."""
    counts = [count_tokens(text)]
    try:
        import bpe_openai
    except ImportError:
        names: tuple[str, ...] = ()
    else:
        names = ("cl100k_base", "o200k_base")
    counts += [len(list(bpe_openai.get_encoding(name).encode(text))) for name in names]
    return " ".join(f"{count:7,}" for count in counts)


def main() -> None:
    """Print a table."""
    if len(sys.argv) > 1:
        raise SystemExit(__doc__)
    server, _ = make_server(Folders([Path()], Text("", "")), runs=True)
    tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in asyncio.run(server.list_tools())]
    print(f"{'own count, cl100k_base, o200k_base':>50}")
    print(f"{f'the list of {len(tools)} tools':26} {counted(as_json(tools))}")
    for path in sorted(REPORTS.glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        language = path.name.split(".")[1]
        print(f"{f'{path.stem}, short':26} {counted(as_json(short_report(report, language)))}")
        print(f"{f'{path.stem}, detail':26} {counted(as_json(truncate_to_limit(report)[0]))}")


if __name__ == "__main__":
    main()
