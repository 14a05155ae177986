# shellcheck shell=sh
# For measurements in the guest: sets up the write-back caches that are compared. Each keeps two copies of what its origin
# lacks, on the devices fast0 and fast1: hotset by its log, the others on md's RAID 1 of them. Follows /lib/caches.sh.

# make_write_back CACHE FAST0 FAST1 POOL SLOW: caches the block device SLOW; sets `device` to the result. hotset's pool, which
# is no more than a cache of reads, is on POOL, as if that were a partition of one of the fast devices.
# shellcheck disable=SC2034  # `device` is for the caller
make_write_back() {
    case $1 in
        raw) device=$2 ;;
        md) make_mirror "$2" "$3" ;;
        bcache)
            make_mirror "$2" "$3"
            make_cache bcache /dev/md0 "$5"
            echo writeback >/sys/block/bcache0/bcache/cache_mode
            ;;
        dm-writecache)
            make_mirror "$2" "$3"
            modprobe dm-writecache
            # shellcheck disable=SC2086  # a word an option
            dmsetup create cached --table "0 $(blockdev --getsz "$5") writecache s $5 /dev/md0 4096 ${writecache_options:-0}"
            device=/dev/mapper/cached
            ;;
        hotset | hotset-ublk)
            # shellcheck disable=SC2034  # for make_hotset
            hotset_devices="
[[device]]
name = \"log0\"
path = \"$2\"
controller = \"first\"
[[device]]
name = \"log1\"
path = \"$3\"
controller = \"second\""
            make_hotset "$1" "$4" "$5" 'mode = "write-back"
log = ["log0", "log1"]'
            ;;
        *) fail "unknown cache $1" ;;
    esac
}

# make_mirror MEMBER MEMBER: md's RAID 1, with its bitmap, as /dev/md0.
make_mirror() {
    modprobe raid1
    # Blank members are copies of each other.
    MDADM_NO_UDEV=1 mdadm --create /dev/md0 --run --quiet --assume-clean --bitmap=internal --level=raid1 \
        --raid-devices=2 "$1" "$2" >&2
    device=/dev/md0
}

# sectors_written DEVICE...: of 512 bytes, since they were made: Documentation/admin-guide/iostats.rst.
sectors_written() {
    for written in "$@"; do cat "/sys/block/$written/stat"; done | awk '{ sum += $7 } END { print sum }'
}

# dirty_left CACHE: bytes, or another number that is 0 if the origin lacks nothing.
dirty_left() {
    case $1 in
        bcache) awk '$1 != "clean" { dirty = 1 } END { print dirty + 0 }' /sys/block/bcache0/bcache/state ;;
        # Of its status, blocks and free blocks follow the error. What was carried to the origin is free.
        dm-writecache) dmsetup status cached | awk '{ print $5 - $6 }' ;;
        hotset*) hotset status --json --control /run/control | sed 's/.*"dirty_bytes": *\([0-9]*\).*/\1/' ;;
        *) echo 0 ;;
    esac
}

# clean CACHE: lets it carry to the origin what it lacks, at once and without a limit of its own; hotset does so anyhow.
clean() {
    case $1 in
        bcache)
            echo 0 >/sys/block/bcache0/bcache/writeback_delay
            echo 0 >/sys/block/bcache0/bcache/writeback_percent
            echo 1 >/sys/block/bcache0/bcache/writeback_running
            ;;
        dm-writecache) dmsetup message cached 0 cleaner ;;
    esac
}

# drain CACHE: until the origin lacks nothing.
drain() {
    clean "$1"
    tenths_left=6000
    until [ "$(dirty_left "$1")" = 0 ]; do
        [ $((tenths_left -= 1)) -gt 0 ] || fail "$1 still has dirty data: $(dirty_left "$1")"
        sleep 0.1
    done
}
