# mypy: disable-error-code="attr-defined"
"""Arrow files that were written here, mapped: everything that readers of their columns trust is checked first.

Arrow believes the offsets of lists and text, and a wrong one ends the process, so that every batch is validated: this
reads the offsets, the text and the bits that say what is missing, not the numbers. Batches are read one after the other
as a stream; the table of contents at the end of the file is not used. Compressed batches, which Arrow would unpack
without a bound, are refused: we write none.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa  # declares no exports, hence the first line

from saccade.core.errors import SaccadeError, explain_os_errors

MAGIC = b"ARROW1\0\0"
COMPRESSION = 3  # the place of this field in the description of a batch
HEADER = 2  # and of the description in a message


def map_batches(path: Path, schema: pa.Schema, what: str) -> list[pa.RecordBatch]:
    """The batches of a file with these columns, those of `what`, without copying.

    Raises: SaccadeError if it is missing, cut short, damaged, or has other columns.
    """
    broken = f"{path} is cut short or is not an Arrow file"
    try:
        with explain_os_errors(path, "read"):
            source = pa.memory_map(str(path), "r")
            if source.read(len(MAGIC)) != MAGIC:
                raise SaccadeError(broken)
            messages = pa.ipc.MessageReader.open_stream(source)
            columns = messages.read_next_message()
            if columns.type != "schema":  # Arrow does not look, and would read whatever it is as one
                raise SaccadeError(broken)
            if not pa.ipc.read_schema(columns).equals(schema):
                raise SaccadeError(f"{path}: the columns are not those of {what}")
            found = [_batch(message, schema) for message in messages]
            source.seek(-len(MAGIC[:6]), 2)
            if source.read() != MAGIC[:6]:
                raise SaccadeError(broken)
            return found
    except (pa.ArrowException, StopIteration, struct.error, EOFError, ValueError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise SaccadeError(f"{path} is damaged: {text}") from error


def _batch(message: pa.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != "record batch" or _is_compressed(message.metadata):
        raise pa.ArrowInvalid(f"a {message.type} that is compressed or was not expected")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    for field, column in zip(schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid(f"{field.name} has gaps")
    return batch


def _is_compressed(metadata: Any) -> bool:
    """By the flatbuffer of a message: each table begins with how far before it its list of places lies."""

    def field(table: int, number: int) -> int:
        places = table - struct.unpack_from("<i", metadata, table)[0]
        within = 4 + 2 * number
        (size,) = struct.unpack_from("<H", metadata, places)
        (offset,) = struct.unpack_from("<H", metadata, places + within) if within < size else (0,)
        return table + offset if offset else 0

    (root,) = struct.unpack_from("<I", metadata, 0)
    header = field(root, HEADER)
    if not header:
        raise struct.error("no header")
    return bool(field(header + struct.unpack_from("<I", metadata, header)[0], COMPRESSION))
