"""Tables in CSV and Parquet files, as DataFrames of pandas."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from projnorm.core.errors import InputError
from projnorm.core.files import decoding, gunzipped, memory_ceiling, read_file
from projnorm.core.lazy import load

_CSV, _ZIPPED, _PARQUET = ".csv", ".csv.gz", ".parquet"
ENDINGS = (_CSV, _ZIPPED, _PARQUET)


def is_table_file(path: Path) -> bool:
    """Whether the name ends as that of a table does."""
    return path.name.lower().endswith(ENDINGS)


def stem(path: Path) -> str:
    """The name of a file without its ending, which may be ``.csv.gz``."""
    return path.name[: -len(_ZIPPED)] if path.name.lower().endswith(_ZIPPED) else path.stem


def read_table(path: Path) -> Any:
    """The DataFrame in a ``.csv``, ``.csv.gz`` or ``.parquet`` file; the first line of a CSV file names its columns.

    Raises:
        InputError: If the file is damaged, or holds no row.
        MissingExtraError: If pandas, or pyarrow for Parquet, is not installed.
    """
    pandas, data = load("pandas"), read_file(path)
    if path.name.lower().endswith(_PARQUET):
        parquet, base = load("pyarrow.parquet"), load("pyarrow").ArrowException
        with decoding(f"{path}: not a whole Parquet file", base, OSError):
            table = _unpacked_parquet(parquet, data)
    else:
        if path.name.lower().endswith(_ZIPPED):
            with decoding(f"{path}: not a whole gzip file", OSError):
                data = gunzipped(data)
        with decoding(f"{path}: not a CSV file of one row per sample"):
            if b"\0" in data:
                raise ValueError("it holds zero bytes")
            table = pandas.read_csv(io.BytesIO(data), low_memory=False)
    if not len(table):
        raise InputError(f"{path}: holds no row.")
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise InputError(f"{path}: has two columns called {twice!r}.")
    return table


def _unpacked_parquet(parquet: Any, data: bytes) -> Any:
    file = parquet.ParquetFile(io.BytesIO(data))
    size, most = sum(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)), memory_ceiling()
    if size > most:
        raise ValueError(f"it unpacks to {size:,} bytes, at most {most:,} are read")
    return file.read(use_threads=False).to_pandas(use_threads=False)
