"""Shortening of large results: head and tail stay, cuts tear no character apart, and nothing grows.

Invariant: A cut result keeps whole characters, is never longer, and its whole text can be read.
"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.ids import CallId
from refold_protocol.session.codec import seal
from refold_protocol.session.events import Draft, Event, Replace, ToolErrorInfo, ToolResult, UserMessage
from refold_protocol.session.messages import ImageBlock, Message, ResultBlock, Source, TextBlock, text_content
from refold_protocol.session.projection import derive_message
from refold_protocol.session.surface import fold_surface
from refold_protocol.session.token_estimate import Density, MeterProfile
from refold_server.compaction.result_cuts import Cut, before_tail, cuts_of, large_of, readable, shortened
from refold_server.requests.session_meters import ModelTokenMeter

METER = ModelTokenMeter(MeterProfile("p/m", 8_192, Density(1.0)))
NOTE = re.compile(
    r"\n\[… ([\d,]+) characters cut out here to make room; read_result with seq (\d+) gives the whole result …\]\n"
)


def result(seq: int, *content: ResultBlock, op: Replace | str = "append") -> Event:
    data = ToolResult(1, 1, CallId("c1"), content, True, ToolErrorInfo("Failed", "TOOL_FAILED"))
    return seal(Draft(data, op, ((0, 0),)), seq, 1)  # type: ignore[arg-type]


def cuts(*nodes: Event) -> tuple[Cut, ...]:
    derived = [derive_message(node) for node in nodes]
    return cuts_of(nodes, [0 if one is None else METER.estimate_message(one) for one in derived], METER.profile)


def test_a_result_is_large_from_a_share_of_the_window_on_and_never_below_a_floor() -> None:
    assert (large_of(8_192), large_of(128_000)) == (400, 2_000)


def test_a_large_result_keeps_head_and_tail_around_a_note_that_names_its_place() -> None:
    text = "".join(f"{number:06} " for number in range(300))
    (cut,) = cuts(result(7, TextBlock(text)))
    (block,) = cut.shorter.content
    assert isinstance(block, TextBlock)
    note = NOTE.search(block.text)
    assert note is not None
    assert note[2] == "7"
    head, tail = block.text[: note.start()], block.text[note.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) > len(tail) > 0
    assert int(note[1].replace(",", "")) == len(text) - len(head) - len(tail)
    assert isinstance(cut.shorter, ToolResult)
    assert (cut.shorter.call_id, cut.shorter.is_error, cut.shorter.error) == (
        "c1",
        True,
        ToolErrorInfo("Failed", "TOOL_FAILED"),
    )
    message = derive_message(result(7, *cut.shorter.content))
    assert message is not None
    assert cut.saved == 2_100 + 12 - METER.estimate_message(message)


def test_a_small_result_another_message_and_one_that_was_shortened_are_left_alone() -> None:
    prompt = seal(Draft(UserMessage(text_content("x" * 5_000), Source("client")), surface_op="append"), 1, 1)
    assert cuts(result(7, TextBlock("x" * 380)), prompt, result(9, TextBlock("x" * 5_000), op=Replace(7, 7))) == ()


def test_several_texts_are_shortened_by_the_same_share_and_images_stay() -> None:
    image = ImageBlock("image/png", "ab" * 32)
    (cut,) = cuts(result(7, TextBlock("a" * 3_000), image, TextBlock("b" * 6_000)))
    first, middle, last = cut.shorter.content
    assert middle == image
    assert isinstance(first, TextBlock)
    assert isinstance(last, TextBlock)
    assert first.text.count("a") * 2 - last.text.count("b") in range(-8, 9)


def test_what_it_gives_may_stand_on_the_surface() -> None:
    node = result(1, TextBlock("x" * 5_000))
    (cut,) = cuts(node)
    surface = fold_surface([node, seal(cut.draft, 2, 1)])
    assert [one.seq for one in surface.nodes] == [2]
    assert surface.replace_generation == 1


def test_a_cut_falls_between_lines_where_one_ends_near() -> None:
    text = "\n".join(f"line {number}" for number in range(500))
    found = shortened(text, 300, 3)
    note = NOTE.search(found)
    assert note is not None
    assert found[: note.start()].split("\n")[-1] in text.split("\n")
    assert found[note.end() :].split("\n")[0] in text.split("\n")


def test_looking_for_a_line_leaves_at_least_half_of_head_and_tail() -> None:
    """The last line break of a text is no place to cut: nothing would be left of its end. Nor is the first one."""
    one_line = '{"rows":[' + "1234567," * 300 + "0]}\n"
    for text in (one_line, f"\n{one_line}", "\n".join(["y" * 250] * 20) + "\n"):
        for kept in (60, 180, 532):
            found = shortened(text, kept, 3)
            note = NOTE.search(found)
            assert note is not None
            assert note.start() >= kept * 2 // 3 // 2
            assert len(found) - note.end() >= kept // 3 // 2


def test_a_character_that_never_ends_is_cut_all_the_same() -> None:
    """A head of nothing but accents is one character by the rules; something is kept of it, and found without a long search."""
    found = shortened("e" + "\u0301" * 100_000, 60_000, 3)
    note = NOTE.search(found)
    assert note is not None
    assert note.start() > 39_000
    assert len(found) - note.end() > 19_000


def test_a_cut_tears_no_character_from_what_belongs_to_it() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
    accents, thumb = "e\u0301" * 1, "\U0001f44d\U0001f3fd"
    flag, tagged = "\U0001f1e9\U0001f1ea", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    syllables = ("\u1112\u1161\u11ab", "\u0915\u093f", "\u0915\u094d\u0937", "\u0ba8\u0bbf", "\u0e01\u0e33", "\u8fbb\U000e0100")
    for unit in (family, accents, thumb, flag, tagged, *syllables, "\u2764\ufe0f", "1\ufe0f\u20e3", "\r\n", "汉"):
        for kept in range(30, 60):
            found = shortened(unit * 400, kept, 3)
            note = NOTE.search(found)
            assert note is not None
            for piece in (found[: note.start()], found[note.end() :]):
                assert piece == unit * (len(piece) // len(unit)), unit


@given(st.text(alphabet="a1汉é ", max_size=3_000), st.sampled_from((40, 800, 8_192)))
def test_what_is_read_again_takes_a_share_of_the_window_and_is_never_nothing(text: str, window: int) -> None:
    """Else the model could never read the middle of a result: what it reads would be cut again before it sees it."""
    meter = ModelTokenMeter(MeterProfile("p/m", window, Density(4.0, "script")))
    count = readable(text, meter.profile)
    assert min(1, len(text)) <= count <= len(text)
    if count > 1:
        assert meter.estimate_message(Message("user", text_content(text[:count]))) <= window // 8


def test_what_stands_before_the_retained_tail_is_counted_from_the_end() -> None:
    assert before_tail((5, 5, 5, 5), 10) == 2
    assert before_tail((5, 5, 5, 5), 11) == 1
    assert before_tail((5, 5), 0) == 2
    assert before_tail((5, 5), 100) == 0


@given(st.text(max_size=600), st.integers(0, 600), st.integers(0, 10**6))
def test_a_shortened_text_is_the_text_or_shorter_and_can_be_written_down(text: str, kept: int, seq: int) -> None:
    found = shortened(text, kept, seq)
    found.encode()
    if found != text:
        note = NOTE.search(found)
        assert note is not None
        assert len(found) < len(text)
        assert int(note[2]) == seq
        assert text.startswith(found[: note.start()])
        assert text.endswith(found[note.end() :])
