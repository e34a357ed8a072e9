"""Words of identifiers, and what counts as one in a piece of code."""

from __future__ import annotations

import ast

import pytest

from gonogo.evidence.script.identifiers import (
    contains_words,
    has_option,
    identifiers_in,
    is_main_guard,
    last_name,
    same_code,
    split_identifier,
    uses_name,
)


def code(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("is_rank_0", "is rank 0"),
        ("isRank0", "is rank 0"),
        ("LOCAL_RANK", "local rank"),
        ("HTTPServer", "http server"),
        ("__name__", "name"),
        ("rerank", "rerank"),
        ("zero3", "zero 3"),
        ("_", ""),
        ("数据", ""),
    ],
)
def test_words(name: str, parts: str) -> None:
    assert split_identifier(name) == tuple(parts.split())


def test_a_phrase_is_whole_words_in_its_order() -> None:
    assert contains_words("is_main_process", "main_process")
    assert contains_words("cfgZero3", "zero_3")
    assert not contains_words("domain_processor", "main_process")
    assert not contains_words("process_main", "main_process")
    assert not contains_words("zero", "zero_3")
    assert not contains_words("", "rank")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("args.domain == 'main'", ["args", "domain"]),
        ("os.environ['RANK'] == '0'", ["os", "environ", "RANK"]),
        ("int(os.environ.get('RANK', 'none'))", ["int", "os", "environ", "get", "RANK"]),
        ("getattr(args, 'rank', 'main')", ["getattr", "args", "rank"]),
        ("'RANK' in environ", ["environ", "RANK"]),
        ("kind in ('rank', 'score')", ["kind"]),
        ("make(rank=one)", ["make", "rank", "one"]),
        ("lambda rank: 'rank'", ["rank"]),
        ("f'{rank} of rank'", ["rank"]),
    ],
)
def test_identifiers_are_names_and_keys_but_no_values(text: str, found: list[str]) -> None:
    assert sorted(identifiers_in(code(text))) == sorted(found)


def test_names_of_functions_and_classes_count_and_comments_do_not() -> None:
    tree = ast.parse("class Ranked:\n    def by_score(self, top):\n        '''by rank'''  # rank\n        return top\n")
    assert sorted(set(identifiers_in(tree))) == ["Ranked", "by_score", "self", "top"]
    assert not uses_name(tree, "rank")


def test_the_last_name() -> None:
    assert [last_name(code(text)) for text in ("a.b.c", "c", "a.b.c()", "a().c", "a[0]", "'c'")] == [
        *("c", "c", "c", "c", "", "")
    ]
    assert last_name(None) == ""


def test_the_same_code_wherever_it_stands() -> None:
    statement = ast.parse("self.total = (self.\\\n  total)").body[0]
    assert isinstance(statement, ast.Assign)
    assert same_code(statement.targets[0], statement.value)
    assert same_code(code("f(a, b=1)"), code("f( a,b = 1 )"))
    assert not same_code(code("f(a)"), code("f(a, a)"))
    assert not same_code(code("a[1]"), code("a[True]"))
    assert not same_code(code("total"), code("self.total"))


def test_options_are_entries_of_what_holds_options() -> None:
    for text in ("args.resume", "self.cfg.save", "training_args.do_eval and x", "config['save']", "not FLAGS.fast"):
        assert has_option(code(text)), text
    for text in ("args", "targs.resume", "reconfig.save", "step % 10 == 0", "'args.resume' in text"):
        assert not has_option(code(text)), text


def test_the_guard_of_a_main_program() -> None:
    assert is_main_guard(code("__name__ == '__main__'"))
    assert is_main_guard(code("'__main__' == __name__ and ready"))
    assert not is_main_guard(code("cls.__name__ == 'Model'"))
    assert not is_main_guard(code("key == '__name__'"))
