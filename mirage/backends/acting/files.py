"""Files in places where the daemon may not look, checked by a process of their owner's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.orders import LONGEST_TEXT, CheckFiles
from mirage.backends.backgroundfiles import BackgroundFiles, CheckLimits
from mirage.domain.errors import MirageError
from mirage.domain.files import FileState, Presence
from mirage.domain.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.acting.orders import Act, Answer


def files_by_order(ask: Callable[[str, Act], Answer], limits: CheckLimits) -> BackgroundFiles:
    """Files that ``ask``, as in ``ByOrder``, has checked in their owner's name."""

    def check(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
        try:
            answer = ask(owner, CheckFiles(paths))
            answer.job()
        except MirageError as error:
            return (FileState(Presence.UNKNOWN, one_line(str(error), LONGEST_TEXT)),) * len(paths)
        if len(answer.files) != len(paths):
            text = f"{owner}: the answer is about {len(answer.files)} files instead of {len(paths)}"
            return (FileState(Presence.UNKNOWN, text),) * len(paths)
        return answer.files

    return BackgroundFiles(check, limits=limits)
