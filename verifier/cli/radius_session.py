"""What stands around `verify radius`: files, log, progress, time limit, interrupts, errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from verifier.cli.options import Common, start_logging
from verifier.clock import Clock
from verifier.errors import InputError, Undelivered
from verifier.output import all_of, aside, prepare, say, tell, write_file
from verifier.result.delivery import Delivery
from verifier.result.result import Circumstances, Setting
from verifier.result.status import Status, versions
from verifier.result.verdict import Reason
from verifier.robustness.radius import Radius, Trial

if TYPE_CHECKING:
    from verifier.pipeline import Request
    from verifier.robustness.bisection import Aim, Bisection
    from verifier.robustness.neighbourhood import Neighbourhood
    from verifier.robustness.radii import ImageRadius, Radii, Sweep

AnswerT = TypeVar("AnswerT", bound=Circumstances)


class RadiusSession(Delivery[AnswerT]):
    """One network, and where the answer about it goes: exactly one, also when the time is up or at Ctrl-C."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options
        self.status = Status(Setting(options["net"]))
        start_logging(options["quiet"], options["verbose"])
        if options["plot"] is not None:
            from verifier.report.curves import check_drawable

            check_drawable(options["plot"])
        inputs = [options[name] for name in ("net", "data", "inputs", "labels", "source")]
        outputs = [options[name] for name in ("json", "counterexample", "plot")]
        prepare(outputs, [path for path in inputs if path is not None])

    @abstractmethod
    def run(self) -> AnswerT:
        """Finds out what can be found."""

    @abstractmethod
    def lines(self, answer: AnswerT) -> tuple[list[str], bool]:
        """The answer for people, and whether anything is known."""

    def files(self, answer: AnswerT) -> dict[str | None, str]:
        """Further files with what they get."""
        return {}

    def draw(self) -> None:
        """What comes after the answer."""

    def begin(self) -> tuple[Request, Aim, Neighbourhood]:
        """Checks the options.  Raises InputError."""
        versions()
        common = Common.of(self.options)
        network = self.options["net"]
        self.status.clock = common.clock
        self.status.setting = Setting(network, None, common.machine.timeout, common.config.resolved(), common.seed)
        from verifier.pipeline import Request
        from verifier.property.robustness import exact_number
        from verifier.robustness.bisection import Aim
        from verifier.robustness.neighbourhood import Neighbourhood
        from verifier.robustness.place import Unstated

        most = None if self.options["most"] is None else exact_number(self.options["most"], "--max-eps")
        if most is not None and most <= 0:
            raise InputError(f"--max-eps is {self.options['most']}, it must be positive")
        names = ("norm", "clip", "mean", "std")
        around = Neighbourhood.of(*(self.options[name] for name in names))
        request = Request(Unstated(network), common.config, common.machine, common.seed)
        return request, Aim(self.options["tolerance"], most), around

    def write(self, answer: AnswerT, last: bool) -> int:
        lines, known = self.lines(answer)
        text = answer.as_json() if self.options["json"] == "-" else "\n".join(lines)
        files = {self.options["json"]: answer.as_json() + "\n", **self.files(answer)}
        attempts = [partial(write_file, path, data) for path, data in files.items()]
        if failed := all_of([*attempts, partial(say, text)]):
            raise Undelivered("; ".join(failed))
        return 0 if known else 3

    def failed(self, error: BaseException) -> bool:
        with suppress(Undelivered):
            write_file(self.options["json"], self.status.fail(error).as_json() + "\n")
        return False

    def tell(self, line: str) -> None:
        """Progress, for people."""
        if not self.options["quiet"]:
            tell(f"{self.status.clock.elapsed():7.1f} s  {line}")


class OneRadius(RadiusSession[Radius]):
    """The radius of one input."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._bisection: Bisection | None = None

    def run(self) -> Radius:
        request, aim, around = self.begin()
        self.watch(self.status.clock)
        from verifier.network.models.onnx import load_onnx
        from verifier.robustness.bisection import Bisection
        from verifier.robustness.images import check_fits, load_array
        from verifier.robustness.place import Place

        source = self.options["source"]
        centre = load_array(source)
        model = load_onnx(self.options["net"], declared=centre.size)
        check_fits(centre.shape, model.input_shape, source)
        self.status.network_sha256 = model.sha256
        place = Place.of(model, centre.reshape(model.input_shape), self.options["label"], around)
        self._bisection = Bisection(request, self.status, place, aim, hear=self._hear)
        return self._bisection.run()

    def _hear(self, trial: Trial) -> None:
        self.tell(f"{trial.outcome:<9} {trial.eps:<10g} by {trial.by}")

    def early(self, reason: Reason) -> Radius:
        if self._bisection is not None:
            return self._bisection.result(reason)
        label = self.options["label"]
        return Radius(
            -1 if label is None else label, self.options["norm"], reason=reason, **self.status.circumstances()
        )

    def lines(self, answer: Radius) -> tuple[list[str], bool]:
        return answer.lines(), answer.answered

    def files(self, answer: Radius) -> dict[str | None, str]:
        point = answer.counterexample
        return {} if point is None else {self.options["counterexample"]: point.text()}


class ManyRadii(RadiusSession["Radii"]):
    """The radii of a data set."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._sweep: Sweep | None = None

    def run(self) -> Radii:
        request, aim, around = self.begin()
        self.status.clock = Clock(self.status.clock.start, math.inf)  # the limit is that of each image
        from verifier.network.models.onnx import load_onnx
        from verifier.robustness.images import check_fits, load_images
        from verifier.robustness.radii import Sweep

        found = load_images(*(self.options[name] for name in ("data", "inputs", "labels"))).first(self.options["limit"])
        model = load_onnx(self.options["net"], declared=found.x[0].size)
        check_fits(found.shape, model.input_shape, self.options["data"] or self.options["inputs"])
        self.status.network_sha256 = model.sha256
        self._sweep = Sweep(request, self.status, model, found, around, aim, self._hear)
        self.watch(self.status.clock)
        return self._sweep.run()

    def _hear(self, image: ImageRadius) -> None:
        if not self.options["quiet"]:
            tell(image.line())

    def early(self, reason: Reason) -> Radii:
        if self._sweep is None:
            raise KeyboardInterrupt
        return self._sweep.result(reason)

    def lines(self, answer: Radii) -> tuple[list[str], bool]:
        return answer.lines(), answer.answered

    def draw(self) -> None:
        if self.options["plot"] is None or self.answer is None:
            return
        from verifier.report.radii import draw

        try:
            with aside(self.options["plot"]) as temporary:
                draw(self.answer, str(temporary))
        except OSError as error:
            raise Undelivered(
                f"the plot {self.options['plot']} cannot be written: {error.strerror or error}"
            ) from error
