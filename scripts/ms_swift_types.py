"""What kinds of models ms-swift knows, out of its own registry, for ``gonogo plan --write``.

    python scripts/ms_swift_types.py

in an environment with ms-swift writes src/gonogo/evidence/tables/ms_swift_types.json.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

SPECIAL = re.compile(r"<[|｜][^<>]+[|｜]>|\[/?INST\]")
TABLE = Path(__file__).parents[1] / "src/gonogo/evidence/tables/ms_swift_types.json"
ABOUT = [
    "What ms-swift calls kinds of models, in the order in which it looks through them: the architectures of a "
    "config.json that are of a kind, its template where it has one for all, and its groups of models.",
    "A group has its own template, or null where the kind's is its, and the last parts of its models' names in "
    "lower-case.",
    "Of each template that a kind has to choose of: the special words of its turns, and how its system prompt begins.",
]


def main() -> None:
    """Write the table."""
    from swift.model import MODEL_MAPPING
    from swift.template import TEMPLATE_MAPPING

    seen: set[str] = set()
    lines = []
    for kind, meta in MODEL_MAPPING.items():
        groups = []
        for group in meta.model_groups:
            told = (name for one in group.models for name in (one.ms_model_id, one.hf_model_id, one.model_path))
            names = {name.rsplit("/", 1)[-1].lower() for name in told if isinstance(name, str)} - seen
            seen |= names  # the first kind that lists a name has it
            groups.append([group.template, sorted(names)])
        row = {"architectures": list(meta.architectures or ["null"]), "template": meta.template, "groups": groups}
        lines.append(f"  {json.dumps(kind)}: {json.dumps(row)}")
    head = {
        "about": ABOUT,
        "release": version("ms-swift"),
        "source": "https://github.com/modelscope/ms-swift/tree/main/swift/model",
    }
    chosen = {group.template for meta in MODEL_MAPPING.values() if not meta.template for group in meta.model_groups}
    turns = []
    for template in sorted(name for name in chosen if name is not None):
        meta = TEMPLATE_MAPPING[template]
        written = "".join(part for part in [*meta.prefix, *meta.prompt] if isinstance(part, str))
        row = [sorted(set(SPECIAL.findall(written))), (meta.default_system or "")[:50]]
        turns.append(f"  {json.dumps(template)}: {json.dumps(row, ensure_ascii=False)}")
    text = (
        json.dumps(head, indent=1)[:-2]
        + ',\n "kinds": {\n'
        + ",\n".join(lines)
        + '\n },\n "turns": {\n'
        + ",\n".join(turns)
        + "\n }\n}\n"
    )
    json.loads(text)
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
