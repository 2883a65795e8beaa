"""The runtime of processing: settings, providers, HTTP client and clock in one object; and the wake-ups of steps."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from csi import clock, logs, notifications
from csi.net import Net
from csi.processing.artifacts import ArtifactStore
from csi.processing.config import ProcessingSecrets, load, read_secrets
from csi.processing.providers.assemblyai import AssemblyTranscriber
from csi.processing.providers.base import Summariser, Transcriber
from csi.processing.providers.captions import CaptionTranscriber
from csi.processing.providers.document_stores import (
    DocumentStore,
    LocalDocuments,
    MemoryStore,
    open_documents,
    open_memory,
)
from csi.processing.providers.extractive import ExtractiveSummariser
from csi.processing.providers.openai import ChatClient, OpenAISummariser
from csi.processing.providers.transcript_files import FileTranscriber
from csi.processing.providers.video_facts import CatalogueFacts, FactSource, YouTubeFacts
from csi.processing.settings import ProcessingSettings
from csi.processing.store import db, runs
from csi.processing.store.audit import AuditScope
from csi.processing.store.videos import ProcessingVideo

DAY = 86_400.0
Notifier = Callable[[str, str], None]
Step = Literal["intake", "admit", "transcribe", "summarise", "notify", "probe"]


@dataclass(frozen=True)
class StepWake:
    """Run this step for this row, now or at the given time. Steps return them; a lost one costs time, never data."""

    step: Step
    key: str = ""
    at: float | None = None


def wake_job(job_id: str, at: float | None = None) -> StepWake:
    """The prefix of a job's id tells its kind."""
    return StepWake("transcribe" if job_id.startswith("tr_") else "summarise", job_id, at)


@dataclass
class Processing:
    """Everything a step may use. Time comes from `now`."""

    settings: ProcessingSettings
    net: Net
    secrets: ProcessingSecrets = field(default_factory=ProcessingSecrets)
    now: Callable[[], float] = clock.now
    free: dict[str, Transcriber] = field(default_factory=dict)
    paid: dict[str, AssemblyTranscriber] = field(default_factory=dict)
    summariser: Summariser = field(default_factory=ExtractiveSummariser)
    chat: ChatClient | None = None
    fact_sources: tuple[FactSource, ...] = ()
    """Who knows the length of a video and whether a stream is over, the first one first."""
    documents: DocumentStore = field(default_factory=LocalDocuments)
    memory: MemoryStore | None = None
    """None: nothing is remembered, as in commands."""
    notifiers: list[Notifier] | None = None
    """None: built from the settings when a notification is sent."""
    operator: str | None = None
    """Who acts by command or page, for the audit log. None: the worker."""
    retention_ran_at: float = float("-inf")
    """When retention last had nothing left to remove."""
    failpoint: Callable[[str], None] = lambda name: None
    """Called at every point where tests end the process."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the process shuts down: no new paid call begins."""

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.settings.artifacts)

    def audit_scope(self, agent: str, kind: str, name: str | None, correlation_id: str | None = None) -> AuditScope:
        return AuditScope(agent, correlation_id, kind, name, self.settings.retention.audit_days)

    def video_scope(self, agent: str, video: ProcessingVideo) -> AuditScope:
        return self.audit_scope(agent, "video", video.id, video.correlation_id)

    def today(self) -> str:
        """The day in UTC: the id of the current run."""
        return datetime.fromtimestamp(self.now(), UTC).date().isoformat()


def day_span(day: str) -> tuple[float, float]:
    start = runs.day_start(day)
    return start, start + DAY


def create(
    settings: ProcessingSettings,
    secrets: ProcessingSecrets,
    *,
    net: Net | None = None,
    now: Callable[[], float] = clock.now,
) -> Processing:
    """Build the providers that the settings name. ConfigError when an extra, a key or a valid URL is missing."""
    if secrets.notify_urls:
        notifications.check(secrets.notify_urls)
    net = net or Net()
    fact_sources: list[FactSource] = []  # the catalogue costs no request to YouTube, so it comes first
    if settings.ingester_url and secrets.ingester:
        fact_sources.append(CatalogueFacts(net, settings.ingester_url, secrets.ingester))
    if secrets.youtube:
        fact_sources.append(YouTubeFacts(net, settings.facts.youtube_base_url, secrets.youtube, now))
    rt = Processing(settings, net, secrets, now, fact_sources=tuple(fact_sources))
    rt.documents = open_documents(settings.stores.documents)
    rt.memory = open_memory(settings.stores.memory, settings.state_dir / "memory")
    transcription, summarization = settings.transcription, settings.summarization
    for name in transcription.providers:
        if name == "captions":
            captions = CaptionTranscriber(net, transcription.captions.base_url, now=now)
            captions.check()
            rt.free[name] = captions
        elif name == "file":
            rt.free[name] = FileTranscriber(transcription.file.directory)
        else:
            key = secrets.assemblyai or ""
            rt.paid[name] = AssemblyTranscriber(transcription.assemblyai, net, key, secrets.webhook, now)
    if summarization.provider == "openai":
        rt.chat = ChatClient(summarization.openai, net, secrets.openai, now)
        rt.summariser = OpenAISummariser(summarization.openai, summarization.prompts_dir)
    return rt


def open_processing(path: Path | None = None, env: Mapping[str, str] | None = None) -> Processing:
    """Load the configuration, set up logging, open and migrate the database."""
    settings = load(path, env)
    secrets = read_secrets(settings, env)
    logs.setup(level=settings.log_level, format=settings.log_format, secrets=secrets.all)
    rt = create(settings, secrets)
    db.open_database(settings.database_url)
    db.migrate()
    return rt
