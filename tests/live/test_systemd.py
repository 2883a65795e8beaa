"""The installer and the units under a real systemd: `make live`. The tests are one story, in this order."""

import json
import os
import re
from pathlib import Path

import pytest

from csi import __version__
from tests.live import machine as rig
from tests.live.machine import RECEIVER, SECRET, Machine
from tests.rigs.processes import wait_until

pytestmark = [pytest.mark.live, pytest.mark.skipif(rig.why_not() is not None, reason=rig.why_not() or "")]

SERVICES = ("csi-worker", "csi-web")
OLD = "universal-agent-youtube-playlist-poller"
INSTALL = f"cd /root/csi && ops/install.sh --python {rig.PYTHON}"


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    work = Path(os.environ.get("CSI_LIVE_CACHE") or tmp_path_factory.mktemp("live"))
    home = tmp_path_factory.mktemp("machine")
    try:
        with rig.running_machine(home, work / "wheels") as built:
            built.youtube = built.start_neighbours()
            yield built
    except rig.CannotRun as error:
        pytest.skip(f"no machine with systemd can be made here: {error}")


def configure(box: Machine, **blocks: object) -> None:
    site = box.youtube
    playlists = {"api_base_url": site["api_base_url"], "playlists": [{"id": ref} for ref in site["playlists"]]}
    channels = {
        "feed_url_template": site["feed_url_template"],
        "watchlist": [{"channel_id": ref} for ref in site["channels"]],
    }
    often = {"poll_interval_seconds": 5, "first_poll": "all"}
    document = {
        "delivery": {"priority_behavior": {"standard": {"max_delay_seconds": 2}}},
        "sources": {"youtube_playlist": often | playlists, "youtube_channel_rss": often | channels},
    }
    (box.root / "etc/csi/config.yaml").write_text(json.dumps(document | blocks))


def become(box: Machine, version: str, *, broken: bool = False, migration: str = "") -> None:
    """Make the machine's checkout another version."""
    there = box.checkout()
    init = there / "csi/__init__.py"
    init.write_text(init.read_text().replace(__version__, version))
    if broken:
        file = there / "csi/web/app.py"
        file.write_text(file.read_text() + "\nraise SystemExit('this version cannot start')\n")
    if migration:
        (there / f"csi/store/migrations/{migration}.py").write_text(SLOW_MIGRATION)


SLOW_MIGRATION = "import time\n\n\ndef up(migrator, db):\n    time.sleep(30)\n"
START_SECONDS = 20
"""Less than the migration takes, more than a start on a busy machine."""


def release(box: Machine) -> str:
    return os.readlink(box.root / "opt/csi/current").removeprefix("releases/").partition("-")[0]


def owners(box: Machine) -> set[str]:
    return set(box.sh("find /var/lib/csi /var/backups/csi -printf '%u\n' | sort -u").split())


def test_the_first_installation_starts_nothing_and_its_timers_find_nothing_to_do(box):
    said = box.sh(INSTALL)
    assert "not started: edit /etc/csi/config.yaml" in said
    assert not any(box.is_active(unit) for unit in SERVICES)
    box.ok("systemctl", "start", "csi-backup.service", "csi-prune.service")
    assert not (box.root / "var/lib/csi/csi.db").exists()
    assert box.csi("--version").strip() == f"csi, version {__version__}"


def test_variables_mean_the_same_for_systemd_shell_and_csi(box):
    quoted = SECRET.replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    text = f'CSI_UA_ENDPOINT=http://127.0.0.1:{RECEIVER}/api/v1/signals/ingest\nCSI_UA_SHARED_SECRET="{quoted}"\n'
    text += f'UA_SIGNALS_INGEST_SHARED_SECRET="{quoted}"\nYOUTUBE_API_KEY=demo-key\nSINGLE=\'a $b "c" `d`\'\n'
    (box.root / "etc/csi/env").write_text(text)
    print_both = 'printf \'%s|%s\' "$CSI_UA_SHARED_SECRET" "$SINGLE"'
    (box.root / "root/print").write_text(f"#!/bin/sh\n{print_both} >/root/by-systemd\n")
    box.sh("chmod 755 /root/print; systemd-run --wait -q -p EnvironmentFile=/etc/csi/env /root/print")
    shell = box.sh(f"set -a; . /etc/csi/env; {print_both}")
    wanted = f'{SECRET}|a $b "c" `d`'
    assert ((box.root / "root/by-systemd").read_text(), shell) == (wanted, wanted)


def test_files_that_root_made_before_the_first_start_do_not_lock_the_service_out(box):
    configure(box)
    box.csi("db", "migrate")
    box.csi("destinations", "list")
    assert owners(box) == {"csi"}


def test_the_migration_from_the_old_poller_works_under_sudo_and_can_be_taken_back(box):
    units = box.root / "etc/systemd/system"
    (units / f"{OLD}.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/echo sent video_id=dQw4w9WgXcQ\n")
    (units / f"{OLD}.timer").write_text(
        "[Timer]\nOnActiveSec=0\nOnUnitActiveSec=1h\n[Install]\nWantedBy=timers.target\n"
    )
    box.sh(f"systemctl daemon-reload; systemctl enable --now {OLD}.timer")
    assert wait_until(lambda: "dQw4w9WgXcQ" in box.log("-u", OLD), 30)
    script = "/root/csi/ops/migrate/migrate_to_csi.sh"
    box.ok(script, "check")
    box.ok(script, "parallel")
    box.wait_active(*SERVICES)
    good = (box.root / "etc/csi/config.yaml").read_text()
    (box.root / "etc/csi/config.yaml").write_text("delivry: {}\n")
    assert box.run(script, "cutover", "--yes").returncode != 0
    assert box.is_active(f"{OLD}.timer"), "nothing is stopped before the take-over was tried"
    (box.root / "etc/csi/config.yaml").write_text(good)

    box.ok(script, "cutover", "--yes")
    assert not box.is_active(f"{OLD}.timer")
    box.wait_active(*SERVICES)
    box.ok(script, "rollback", "--yes")
    assert box.is_active(f"{OLD}.timer")
    three = ("csi.target", "csi-worker", f"{OLD}.timer")
    enabled = [box.run("systemctl", "is-enabled", unit).stdout.strip() for unit in three]
    assert enabled == ["disabled", "disabled", "enabled"]
    box.sh(f"systemctl disable --now {OLD}.timer")


def test_the_services_start_and_report_themselves(box):
    box.sh(INSTALL)
    box.wait_active(*SERVICES, "csi.target")
    assert [box.show(unit, "NRestarts") for unit in SERVICES] == ["0", "0"]
    assert box.is_active("csi-ingester.service"), "the name of the specification"
    assert wait_until(lambda: "running" in box.csi("status") or "alive" in box.csi("status"), 60)
    for unit in (*SERVICES, "csi-backup", "csi-prune"):
        line = box.ok("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
        assert float(re.search(r"([\d.]+)", line.partition(":")[2])[1]) < 2.0, line


def test_a_second_installation_restarts_nothing(box):
    before = [box.show(unit, "MainPID") for unit in SERVICES]
    assert "they were not restarted" in box.sh(INSTALL)
    assert [box.show(unit, "MainPID") for unit in SERVICES] == before


def test_backup_and_prune_work_in_their_sandbox(box):
    box.ok("systemctl", "start", "csi-backup.service", "csi-prune.service")
    assert list((box.root / "var/backups/csi").glob("csi-*.db"))
    assert owners(box) == {"csi"}


def test_a_killed_worker_is_started_again(box):
    old = box.show("csi-worker", "MainPID")
    box.ok("kill", "-9", old)
    assert wait_until(lambda: box.show("csi-worker", "MainPID") not in (old, "0"), 60)
    box.wait_active("csi-worker")


def test_a_reload_is_taken_and_a_bad_one_fails_visibly(box):
    box.ok("systemctl", "reload", "csi-worker")
    assert wait_until(lambda: "configuration is reloaded" in box.log("-u", "csi-worker"), 30)
    good = (box.root / "etc/csi/config.yaml").read_text()
    (box.root / "etc/csi/config.yaml").write_text("delivry: {}\n")
    assert box.run("systemctl", "reload", "csi-worker").returncode != 0
    assert box.is_active("csi-worker"), "it goes on with the configuration that it has"
    assert box.run("systemctl", "restart", "csi.target").returncode != 0
    assert wait_until(lambda: [box.show(unit, "ActiveState") for unit in SERVICES] == ["failed", "failed"], 60), (
        box.log()
    )
    errors = box.log("-p", "err", "-u", "csi-worker")
    assert "delivry" in errors, "the reason is an error in the journal"
    (box.root / "etc/csi/config.yaml").write_text(good)
    box.ok("systemctl", "restart", "csi.target")
    box.wait_active(*SERVICES)


def test_priorities_in_the_journal_follow_the_level(box):
    lines = box.ok("journalctl", "--no-pager", "-o", "json", "-u", "csi-worker").splitlines()
    entries = [entry for entry in map(json.loads, lines) if str(entry["MESSAGE"]).startswith("{")]
    pairs = {(json.loads(entry["MESSAGE"])["level"], entry["PRIORITY"]) for entry in entries}
    assert ("INFO", "6") in pairs
    assert pairs <= {("DEBUG", "7"), ("INFO", "6"), ("WARNING", "4"), ("ERROR", "3"), ("CRITICAL", "2")}


def test_receiver_and_processing_run_as_services(box):
    (box.root / "etc/systemd/system/csi-receiver.service.d").mkdir()
    drop_in = "[Service]\nExecStart=\nExecStart=/opt/csi/current/venv/bin/csi receiver --host 127.0.0.1 --port 8099\n"
    (box.root / "etc/systemd/system/csi-receiver.service.d/port.conf").write_text(drop_in)
    box.sh("systemctl daemon-reload; systemctl enable --now csi-receiver csi-processing")
    box.wait_active("csi-receiver", "csi-processing")
    assert wait_until(lambda: box.run("curl", "-fsS", "http://127.0.0.1:8099/healthz").returncode == 0, 30)
    assert [box.show(unit, "NRestarts") for unit in ("csi-receiver", "csi-processing")] == ["0", "0"], box.log()
    box.sh("systemctl disable --now csi-receiver csi-processing")


def test_everything_is_back_after_a_reboot(box):
    box.power_off()
    box.boot()
    box.wait_active(*SERVICES, "csi-backup.timer", "csi-prune.timer")


def test_an_upgrade_whose_migration_outlasts_the_start_timeout(box):
    """It runs in the installer; and a start that has to migrate asks for more time."""
    become(box, "98.0.0", migration="9998_slow")
    assert "restarted: " in box.sh(INSTALL)
    box.wait_active(*SERVICES)
    assert release(box) == "98.0.0"
    assert "9998_slow" in box.csi("db", "status")

    folder = box.root / "etc/systemd/system/csi-worker.service.d"
    folder.mkdir()
    (folder / "start.conf").write_text(f"[Service]\nTimeoutStartSec={START_SECONDS}\n")
    place = next((box.root / "opt/csi/current/venv/lib").glob("python*/site-packages/csi/store/migrations"))
    (place / "9999_slower.py").write_text(SLOW_MIGRATION)
    box.sh("systemctl daemon-reload; systemctl stop csi.target")
    box.ok("systemctl", "start", "csi-worker")
    assert box.show("csi-worker", "NRestarts") == "0"
    (folder / "start.conf").unlink()
    box.sh("systemctl daemon-reload; systemctl start csi.target")


def test_a_refused_rollback_leaves_the_version_that_runs(box):
    before = box.show("csi-worker", "MainPID")
    done = box.run("bash", "-c", f"{INSTALL} --rollback")
    assert (done.returncode, "nothing was changed" in done.stderr) == (1, True), done.stdout + done.stderr
    assert (release(box), box.show("csi-worker", "MainPID")) == ("98.0.0", before)


def test_a_release_that_cannot_start_goes_back_by_itself(box):
    become(box, "99.0.0", broken=True, migration="9999_slower")
    (box.root / "root/csi/csi/store/migrations/9998_slow.py").write_text(SLOW_MIGRATION)
    done = box.run("bash", "-c", INSTALL)
    assert done.returncode == 1
    assert "99.0.0" in done.stderr
    assert "runs again" in done.stderr
    assert release(box) == "98.0.0"
    box.wait_active(*SERVICES)


def test_an_upgrade_and_its_rollback(box):
    become(box, "100.0.0", migration="9999_slower")
    (box.root / "root/csi/csi/store/migrations/9998_slow.py").write_text(SLOW_MIGRATION)
    # The connection is lost while the services are stopped.
    lost = "while systemctl -q is-active csi-worker; do sleep 0.1; done; kill -HUP $!; kill -TERM $!; wait $!"
    box.sh(f"(cd /root/csi; exec {INSTALL.partition('&& ')[2]}) & {lost}")
    assert release(box) == "100.0.0"
    box.wait_active(*SERVICES)
    box.sh(f"{INSTALL} --rollback")
    assert release(box) == "98.0.0"
    box.wait_active(*SERVICES)


def test_nothing_was_lost_and_no_secret_was_shown(box):
    assert wait_until(lambda: box.missing(older_than=15)[0] == 0, 90), box.missing(15)
    assert box.missing(15)[1] > 5
    shown = box.sh("journalctl --no-pager; systemctl show csi-worker csi-web; ps auxww")
    assert SECRET not in shown


def test_uninstall_leaves_the_data(box):
    box.sh(f"{INSTALL} --uninstall")
    assert box.run("systemctl", "cat", "csi-worker").returncode != 0
    assert (box.root / "var/lib/csi/csi.db").exists()
    assert not (box.root / "opt/csi").exists()
    box.sh(f"{INSTALL} --uninstall --purge --yes")
    assert box.run("getent", "passwd", "csi").returncode != 0
