"""The files in the artifact store: id, path and hash of each."""

from dataclasses import astuple, dataclass

from csi.processing.store.db import fetch, run


@dataclass(frozen=True)
class Artifact:
    """One file. `path` is relative to the artifact store."""

    artifact_id: str
    video_id: str | None
    kind: str
    path: str
    sha256: str
    bytes: int


_COLUMNS = "artifact_id, video_id, kind, path, sha256, bytes"


def put(artifact: Artifact, now: float) -> None:
    """A path that is written again keeps its id and gets the new hash and size."""
    sql = f"""INSERT INTO artifacts ({_COLUMNS}, created_at) VALUES (?,?,?,?,?,?,?)
              ON CONFLICT (artifact_id) DO UPDATE SET sha256 = excluded.sha256, bytes = excluded.bytes,
                created_at = excluded.created_at"""
    run(sql, *astuple(artifact), now)


def of_video(video_id: str) -> list[Artifact]:
    rows = fetch(f"SELECT {_COLUMNS} FROM artifacts WHERE video_id = ? ORDER BY kind", video_id)
    return [Artifact(*row) for row in rows]
