"""Convolutions of one, two or three spatial axes, and their transposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F

from verifier.operators.base import LinearMap, flat_size
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class WindowAxis:
    """A window that slides along one axis, which is padded before and after its entries."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def reach(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    @property
    def windows(self) -> int:
        return (self.size + self.before + self.after - self.reach) // self.stride + 1

    def overhanging(self) -> WindowAxis:
        """With ceil_mode: enough padding at the end for one more window, if that starts inside of the input."""
        span = self.size + self.before + self.after - self.reach
        windows = -(-span // self.stride) + 1
        if (windows - 1) * self.stride >= self.size + self.before:
            windows -= 1
        after = (windows - 1) * self.stride + self.reach - self.size - self.before
        return replace(self, after=max(after, self.after))

    def spots(self) -> Int[Tensor, "windows kernel"]:
        """Where the taps of every window lie; outside of 0 to `size` is padding."""
        starts = torch.arange(max(self.windows, 0)) * self.stride - self.before
        return starts.unsqueeze(1) + torch.arange(self.kernel) * self.dilation

    def counts(self, first: int, last: int) -> Int[Tensor, " windows"]:
        """How many entries of every window lie in [first, last)."""
        spots = self.spots()
        return ((spots >= first) & (spots < last)).sum(dim=1)


MOST_CHANNELS = 8
"""With 16 channels the direct form is faster."""


DENSE = {torch.float32: 1.0, torch.float64: 2.0}
"""How many entries the whole matrix may have for each product of the convolution, and is faster.

64 images of 128 x 2 x 2 behind a 3 x 3 kernel take 0.62 ms in float32 and 12 ms in float64, as a matrix 0.35 and 0.8;
64 of 64 x 4 x 4, with 1.8 entries for each product, 0.55 and 5.4 ms, as a matrix 1.5 and 3.4.
"""


@dataclass(frozen=True, eq=False)
class Phases:
    """The transpose of a strided convolution of two axes with few channels, as one plain convolution.

    Entry i of a transposed convolution with stride s only meets the taps t = i + padding (mod s) of the kernel.  So the
    entries of each such phase are a convolution without stride, all phases together one with s * s times the channels,
    and what is left is to interleave them.  Libraries are slow at the direct form when the result has few channels: for
    200 images of 3 x 32 x 32 behind a 4 x 4 kernel with stride 2 this takes 8 ms where the direct form takes 14.
    """

    kernel: Float[Tensor, "c_in_times_s_s c_out j1 j2"]
    stride: int
    size: tuple[int, int]  # of the result
    before: tuple[int, int]  # the padding in front of it

    @classmethod
    def of(
        cls, weight: Float[Tensor, "c_out c_in k1 k2"], stride: int, size: tuple[int, int], before: tuple[int, int]
    ) -> Phases:
        c_out, c_in, *taps = weight.shape
        j1, j2 = (-(-k // stride) for k in taps)
        whole = F.pad(weight, (0, j2 * stride - taps[1], 0, j1 * stride - taps[0]))
        split = whole.reshape(c_out, c_in, j1, stride, j2, stride).permute(1, 3, 5, 0, 2, 4).flip(-2, -1)
        return cls(split.reshape(c_in * stride * stride, c_out, j1, j2), stride, size, before)

    def transpose(self, images: Float[Tensor, "B c_out h w"]) -> Float[Tensor, "B c_in h0 w0"]:
        """The transposed convolution."""
        left = [j - 1 for j in self.kernel.shape[2:]]
        blocks = [-(-(n + b) // self.stride) for n, b in zip(self.size, self.before, strict=True)]
        right = [m - n for m, n in zip(blocks, images.shape[2:], strict=True)]
        if left == right:
            found = F.conv2d(images, self.kernel, padding=left)
        else:
            found = F.conv2d(F.pad(images, (left[1], right[1], left[0], right[0])), self.kernel)
        return self._interleaved(found)

    def _interleaved(self, found: Float[Tensor, "B c_in_times_s_s m1 m2"]) -> Float[Tensor, "B c_in h0 w0"]:
        """What `pixel_shuffle` gives, without the padding, which is never written."""
        phases = found.unflatten(1, (-1, self.stride, self.stride))
        whole = found.new_empty(len(found), phases.shape[1], *self.size)
        for a, rows in enumerate(self._places(0)):
            for b, columns in enumerate(self._places(1)):
                part = whole[:, :, rows[0], columns[0]]
                part.copy_(phases[:, :, a, b, rows[1], columns[1]])
        return whole

    def _places(self, axis: int) -> list[tuple[slice, slice]]:
        """For each phase of an axis: where its entries go, and which of them are not padding."""
        size, before, stride = self.size[axis], self.before[axis], self.stride
        found = []
        for phase in range(stride):
            first = -(-(before - phase) // stride) if phase < before else 0
            start = first * stride + phase - before
            found.append((slice(start, None, stride), slice(first, first + len(range(start, size, stride)))))
        return found


_CONV: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


@dataclass(frozen=True, eq=False)
class Conv(LinearMap):
    """A cross-correlation on flat vectors that stand for `in_shape` = (channels, *spatial).

    `padding` holds (before, after) for every spatial axis; they may differ.
    """

    weight: Float[Tensor, "c_out c_in_per_group *kernel"]
    in_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    roundings: int = 0

    def __post_init__(self) -> None:
        axes = len(self.in_shape) - 1
        lengths = {len(self.stride), len(self.padding), len(self.dilation), self.weight.dim() - 2}
        if axes not in _CONV or lengths != {axes}:
            raise ValueError(f"a convolution over {axes} axes got settings for {sorted(lengths)}")
        if self.in_shape[0] != self.weight.shape[1] * self.groups or self.weight.shape[0] % self.groups:
            raise ValueError(f"{self.in_shape[0]} channels do not fit a kernel {tuple(self.weight.shape)}")
        if min(self.out_shape) < 1:
            raise ValueError(f"the kernel is larger than its padded input {self.in_shape}")

    @property
    def _reach(self) -> tuple[int, ...]:
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilation, self.weight.shape[2:], strict=True))

    @property
    def out_shape(self) -> tuple[int, ...]:
        sizes = zip(self.in_shape[1:], self.padding, self._reach, self.stride, strict=True)
        return (self.weight.shape[0], *((n + sum(pad) - reach) // s + 1 for n, pad, reach, s in sizes))

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return flat_size(self.in_shape)

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return flat_size(self.out_shape)

    @property
    def depth(self) -> int:  # type: ignore[override]
        kernel = flat_size(tuple(self.weight.shape[2:]))
        terms = kernel * max(self.weight.shape[1], self.weight.shape[0] // self.groups)
        return terms + 1 + self.roundings

    @property
    def weights(self) -> Tensor:
        return self.weight

    def reweighted(self, weights: Tensor, roundings: int = 0) -> Conv:
        return replace(self, weight=weights, roundings=self.roundings + roundings)

    @cached_property
    def absolute(self) -> Conv:
        """|W|, made once."""
        return self.reweighted(self.weight.abs())

    @cached_property
    def _matrix(self) -> Float[Tensor, "n_out n_in"] | None:
        """The map written out, where images are so small that most windows hold most of them."""
        products = self.n_out * self.weight[0].numel()
        if self.groups > 1 or self.n_in * self.n_out > DENSE.get(self.weight.dtype, 0.0) * products:
            return None
        columns = self.taps()
        found = self.weight.new_zeros(len(self.weight), len(columns), self.n_in + 1)
        values = self.weight.flatten(1).unsqueeze(1).expand(-1, len(columns), -1)
        return found.scatter_(2, columns.expand(len(self.weight), -1, -1), values)[..., :-1].flatten(0, 1)

    def taps(self) -> Int[Tensor, "places e"]:
        """The entries that each window reads, tap by tap in the order of the kernel; n_in in the padding.

        Require: no groups.
        """
        sizes, kernel = self.in_shape[1:], self.weight.shape[2:]
        read = torch.zeros(1, 1, dtype=torch.long)  # places, window by window; negative in the padding
        for axis in zip(sizes, kernel, self.stride, self.dilation, *zip(*self.padding, strict=True), strict=True):
            spots = WindowAxis(*axis).spots()
            inside = (spots >= 0) & (spots < axis[0])
            read = torch.where(inside[:, None], read[:, None, :, None] * axis[0] + spots[:, None], -self.n_in)
            read = read.flatten(2).flatten(0, 1)
        channels = flat_size(sizes) * torch.arange(self.in_shape[0]).unsqueeze(1)
        columns = (read.unsqueeze(1) + channels).flatten(1)
        return torch.where(columns < 0, self.n_in, columns).to(self.weight.device)

    def _forward(self, x: Tensor, weight: Tensor) -> Tensor:
        batch = x.shape[:-1]
        images = x.reshape(-1, *self.in_shape)
        if all(before == after for before, after in self.padding):
            pad: tuple[int, ...] = tuple(before for before, _ in self.padding)
        else:
            images = F.pad(images, [side for pair in reversed(self.padding) for side in pair])
            pad = (0,) * len(self.stride)
        conv = _CONV[len(self.stride)]
        out = conv(images, weight, None, self.stride, pad, self.dilation, self.groups)
        return out.reshape(*batch, self.n_out)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self._forward(x, self.weight) if self._matrix is None else _product(x, self._matrix.T)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self._forward(r, self.weight.abs())

    @cached_property
    def _phases(self) -> Phases | None:
        """A faster way to transpose, where there is one."""
        few, (first, *others) = self.in_shape[0] <= MOST_CHANNELS, self.stride
        if not few or len(others) != 1 or others != [first] or first == 1 or self.groups > 1 or max(self.dilation) > 1:
            return None
        (before1, _), (before2, _) = self.padding
        return Phases.of(self.weight, first, (self.in_shape[1], self.in_shape[2]), (before1, before2))

    @cached_property
    def _mirrored(self) -> tuple[Tensor, tuple[tuple[int, int], ...]] | None:
        """Kernel and padding of the plain convolution that the transpose is where windows move by one place.

        Libraries are slow at the direct form in float64: 128 images of 16 x 12 x 12 take 14 ms, this way 5.
        """
        if self.groups > 1 or max(self.stride) > 1:
            return None
        padding = tuple((r - 1 - b, r - 1 - a) for r, (b, a) in zip(self._reach, self.padding, strict=True))
        if any(min(pair) < 0 for pair in padding):
            return None
        axes = tuple(range(2, self.weight.dim()))
        return self.weight.transpose(0, 1).flip(axes).contiguous(), padding

    @cached_property
    def _of_points(self) -> bool:
        """Whether windows are single places some way apart: the transpose mixes channels, and leaves places between."""
        single = flat_size(tuple(self.weight.shape[2:])) == 1 and not any(map(sum, self.padding))
        return single and self.groups == 1 and max(self.stride) > 1

    def _to_points(self, images: Float[Tensor, "B c_out *places"]) -> Float[Tensor, "B c_in *sources"]:
        """Libraries are slow at the direct form: 170 images of 32 x 8 x 8 to 16 x 16 x 16 took 8 ms in float32."""
        mixed = self.weight.flatten(1).T @ images.flatten(2)
        found = images.new_zeros(len(images), *self.in_shape)
        at = tuple(slice(0, (m - 1) * s + 1, s) for m, s in zip(images.shape[2:], self.stride, strict=True))
        everywhere = (slice(None), slice(None), *at)
        found[everywhere] = mixed.reshape(len(images), self.in_shape[0], *images.shape[2:])
        return found

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return self._transpose(y) if self._matrix is None else _product(y, self._matrix)

    def _transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        batch, out_shape, axes = y.shape[:-1], self.out_shape, len(self.stride)
        images = y.reshape(-1, *out_shape)
        if self._of_points:
            return self._to_points(images).reshape(*batch, self.n_in)
        if self._mirrored is not None:
            kernel, padding = self._mirrored
            if any(before != after for before, after in padding):
                images = F.pad(images, [side for pair in reversed(padding) for side in pair])
                padding = ((0, 0),) * axes
            pads = [before for before, _ in padding]
            found = _CONV[axes](images, kernel, None, 1, pads, self.dilation)
            return found.reshape(*batch, self.n_in)
        if self._phases is not None:
            return self._phases.transpose(images).reshape(*batch, self.n_in)
        covered = [(m - 1) * s + r for m, s, r in zip(out_shape[1:], self.stride, self._reach, strict=True)]
        padded = [n + sum(pad) for n, pad in zip(self.in_shape[1:], self.padding, strict=True)]
        rest = [p - c for p, c in zip(padded, covered, strict=True)]  # columns that no window reaches
        symmetric = all(before == after for before, after in self.padding)
        fits = all(r < max(s, d) for r, s, d in zip(rest, self.stride, self.dilation, strict=True))
        conv = _CONV_TRANSPOSE[axes]
        if symmetric and fits:
            pad = [before for before, _ in self.padding]
            out = conv(images, self.weight, None, self.stride, pad, rest, self.groups, self.dilation)
        else:
            out = conv(images, self.weight, None, self.stride, 0, 0, self.groups, self.dilation)
            out = F.pad(out, [side for r in reversed(rest) for side in (0, r)])
            for axis, (before, _) in enumerate(self.padding):
                out = out.narrow(axis + 2, before, self.in_shape[axis + 1])
        return out.reshape(*batch, self.n_in)

    def spread(self, images: Float[Tensor, "B c_out *places"]) -> Float[Tensor, "B c_in *sources"]:
        """The transpose for a part of the result, of any size: all that it reads, padding included."""
        conv = _CONV_TRANSPOSE[len(self.stride)]
        return conv(images, self.weight, None, self.stride, 0, 0, self.groups, self.dilation)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Conv:
        return replace(self, weight=self.weight.to(device=device, dtype=dtype))

    def describe(self) -> str:
        kernel = "x".join(str(k) for k in self.weight.shape[2:])
        extras = [f"stride {'x'.join(map(str, self.stride))}"] if max(self.stride) > 1 else []
        extras += [f"dilation {'x'.join(map(str, self.dilation))}"] if max(self.dilation) > 1 else []
        extras += [f"groups {self.groups}"] if self.groups > 1 else []
        return " ".join([f"conv {self.in_shape[0]}->{self.weight.shape[0]} {kernel}", *extras])


def _product(x: Float[Tensor, "*batch n"], matrix: Float[Tensor, "n m"]) -> Float[Tensor, "*batch m"]:
    """Always of two matrices, also where x is a single vector."""
    batch = x.shape[:-1]
    return (x.reshape(flat_size(batch), len(matrix)) @ matrix).reshape(*batch, matrix.shape[1])


@dataclass(frozen=True, eq=False)
class Transposed(LinearMap):
    """The transpose of another map: a transposed convolution, for instance."""

    inner: Conv

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.inner.n_out

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.inner.n_in

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self.inner.depth

    @property
    def weights(self) -> Tensor:
        return self.inner.weight

    def reweighted(self, weights: Tensor, roundings: int = 0) -> Transposed:
        return Transposed(self.inner.reweighted(weights, roundings))

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self.inner.transpose(x)

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return self.inner.forward(y)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self.inner.reweighted(self.inner.weight.abs()).transpose(r)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Transposed:
        return Transposed(self.inner.to(device, dtype))

    def describe(self) -> str:
        return f"transposed {self.inner.describe()}"
