# shellcheck shell=sh
# For measurements in the guest: sets up the caches that are compared, and fills them. Follows /lib/guest.sh.

# make_cache CACHE FAST SLOW: caches the block device SLOW in FAST, write-through; sets `device` to the result.
make_cache() {
    case $1 in
        raw) device=$2 ;;
        bcache)
            modprobe bcache
            make-bcache --block 4k --bucket 128k -C "$2" -B "$3" >/dev/null
            echo "$2" >/sys/fs/bcache/register
            echo "$3" >/sys/fs/bcache/register
            wait_until 10 test -e /sys/block/bcache0/bcache/cache
            device=/dev/bcache0
            # Let neither sequential nor congested traffic pass by. Write-through is the default.
            echo 0 >/sys/block/bcache0/bcache/sequential_cutoff
            echo 0 >/sys/block/bcache0/bcache/cache/congested_read_threshold_us
            echo 0 >/sys/block/bcache0/bcache/cache/congested_write_threshold_us
            ;;
        dm-cache)
            modprobe dm-cache-smq
            null_device metadata 16 0
            dmsetup create cached --table "0 $(blockdev --getsz "$3") cache /dev/metadata $2 $3 \
                128 2 metadata2 writethrough smq 2 migration_threshold 204800"
            device=/dev/mapper/cached
            ;;
        qemu-nbd) # no cache: what the way over the kernel's NBD client costs
            qemu-nbd --fork --persistent --format=raw --cache=none --aio=io_uring --socket=/run/nbd "$2"
            attach_nbd
            ;;
        ublk-floor) # no cache: what any server of ublk that verifies what it reads must cost
            modprobe ublk_drv
            ublk_floor "$2" >&2 &
            wait_until 10 test -b /dev/ublkb0
            device=/dev/ublkb0
            ;;
        hotset | hotset-ublk) make_hotset "$1" "$2" "$3" ;;
        *) fail "unknown cache $1" ;;
    esac
}

# make_hotset CACHE FAST SLOW [LINES]: hotset with SLOW cached in FAST, over NBD or ublk. LINES are the volume's besides; what they
# name is in $hotset_devices, sections of the configuration.
make_hotset() {
    configure_hotset <<END
${hotset_devices:-}
[[device]]
name = "fast"
path = "$2"
[[device]]
name = "slow"
path = "$3"
[[pool]]
name = "pool"
devices = ["fast"]
[[volume]]
name = "volume"
origin = "slow"
pool = "pool"
${4:-}
$([ "$1" = hotset ] || printf '[[attach]]\nublk = "volume"')
END
    if [ "$1" = hotset ]; then serve_hotset; else serve_hotset_by_ublk; fi
}

# configure_hotset <SECTIONS: makes /run/hotset.toml.
configure_hotset() {
    {
        cat <<END
[daemon]
control = "/run/control"
state = "/run/state"
buffers = "64MiB"
[[listen]]
unix = "/run/nbd"
END
        cat
    } >/run/hotset.toml
}

# serve_hotset: starts the daemon, and attaches its volume called "volume".
serve_hotset() {
    hotset serve --config /run/hotset.toml >&2 &
    wait_until 10 test -S /run/nbd
    attach_nbd -name volume
}

# serve_hotset_by_ublk: starts the daemon, which attaches its volume.
# shellcheck disable=SC2034  # `device` is for the caller
serve_hotset_by_ublk() {
    modprobe ublk_drv
    hotset serve --config /run/hotset.toml >&2 &
    wait_until 10 test -S /run/nbd
    wait_until 10 test -b /dev/ublkb0
    device=/dev/ublkb0
}

# attach_nbd OPTION...: attaches the server at /run/nbd.
# shellcheck disable=SC2034  # `device` is for the caller
attach_nbd() {
    modprobe nbd
    nbd-client -unix /run/nbd /dev/nbd0 "$@" >/dev/null
    wait_until 5 test -e /sys/block/nbd0/pid
    device=/dev/nbd0
}

# read_hot_set DEVICE MIB FIO_OPTION...: 4 KiB random reads of the first MIB, or what --rw says; prints fio's JSON.
# libaio, because io_uring hands each read to a worker thread on bcache and dm-cache, which cannot promise not to wait.
read_hot_set() {
    filename=$1 mib=$2
    shift 2
    fio --name=read --filename="$filename" --size="${mib}M" --rw=randread --bs=4k --direct=1 --ioengine=libaio \
        --output-format=json "$@"
}

# iops_of DEVICE MIB DEPTH RUN FIO_OPTION...: as read_hot_set, for a short time; RUN seeds the addresses. Prints IOPS.
iops_of() {
    device_measured=$1 mib_measured=$2 depth_measured=$3 seed=$4
    shift 4
    # Of the guest's time; fio prints it in ms, so its error is under 0.5%. The "iops" are those of reads and of writes.
    read_hot_set "$device_measured" "$mib_measured" --iodepth="$depth_measured" --time_based --gtod_reduce=1 \
        --runtime=250ms --norandommap --randseed="$seed" "$@" |
        awk -F'[:,]' '$1 ~ /"iops"/ { sum += $2 } END { print sum }'
}

# Reads that a block device has served: Documentation/admin-guide/iostats.rst.
reads_of() {
    awk '{ print $1 }' "/sys/block/$1/stat"
}

# fill_cache DEVICE MIB ORIGIN: reads the hot set until ORIGIN is no longer asked.
fill_cache() {
    passes=0
    until
        reads_before=$(reads_of "$3")
        read_hot_set "$1" "$2" --iodepth=4 >/dev/null
        [ "$(reads_of "$3")" = "$reads_before" ]
    do
        [ $((passes += 1)) -lt 30 ] || fail "the origin is still read after $passes passes"
        sleep 1
    done
}
