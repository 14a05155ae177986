# shellcheck shell=bash
# What `prepare` and `run` share: where things lie, and how a tree for the guest is filled and packed.
# Sourced, never run.

VM=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# Of Debian, which has the guest's kernel.
KERNEL=${VM_KERNEL:-bookworm-backports}
# Everything in it can be deleted at any time; `prepare` makes it again.
# shellcheck disable=SC2034  # for those who source this file
CACHE=$(dirname -- "$VM")/var/vm/$KERNEL
# cx16 off: with it on, QEMU 7.2's emulation kills Linux 6.12 at boot. rdrand on: else nothing seeds the guest's
# random numbers, and programs that want some wait for seconds. The rest: what every server has had since 2010, such
# as an instruction for CRC-32C.
# shellcheck disable=SC2034  # for those who source this file
QEMU=(qemu-system-x86_64 -M pc -nodefaults -display none -no-reboot -cpu 'qemu64,-cx16,+rdrand,+ssse3,+sse4.1,+sse4.2,+popcnt,+pclmulqdq')
# A directory that the loader searches by default.
LIBRARIES=lib/x86_64-linux-gnu

die() {
    printf '%s: %s\n' "$(basename -- "$0")" "$1" >&2
    exit 125
}

# add_file TREE FILE DEST: copies FILE to TREE/DEST, with every library it is linked against.
add_file() {
    local tree=$1 file=$2 dest=$3 library
    mkdir -p "$tree/$(dirname -- "$dest")" "$tree/$LIBRARIES" "$tree/lib64"
    cp -L -- "$file" "$tree/$dest"
    # Both fail on scripts, data and static programs: those have no libraries.
    { ldd -- "$(realpath -- "$file")" 2>/dev/null | grep -o '/[^ ]*' || true; } | while read -r library; do
        case $library in
            /lib64/*) cp -L -- "$library" "$tree/lib64/" ;;
            *) cp -L -- "$library" "$tree/$LIBRARIES/" ;;
        esac
    done
}

# pack TREE: writes TREE as the uncompressed archive that the kernel unpacks into its root.
pack() {
    (cd -- "$1" && find . -mindepth 1 -print0 | cpio --null --create --format=newc --quiet)
}
