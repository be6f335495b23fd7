"""What tests of the session prefix share: composing with the built-in contributors, and telling openers from history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refold_protocol.session.messages import TextBlock
from refold_server.config import PrefixConfig
from refold_server.plugins.hook_runner import PluginFailure
from refold_server.plugins.session_hooks import NOWHERE, SessionHooks
from refold_server.prefix.contributors import OpenFiles, PrefixSources, built_in
from refold_server.tools.open_buffers import NO_BUFFERS
from refold_server.tools.skill_index import SkillFolders

EVERY = PrefixConfig()
BARE = SkillFolders()

OPENER = '<context source="refold:'
"""How the message of each built-in contributor begins."""


def repository(root: Path, branch: str = "main") -> Path:
    """Make a folder the root of a repository, as far as refold looks, and give it."""
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    return root


async def composed(
    cwd: Path,
    config: PrefixConfig = EVERY,
    *,
    shelf: SkillFolders = BARE,
    buffers: OpenFiles = NO_BUFFERS,
) -> dict[str, str]:
    """Compose the prefix of a session in `cwd`; give the text of each contributor that says something, in order."""
    failures: list[PluginFailure] = []
    hooks = SessionHooks(built_in(config, PrefixSources(lambda: shelf, buffers)), NOWHERE, str(cwd))
    hooks.report = failures.append
    composition = await hooks.session_prefix(hooks.place(1, 1))
    assert failures == [], failures
    texts: dict[str, str] = {}
    for one in composition.contributions:
        for message in one.messages:
            (block,) = message.content
            assert isinstance(block, TextBlock)
            head, tail = f'{OPENER}{one.contributor}">\n', "\n</context>"
            assert message.role == "user"
            assert block.text.startswith(head)
            assert block.text.endswith(tail)
            texts[one.contributor] = block.text[len(head) : -len(tail)]
    return texts


def is_opener(message: Mapping[str, Any]) -> bool:
    """Tell whether a message of a body is a built-in contributor's."""
    return message["role"] == "user" and str(message["content"]).startswith(OPENER)


def without_opener(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the built-in contributors' messages at the start of a body's messages."""
    kept = list(messages)
    while kept and is_opener(kept[0]):
        kept.pop(0)
    return kept
