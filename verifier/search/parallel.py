"""Several processes on disjoint subtrees of one search.

A process with many open domains forks whenever a core is idle; the fork goes on with half of them, and may fork in
turn.  One that has closed its own part leaves its core to others while its forks still work.  Forks send how far they
are after each batch, and at last their outcome; so no domain ever travels, and the first process knows the whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType

from verifier.processes import NAP, Fork, Send, wait_for
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress, outweighed


class Cores:
    """Idle cores, as bytes in a pipe that all processes of a search read: whoever gets one out may use a core."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._take, self._give = os.pipe()
        os.set_blocking(self._take, False)
        os.write(self._give, bytes(count - 1))  # one is in use from the beginning

    def take(self) -> bool:
        """Whether a core was idle; it is not any more."""
        try:
            return bool(os.read(self._take, 1))
        except BlockingIOError:
            return False

    def give(self) -> None:
        os.write(self._give, b"\0")

    def close(self) -> None:
        os.close(self._take)
        os.close(self._give)


Labour = Callable[[Send], Outcome]


class Crew:
    """The forks of one process, and what they have found.  Leaving the `with` block ends those that still work."""

    def __init__(self, cores: Cores | None) -> None:
        self._cores = cores
        self._working: dict[Fork, Progress] = {}
        self._ended = Progress()
        self._resting = False
        self.witness: Counterexample | None = None
        self.doubt: Reason | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fork in self._working:
            fork.stop()

    @property
    def busy(self) -> bool:
        """Whether some fork still works."""
        return bool(self._working)

    def idle_core(self) -> bool:
        """Take an idle core, if there is one, for a fork that follows."""
        return self._cores is not None and self._cores.take()

    def send_out(self, labour: Labour) -> None:
        """Let a fork do the work.  Require: a core was taken for it."""
        self._working[Fork.start(labour)] = Progress()

    def listen(self) -> None:
        """Take note of what the forks have sent."""
        for fork in list(self._working):
            for message in fork.messages():
                if isinstance(message, Outcome):
                    self._ended = self._ended.beside(message.progress)
                    self.witness = self.witness or message.witness
                    self.doubt = outweighed(self.doubt, message.reason)
                    del self._working[fork]
                elif isinstance(message, Progress):
                    self._working[fork] = message

    def rest(self) -> None:
        """Wait for forks, and leave the core of this process to others."""
        self._leave()
        wait_for(list(self._working), NAP)

    def done(self) -> None:
        """This process is a fork and has nothing left to do."""
        self._leave()

    def _leave(self) -> None:
        if self._cores is not None and not self._resting:
            self._cores.give()
            self._resting = True

    def beside(self, own: Progress) -> Progress:
        """How far this process and all of its forks are together."""
        total = own.beside(self._ended)
        for progress in self._working.values():
            total = total.beside(progress)
        return total
