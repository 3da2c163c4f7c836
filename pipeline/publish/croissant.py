"""``croissant.json``: the publication in the vocabulary of MLCommons' Croissant 1.0 (JSON-LD).

Its records are those of the Parquet view; the shards are listed as files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.builds.build import Build
from pipeline.manifest.dataset_files import write_json
from pipeline.publish import viewer
from pipeline.report.front_matter import title
from pipeline.report.publisher import Publisher, licenses, said_of_sources
from stages.counted import counted
from stages.files import file_hash

FILE = "croissant.json"
_PARQUET, _ARROW = "application/x-parquet", "application/vnd.apache.arrow.stream"
_TYPES = {
    pa.string(): "sc:Text",
    pa.int32(): "sc:Integer",
    pa.float32(): "sc:Float",
}
_CONTEXT = Path(__file__).with_name("croissant_context.json")


def _file(name: str, sha256: str, size: int, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{size} B",
        "encodingFormat": kind,
        "sha256": sha256,
    }


def _field(split: str, column: pa.Field) -> dict[str, Any]:
    repeated = pa.types.is_list(column.type)
    kind = column.type.value_type if repeated else column.type
    field = {
        "@type": "cr:Field",
        "@id": f"{split}/{column.name}",
        "name": column.name,
        "dataType": _TYPES[kind],
        "source": {
            "fileObject": {"@id": viewer.name_of(split)},
            "extract": {"column": column.name},
        },
    }
    return {**field, "repeated": True} if repeated else field


def _records(split: str, work: Path, *, once: bool) -> dict[str, Any]:
    schema = pq.read_schema(work / viewer.name_of(split))
    # Of a source that is used several times, rows have copies.
    key = {"key": {"@id": f"{split}/row_id"}} if once else {}
    return {
        "@type": "cr:RecordSet",
        "@id": split,
        "name": split,
        **key,
        "field": [_field(split, column) for column in schema],
    }


def describe(
    build: Build, files: Mapping[str, str], work: Path, publisher: Publisher
) -> dict[str, Any]:
    """The document.

    Args:
        files: sha256 of the publication's files, by name.
        work: where the Parquet view is.
    """
    manifest = build.manifest
    views = [viewer.name_of(split) for split in build.splits]
    shards = [shard for shard in manifest.shards if shard.path.endswith(".arrow")]
    about: dict[str, Any] = {
        "@context": json.loads(_CONTEXT.read_bytes()),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": title(manifest, publisher),
        "description": (
            f"{counted(manifest.examples.kept, 'example')} as token ids of "
            f"{manifest.model.name}, ready to "
            f"train ({manifest.task}), with a view of them as text. Made by posttrain-pipeline "
            f"{manifest.version}, build {manifest.build_id}."
        ),
        "keywords": ["posttrain-pipeline", manifest.task, manifest.model.name],
    }
    found = licenses(manifest, publisher)
    if found:
        about["license"] = found[0] if len(found) == 1 else found
    origins = [*publisher.origins, *(one.origin for one in said_of_sources(manifest))]
    if any(origins):
        about["isBasedOn"] = list(dict.fromkeys(filter(None, origins)))
    about["distribution"] = [
        *(_file(n, files[n], (work / n).stat().st_size, _PARQUET) for n in views),
        *(_file(one.path, one.sha256, one.bytes, _ARROW) for one in shards),
    ]
    once = not manifest.examples.copies
    about["recordSet"] = [_records(split, work, once=once) for split in build.splits]
    return about


def write(build: Build, files: Mapping[str, str], work: Path, publisher: Publisher) -> str:
    """Write the document into a folder; its sha256."""
    write_json(work / FILE, describe(build, files, work, publisher))
    return file_hash.sha256(work / FILE)
