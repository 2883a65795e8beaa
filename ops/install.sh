#!/usr/bin/env bash
# Installs CSI from this checkout as systemd services, upgrades it, rolls back to the previous version, or removes it.
# It can be run again: it changes and restarts only what differs. See docs/install.md.
set -euo pipefail
umask 022

usage() {
    cat <<'END'
usage: ops/install.sh [options]             install, or upgrade to this checkout
       ops/install.sh --rollback [options]  go back to the version that ran before
       ops/install.sh --uninstall [options] remove services and versions; configuration, data and backups stay

  --root DIR      install below DIR instead of / (for images and tests); nothing is started
  --prefix DIR    where versions live, default /opt/csi
  --python EXE    the Python to use, 3.11 or newer, default python3
  --venv DIR      use this virtual environment instead of making one (hosts without a package index)
  --no-start      enable, but do not start
  --keep N        versions to keep beside the running one, default 3
  --purge         with --uninstall: remove configuration, data, backups and the user csi, too
  --yes           with --purge: do not ask
END
}

# A terminal that is gone does not end an upgrade.
say() { echo "csi install: $*" 2>/dev/null || true; }
die() { echo "csi install: $*" >&2 || true; exit "${2:-1}"; }

read_options() {
    root="" prefix=/opt/csi python=python3 venv="" start=yes keep=3 mode=install purge=no yes=no
    while [ $# -gt 0 ]; do
        case $1 in
            --root | --prefix | --python | --venv | --keep)
                [ $# -ge 2 ] || die "$1 needs a value; see --help" 2
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --no-start) start=no ;;
            --rollback) mode=rollback ;;
            --uninstall) mode=uninstall ;;
            --purge) purge=yes ;;
            --yes) yes=yes ;;
            -h | --help) usage; exit 0 ;;
            *) die "unknown option $1; see --help" 2 ;;
        esac
        shift
    done
    [[ $prefix == /* ]] || die "--prefix must be an absolute path: the units name it" 2
    [[ $keep =~ ^[0-9]+$ ]] || die "--keep needs a number" 2
    [ "$purge" = no ] || [ "$mode" = uninstall ] || die "--purge belongs to --uninstall" 2
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

as_root() { [ -z "$root" ]; } # below a --root ownership cannot be set, and nothing is started

one_at_a_time() { # two installers would build and switch the same version
    exec 9>>"$home/.lock"
    flock -n 9 || die "another installation runs; wait until it has ended"
}

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
    # Files that earlier commands left to root would lock the services out.
    if as_root; then find /var/lib/csi /var/backups/csi -xdev -user root -exec chown -h csi:csi {} +; fi
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
    digest=$(cd "$src" && find csi tasks ops/systemd huey_config.py pyproject.toml requirements.lock -type f ! -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-10)
    echo "$version-$digest"
}

make_pip() { # beside the releases: none of them needs it to run
    [ -x "$home/pip/bin/pip" ] && "$home/pip/bin/pip" --version >/dev/null 2>&1 && return 0
    "$python" -m venv --clear "$home/pip" || die "$python cannot make virtual environments (Debian: apt-get install python3-venv)"
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
        make_pip
        "$python" -m venv --without-pip "$target/venv"
        local install=("$home/pip/bin/pip" --python "$target/venv/bin/python" install --quiet --disable-pip-version-check)
        "${install[@]}" --require-hashes -r "$src/requirements.lock"
        "${install[@]}" --no-deps --no-build-isolation "$src"
    fi
    cp -r "$src/ops/systemd" "$target/systemd"
    "$target/venv/bin/csi" --version >/dev/null || die "the new version does not start; nothing was changed"
    if as_root; then
        runuser -u csi -- "$target/venv/bin/csi" --version >/dev/null 2>&1 ||
            die "the user csi cannot run $(readlink -f "$target/venv/bin/python"): choose another Python with --python"
    fi
    touch "$target/complete"
    say "built $1"
}

current() { # the release that the link names, or nothing
    if [ -L "$home/current" ]; then basename "$(readlink "$home/current")"; fi
}

point_to() { # the link alone: one rename, a version exists at every moment
    ln -sfn "releases/$1" "$home/current.new"
    mv -T "$home/current.new" "$home/current"
}

switch_to() {
    local was
    was=$(current)
    [ "$was" = "$1" ] && return 0
    if [ -n "$was" ]; then ln -sfn "releases/$was" "$home/previous"; fi
    point_to "$1"
    say "current is $1${was:+ (before: $was)}"
}

csi_of() { # a command of one release, as the services run it: their user, their variables and no others
    local release=$1
    shift
    local line=(env -i "PATH=$PATH" LANG=C.UTF-8 "PYTHONPATH=${PYTHONPATH:-}" "CSI_ENV_FILE=$root/etc/csi/env")
    if as_root; then
        line=(runuser -u csi -- "${line[@]}")
    else
        line+=("CSI_STATE_DIR=$root/var/lib/csi" "CSI_CONFIG_PATH=$root/etc/csi/config.yaml")
    fi
    (cd "$root/var/lib/csi" && exec "${line[@]}" "$home/releases/$release/venv/bin/csi" "$@")
}

csi_env() { csi_of "$(current)" "$@"; }

database_file() { # of a SQLite database that exists, or nothing
    local file
    file=$(csi_env db status 2>/dev/null | sed -n 's/^database  *//p')
    if [ -f "$file" ]; then echo "$file"; elif [ -f "$root/var/lib/csi/csi.db" ]; then echo "$root/var/lib/csi/csi.db"; fi
}

save_database() { # migrations only go forward: a rollback needs the copy. The name of the copy is left in $copy
    copy=""
    [ -n "$(database_file)" ] || return 0
    copy="$root/var/backups/csi/before-$1-$(date -u +%Y%m%d%H%M%S).db"
    csi_env db backup "$copy" >/dev/null || return 1
    say "saved the database as ${copy#"$root"}"
}

put_file() { # mode, to; the content on standard input: written only when it differs. $changed says whether one was
    install -d -m 0755 "$(dirname "$root$2")"
    cat >"$root$2.csi-new"
    chmod "$1" "$root$2.csi-new"
    if cmp -s "$root$2.csi-new" "$root$2"; then
        rm "$root$2.csi-new"
    else
        mv "$root$2.csi-new" "$root$2"
        changed=yes
        say "wrote $2"
    fi
}

put_units() {
    local unit
    changed=no
    for unit in "$home/current/systemd"/*; do
        put_file 0644 "/etc/systemd/system/$(basename "$unit")" < <(sed "s|/opt/csi/|$prefix/|g" "$unit")
    done
    # Units that only the other version has.
    for unit in "$root"/etc/systemd/system/csi-*.*; do
        [ -f "$unit" ] && [ ! -L "$unit" ] && [ ! -e "$home/current/systemd/$(basename "$unit")" ] || continue
        grep -q "$prefix/current/" "$unit" || continue
        if as_root; then systemctl --quiet disable --now "$(basename "$unit")" 2>/dev/null || true; fi
        rm "$unit"
        changed=yes
        say "removed /etc/systemd/system/$(basename "$unit")"
    done
    if as_root; then systemctl daemon-reload; fi
}

put_command() { # csi on the PATH, with the variables of the services; its manual page and completion
    local command=/usr/local/bin/csi shared=$home/current/venv/share
    if [ -e "$root$command" ] && ! grep -q "written by ops/install.sh" "$root$command"; then
        say "$command is not ours and stays; the installed command is $prefix/current/venv/bin/csi"
    else
        put_file 0755 "$command" <<END
#!/bin/sh
# written by ops/install.sh: csi with the variables of the services, where they may be read
if [ -z "\${CSI_ENV_FILE:-}" ] && [ -r /etc/csi/env ]; then export CSI_ENV_FILE=/etc/csi/env; fi
exec $prefix/current/venv/bin/csi "\$@"
END
    fi
    [ -d "$shared/man" ] || return 0
    put_file 0644 /usr/local/share/man/man1/csi.1 <"$shared/man/man1/csi.1"
    put_file 0644 /usr/local/share/bash-completion/completions/csi <"$shared/bash-completion/completions/csi"
}

enable_units() { # start at boot
    local unit units=()
    for unit in csi.target csi-worker.service csi-web.service csi-backup.timer csi-prune.timer; do
        if [ -e "$home/current/systemd/$unit" ]; then units+=("$unit"); fi
    done
    if as_root; then
        systemctl --quiet enable "${units[@]}"
        systemctl start csi-backup.timer csi-prune.timer
    elif command -v systemctl >/dev/null; then
        systemctl --quiet --root="$root" enable "${units[@]}"
    fi
}

services=(csi.target csi-worker.service csi-web.service csi-receiver.service csi-processing.service)

active_services() { # of ours, those that run now
    local unit
    as_root || return 0
    for unit in "${services[@]}"; do
        if systemctl --quiet is-active "$unit"; then echo "$unit"; fi
    done
}

refusal() { # why the services of a release would not start with this configuration, or nothing
    local release=$1 said
    if csi_of "$release" config check --help 2>/dev/null | grep -q -- --start; then
        said=$(csi_of "$release" config check --start 2>&1 >/dev/null) || echo "$said"
    else # a version before 1.1
        said=$(csi_of "$release" config show 2>&1 >/dev/null) || echo "$said"
    fi
}

start_services() { # the services named, or those of every installation; on failure says why
    local units=("$@")
    [ $# -gt 0 ] || units=(csi.target csi-worker.service csi-web.service)
    systemctl reset-failed "${services[@]}" 2>/dev/null || true
    systemctl start "${units[@]}" 2>/dev/null && return 0
    say "a service did not start; the end of its log:"
    journalctl --no-pager --output cat --lines 12 --unit csi-worker --unit csi-web --unit csi-config | sed 's/^/    /'
    return 1
}

first_start() {
    local why
    why=$(refusal "$(current)")
    if [ -n "$why" ]; then
        say "not started: edit /etc/csi/config.yaml and /etc/csi/env, then: systemctl restart csi.target"
        sed 's/^/    /' <<<"$why" | head -5
    elif as_root && [ "$start" = yes ]; then
        start_services || die "correct what the log says, then: systemctl restart csi.target"
        say "started; check it with: csi status"
    else
        say "ready; start it with: systemctl restart csi.target"
    fi
}

replace_release() { # to another release, with the services stopped; the old one runs again when the new one cannot start
    local to=$1 was before why running=()
    was=$(current)
    before=$(readlink "$home/previous" || true)
    readarray -t running < <(active_services)
    if [ ${#running[@]} -gt 0 ]; then
        why=$(refusal "$to")
        [ -z "$why" ] || die "$to refuses this configuration, $was keeps running; nothing was changed:
$why"
    fi
    # From here on a lost connection or Ctrl-C must not leave the services stopped.
    trap '' HUP INT TERM PIPE
    # All are stopped: the database is migrated by the new version, and no process of the old one may use it then.
    [ ${#running[@]} -eq 0 ] || systemctl stop "${services[@]}" 2>/dev/null || true
    if [ "$mode" = install ] && ! save_database "$to"; then
        [ ${#running[@]} -eq 0 ] || start_services "${running[@]}" || true
        die "the database could not be saved; nothing was changed"
    fi
    switch_to "$to"
    put_units
    enable_units
    put_command
    if [ ${#running[@]} -eq 0 ] || [ "$start" = no ]; then
        first_start
    elif { [ "$mode" = rollback ] || [ -z "$copy" ] || csi_env db migrate; } && start_services "${running[@]}"; then
        say "restarted: ${running[*]}"
    else
        go_back "$was" "$before"
    fi
}

go_back() { # the release and the database from before
    local failed file
    failed=$(current)
    systemctl stop "${services[@]}" 2>/dev/null || true
    file=$(database_file)
    point_to "$1"
    if [ -n "$2" ]; then ln -sfn "$2" "$home/previous"; else rm -f "$home/previous"; fi
    if [ -n "${copy:-}" ] && [ -n "$file" ] && [[ $(csi_env db status 2>&1 || true) == *"newer csi"* ]]; then
        for part in "" -wal -shm; do
            if [ -e "$file$part" ]; then mv "$file$part" "$file.of-$failed$part"; fi
        done
        install -m 0600 -o csi -g csi "$copy" "$file"
        say "the database from before the upgrade is back; that of $failed is kept as $file.of-$failed"
    fi
    put_units
    enable_units
    put_command
    start_services "${running[@]}" || die "$failed did not start, and $1 does not start either: see the log above"
    die "$failed did not start; $1 runs again"
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
    one_at_a_time
    put_new 0640 root:csi "$src/config/config.example.yaml" /etc/csi/config.yaml
    put_new 0640 root:csi "$src/config/env.example" /etc/csi/env
    put_new 0640 root:csi "$src/config/processing.example.yaml" /etc/csi/processing.yaml
    local release copy=""
    release=$(release_name)
    build_release "$release"
    if [ -n "$(current)" ] && [ "$(current)" != "$release" ]; then
        replace_release "$release"
    else
        switch_to "$release"
        put_units
        enable_units
        put_command
        if [ -n "$(active_services)" ]; then say "the services run this version already; they were not restarted"; else first_start; fi
    fi
    drop_old
}

roll_back() {
    [ -L "$home/previous" ] || die "there is no previous version"
    one_at_a_time
    local was to copy=""
    was=$(current) to=$(basename "$(readlink "$home/previous")")
    [ -e "$home/releases/$to/complete" ] || die "the previous version, $to, no longer exists"
    if [[ $(csi_of "$to" db status 2>&1 || true) == *"newer csi"* ]]; then
        say "$was has changed the database, and $to cannot read it: restore the copy from before the upgrade first"
        say "    the newest /var/backups/csi/before-$was-*.db   (docs/operate.md, Backup and restore)"
        die "nothing was changed: $was is still installed"
    fi
    replace_release "$to"
}

uninstall() {
    if [ "$purge" = yes ] && [ "$yes" = no ]; then
        [ -t 0 ] || die "stdin is not a terminal: pass --yes to remove configuration, data and backups" 2
        read -r -p "Remove /etc/csi, /var/lib/csi and /var/backups/csi? [y/N] " answer
        [ "$answer" = y ] || die "nothing was changed"
    fi
    local unit
    for unit in "$root"/etc/systemd/system/csi-*.* "$root/etc/systemd/system/csi.target"; do
        [ -f "$unit" ] || [ -L "$unit" ] || continue
        if as_root; then systemctl --quiet disable --now "$(basename "$unit")" 2>/dev/null || true; fi
        rm -f "$unit"
    done
    rm -f "$root"/etc/systemd/system/{multi-user,timers,csi}.target.wants/csi{-*,.target}
    if as_root; then systemctl daemon-reload; fi
    if grep -qs "written by ops/install.sh" "$root/usr/local/bin/csi"; then
        rm -f "$root/usr/local/bin/csi" "$root/usr/local/share/man/man1/csi.1" "$root/usr/local/share/bash-completion/completions/csi"
    fi
    rm -rf "$home/releases" "$home/pip" "$home/current" "$home/previous" "$home/.lock"
    rmdir "$home" 2>/dev/null || true
    say "services and versions are removed"
    if [ "$purge" = yes ]; then
        rm -rf "$root/etc/csi" "$root/var/lib/csi" "$root/var/backups/csi"
        if as_root && getent passwd csi >/dev/null; then userdel csi; fi
        say "configuration, data and backups are removed"
    else
        say "kept: /etc/csi, /var/lib/csi, /var/backups/csi; --uninstall --purge removes them"
    fi
}

read_options "$@"
require_host
case $mode in
    install) install_release ;;
    rollback) roll_back ;;
    uninstall) uninstall ;;
esac
