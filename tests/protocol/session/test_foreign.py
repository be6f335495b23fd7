"""Foreign event types: a reader that has the plugin may go on, any other refuses and says what it lacks."""

from __future__ import annotations

import pytest

from refold_protocol.errors import SessionFormatUnsupportedError
from refold_protocol.json_text import JsonText
from refold_protocol.session.codec import refuse_foreign, seal
from refold_protocol.session.events import Draft, ForeignData, is_readable, plugin_of, readable

EVENT = seal(Draft(ForeignData(JsonText("{}")), type="notes/taken"), 4, 0)


def test_an_event_of_a_plugin_that_is_not_here_is_refused_with_its_type_and_its_plugin() -> None:
    with pytest.raises(SessionFormatUnsupportedError) as caught:
        refuse_foreign(EVENT)
    assert "event 4 has the type 'notes/taken'" in caught.value.message
    assert "The plugin 'notes' is missing" in caught.value.message


def test_with_the_plugin_it_is_read_and_without_it_refused_again() -> None:
    with readable(["notes/taken", "notes/lost"]):
        refuse_foreign(EVENT)
        with readable(["notes/taken"]):
            assert is_readable("notes/taken")
        refuse_foreign(EVENT)
    assert not is_readable("notes/taken")
    with pytest.raises(SessionFormatUnsupportedError):
        refuse_foreign(EVENT)


def test_another_type_of_the_same_plugin_is_not_read_by_guess() -> None:
    with readable(["notes/lost"]), pytest.raises(SessionFormatUnsupportedError):
        refuse_foreign(EVENT)


@pytest.mark.parametrize(("name", "plugin"), [("a/b", "a"), ("a/b/c", "a"), ("a", None), ("/b", None), ("a/", None)])
def test_the_plugin_stands_before_the_first_slash(name: str, plugin: str | None) -> None:
    assert plugin_of(name) == plugin
