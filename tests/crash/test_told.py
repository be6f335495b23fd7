"""What the harness takes for a fact where two clients change one store."""

from __future__ import annotations

from tests.crash.told import Told

FORKED = b'> {"id":1,"method":"session/fork","params":{"session":"s"}}\n< {"id":1,"result":{"session":"f","tail":3}}\n'
DELETED = b'> {"id":1,"method":"session/delete","params":{"session":"f"}}\n< {"id":1,"result":{}}\n'


def test_a_fork_that_the_one_who_died_first_deleted_need_not_be_there() -> None:
    told = Told()
    told.hear(DELETED)
    told.hear(FORKED)
    assert told.durable == {}
    assert told.gone == {"f"}


def test_a_fork_that_nobody_deleted_must_be_there() -> None:
    told = Told()
    told.hear(FORKED)
    assert told.durable == {"f": 3}
