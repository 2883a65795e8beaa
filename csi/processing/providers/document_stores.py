"""Two ports: where transcripts and summaries are kept as documents (`drive_refs`), and a memory that can be searched
(`zep_doc_id`, `zep_collection`). The defaults keep them in local folders; a package adds others by entry point."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Protocol

from csi.errors import ConfigError
from csi.processing.providers.base import ProviderError

DOCUMENT_GROUP, MEMORY_GROUP = "csi.document_stores", "csi.memory_stores"
LOCAL = "local"
COLLECTION = "videos"
DocumentKindName = Literal["transcript", "summary", "summary_detailed"]


@dataclass(frozen=True)
class KeptDocument:
    """A document that is to be kept. `artifact_id`: its id in the local artifact store, which has it already."""

    kind: DocumentKindName
    video_id: str
    title: str
    text: str
    artifact_id: str


@dataclass(frozen=True)
class Memory:
    """What is to be remembered of a video."""

    video_id: str
    title: str
    url: str
    channel_title: str
    summary: str
    tags: tuple[str, ...] = ()


class DocumentStore(Protocol):
    """Google Drive, for example."""

    def put(self, document: KeptDocument) -> str:
        """Its id there, at most 128 characters of `A-Z a-z 0-9 _ . : -`. Called again for the same kind and video, it
        replaces the document: a step that a crash interrupts is repeated."""
        ...


class MemoryStore(Protocol):
    """Zep, for example."""

    collection: str

    def put(self, memory: Memory) -> str:
        """Its id there; called again for the same video, it replaces the memory."""
        ...


class LocalDocuments:
    """The artifact store has the files already: their ids are the references."""

    def put(self, document: KeptDocument) -> str:
        return document.artifact_id


class LocalMemory:
    """One JSON file for a video in a folder."""

    collection = COLLECTION

    def __init__(self, folder: Path) -> None:
        self._folder = folder / COLLECTION

    def put(self, memory: Memory) -> str:
        name = hashlib.sha256(memory.video_id.encode()).hexdigest()[:20]
        path = self._folder / f"{name}.json"
        temporary = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(asdict(memory), file, ensure_ascii=False)
            temporary.replace(path)
        except OSError as error:
            raise ProviderError(f"{path}: cannot be written: {error.strerror}", "transient", "memory_store") from error
        return f"mem_{name}"


def open_documents(name: str) -> DocumentStore:
    store: DocumentStore = LocalDocuments() if name == LOCAL else _plugged(DOCUMENT_GROUP, name)()
    return store


def open_memory(name: str, folder: Path) -> MemoryStore:
    store: MemoryStore = LocalMemory(folder) if name == LOCAL else _plugged(MEMORY_GROUP, name)()
    return store


def keep(what: str, put: Callable[[], str]) -> str:
    """Any failure of a plugged-in store is one that passes: the step is repeated, and nothing is paid again."""
    try:
        found = put()
    except ProviderError:
        raise
    except Exception as error:
        words = f"the {what} store failed: {type(error).__name__}"
        raise ProviderError(words, "transient", f"{what}_store") from error
    if not isinstance(found, str) or not found:
        raise ProviderError(f"the {what} store returned no id", "transient", f"{what}_store")
    return found


def _plugged(group: str, name: str) -> Any:
    """The factory of an entry point; it takes no arguments and reads its own environment."""
    found = list(metadata.entry_points(group=group, name=name))
    if not found:
        known = sorted({one.name for one in metadata.entry_points(group=group)} | {LOCAL})
        raise ConfigError(
            f"stores: {name!r} is not installed; there are: {', '.join(known)} (entry-point group {group})"
        )
    try:
        return found[0].load()
    except Exception as error:
        raise ConfigError(f"stores: {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
