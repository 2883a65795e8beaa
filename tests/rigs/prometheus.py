"""A real Prometheus on loopback with the shipped alert rules, where one is installed."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import httpx
import yaml

from tests.rigs.processes import ROOT, free_port

RULES = (ROOT / "ops/prometheus/csi.rules.yml", ROOT / "ops/prometheus/csi-processing.rules.yml")
SCRAPE_SECONDS = 5


class Prometheus:
    """Scrapes each installation that is added, and knows when each of its alerts became active."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        home.mkdir()
        (home / "targets").mkdir()
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
            "rule_files": [str(path) for path in RULES],
            "scrape_configs": [
                {
                    "job_name": "csi",
                    "file_sd_configs": [{"files": [f"{home}/targets/*.json"], "refresh_interval": "2s"}],
                }
            ],
        }
        (home / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._active: dict[tuple[str, str], float] = {}
        self._fired: set[tuple[str, str]] = set()
        self._over = threading.Event()
        options = [f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data"]
        with (home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", *options, f"--web.listen-address=127.0.0.1:{self.port}"], stdout=log, stderr=log
            )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def add(self, name: str, port: int, job: str) -> None:
        target = [{"targets": [f"127.0.0.1:{port}"], "labels": {"row": name, "job": job}}]
        (self.home / "targets" / f"{name}.json").write_text(json.dumps(target))

    def remove(self, name: str) -> None:
        (self.home / "targets" / f"{name}.json").unlink()

    def fires(self, name: str, began: float) -> dict[str, float]:
        """The alerts of this installation: seconds from `began` until each fires if its expression stays true."""
        waits = {rule["alert"]: _seconds(rule.get("for", "0s")) for rule in shipped_rules()}
        found = {alert: at for (row, alert), at in tuple(self._active.items()) if row == name}
        return {alert: at - began + waits[alert] for alert, at in found.items() if at >= began - SCRAPE_SECONDS}

    def fired(self, name: str) -> list[str]:
        """The alerts of this installation that have really fired."""
        return sorted(alert for row, alert in tuple(self._fired) if row == name)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(10)
        self._process.terminate()
        self._process.wait(30)

    def _follow(self) -> None:
        with httpx.Client(timeout=5) as client:
            while not self._over.wait(2):
                with suppress(httpx.HTTPError, ValueError):
                    self._note(client.get(f"http://127.0.0.1:{self.port}/api/v1/alerts").json()["data"]["alerts"])

    def _note(self, alerts: list[dict]) -> None:  # type: ignore[type-arg]
        for alert in alerts:
            if row := alert["labels"].get("row"):
                key = row, alert["labels"]["alertname"]
                self._active[key] = datetime.fromisoformat(alert["activeAt"]).timestamp()
                if alert["state"] == "firing":
                    self._fired.add(key)


def shipped_rules() -> list[dict]:  # type: ignore[type-arg]
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def _seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


@contextmanager
def prometheus(home: Path) -> Iterator[Prometheus | None]:
    """None where it is not installed."""
    if shutil.which("prometheus") is None:
        yield None
        return
    running = Prometheus(home)
    try:
        yield running
    finally:
        running.stop()
