"""The wiring of processing: settings, providers, artifact store, HTTP client and clock, in one value."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from csi import clock, logs, messages
from csi.net import Net
from csi.processing.artifacts import ArtifactStore
from csi.processing.config import Secrets, load, read_secrets
from csi.processing.providers.assemblyai import AssemblyTranscriber
from csi.processing.providers.base import PaidTranscriber, Summariser, Transcriber
from csi.processing.providers.captions import CaptionTranscriber
from csi.processing.providers.extractive import ExtractiveSummariser
from csi.processing.providers.openai import ChatClient, OpenAISummariser
from csi.processing.providers.transcript_files import FileTranscriber
from csi.processing.settings import ProcessingSettings, Route
from csi.processing.store import db

DAY = 86_400.0
Notifier = Callable[[str, str], None]


def _nothing(name: str) -> None:
    """A place where a test may end the process."""


@dataclass
class Processing:
    """What a step may use. Time comes from `now`."""

    settings: ProcessingSettings
    net: Net
    secrets: Secrets = field(default_factory=Secrets)
    now: Callable[[], float] = clock.now
    free: dict[str, Transcriber] = field(default_factory=dict)
    paid: dict[str, PaidTranscriber] = field(default_factory=dict)
    summariser: Summariser = field(default_factory=ExtractiveSummariser)
    chat: ChatClient | None = None
    notifiers: list[Notifier] | None = None
    """None: as the settings say, made when the first notice goes out."""
    failpoint: Callable[[str], None] = _nothing
    leaving: threading.Event = field(default_factory=threading.Event)
    """Set when the process is asked to end: no new paid call begins."""

    @property
    def artifacts(self) -> ArtifactStore:
        return ArtifactStore(self.settings.artifacts)

    def route(self, pipeline: str) -> Route | None:
        return self.settings.routes.get(pipeline)

    def today(self) -> str:
        """The run of now: a day in UTC."""
        return day_of(self.now())


def day_of(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def day_span(day: str) -> tuple[float, float]:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    return start, start + DAY


def create(
    settings: ProcessingSettings, secrets: Secrets, *, net: Net | None = None, now: Callable[[], float] = clock.now
) -> Processing:
    """Providers as the settings name them. ConfigError where an extra or a key is absent, or an address is none."""
    if secrets.notify_urls:
        messages.check(secrets.notify_urls)
    net = net or Net()
    rt = Processing(settings, net, secrets, now)
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
    """Read the config, set up logging, open the database and bring it up to date."""
    settings = load(path, env)
    secrets = read_secrets(settings, env)
    logs.setup(level=settings.log_level, format=settings.log_format, secrets=secrets.all)
    rt = create(settings, secrets)
    db.open_database(settings.database_url)
    db.migrate()
    return rt
