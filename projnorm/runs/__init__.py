"""What every run shares: whole files, records, resumable tasks, progress, and where a number came from."""

from projnorm.runs.arrays import Arrays, from_npy, from_npz, map_npy, to_npz
from projnorm.runs.atomic import write_atomically
from projnorm.runs.environment import Environment, current_environment
from projnorm.runs.record import (
    DamagedRecordError,
    Listed,
    Record,
    find,
    folders_of,
    listing,
    load,
    new_record,
    record_id,
    save,
)
from projnorm.runs.tasks import concatenated, recorded, run_tasks, stacked

__all__ = [
    "Arrays",
    "DamagedRecordError",
    "Environment",
    "Listed",
    "Record",
    "concatenated",
    "current_environment",
    "find",
    "folders_of",
    "from_npy",
    "from_npz",
    "listing",
    "load",
    "map_npy",
    "new_record",
    "record_id",
    "recorded",
    "run_tasks",
    "save",
    "stacked",
    "to_npz",
    "write_atomically",
]
