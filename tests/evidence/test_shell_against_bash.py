"""Words made at random, read and run: where all of a command is settled, bash prints the same."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from gonogo.evidence.shell.script_commands import read_shell
from gonogo.evidence.source_file import SourceFile

VARIABLES = 'A=1; B="x y"; C=; D="--n 8 --m"; E=(p "q r" s); F=/a/b.tar.gz; G="  lead trail  "; N=7\n'
EXPANSIONS = (
    *("$A", "${B}", "$C", "$D", "$G", "${N}", "${A}${N}", "${E[1]}", "${#E[@]}", "${#B}", "${B:0:1}", "${B/x/_}"),
    *("${F%.gz}", "${F##*/}", "${F%%.*}", "${B// /_}", "${U:-d}", '${U:-"d e"}', "${U:-$A}", "${U:-a b}", "${C:-z}"),
    *("${C-}", "${A:+k}", "$((N+1))", "$(( N * 2 ))", "$(echo hi)", "$(basename $F)"),
)
WHOLE = ('"${E[@]}"', '"$B"', '"$D"', '"$G"', "${E[*]}", "${E[@]}", '"${E[*]}"', "'a b'", '""')
PLAIN = ("a", "-x", "--opt", "b/c", ".", "1e-5", ",", "a=b", "@", "%", "+", ":")
IN_QUOTES = (" ", "  ", '\\"', "\\$x", "\\\\", "'", "#", "\t", "(", ")", "*", "\\\n", "\n", "~", "{", "}", "[")


def word(chance: random.Random) -> str:
    if chance.random() < 0.15:
        return chance.choice(WHOLE)
    parts = []
    for _ in range(chance.randint(1, 3)):
        kind = chance.randrange(3)
        if kind == 0:
            parts.append(chance.choice(PLAIN))
        elif kind == 1:
            parts.append(chance.choice(EXPANSIONS))
        else:
            inside = [chance.choice(EXPANSIONS + PLAIN + IN_QUOTES) for _ in range(chance.randint(1, 4))]
            parts.append(f'"x{"".join(inside)}"')
    return "".join(parts)


@pytest.mark.parametrize("seed", range(4))
def test_as_bash_does(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    lines = [
        "show " + chance.choice((" ", "  ", " \\\n  ")).join(word(chance) for _ in range(chance.randint(1, 4)))
        for _ in range(150)
    ]
    text = VARIABLES + "\n".join(lines) + "\n"
    show = "show() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n"
    run = subprocess.run(["bash", "-c", show + text], capture_output=True, cwd=tmp_path, check=True, env={"HOME": "/h"})
    expected: list[list[str]] = [[]]
    for part in run.stdout.decode().split("\0")[:-1]:
        if part == "\n":
            expected.append([])
        else:
            expected[-1].append(part)
    commands = read_shell(SourceFile("script.sh", text.encode()), tmp_path)
    read = [[item.value for item in command.words[1:]] for command in commands if command.words[0].value == "show"]
    assert len(read) == len(lines)
    for line, ours, theirs in zip(lines, read, expected, strict=False):
        if None not in ours:
            assert ours == (theirs if theirs != [""] or '"' in line else []), line
    assert sum(None in ours for ours in read) < 10
