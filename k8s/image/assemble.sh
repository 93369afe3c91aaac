#!/bin/sh
# Lays out the image's file system: assemble.sh FOLDER, in the build stage, as root. FOLDER gets the interpreter with its packages, the
# project, and those Debian packages that own a library which they load, or a program that Kubernetes or KubeRay starts.
set -eu
final=$1
programs="bash dash coreutils tar"

owners() { # of the files on standard input: packages, one a line. A file in /lib may be listed in /usr/lib, and the other way round.
    sed 's#^\(/usr\)\{0,1\}\(/.*\)#\2\n/usr\2#' | xargs dpkg-query --search 2> /dev/null | cut -d : -f 1 | sort -u
}
elf_files() {
    find /usr/local -type f \( -name '*.so*' -o -perm /111 \)
    dpkg-query --listfiles $programs | grep '/bin/'
}
libraries() {
    elf_files | xargs ldd 2> /dev/null | sed -n 's#.*=> \(/[^ ]*\) (.*#\1#p' | grep -v '^/usr/local/' | sort -u
}
packages=$(printf '%s\n' base-files libc-bin $programs $(libraries | owners) | sort -u)

mkdir -p "$final/var/lib/dpkg/status.d"
for package in $packages; do
    dpkg-query --status "$package" > "$final/var/lib/dpkg/status.d/$package"
done
for link in $(find /bin /sbin /lib* -maxdepth 0 -type l); do
    mkdir -p "$final/$(readlink -f "$link")"
    cp --no-dereference "$link" "$final$link"
done
dpkg-query --listfiles $packages | sort -u | grep --invert-match --extended-regexp \
    '^/(usr/share/(doc/.*[^t]|man/.*|locale/.*|info/.*|lintian/.*|bug/.*|doc-base/.*)|usr/lib/.*/gconv/.*)$' |
    while read -r path; do [ ! -e "$path" ] || echo "$path"; done |
    tar --create --no-recursion --files-from - | tar --extract --directory "$final"
for path in /etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.conf /etc/ld.so.conf.d /usr/local /opt/stampede; do
    [ ! -e "$path" ] || tar --create "$path" 2> /dev/null | tar --extract --directory "$final"
done
ldconfig -r "$final"
mkdir -p "$final/tmp" "$final/proc" "$final/sys" "$final/dev"
chmod 1777 "$final/tmp"
