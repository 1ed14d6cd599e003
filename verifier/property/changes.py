"""How an input may change: a ball, a patch, or other light; whichever is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verifier.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from verifier.property.robustness import Number, Robustness, Scaling


@dataclass(frozen=True, slots=True)
class Change:
    """What the user says of it, and in which range pixels stay; None is what was not said."""

    eps: Number | None = None
    norm: str | float = "inf"
    patch: tuple[int, int] | None = None
    at: tuple[int, int] | None = None
    brightness: Number | None = None
    contrast: Number | None = None
    clip: tuple[Number, Number] | None = None

    @property
    def lit(self) -> bool:
        """Whether it is other light."""
        return self.brightness is not None or self.contrast is not None

    def check(self, prefix: str = "") -> None:
        """Raises InputError unless exactly one kind of change is described, with all that it needs.

        Options are named with that prefix.
        """
        lit = "brightness" if self.contrast is None else "contrast"
        kinds = [name for name in ("eps", "patch", lit) if getattr(self, name) is not None]
        if not kinds:
            names = ", ".join(f"{prefix}{name}" for name in ("eps", "patch"))
            raise InputError(f"how may the input change? Give {names}, or {prefix}brightness and {prefix}contrast")
        if len(kinds) > 1:
            raise InputError(f"{prefix}{kinds[0]} and {prefix}{kinds[1]} are two kinds of change: leave one out")
        if self.at is not None and self.patch is None:
            raise InputError(f"{prefix}at is the place of a patch: it needs {prefix}patch")
        if self.eps is None and str(self.norm) != "inf":
            raise InputError(f"{prefix}norm is that of a ball: it has no meaning with {prefix}{kinds[0]}")
        if self.patch is not None and self.clip is None:
            raise InputError(f"{prefix}patch needs {prefix}clip, the range of values that its pixels take")

    def around(self, centre: NDArray[Any], label: int | None, scaling: Scaling) -> Robustness:
        """That an input keeps its class, for classes that are counted later.  Raises InputError as `check` does."""
        from verifier.property.lighting import Lighting
        from verifier.property.patches import Patches
        from verifier.property.robustness import LocalRobustness

        self.check()
        if self.eps is not None:
            return LocalRobustness(centre, label, 0, self.eps, self.clip, scaling, self.norm)
        if self.patch is not None:
            assert self.clip is not None
            return Patches(centre, label, 0, self.patch, self.clip, self.at, scaling)
        return Lighting(centre, label, 0, self.brightness or 0, self.contrast or 0, self.clip, scaling)
