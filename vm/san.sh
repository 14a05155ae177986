# shellcheck shell=sh
# For tests of volumes on LUNs of a SAN, in the guest; follows /lib/guest.sh, and needs the cmp of diffutils. Two LUNs on
# files below /san, each by two paths over loopback (127.0.0.2 and 127.0.0.3): `data` is write-through on the first, `db`
# write-back on the second. Both are block devices by ublk. Each cell below is a function, which prints a line.
#
# The test gives, for its protocol:
#   begin_target, end_target   the target as of now: LUN 1 and 2, both paths; its crash
#   lun NUMBER FILE NAME       has the target offer the file as that LUN, under a stable name
#   grow_lun NUMBER            gives the LUN $grown_mib, and has target and initiator see that
#   login, give_up             of the initiator: as at a boot; as after its last timeout
#   live_paths_are COUNT       of both LUNs together, by the address
#   link_of NAME               the path by which udev names the LUN of that stable name
#   link_luns                  makes these paths for the LUNs that are there
# A test in front of something else than files gives other functions in the place of these here.
# shellcheck disable=SC2034,SC2154  # what is the test's

# Distinct in what LIO makes a WWID of.
one=11111111-0000-4000-8000-000000000001 two=22222222-0000-4000-8000-000000000002
other_one=33333333-0000-4000-8000-000000000003 other_two=44444444-0000-4000-8000-000000000004
one_mib=32 two_mib=16 grown_mib=40
# The commands that take a snapshot of the first LUN, and restore it.
take="cp /san/one /san/monday" restore="dd if=/san/monday of=/san/one bs=1M conv=notrunc"

# pull PATH, and plug_in PATH: nothing arrives at the address any more, and no connection is closed.
pull() {
    ip route add blackhole "127.0.0.$1/32" table local || fail "pull $1"
}
plug_in() {
    ip route del blackhole "127.0.0.$1/32" table local || fail "plug in $1"
}

# is_served_as VOLUME: whether its block device is served.
is_served_as() {
    hotset attach 2>/dev/null | awk -v volume="$1" '$1 == volume && $3 == "served" { found = 1 } END { exit !found }'
}
device_of() {
    hotset attach | awk -v volume="$1" '$1 == volume { print $2 }'
}
serve() {
    begin
    wait_until 120 is_served_as data
    wait_until 120 is_served_as db
    data=$(device_of data) db=$(device_of db)
}
end() {
    kill "$daemon"
    wait "$daemon" || fail "end of the daemon"
}
# count COUNTER: of the volume data.
count() {
    hotset status --json | grep -o '"name":"data".*' | grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2
}
# figure NAME REPORT: the greatest of that name in a report of fio.
figure() {
    awk -F'[:,]' -v name="\"$1\"" '$1 ~ name { if ($2 + 0 > most) most = $2 + 0 } END { print most + 0 }' "$2"
}
# stall_of REPORT: the longest that a request took, in ms.
stall_of() {
    awk -F'[:,]' '$1 ~ /"clat_ns"/ { seen = 1 } seen && $1 ~ /"max"/ { if ($2 > most) most = $2; seen = 0 }
        END { print int(most / 1e6) }' "$1"
}
# read_hot PATH [SECONDS]: reads its first 8 MiB once in random order, or for that time.
read_hot() {
    fio --name=hot --filename="$1" --size=8M --rw=randread --bs=16k --ioengine=libaio --iodepth=4 --direct=1 \
        ${2:+--time_based --runtime="$2"} --output-format=json --output=/tmp/hot || fail "hot reads: $(cat /tmp/hot)"
    [ "$(figure error /tmp/hot)" = 0 ] || fail "hot reads: $(cat /tmp/hot)"
}
load() {
    while [ -e /tmp/loading ]; do
        fio --name=load --filename=/mnt/load --size=8M --rw=randrw --bs=4k --ioengine=libaio --iodepth=8 --direct=1 \
            --time_based --runtime=3 --verify=crc32c --verify_fatal=1 --verify_backlog=64 --fsync=64 \
            --output-format=json --output=/tmp/fio || return 1
        [ "$(figure error /tmp/fio)" = 0 ] || return 1
        stall_of /tmp/fio >>/tmp/stalls
        figure total_ios /tmp/fio >>/tmp/loads
    done
}
# under_load COMMAND...: runs it under a load that is read back and compared, and sets `stall_ms` and `ios`.
under_load() {
    touch /tmp/loading
    rm -f /tmp/stalls /tmp/loads
    load &
    loader=$!
    wait_until 120 test -s /tmp/loads # a turn, which wrote the file first
    "$@"
    sleep 1
    kill -0 "$loader" || fail "the load ended: $(cat /tmp/fio)"
    rm /tmp/loading
    wait "$loader" || fail "the load: $(cat /tmp/fio)"
    stall_ms=$(sort -n /tmp/stalls | tail -n 1)
    ios=$(awk '{ sum += $1 } END { print sum }' /tmp/loads)
}
# size_of FILE: or of a block device.
size_of() {
    if [ -b "$1" ]; then blockdev --getsize64 "$1"; else stat -c %s "$1"; fi
}
# differing DEVICE FILE: how many bytes are not those of the file, which may be a block device.
differing() {
    [ "$(size_of "$1")" = "$(size_of "$2")" ] || fail "$1 and $2 have other sizes"
    [ ! -b "$2" ] || blockdev --flushbufs "$2"
    dd if="$1" bs=1M iflag=direct 2>/dev/null | cmp-of-diffutils -l - "$2" | wc -l
}
is_sound() {
    e2fsck -f -n "$data" >/tmp/fsck 2>&1 || fail "$(cat /tmp/fsck)"
    [ "$(differing "$data" /san/one)" = 0 ] || fail "volume and LUN differ"
}

# begin_san: target, initiator and daemon.
begin_san() {
    trap 'cat /tmp/log' EXIT
    modprobe ublk_drv
    mkdir -p /san /run/hotset
    mount -t tmpfs tmpfs /san
    truncate -s ${one_mib}M /san/one
    truncate -s ${two_mib}M /san/two
    begin_target
    login
    cat >/tmp/hotset.toml <<END
[daemon]
control = "/tmp/control"
state = "/tmp/state"
buffers = "64MiB"
[[device]]
name = "lun1"
path = "$(link_of $one)"
[[device]]
name = "lun2"
path = "$(link_of $two)"
[[device]]
name = "ssd"
path = "/dev/vda"
[[device]]
name = "log0"
path = "/dev/vdb"
controller = "pcie0"
[[device]]
name = "log1"
path = "/dev/vdc"
controller = "pcie1"
[[pool]]
name = "fast"
devices = ["ssd"]
hit_latency_max = "5s" # an emulated machine may stand still for longer than the default
[[volume]]
name = "data"
origin = "lun1"
pool = "fast"
[[volume]]
name = "db"
origin = "lun2"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
max_lag = "10min"
[[attach]]
ublk = "data"
[[attach]]
ublk = "db"
END
    export HOTSET_CONTROL=/tmp/control
    serve
    mkfs.ext4 -q "$data" || fail mkfs
    mount -t ext4 -o noatime "$data" /mnt || fail mount
    dd if=/dev/urandom of=/mnt/hot bs=1M count=8 conv=fsync 2>/dev/null
}

warm_restart() {
    read_hot /mnt/hot
    read_hot /mnt/hot
    sleep 2 # a commit of the pool
    end
    serve
    hit=$(count blocks_hit) missed=$(count blocks_missed)
    read_hot /mnt/hot
    hit=$(($(count blocks_hit) - hit)) missed=$(($(count blocks_missed) - missed))
    [ $((hit + missed)) -ge 2048 ] || fail "only $((hit + missed)) blocks were looked up"
    [ "$hit" -ge $((19 * missed)) ] || fail "not warm: $hit blocks hit, $missed missed"
    echo "warm restart: $hit of $((hit + missed)) blocks hit"
}

pull_each_path() {
    for path in 2 3; do
        pull $path
        wait_until 60 live_paths_are 1
        sleep 1
        plug_in $path
        wait_until 60 live_paths_are 2
    done
}
each_path_pulled() {
    under_load pull_each_path
    echo "each path pulled: no error in $ios requests, the longest took $stall_ms ms"
}

# is_reported: whether the daemon names the origin that answers nothing.
is_reported() {
    hotset status --json | grep -q 'its origin lun1 fails: it has answered no request'
}
# pull_all_paths SECONDS
pull_all_paths() {
    pull 2
    pull 3
    wait_until 60 live_paths_are 0
    read_hot /mnt/hot "$1"
    wait_until 20 is_reported
    live_paths_are 0 || fail "there was a path"
    plug_in 2
    plug_in 3
    wait_until 60 live_paths_are 2
}
# all_paths_gone SECONDS
all_paths_gone() {
    under_load pull_all_paths "$1"
    [ "$stall_ms" -ge $(($1 * 1000)) ] || fail "no request waited for the paths: $stall_ms ms"
    [ "$(stall_of /tmp/hot)" -lt $(($1 * 500)) ] || fail "a hit waited $(stall_of /tmp/hot) ms"
    echo "all paths gone for $1 s: $(figure total_ios /tmp/hot) hits without an error, the longest took" \
        "$(stall_of /tmp/hot) ms; other requests waited $stall_ms ms, and none failed"
}

kill_target() {
    end_target
    wait_until 60 live_paths_are 0
    sleep 2
    begin_target
    wait_until 60 live_paths_are 2
}
target_killed() {
    under_load kill_target
    umount /mnt
    is_sound
    echo "target killed and back: no error in $ios requests, the longest took $stall_ms ms"
}

# The seven steps of docs/commands/volume.md. A restore that is not announced shows what the comparison sees.
snapshot_restored() {
    mount -t ext4 -o noatime "$data" /mnt || fail mount
    before=$(md5sum </mnt/hot)
    fsfreeze --freeze /mnt
    # shellcheck disable=SC2086  # words
    hotset volume snapshot data -- $take >/tmp/taken 2>&1 || fail "snapshot: $(cat /tmp/taken)"
    fsfreeze --unfreeze /mnt
    dd if=/dev/urandom of=/mnt/hot bs=64k count=1 conv=notrunc,fsync 2>/dev/null
    touch /mnt/later
    read_hot /mnt/hot
    umount /mnt
    $restore >/tmp/restored 2>&1 || fail "restore: $(cat /tmp/restored)"
    stale=$(differing "$data" /san/one)
    [ "$stale" -gt 50000 ] || fail "the comparison sees $stale stale bytes"
    # shellcheck disable=SC2086  # words
    hotset volume snapshot --restore data -- $restore >/tmp/restored 2>&1 || fail "restore: $(cat /tmp/restored)"
    is_sound
    mount -t ext4 -o noatime "$data" /mnt || fail mount
    [ "$(md5sum </mnt/hot)" = "$before" ] || fail "not the content of the snapshot"
    [ ! -e /mnt/later ] || fail "a file of later"
    umount /mnt
    echo "snapshot restored: $stale bytes stale if unannounced, none by the seven steps"
}

lun_is() {
    [ "$(blockdev --getsize64 "$(link_of $one)")" = $(($1 << 20)) ]
}
lun_grown() {
    grow_lun 1
    wait_until 30 lun_is $grown_mib
    hotset volume grow data 2>/tmp/refused && fail "a volume has grown below its block device"
    grep -q 'grows when the daemon is started again' /tmp/refused || fail "$(cat /tmp/refused)"
    [ "$(blockdev --getsize64 "$data")" = $((one_mib << 20)) ] || fail "$data has another size"
    sed -i '/^\[\[attach/ { N; /"data"/d }' /tmp/hotset.toml
    hotset reload >/dev/null || fail "reload without the block device"
    hotset volume grow data >/dev/null || fail grow
    hotset attach data >/dev/null || fail attach
    data=$(device_of data)
    dd if=/dev/urandom of="$data" bs=1M seek=$((grown_mib - 1)) count=1 oflag=direct 2>/dev/null ||
        fail "write of what is new"
    [ "$(differing "$data" /san/one)" = 0 ] || fail "volume and LUN differ"
    echo "LUN grown: $((one_mib << 20)) bytes, then $(blockdev --getsize64 "$data"), without a restart of the daemon"
}

# dirty_bytes: of the volume db.
dirty_bytes() {
    hotset status --json | grep -o '"dirty_bytes":[0-9]*' | cut -d: -f2
}
# The initiator gives the LUNs up, and dirty data of one stays in its log.
luns_given_up() {
    read_hot "$data"
    read_hot "$data"
    dd if=/dev/urandom of=/tmp/written bs=1M count=4 2>/dev/null
    dd if=/tmp/written of="$db" bs=64k oflag=direct 2>/dev/null || fail "write"
    give_up
    read_hot "$data"
    dd if="$data" of=/dev/null bs=64k skip=$((36 * 16)) count=1 iflag=direct 2>/dev/null && fail "a miss without its LUN"
    dd if=/tmp/written of="$db" bs=1M seek=4 oflag=direct 2>/dev/null || fail "write without the LUN"
    dirty=$(dirty_bytes)
    [ "$dirty" -ge $((4 << 20)) ] || fail "only $dirty bytes are dirty"
    echo "LUNs given up: $(figure total_ios /tmp/hot) hits without an error, $((dirty >> 20)) MiB dirty"
}

# rename_luns: the old paths lead to the other LUNs, as names such as /dev/sda or a map's do.
rename_luns() {
    ln -sf "$(realpath "$(link_of $other_one)")" "$(link_of $one)"
    ln -sf "$(realpath "$(link_of $other_two)")" "$(link_of $two)"
}
waits() {
    hotset status --json 2>/dev/null | grep -q "\"waiting\":\[{\"name\":\"$1\""
}
# Clones take the places of both LUNs: found by their identity, then under the old names. One differs in what was cached.
replace_luns() {
    cp /san/one /san/other_one
    cp /san/two /san/other_two
    dd if=/dev/urandom of=/san/other_one bs=64k seek=32 count=1 conv=notrunc 2>/dev/null
    sum=$(md5sum </san/other_two)
    lun 1 /san/other_one $other_one
    lun 2 /san/other_two $other_two
    login
    rename_luns
    sleep 4 # two attempts of the running daemon to have the origin of its dirty data again
    [ "$(md5sum </san/other_two)" = "$sum" ] || fail "the running daemon wrote to another LUN"
    kill -9 "$daemon"
    wait "$daemon"
    link_luns
    begin
    wait_until 120 waits data
    rename_luns
}
luns_replaced() {
    replace_luns
    wait_until 120 grep -q 'this is another device than the origin of its dirty data' /tmp/log
    wait_until 120 grep -q 'was changed while hotset did not have it' /tmp/log
    dd if="$data" of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null &
    reader=$!
    sleep 2
    kill -0 $reader 2>/dev/null || fail "the block device of the former LUN was taken over"
    hotset detach --force data || fail "detach by force"
    wait $reader
    wait_until 120 is_served_as data
    stale=$(differing "$(device_of data)" /san/other_one)
    [ "$stale" = 0 ] || fail "$stale bytes of the former LUN"
    former=$(differing "$(device_of data)" /san/one)
    [ "$former" -gt 50000 ] || fail "the comparison sees $former bytes"
    [ "$(md5sum </san/other_two)" = "$sum" ] || fail "dirty data went to another LUN"
    hotset detach data || fail detach # or it would wait for the other LUN
    end
    echo "LUNs replaced: of $former bytes cached of the former none was served, of $((dirty >> 20)) MiB dirty none written"
}

# The former LUNs are back, and nothing of the write-back volume is missing.
luns_back() {
    give_up
    lun 1 /san/one $one
    lun 2 /san/two $two
    login
    serve
    [ "$(differing "$data" /san/one)" = 0 ] || fail "volume and LUN differ"
    for part in 0 4; do
        dd if="$db" bs=1M skip=$part count=4 iflag=direct 2>/dev/null | cmp - /tmp/written || fail "a write is lost"
    done
    hotset volume set-mode db write-through --temporary >/dev/null || fail drain
    [ "$(differing "$db" /san/two)" = 0 ] || fail "the drained volume and its LUN differ"
    end
    echo "former LUNs back: all of $((dirty >> 20)) MiB dirty is read, and drained"
}

# block_cells GONE_S: all cells above, in their order.
block_cells() {
    begin_san
    warm_restart
    each_path_pulled
    all_paths_gone "$1"
    target_killed
    snapshot_restored
    lun_grown
    luns_given_up
    luns_replaced
    luns_back
}
