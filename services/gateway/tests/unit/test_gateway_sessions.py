"""Which turn a request continues, under any append, rewrite and interleaving."""

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rein_dialects.neutral import Answer, JsonObject, Message, Request, ToolCall, Usage
from rein_gateway.domain.session import Sample, Session, Turn, ids_of

TOOLS: tuple[JsonObject, ...] = ({"type": "function", "function": {"name": "Bash"}},)


def answer(text: str, *calls: ToolCall) -> Answer:
    return Answer("a", text, "", calls, is_cut=False, usage=Usage(1, 1))


def said(*texts: str) -> tuple[Message, ...]:
    """User and assistant by turns."""
    return tuple(Message("assistant" if number % 2 else "user", text) for number, text in enumerate(texts))


def take(session: Session, messages: tuple[Message, ...], reply: Answer, *, tools: tuple[JsonObject, ...] = ()) -> Turn:
    """One whole call; its ids tell its number."""
    lineage = session.lineage(Request("m", messages, tools))
    number = session.num_turns
    sample = Sample(reply, [100 + number], [200 + number], has_ended=True, has_tools=bool(tools))
    return session.record(lineage, sample=sample)


Move = tuple[str, int, str]
WORDS = st.sampled_from(["a", "b", " a "])
MOVES = st.lists(st.tuples(st.sampled_from(["append", "rewrite", "cut", "new"]), st.integers(0, 9), WORDS), max_size=25)


@dataclass
class Model:
    """What the session ought to know: the history each recorded turn left."""

    histories: list[tuple[tuple[str, str], ...]]

    def parent_of(self, messages: tuple[Message, ...]) -> int | None:
        seen = tuple((message.role, _text(message)) for message in messages)
        fitting = [
            (len(history), number) for number, history in enumerate(self.histories) if history == seen[: len(history)]
        ]
        return max(fitting)[1] if fitting else None


def _text(message: Message) -> str:
    return message.content.strip() if message.role == "assistant" else message.content


@given(MOVES)
@example([("append", 0, "a"), ("rewrite", 0, "a"), ("cut", 0, "a"), ("append", 0, "a")])
def test_the_deepest_exact_history_wins_and_tokens_are_those_of_its_chain(moves: list[Move]) -> None:
    session, model = Session(), Model([])
    conversations: list[tuple[Message, ...]] = [said("task")]
    turns: list[Turn] = []
    for kind, which, word in moves:
        index = which % len(conversations)
        messages = conversations[index]
        if kind == "rewrite" and len(messages) > 1:
            place = which % len(messages)
            messages = (*messages[:place], messages[place]._replace(content=word + "!"), *messages[place + 1 :])
        elif kind == "cut":
            messages = messages[: (which % len(messages)) // 2 * 2 + 1]
        elif kind == "new":
            messages = said(word)
        lineage = session.lineage(Request("m", messages))
        expected = model.parent_of(messages)
        assert (lineage.parent.index if lineage.parent else None) == expected
        turn = take(session, messages, answer(word))
        turns.append(turn)
        assert turn.parent is (turns[expected] if expected is not None else None)
        assert [turn.index for turn in turns] == list(range(len(turns)))
        before = turn.parent.continued([]) if turn.parent else ids_of([])
        assert np.array_equal(turn.continued([7]), [*before, 100 + turn.index, 200 + turn.index, 7])
        model.histories.append(tuple((m.role, _text(m)) for m in (*messages, Message("assistant", word))))
        after = (*messages, Message("assistant", word), Message("user", f"u{which}"))
        conversations[index:index] = [after]


def test_an_answer_is_known_by_the_ids_of_its_calls_whatever_became_of_its_arguments() -> None:
    session = Session()
    call = ToolCall("toolu_1", "Edit", '{"path": "a", "old": "x"}')
    take(session, said("task"), answer("I edit.", call), tools=TOOLS)
    changed = call._replace(arguments='{"old":"x","path":"a","replace_all":false}')
    echoed = (*said("task"), Message("assistant", "", (changed,)), Message("tool", "ok", (), "toolu_1"))
    lineage = session.lineage(Request("m", echoed, TOOLS))
    assert lineage.parent is not None
    assert lineage.new == echoed[-1:]
    dropped = (*said("task"), Message("assistant", "I edit."), Message("user", "ok"))
    assert session.lineage(Request("m", dropped, TOOLS)).parent is None


def test_reasoning_may_be_dropped_and_other_tools_are_another_conversation() -> None:
    session = Session()
    take(session, said("task"), Answer("a", "yes", "hm", (), is_cut=False, usage=Usage(1, 1)))
    assert session.lineage(Request("m", said("task", "yes", "and?"))).parent is not None
    assert session.lineage(Request("m", said("task", "yes", "and?"), TOOLS)).parent is None


def test_a_foreign_answer_in_between_is_seen_as_a_rewrite() -> None:
    session = Session()
    take(session, said("task"), answer("one"))
    appended = session.lineage(Request("m", said("task", "one", "go on")))
    rewritten = session.lineage(Request("m", said("task", "one", "go on", "not mine", "and?")))
    assert (appended.is_rewritten, rewritten.is_rewritten) == (False, True)
    assert rewritten.parent is not None


def test_two_equal_answers_of_two_calls_are_continued_from_the_newer_one() -> None:
    """Case E3: the harness got both, and went on with the second."""
    session = Session()
    take(session, said("task"), answer("ok"))
    newer = take(session, said("task"), answer("ok"))
    assert session.lineage(Request("m", said("task", "ok", "go on"))).parent is newer
