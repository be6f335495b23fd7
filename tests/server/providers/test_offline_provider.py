"""The rehearsal provider looks things up with the tools it is offered, and says what they said."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.session.chunks import assemble
from refold_protocol.session.messages import Message, TextDelta, ToolCallBlock, ToolResultBlock, text_content
from refold_server.compaction.compaction_decision import instructions
from refold_server.providers.offline_provider import OfflineBody, OfflineProvider, decide, rarest_word
from refold_server.providers.offline_stream import PrefixMemory, Said, SaidCall, spoken
from tests.support.asking import ask, error_of
from tests.support.chat_stream import text_in, usage_in
from tests.support.offline_asking import body_of, run_turn
from tests.support.requests import user

pytestmark = pytest.mark.anyio

QUESTION = "Where is the turtle fed?"
ANSWERS = {
    "list_files": "README.md\nsrc/turtle.py\nsrc/zoo.py\n[folders that could not be read: 1]",
    "search_text": "README.md:3: A turtle.\nsrc/zoo.py:11: def feed(turtle):\nsrc/zoo.py:12:     turtle.eat()",
    "read_file": "8\t\n9\t\n10\t\n11\tdef feed(turtle):\n12\t    turtle.eat()\n13\t\n14\t",
}


async def test_it_lists_searches_reads_and_answers_with_what_the_tools_said() -> None:
    calls, answer = await run_turn(QUESTION, ANSWERS)
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [
        ("list_files", {}),
        ("search_text", {"pattern": "fed"}),
        ("read_file", {"path": "src/zoo.py", "startLine": 8, "endLine": 14}),
    ]
    for part in ("src/zoo.py, line 11, says:", "def feed(turtle):", "3 lines of 2 files", "3 paths", "same line among 7"):
        assert part in answer


def test_asked_for_a_summary_it_says_what_was_asked_and_calls_no_tool() -> None:
    history = [
        user("Where is\nthe turtle fed?"),
        Message("assistant", text_content("In the zoo.")),
        user(instructions("Be kind.")),
    ]
    said = decide(msgspec.json.decode(body_of(*history), type=OfflineBody))
    assert said.calls == ()
    assert "\n- Where is the turtle fed?" in said.text


@pytest.mark.parametrize(
    ("tool", "said", "seen"),
    [
        ("list_files", "README.md\nother.py", "2 paths"),
        ("search_text", "src/zoo.py:99: def feed(tortoise):", "line 99, says:\n\n    def feed(tortoise):"),
        ("read_file", "11\tdef feed(tortoise):", "But read_file shows at that place:\n\n    def feed(tortoise):"),
        ("read_file", "11\t\n12\tdef feed(turtle):", "But read_file shows at that place:"),
        ("read_file", "1\tdef feed(turtle):", "But read_file did not show line 11"),
    ],
)
async def test_a_wrong_result_gives_a_visibly_wrong_answer(tool: str, said: str, seen: str) -> None:
    _, answer = await run_turn(QUESTION, {**ANSWERS, tool: said})
    assert seen in answer


@pytest.mark.parametrize(
    ("tool", "said", "steps"),
    [
        ("list_files", "The folder . could not be opened", 1),
        ("search_text", "search_text did not end within 30 s and was stopped", 2),
        ("read_file", "src/zoo.py does not exist", 3),
    ],
)
async def test_a_tool_that_failed_ends_the_looking_with_its_words(tool: str, said: str, steps: int) -> None:
    calls, answer = await run_turn(QUESTION, {**ANSWERS, tool: said})
    assert len(calls) == steps
    assert answer == f"The tool {tool} did not give what I asked for: “{said}”. I stop here."


async def test_a_word_that_no_line_holds_is_said_to_be_nowhere() -> None:
    calls, answer = await run_turn(QUESTION, {**ANSWERS, "search_text": "[no line of 3 files holds 'fed']"})
    assert len(calls) == 2
    assert answer.startswith("No line of the workspace holds 'fed'")


async def test_an_empty_workspace_has_no_paths() -> None:
    _, answer = await run_turn(QUESTION, {"list_files": "[no files]", "search_text": "[no line of 0 files holds 'fed']"})
    assert "list_files named 0 paths." in answer


@pytest.mark.parametrize(
    ("tools", "names", "part"),
    [
        ((), [], "It was offered no tools"),
        (("read_file",), [], "list_files is not offered"),
        (("list_files",), ["list_files"], "nothing to search with"),
        (("list_files", "search_text"), ["list_files", "search_text"], "read_file is not offered"),
    ],
)
async def test_without_a_tool_it_says_so(tools: tuple[str, ...], names: list[str], part: str) -> None:
    calls, answer = await run_turn(QUESTION, ANSWERS, tools)
    assert [call.name for call in calls] == names
    assert part in answer


def decided(*messages: Message) -> Said:
    import msgspec

    return decide(msgspec.json.decode(body_of(*messages), type=OfflineBody))


def listed(question: str) -> list[Message]:
    return [
        user(question),
        Message("assistant", (ToolCallBlock("c1", "list_files", "{}"),)),
        Message("user", (ToolResultBlock("c1", text_content(ANSWERS["list_files"]), False),)),
    ]


def test_a_new_question_starts_from_the_list_again() -> None:
    assert decided(*listed(QUESTION), user("And the lion?")).calls == (SaidCall("list_files", "{}"),)


def test_context_that_refold_puts_in_is_no_question_and_steering_is_one() -> None:
    context = user('<context source="plugin:ci">\nCI is red.\n</context>')
    assert decided(*listed(QUESTION), context).calls == (SaidCall("search_text", '{"pattern":"fed"}'),)
    steering = user('<steering source="client">\nLook at apes.\n</steering>')
    said = decided(*[steering if at == 0 else message for at, message in enumerate(listed(QUESTION))])
    assert said.calls == (SaidCall("search_text", '{"pattern":"apes"}'),)


def test_texts_in_parts_are_read() -> None:
    part = [{"type": "text", "text": "Where is zebra?"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    import msgspec

    body = msgspec.json.decode(json.dumps({"model": "m", "messages": [{"role": "user", "content": part}]}), type=OfflineBody)
    assert "15 characters: “Where is zebra?”" in decide(body).text


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("Where is the turtle?", "turtle"),
        ("Who feeds the turtle?", "feeds"),
        ("Who feeds elephants?", "elephants"),
        ("Is feed_all for zookeepers?", "feed_all"),
        ("Is HttpClient closed?", "HttpClient"),
        ("what is this?", "what"),
        ("Is it?", None),
        ("那是什么", "那是什么"),
    ],
)
def test_the_rarest_word_is_a_name_or_one_of_few_paths_or_long(question: str, word: str | None) -> None:
    assert rarest_word(question, ["src/turtle.py", "src/turtles.py"]) == word


async def test_the_same_body_gives_the_same_reply_but_for_the_cached_tokens() -> None:
    body = body_of(user(QUESTION))
    first, again = [(await ask(OfflineProvider(), body)).chunks for _ in range(2)]
    assert first == again
    assert (await ask(OfflineProvider(), body_of(user("Other?")))).chunks != first


async def test_calls_of_different_bodies_have_different_ids() -> None:
    ids: set[str] = set()
    for question in ("a?", "b?"):
        content = assemble((await ask(OfflineProvider(), body_of(user(question)))).chunks).content
        ids |= {block.id for block in content if isinstance(block, ToolCallBlock)}
    assert len(ids) == 2


async def test_text_streams_in_small_pieces() -> None:
    asked = await ask(OfflineProvider(), body_of(user(QUESTION), tools=()))
    deltas = [part.text for part in asked.chunks if isinstance(part, TextDelta)]
    assert len(deltas) > 10
    assert max(map(len, deltas)) == 8


async def test_usage_counts_four_characters_a_token_and_the_longest_shared_beginning_as_cached() -> None:
    provider = OfflineProvider()
    body = body_of(user("那" * 40), tools=())
    longer = body_of(user("那" * 40), Message("assistant", text_content("ok")), user("more"), tools=())
    for sent, shared in ((body, 0), (longer, len(body.decode()) - 2), (body, len(body.decode()) - 2)):
        (found,) = usage_in((await ask(provider, sent)).chunks)
        assert found.usage.prompt_tokens == -(-len(sent.decode()) // 4)
        assert found.usage.cache_read_tokens == shared // 4


@given(st.lists(st.text(alphabet="ab那邪", max_size=8), max_size=6), st.text(alphabet="ab那邪", max_size=8))
def test_the_memory_gives_the_longest_shared_beginning(before: list[str], text: str) -> None:
    memory = PrefixMemory()
    for known in before:
        memory.common_characters(f"{known}]}}".encode())
    shared = [max(n for n in range(len(text) + 1) if known.startswith(text[:n])) for known in before]
    assert memory.common_characters(text.encode()) == max(shared, default=0)


def test_a_reply_is_the_stream_of_a_server() -> None:
    events = spoken(Said("hi", (SaidCall("f", "{}"),), "hm"), b"12345", 2)
    assert events[-1] == b"data: [DONE]\n\n"
    assert b'"usage":{"prompt_tokens":2,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}' in events[-2]


@pytest.mark.parametrize("body", [b"", b"[]", b'{"model":"workspace"}'])
async def test_a_body_that_it_cannot_read_is_refused(body: bytes) -> None:
    assert (await error_of(OfflineProvider(), body)).error_kind == "provider.rejected"


async def test_it_has_one_model() -> None:
    error = await error_of(OfflineProvider(), body_of(user("x"), model="gpt"))
    assert (error.error_kind, "'workspace'" in error.message) == ("provider.rejected", True)
    assert text_in((await ask(OfflineProvider(), body_of(user("x")))).chunks)
