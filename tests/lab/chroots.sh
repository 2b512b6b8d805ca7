# chroots.sh: Debian chroots that are built once and run a tool against this host's kernel. Sourced by bpftrace-in and
# dtrace-in. Root only. Cache: $LATMON_CHROOT_CACHE, else $XDG_CACHE_HOME/latmon-chroot.
cache=${LATMON_CHROOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/latmon-chroot}

mirror() { # the first Debian mirror of apt's own sources, security aside
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk '/^ *#/ {next} /^deb |^URIs:/ {for (i = 2; i <= NF; i++) if (!u && $i ~ /:\// && $i !~ /security/) u = $i} END {print u}'
}

build() { # SUITE PACKAGE NAME [FINISH]: the chroot $cache/NAME; FINISH is called with its path, still under the lock
    root=$cache/$3
    [ -e "$root.done" ] && return
    mkdir -p "$cache"
    exec 9>"$cache/$3.lock"
    flock 9
    [ -e "$root.done" ] && return
    echo "${0##*/}: building the $1 chroot in $root (once)" >&2
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --include="$2" "$1" "$root" "$(mirror)" >"$root.log" 2>&1 || {
        tail -5 "$root.log" >&2
        exit 125
    }
    rm -rf "$root"/var/cache/apt/archives/*.deb
    ${4:+"$4" "$root"}
    touch "$root.done"
    exec 9>&-
}

enter() { # ROOT COMMAND...: becomes COMMAND, with signals and exit status its own
    # Mounts in a mount namespace of our own: nothing stays mounted when it is killed, and no two runs meet. A kernel's
    # tracefs, debugfs and bpf are mounted on the host's own /sys, so they are seen in the chroot by the bind as well.
    # bpftrace 0.27 takes a raw tracepoint only where its __probestub_ function is in available_filter_functions. Some
    # hosts refuse to open that file, even to root: then it is covered by a list of the kernel's functions.
    exec unshare --mount --propagation private sh -c '
        root=$1; shift
        [ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
        [ -e /sys/kernel/debug/block ] || mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
        mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf 2>/dev/null
        if ! head -c 1 /sys/kernel/tracing/available_filter_functions >/dev/null 2>&1; then
            mount -t tmpfs tmpfs "$root/run"
            awk "\$2 ~ /[tT]/ {print \$4 ? \$3 \" \" \$4 : \$3}" /proc/kallsyms >"$root/run/functions"
            for d in tracing debug/tracing; do
                [ ! -e "/sys/kernel/$d/available_filter_functions" ] ||
                    mount --bind "$root/run/functions" "/sys/kernel/$d/available_filter_functions"
            done
        fi
        for d in proc sys dev; do mount --rbind "/$d" "$root/$d"; done
        exec chroot "$root" "$@"' sh "$@"
}
