# shellcheck shell=bash
# Functions of packaging/test and packaging/test-rpm: a fresh Debian 12 that systemd boots in name spaces, and the words of
# docs/install.md. Needs root.
place=$(mktemp -d target/packaging/guest.XXXXXX)
root=$PWD/$place
# shellcheck disable=SC2034  # For the scripts.
uri='nbd+unix:///data?socket=/run/hotset/nbd.sock'
nspawn=
leader=

# unpack NAME [PACKAGE...]: the files of a Debian with these packages too, which is kept under this name.
unpack() {
    local base=$PWD/target/packaging/$1.tar include=systemd,systemd-sysv,dbus,udev,libnbd-bin package
    shift
    for package; do include+=,$package; done
    [ -e "$base" ] || mmdebstrap --quiet --variant=minbase bookworm "$base" --include="$include" http://deb.debian.org/debian
    tar --extract --file "$base" --directory "$root"
}

fail() {
    echo "FAILED: $*" >&2
    [ -z "$leader" ] || inside journalctl --no-pager --lines 40 >&2 || true
    exit 1
}

inside() {
    nsenter --target "$leader" --all -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
}

boot() {
    systemd-nspawn --quiet --directory "$root" --boot --private-network --register=no --keep-unit \
        --console=pipe </dev/null >"$root.log" 2>&1 &
    nspawn=$!
    for _ in $(seq 100); do
        leader=$(pgrep --parent "$nspawn" || true)
        # Not before systemd has its socket do commands find the machine.
        [ -n "$leader" ] && inside systemctl is-system-running 2>/dev/null |
            grep --quiet --extended-regexp 'running|degraded' && return
        sleep 0.3
    done
    fail "no boot: $(tail -3 "$root.log")"
}

halt() {
    kill -s RTMIN+3 "$leader"
    wait "$nspawn" || true
    leader='' nspawn=''
}

end() {
    [ -z "$nspawn" ] || { kill -s TERM "$nspawn"; wait "$nspawn"; } 2>/dev/null || true
    rm -rf "$root" "$root".*
}
trap end EXIT

# The shell blocks under a heading of the page.
words() {
    awk -v heading="## $1" '/^## /{on = $0 == heading} /^```/{code = $0 == "```sh"; next} on && code' docs/install.md
}

walk() {
    echo "== $1"
    words "$1" >"$root/root/walk"
    grep --quiet . "$root/root/walk" || fail "docs/install.md has no commands under $1"
    inside bash -exc 'cd /root && . ./walk' >"$root.out" 2>&1 || { cat "$root.out"; fail "$1"; }
}

main_pid() { inside systemctl show --property MainPID --value hotset; }

# steps FUNCTION...: one after the other, each with its time.
steps() {
    local step begun
    for step; do
        begun=$SECONDS
        "$step"
        echo "-- $step: $((SECONDS - begun)) s"
    done
}
