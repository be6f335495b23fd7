"""E-07: Chinese, Japanese and Korean in a small window, before a provider that counts truly: nothing overflows."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.events import CompactSummary, StepEnd
from refold_protocol.session.messages import Chunk, Usage, UsageChunk, text_of
from refold_protocol.session.request import Request
from refold_protocol.session.token_estimate import Density, MeterProfile
from refold_server.requests.session_meters import ModelTokenMeter
from tests.support.loop_host import ScriptedHost, ScriptedProvider, says
from tests.support.loops import assert_proven, end_of, scripted_session, turn
from tests.support.plugging import of_type

pytestmark = pytest.mark.anyio

WINDOW = 8_000
TEXTS = {"Chinese": ("汉字", 1.0), "Japanese": ("ひらがな漢字", 1.0), "Korean": ("한국어", 1.0), "English": ("the words ", 4.5)}


class CountingProvider(ScriptedProvider):
    """Counts `characters` a token, refuses what does not fit, and says how many it counted where it `reports`."""

    def __init__(self, characters: float, reports: bool) -> None:
        super().__init__()
        self.characters = characters
        self.reports = reports
        self.refusals = 0

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        told = sum(len(text_of(message.content)) for message in request.messages())
        tokens = int(told / self.characters) + 40
        if tokens > WINDOW:
            self.refusals += 1
            raise ProviderError("provider.contextOverflow", f"{tokens} tokens asked, the window holds {WINDOW}")
        reply = [one for one in says("好") if not isinstance(one, UsageChunk)]
        for chunk in [*reply[:-1], *([UsageChunk(Usage(tokens, 1))] if self.reports else []), reply[-1]]:
            yield chunk


def host(provider: CountingProvider, density: Density) -> ScriptedHost:
    made = ScriptedHost(provider)
    made.window = WINDOW
    made.meters["scripted/small"] = ModelTokenMeter(MeterProfile("scripted/small", WINDOW, density))
    return made


@pytest.mark.parametrize("reports", [True, False], ids=["that reports", "that reports nothing"])
@pytest.mark.parametrize(("unit", "characters"), TEXTS.values(), ids=TEXTS.keys())
async def test_compaction_begins_before_the_provider_refuses(unit: str, characters: float, reports: bool) -> None:
    provider = CountingProvider(characters, reports)
    async with scripted_session(host(provider, Density(4.0, "script"))) as session:
        for _ in range(12):
            text = unit * int(1_200 * characters / len(unit))
            assert end_of(await turn(session, text)) == "completed"
        assert provider.refusals == 0
        assert len(of_type(session, CompactSummary)) >= 1
        assert_proven(session)


async def test_a_density_that_is_too_low_is_made_good_by_what_the_provider_counted() -> None:
    """Four characters a token: only what came after the last report is estimated, so it goes well in small steps."""
    provider = CountingProvider(1.0, reports=True)
    async with scripted_session(host(provider, Density(4.0))) as session:
        for _ in range(20):
            assert end_of(await turn(session, "汉字" * 400)) == "completed"
        assert len(of_type(session, CompactSummary)) >= 2
        ends = [event.data for event in of_type(session, StepEnd)]
        assert provider.refusals == sum(end.outcome == "overflow" for end in ends if isinstance(end, StepEnd))
        assert provider.refusals <= 2
        assert_proven(session)
