"""Which files were written: id, place and hash of each."""

from dataclasses import dataclass

from csi.processing.store.db import fetch, one, run


@dataclass(frozen=True)
class Artifact:
    """One file of the artifact store. `path` is relative to it."""

    artifact_id: str
    video_id: str | None
    kind: str
    path: str
    sha256: str
    bytes: int


_COLUMNS = "artifact_id, video_id, kind, path, sha256, bytes"


def put(artifact: Artifact, now: float) -> None:
    """The same path again is the same artifact with new content."""
    sql = f"""INSERT INTO artifacts ({_COLUMNS}, created_at) VALUES (?,?,?,?,?,?,?)
              ON CONFLICT (artifact_id) DO UPDATE SET sha256 = excluded.sha256, bytes = excluded.bytes,
                created_at = excluded.created_at"""
    what = (artifact.artifact_id, artifact.video_id, artifact.kind, artifact.path, artifact.sha256, artifact.bytes)
    run(sql, *what, now)


def find(artifact_id: str) -> Artifact | None:
    row = one(f"SELECT {_COLUMNS} FROM artifacts WHERE artifact_id = ?", artifact_id)
    return Artifact(*row) if row else None


def of_video(video_id: str) -> list[Artifact]:
    return [
        Artifact(*row) for row in fetch(f"SELECT {_COLUMNS} FROM artifacts WHERE video_id = ? ORDER BY kind", video_id)
    ]
