"""A sample's text taken apart, whole and in chunks."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein_dialects.neutral import ToolCall
from rein_dialects.samples import Parsed, Piece, Problem, SampleParser, fold, parse

LOOK = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>'


def whole(text: str, *, is_thinking: bool = False) -> Parsed:
    numbers = itertools.count()
    return parse(text, new_id=lambda: f"call_{next(numbers)}", is_thinking=is_thinking)


def in_chunks(text: str, cuts: list[int], *, is_thinking: bool) -> Parsed:
    numbers = itertools.count()
    parser = SampleParser(new_id=lambda: f"call_{next(numbers)}", is_thinking=is_thinking)
    borders = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces: list[Piece] = []
    for start, end in itertools.pairwise(borders):
        pieces += parser.feed(text[start:end])
    return fold([*pieces, *parser.finish()])


FRAGMENTS = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "</think>",
            "<tool_",
            "</thi",
            "<",
            ">",
            "\n",
            "\n\n",
            " ",
            '"',
            "\\",
        ),
        *('{"name": "Bash", "arguments": {}}', '{"name": 1}', '{"name": "B", "arguments": {"c": "</tool_call>"}}'),
        *('{"name": "B", "arguments": {"c": "\\"<tool_call>"}}', LOOK, "text", "é", "\u2028"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=12).map("".join), st.lists(st.integers(0, 400), max_size=20), st.booleans())
def test_where_a_sample_is_cut_makes_no_difference(text: str, cuts: list[int], is_thinking: bool) -> None:
    assert in_chunks(text, cuts, is_thinking=is_thinking) == whole(text, is_thinking=is_thinking)


@given(st.lists(FRAGMENTS, max_size=8).map("".join), st.booleans())
def test_every_single_border_gives_the_same(text: str, is_thinking: bool) -> None:
    expected = whole(text, is_thinking=is_thinking)
    for border in range(len(text) + 1):
        assert in_chunks(text, [border], is_thinking=is_thinking) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), JSON, max_size=4), st.booleans())
def test_arguments_come_out_as_they_went_in(arguments: dict[str, object], is_ascii: bool) -> None:
    body = json.dumps({"name": "Edit", "arguments": arguments}, ensure_ascii=is_ascii)
    parsed = whole(f"I will.\n<tool_call>\n{body}\n</tool_call>")
    assert parsed.content == "I will."
    assert json.loads(parsed.tool_calls[0].arguments) == arguments
    assert parsed.problems == ()


def test_text_around_calls_is_content_without_the_newlines_of_the_format() -> None:
    parsed = whole(f"Look first.\n{LOOK}\n{LOOK}\n")
    assert parsed.content == "Look first."
    assert [call.id for call in parsed.tool_calls] == ["call_0", "call_1"]


def test_a_closing_mark_inside_an_argument_is_the_policys_own_text() -> None:
    parsed = whole('<tool_call>{"name": "B", "arguments": {"command": "echo \\"</tool_call>\\""}}</tool_call>')
    assert parsed.tool_calls == (ToolCall("call_0", "B", '{"command": "echo \\"</tool_call>\\""}'),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<tool_call>\n{"name": "Bash", "arguments": {"comm', Problem.UNCLOSED),
        ("<tool_call>\n{'name': 'Bash'}\n</tool_call>", Problem.UNREADABLE),
        ('<tool_call>{"name": "B", "arguments": "ls"}</tool_call>', Problem.UNREADABLE),
        ('<tool_call>{"name": "B", "arguments": {"x": "\\ud800"}}</tool_call>', Problem.UNREADABLE),
        ("<tool_call>[]</tool_call>", Problem.UNREADABLE),
    ],
)
def test_what_cannot_be_read_as_a_call_is_given_out_as_text_and_named(text: str, problem: Problem) -> None:
    assert whole(text) == Parsed(text.strip("\n"), "", (), (problem,))


def test_reasoning_is_told_from_content() -> None:
    parsed = whole(f"<think>\nfirst look\n</think>\n\nLooking.\n{LOOK}")
    assert (parsed.reasoning, parsed.content, len(parsed.tool_calls)) == ("first look", "Looking.", 1)
    assert whole("hm\n</think>\n\nYes.", is_thinking=True) == Parsed("Yes.", "hm", (), ())


def test_a_call_made_while_thinking_is_a_call_and_is_named() -> None:
    parsed = whole(f"<think>\nlet me look {LOOK} so")
    assert len(parsed.tool_calls) == 1
    assert parsed.problems == (Problem.INSIDE_REASONING,)
    assert parsed.reasoning == "let me look  so"


def test_reasoning_about_the_marks_is_no_call() -> None:
    parsed = whole("<think>I could write <tool_call>x</tool_call> now</think>Done.")
    assert parsed == Parsed("Done.", "I could write <tool_call>x</tool_call> now", (), ())
