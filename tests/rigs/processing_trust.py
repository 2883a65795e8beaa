"""Processing as an installation of the trust table: its worker, and the receiver that serves its pages."""

import sys
import time

import httpx
import yaml

from tests.fakes.providers import FakeChat
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.processes import CONSUMER
from tests.rigs.processing_bench import ProcessingBench
from tests.rigs.trust import TrustInstallation


class ProcessingInstallation(TrustInstallation):
    """The sidecar is the receiver, the worker is processing's; `chat` is the model that writes the summaries."""

    pages = {"readyz": "processing/readyz", "livez": "processing/livez"}  # noqa: RUF012
    metric = "csi_processing_problems"
    job = "csi-receiver"
    pings = False
    chat: FakeChat
    bench: ProcessingBench

    def write_processing(self, **blocks: object) -> None:
        """Before the start: the model, the receiver's database and the configuration."""
        self.chat = self.opened.enter_context(FakeChat())
        self.bench = ProcessingBench(self.home, time.time)
        self.opened.callback(self.bench.close)
        config = {
            "state_dir": str(self.home / "processing"),
            "receiver_db": str(self.home / "receiver.db"),
            "log_format": "json",
            "notifications": {"window": 3600},  # the message of summarised videos would be one too many
            "transcription": {"providers": ["file"], "file": {"directory": str(self.home / "transcripts")}},
            "summarization": {"provider": "openai", "openai": {"base_url": self.chat.url, "timeout": 5}},
        } | blocks
        (self.home / "processing.yaml").write_text(yaml.safe_dump(config))
        self.extra_env = {
            **self.extra_env,
            "CSI_PROCESSING_CONFIG": str(self.home / "processing.yaml"),
            "UA_SIGNALS_INGEST_SHARED_SECRET": SECRET,
            "OPENAI_API_KEY": "openai-key-1",
        }

    def start_sidecar(self) -> None:
        line = [sys.executable, "-m", "csi.cli.main", "receiver", "--port", str(self.port)]
        files = ["--db", str(self.home / "receiver.db"), "--processing", str(self.home / "processing.yaml")]
        self.sidecar = self.start(*line, *files)

    def start_worker(self, *line: str) -> None:
        consumer = [part if part != "huey_config.huey" else "tasks.processing.huey" for part in CONSUMER]
        self.worker = self.start(*(line or consumer))

    def publish(self, number: int = 1) -> None:
        for _ in range(number):
            self.bench.deliver(f"vid{time.time_ns() % 10**8:08d}")

    def wait_until_healthy(self) -> None:
        self.publish()
        with httpx.Client(timeout=5) as client:
            self.wait_for(lambda: self.page("readyz", client)[0] == 200 and self.chat.billed, 90)
