"""Reads a tensor that torch.save has written straight into another one. torch.load makes a tensor first, whose new memory takes longer than the copy.

The file is a ZIP archive of uncompressed records: data.pkl is the pickled tensor, which names the record of its values (PyTorch's
caffe2/serialize/inline_container.h).
"""
from __future__ import annotations

import dataclasses
import io
import pickle
import sys
import typing
import zipfile

import torch

_LOCAL_HEADER, _LENGTHS_AT = 30, 26  # of a record, as ZIP has it: the lengths of its name and of what follows the name
_DTYPES = {"DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16,
           "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
           "ByteStorage": torch.uint8, "BoolStorage": torch.bool}


@dataclasses.dataclass
class _Layout:
    record: str
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]


class _Unpickler(pickle.Unpickler):
    """Gives the layout of the tensor. UnpicklingError: it is not a plain tensor."""

    def find_class(self, module: str, name: str) -> typing.Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: _Layout(storage[2], storage[1], offset, torch.Size(size), stride)
        if (module, name) == ("collections", "OrderedDict"):  # its hooks
            return dict
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, storage: typing.Any) -> typing.Any:
        return storage  # "storage", dtype, record, device, elements


def read_into(target: torch.Tensor, file: io.RawIOBase, offsets: torch.Size) -> bool:
    """The part of the file's tensor that begins at `offsets` and has the shape of `target`. False: it is to be read by torch.load."""
    if target.device.type != "cpu" or not target.is_contiguous():
        return False
    with zipfile.ZipFile(file) as archive:
        records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    try:
        layout = _Unpickler(io.BytesIO(_read(file, records["data.pkl"]))).load()
    except pickle.UnpicklingError:
        return False
    if not isinstance(layout, _Layout) or layout.dtype != target.dtype or _read(file, records["byteorder"]) != sys.byteorder.encode():
        return False
    is_contiguous = layout.stride == torch.empty(layout.size, device="meta").stride()
    if not is_contiguous or layout.size[1:] != target.shape[1:] or any(offsets[1:]):  # not whole rows
        return False
    first = layout.offset + (offsets[0] * layout.stride[0] if offsets else 0)
    file.seek(_begin(file, records[f"data/{layout.record}"]) + first * target.element_size())
    rest = target.view(-1).view(torch.uint8).numpy().data
    while rest:
        got = file.readinto(rest)
        if not got:
            raise OSError("the file of a tensor is shorter than the tensor")
        rest = rest[got:]
    return True


def _begin(file: io.RawIOBase, record: zipfile.ZipInfo) -> int:
    """Of its bytes, which are not compressed."""
    file.seek(record.header_offset + _LENGTHS_AT)
    lengths = file.read(4) or b""
    return record.header_offset + _LOCAL_HEADER + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


def _read(file: io.RawIOBase, record: zipfile.ZipInfo) -> bytes:
    """Without the archive's checksum, which may be off: segments have their own."""
    file.seek(_begin(file, record))
    return file.read(record.file_size) or b""
