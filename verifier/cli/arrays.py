"""Arrays that commands read from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verifier.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def load_array(source: str) -> NDArray[Any]:
    """The array of an `.npy` file, or the only one of an `.npz` file."""
    import zipfile
    import zlib

    import numpy as np

    try:
        with open(source, "rb") as stream:
            found = np.load(stream, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return found
            names = found.files
            if len(names) == 1:
                return np.asarray(found[names[0]])
    except OSError as error:
        raise InputError(f"the input cannot be read: {error.strerror or error}", source) from error
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputError("the input is not a NumPy file of numbers", source) from error
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    raise InputError(f"the file holds {len(names)} arrays ({listed}); one is expected", source)
