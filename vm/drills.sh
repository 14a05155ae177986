# shellcheck shell=sh
# For drills in the guest: passes over a block device, `device`, each of which fills every block and reads it back. Follows
# /lib/guest.sh.
# shellcheck disable=SC2034,SC2154  # what is the caller's: the device, and what is set for it

# pass SEED OPTION...: fills every block once with its place and the seed, in random order, and reads it back soon after;
# the report goes to /tmp/report. (fio's checksums would take a block of an earlier pass for one of this.)
pass() {
    seed=$1
    shift
    fio --name=pass --filename="$device" --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 --randseed="$seed" \
        --verify=pattern --verify_pattern="$(printf 0x%04x $((4096 + seed)))%o" --verify_interval=4k --verify_backlog=64 \
        --continue_on_error=all --output-format=json --output=/tmp/report "$@" 2>/dev/null
}
# errors_of_pass: requests that failed, and blocks that were not as they must be.
errors_of_pass() {
    awk -F'[:,]' '$1 ~ /"total_err"/ { print $2 + 0; exit }' /tmp/report
}
# stall_of_pass: the longest that a request took, in ms.
stall_of_pass() {
    awk -F'[:,]' '$1 ~ /"clat_ns"/ { seen = 1 } seen && $1 ~ /"max"/ { if ($2 > most) most = $2; seen = 0 }
        END { print int(most / 1e6) }' /tmp/report
}
# load: passes, one after the other, as long as /tmp/loading exists; a line for each in /tmp/passes: SEED ERRORS STALL_MS.
load() {
    while [ -e /tmp/loading ]; do
        number=$((number + 1))
        pass "$number" || true
        echo "$number $(errors_of_pass) $(stall_of_pass)" >>/tmp/passes
    done
}
begin_load() {
    number=$1
    touch /tmp/loading
    rm -f /tmp/passes
    load &
    loader=$!
    sleep 2
}
# end_load: sets `errors`, `stall_ms` and, to the seed of the last pass, `number`.
end_load() {
    rm /tmp/loading
    wait "$loader"
    errors=$(awk '{ sum += $2 } END { print sum }' /tmp/passes)
    stall_ms=$(awk '$3 > most { most = $3 } END { print most + 0 }' /tmp/passes)
    number=$(awk 'END { print $1 }' /tmp/passes)
}
# wrong_blocks SEED [FIO_OPTION]: how many are not as that pass has left them.
wrong_blocks() {
    pass "$@" --rw=read || true
    errors_of_pass
}
# lose DISK...: unplugs them for a while, under the load.
lose() {
    unplug "$@"
    for disk in "$@"; do wait_until 5 is_unplugged "$disk"; done
    sleep "$AWAY_S"
}
