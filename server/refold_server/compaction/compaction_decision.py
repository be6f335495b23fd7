"""The decision of a compaction: whether the history is made shorter, which nodes are summed up, which results are cut.

Pure: what nodes cost and how full the window is come in as figures. Figures are tokens as the session model's meter counts
them, whichever model sums up. A region never divides a call from its result: the request that follows would begin with a
result that nobody asked for, and providers refuse that for ever. Estimates may be far from what a provider counts; where one
counted, or refused, all figures are scaled by how far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from refold_protocol.errors import ConfigError, RefoldError
from refold_protocol.session.events import Event, SeqRange, SessionSettings, ToolResult, UserMessage
from refold_protocol.session.messages import Source
from refold_protocol.session.meter import Pressure
from refold_protocol.session.surface import calls_of
from refold_protocol.session.token_estimate import MeterProfile
from refold_server.compaction.result_cuts import Cut, before_tail, cuts_of, message_cuts
from refold_server.config import CompactionConfig

COMPACTION = Source("loop", "compaction")
"""The source of the message that stands for a region."""


class Region(Struct, frozen=True, gc=False):
    """The first `count` nodes of a surface: their seqs at both edges, and what they cost together in tokens."""

    first: int
    last: int
    count: int
    tokens: int


def region_of(nodes: Sequence[Event], prices: Sequence[int], retain: int, most: int | None = None) -> Region | None:
    """Give the largest region that leaves at least `retain` tokens after it and costs at most `most` (None: any).

    `prices` has the tokens of each node, in the surface's order. None where no such region is worth a summary: there is no
    place to cut, or what could be summed up is one summary. O(nodes).
    """
    total, tokens, found = sum(prices), 0, 0
    for cut, price in _cuts(nodes, prices):
        if total - price < retain or (most is not None and price > most):
            break
        found, tokens = cut, price
    if found == 0 or (found == 1 and is_summary(nodes[0])):
        return None
    return Region(nodes[0].seq, nodes[found - 1].seq, found, tokens)


def is_summary(node: Event) -> bool:
    """Tell whether a node is a message that a compaction put in place of a region."""
    return isinstance(node.data, UserMessage) and node.data.source == COMPACTION


def ranges_of(seqs: Sequence[int]) -> tuple[SeqRange, ...]:
    """Give seqs, in any order, as ascending ranges."""
    ranges: list[SeqRange] = []
    for seq in sorted(seqs):
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return tuple(ranges)


def _cuts(nodes: Sequence[Event], prices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Iterate over the places between two nodes where no call waits for its result: how many nodes stand before it, and
    their price. The last one is the surface's end."""
    waiting, price = 0, 0
    for position, node in enumerate(nodes):
        price += prices[position]
        waiting += len(calls_of(node)) - isinstance(node.data, ToolResult)
        if not waiting:
            yield position + 1, price


_WORTH: Final = 10
"""A compaction is worth its call where at least one in so many tokens of the window becomes free."""

RETAINED_SHARE: Final = 0.16
"""The share of the window that stays as it is at the end of the history, where nothing else is set."""


def policy_of(configured: CompactionConfig, settings: SessionSettings) -> CompactionConfig:
    """Give the compaction settings of a session: field by field, its own go before the configuration's."""
    given = settings.compaction
    if given is None:
        return configured
    return replace(configured, **{name: value for name, value in asdict(given).items() if value is not None})


class Bounds(Struct, frozen=True, gc=False):
    """Of a model with `window` tokens: the history is compacted when a request reaches `threshold`, and `retain` at its end
    stay as they are."""

    window: int
    threshold: int
    retain: int

    @property
    def hard_threshold(self) -> int:
        """From how many tokens on the history is made shorter whatever it costs: half-way from the threshold to the window's
        end."""
        return (self.threshold + self.window) // 2

    @property
    def worth(self) -> int:
        """How many tokens must be new to a summary below the hard threshold, and become free where results are cut. Where
        header and tail alone come near the threshold, each message would else be summed up by itself: for a whole request each
        time, and the cache after it."""
        return self.window // _WORTH

    @property
    def least(self) -> int:
        """The same above the hard threshold: fewer tokens are not worth a call there either."""
        return self.worth // 4


def bounds_of(policy: CompactionConfig, window: int) -> Bounds:
    """Give the bounds for a window. Raises ConfigError, with the key's last part, for a tail that reaches the threshold."""
    threshold = int(window * policy.threshold_ratio)
    retain = int(window * RETAINED_SHARE) if policy.retain_tokens is None else policy.retain_tokens
    if retain < threshold:
        return Bounds(window, threshold, retain)
    if policy.retain_tokens is None:
        reason = f"expects more than {RETAINED_SHARE}, the share of the window that stays as it is; it is "
        raise ConfigError("threshold_ratio", f"{reason}{policy.threshold_ratio:g}")
    reason = f"expects less than {threshold}, where compaction begins in a window of {window} tokens; it is {retain}"
    raise ConfigError("retain_tokens", reason)


_SHARES: Final = (8, 32)
"""One in so many tokens of the window is left for the summary: the second where nothing can be summed up with the first."""


class Plan(Struct, frozen=True, gc=False):
    """Sum up `region` in at most `cap` tokens."""

    region: Region
    cap: int


class PlanInput(Struct, frozen=True):
    """What a plan is made from. `nodes` and `prices` are the surface's. Estimates: `overhead` of what a summary call costs
    besides the region (header and instructions), `frame` of a summary without a word. `window` is that of the model that sums
    up, `most` its settings' bound of a summary; `scale` is by how much a provider counts more than was estimated."""

    nodes: Sequence[Event]
    prices: Sequence[int]
    overhead: int
    frame: int
    window: int
    most: int
    scale: float = 1.0


def planned(given: PlanInput, retain: int, region_most: int | None = None) -> Plan | None:
    """Plan the compaction of all but `retain` tokens, of a region that costs at most `region_most` by estimate. None where
    nothing can be summed up."""
    plans = (_planned(given, retain, region_most, share) for share in _SHARES)
    return next((plan for plan in plans if plan is not None), None)


def _planned(given: PlanInput, retain: int, region_most: int | None, share: int) -> Plan | None:
    reserve = max(1, min(given.most, given.window // share))
    fits = int((given.window - reserve) / given.scale) - given.overhead
    most = fits if region_most is None else min(fits, region_most)
    region = region_of(given.nodes, given.prices, int(retain / given.scale), most)
    if region is None or region.tokens <= given.frame:
        return None
    left = given.window - int((given.overhead + region.tokens) * given.scale)
    return Plan(region, max(1, min(given.most, left)))


def scale_of(pressure: Pressure, bounds: Bounds, *, refused: bool = False) -> float:
    """Give by how much a provider counts more than estimates say, at least 1. `refused`: it said that all of it does not
    fit, so it counts at least the window."""
    estimated = max(1, pressure.header + pressure.surface)
    counted = max(pressure.tokens, bounds.window if refused else 0)
    return max(1.0, counted / estimated)


class WindowUsage(Struct, frozen=True):
    """How full the window of a session's next model is, and in which bounds its history is kept. `refused`: a provider said
    that the request does not fit."""

    profile: MeterProfile
    policy: CompactionConfig
    bounds: Bounds
    pressure: Pressure
    refused: bool = False

    @property
    def tokens(self) -> int:
        """The pressure; of a request that was refused, at least the window."""
        return max(self.pressure.tokens, self.bounds.window if self.refused else 0)

    @property
    def scale(self) -> float:
        """By how much a provider counts more than estimates say."""
        return scale_of(self.pressure, self.bounds, refused=self.refused)

    @property
    def is_due(self) -> bool:
        """Whether the request reaches the threshold."""
        return self.tokens >= self.bounds.threshold

    @property
    def is_urgent(self) -> bool:
        """Whether the history must become shorter whatever it costs."""
        return self.tokens >= self.bounds.hard_threshold


class Decision(Struct, frozen=True):
    """What is done: results are cut, then a region is summed up."""

    cuts: tuple[Cut, ...] = ()
    plan: Plan | None = None


_LESS: Final = 4
"""One in so many tokens of the tail stays where the tail is what fills the window."""


def decide(usage: WindowUsage, given: PlanInput) -> Decision:
    """Decide how a history that is due becomes shorter. Large results before the tail are cut first, which costs no call, where
    that is enough for a while. What is summed up is not cut before: the summary would be made from less and paid in full.
    Results after the region are cut where a summary alone would not be enough."""
    cuts = _cuts_in(usage, given, 0, before_tail(given.prices, int(usage.bounds.retain / usage.scale)))
    if _is_enough(usage, cuts):
        return Decision(cuts)
    plan = _worthwhile(usage, given)
    if plan is None:  # below the hard threshold, what the model has not read yet would be cut from every result
        return Decision(last_cuts(usage, given) if usage.is_urgent else ())
    if usage.tokens - _news(usage, given, plan) < usage.bounds.hard_threshold:
        return Decision((), plan)
    cuts = _cuts_in(usage, given, plan.region.count, len(given.nodes))
    return Decision(cuts, None if _is_enough(usage, cuts) else plan)


def last_cuts(usage: WindowUsage, given: PlanInput) -> tuple[Cut, ...]:
    """Give everything that can be cut where nothing can be summed up: a message that takes the window by itself must not make a
    session useless."""
    return (
        *_cuts_in(usage, given, 0, len(given.nodes)),
        *message_cuts(given.nodes, given.prices, usage.profile),
    )


def _worthwhile(usage: WindowUsage, given: PlanInput) -> Plan | None:
    """Plan a compaction that is worth its call: much of what is summed up was in no summary before. Above the hard threshold a
    smaller one is taken as well, and less stays at the end, so that the next one is not due at once."""
    bounds = usage.bounds
    plan = planned(given, bounds.retain)
    if plan is not None and _news(usage, given, plan) >= bounds.worth:
        return plan
    if not usage.is_urgent:
        return None
    plan = planned(given, bounds.retain // _LESS) or plan
    return plan if plan is not None and _news(usage, given, plan) >= bounds.least else None


def _news(usage: WindowUsage, given: PlanInput, plan: Plan) -> float:
    """Give how many tokens of a plan's region no summary stands for yet, as the provider counts them."""
    known = given.prices[0] if is_summary(given.nodes[0]) else 0
    return (plan.region.tokens - known) * usage.scale


def _cuts_in(usage: WindowUsage, given: PlanInput, first: int, end: int) -> tuple[Cut, ...]:
    return cuts_of(given.nodes[first:end], given.prices[first:end], usage.profile)


def _is_enough(usage: WindowUsage, cuts: tuple[Cut, ...]) -> bool:
    """Tell whether cuts alone are enough for a while."""
    saved = sum(cut.saved for cut in cuts) * usage.scale
    return bool(cuts) and saved >= usage.tokens - (usage.bounds.threshold - usage.bounds.worth)


_ASKED: Final = """\
The window of this session is filling up. Everything above will be replaced by a summary, and you write it now. You will go \
on from it without seeing the messages above, so whatever is not in it is lost to you.

Use these headings, and leave out one that would be empty:
1. What the user wants, word for word where the wording matters
2. What was found out and decided, with the reasons
3. Files and code: exact paths, names and line numbers, and short passages that are needed word for word
4. Errors, and what became of each
5. What is done, what is under way, what comes next

Answer with the summary alone, as text. Call no tool."""

_WISHES: Final = "\n\nThe user says about this summary: "

_OPENING: Final = (
    "The earlier part of this session was replaced by a summary of it. Take it as what happened, and go on from there."
    "\n\n<summary>\n"
)
_CLOSING: Final = "\n</summary>"


def instructions(wishes: str | None = None) -> str:
    """Give the text that asks for a summary, with what a person wants of it."""
    return _ASKED if wishes is None or not wishes.strip() else f"{_ASKED}{_WISHES}{wishes.strip()}"


def replacement(summary: str) -> str:
    """Give the text that stands for a region from now on."""
    return f"{_OPENING}{summary.strip()}{_CLOSING}"


_PASSING: Final = frozenset(
    {
        "compaction.failed",
        "provider.unreachable",
        "provider.overloaded",
        "provider.badStream",
        "provider.timeout",
        "provider.contextOverflow",
    }
)


class CompactionError(RefoldError):
    """A history could not be compacted, and is what it was. `again` tells whether another try may do better."""

    kind = "compaction.failed"

    def __init__(self, message: str, *, again: bool = False, **details: Any) -> None:
        super().__init__(message, **details)
        self.again = again


def is_passing(error: RefoldError) -> bool:
    """Tell whether asking once more may help: models word a summary differently, and servers come back."""
    if isinstance(error, CompactionError):
        return error.again
    return error.error_kind in _PASSING
