"""What stands around a command about one instance: files, log, progress, time limit, interrupts, errors."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from verifier.cli.options import Common, start_logging
from verifier.errors import InputError, Undelivered
from verifier.naming import paths_of
from verifier.output import LINE, all_of, prepare, say, tell, wrapped, write_bytes, write_file
from verifier.result.delivery import Delivery
from verifier.result.result import Result, Setting
from verifier.result.status import Status, versions
from verifier.result.undecided import Explanation
from verifier.result.verdict import Reason, Verdict

if TYPE_CHECKING:
    from verifier.loading import Given
    from verifier.pipeline import Request

log = logging.getLogger(__name__)

INTERVAL = 0.2
"""Seconds between two looks at a run."""


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where a verdict goes: stdout, and the files that are given; `json` may be '-' for stdout."""

    json: str | None = None
    result: str | None = None
    counterexample: str | None = None
    quiet: bool = False
    proof: str | None = None  # written by the run itself
    image: str | None = None  # of a counterexample that has one

    def prepare(self, *inputs: str) -> None:
        """Takes old answers away.  Raises InputError if a file cannot be written."""
        prepare((self.json, self.result, self.counterexample, self.proof, self.image), inputs)

    def write(self, result: Result) -> None:
        """All files, then stdout; an error goes to the files only.

        Raises Undelivered, after all others were written, if one of them could not be.  After an error that is not
        said: the user hears of that one, and this may even be its consequence.
        """
        witness = result.witness
        body = f"{result.verdict.value}\n{witness or ''}"
        files = {self.result: body, self.json: result.as_json() + "\n"}
        if witness is not None:
            files[self.counterexample] = witness
        if result.note is not None:
            log.warning("%s", result.note)
        attempts = [partial(write_file, path, text) for path, text in files.items()]
        if self.image is not None and result.counterexample is not None:
            attempts.append(partial(_write_image, self.image, result.counterexample.image))
        if result.verdict is not Verdict.ERROR:
            attempts.append(partial(say, self._text(result, body)))
        failed = all_of(attempts)
        if failed and result.verdict is not Verdict.ERROR:
            raise Undelivered("; ".join(failed))

    def _text(self, result: Result, body: str) -> str:
        if self.json == "-":
            return result.as_json()
        return result.verdict.value if self.quiet else body.rstrip("\n")


def _write_image(path: str, image: Any) -> None:
    """As an array, or as a picture.  Raises Undelivered."""
    from verifier.pixels import image_file

    try:
        write_bytes(path, image_file(image, picture=path.lower().endswith(".png")))
    except InputError as error:
        raise Undelivered(f"{path} cannot be written: {error.message}") from error


class Session(Delivery[Result]):
    """One instance by its paths, and where its verdict goes.

    Guarantees: an answer on every path, exactly one.  Errors are written to the files and raised again, but for files
    that cannot be written to.  Raises Undelivered if the answer could not be written.
    """

    def __init__(
        self,
        network: str,
        prop: str | None,
        options: dict[str, Any],
        proof: str | None = None,
        image: str | None = None,
    ) -> None:
        """Takes the output options out of `options`; what is left are the common ones, as the user gave them."""
        super().__init__()
        outputs = {name: options.pop(name) for name in ("json", "result", "counterexample")}
        self.status = Status(Setting(network, prop))
        self._sinks = Sinks(**outputs, quiet=options["quiet"], proof=proof, image=image)
        self._options = options
        start_logging(options["quiet"], options["verbose"])
        self._sinks.prepare(*paths_of(network), *([] if prop is None else [prop]))

    def begin(self, *special: Any) -> Request:
        """Checks the common options and keeps the time limit from now on; what is to be done.

        `special` are the fields of the request that no other command has, in their order, from `trace` on.
        """
        return begin(self, self.status, self._options, special)

    def begin_without_file(self, load: Callable[[], Given]) -> Request:
        """The same for an instance that is no pair of files."""
        return begin(self, self.status, self._options, load=load)

    def early(self, reason: Reason) -> Result:
        if reason is Reason.TIMEOUT:
            return self.status.conclude(Verdict.TIMEOUT, reason, "the time limit was reached")
        return self.status.conclude(Verdict.UNKNOWN, reason, "the run was interrupted")

    def write(self, answer: Result, last: bool) -> int:
        self._sinks.write(answer)
        if answer.undecided is not None and not self._sinks.quiet:
            said = answer.message or answer.undecided.reason.value
            tell("\n".join([f"undecided: {said}", *_indented(answer.undecided)]))
        return answer.verdict.exit_code

    def failed(self, error: BaseException) -> bool:
        self.give(self.status.fail(error))
        return False


def _indented(why: Explanation) -> list[str]:
    """What explains an answer, below its first line; no line is wider than most terminals."""
    return [part for line in why.lines() for part in wrapped(line, 78, "  ", "    ")]


def begin(
    delivery: Delivery[Any],
    status: Status,
    options: Mapping[str, Any],
    special: tuple[Any, ...] = (),
    load: Callable[[], Given] | None = None,
) -> Request:
    """Checks the common options of a command; from now on the time limit is kept, and a bar shows what is known.

    `special` are the fields of the request from `trace` on.  `load` gives an instance that is no pair of files.

    The status knows the options too, and all that an early answer needs is loaded.
    """
    versions()
    common = Common.of(options)
    network, prop = status.setting.network, status.setting.property
    status.clock = common.clock
    status.setting = Setting(network, prop, common.machine.timeout, common.config.resolved(), common.seed)
    delivery.around.enter_context(progress(status, common.quiet))
    delivery.watch(common.clock)
    from verifier.loading import GivenFiles
    from verifier.pipeline import Request

    assert network is not None
    given = GivenFiles(network, prop or "") if load is None else load()
    return Request(given, common.config, common.machine, common.seed, *special)


@contextlib.contextmanager
def progress(status: Status, quiet: bool) -> Iterator[None]:
    """Shows seconds, bound, domains, their rate, tiers and cores on stderr while the body runs, on a terminal only.

    A thread looks at the status, so that the run need not know about it.
    """
    if quiet or not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(status, stop), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        LINE.erase(for_good=True)


def _show(status: Status, stop: threading.Event) -> None:
    while not stop.wait(INTERVAL):  # a short run needs no line
        LINE.show(str(status.snapshot()))
