# shellcheck shell=sh
# For scripts that run in the guest: `. /lib/guest.sh`.

fail() {
    echo "FAIL: $1"
    exit 1
}

# wait_until SECONDS COMMAND...: succeeds as soon as COMMAND does.
wait_until() {
    tenths_left=$(($1 * 10))
    shift
    until "$@"; do
        [ $((tenths_left -= 1)) -gt 0 ] || fail "gave up waiting for: $*"
        sleep 0.1
    done
}

# null_device NAME MIB LATENCY_NS [ATTRIBUTE=VALUE...]: makes /dev/NAME, a RAM disk that answers each request after LATENCY_NS.
# With 0 it answers at once; otherwise by a high-resolution timer. It takes O_DIRECT and keeps what is written. The attributes
# are those of null_blk in configfs.
null_device() {
    [ -d /sys/kernel/config/nullb ] || {
        modprobe configfs
        mount -t configfs configfs /sys/kernel/config
        modprobe null_blk nr_devices=0
    }
    device=/sys/kernel/config/nullb/$1
    mkdir "$device"
    echo "$2" >"$device/size"
    echo 1 >"$device/memory_backed"
    echo 4096 >"$device/blocksize"
    echo 1 >"$device/submit_queues"
    if [ "$3" -gt 0 ]; then
        echo 2 >"$device/irqmode"
        echo "$3" >"$device/completion_nsec"
    else
        echo 0 >"$device/irqmode"
    fi
    shift 3
    for attribute in "$@"; do
        echo "${attribute#*=}" >"$device/${attribute%%=*}"
    done
    echo 1 >"$device/power"
}

# link_disks: makes /dev/disk/ID for each virtio disk there is, as udev does elsewhere: the kernel's name of one that was
# unplugged and plugged again may be another.
link_disks() {
    rm -rf /dev/disk
    mkdir /dev/disk
    for disk in /sys/block/vd*; do
        # One that goes away meanwhile is none.
        id=$(cat "$disk/serial" 2>/dev/null) && ln -s "/dev/${disk##*/}" "/dev/disk/$id"
    done
}

# is_plugged ID: whether the disk is there.
is_plugged() {
    grep -qx "$1" /sys/block/vd*/serial 2>/dev/null
}

# is_unplugged ID: whether the disk is gone.
is_unplugged() {
    ! is_plugged "$1"
}

# unplug ID...: takes disks away, over the QMP socket that the host forwarded to port 4444.
unplug() {
    for id in "$@"; do
        echo "\"device_del\", \"arguments\": {\"id\": \"$id\"}"
    done | qmp
}

# plug FILE ID: gives back a disk that was unplugged, on the host's FILE.
plug() {
    # What QEMU opened for the first disk has gone with it; what this opens stays, and is refused the next time.
    qmp <<END
"blockdev-add", "arguments": {"node-name": "$2", "driver": "raw", "file": {"driver": "file", "filename": "$1"}}
"device_add", "arguments": {"driver": "virtio-blk-pci", "drive": "$2", "id": "$2", "serial": "$2"}
END
}

# begin: starts the daemon that /tmp/hotset.toml configures, as $daemon; what it says is appended to /tmp/log.
begin() {
    hotset serve --config /tmp/hotset.toml 2>>/tmp/log &
    # shellcheck disable=SC2034  # for the caller
    daemon=$!
}

# is_served: whether a volume of that daemon is attached, and served.
is_served() {
    hotset attach --json 2>/dev/null | grep -q '"state":"served"'
}

# qmp <COMMANDS: gives QEMU commands, a line each, without regard to its answers.
qmp() {
    # Each command's answer must arrive before the next is sent, and the connection must outlive the last.
    { { echo '"qmp_capabilities"' && cat; } | while read -r command; do
        sleep 0.2
        echo "{\"execute\": $command}"
    done; sleep 0.5; } | nc 10.0.2.2 4444 >/dev/null
}
