"""Compaction as one session has it: before its model's settings and those for all, and never at odds with the window.

Invariant: What a session says of compaction goes before the configuration, and is refused where it does not go with the
window.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import ConfigError
from refold_protocol.session.events import CompactionSettings, CompactStart, LimitSettings, SessionSettings
from refold_protocol.session.messages import Chunk, UsageChunk
from refold_server.compaction.compaction_decision import policy_of
from refold_server.config import CompactionConfig
from refold_server.sessions.session import Session
from refold_server.sessions.session_registry import Sessions
from refold_server.sessions.session_settings import SettingsPatch, patched
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, end_of, scripted_session, turn, types
from tests.support.memory_store import MemoryStore

STORY = "It is a long story. " * 54
"""1,080 tokens of a `ScriptedHost`, which counts characters."""


def story(text: str = STORY) -> list[Chunk]:
    """A reply of a provider that counts no tokens."""
    return [chunk for chunk in says(text) if not isinstance(chunk, UsageChunk)]


def host(*texts: str, window: int | None = 4_000, policy: CompactionConfig | None = None) -> ScriptedHost:
    made = ScriptedHost(ScriptedProvider(*(story(text) for text in texts)))
    made.window = window
    made.policy = policy or CompactionConfig()
    return made


def compaction(auto: bool | None = None, ratio: float | None = None, retain: int | None = None) -> SettingsPatch:
    return SettingsPatch(compaction=CompactionSettings(auto, ratio, retain))


def compactions(session: Session) -> list[CompactStart]:
    return [event.data for event in session.session_log.handle.read() if isinstance(event.data, CompactStart)]


FIELDS = st.builds(
    CompactionSettings,
    st.none() | st.booleans(),
    st.none() | st.floats(0.01, 0.99),
    st.none() | st.integers(1, 10_000),
)


@given(FIELDS, FIELDS)
def test_a_patch_changes_what_it_names_and_leaves_the_rest(before: CompactionSettings, patch: CompactionSettings) -> None:
    rest = SessionSettings("a/b", "low", limits=LimitSettings(3))
    made = patched(SessionSettings("a/b", "low", None, rest.limits, before), SettingsPatch(compaction=patch))
    found = made.compaction
    assert found is not None
    for name in CompactionSettings.__struct_fields__:
        named = getattr(patch, name)
        assert getattr(found, name) == (getattr(before, name) if named is None else named)
    assert SessionSettings(made.model, made.effort, made.permissions, made.limits) == rest
    assert patched(made, SettingsPatch(compaction=patch)) == made
    assert patched(made, SettingsPatch(effort="low")) == made


@given(FIELDS)
def test_a_session_goes_field_by_field_before_the_configuration(own: CompactionSettings) -> None:
    configured = CompactionConfig(0.7, 123, "a/b", 500, 3, False)
    found = policy_of(configured, SessionSettings(compaction=own))
    for name in CompactionConfig.__struct_fields__:
        named = getattr(own, name, None)
        assert getattr(found, name) == (getattr(configured, name) if named is None else named)
    assert policy_of(configured, SessionSettings("a/b")) is configured


@pytest.mark.anyio
async def test_a_session_that_wants_none_is_not_compacted_by_itself_though_the_configuration_says_so() -> None:
    async with scripted_session(host(*[STORY] * 6)) as session:
        settings, _ = await session.configure(compaction(auto=False))
        assert settings == SessionSettings(compaction=CompactionSettings(auto=False))
        for _ in range(6):
            assert end_of(await turn(session)) == "completed"
        assert compactions(session) == []
        assert_proven(session)


@pytest.mark.anyio
async def test_a_session_that_wants_it_is_compacted_though_the_configuration_says_otherwise() -> None:
    around = host(*[STORY] * 3, "Three stories.", "fine", policy=CompactionConfig(auto=False))
    async with scripted_session(around) as session:
        await session.configure(compaction(auto=True))
        for prompt in ("one", "two", "three", "four"):
            await turn(session, prompt)
        assert [start.trigger for start in compactions(session)] == ["pressure"]


@pytest.mark.anyio
async def test_the_threshold_of_a_session_holds_from_the_next_request_on_and_after_a_resume() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(STORY, STORY), store=store) as session:
        await turn(session, "one")
        await turn(session, "two")
        await session.configure(compaction(ratio=0.5))
        assert compactions(session) == [], "a setting compacts nothing by itself"
    async with scripted_session(host("Two stories.", "fine"), store=store) as session:
        await turn(session, "three")
        assert [start.turn for start in compactions(session)] == [3]
        assert_proven(session)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (
            compaction(retain=3_200),
            "compaction: retainTokens expects less than 3200, where compaction begins in a window of 4000 tokens; it is 3200"
            " (model scripted/small)",
        ),
        (compaction(ratio=0.1), "compaction: thresholdRatio expects more than 0.16"),
        (compaction(auto=False, ratio=0.5, retain=2_000), "compaction: retainTokens expects less than 2000"),
    ],
)
async def test_what_does_not_go_with_the_window_is_refused_and_nothing_is_recorded(patch: SettingsPatch, said: str) -> None:
    async with scripted_session(host()) as session:
        with pytest.raises(ConfigError) as caught:
            await session.configure(patch)
        assert caught.value.key == "compaction"
        assert caught.value.message.startswith(said)
        assert types(session) == []


@pytest.mark.anyio
async def test_a_model_whose_window_is_too_small_for_what_the_session_retains_is_refused() -> None:
    around = host()
    around.windows["scripted/tiny"] = 1_000
    async with scripted_session(around) as session:
        await session.configure(compaction(retain=900))
        tail = session.session_log.handle.tail
        with pytest.raises(ConfigError, match=r"it is 900 \(model scripted/tiny\)"):
            await session.configure(SettingsPatch(model="tiny"))
        assert session.session_log.handle.tail == tail
        settings, _ = await session.configure(SettingsPatch("tiny", compaction=CompactionSettings(retain_tokens=90)))
        assert settings == SessionSettings("tiny", compaction=CompactionSettings(retain_tokens=90))


@pytest.mark.anyio
async def test_other_settings_can_be_changed_though_the_window_became_too_small_meanwhile() -> None:
    store = MemoryStore(clock=lambda: 1_000)
    async with scripted_session(host(), store=store) as session:
        await session.configure(compaction(retain=900))
    async with scripted_session(host(window=1_000), store=store) as session:
        settings, _ = await session.configure(SettingsPatch(effort="low"))
        assert settings.effort == "low"


@pytest.mark.anyio
async def test_without_a_window_any_figure_is_kept_for_later() -> None:
    async with scripted_session(host(window=None)) as session:
        settings, _ = await session.configure(compaction(retain=10**9))
        assert settings.compaction == CompactionSettings(retain_tokens=10**9)


@pytest.mark.anyio
async def test_a_new_session_is_refused_what_does_not_go_with_the_window(tmp_path: Path) -> None:
    sessions = Sessions(MemoryStore(clock=lambda: 1_000), lambda cwd: host(), lambda work: None)
    with pytest.raises(ConfigError, match="compaction: thresholdRatio expects more than"):
        await sessions.create(str(tmp_path), SessionSettings(compaction=CompactionSettings(threshold_ratio=0.1)))
    assert list(sessions) == []
    opened = await sessions.create(str(tmp_path), SessionSettings(compaction=CompactionSettings(auto=False)))
    await opened.close()
