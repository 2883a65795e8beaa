#!/usr/bin/env bash
# Installs CSI from this checkout as systemd services, upgrades it, or rolls back to the previous version.
# It can be run again: it changes only what differs. See docs/install.md.
set -euo pipefail
umask 022

usage() {
    cat <<'END'
usage: ops/install.sh [options]            install, or upgrade to this checkout
       ops/install.sh --rollback [options] go back to the version that ran before

  --root DIR      install below DIR instead of / (for images and tests); nothing is started
  --prefix DIR    where versions live, default /opt/csi
  --python EXE    the Python to use, 3.11 or newer, default python3
  --venv DIR      use this virtual environment instead of making one (hosts without a package index)
  --no-start      enable, but do not start
  --keep N        versions to keep beside the running one, default 3
END
}

say() { echo "csi install: $*"; }
die() { echo "csi install: $*" >&2; exit "${2:-1}"; }

read_options() {
    root="" prefix=/opt/csi python=python3 venv="" start=yes keep=3 mode=install
    while [ $# -gt 0 ]; do
        case $1 in
            --root | --prefix | --python | --venv | --keep)
                [ $# -ge 2 ] || die "$1 needs a value; see --help" 2
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --no-start) start=no ;;
            --rollback) mode=rollback ;;
            -h | --help) usage; exit 0 ;;
            *) die "unknown option $1; see --help" 2 ;;
        esac
        shift
    done
    [[ $prefix == /* ]] || die "--prefix must be an absolute path: the units name it" 2
    [[ $keep =~ ^[0-9]+$ ]] || die "--keep needs a number" 2
    root=${root%/}
    src=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    home=$root$prefix
}

require_host() {
    if [ -z "$root" ]; then
        [ "$(id -u)" = 0 ] || die "run it as root (sudo ops/install.sh), or try it out with --root DIR"
        command -v systemctl >/dev/null || die "this host has no systemd; see docs/install.md for alternatives"
    fi
}

require_python() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        die "$python is not Python 3.11 or newer; choose another one with --python"
}

as_root() { [ -z "$root" ]; } # below a --root ownership cannot be set

make_user() {
    as_root || return 0
    getent passwd csi >/dev/null ||
        useradd --system --user-group --home-dir /var/lib/csi --no-create-home --shell /usr/sbin/nologin csi
}

make_dir() { # mode, owner:group, path
    install -d -m "$1" "$root$3"
    if as_root; then chown "$2" "$3"; fi
}

make_dirs() {
    make_dir 0755 root:root "$prefix"
    make_dir 0755 root:root "$prefix/releases"
    make_dir 0700 csi:csi /var/lib/csi
    make_dir 0700 csi:csi /var/backups/csi
    make_dir 0750 root:csi /etc/csi
}

put_new() { # mode, owner:group, from, to: a file that an operator may have edited is never overwritten
    [ -e "$root$4" ] && return 0
    install -m "$1" "$3" "$root$4"
    if as_root; then chown "$2" "$4"; fi
    say "wrote $4: edit it"
}

release_name() { # the version and what is in it: the same checkout is the same release
    local version digest
    version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$src/csi/__init__.py")
    digest=$(cd "$src" && find csi tasks huey_config.py pyproject.toml requirements.lock -type f ! -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-10)
    echo "$version-$digest"
}

build_release() { # `complete` is written last: an incomplete release is built again and never used
    local target=$home/releases/$1
    [ -e "$target/complete" ] && { say "$1 is already installed"; return 0; }
    rm -rf "$target"
    mkdir "$target"
    if [ -n "$venv" ]; then
        [ -x "$venv/bin/python" ] || die "--venv $venv is not a virtual environment"
        ln -s "$(cd "$venv" && pwd)" "$target/venv"
    else
        "$python" -m venv "$target/venv"
        "$target/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$src/requirements.lock"
        "$target/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation "$src"
    fi
    cp -r "$src/ops/systemd" "$target/systemd"
    "$target/venv/bin/csi" --version >/dev/null || die "the new version does not start; nothing was changed"
    touch "$target/complete"
    say "built $1"
}

current() { # the release that the link names, or nothing
    if [ -L "$home/current" ]; then basename "$(readlink "$home/current")"; fi
}

switch_to() {
    local was
    was=$(current)
    [ "$was" = "$1" ] && return 0
    if [ -n "$was" ]; then ln -sfn "releases/$was" "$home/previous"; fi
    ln -sfn "releases/$1" "$home/current.new"
    mv -T "$home/current.new" "$home/current" # one rename: a version exists at every moment
    say "current is $1${was:+ (before: $was)}"
}

csi_env() { # a command of the installed version, as its user and with its environment: files of root would lock it out
    (
        set -a
        # shellcheck disable=SC1091
        . "$root/etc/csi/env"
        CSI_CONFIG_PATH=${CSI_CONFIG_PATH:-$root/etc/csi/config.yaml}
        if ! as_root; then CSI_STATE_DIR=$root/var/lib/csi; fi
        set +a
        cd "$root/var/lib/csi"
        if as_root; then
            exec runuser -u csi -- "$home/current/venv/bin/csi" "$@"
        else
            exec "$home/current/venv/bin/csi" "$@"
        fi
    )
}

save_database() { # migrations only go forward: a rollback needs the copy
    [ -e "$root/var/lib/csi/csi.db" ] || return 0
    local copy="$root/var/backups/csi/before-$1-$(date -u +%Y%m%d%H%M%S).db"
    if csi_env db backup "$copy" >/dev/null; then
        say "saved the database as ${copy#"$root"}"
    else
        die "the database could not be saved; nothing was changed"
    fi
}

put_units() {
    local unit units=$root/etc/systemd/system
    install -d -m 0755 "$units"
    for unit in "$home/current/systemd"/*; do
        sed "s|/opt/csi/|$prefix/|g" "$unit" >"$units/.csi.new"
        chmod 0644 "$units/.csi.new"
        if cmp -s "$units/.csi.new" "$units/$(basename "$unit")"; then
            rm "$units/.csi.new"
        else
            mv "$units/.csi.new" "$units/$(basename "$unit")"
            say "wrote /etc/systemd/system/$(basename "$unit")"
        fi
    done
}

enable_units() { # start at boot
    local units=(csi.target csi-worker.service csi-web.service csi-backup.timer csi-prune.timer)
    if as_root; then
        systemctl daemon-reload
        systemctl --quiet enable "${units[@]}"
        systemctl start csi-backup.timer csi-prune.timer
    elif command -v systemctl >/dev/null; then
        systemctl --quiet --root="$root" enable "${units[@]}"
    fi
}

start_service() {
    local faults
    faults=$(csi_env config check 2>&1 >/dev/null) || true
    # `config check` also refuses what the worker starts with, such as ids that cannot exist: those are only shown.
    if ! csi_env config show >/dev/null 2>&1 || [[ $faults == *"nothing can be delivered"* ]]; then
        say "not started: edit /etc/csi/config.yaml and /etc/csi/env, then: systemctl restart csi.target"
    elif as_root && [ "$start" = yes ]; then
        # Stopped together first: whichever starts first migrates the database, and no process of the old version may use it.
        systemctl stop csi.target csi-worker.service csi-web.service
        systemctl start csi.target csi-worker.service csi-web.service
        say "started; check it with: systemctl status 'csi-*'"
    else
        say "ready; start it with: systemctl restart csi.target"
    fi
    [ -z "$faults" ] || sed 's/^/    /' <<<"$faults" | head -5
}

drop_old() {
    local now before release count=0
    now=$(current) before=$(basename "$(readlink "$home/previous" 2>/dev/null || echo none)")
    while read -r release; do
        [ "$release" = "$now" ] || [ "$release" = "$before" ] && continue
        count=$((count + 1))
        [ "$count" -lt "$keep" ] || { rm -rf "${home:?}/releases/$release"; say "removed $release"; }
    done < <(ls -1t "$home/releases")
}

install_release() {
    require_python
    make_user
    make_dirs
    put_new 0640 root:csi "$src/config/config.example.yaml" /etc/csi/config.yaml
    put_new 0640 root:csi "$src/config/env.example" /etc/csi/env
    local release
    release=$(release_name)
    build_release "$release"
    [ "$(current)" = "$release" ] || [ -z "$(current)" ] || save_database "$release"
    switch_to "$release"
    put_units
    enable_units
    start_service
    drop_old
}

roll_back() {
    [ -L "$home/previous" ] || die "there is no previous version"
    local was to
    was=$(current) to=$(basename "$(readlink "$home/previous")")
    [ -e "$home/releases/$to/complete" ] || die "the previous version, $to, no longer exists"
    switch_to "$to"
    put_units
    enable_units
    if [[ $(csi_env db status 2>&1 || true) == *"newer csi"* ]]; then
        say "$was has changed the database, and $to cannot read it: restore the copy from before the upgrade"
        say "    the newest /var/backups/csi/before-$was-*.db   (docs/operate.md, Backup and restore)"
        die "not started"
    fi
    start_service
}

read_options "$@"
require_host
case $mode in
    install) install_release ;;
    rollback) roll_back ;;
esac
