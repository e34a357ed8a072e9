"""Shell scripts made at random: what gonogo says reaches a program is what bash hands it. Many more: `make shell`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, seed, settings

from shell.bash import Bash
from shell.scripts import START, scripts

COUNT = 500
"""About 10 s on one core. `make shell` runs 100,000 of them each night."""


@pytest.fixture(scope="module")
def bash() -> Iterator[Bash]:
    with Bash() as running:
        yield running


@pytest.mark.slow
def test_scripts_are_read_as_bash_runs_them(bash: Bash) -> None:
    @seed(20260101)
    @settings(max_examples=COUNT, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(scripts())
    def agrees(files: dict[str, str]) -> None:
        assert bash.differences(files) == [], files

    agrees()
    told = bash.settled / (bash.settled + bash.unknown.total())
    assert told > 0.85, bash.unknown.most_common(5)  # saying nothing of most would be easy, and no use


@pytest.mark.parametrize(
    "text",
    [
        "d=/data; m=llm\nprog 1 $d/$m/x --config=$d/e/$m/x.json $d/$m:$d/f/$m/x $d/e/$m.json $(pwd)/exp/$m/x",
        "A=1\nB=$A/$A/x N=$A\nprog 1 $B\n{ prog 2; }",
        'export X = y\nprog 1 "[$X]"\nif export 1A; then prog 2; else prog 3; fi\nset -e\nexport B = 2\nprog 4 $B',
        "E=(a $F/$F/x 'b c')\nfor X in $F/$F/y ${E[@]}; do prog 1 $X; done",
        "mkdir a\ncd ./a\ncd ../\nprog 1\nmkdir b\ncd b\ncd ..\nprog 2",
        "cd sub/../sub\npushd ..\nprog 1\npopd\nprog 2\ncd -\nprog 3",
        "set -eu\nfalse || true\nprog 1 ${U:-x}\nprog 2 $U\nprog 3",
        "trap 'prog 2 $A' EXIT\nset -e\nprog 1\nfalse\nprog 3",
        "[[ -d $A ]] || trap 'prog 2 $N' EXIT\nif [[ ! -d sub ]]; then prog 1; else trap 'prog 3' EXIT; fi",
        "for X in none*.json; do cd sub; done\nprog 1\ncd ..\nprog 2 $N",
        "F=. G=/ H=a/\nprog 1 $(basename $F) $(basename $G)x $(basename $H) $(basename .gz .gz) $(basename a.gz .gz)",
        'IFS=,\nL=a,b,,c\nprog 1 $L "$L" $(echo x,y)',
        "f() { local A=$1; shift; prog 1 $A \"$@\"; }\nA=2 f x 'y z' $A\nprog 2 $A",
        'M="--n  8"\neval "prog 1 $M" "\'a b\'" \'$A\'',
        "for ((i = 0; i < 3; i++)); do prog 1 $i $((i * 2)) $((i > 1 ? 5 : 6)); done",
        "case $F in */a/*.gz) prog 1;; *) prog 2;; esac\n[[ $F == *.gz && ! $A -gt 3 ]] && prog 3",
        "A=~/x:~/y\nprog 1 $A ~/z a=~/q \"~/n\" '~' a~",
        "prog 1 {a,b}{1..3} ${A}{x,y} \"{a,b}\" {01..03} *.json none*.json '*.json'",
    ],
)
def test_kinds_that_were_read_otherwise(text: str, bash: Bash) -> None:
    before = bash.settled
    assert bash.differences({"run.sh": "\n".join([*START, text, ""])}) == []
    assert bash.settled > before
