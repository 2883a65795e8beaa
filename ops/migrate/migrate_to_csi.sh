#!/usr/bin/env bash
# Migrates from the old playlist poller to CSI (PRD, Appendix B). Every step can be repeated and reverted.
# See docs/install.md, "From the old poller".
set -euo pipefail

usage() {
    cat <<'END'
usage: migrate_to_csi.sh STEP [options]

  check      is CSI ready: configuration, receiver, worker; changes nothing
  parallel   start CSI in parallel with the old poller
  compare    what each side saw and missed since the parallel run began (--log)
  cutover    try the take-over, then stop and disable the old poller, take over what it has seen (--log), enable CSI
  rollback   stop and disable CSI, start the old poller again

  --log FILE        the old poller's log, its state file, or a list of video ids; default: its journal
  --since TIME      for compare, default 24h
  --old-unit NAME   default universal-agent-youtube-playlist-poller (its .timer and .service)
  --dry-run         print what would be done
  --yes             do not ask
END
}

say() { echo "migrate: $*"; }
die() { echo "migrate: $*" >&2; exit "${2:-1}"; }

read_options() {
    step="" log="" since=24h old=universal-agent-youtube-playlist-poller dry=no yes=no
    while [ $# -gt 0 ]; do
        case $1 in
            check | parallel | compare | cutover | rollback) step=$1 ;;
            --log | --since | --old-unit)
                [ $# -ge 2 ] || die "$1 needs a value; see --help" 2
                case $1 in --log) log=$2 ;; --since) since=$2 ;; *) old=$2 ;; esac
                shift
                ;;
            --dry-run) dry=yes ;;
            --yes) yes=yes ;;
            -h | --help) usage; exit 0 ;;
            *) die "unknown argument $1; see --help" 2 ;;
        esac
        shift
    done
    [ -n "$step" ] || { usage >&2; exit 2; }
    [ -z "$log" ] || [ -r "$log" ] || die "$log cannot be read"
}

find_csi() { # sudo passes neither PATH nor variables: the installation is found by its command or its unit
    local unit
    unit=$(systemctl cat csi-worker.service 2>/dev/null | sed -n 's|^ExecStart=\(/[^ ]*\)/venv/bin/.*|\1/venv/bin/csi|p' | head -1)
    for csi in "$(command -v csi || true)" /usr/local/bin/csi "$unit" /opt/csi/current/venv/bin/csi; do
        if [ -n "$csi" ] && [ -x "$csi" ]; then break; fi
        csi=""
    done
    [ -n "$csi" ] || die "csi was not found; run ops/install.sh first"
    if [ -z "${CSI_ENV_FILE:-}" ] && [ -r /etc/csi/env ]; then export CSI_ENV_FILE=/etc/csi/env; fi
}

run() { # print the command, and run it unless --dry-run is set
    say "+ $*"
    [ "$dry" = yes ] || "$@"
}

confirm() {
    if [ "$dry" = yes ] || [ "$yes" = yes ]; then return 0; fi
    [ -t 0 ] || die "$1 stdin is not a terminal: pass --yes, or preview with --dry-run." 2
    read -r -p "$1 [y/N] " answer
    [ "$answer" = y ] || die "nothing was changed"
}

old_sightings() { # what the old poller has seen, on standard output
    if [ -n "$log" ]; then cat -- "$log"; else journalctl --unit "$old.service" --output short-iso --no-pager; fi
}

step_check() {
    "$csi" config check
    "$csi" delivery test
    systemctl is-enabled --quiet csi.target || die "csi.target is not enabled; run ops/install.sh first"
    say "CSI is ready; next: parallel"
}

step_parallel() {
    run systemctl start csi.target
    say "both are running. Wait a day, then: compare"
    say "to keep CSI's events from the real receiver meanwhile, see docs/install.md"
}

step_compare() {
    old_sightings | "$csi" compare --source youtube_playlist --since "$since" -
}

step_cutover() {
    # What cannot succeed stops here, while the old poller still runs.
    old_sightings | "$csi" compare --source youtube_playlist --take-over --dry-run - ||
        die "the take-over would fail; the old poller was not stopped"
    [ "$dry" = yes ] || confirm "Stop the old poller $old, and mark what it has seen as seen?"
    # The timer first: nothing new is seen by the old side while its ids are taken over.
    run systemctl stop "$old.timer"
    run systemctl stop "$old.service"
    run systemctl disable "$old.timer"
    if [ "$dry" = no ]; then
        old_sightings | "$csi" compare --source youtube_playlist --take-over --yes - ||
            die "the take-over failed; the old poller is stopped: run cutover again, or rollback"
    fi
    run systemctl enable "${units[@]}"
    run systemctl start csi.target
    say "done. The old units are still there: remove them when you are sure. Back: rollback"
}

step_rollback() {
    confirm "Stop CSI and start the old poller $old again?"
    run systemctl stop "${units[@]}"
    run systemctl disable "${units[@]}"
    run systemctl enable "$old.timer"
    run systemctl start "$old.timer"
    say "the old poller runs again. CSI keeps its rows: what is pending goes out when it is started again"
    say "look into it with: journalctl -u csi-worker -n 500"
}

units=(csi.target csi-worker.service csi-web.service)
read_options "$@"
find_csi
"step_$step"
