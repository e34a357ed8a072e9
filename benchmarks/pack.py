"""The reader's pack: how large it is, by gonogo's count and by real tokenizers; and packs to give to readers.

    python benchmarks/pack.py [CASES.jsonl] [--write DIR] [--qwen FILE.tiktoken]
    python benchmarks/pack.py CASES.jsonl... --readings benchmarks/pack_readings.jsonl

CASES.jsonl has an object a line with ``id``, ``log``, ``cause`` and perhaps ``context`` (versions, files). Without it
the hazards' test cases are taken. With --write, DIR gets for each case ``ID.log`` (with what was given beside it),
``ID.pack`` and, apart from them, ``causes.json``: give one reader the logs and another the packs, and count how many
causes each names. --readings counts that: a line has a case's ``id`` and what was said of its ``log`` and its ``pack``
(``cause``, ``sure``); it names the cause if all of the case's ``right`` patterns match. Tokenizers that are not
installed (bpe-openai, tiktoken) are left out.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gonogo.diagnose.findings import read_failure
from gonogo.diagnose.pack.pack import MAX_TOKENS, ReaderPack, make_reader_pack

ROOT = Path(__file__).parents[1]
Count = Callable[[str], int]


def cases(path: Path | None) -> list[dict[str, Any]]:
    if path is not None:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    logs = sorted((ROOT / "tests" / "hazards").glob("*/bad*.log"))
    return [
        {"id": f"{log.parent.name}-{log.stem}", "log": log.read_text(encoding="utf-8", errors="replace")}
        for log in logs
    ]


def packed(case: dict[str, Any], folder: Path) -> ReaderPack:
    log = folder / "train.log"
    log.write_text(case["log"], encoding="utf-8")
    given: dict[str, Path] = {}
    versions = case.get("context", {}).get("versions")
    if versions:
        given["environment"] = folder / "versions.json"
        given["environment"].write_text(json.dumps(versions))
    for name, option in (("launch", "launch"), ("ds_config", "deepspeed_config"), ("script", "script")):
        text = case.get("context", {}).get(name)
        if text:
            given[option] = folder / f"{name}.txt"
            given[option].write_text(text if isinstance(text, str) else json.dumps(text))
    failure = read_failure([str(log)], **given)
    return make_reader_pack(failure.log, failure.report(), failure.files)


def tokenizers(qwen: Path | None) -> dict[str, Count]:
    found: dict[str, Count] = {}
    try:
        import bpe_openai

        for name in ("cl100k_base", "o200k_base"):
            encoding = bpe_openai.get_encoding(name)
            found[name] = lambda text, encoding=encoding: len(encoding.encode_ordinary(text))
    except ModuleNotFoundError:
        pass
    if qwen is not None:
        import tiktoken

        ranks = {
            base64.b64decode(token): int(rank)
            for token, rank in (line.split() for line in qwen.read_bytes().splitlines() if line)
        }
        pattern = (
            r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
        )
        of_qwen = tiktoken.Encoding(
            "qwen", pat_str=pattern + r"|\s+(?!\S)|\s+", mergeable_ranks=ranks, special_tokens={}
        )
        found["qwen"] = lambda text: len(of_qwen.encode_ordinary(text))
    return found


def count_readings(known: list[dict[str, Any]], readings: Path) -> None:
    right = {case["id"]: case["right"] for case in known if "right" in case}
    rows = [json.loads(line) for line in readings.read_text(encoding="utf-8").splitlines()]
    for kind in ("log", "pack"):
        named = [
            (row[kind]["sure"], all(re.search(one, row[kind]["cause"], re.IGNORECASE) for one in right[row["id"]]))
            for row in rows
        ]
        hits = sum(hit for _, hit in named)
        sure = [hit for how, hit in named if how == "certain"]
        print(f"{kind}: {hits} of {len(named)} named; {sum(sure)} of the {len(sure)} called certain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="*")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--qwen", type=Path)
    parser.add_argument("--readings", type=Path)
    asked = parser.parse_args()
    found = [case for path in asked.cases or [None] for case in cases(path)]
    if asked.readings is not None:
        count_readings(found, asked.readings)
        return
    counts = tokenizers(asked.qwen)
    sizes: list[int] = []
    shares: dict[str, list[float]] = {name: [] for name in counts}
    causes: dict[str, str] = {}
    for case in found:
        with tempfile.TemporaryDirectory() as folder:
            made = packed(case, Path(folder))
        sizes.append(made.tokens)
        for name, count in counts.items():
            shares[name].append(count(made.text) / made.tokens)
        if asked.write is not None:
            asked.write.mkdir(parents=True, exist_ok=True)
            context = case.get("context") or {}
            beside = f"\n--- given beside the log ---\n{json.dumps(context, indent=1)}\n" if context else ""
            (asked.write / f"{case['id']}.log").write_text(case["log"] + beside, encoding="utf-8")
            (asked.write / f"{case['id']}.pack").write_text(made.text, encoding="utf-8")
            causes[case["id"]] = case.get("cause", "")
    if asked.write is not None:
        (asked.write / "causes.json").write_text(json.dumps(causes, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"{len(sizes)} packs: median {statistics.median(sizes):.0f}, largest {max(sizes)} of {MAX_TOKENS} tokens")
    for name, of in shares.items():
        print(f"{name}: median {statistics.median(of):.0%}, at most {max(of):.0%} of gonogo's count")


if __name__ == "__main__":
    main()
