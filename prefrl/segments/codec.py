"""Arrays to bytes and back: npz, never pickle; floats, which hardly shrink, are not compressed."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import DataError
from prefrl.segments.frames import to_frames, to_stacks


def encode_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Packs named arrays; equal arrays give equal bytes.

    Args:
        arrays: Any shapes, of a dtype without Python objects.

    Raises:
        DataError: An array holds Python objects, which only pickle could store.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            value = np.asanyarray(array)
            if value.dtype.hasobject:
                raise DataError(f"array {name!r} has dtype {value.dtype}: give it a number type before storing")
            # the default date of ZipInfo is constant, so the bytes depend on the arrays only
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_STORED if value.dtype.kind == "f" else zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, value, allow_pickle=False)
    return buffer.getvalue()


def decode_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Unpacks what `encode_arrays` (or ``numpy.savez``) made.

    Raises:
        DataError: The bytes are damaged, are not npz, or hold a pickle.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    # what a damaged archive or header raises, from zipfile, zlib and numpy
    except (ValueError, OSError, EOFError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{len(data)} stored bytes are not a readable npz archive: {error}") from error
    return arrays


def encode_steps(obs: NDArray[Any], act: NDArray[Any]) -> bytes:
    """Packs a segment's observations, (T, *obs), and actions; of stacks that slide, (T, K, H, W), each frame once."""
    slides = obs.ndim == 4 and obs.dtype == np.uint8 and np.array_equal(obs[1:, :-1], obs[:-1, 1:])
    return encode_arrays({"frames": to_frames(obs), "act": act} if slides else {"obs": obs, "act": act})


def decode_steps(data: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """Unpacks what `encode_steps` made; stacks are a read-only view over their frames.

    Raises:
        DataError: The bytes are damaged, or hold other arrays.
    """
    arrays = decode_arrays(data)
    if arrays.keys() == {"frames", "act"}:
        frames, act = arrays["frames"], arrays["act"]
        if frames.ndim != 3 or not 0 < len(act) <= len(frames):
            raise DataError(f"{frames.shape} frames do not belong to actions of shape {act.shape}")
        return to_stacks(frames, len(frames) - len(act) + 1), act
    if not {"obs", "act"} <= arrays.keys():
        raise DataError(f"stored arrays are {sorted(arrays)}: obs and act are missing")
    return arrays["obs"], arrays["act"]
