"""Bounds and plans: how much is summed up, how long the summary may be, and that the call fits the window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.errors import ConfigError
from refold_protocol.session.codec import seal
from refold_protocol.session.events import Draft, Event, UserMessage
from refold_protocol.session.messages import Source, text_content
from refold_protocol.session.meter import Pressure
from refold_server.compaction.compaction_decision import Bounds, PlanInput, bounds_of, planned, scale_of
from refold_server.config import CompactionConfig


def nodes(count: int) -> tuple[Event, ...]:
    made = Draft(UserMessage(text_content("x"), Source("client")), surface_op="append")
    return tuple(seal(made, seq, 1) for seq in range(count))


def test_the_default_bounds_are_shares_of_the_window() -> None:
    assert bounds_of(CompactionConfig(), 8_192) == Bounds(8_192, 6_553, 1_310)
    assert bounds_of(CompactionConfig(threshold_ratio=0.5, retain_tokens=100), 8_192) == Bounds(8_192, 4_096, 100)


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        (CompactionConfig(retain_tokens=6_553), "retain_tokens"),
        (CompactionConfig(threshold_ratio=0.16), "threshold_ratio"),
    ],
)
def test_a_tail_that_reaches_the_threshold_is_refused(policy: CompactionConfig, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bounds_of(policy, 8_192)
    assert caught.value.key == key


def test_a_tail_just_below_the_threshold_is_taken() -> None:
    assert bounds_of(CompactionConfig(retain_tokens=6_552), 8_192).retain == 6_552


def test_the_cap_is_that_of_the_settings_where_it_fits() -> None:
    plan = planned(PlanInput(nodes(10), (100,) * 10, 500, 50, 100_000, 8_192), retain=250)
    assert plan is not None
    assert (plan.region.count, plan.region.tokens, plan.cap) == (7, 700, 8_192)


def test_the_cap_is_what_is_left_of_the_window_where_that_is_less() -> None:
    plan = planned(PlanInput(nodes(10), (100,) * 10, 500, 50, 2_000, 8_192), retain=250)
    assert plan is not None
    assert plan.cap == 2_000 - 500 - 700


def test_a_region_is_bounded_by_what_the_call_may_hold() -> None:
    plan = planned(PlanInput(nodes(100), (100,) * 100, 500, 50, 4_000, 8_192), retain=0)
    assert plan is not None
    assert (plan.region.tokens, plan.cap) == (3_000, 500), "an eighth of the window is left for the summary"


def test_less_is_left_for_the_summary_where_nothing_can_be_summed_up_otherwise() -> None:
    plan = planned(PlanInput(nodes(10), (100,) * 10, 3_450, 50, 4_000, 8_192), retain=0)
    assert plan is not None
    assert (plan.region.tokens, plan.cap) == (400, 150)


def test_a_region_that_no_summary_can_be_shorter_than_is_left_alone() -> None:
    assert planned(PlanInput(nodes(2), (25, 25), 10, 50, 4_000, 100), retain=0) is None
    assert planned(PlanInput(nodes(2), (26, 25), 10, 50, 4_000, 100), retain=0) is not None


def test_what_a_provider_counted_scales_all_estimates() -> None:
    """E-07: an estimate that is too low by half would plan a call that does not fit, and keep twice the tail."""
    plan = planned(PlanInput(nodes(10), (100,) * 10, 100, 50, 4_000, 500, scale=2.0), retain=400)
    assert plan is not None
    assert plan.region.tokens == 800, "400 counted tokens are 200 estimated ones"
    assert plan.cap == 500


@pytest.mark.parametrize(
    ("counted", "refused", "scale"), [(900, False, 1.0), (1_500, False, 1.5), (900, True, 8.0), (20_000, True, 20.0)]
)
def test_a_scale_is_at_least_one_and_that_of_a_refusal_fills_the_window(counted: int, refused: bool, scale: float) -> None:
    pressure = Pressure("p/m", 8_000, counted, 400, 600, None, 1)
    assert scale_of(pressure, Bounds(8_000, 6_400, 1_280), refused=refused) == scale


@given(
    prices=st.lists(st.integers(0, 500), max_size=30),
    beside=st.integers(0, 3_000),
    window=st.integers(1, 12_000),
    most=st.integers(1, 9_000),
    scale=st.floats(1, 8),
    retain=st.integers(0, 4_000),
)
def test_a_planned_call_fits_its_window(
    prices: list[int], beside: int, window: int, most: int, scale: float, retain: int
) -> None:
    plan = planned(PlanInput(nodes(len(prices)), prices, beside, 50, window, most, scale), retain)
    if plan is not None:
        assert 1 <= plan.cap <= most
        assert (beside + plan.region.tokens) * scale + plan.cap <= window + 2, "but for what rounding makes of it"
        assert sum(prices) - plan.region.tokens >= int(retain / scale)
