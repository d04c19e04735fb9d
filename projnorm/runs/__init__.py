"""What every run shares: whole files, records, resumable tasks, progress, and where a number came from."""

from projnorm.arrays import Arrays, from_npy, from_npz, map_npy, to_npz
from projnorm.atomic import unfinished, write_atomically
from projnorm.backends import ONE_PROCESS, Backend, count_workers, in_order, require_shared, run_each
from projnorm.environment import Environment, current_environment
from projnorm.runs.kept import keep, kept
from projnorm.runs.locks import sole_writer
from projnorm.runs.notices import notice
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
from projnorm.runs.sealed import from_sealed_json, sealed_json
from projnorm.runs.tasks import concatenated, recorded, run_tasks, stacked

__all__ = [
    "ONE_PROCESS",
    "Arrays",
    "Backend",
    "DamagedRecordError",
    "Environment",
    "Listed",
    "Record",
    "concatenated",
    "count_workers",
    "current_environment",
    "find",
    "folders_of",
    "from_npy",
    "from_npz",
    "from_sealed_json",
    "in_order",
    "keep",
    "kept",
    "listing",
    "load",
    "map_npy",
    "new_record",
    "notice",
    "record_id",
    "recorded",
    "require_shared",
    "run_each",
    "run_tasks",
    "save",
    "sealed_json",
    "sole_writer",
    "stacked",
    "to_npz",
    "unfinished",
    "write_atomically",
]
