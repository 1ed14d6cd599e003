"""The least value of linear functions over the part of a box that lies in a ball.

For any d the function splits, a . x = (a - d) . x + d . x, and the first part is bounded over the box, the second one
over the ball:

    min a . x  >=  sum_i min((a - d)_i low_i, (a - d)_i high_i) + d . centre - radius ||d / weight||

with the dual norm on the right.  The best d is found with one number, a price mu of distance: in units in which the
ball is round, z = weight (x - centre) and alpha = a / weight, every entry of

    l2:  delta = clip(alpha, -mu high_z, -mu low_z)         z = -delta / mu
    l1:  delta = clip(alpha, -mu sign(high_z), -mu sign(low_z))

is what the box leaves to the ball.  In l1 the price is one of |alpha|, found by sorting; in l2 the price is the root of
||z(mu)|| = radius, found by steps that solve for the entries which are not at an end of the box, inside of a bracket.

requires:   positive weights
guarantees: any price gives a valid bound; `size` is the sum of the magnitudes of its terms, by which its rounding is
            priced.  In real arithmetic and at the best price it is the minimum
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from verifier.bounding.core.state import SHARED, State
from verifier.operators import UNIT_ROUNDOFF, gamma
from verifier.property.ball import Ball
from verifier.shapes import Bool, Float, Tensor

STEPS = 24
"""Steps to the price; most end after a few, because nothing changes any more."""

CLOSE = 1e-9
"""The share of the radius within which a point is on the sphere, in float64."""

FAR = 1e9
"""The highest price, in multiples of the one of a ball without a box: an empty part has no price at all."""

ROUNDINGS = 64
"""Of an entry on its way through the ends of a contracted box."""


@dataclass(frozen=True, eq=False)
class Least:
    """The least values of linear functions over an input set, points that attain them, and the sizes of their terms."""

    value: Float[Tensor, "D S"]
    x: Float[Tensor, "D S n0"]
    size: Float[Tensor, "D S"] | None = None  # None: those of the entries of the box


@dataclass(frozen=True, eq=False)
class InputBall(State):
    """One ball for all regions: norm(weight (x - centre)) <= radius."""

    norm: int = field(metadata=SHARED)
    centre: Float[Tensor, " n0"] = field(metadata=SHARED)
    weight: Float[Tensor, " n0"] = field(metadata=SHARED)
    radius: Float[Tensor, ""] = field(metadata=SHARED)

    @classmethod
    def of(cls, ball: Ball | None, like: Tensor) -> InputBall | None:
        """A ball around the given one, in the precision and on the device of a float64 tensor."""
        if ball is None:
            return None
        centre, weight, radius = ball.enclosing
        return cls(
            ball.norm,
            torch.from_numpy(centre).to(like),
            torch.from_numpy(weight).to(like),
            torch.tensor(radius, dtype=torch.float64).to(like),
        )

    def on(self, inputs: Tensor) -> InputBall:
        """The shadow of the ball on some of the inputs."""
        return InputBall(self.norm, self.centre[inputs], self.weight[inputs], self.radius)

    def least(self, a: Float[Tensor, "D S n0"], low: Float[Tensor, "D n0"], high: Float[Tensor, "D n0"]) -> Least:
        """The least values of a . x over the parts of boxes that lie in the ball."""
        d, x = self.share(a, low, high)
        low, high, b = low.unsqueeze(1), high.unsqueeze(1), a - d
        ends, centre = torch.minimum(b * low, b * high), d * self.centre
        length = self.radius * self._dual_norm(d / self.weight)
        value = ends.sum(dim=-1) + centre.sum(dim=-1) - length
        most = torch.maximum(low.abs(), high.abs())
        size = ((a.abs() + d.abs()) * most).sum(dim=-1) + centre.abs().sum(dim=-1) + length
        return Least(value, x, size)

    def share(
        self, a: Float[Tensor, "D S n0"], low: Float[Tensor, "D n0"], high: Float[Tensor, "D n0"]
    ) -> tuple[Float[Tensor, "D S n0"], Float[Tensor, "D S n0"]]:
        """The part d of linear functions that is best bounded over the ball, and where the functions are least."""
        low, high = low.unsqueeze(1), high.unsqueeze(1)
        low_z, high_z = self.weight * (low - self.centre), self.weight * (high - self.centre)
        alpha = a / self.weight
        find = self._by_sorting if self.norm == 1 else self._by_steps
        delta, z = find(alpha, low_z, high_z)
        x = (self.centre + z / self.weight).clamp(low, high)
        return torch.where(delta == alpha, a, delta * self.weight), x

    def support(self, d: Float[Tensor, "*b n0"]) -> Float[Tensor, "*b"]:
        """The least value of d . x over the ball, as far as floats tell."""
        return (d * self.centre).sum(dim=-1) - self.radius * self._dual_norm(d / self.weight)

    def touching(self, x: Float[Tensor, " n0"]) -> Float[Tensor, " n0"] | None:
        """For a point outside: d with d . x below the support of the ball; None for points inside of it."""
        z = self.weight * (x - self.centre)
        length = z.abs().sum() if self.norm == 1 else _norm(z)
        if not bool(length > self.radius * (1 + CLOSE)):
            return None
        return -self.weight * (z.sign() if self.norm == 1 else z / length)

    def _by_steps(self, alpha: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """What the ball bounds in l2, and the point, at the price at which that lies on the sphere.

        Where the corner of the box that is best lies in the ball, the price is zero.
        """
        corner = torch.where(alpha > 0, low, high)
        free = _norm(corner) <= self.radius
        price = _norm(alpha) / self.radius
        least, most = torch.zeros_like(price), FAR * price
        close = max(CLOSE, 32 * torch.finfo(alpha.dtype).eps)
        for _ in range(STEPS):
            z = self._at(price, alpha, low, high)
            length = _norm(z)
            far = length > self.radius
            least, most = torch.where(far, price, least), torch.where(far, most, price)
            done = free | ((length - self.radius).abs() <= close * self.radius)
            if bool(done.all()):
                break
            inner = (z > low) & (z < high)
            room = self.radius.square() - torch.where(inner, 0.0, z).square().sum(dim=-1)
            wanted = _norm(torch.where(inner, alpha, 0.0)) / room.clamp(min=0.0).sqrt()
            middle = torch.where(least > 0, (least * most).sqrt(), most / 64)
            after = torch.where((wanted > least) & (wanted < most), wanted, middle)
            price = torch.where(done, price, after)
        price = torch.where(free, 0.0, torch.where(done, price, most))
        z = torch.where(free.unsqueeze(-1), corner, self._at(price, alpha, low, high))
        price = price.unsqueeze(-1)
        return torch.minimum(torch.maximum(alpha, -price * high), -price * low), z

    @staticmethod
    def _at(price: Tensor, alpha: Tensor, low: Tensor, high: Tensor) -> Float[Tensor, "D S n0"]:
        return (-alpha / price.unsqueeze(-1)).nan_to_num(0.0).clamp(low, high)

    def _by_sorting(self, alpha: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The same in l1: entries go to their ends, the steepest first, until the radius is used up."""
        rest = torch.zeros_like(low).clamp(low, high).expand_as(alpha)
        end = torch.where(alpha > 0, low, high)
        steep, order = alpha.abs().sort(dim=-1, descending=True)
        costs = (end.abs() - rest.abs()).clamp(min=0.0).gather(-1, order)
        used = costs.cumsum(dim=-1)
        room = (self.radius - rest.abs().sum(dim=-1, keepdim=True)).clamp(min=0.0)
        share = ((room - (used - costs)) / costs).nan_to_num(1.0).clamp(0.0, 1.0)
        share = torch.where(costs > 0, share, 1.0)
        beyond = torch.where(used > room, steep, 0.0)
        price = beyond.amax(dim=-1, keepdim=True)
        z = torch.lerp(rest, end.expand_as(alpha), torch.zeros_like(share).scatter(-1, order, share))
        return torch.minimum(torch.maximum(alpha, -price * high.sign()), -price * low.sign()), z

    def _dual_norm(self, delta: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
        return delta.abs().amax(dim=-1) if self.norm == 1 else _norm(delta)

    # ------------------------------------------------------------ boxes

    def contracted(
        self, low: Float[Tensor, "D n0"], high: Float[Tensor, "D n0"]
    ) -> tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"], Bool[Tensor, " D"]]:
        """The smallest boxes around the parts that lie in the ball, rounded outward; and which parts are not empty.

        Boxes of empty parts stay as they are.  What the other entries must spend on their way to the box is not left
        for an entry: |z_i| <= radius - sum_j |z_j|, or the same with squares.
        """
        most = torch.maximum(torch.maximum(low.abs(), high.abs()), self.centre.abs())
        low_z, high_z = self.weight * (low - self.centre), self.weight * (high - self.centre)
        off = 4 * UNIT_ROUNDOFF * self.weight * most
        near = (torch.maximum(low_z, -high_z) - off).clamp(min=0.0) * (1 - 8 * UNIT_ROUNDOFF)
        spent = near if self.norm == 1 else near.square()
        whole = self.radius if self.norm == 1 else self.radius.square()
        total = spent.sum(dim=-1, keepdim=True)
        slack = gamma(low.shape[-1] + ROUNDINGS) * (whole + total)
        room = (whole - total + spent + slack).clamp(min=0.0)
        reach = (room if self.norm == 1 else room.sqrt()) / self.weight * (1 + ROUNDINGS * UNIT_ROUNDOFF)
        reach = reach + ROUNDINGS * UNIT_ROUNDOFF * most
        some = ~(total - slack > whole).squeeze(-1)
        start, stop = torch.maximum(low, self.centre - reach), torch.minimum(high, self.centre + reach)
        kept = some.unsqueeze(-1) & (start <= stop)
        return torch.where(kept, start, low), torch.where(kept, stop, high), some

    def pulled(self, x: Float[Tensor, "*b n0"], share: float = 1.0) -> Float[Tensor, "*b n0"]:
        """Points of the ball with `share` times its radius: those outside are moved.

        In l2 towards the centre; in l1 to the nearest point, which leaves small entries at the centre.
        """
        z = self.weight * (x - self.centre)
        radius = share * self.radius
        if self.norm == 2:
            length = _norm(z).unsqueeze(-1)
            return torch.where(length > radius, self.centre + (x - self.centre) * (radius / length), x)
        steep = z.abs().sort(dim=-1, descending=True).values
        count = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
        level = ((steep.cumsum(dim=-1) - radius) / count).amax(dim=-1, keepdim=True).clamp(min=0.0)
        inside = self.centre + z.sign() * (z.abs() - level).clamp(min=0.0) / self.weight
        return torch.where(level > 0, inside, x)


def _norm(values: Float[Tensor, "*b n"]) -> Float[Tensor, "*b"]:
    """The Euclidean norm; entries are divided by the largest one first, so that squares neither over- nor underflow."""
    largest = values.abs().amax(dim=-1, keepdim=True)
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, 1.0)
    return (values / scale).square().sum(dim=-1).sqrt() * scale.squeeze(-1)
