"""The finish reasons of chat-completions servers: what each of their words means, and which of two counts.

A word that no table knows is judged by its stem: what speaks of giving up never completes a reply.
"""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final[dict[str, str]] = {
    "stop": "stop end_turn eos eos_token end_of_sequence stop_sequence stop_string stop_token end complete completed finished",
    "length": "length max_tokens max_length model_length max_output_tokens max_completion_tokens token_limit "
    "model_context_window_exceeded context_length_exceeded",
    "tool-calls": "tool_calls tool_call tool_use function_call function_calls",
    "content-filter": "content_filter content_filtered safety recitation prohibited_content blocklist spii image_safety "
    "sensitive guardrail_intervened moderation",
    "refusal": "refusal refused",
    "pause": "pause pause_turn",
    "aborted": "abort aborted cancel cancelled canceled timeout timed_out time_limit error failed failure network_error "
    "internal_error server_error insufficient_system_resource malformed_function_call malformed_tool_call malformed_response "
    "unexpected_tool_call too_many_tool_calls missing_thought_signature preempted evicted shutdown disconnected engine_dead "
    "overloaded unavailable interrupted killed",
}
_REASONS: Final = {word: reason for reason, words in _WORDS.items() for word in words.split()}

_GIVEN_UP: Final = re.compile(
    r"abort|cancel|time.?out|timed.?out|error|fail|malformed|insufficient|interrupt|overload|unavailable|preempt|evict|shut.?down"
    r"|disconnect|crash|kill|dead|broken|unexpected|exhausted|out.?of.?memory|oom\b"
)
_NOTHING: Final = frozenset({"", "null", "none", "undefined"})

_WEIGHT: Final = {
    "stop": 0,
    "other": 1,
    "tool-calls": 1,
    "length": 2,
    "pause": 2,
    "refusal": 3,
    "content-filter": 3,
    "aborted": 4,
}


def reason_of(word: str) -> str | None:
    """Give the reason that a server's word means (`other` for one that nobody knows), None where it says nothing."""
    known = word.strip().lower()
    if known in _NOTHING:
        return None
    if (reason := _REASONS.get(known)) is not None:
        return reason
    return "aborted" if _GIVEN_UP.search(known) else "other"


def outweighs(reason: str, other: str | None) -> bool:
    """Whether the later `reason` counts where both came in one reply: `stop` takes nothing back."""
    return other is None or _WEIGHT[reason] >= _WEIGHT[other]


def kind_of_abort(word: str) -> str:
    """Give the kind of error for a word that means `aborted`."""
    known = word.lower()
    if "malformed" in known or "unexpected" in known or "too_many" in known or "signature" in known:
        return "provider.badStream"
    return "provider.timeout" if "time" in known else "provider.overloaded"
